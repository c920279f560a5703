"""HTML pages as Markdown: title, headings and blocks, without scripts, hidden content, menus, headers and footers.

These are found by their elements and their role (WAI-ARIA 1.2). A page that has no other text is read whole.
"""

import codecs
import re
from collections import Counter
from html.parser import HTMLParser

from bothways.search.formats.plain_text import escaped, fenced
from bothways.text.rows.text_encodings import WINDOWS_1252, bom_encoding

CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?([\w.:-]{1,40})", re.IGNORECASE)
CHARSET_BYTES = 1024  # of the start of a page, where its encoding is declared

DROPPED = {
    "script",
    "style",
    "template",
    "noscript",
    "svg",
    "iframe",
    "object",
    "head",
    "select",
    "textarea",
}
IN_HEAD = {
    "title",
    "meta",
    "link",
    "base",
    "script",
    "style",
    "noscript",
    "template",
}
VOID = {
    "area",
    "base",
    "br",
    "col",
    "embed",
    "hr",
    "img",
    "input",
    "link",
    "meta",
    "source",
    "track",
    "wbr",
}
HEADINGS = {
    "h1": 1,
    "h2": 2,
    "h3": 3,
    "h4": 4,
    "h5": 5,
    "h6": 6,
}
PARAGRAPHS = {
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "caption",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "header",
    "hr",
    "html",
    "legend",
    "main",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "summary",
    "table",
    "ul",
}
REPEATED = {"p", "li", "dd", "dt", "td", "th", "tr", "option"}  # the next one ends it, without an end tag
ROLES = {
    "nav": "navigation",
    "aside": "complementary",
    "footer": "contentinfo",
    "dialog": "dialog",
    "search": "search",
}
SURROUNDINGS = {  # roles of elements around the text
    *ROLES.values(),
    "banner",
    "alertdialog",
    "menu",
    "menubar",
    "toolbar",
}
CONTENT = ("article", "main", "section", "blockquote")  # whose headers are part of the text
COOKIE_BANNER = re.compile(r"(cookies?|consent|privacy) (banner|bar|consent|notice|dialog)", re.IGNORECASE)
HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
# A section on which html.parser fails.
WRONG_SECTION = re.compile(r"<!\[(?!(?:CDATA|if|else|endif)(?![-_.a-z0-9]))", re.IGNORECASE)
COMMENT_END = "<hr>-->"


def decode_html(content: bytes, encoding: str | None = None) -> str:
    """By byte-order mark, `encoding`, or the page's declaration; else UTF-8 or, as in browsers, Windows-1252."""
    marked = bom_encoding(content)
    if marked:
        return content.decode(marked, "replace").removeprefix("\ufeff")

    names = [encoding] if encoding else []
    declared = CHARSET.search(content[:CHARSET_BYTES])
    if declared:
        names.append(declared[1].decode("ascii", "replace"))
    names.append("utf-8")

    for name in names:
        try:
            codec = codecs.lookup(name)
            if codec._is_text_encoding:
                return content.decode(codec.name)
        except (LookupError, UnicodeError):
            continue
    return content.decode(WINDOWS_1252, "replace")


def html_to_markdown(page: str) -> tuple[str, str]:
    """(the text with headings as `#` lines and a blank line between blocks, the title).

    >>> html_to_markdown("<title>Fees</title><h2>Late</h2><p>Five per cent.")
    ('# Fees\\n\\n## Late\\n\\nFive per cent.', 'Fees')
    """
    parser = _parsed(page)
    every = [block for block, _ in parser.blocks]
    blocks = [block for block, is_around in parser.blocks if not is_around]
    if not blocks:  # there is no other text
        blocks = every

    title = " ".join("".join(parser.title).split())
    if not title and not any(block.startswith("# ") for block in blocks):
        # The first heading of the page, which may be in its header.
        title = next((block[2:] for block in every if block.startswith("# ")), "")
    if title and f"# {title}" not in blocks:
        blocks = [f"# {title}", *blocks]
    return "\n\n".join(blocks), title


def _parsed(page: str) -> "_PageParser":
    parser = _PageParser()
    parser.feed(WRONG_SECTION.sub("&lt;![", page))
    if page.rfind("<!--") > page.rfind("-->"):  # as in browsers, the rest of the page is a comment
        parser.feed(COMMENT_END)
    parser.close()
    parser.end_block()

    if parser.blocks and parser.blocks[-1][0] == "-->":  # it was no comment, but in a script
        parser.blocks.pop()
    return parser


