"""Basic tokenization: text to words as in BERT (clean, lower-case, strip accents, split).

The rules are those of google-research/bert's BasicTokenizer, as implemented by the `tokenizers` library.

BERT's lower-casing also strips marks: "café" becomes "cafe", which hardly matters in English, but "wurde" and "würde"
become one word, as do फल (fruit) and फूल (flower). A new vocabulary keeps marks if stripping would merge words, or if
there are many.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from unicodedata import normalize

from bothways.errors import flag
from bothways.text.tokenizer import unicode

_WORD = re.compile("[^ ]+")
# Marks are kept from these fractions on. English Wikipedia has 0.06 % and 0.05 %; languages that need their marks
# exceed at least one of them (docs/RESULTS.md). Marks are counted as well as merged words, since a short text, or a
# text without spaces (Thai, Lao), rarely contains both words of a pair.
MAX_MERGED = 0.002  # fraction of running words
MAX_MARKED = 0.005  # fraction of letters


class CharacterTable(dict[int, str]):
    """Code point -> replacement, with spaces around characters that are words of their own. Filled on demand."""

    def __init__(
        self, *, lowercase: bool, strip_accents: bool, split_chinese: bool, split_punctuation: bool = True
    ) -> None:
        super().__init__()
        self.split_punctuation = split_punctuation
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
        return f" {lowered} " if self.split_punctuation and unicode.is_punctuation(char) else lowered


@dataclass(frozen=True)
class Splitter:
    """Splits text into words. strip_accents: None follows `lowercase`, as in BERT. split_chinese: at each ideograph.
    split_punctuation: False only normalizes.

    `splitter(text)` returns the words; `splitter.spans(text)` also traces each of their characters to the text.
    """

    lowercase: bool = True
    strip_accents: bool | None = None
    split_chinese: bool = True
    split_punctuation: bool = field(default=True, repr=False)
    table: CharacterTable = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        strip = self.lowercase if self.strip_accents is None else self.strip_accents
        table = CharacterTable(
            lowercase=self.lowercase,
            strip_accents=strip,
            split_chinese=self.split_chinese,
            split_punctuation=self.split_punctuation,
        )
        object.__setattr__(self, "table", table)

    def __call__(self, text: str) -> list[str]:
        if text.isascii() and text.isalnum():  # most chunks are plain words
            return [text.lower() if self.lowercase else text]
        normalized = text.translate(self.table)
        if self.must_reorder(normalized):
            normalized = self._reorder(text)[0]
        return normalized.split()

    def spans(self, text: str) -> list[tuple[str, list[int]]]:
        """(word, index in the text of each of its characters), in order."""
        normalized, origins = self.normalize(text)
        return [(match[0], origins[match.start() : match.end()]) for match in _WORD.finditer(normalized)]

    def normalize(self, text: str) -> tuple[str, list[int]]:
        """The normalized text, and the index in the text of each of its characters."""
        pieces = [self.table[ord(char)] for char in text]
        normalized = "".join(pieces)
        origins = [index for index, piece in enumerate(pieces) for _ in piece]
        if self.must_reorder(normalized):
            return self._reorder(text)
        return normalized, origins

    def must_reorder(self, normalized: str) -> bool:
        """Whether the table left combining marks, whose canonical order it does not handle."""
        return self.table.strip_accents and not normalized.isascii() and unicode.has_unstripped_marks(normalized)

    def _reorder(self, text: str) -> tuple[str, list[int]]:
        """Normalized text and origins, with combining marks sorted by class (Unicode 3.11, D109). Rarely needed.

        As in the reference, characters are reordered but their origins keep the order of the text.
        """
        # Each with the number of characters that it replaces in the text: 1, or 0 if it was added.
        chars: list[tuple[str, int]] = []
        kept = [index for index, char in enumerate(text) if not unicode.is_removed(char)]
        for char in (text[index] for index in kept):
            parts = " " if unicode.is_space(char) else unicode.decompose(char)
            decomposed = [(parts[0], 1), *((part, 0) for part in parts[1:])]
            spaces = [(" ", 0)] * (self.split_chinese and unicode.is_chinese(char))
            chars += [*spaces, *decomposed, *spaces]
        ordered: list[tuple[str, int]] = []
        for _, run in groupby(chars, key=lambda pair: unicode.combining_class(pair[0]) > 0):
            ordered += sorted(run, key=lambda pair: unicode.combining_class(pair[0]))  # stable
        folded = [(self.table.fold(char) if char != " " else " ", consumed) for char, consumed in ordered]
        origins = [kept[max(0, total - 1)] for total in accumulate(consumed for _, consumed in folded)]
        return "".join(piece for piece, _ in folded), [
            origin for origin, (piece, _) in zip(origins, folded, strict=True) for _ in piece
        ]


STRIP_ACCENTS, KEEP_ACCENTS = Splitter(), Splitter(strip_accents=False)


@dataclass(frozen=True)
class AccentStats:
    """The effect of stripping accents: the number of marks removed, and of words merged into a more frequent one.

    letters, words: totals of the text. example: the most frequent merged word and the word it is merged into.
    """

    letters: int
    marks: int
    words: int
    merged: int
    example: tuple[str, str] | None

    @property
    def are_needed(self) -> bool:
        return self.merged >= MAX_MERGED * self.words or self.marks >= MAX_MARKED * self.letters

    def __str__(self) -> str:
        action, other = (
            ("kept", flag("strip_accents", True)) if self.are_needed else ("stripped", flag("strip_accents", False))
        )
        choice = (
            f"lower-case vocabulary ({flag('lowercase', False)}: cased), accents are {action} ({other} "
            "if that is wrong)"
        )
        if not self.marks:
            return f"{choice}: the text has none"
        marks, merged = self.marks / max(1, self.letters), self.merged / self.words
        pair = " ({!r} and {!r})".format(*(normalize("NFC", word) for word in self.example)) if self.example else ""
        return (
            f"{choice}: {100 * marks:.2f} in 100 letters, and without them {merged:.2%} of the words would become "
            f"another{pair}"
        )


def measure_accents(words: Mapping[str, int]) -> AccentStats:
    """Measure the effect on a text. words: counts of its words as split by KEEP_ACCENTS, in any order."""
    letters = marks = 0
    counts: dict[str, Counter[str]] = defaultdict(Counter)  # stripped word -> word -> count
    for word, count in words.items():
        decomposed = word if word.isascii() else _decompose(word)
        num_marks = 0 if word.isascii() else sum(map(unicode.is_mark, decomposed))
        letters += count * (len(decomposed) - num_marks)
        marks += count * num_marks
        if num_marks:
            counts[" ".join(STRIP_ACCENTS(word))][decomposed] += count
    merged, max_count, example = 0, 0, None
    for stripped, forms in sorted(counts.items()):
        forms[stripped] += words.get(stripped, 0)
        (most_frequent, _), *others = sorted(forms.items(), key=lambda form: (-form[1], form[0]))
        merged += sum(count for _, count in others)
        if others and others[0][1] > max_count:
            max_count, example = others[0][1], (others[0][0], most_frequent)
    return AccentStats(letters, marks, sum(words.values()), merged, example)


def _decompose(word: str) -> str:
    """The word decomposed, so that both encodings of é are equal, and without the variation selectors of emoji."""
    return "".join(char for char in unicode.decompose_text(word) if not unicode.is_variation_selector(char))


def strip_accents_from(words: Mapping[str, int]) -> Counter[str]:
    """Word counts of the same text as split by STRIP_ACCENTS."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for stripped in [word] if word.isascii() else STRIP_ACCENTS(word):
            counts[stripped] += count
    return counts
