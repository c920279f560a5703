"""Text to words as BERT reads it: clean, set ideographs apart, strip accents, lower-case, split at punctuation.

The rules are those of google-research/bert's BasicTokenizer, as the `tokenizers` library applies them.
"""

import re
from dataclasses import dataclass, field
from itertools import accumulate, groupby

from bothways.tokenizer import unicode

_WORD = re.compile("[^ ]+")


class CharacterTable(dict[int, str]):
    """Code point -> what it becomes, with spaces around what is a word of its own. Filled as characters are met."""

    def __init__(self, *, lowercase: bool, strip_accents: bool, split_chinese: bool) -> None:
        super().__init__()
        self.lowercase, self.strip_accents, self.split_chinese = lowercase, strip_accents, split_chinese

    def __missing__(self, point: int) -> str:
        char = chr(point)
        if unicode.is_removed(char):
            text = ""
        elif unicode.is_space(char):
            text = " "
        else:
            text = "".join(map(self.fold, unicode.decompose(char) if self.strip_accents else char))
            if self.split_chinese and unicode.is_chinese(char):
                text = f" {text} "
        self[point] = text
        return text

    def fold(self, char: str) -> str:
        if self.strip_accents and unicode.is_mark(char):
            return ""
        lowered = unicode.lower(char) if self.lowercase else char
        return f" {lowered} " if unicode.is_punctuation(char) else lowered


@dataclass(frozen=True)
class Splitter:
    """Splits text into words. strip_accents: None follows lowercase, as in the original.

    `splitter(text)` gives the words; `splitter.spans(text)` also says which character of the text each of their
    characters comes from.
    """

    lowercase: bool = True
    strip_accents: bool | None = None
    split_chinese: bool = True
    table: CharacterTable = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        strip = self.lowercase if self.strip_accents is None else self.strip_accents
        table = CharacterTable(lowercase=self.lowercase, strip_accents=strip, split_chinese=self.split_chinese)
        object.__setattr__(self, "table", table)

    def __call__(self, text: str) -> list[str]:
        if text.isascii() and text.isalnum():  # a plain word, as most are
            return [text.lower() if self.lowercase else text]
        spelled = text.translate(self.table)
        if self.must_reorder(spelled):
            spelled = self._reorder(text)[0]
        return spelled.split()

    def spans(self, text: str) -> list[tuple[str, list[int]]]:
        """(word, for each of its characters the index in text) in order."""
        pieces = [self.table[ord(char)] for char in text]
        spelled = "".join(pieces)
        origins = [index for index, piece in enumerate(pieces) for _ in piece]
        if self.must_reorder(spelled):
            spelled, origins = self._reorder(text)
        return [(match[0], origins[match.start() : match.end()]) for match in _WORD.finditer(spelled)]

    def must_reorder(self, spelled: str) -> bool:
        """Whether what the table gave for a text holds marks whose order the way round has to look at."""
        return (
            self.table.strip_accents
            and not spelled.isascii()
            and not unicode.unstripped_combining().isdisjoint(spelled)
        )

    def _reorder(self, text: str) -> tuple[str, list[int]]:
        """The rare way round: decomposed characters sorted by combining class behind their base (Unicode 3.11, D109).

        As in the reference, the characters move but the places they are traced to stay in the text's order.
        """
        chars: list[tuple[str, int]] = []  # with how many characters of the text each one uses up: 1, or 0 if added
        kept = [index for index, char in enumerate(text) if not unicode.is_removed(char)]
        for char in (text[index] for index in kept):
            parts = " " if unicode.is_space(char) else unicode.decompose(char)
            decomposed = [(parts[0], 1), *((part, 0) for part in parts[1:])]
            chars += (
                [(" ", 0), *decomposed, (" ", 0)] if self.split_chinese and unicode.is_chinese(char) else decomposed
            )
        placed: list[tuple[str, int]] = []
        for _, run in groupby(chars, key=lambda pair: unicode.combining_class(pair[0]) > 0):
            placed += sorted(run, key=lambda pair: unicode.combining_class(pair[0]))  # stable: the others stay
        folded = [(self.table.fold(char) if char != " " else " ", uses) for char, uses in placed]
        used = [kept[max(0, count - 1)] for count in accumulate(uses for _, uses in folded)]
        return "".join(piece for piece, _ in folded), [
            i for i, (piece, _) in zip(used, folded, strict=True) for _ in piece
        ]
