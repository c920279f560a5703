"""The tables of a fine-tuning run: train, dev and test as given, or divided; what is doubtful about their rows."""

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from bothways.data.columns import Check
from bothways.data.examples import Table, check_class, label_set, label_sets, number_of, numbers, read_table
from bothways.data.near_duplicates import conflicts, label_key, merged, spellings
from bothways.data.splits import Parts, overlap_line, parts_for, rarest_labels, split, split_fold, split_groups
from bothways.errors import InputError
from bothways.settings import Classify, FineTune, Regress
from bothways.tables_in_memory import Source

LISTED = 5  # examples of what is doubtful
FEW_NUMBERS = 10  # classes that may be numbers with fractions, such as ratings of half stars


def read_tables(settings: Classify | Regress, fold: int | None = None) -> dict[str, Table]:
    """train, dev and perhaps test. What has no file of its own is taken from the training table: a tenth of it for
    dev, and where there is neither another tenth for test, each class divided alike; near-equal texts stay together.
    fold: in cross-validation the one that is test."""
    columns = {"text": settings.text_column, "pair": settings.pair_column, "label": settings.label_column}
    given = {"train": settings.train, "dev": settings.dev, "test": settings.test}
    tables = {
        name: read_table(
            path, **columns, need_labels=True, encoding=settings.encoding, on_error=settings.on_error,
            check=check_of(settings),
        )
        for name, path in given.items() if path
    }  # fmt: skip
    check_pairs(tables)
    if isinstance(settings, Classify) and not settings.multi_label:
        refuse_numbers(tables["train"], settings.train)
    if isinstance(settings, Classify) and settings.merge_labels:
        tables = merge_labels(tables, several=settings.multi_label)
    if settings.dev:
        return tables
    whole = tables["train"]
    divided_by = (len(whole), classes_of(settings, whole), whole.keys)
    if settings.folds:
        rows = split_fold(*divided_by, seed=settings.seed, folds=settings.folds, fold=fold, source=settings.train)
    else:
        rows = split(*divided_by, seed=settings.seed, parts=parts_for(tables), source=settings.train)
    return {**tables, **{name: rows_of(whole, own) for name, own in rows.items()}}


def check_of(settings: Classify | Regress) -> Check:
    """What a row's label must be."""
    if isinstance(settings, Regress):
        return number_of
    return label_set if settings.multi_label else check_class


def divided(
    settings: FineTune, groups: Sequence[Hashable], parts: Parts, fold: int | None, of: str = "rows"
) -> dict[str, list[int]]:
    """Rows by split, those of a group together: by `parts`, or in cross-validation with one fold as test."""
    if not settings.folds:
        return split_groups(groups, seed=settings.seed, parts=parts, source=settings.train, of=of)
    return split_fold(
        len(groups), None, groups, seed=settings.seed, folds=settings.folds, fold=fold, source=settings.train, of=of
    )


def classes_of(settings: Classify | Regress, table: Table) -> Sequence[Hashable] | None:
    """What to divide the rows by: their class, or the rarest of their labels; numbers have none."""
    if isinstance(settings, Regress):
        return None
    return rarest_labels(label_sets(table)) if settings.multi_label else table.labels


def check_pairs(tables: Mapping[str, Table]) -> None:
    """InputError where one split has pairs and another has not."""
    paired = {name: table.pairs is not None for name, table in tables.items()}
    if len(set(paired.values())) > 1:
        with_pairs, without = ([name for name, one in paired.items() if one is had] for had in (True, False))
        raise InputError(
            f"{with_pairs[0]} has pairs of texts, {without[0]} has single ones; give both alike, "
            "or name the column with --pair-column"
        )


def refuse_numbers(table: Table, source: Source) -> None:
    """InputError where classes are many numbers with fractions: those are learned as numbers."""
    names = sorted(set(table.labels or ()))
    if len(names) <= FEW_NUMBERS:
        return
    try:
        fraction = next((name for name in names if not float(name).is_integer()), None)
    except ValueError:
        return
    if fraction is not None:
        raise InputError(
            f"{source}: the labels are {len(names):,} different numbers such as {fraction}; learn numbers with "
            "finetune regress, or write classes as words"
        )


def rows_of(table: Table, rows: Sequence[int]) -> Table:
    """Those rows of a table."""
    columns = (table.texts, table.pairs, table.labels, table.where)
    chosen = (None if column is None else [column[row] for row in rows] for column in columns)
    return replace(Table(*chosen), notes=table.notes)  # type: ignore[arg-type]


def texts_at(tables: Iterable[Table]) -> dict[str, tuple[str, str | None]]:
    """The text, and the second one if there is one, of each row by file and line."""
    return {
        where: (table.texts[row], table.pairs[row] if table.pairs else None)
        for table in tables
        for row, where in enumerate(table.where)
    }


# --- spellings of labels ----------------------------------------------------------------------------------------------


