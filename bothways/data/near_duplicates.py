"""Near duplicates: texts equal up to case, spaces and punctuation; label spellings."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence


class _Blanked(dict[int, str | int]):
    """A table for str.translate that maps punctuation to a space; filled on demand."""

    def __missing__(self, code: int) -> str | int:
        self[code] = " " if unicodedata.category(chr(code)).startswith("P") else code
        return self[code]


_BLANKED = _Blanked()


def text_key(text: str) -> str:
    """A key that near-duplicate texts share: NFKC, case-folded, runs of white space and punctuation as one space.

    Texts that consist only of punctuation keep it, so that "?!" and "..." stay different.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.translate(_BLANKED).split()) or " ".join(folded.split())


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


def preferred_spellings(groups: Sequence[Mapping[str, int]]) -> dict[str, str]:
    """{spelling: preferred spelling} from `spelling_variants`: the most frequent one, stripped."""
    return {name: next(iter(variants)).strip() for variants in groups for name in variants}
