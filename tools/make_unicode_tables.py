"""Generate text/tokenizer/unicode_tables.json from the behaviour of the `tokenizers` library on every code point.

Run once: the tables are part of the package, so that token ids do not depend on the Python version.
"""

import json
import unicodedata
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from tokenizers.normalizers import NFD, BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

TARGET = Path(__file__).parent.parent / "bothways" / "tokenizer" / "unicode_tables.json"
CODE_POINTS = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
HANGUL = range(0xAC00, 0xAC00 + 11172)  # decomposed by arithmetic (Unicode 3.12), not listed in a table


def normalizer(**on: bool) -> BertNormalizer:
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return BertNormalizer(**{**off, **on})


def answers(normalize: NFD | BertNormalizer) -> dict[int, str]:
    """The code points that a normalizer changes, with the result."""
    texts = {point: normalize.normalize_str(chr(point)) for point in CODE_POINTS}
    return {point: text for point, text in texts.items() if text != chr(point)}


def ranges(points: Iterable[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for point in sorted(points):
        if runs and point == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], point)
        else:
            runs.append((point, point))
    return runs


def spell_ranges(points: Iterable[int]) -> str:
    return " ".join(f"{a:x}" if a == b else f"{a:x}-{b:x}" for a, b in ranges(points))


def spell_shifts(mapping: dict[int, int]) -> str:
    """Runs of code points mapped by one shift, every one or every second of them: first-last/step+shift."""
    words = []
    left = dict(mapping)
    while left:
        first = min(left)
        shift = left[first] - first
        step = 1 if left.get(first + 1, 0) - first - 1 == shift else 2
        last = first
        while left.get(last + step, -1) - last - step == shift:
            last += step
        for point in range(first, last + 1, step):
            del left[point]
        words.append(f"{first:x}-{last:x}/{step}{shift:+d}")
    return " ".join(words)


def combining_class(point: int, decompose: NFD, python: dict[int, int]) -> int:
    """Python's combining class if the reference reorders this character at all, else 0."""
    guess = python.get(point, 0)
    other = "\u0334" if guess != 1 else "\u0338\u0301"  # class 1 sorts before all other classes
    if guess == 1:
        return 1 if decompose.normalize_str("\u0301" + chr(point)) == chr(point) + "\u0301" else 0
    return guess if decompose.normalize_str(chr(point) + other) != chr(point) + other else 0


def main() -> None:
    decompose = NFD()
    cleaned = answers(normalizer(clean_text=True))
    removed = [point for point, text in cleaned.items() if text == ""]
    spaces = [point for point, text in cleaned.items() if text == " "] + [0x20]
    chinese = list(answers(normalizer(handle_chinese_chars=True)))
    stripped = answers(normalizer(strip_accents=True))
    marks = [point for point, text in stripped.items() if text == ""]
    nfd = {point: text for point, text in answers(decompose).items() if point not in HANGUL}
    lower = answers(normalizer(lowercase=True))
    split = BertPreTokenizer().pre_tokenize_str
    punctuation = [point for point in CODE_POINTS if len(split(f"a{chr(point)}b")) == 3]
    python = {point: unicodedata.combining(chr(point)) for point in CODE_POINTS}

    classes: dict[int, list[int]] = {}
    for point in (point for point in CODE_POINTS if python[point]):
        if value := combining_class(point, decompose, python):
            classes.setdefault(value, []).append(point)

    tables = {
        "source": f"tokenizers {version('tokenizers')}",
        "removed": spell_ranges(removed),
        "spaces": spell_ranges(spaces),
        "chinese": spell_ranges(chinese),
        "punctuation": spell_ranges(punctuation),
        "marks": spell_ranges(marks),
        "lower": spell_shifts({point: ord(text) for point, text in lower.items() if len(text) == 1}),
        "decomposed": " ".join(f"{point:x}={'.'.join(f'{ord(c):x}' for c in text)}" for point, text in nfd.items()),
        "combining": " ".join(
            f"{value}:{spell_ranges(points).replace(' ', ',')}" for value, points in sorted(classes.items())
        ),
    }

    TARGET.write_text(json.dumps(tables, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
