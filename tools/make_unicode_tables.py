"""Ask the `tokenizers` library about every code point and freeze its answers into bothways/tokenizer/unicode_tables.py.

Run once: the tables are part of the package, so that a vocabulary and its ids never change with the interpreter.
"""

import unicodedata
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from tokenizers.normalizers import NFD, BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

TARGET = Path(__file__).parent.parent / "bothways" / "tokenizer" / "unicode_tables.py"
CODE_POINTS = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
HANGUL = range(0xAC00, 0xAC00 + 11172)  # decomposed by arithmetic (Unicode 3.12), not by a table


def normalizer(**on: bool) -> BertNormalizer:
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return BertNormalizer(**{**off, **on})


def answers(normalize: NFD | BertNormalizer) -> dict[int, str]:
    """The code points which a normalizer changes, and what it makes of them."""
    found = {point: normalize.normalize_str(chr(point)) for point in CODE_POINTS}
    return {point: text for point, text in found.items() if text != chr(point)}


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
    words, left = [], dict(mapping)
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
    """Python's combining class where the reference reorders this character at all, else 0."""
    guess = python.get(point, 0)
    other = "\u0334" if guess != 1 else "\u0338\u0301"  # class 1 before everything but class 1
    if guess == 1:
        return 1 if decompose.normalize_str("\u0301" + chr(point)) == chr(point) + "\u0301" else 0
    return guess if decompose.normalize_str(chr(point) + other) != chr(point) + other else 0


def literal(name: str, comment: str, text: str) -> str:
    lines, line = [], ""
    for word in text.split(" "):
        if len(line) + len(word) > 108:
            lines.append(line)
            line = ""
        line += word + " "
    body = "\n".join(f'    "{part}"' for part in [*lines, line.rstrip()])
    return f"# {comment}\n{name} = (\n{body}\n)\n"


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
    parts = [
        f'"""Frozen character tables, as tokenizers {version("tokenizers")} has them. '
        "Made by tools/make_unicode_tables.py; not edited by hand.\n\n"
        'Hexadecimal code points. Hangul syllables are decomposed by arithmetic in unicode.py."""\n',
        literal("REMOVED", "Control, format and private-use characters, U+0000 and U+FFFD.", spell_ranges(removed)),
        literal("SPACES", "Become a space.", spell_ranges(spaces)),
        literal("CHINESE", "Ideographs that stand as words of their own.", spell_ranges(chinese)),
        literal("PUNCTUATION", "Characters that stand as words of their own.", spell_ranges(punctuation)),
        literal("MARKS", "Nonspacing marks, dropped where accents are stripped.", spell_ranges(marks)),
        literal(
            "LOWER",
            "Lower case as first-last/step+shift. U+0130 becomes two characters, in unicode.py.",
            spell_shifts({point: ord(text) for point, text in lower.items() if len(text) == 1}),
        ),
        literal(
            "DECOMPOSED",
            "Full canonical decompositions: point=parts.",
            " ".join(f"{point:x}={'.'.join(f'{ord(c):x}' for c in text)}" for point, text in nfd.items()),
        ),
        literal(
            "COMBINING",
            "Canonical combining classes: class:ranges.",
            " ".join(f"{value}:{spell_ranges(points).replace(' ', ',')}" for value, points in sorted(classes.items())),
        ),
    ]
    TARGET.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
