"""README.md in the directory of a model: the card that the Hugging Face hub shows. A file that we did not write stays
as it is."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from bothways.base.io import read_text, write_atomic

CARD = "README.md"
MODEL = "OWNER/NAME"  # stands in a card for the name of the model, until it is known
# In a line of its own behind the front matter. Without it the file is the user's.
MARK = "<!-- Written by Bothways; without this line the file is yours, and is never overwritten. -->"


def is_written_by_us(file: Path) -> bool:
    """Whether a card may be overwritten: there is none, or it has our mark."""
    return not file.exists() or MARK in read_text(file).splitlines()


def write_card(text: str, directory: Path, *, replaced: Path) -> None:
    """Write the card of a model.

    text: of the card.
    directory: that gets the card.
    replaced: the directory that is replaced by it; a card of the user there is kept.
    """
    if not is_written_by_us(replaced / CARD):
        text = read_text(replaced / CARD)
    write_atomic(directory / CARD, text)


def card_text(front_matter: Iterable[str], title: str, sections: Mapping[str, Iterable[str]]) -> str:
    """A card: front matter first, then our mark, then the lines of each section."""
    lines = ["---", *front_matter, "---", MARK, "", f"# {title}"]
    for name, content in sections.items():
        lines += ["", f"## {name}", "", *content]
    return "\n".join(lines) + "\n"


def fenced(language: str, *lines: str) -> Iterator[str]:
    """A block of code of a card, with an empty line before it."""
    yield ""
    yield f"```{language}"
    yield from lines
    yield "```"