def merge_labels(tables: Mapping[str, Table], *, several: bool) -> dict[str, Table]:
    """The tables with one spelling of each label, that of `merged` over the training table; noted there.

    several: whether a row may have several labels.
    """
    names = merged(spellings(chain.from_iterable(_labels_of(tables["train"], several))))
    by_key = {label_key(name): name for name in chain.from_iterable(_labels_of(tables["train"], several))}
    by_key |= {label_key(name): name for name in names.values()}
    found = {name: respelled(table, by_key, several=several) for name, table in tables.items()}
    changed = sorted((one, name) for one, name in names.items() if one != name)
    if changed:
        note = f"labels merged: {', '.join(f'{one!r} into {name!r}' for one, name in changed)}"
        found["train"] = replace(found["train"], notes=(*found["train"].notes, note))
    return found


def respelled(table: Table, names: Mapping[str, str], *, several: bool) -> Table:
    """The table with labels as `names` spells them, by near_duplicates.label_key; others stay."""
    rows = [[names.get(label_key(label), label) for label in labels] for labels in _labels_of(table, several)]
    return replace(table, labels=[json.dumps(row, ensure_ascii=False) if several else row[0] for row in rows])


def _labels_of(table: Table, several: bool) -> list[list[str]]:
    if several:
        return [sorted(labels) for labels in label_sets(table)]
    return [[label] for label in table.labels or []]


# --- what is doubtful -------------------------------------------------------------------------------------------------


def table_warnings(settings: Classify | Regress, tables: Mapping[str, Table]) -> list[str]:
    """Lines on what was left out, on empty texts, texts that splits share, and labels that may be wrong."""
    notes = dict.fromkeys(chain.from_iterable(table.notes for table in tables.values()))
    found = [*notes, *empty_lines(tables), *overlap_lines(tables), *conflict_lines(settings, tables)]
    return [*found, *label_lines(tables, settings.multi_label)] if isinstance(settings, Classify) else found


def empty_lines(tables: Mapping[str, Table]) -> list[str]:
    found = []
    for name, table in tables.items():
        both = zip(table.texts, table.pairs or table.texts, strict=True)
        if empty := [row for row, texts in enumerate(both) if not all(map(str.strip, texts))]:
            first = table.where[empty[0]]
            found.append(
                f"{len(empty):,} of {len(table):,} examples of {name} have an empty text, the first at {first}"
            )
    return found


def overlap_lines(tables: Mapping[str, Table]) -> list[str]:
    line = overlap_line({name: table.keys for name, table in tables.items()})
    return [line] if line else []


def conflict_lines(settings: Classify | Regress, tables: Mapping[str, Table]) -> list[str]:
    """Texts that have different labels in different rows, of any split: how many, and some of them."""
    keys = [*chain.from_iterable(table.keys for table in tables.values())]
    where = [*chain.from_iterable(table.where for table in tables.values())]
    labels = [*chain.from_iterable(_comparable(settings, table) for table in tables.values())]
    found = conflicts(keys, labels)
    if not found:
        return []
    shown = [" but ".join(f"{_shown(labels[row])} at {where[row]}" for row in rows[:3]) for rows in found[:LISTED]]
    texts = f"{len(found):,} text{'s' if len(found) > 1 else ''} with different labels"
    return [f"{texts} (case, blanks and punctuation aside): {_listed(shown, len(found))}"]


def _comparable(settings: Classify | Regress, table: Table) -> Sequence[Hashable]:
    if isinstance(settings, Regress):
        return numbers(table)
    return label_sets(table) if settings.multi_label else table.labels or []


def _shown(label: Hashable) -> str:
    if isinstance(label, frozenset):
        return ", ".join(map(repr, sorted(label))) or "no label"
    return f"{label:g}" if isinstance(label, float) else repr(label)


def label_lines(tables: Mapping[str, Table], several: bool) -> list[str]:
    """Labels that differ only in case or blanks, and those of one row."""
    rows = [
        (where, labels)
        for table in tables.values()
        for where, labels in zip(table.where, _labels_of(table, several), strict=True)
    ]
    found = []
    if alike := spellings(chain.from_iterable(labels for _, labels in rows)):
        shown = [", ".join(f"{name!r} ({number:,})" for name, number in one.items()) for one in alike]
        way = "--merge-labels takes them for one"
        found.append(f"labels that differ only in case or blanks: {_listed(shown, len(alike))}; {way}")
    counts = Counter(chain.from_iterable(labels for _, labels in rows))
    if rare := [(label, where) for where, labels in rows for label in labels if counts[label] == 1]:
        shown = [f"{label!r} at {where}" for label, where in rare]
        classes = f"{len(rare):,} label{'s' if len(rare) > 1 else ''} of a single row"
        found.append(f"{classes}, too few to learn and to measure: {_listed(shown, len(rare))}")
    return found


def _listed(shown: Sequence[str], number: int) -> str:
    return "; ".join(shown[:LISTED]) + ("; ..." if number > LISTED else "")
