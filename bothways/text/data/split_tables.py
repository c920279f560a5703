"""The train, dev and test tables of a fine-tuning run: read from files, or split."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any

from bothways.base.errors import InputError, flag, id_column
from bothways.settings.finetune import Classify, FineTune, Regress, TrainDecide
from bothways.settings.tables_in_memory import TableRow, TableSource, parts_of
from bothways.text.data.columns import LabelCheck, Table
from bothways.text.data.examples import read_table
from bothways.text.data.label_cells import read_labels
from bothways.text.data.labels import (
    check_not_blank,
    find_quantity,
    label_sets,
    labels_by_row,
    parse_label_set,
    parse_number,
)
from bothways.text.data.splits import Parts, parts_for, rarest_labels, split, split_fold, split_groups
from bothways.text.rows.column_names import rename_columns
from bothways.text.rows.rows import form_of, open_rows


def read_tables(settings: Classify | Regress | TrainDecide, fold: int | None = None) -> dict[str, Table]:
    """The tables by split: train, dev and possibly test.

    Without a dev file, a tenth of the training table becomes dev; without dev and test files, another tenth becomes
    test. Splits are stratified by class. Rows of a group stay together, or without groups near-duplicate texts.

    settings: the files, their columns and how to split them.
    fold: the test fold in cross-validation (`settings.folds`); else None.
    """
    tables = {
        name: read_table(
            path,
            **settings.columns,
            group=settings.group_column,
            need_group=name == "train",
            need_labels=True,
            encoding=settings.encoding,
            on_error=settings.on_error,
            check=label_check(settings),
        )
        for name, path in settings.sources.items()
    }

    check_pairs(tables)
    if not isinstance(settings, Regress):
        tables = read_class_labels(settings, tables)

    if settings.dev:
        return tables

    whole = tables["train"]
    classes = strata(settings, whole)
    groups = whole.groups or whole.keys
    if settings.folds:
        rows_by_split = split_fold(
            len(whole),
            classes,
            groups,
            folds=settings.folds,
            fold=fold,
            seed=settings.seed,
            source=settings.train,
            group=settings.group_column,
        )
    else:
        rows_by_split = split(
            len(whole),
            classes,
            groups,
            parts=parts_for(tables),
            seed=settings.seed,
            source=settings.train,
            group=settings.group_column,
        )

    splits = {name: whole.take(rows) for name, rows in rows_by_split.items()}
    if settings.group_column is not None:
        note = groups_note(settings, splits)
        splits["train"] = replace(splits["train"], notes=(*splits["train"].notes, note))
    # The part of the table that is left for training replaces the whole.
    return {**tables, **splits}


def label_check(settings: Classify | Regress | TrainDecide) -> LabelCheck:
    """The check of each label while a table is read: a number, a set of labels, or a name."""
    if isinstance(settings, Regress):
        return parse_number
    return parse_label_set if settings.multi_label else check_not_blank


def check_pairs(tables: Mapping[str, Table]) -> None:
    """InputError if some splits have pairs and others have not."""
    paired = {name: table.pairs is not None for name, table in tables.items()}
    if len(set(paired.values())) > 1:
        with_pairs = [name for name, has_pairs in paired.items() if has_pairs]
        without = [name for name, has_pairs in paired.items() if not has_pairs]
        raise InputError(
            f"{with_pairs[0]} has pairs of texts, {without[0]} has single ones; use the same form for both, or name "
            f"the column with {flag('pair_column')}"
        )


def read_class_labels(settings: Classify | TrainDecide, tables: Mapping[str, Table]) -> dict[str, Table]:
    """The tables with the labels as `read_labels` has them. The labels of dev and test are spelled as in train.

    InputError for classes that are quantities.
    """
    several = settings.multi_label
    train = read_labels(tables["train"], several=several)
    if not several:
        refuse_numeric_classes(train, settings.train)

    names = {label for labels in labels_by_row(train, several) for label in labels}
    others = {
        split: read_labels(table, several=several, names=names) for split, table in tables.items() if split != "train"
    }
    return {"train": train, **others}


def refuse_numeric_classes(table: Table, source: TableSource) -> None:
    """InputError if the classes are many fractional numbers, which need regression instead."""
    labels = table.labels or ()
    fraction = find_quantity(labels)
    if fraction is not None:
        num_names = len({*labels})
        raise InputError(
            f"{source}: the labels are {num_names:,} different numbers such as {fraction}; learn numbers with "
            "finetune regress, or write classes as words"
        )


def strata(settings: Classify | Regress | TrainDecide, table: Table) -> Sequence[Hashable] | None:
    """The stratum of each row: its class, or the rarest of its labels; None for regression."""
    if isinstance(settings, Regress):
        return None
    if settings.multi_label:
        return rarest_labels(label_sets(table))
    return table.labels


def groups_note(settings: Classify | Regress | TrainDecide, tables: Mapping[str, Table]) -> str:
    """A note with the number of groups per split, and with the split that lacks classes, if one does."""
    counts = [f"{len(set(table.groups)):,} in {name}" for name, table in tables.items() if table.groups]
    line = f"rows of one {settings.group_column!r} stay together: {', '.join(counts)}"

    # Groups are not divided: all rows of a class may be in one split.
    classes = {name: len(set(strata(settings, table) or ())) for name, table in tables.items()}
    fewest = min(classes, key=classes.__getitem__)
    most = max(classes.values())
    if classes[fewest] < most:
        line += f"; {fewest} has {classes[fewest]} of {most} classes: add groups, or give {flag('dev')}"
    return line


def divide_rows(
    settings: FineTune, groups: Sequence[Hashable], parts: Parts, fold: int | None, of: str = "rows"
) -> dict[str, list[int]]:
    """Rows by split, for tasks that have no `Table`. Rows of a group stay together.

    settings: the seed, the number of folds in cross-validation, and the file named in messages.
    groups: the group of each row.
    parts: the relative size of each split, without cross-validation.
    fold: the test fold in cross-validation; else None.
    of: a word for the rows in messages, such as "queries".
    """
    if not settings.folds:
        return split_groups(groups, seed=settings.seed, parts=parts, source=settings.train, of=of)
    return split_fold(
        len(groups),
        None,
        groups,
        seed=settings.seed,
        folds=settings.folds,
        fold=fold,
        source=settings.train,
        of=of,
    )


def read_unlabelled(settings: FineTune, *, pairs: bool | None = None) -> Table:
    """The texts, or pairs, of the files without labels.

    settings: the files (`settings.unlabelled`) and how to read them.
    pairs: whether they must be pairs; None: either.

    InputError if a file has the other form.
    """
    # Not every task has these settings.
    text = getattr(settings, "text_column", None)
    pair = getattr(settings, "pair_column", None)

    tables = [
        read_table(
            source,
            text=None if form_of(source, settings.encoding).is_text else text,
            pair=None if form_of(source, settings.encoding).is_text else pair,
            need_labels=False,
            encoding=settings.encoding,
            on_error=settings.on_error,
        )
        for source in settings.unlabelled
    ]

    for source, table in zip(settings.unlabelled, tables, strict=True):
        if pairs is not None and (table.pairs is not None) != pairs:
            actual, wanted = ("single texts", "pairs") if pairs else ("pairs", "single texts")
            raise InputError(f"{source}: has {actual}, but the training data has {wanted}; give files of {wanted}")

    return Table(
        texts=[text for table in tables for text in table.texts],
        pairs=[text for table in tables for text in table.pairs or ()] or None,
        labels=None,
        where=[where for table in tables for where in table.where],
    )


def texts_by_location(tables: Iterable[Table]) -> dict[str, tuple[str, str | None]]:
    """{location: (text, second text or None)} of all rows."""
    return {
        where: (table.texts[row], table.pairs[row] if table.pairs else None)
        for table in tables
        for row, where in enumerate(table.where)
    }


def text_columns(texts: Mapping[str, tuple[str, str | None]], where: Sequence[str]) -> dict[str, list[str]]:
    """The columns "text" and, if there are second texts, "pair" of some rows.

    texts: the result of `texts_by_location`.
    where: the locations of the rows.
    """
    rows = [texts[location] for location in where]
    columns = {"text": [text for text, _ in rows]}
    pairs = [pair for _, pair in rows if pair is not None]
    return {**columns, "pair": pairs} if pairs else columns


def other_columns(
    sources: Iterable[TableSource],
    where: Sequence[str],
    columns: Mapping[str, Sequence[Any]],
    encoding: str | None,
    shown: Collection[str] = (),
) -> dict[str, list[Any]]:
    """The columns of the user for the rows of a result, by name: the columns that the result has not itself.

    Nothing for formats without named columns, and for tables that can no longer be read.

    sources: the tables.
    where: the locations of the rows of the result.
    columns: the columns of the result. A column of the user with such a name becomes `input_NAME`.
    encoding: the encoding of the tables; None: UTF-8, or the encoding of their byte-order mark.
    shown: the names in the tables of texts and labels, which `columns` has under other names. They are left out.
    """
    wanted = {*where}
    rows = dict[str, TableRow]()  # by location
    names = dict[str, None]()  # a set with an order
    for source in chain.from_iterable(map(parts_of, sources)):
        with suppress(InputError):
            source_rows = open_rows(source, encoding)
            if source_rows.form.columns:
                continue

            located = [*source_rows.read(lambda error: None)]
            found: dict[str, TableRow] = {location: row for location, row in located if location in wanted}
            rows |= found
            # Without rows, the columns are the same as with some: code that reads them must not fail on clean data.
            if found or not wanted:
                names |= dict.fromkeys(name for _, row in located for name in row)

    identifier = id_column((*names,))
    other = dict[str, list[Any]]()
    for name in names:
        values = [rows.get(location, {}).get(name) for location in where]
        # The result may have the identifiers already, as its column `id`.
        is_identifier = name == identifier and [*map(str, values)] == columns.get("id")
        if name not in shown and not is_identifier:
            other[name] = values

    renamed = rename_columns([*other], columns)
    return {renamed[name]: values for name, values in other.items()}
