"""Near duplicates: texts equal up to case, spaces and punctuation; label spellings."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence


class _Blanked(dict[int, str | int]):
    """A table for str.translate that maps punctuation to a space; filled on demand."""

    def __missing__(self, code: int) -> str | int:
        self[code] = " " if unicodedata.category(chr(code)).startswith("P") else code
        return self[code]


_BLANKED = _Blanked()
# Punctuation that changes the meaning: the sign of a number, and emoticons such as ":)", ":-(" and "^_^".
_SIGN = r"(?<![\w.])[-\u2013\u2212](?=[.,]?\d)"
_EMOTICON = "|".join(
    (
        r"(?:[:;]|(?<!\w)=)[-'o^]?[()\[\]{}|\\*@$]+(?!\w)",
        r"(?<!\w)[:;=][-'o^]?[dpsx3](?!\w)",
        r"[:;]-?/(?![/\w])",
        r"\([-'o^]?[:;=](?!\w)",
        r"\^[_.-]?\^",
        r"(?<!\w)-_+-(?!\w)",
    )
)
_MEANINGFUL = re.compile(f"({_SIGN}|{_EMOTICON})")
_NOSES = str.maketrans({"-": None, "'": None, "o": None, "^": None})


def _blank_punctuation(text: str) -> str:
    """Punctuation as spaces, except for signs, as "-", and emoticons, as separate words without noses."""
    parts = []
    for index, part in enumerate(_MEANINGFUL.split(text)):
        if index % 2 == 0:
            parts.append(part.translate(_BLANKED))
        elif len(part) == 1:
            parts.append(" -")
        else:
            parts.append(f" {part.translate(_NOSES) if part[0] in ':;=(' else part} ")
    return "".join(parts)


def text_key(text: str) -> str:
    """A key that near-duplicate texts share: NFKC, case-folded, runs of white space and punctuation as one space.

    Signs of numbers and emoticons distinguish texts: "-5" and "5", "good :)" and "good :(". Texts that consist only of
    punctuation keep it, so that "?!" and "..." stay different.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(_blank_punctuation(folded).split()) or " ".join(folded.split())


def first_locations(keys: Iterable[Hashable], where: Iterable[str]) -> list[str]:
    """For each row the location of the first row with the same key, a name of the unit that they form."""
    first: dict[Hashable, str] = {}
    return [first.setdefault(key, location) for key, location in zip(keys, where, strict=True)]


def label_key(label: str) -> str:
    """A key that the spellings of one label share: NFKC, case-folded, runs of white space as one space."""
    return " ".join(unicodedata.normalize("NFKC", label).casefold().split())


def find_conflicts(keys: Sequence[Hashable], labels: Sequence[Hashable]) -> list[list[int]]:
    """For each text with more than one label, one row per label. keys: equal for equal texts."""
    rows: defaultdict[Hashable, dict[Hashable, int]] = defaultdict(dict)
    for row, (key, label) in enumerate(zip(keys, labels, strict=True)):
        rows[key].setdefault(label, row)
    return [[*row_by_label.values()] for row_by_label in rows.values() if len(row_by_label) > 1]


def spelling_variants(labels: Iterable[str]) -> list[dict[str, int]]:
    """{spelling: count} for each label with several spellings, most frequent first."""
    by_key: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for label, count in Counter(labels).most_common():
        by_key[label_key(label)][label] = count
    return [variants for variants in by_key.values() if len(variants) > 1]
