"""Text pairs for embeddings: scored pairs, or positive pairs with optional negatives."""

from collections.abc import Sequence
from dataclasses import dataclass
from re import fullmatch
from typing import Literal

import numpy as np

from bothways.base.errors import InputError, RowError, RowLocation, flag, no_such_column
from bothways.settings.base import TextColumns
from bothways.settings.tables_in_memory import LocatedRow, TableList, TableSource
from bothways.text.data.columns import LABEL_NAMES, Table, build_table, find_column, read_text
from bothways.text.data.labels import numeric_labels, parse_number
from bothways.text.rows.column_names import match_columns
from bothways.text.rows.row_errors import OnError, RowErrorHandler, RowErrors
from bothways.text.rows.rows import open_rows

NO_NEGATIVES = ""  # as negative_column: read no negatives
PairObjective = Literal["auto", "pairs", "scores"]


@dataclass(frozen=True)
class TextPairs:
    """N text pairs.

    texts: columns of first texts, second texts and optionally negatives, each [N]. scores [N]: as in the file; None if
    the pairs have no scores or ignore them.
    """

    texts: list[list[str]]
    scores: np.ndarray | None
    notes: tuple[str, ...] = ()  # about rows that were skipped

    def take(self, rows: Sequence[int]) -> "TextPairs":
        texts = [[column[row] for row in rows] for column in self.texts]
        return TextPairs(texts, None if self.scores is None else self.scores[rows], self.notes)


def read_pair_file(
    path: TableSource,
    named: TextColumns,
    objective: PairObjective,
    negative: str | None = None,
    on_error: OnError | None = None,
) -> TextPairs:
    """The pairs of one file or dataset.

    named: the columns. objective: auto means scores if the table has a label column and no negative column is named.
    negative: the column of negatives; None: `negative` if present; NO_NEGATIVES: read none. on_error: see `read_table`.
    """
    if isinstance(path, TableList):
        return join_pairs(path, [read_pair_file(part, named, objective, negative, on_error) for part in path.parts])

    source_rows = open_rows(path, named.encoding)
    columns = source_rows.form.chosen(**named.columns)
    scored = objective == "scores"
    errors = RowErrors(on_error)
    rows = [*source_rows.read(errors)]
    columns_in_file = list(dict.fromkeys(name for _, row in rows for name in row))
    if objective == "auto" and negative in (None, NO_NEGATIVES):
        scored = (
            find_column(path, columns_in_file, "label", named=columns["label"], standard=["label"], common=LABEL_NAMES)
            is not None
        )

    negatives: dict[RowLocation, str] = {}
    if rows and not scored and negative != NO_NEGATIVES:
        negatives = read_negatives(path, rows, columns_in_file, negative, errors)

    kept_rows = [(where, row) for where, row in rows if not negatives or where in negatives]
    if not kept_rows:
        errors.notes(0)

    table = build_table(
        path,
        kept_rows,
        **columns,
        need_labels=scored,
        on_row_error=errors,
        check=check_score if scored else None,
    )

    notes = errors.notes(len(table))
    texts = text_columns(table)
    if negatives:
        texts.append([negatives[where] for where in table.where])
    return TextPairs(texts, pair_scores(table) if scored else None, notes)


def join_pairs(source: TableSource, parts: Sequence[TextPairs]) -> TextPairs:
    """The pairs of several tables. InputError if only some have negatives or scores."""
    forms = {(len(part.texts), part.scores is None) for part in parts}
    if len(forms) > 1:
        raise InputError(f"{source}: some have negatives or scores, others have not; give tables of one form")
    columns = zip(*(part.texts for part in parts), strict=True)
    texts = [[text for column in group for text in column] for group in columns]
    scores = [part.scores for part in parts if part.scores is not None]
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    return TextPairs(texts, np.concatenate(scores) if scores else None, (*notes,))


def text_columns(table: Table) -> list[list[str]]:
    if table.pairs is None:
        raise InputError(
            f"{table.where[0]}: no second text; embeddings need pairs: add a column 'pair', or name yours with "
            f"{flag('pair_column')}"
        )
    return [table.texts, table.pairs]


def pair_scores(table: Table) -> np.ndarray:
    return np.array(numeric_labels(table))


def check_score(where: str, label: str) -> None:
    """InputError for a label that is not a number."""
    try:
        parse_number(where, label)
    except RowError as error:
        raise RowError(where, f"{error.reason}; or ignore the scores with {flag('objective', 'pairs')}") from None


def usual_negatives(columns: Sequence[str]) -> str | None:
    """The column that is called `negative`, in any case."""
    return next((name for name in columns if name.strip().lower() == "negative"), None)


def read_negatives(
    path: TableSource,
    rows: Sequence[LocatedRow],
    columns: Sequence[str],
    named: str | None,
    on_row_error: RowErrorHandler,
) -> dict[RowLocation, str]:
    """{location: negative text} of the named column, else of `negative`; {} if there is none.

    InputError if several columns match.
    """
    name = named or usual_negatives(columns)
    if name is None:
        numbered = [name for name in columns if fullmatch(r"negative[ _-]?\d+", name.strip().lower())]
        if numbered:
            raise InputError(
                f"{path}: {', '.join(numbered)} could be the negatives; choose one with {flag('negative_column')}"
            )
        return {}
    if not (selected := match_columns(name, columns)):
        raise no_such_column(path, name, columns, "name yours, or none")
    text_by_location = {}
    for where, row in rows:
        try:
            text_by_location[where] = read_text(where, row, selected, "negative")
        except InputError as error:
            on_row_error(error)
    return text_by_location
