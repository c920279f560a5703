"""HTML pages as Markdown: title, headings and blocks, without scripts, hidden content, menus, headers and footers.

These are found by their elements and their role (WAI-ARIA 1.2). A page that has no other text is read whole.
"""

import codecs
import re
from collections import Counter
from html.parser import HTMLParser

from bothways.search.plain_text import escaped, fenced
from bothways.text.data.text_encodings import WINDOWS_1252, bom_encoding

CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?([\w.:-]{1,40})", re.IGNORECASE)
CHARSET_BYTES = 1024  # of the start of a page, where its encoding is declared

DROPPED = {"script", "style", "template", "noscript", "svg", "iframe", "object", "head", "select", "textarea"}
IN_HEAD = set("title meta link base script style noscript template".split())
VOID = set("area base br col embed hr img input link meta source track wbr".split())
HEADINGS = {f"h{level}": level for level in range(1, 7)}
PARAGRAPHS = set(
    "address article aside blockquote body caption dd details div dl dt fieldset figcaption figure footer form header "
    "hr html legend main nav ol p pre section summary table ul".split()
)
REPEATED = {"p", "li", "dd", "dt", "td", "th", "tr", "option"}  # the next one ends it, without an end tag
ROLES = {"nav": "navigation", "aside": "complementary", "footer": "contentinfo", "dialog": "dialog", "search": "search"}
SURROUNDINGS = {*ROLES.values(), "banner", "alertdialog", "menu", "menubar", "toolbar"}  # roles of what is not the text
CONTENT = ("article", "main", "section", "blockquote")  # whose headers are part of the text
COOKIE_BANNER = re.compile(r"(cookies?|consent|privacy) (banner|bar|consent|notice|dialog)", re.IGNORECASE)
HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
WRONG_SECTION = re.compile(
    r"<!\[(?!(?:CDATA|if|else|endif)(?![-_.a-z0-9]))", re.IGNORECASE
)  # on which html.parser fails
COMMENT_END = "<hr>-->"


def decode_html(content: bytes, encoding: str | None = None) -> str:
    """By byte-order mark, `encoding`, or the page's declaration; else UTF-8 or, as in browsers, Windows-1252."""
    if marked := bom_encoding(content):
        return content.decode(marked, "replace").removeprefix("\ufeff")
    declared = CHARSET.search(content[:CHARSET_BYTES])
    names = [name for name in (encoding, declared and declared[1].decode("ascii", "replace")) if name]
    for name in [*names, "utf-8"]:
        try:
            codec = codecs.lookup(name)
            if codec._is_text_encoding:
                return content.decode(codec.name)
        except (LookupError, UnicodeError):
            continue
    return content.decode(WINDOWS_1252, "replace")


def html_to_markdown(page: str) -> tuple[str, str]:
    """(the text with headings as `#` lines and a blank line between blocks, the title)."""
    parser = _PageParser()
    parser.feed(WRONG_SECTION.sub("&lt;![", page))
    if page.rfind("<!--") > page.rfind("-->"):  # as in browsers, the rest of the page is a comment
        parser.feed(COMMENT_END)
    parser.close()
    parser.end_block()
    if parser.blocks and parser.blocks[-1][0] == "-->":  # it was no comment, but in a script
        parser.blocks.pop()
    every = [block for block, _ in parser.blocks]
    blocks = [block for block, is_around in parser.blocks if not is_around] or every
    first_heading = next((block[2:] for block in every if block.startswith("# ")), "")  # perhaps in the header
    title = " ".join("".join(parser.title).split())
    title = title or ("" if any(block.startswith("# ") for block in blocks) else first_heading)
    if title and f"# {title}" not in blocks:
        blocks = [f"# {title}", *blocks]
    return "\n\n".join(blocks), title


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
        if self.open and (self.open[-1] == tag in REPEATED or (self.open[-1] == "p" and tag in PARAGRAPHS)):
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
        elif self.hidden_from < 0 and self.num_open["pre"] and not self.level:
            first, *others = data.split("\n")
            self.words.append(first)
            for line in others:
                self._end_line()
                self.words.append(line)
        elif self.hidden_from < 0:
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

    def _is_around(self, tag: str, attributes: dict[str, str | None]) -> bool:
        """Whether an element is a menu, a header, a footer or the like."""
        is_header = tag == "header" and not any(self.num_open[name] for name in CONTENT)
        role = attributes.get("role") or ("banner" if is_header else ROLES.get(tag, ""))
        if tag == "footer" and self.num_open["blockquote"]:  # its source
            return False
        label = (attributes.get("aria-label") or "").replace("-", " ")
        return role.lower().strip() in SURROUNDINGS or bool(COOKIE_BANNER.search(label))

    def _pop_to(self, tag: str) -> None:
        while self.num_open[tag]:
            if self._pop() == tag:
                break

    def _pop(self) -> str:
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
        self.in_title = self.in_title and tag != "title"
        self.level = 0 if tag in HEADINGS else self.level
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
            self.lines.append("\t".join(" ".join(cell.split()) for cell in line.split("\t")).strip())
        self.words = []


def _is_hidden(attributes: dict[str, str | None]) -> bool:
    style = attributes.get("style") or ""
    return "hidden" in attributes or attributes.get("aria-hidden") == "true" or bool(HIDDEN_STYLE.search(style))