class _PageParser(HTMLParser):
    """Collects the blocks of a page. Elements that are not closed end with their parent."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[tuple[str, bool]] = []  # with whether the block is around the text
        self.title: list[str] = []
        self.lines: list[str] = []  # finished lines of the current block
        self.words: list[str] = []  # parts of the current line
        self.open: list[str] = []  # elements
        self.num_open = Counter[str]()
        self.hidden_from = -1  # the depth of the element that hides the text; -1: it is shown
        self.around_from = -1  # likewise of one that is around the text
        self.level = 0  # of the heading
        self.in_title = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if self.open and self._ends_by(self.open[-1], tag):
            self._pop()
        if tag not in IN_HEAD:
            self._pop_to("head")  # which may have no end tag
        if tag in VOID:
            self._break(tag)
            return

        self.open.append(tag)
        self.num_open[tag] += 1

        if self.hidden_from < 0:
            self._break(tag)
            if tag in DROPPED or _is_hidden(dict(attributes)):
                self.hidden_from = len(self.open)
            elif self.around_from < 0 and self._is_around(tag, dict(attributes)):
                self.end_block()
                self.around_from = len(self.open)

        self.in_title = self.in_title or (tag == "title" and not self.num_open["svg"])
        self.level = HEADINGS.get(tag, self.level)

    def handle_endtag(self, tag: str) -> None:
        self._pop_to(tag)

    def handle_data(self, data: str) -> None:
        if self.in_title:
            self.title.append(data)
        elif self.hidden_from >= 0:
            pass
        elif self.num_open["pre"] and not self.level:
            first, *others = data.split("\n")
            self.words.append(first)
            for line in others:
                self._end_line()
                self.words.append(line)
        else:
            self.words.append(data)

    def end_block(self) -> None:
        self._end_line()
        lines = self.lines
        self.lines = []
        if not any(lines):
            return

        if self.level:
            lines = [f"{'#' * self.level} {' '.join(filter(None, lines))}"]
        elif self.num_open["pre"]:
            lines = fenced(lines)
        else:
            lines = [escaped(line) for line in lines if line]
        self.blocks.append(("\n".join(lines), self.around_from >= 0))

    @staticmethod
    def _ends_by(open_tag: str, tag: str) -> bool:
        """Whether an open element ends, without an end tag, where another starts."""
        if open_tag == "p":
            return tag in PARAGRAPHS
        return open_tag == tag and tag in REPEATED

    def _is_around(self, tag: str, attributes: dict[str, str | None]) -> bool:
        """Whether an element is a menu, a header, a footer or the like."""
        is_header = tag == "header" and not any(self.num_open[name] for name in CONTENT)
        if tag == "footer" and self.num_open["blockquote"]:  # its source
            return False

        role = attributes.get("role") or ("banner" if is_header else ROLES.get(tag, ""))
        if role.lower().strip() in SURROUNDINGS:
            return True
        label = (attributes.get("aria-label") or "").replace("-", " ")
        return bool(COOKIE_BANNER.search(label))

    def _pop_to(self, tag: str) -> None:
        while self.num_open[tag]:
            if self._pop() == tag:
                break

    def _pop(self) -> str:
        """Close the innermost element. Returns its tag."""
        tag = self.open[-1]
        if self.hidden_from < 0:
            self._break(tag, is_end=True)
        if self.hidden_from == len(self.open):
            self.hidden_from = -1
        if self.around_from == len(self.open):
            self.end_block()
            self.around_from = -1

        self.open.pop()
        self.num_open[tag] -= 1
        if tag == "title":
            self.in_title = False
        if tag in HEADINGS:
            self.level = 0
        return tag

    def _break(self, tag: str, is_end: bool = False) -> None:
        """End the line, cell or block that starts or ends with a tag."""
        if self.hidden_from >= 0:
            return
        if tag in PARAGRAPHS or tag in HEADINGS:
            if self.num_open["table"] > (tag == "table") or (self.num_open["li"] and tag == "p"):
                self.words.append(" ")  # within a cell or an item
            else:
                self.end_block()
        elif tag in ("br", "tr", "li"):
            self._end_line()

        if tag == "li" and not is_end:
            self.words.append("- ")
        elif tag in ("td", "th") and is_end:
            self.words.append("\t")

    def _end_line(self) -> None:
        line = "".join(self.words)
        if self.num_open["pre"] and not self.level:
            self.lines.append(line.rstrip())
        else:
            cells = [" ".join(cell.split()) for cell in line.split("\t")]
            self.lines.append("\t".join(cells).strip())
        self.words = []


def _is_hidden(attributes: dict[str, str | None]) -> bool:
    if "hidden" in attributes or attributes.get("aria-hidden") == "true":
        return True
    return bool(HIDDEN_STYLE.search(attributes.get("style") or ""))
