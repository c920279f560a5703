"""The tables of a fine-tuning run: train, dev and test as given, or divided; what they share."""

from collections.abc import Hashable, Mapping, Sequence

from bothways.data.examples import Table, label_sets, read_table
from bothways.data.splits import overlap_line, parts_for, rarest_labels, split
from bothways.errors import InputError
from bothways.settings import Classify, Regress


def read_tables(settings: Classify | Regress) -> dict[str, Table]:
    """train, dev and perhaps test. What has no file of its own is taken from the training table: a tenth of it for
    dev, and where there is neither another tenth for test, each class divided alike."""
    columns = {"text": settings.text_column, "pair": settings.pair_column, "label": settings.label_column}
    given = {"train": settings.train, "dev": settings.dev, "test": settings.test}
    tables = {name: read_table(path, **columns, need_labels=True) for name, path in given.items() if path}
    check_pairs(tables)
    if settings.dev:
        return tables
    whole = tables["train"]
    rows = split(
        len(whole), classes_of(settings, whole), seed=settings.seed, parts=parts_for(tables), source=settings.train
    )
    return {**tables, **{name: rows_of(whole, own) for name, own in rows.items()}}


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


def rows_of(table: Table, rows: Sequence[int]) -> Table:
    """Those rows of a table."""
    columns = (table.texts, table.pairs, table.labels, table.where)
    return Table(*(None if column is None else [column[row] for row in rows] for column in columns))  # type: ignore[arg-type]


def table_warnings(tables: Mapping[str, Table]) -> list[str]:
    """Lines where texts are empty, and where splits share some."""
    return [*empty_lines(tables), *overlap_lines(tables)]


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
    line = overlap_line(
        {name: [*zip(table.texts, table.pairs or table.texts, strict=True)] for name, table in tables.items()}
    )
    return [line] if line else []
