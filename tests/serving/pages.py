"""The three files of the page, and its HTML as parsed."""

from html.parser import HTMLParser
from pathlib import Path

WEB = Path(__file__).parent.parent.parent / "bothways/serving/web"
VOID = {"meta", "link", "input"}


class Tree(HTMLParser):
    """elements: (name, attributes) in order. problems: elements that are not closed correctly."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open, self.problems, self.inline = [], [], []
        self.feed(html)
        self.close()
        self.problems += self.open

    def handle_starttag(self, tag, attrs):
        if len(dict(attrs)) < len(attrs):
            self.problems.append(f"{tag} has an attribute twice")
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}>")

    def handle_data(self, data):
        if self.open and self.open[-1] in {"script", "style"} and data.strip():
            self.inline.append(data)

    def all(self, *tags):
        return [attributes for tag, attributes in self.elements if tag in tags]
