"""Rankings: passages that a search found for a query, each with its rank and its label, from rows of any table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from bothways.base.errors import InputError, RowError, RowLocation, flag, format_count
from bothways.settings.base import TextColumns
from bothways.settings.tables_in_memory import TableList, TableRow, TableSource
from bothways.text.data.columns import LABEL_NAMES, Columns, find_column, find_text_columns, is_missing, read_text
from bothways.text.data.labels import parse_number
from bothways.text.data.near_duplicates import first_locations, text_key
from bothways.text.rows.row_errors import OnError, RowErrors
from bothways.text.rows.rows import read_rows

RELEVANCE_NAMES = ("relevance", "relevant", "grade", "clicked", *LABEL_NAMES)
RANK_NAMES = ("rank", "position")
SCORE_NAMES = ("score", "first_stage_score", "bm25", "cosine")
TRUTH = {"true": "1", "false": "0", "yes": "1", "no": "0"}


@dataclass(frozen=True)
class RankedPassages:
    """Passages with the query that they were found for; the passages of a query follow each other. All columns are [N].

    labels: how relevant each passage is, 0 or more; None: not judged, which no training uses, and no score counts.
    ranks: the place of each passage in the search, from 1; None: the search did not find it. No column has ranks if
    `has_ranks` is false. notes: about rows that were skipped.
    """

    queries: list[str]
    passages: list[str]
    labels: list[float | None]
    ranks: list[int | None]
    where: list[RowLocation]
    has_ranks: bool
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.queries)

    def take(self, rows: Sequence[int]) -> "RankedPassages":
        """These rows only."""
        return replace(
            self,
            queries=[self.queries[row] for row in rows],
            passages=[self.passages[row] for row in rows],
            labels=[self.labels[row] for row in rows],
            ranks=[self.ranks[row] for row in rows],
            where=[self.where[row] for row in rows],
        )

    @cached_property
    def lists(self) -> list[list[int]]:
        """The rows of each query."""
        rows_by_query: dict[str, list[int]] = {}
        for row, query in enumerate(self.queries):
            rows_by_query.setdefault(query, []).append(row)
        return [*rows_by_query.values()]

    @cached_property
    def keys(self) -> list[str]:
        """Keys that are equal for near duplicates of a query."""
        key_by_query = {query: text_key(query) for query in dict.fromkeys(self.queries)}
        return [key_by_query[query] for query in self.queries]

    @cached_property
    def units(self) -> list[str]:
        """The query of each row, as the location of the first of its rows."""
        return first_locations(self.queries, self.where)


def read_rankings(source: TableSource, named: TextColumns, on_error: OnError | None = None) -> RankedPassages:
    """The rows of a table: a query, a passage and a label each, and perhaps the rank or the score of the search.

    named: the columns; None: found by their usual names. A label is a number of at least 0, or true or false; an empty
    one is no label. on_error: see `RowErrors`.
    Rows that repeat a passage of their query are one. InputError if a column is missing or ambiguous, or no row is
    relevant.
    """
    if isinstance(source, TableList):
        return _joined(source, [read_rankings(part, named, on_error) for part in source.parts])
    errors = RowErrors(on_error)
    rows = read_rows(source, errors, named.encoding)
    if not rows:
        errors.notes(0)
        raise InputError(f"{source}: empty; a ranking has rows of a query, a passage and a label")

    names = list(dict.fromkeys(name for _, row in rows for name in row))
    query, passage = _query_and_passage(source, names, named)
    label = find_column(source, names, "label", named=named.label_column, standard=["label"], common=RELEVANCE_NAMES)
    if label is None:
        raise InputError(
            f"{source}: no column 'label' (there are: {', '.join(names)}); rows of queries and their passages alone "
            f"have no negatives: give them as {flag('pairs')} with {flag('negatives_from')}, which finds some"
        )
    rank = _first_column([name for name in names if name != label], RANK_NAMES)
    score = _first_column([name for name in names if name != label], SCORE_NAMES)

    read = []
    for where, row in rows:
        try:
            texts = read_text(where, row, query), read_text(where, row, passage, "pair")
            read.append((*texts, _label(where, row, label), _rank(where, row, rank), _score(where, row, score), where))
        except InputError as error:
            errors(error)
    notes = errors.notes(len(read))
    columns: list[list[Any]] = [*map(list, zip(*read, strict=True))]
    queries, passages, labels, ranks, scores, places = columns
    table = RankedPassages(
        queries=queries,
        passages=passages,
        labels=labels,
        ranks=ranks,
        where=places,
        has_ranks=rank is not None or score is not None,
        notes=notes,
    )
    if rank is None and score is not None:
        table = replace(table, ranks=ranks_by_score(table, scores))
    return _merged(source, table)


def read_relevant(
    source: TableSource, named: TextColumns, on_error: OnError | None = None
) -> dict[str, dict[str, float]]:
    """{query: {passage: label}} of the relevant passages in a table; without a column of labels, all are relevant.

    named, on_error: see `read_rankings`. InputError if a column is missing or ambiguous, or no passage is relevant.
    """
    if isinstance(source, TableList):
        parts = [read_relevant(part, named, on_error) for part in source.parts]
        return {query: passages for part in parts for query, passages in part.items()}
    errors = RowErrors(on_error)
    rows = read_rows(source, errors, named.encoding)
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    query, passage = _query_and_passage(source, names, named)
    label = find_column(source, names, "label", named=named.label_column, standard=["label"], common=RELEVANCE_NAMES)

    relevant: dict[str, dict[str, float]] = {}
    for where, row in rows:
        try:
            text = read_text(where, row, query)
            found = read_text(where, row, passage, "pair")
            grade = 1.0 if label is None else _label(where, row, label)
            if grade and text.strip() and found.strip():
                passages = relevant.setdefault(text, {})
                passages[found] = max(grade, passages.get(found, 0.0))
        except InputError as error:
            errors(error)
    errors.notes(len(relevant))
    if not relevant:
        raise InputError(f"{source}: no row has a query with a relevant passage (label above 0, if there is one)")
    return relevant


def _query_and_passage(source: TableSource, names: Sequence[str], named: TextColumns) -> tuple[Columns, Columns]:
    """The columns of queries and of passages."""
    query, passage = find_text_columns(source, names, named.text_column, named.pair_column)
    if passage is None:
        raise InputError(
            f"{source}: no column of passages (there are: {', '.join(names)}); add query and passage, or name yours "
            f"with {flag('pair_column')}"
        )
    return query, passage


def ranks_by_score(table: RankedPassages, scores: Sequence[float | None]) -> list[int | None]:
    """The rank of each passage among the passages of its query, by descending score; None without a score."""
    ranks: list[int | None] = [None] * len(table)
    for rows in table.lists:
        scored = [(row, score) for row in rows if (score := scores[row]) is not None]
        for rank, (row, _) in enumerate(sorted(scored, key=lambda one: -one[1]), 1):
            ranks[row] = rank
    return ranks


def _first_column(names: Sequence[str], known: Sequence[str]) -> str | None:
    """The first column with one of these names, in the order of the known ones."""
    by_name = {name.strip().lower(): name for name in names}
    return next((by_name[name] for name in known if name in by_name), None)


def _label(where: str, row: TableRow, column: str) -> float | None:
    value = row.get(column)
    if is_missing(value) or not (text := str(value).strip()):
        return None
    number = parse_number(where, TRUTH.get(text.lower(), text))
    if number < 0:
        raise RowError(where, f"label {text!r} is below 0; 0 is not relevant, more is relevant")
    return number


def _rank(where: str, row: TableRow, column: str | None) -> int | None:
    number = _number(where, row, column, "rank")
    if number is None:
        return None
    if number < 1 or number != int(number):
        raise RowError(where, f"{column!r} holds {number:g}; a rank is a whole number from 1")
    return int(number)


def _score(where: str, row: TableRow, column: str | None) -> float | None:
    return _number(where, row, column, "score")


def _number(where: str, row: TableRow, column: str | None, kind: str) -> float | None:
    """The number in a column; None if there is none. InputError for anything else."""
    value = None if column is None else row.get(column)
    if is_missing(value) or not (text := str(value).strip()):
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise RowError(where, f"{column!r} holds {text!r}, which is no {kind}; fix it or leave it empty")
    return number


def _merged(source: TableSource, table: RankedPassages) -> RankedPassages:
    """The same rows, with the rows of a query together. Rows that repeat a passage of their query, as logs do, are one,
    with the greatest label and the best rank. InputError if no row is relevant."""
    if not any(label for label in table.labels):
        raise InputError(f"{source}: no row has a label above 0, which says that its passage is relevant; add some")
    first: dict[tuple[str, str], int] = {}
    labels = [*table.labels]
    ranks = [*table.ranks]
    for row, key in enumerate(zip(table.queries, table.passages, strict=True)):
        kept = first.setdefault(key, row)
        labels[kept] = max((label for label in (labels[kept], labels[row]) if label is not None), default=None)
        ranks[kept] = min((rank for rank in (ranks[kept], ranks[row]) if rank is not None), default=None)

    kept_rows = {*first.values()}
    notes = table.notes
    if repeated := len(table) - len(kept_rows):
        notes = (*notes, f"{format_count(repeated, 'row')} repeated a passage of the same query; each counts once")
    merged = replace(table, labels=labels, ranks=ranks, notes=notes)
    return merged.take([row for rows in merged.lists for row in rows if row in kept_rows])


def _joined(source: TableSource, parts: Sequence[RankedPassages]) -> RankedPassages:
    """The rows of several tables."""
    columns = ("queries", "passages", "labels", "ranks", "where")
    joined: dict[str, Any] = {name: [one for part in parts for one in getattr(part, name)] for name in columns}
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    has_ranks = all(part.has_ranks for part in parts)
    return _merged(source, RankedPassages(**joined, has_ranks=has_ranks, notes=notes))
