"""Basic tokenization: text to words as in BERT (clean, lower-case, strip accents, split); classes of characters.

The rules are those of google-research/bert's BasicTokenizer, as implemented by the `tokenizers` library.

BERT's lower-casing also strips marks: "café" becomes "cafe", which hardly matters in English, but "wurde" and "würde"
become one word, as do फल (fruit) and फूल (flower). A new vocabulary keeps marks if stripping would merge words, or if
there are many.
"""

import json
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import accumulate, chain, groupby
from pathlib import Path
from unicodedata import normalize

from bothways.base.errors import flag

HANGUL_FIRST, HANGUL_COUNT = 0xAC00, 11172
TABLES: dict[str, str] = json.loads(Path(__file__).with_name("unicode_tables.json").read_text(encoding="utf-8"))


def _bounds(ranges: str) -> list[int]:
    """'9-a d' -> [9, 0xb, 0xd, 0xe]: a code point is in a range if the number of bounds at or below it is odd."""
    bounds = []
    for word in ranges.split():
        first, _, last = word.partition("-")
        bounds += [int(first, 16), int(last or first, 16) + 1]
    return bounds


def _inside(bounds: list[int], char: str) -> bool:
    return bisect_right(bounds, ord(char)) % 2 == 1


# Lone surrogates count as U+FFFD, which is removed.
is_removed = partial(_inside, sorted([*_bounds(TABLES["removed"]), 0xD800, 0xE000]))
is_space = partial(_inside, _bounds(TABLES["spaces"]))
is_chinese = partial(_inside, _bounds(TABLES["chinese"]))
is_punctuation = partial(_inside, _bounds(TABLES["punctuation"]))
is_mark = partial(_inside, _bounds(TABLES["marks"]))
# Variation selectors choose the glyph of the preceding character, such as an emoji (Unicode 23.4). All are marks.
is_variation_selector = partial(_inside, _bounds("180b-180d 180f fe00-fe0f e0100-e01ef"))


@cache
def _lower_by_char() -> dict[str, str]:
    lower = {"\u0130": "i\u0307"}
    for word in TABLES["lower"].split():
        run, _, change = word.partition("/")
        first, last = (int(point, 16) for point in run.split("-"))
        step, shift = int(change[0]), int(change[1:])
        lower |= {chr(point): chr(point + shift) for point in range(first, last + 1, step)}
    return lower


@cache
def _parts_by_char() -> dict[str, str]:
    entries = (entry.split("=") for entry in TABLES["decomposed"].split())
    return {chr(int(point, 16)): "".join(chr(int(part, 16)) for part in parts.split(".")) for point, parts in entries}


@cache
def _class_by_char() -> dict[str, int]:
    classes: dict[str, int] = {}
    for entry in TABLES["combining"].split():
        value, ranges = entry.split(":")
        bounds = _bounds(ranges.replace(",", " "))
        for first, end in zip(bounds[::2], bounds[1::2], strict=True):
            classes |= dict.fromkeys(map(chr, range(first, end)), int(value))
    return classes


def lower(char: str) -> str:
    """The lower-case form, one character except for U+0130."""
    return _lower_by_char().get(char, char)


def decompose(char: str) -> str:
    """The full canonical decomposition (NFD of one character; Unicode 3.12 for Hangul syllables)."""
    index = ord(char) - HANGUL_FIRST
    if not 0 <= index < HANGUL_COUNT:
        return _parts_by_char().get(char, char)
    lead, vowel, tail = index // 588, index % 588 // 28, index % 28
    return chr(0x1100 + lead) + chr(0x1161 + vowel) + (chr(0x11A7 + tail) if tail else "")


def decompose_text(text: str) -> str:
    """The full canonical decomposition of a text: marks sorted by class after their letter (Unicode 3.11, D109)."""
    parts = "".join(map(decompose, text))
    runs = groupby(parts, key=lambda char: combining_class(char) > 0)
    return "".join(chain.from_iterable(sorted(run, key=combining_class) for _, run in runs))


def combining_class(char: str) -> int:
    """The canonical combining class: 0 for characters that do not move, else the sort key of a mark."""
    return _class_by_char().get(char, 0)


@cache
def unstripped_marks() -> frozenset[str]:
    """Combining characters that stripping accents keeps, so that their order matters."""
    return frozenset(char for char in _class_by_char() if not is_mark(char))


def count_surrogates(text: str) -> int:
    """The number of lone surrogates in a text."""
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError:
        return sum(0xD800 <= ord(char) < 0xE000 for char in text)
    return 0


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
        if is_removed(char):
            text = ""
        elif is_space(char):
            text = " "
        else:
            text = "".join(map(self.fold, decompose(char) if self.strip_accents else char))
            if self.split_chinese and is_chinese(char):
                text = f" {text} "
        self[point] = text
        return text

    def fold(self, char: str) -> str:
        if self.strip_accents and is_mark(char):
            return ""
        lowered = lower(char) if self.lowercase else char
        return f" {lowered} " if self.split_punctuation and is_punctuation(char) else lowered


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
        return self.table.strip_accents and not unstripped_marks().isdisjoint(normalized)

    def _reorder(self, text: str) -> tuple[str, list[int]]:
        """Normalized text and origins, with combining marks sorted by class (Unicode 3.11, D109). Rarely needed.

        As in the reference, characters are reordered but their origins keep the order of the text.
        """
        # Each with the number of characters that it replaces in the text: 1, or 0 if it was added.
        chars: list[tuple[str, int]] = []
        kept = [index for index, char in enumerate(text) if not is_removed(char)]
        for char in (text[index] for index in kept):
            parts = " " if is_space(char) else decompose(char)
            decomposed = [(parts[0], 1), *((part, 0) for part in parts[1:])]
            spaces = [(" ", 0)] * (self.split_chinese and is_chinese(char))
            chars += [*spaces, *decomposed, *spaces]
        ordered: list[tuple[str, int]] = []
        for _, run in groupby(chars, key=lambda pair: combining_class(pair[0]) > 0):
            ordered += sorted(run, key=lambda pair: combining_class(pair[0]))  # stable
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
            f"lower-case vocabulary ({flag('lowercase', False)}: cased), accents are {action} ({other} if that is "
            "wrong)"
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
        num_marks = 0 if word.isascii() else sum(map(is_mark, decomposed))
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
    return "".join(char for char in decompose_text(word) if not is_variation_selector(char))


def strip_accents_from(words: Mapping[str, int]) -> Counter[str]:
    """Word counts of the same text as split by STRIP_ACCENTS."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for stripped in [word] if word.isascii() else STRIP_ACCENTS(word):
            counts[stripped] += count
    return counts
