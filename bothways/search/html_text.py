"""HTML to text: headings as lines with #, blocks as paragraphs; without scripts, styles and hidden parts."""

import re
from html.parser import HTMLParser

DROPPED = {"script", "style", "template", "noscript", "svg", "head", "iframe", "object", "select", "canvas"}
VOID = {"br", "hr", "img", "input", "meta", "link", "area", "base", "col", "embed", "source", "track", "wbr"}
HEADINGS = {"h1": "# ", "h2": "## ", "h3": "### ", "h4": "#### ", "h5": "##### ", "h6": "###### "}
BLOCKS = {
    "address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt", "fieldset", "figcaption",
    "figure", "footer", "form", "header", "html", "li", "main", "nav", "ol", "p", "pre", "section", "summary", "table",
    "tbody", "thead", "title", "tr", "ul", *HEADINGS,
}  # fmt: skip
TIGHT = {"li", "tr", "dt", "dd", "br"}  # of which the next one begins on the next line
DEEPEST = 2000  # open elements that are remembered


def html_to_text(source: str) -> str:
    """The visible text of a page. The title comes first, as a heading."""
    parser = _Text()
    parser.feed(source)
    parser.close()
    return parser.text()


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.hidden: list[str] = []  # open elements from the first hidden one on
        self.title = ""
        self.in_title = self.in_pre = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        style = (values.get("style") or "").replace(" ", "").lower()
        is_hidden = tag in DROPPED or "hidden" in values or "display:none" in style
        if tag == "title" and not self.title:
            self.in_title = True
        elif self.hidden or (is_hidden and tag not in VOID):
            if tag not in VOID and len(self.hidden) < DEEPEST:
                self.hidden.append(tag)
        elif tag == "br":
            self.parts.append("\n")
        elif tag in BLOCKS:
            self.parts.append("\n" if tag in TIGHT else "\n\n")
            self.parts.append(HEADINGS.get(tag, ""))
        elif tag in ("td", "th"):
            self.parts.append("\t")
        self.in_pre |= tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self.in_title = False
        elif self.hidden:
            if tag in self.hidden:
                del self.hidden[len(self.hidden) - 1 - self.hidden[::-1].index(tag) :]
        elif tag in BLOCKS:
            self.parts.append("\n" if tag in TIGHT else "\n\n")
        self.in_pre &= tag != "pre"

    def handle_data(self, data: str) -> None:
        if self.in_title:
            self.title += data
        elif not self.hidden:
            self.parts.append(data if self.in_pre else re.sub(r"\s+", " ", data))

    def text(self) -> str:
        lines = (re.sub(r"[ \t]*\t[ \t]*", "\t", line).strip() for line in "".join(self.parts).split("\n"))
        body = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
        title = " ".join(self.title.split())
        return f"# {title}\n\n{body}\n" if title and not body.startswith(f"# {title}\n") else f"{body}\n"
