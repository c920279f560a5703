"""Texts that are equal but for case, white space and punctuation, and labels that differ only in case or blanks."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence


class _Blanked(dict[int, str | int]):
    """For str.translate: punctuation becomes a space, any other character stays. Filled as characters are met."""

    def __missing__(self, code: int) -> str | int:
        self[code] = " " if unicodedata.category(chr(code)).startswith("P") else code
        return self[code]


_BLANKED = _Blanked()


def text_key(text: str) -> str:
    """What near-equal texts share: NFKC, case-folded, runs of white space and punctuation as one space.

    A text of nothing but punctuation keeps it, so that "?!" and "..." stay different.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.translate(_BLANKED).split()) or " ".join(folded.split())


def label_key(label: str) -> str:
    """What spellings of one label share: NFKC, case-folded, runs of white space as one space."""
    return " ".join(unicodedata.normalize("NFKC", label).casefold().split())


def find_conflicts(keys: Sequence[Hashable], labels: Sequence[Hashable]) -> list[list[int]]:
    """The rows of each text that has more than one label, one row a label. keys: equal for equal texts."""
    rows: defaultdict[Hashable, dict[Hashable, int]] = defaultdict(dict)
    for row, (key, label) in enumerate(zip(keys, labels, strict=True)):
        rows[key].setdefault(label, row)
    return [[*found.values()] for found in rows.values() if len(found) > 1]


def spelling_variants(labels: Iterable[str]) -> list[dict[str, int]]:
    """{spelling: how often} of each label that is spelled in several ways, the commonest first."""
    by_key: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for label, number in Counter(labels).most_common():
        by_key[label_key(label)][label] = number
    return [found for found in by_key.values() if len(found) > 1]


def preferred_spellings(spellings: Sequence[Mapping[str, int]]) -> dict[str, str]:
    """{spelling: the one to use} of what `spellings` gives: the commonest, without blanks around it."""
    return {name: next(iter(found)).strip() for found in spellings for name in found}
