"""Data quality warnings: empty or shared texts, conflicting, rare or misspelled labels."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import chain

from bothways.base.errors import flag
from bothways.text.data.columns import Table
from bothways.text.data.labels import labels_by_row
from bothways.text.data.near_duplicates import find_conflicts, spelling_variants
from bothways.text.data.splits import overlap_warnings

LISTED = 5  # examples in a warning
LabelReader = Callable[[Table], Sequence[Hashable]]


def table_warnings(tables: Mapping[str, Table], read_labels: LabelReader) -> list[str]:
    """Warnings about rows left out, empty texts, texts shared by splits, and conflicting labels. read_labels: the
    labels of a table, which are compared."""
    notes = dict.fromkeys(chain.from_iterable(table.notes for table in tables.values()))
    overlap = overlap_warnings({name: table.keys for name, table in tables.items()})
    return [*notes, *empty_text_warnings(tables), *overlap, *conflict_warnings(tables, read_labels)]


def empty_text_warnings(tables: Mapping[str, Table]) -> list[str]:
    warnings = []
    for name, table in tables.items():
        texts_by_row = zip(table.texts, table.pairs or table.texts, strict=True)
        if empty := [row for row, texts in enumerate(texts_by_row) if not all(map(str.strip, texts))]:
            first = table.where[empty[0]]
            warnings.append(
                f"{len(empty):,} of {len(table):,} examples of {name} have an empty text, the first at {first}"
            )
    return warnings


def conflict_warnings(tables: Mapping[str, Table], read_labels: LabelReader) -> list[str]:
    """A warning about texts with different labels in different rows of any split, with examples."""
    keys = [*chain.from_iterable(table.keys for table in tables.values())]
    where = [*chain.from_iterable(table.where for table in tables.values())]
    labels = [*chain.from_iterable(map(read_labels, tables.values()))]
    conflicts = find_conflicts(keys, labels)
    if not conflicts:
        return []
    shown = [" but ".join(f"{_shown(labels[row])} at {where[row]}" for row in rows[:3]) for rows in conflicts[:LISTED]]
    texts = f"{len(conflicts):,} text{'s' if len(conflicts) > 1 else ''} with different labels"
    return [f"{texts} (apart from case, spaces and punctuation): {_listed(shown, len(conflicts))}"]


def _shown(label: Hashable) -> str:
    if isinstance(label, frozenset):
        return ", ".join(map(repr, sorted(label))) or "no label"
    return f"{label:g}" if isinstance(label, float) else repr(label)


def label_warnings(tables: Mapping[str, Table], several: bool) -> list[str]:
    """Warnings about labels that differ only in case or white space, and labels of a single row."""
    rows = [
        (where, labels)
        for table in tables.values()
        for where, labels in zip(table.where, labels_by_row(table, several), strict=True)
    ]
    warnings = []
    if variants := spelling_variants(chain.from_iterable(labels for _, labels in rows)):
        shown = [", ".join(f"{name!r} ({count:,})" for name, count in spellings.items()) for spellings in variants]
        warnings.append(
            f"labels that differ only in case or spaces: {_listed(shown, len(variants))}; give each one spelling"
        )
    counts = Counter(chain.from_iterable(labels for _, labels in rows))
    if rare := [(label, where) for where, labels in rows for label in labels if counts[label] == 1]:
        shown = [f"{label!r} at {where}" for label, where in rare]
        classes = f"{len(rare):,} label{'s' if len(rare) > 1 else ''} of a single row"
        warnings.append(f"{classes}, too few to learn and to measure: {_listed(shown, len(rare))}")
    return warnings


def coverage_warnings(tables: Mapping[str, Table], sources: Collection[str], several: bool) -> list[str]:
    """A warning about classes that the split that is scored has no rows of, if it was divided off the training file.
    sources: the splits with their own files."""
    split = "test" if "test" in tables else "dev"
    if split in sources or split not in tables:
        return []

    train = set(chain.from_iterable(labels_by_row(tables["train"], several)))
    scored = set(chain.from_iterable(labels_by_row(tables[split], several)))
    if not (missing := sorted(train - scored)):
        return []
    return [
        f"{split} has rows of {len(train & scored):,} of {len(train):,} classes, since the others have too few "
        f"({_listed([*map(repr, missing)], len(missing))}); {flag('folds', 5)} scores every row"
    ]


def _listed(shown: Sequence[str], total: int) -> str:
    return "; ".join(shown[:LISTED]) + ("; ..." if total > LISTED else "")
