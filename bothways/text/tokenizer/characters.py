"""Characters: classes, lower case and decomposition, by tables that agree with BERT's tokenizer.

Python's own tables change with its version of Unicode, and ids must not.
"""

import json
from bisect import bisect_right
from functools import cache, partial
from itertools import chain, groupby
from pathlib import Path

HANGUL_FIRST = 0xAC00
HANGUL_COUNT = 11172
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


def lower(char: str) -> str:
    """The lower-case form, one character except for U+0130."""
    return _lower_by_char().get(char, char)


@cache
def _lower_by_char() -> dict[str, str]:
    """'41-5a/1+32': of the code points 41 to 5a, each (step 1) becomes the one 32 above it."""
    lower = {"\u0130": "i\u0307"}
    for entry in TABLES["lower"].split():
        run, _, change = entry.partition("/")
        first, last = (int(point, 16) for point in run.split("-"))
        step = int(change[0])
        shift = int(change[1:])
        for point in range(first, last + 1, step):
            lower[chr(point)] = chr(point + shift)
    return lower


def decompose(char: str) -> str:
    """The full canonical decomposition (NFD of one character; Unicode 3.12 for Hangul syllables)."""
    index = ord(char) - HANGUL_FIRST
    if not 0 <= index < HANGUL_COUNT:
        return _parts_by_char().get(char, char)

    # A syllable is one of 19 leading consonants, one of 21 vowels, and one of 27 final consonants or none.
    lead = index // 588
    vowel = index % 588 // 28
    tail = index % 28
    letters = chr(0x1100 + lead) + chr(0x1161 + vowel)
    return letters + chr(0x11A7 + tail) if tail else letters


@cache
def _parts_by_char() -> dict[str, str]:
    """'c0=41.300': À is A and a grave accent."""
    parts_by_char = {}
    for entry in TABLES["decomposed"].split():
        point, parts = entry.split("=")
        parts_by_char[chr(int(point, 16))] = "".join(chr(int(part, 16)) for part in parts.split("."))
    return parts_by_char


def decompose_text(text: str) -> str:
    """The full canonical decomposition of a text: marks sorted by class after their letter (Unicode 3.11, D109)."""
    parts = "".join(map(decompose, text))
    runs = groupby(parts, key=lambda char: combining_class(char) > 0)
    return "".join(chain.from_iterable(sorted(run, key=combining_class) for _, run in runs))


def combining_class(char: str) -> int:
    """The canonical combining class: 0 for characters that do not move, else the sort key of a mark."""
    return _class_by_char().get(char, 0)


@cache
def _class_by_char() -> dict[str, int]:
    """'1:334-338,1cd4': the class, and the ranges of the characters that have it."""
    classes: dict[str, int] = {}
    for entry in TABLES["combining"].split():
        value, ranges = entry.split(":")
        bounds = _bounds(ranges.replace(",", " "))
        for first, end in zip(bounds[::2], bounds[1::2], strict=True):
            classes |= dict.fromkeys(map(chr, range(first, end)), int(value))
    return classes


@cache
def unstripped_marks() -> frozenset[str]:
    """Combining characters that stripping accents keeps, so that their order matters."""
    return frozenset(char for char in _class_by_char() if not is_mark(char))


def count_surrogates(text: str) -> int:
    """The number of lone surrogates in a text."""
    if text.isascii():
        return 0
    try:
        text.encode()
    except UnicodeEncodeError:
        return sum(0xD800 <= ord(char) < 0xE000 for char in text)
    return 0
