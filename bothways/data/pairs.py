"""Tables of pairs of texts as people keep them: with scores, or of texts that belong together, and perhaps a third that
does not."""

from collections.abc import Sequence
from dataclasses import dataclass
from re import fullmatch
from typing import Literal

import numpy as np

from bothways.data.columns import LABEL_NAMES, Table, build_table, find_column, read_text
from bothways.data.datasets import read_rows
from bothways.data.glue import glue_table
from bothways.data.labels import numeric_labels, parse_number
from bothways.data.near_duplicates import text_key
from bothways.data.split_tables import divide_rows
from bothways.data.splits import parts_for
from bothways.data.tables import OnError, RowErrorHandler, RowErrors, TableRow, match_columns
from bothways.errors import InputError
from bothways.settings import TextColumns, TrainEmbed
from bothways.tables_in_memory import TableSource

NO_NEGATIVES = ""  # the column of negatives that no table has
PairObjective = Literal["auto", "pairs", "scores"]


@dataclass(frozen=True)
class TextPairs:
    """N pairs. texts: the first ones, the second ones and, where there are any, those that do not belong, each [N].
    scores [N], where they are what is to be learned, as in the file."""

    texts: list[list[str]]
    scores: np.ndarray | None
    notes: tuple[str, ...] = ()  # what was left out when they were read

    def take(self, rows: Sequence[int]) -> "TextPairs":
        texts = [[part[row] for row in rows] for part in self.texts]
        return TextPairs(texts, None if self.scores is None else self.scores[rows], self.notes)


def read_pairs(settings: TrainEmbed, fold: int | None = None) -> dict[str, TextPairs]:
    """train, dev and perhaps test. Where dev has no file of its own, a tenth of the training table is taken for it, and
    where there is neither another tenth for test; the pairs of one text, and of near-equal ones, stay together.
    fold: in cross-validation the one that is test."""
    if settings.objective == "scores" and settings.negative_column is not None:
        raise InputError(
            f"negative_column ({settings.negative_column}) is for pairs; leave it out, or take --objective pairs"
        )
    on_error = settings.on_error
    train = read_pair_file(settings.train, settings, settings.objective, settings.negative_column, on_error)
    if train.scores is None and len(set(train.texts[1])) < 2:
        raise InputError(f"{settings.train}: a single pair has no other to compete with; add pairs")
    objective: PairObjective = "pairs" if train.scores is None else "scores"
    files = {"dev": settings.dev, "test": settings.test}
    negative = settings.negative_column
    found = {
        name: read_pair_file(path, settings, objective, negative, on_error) for name, path in files.items() if path
    }
    found = {"train": train, **found}
    if settings.dev:
        return found
    rows = divide_rows(settings, [*map(text_key, train.texts[0])], parts_for(found), fold)
    return {**found, **{name: train.take(own) for name, own in rows.items()}}


def read_pair_file(
    path: TableSource,
    settings: TextColumns,
    objective: PairObjective,
    negative: str | None = None,
    on_error: OnError | None = None,
) -> TextPairs:
    """negative: the column of texts that do not belong; NONE: none is read. auto: scores where there is a column of
    them and no such column is named. on_error: as of read_table."""
    columns = {"text": settings.text_column, "pair": settings.pair_column, "label": settings.label_column}
    scored, errors, encoding = objective == "scores", RowErrors(on_error), settings.encoding
    check = check_score if objective != "pairs" else None
    table = glue_table(path, **columns, need_labels=check is not None, broken=errors, check=check, encoding=encoding)
    if table is not None:
        return TextPairs(text_columns(table), pair_scores(table) if check else None, errors.notes(len(table)))
    rows = read_rows(path, broken=errors, encoding=encoding)
    there = list(dict.fromkeys(name for _, row in rows for name in row))
    if objective == "auto" and negative in (None, NO_NEGATIVES):
        scored = find_column(path, there, "label", columns["label"], ["label"], LABEL_NAMES) is not None
    further = (
        {} if scored or negative == NO_NEGATIVES or not rows else read_negatives(path, rows, there, negative, errors)
    )
    kept = [(where, row) for where, row in rows if not further or where in further]
    if not kept:
        errors.notes(0)
    table = build_table(path, kept, **columns, need_labels=scored, broken=errors, check=check_score if scored else None)
    notes = errors.notes(len(table))
    if scored:
        return TextPairs(text_columns(table), pair_scores(table), notes)
    return TextPairs(
        [*text_columns(table), *([[further[where] for where in table.where]] if further else [])], None, notes
    )


def text_columns(table: Table) -> list[list[str]]:
    if table.pairs is None:
        raise InputError(
            f"{table.where[0]}: no second text; vectors are of pairs: add a column 'pair', or name yours "
            "with --pair-column"
        )
    return [table.texts, table.pairs]


def pair_scores(table: Table) -> np.ndarray:
    return np.array(numeric_labels(table))


def check_score(where: str, label: str) -> None:
    """InputError where a label is no score."""
    try:
        parse_number(where, label)
    except InputError as error:
        raise InputError(f"{error}; or leave scores aside with --objective pairs") from None


def read_negatives(
    path: TableSource,
    rows: Sequence[tuple[str, TableRow]],
    columns: Sequence[str],
    named: str | None,
    broken: RowErrorHandler,
) -> dict[str, str]:
    """{'file:line': text} of the column that is named, else of `negative`; {} where there is no such column. InputError
    where several could be meant: one is learned from."""
    name = named or next((name for name in columns if name.strip().lower() == "negative"), None)
    if name is None:
        like = [name for name in columns if fullmatch(r"negative[ _-]?\d+", name.strip().lower())]
        if like:
            raise InputError(
                f"{path}: {', '.join(like)} could be texts that do not belong; say which with --negative-column"
            )
        return {}
    if not (own := match_columns(name, columns)):
        raise InputError(f"{path}: no column {name!r} (there are: {', '.join(columns)}); name yours, or none")
    found = {}
    for where, row in rows:
        try:
            found[where] = read_text(where, row, own, "negative")
        except InputError as wrong:
            broken(wrong)
    return found
