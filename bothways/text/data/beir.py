"""Retrieval data: BEIR (Thakur 2021) directories, qrels and rankings (TREC files or tables).

| qrels   | `query iteration document grade` (TREC)   | table with columns of QUERY, DOCUMENT and GRADE |
| ranking | `query Q0 document rank score run` (TREC) | table with columns of QUERY, DOCUMENT and SCORE |
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bothways.base.errors import InputError, LineLocation, RowError, format_count
from bothways.settings.tables_in_memory import TableRow
from bothways.text.rows.rows import FORMS, Rows, open_rows
from bothways.text.rows.text_files import EXPLICIT_TYPES, file_type, read_lines

QUERY = ("query", "query-id", "query_id", "qid")
DOCUMENT = ("document", "corpus-id", "corpus_id", "doc", "doc_id")
GRADE = SCORE = ("score", "grade", "relevance", "label")
# Indices of query, document and value.
QRELS_COLUMNS = (0, 2, 3)  # of TREC's 4 columns
RUN_COLUMNS = (0, 2, 4)  # of TREC's 6 columns
TABLE_TYPES = (".csv", ".tsv", ".jsonl", ".parquet", *EXPLICIT_TYPES)
Qrels = dict[str, dict[str, float]]  # {query: {document: grade or score}}


def is_qrels_file(path: Path, encoding: str | None = None) -> bool:
    """Whether the first row looks like qrels: a query, a document and a grade."""
    if path.is_dir() or not path.exists():
        return False
    if file_type(path) in TABLE_TYPES:
        row = next((row for _, row in _table(path, encoding).read()), None)
        return row is not None and None not in (
            _find_name(row, QUERY),
            _find_name(row, DOCUMENT),
            _find_name(row, GRADE),
        )
    first = next((line.split() for _, line in read_lines(path, encoding) if line.strip()), [])
    return len(first) == 4 and first[1] in ("0", "Q0") and first[3].lstrip("-").isdigit()


def _table(path: Path, encoding: str | None) -> Rows:
    """The rows of a table of grades or scores, which may look like one of the files of GLUE."""
    return Rows(path, FORMS[file_type(path)], encoding)


def read_qrels(path: Path, encoding: str | None = None) -> Qrels:
    """{query: {document: grade}}. InputError names the file and the invalid line."""
    return _read_values(path, QRELS_COLUMNS, GRADE, encoding)


def read_ranking(path: Path, encoding: str | None = None) -> dict[str, list[str]]:
    """{query: documents, best first}. Ties in score are broken by descending document id, as in trec_eval."""
    scores_by_query = _read_values(path, RUN_COLUMNS, SCORE, encoding)
    return {
        query: sorted(scores, key=lambda document: (scores[document], document), reverse=True)
        for query, scores in scores_by_query.items()
    }


@dataclass(frozen=True)
class BeirDataset:
    """Documents and queries by id, and qrels: the grades of some documents for each query."""

    documents: dict[str, str]
    queries: dict[str, str]
    qrels: Qrels

    @staticmethod
    def read(directory: Path, split: str = "test") -> "BeirDataset":
        """Read corpus.jsonl (`_id`, `title`, `text`), queries.jsonl (`_id`, `text`) and qrels/SPLIT.tsv.

        Titles are put in front of their texts. Queries without qrels are dropped.
        """
        qrels = read_qrels(_find_file(directory / "qrels", split, (".tsv", ".txt", ".jsonl", ".csv")))
        queries = _read_texts(_find_file(directory, "queries", (".jsonl",)))
        if missing := sorted(qrels.keys() - queries.keys()):
            raise InputError(f"{directory}: query {missing[0]!r} of the qrels is not among the queries; add it")
        documents = _read_texts(_find_file(directory, "corpus", (".jsonl",)))
        judged = {document for grades in qrels.values() for document in grades}
        if judged.isdisjoint(documents):
            raise InputError(f"{directory}: no judged document is in the corpus, such as {min(judged)!r}; check ids")
        return BeirDataset(documents, {query: queries[query] for query in qrels}, qrels)

    def relevant_texts(self) -> dict[str, dict[str, float]]:
        """{query: {document: grade}} of the documents with a grade above 0, by their texts. Queries without one are
        left out, and queries of the same text are one."""
        relevant: dict[str, dict[str, float]] = {}
        for query, grades in self.qrels.items():
            for name, grade in grades.items():
                if grade > 0 and name in self.documents:
                    texts = relevant.setdefault(self.queries[query], {})
                    texts[self.documents[name]] = max(grade, texts.get(self.documents[name], 0.0))
        return relevant


def is_beir_dataset(path: Path) -> bool:
    return path.is_dir() and (path / "qrels").is_dir()


def _find_file(directory: Path, name: str, kinds: Sequence[str]) -> Path:
    """The file with this name and one of these types, compressed or not."""
    paths = [path for path in sorted(directory.glob(f"{name}.*")) if file_type(path) in kinds]
    if not paths:
        raise InputError(f"{directory}: no {name}{kinds[0]}; expected corpus.jsonl, queries.jsonl and qrels/test.tsv")
    return paths[0]


def _read_texts(path: Path) -> dict[str, str]:
    """{id: text}, with the title, if any, in front of the text."""
    text_by_id = {}
    for where, row in open_rows(path).read():
        if row.get("_id") is None or not isinstance(row.get("text"), str):
            raise RowError(where, f"expected `_id` and `text`, found {', '.join(row)}; fix it")
        if str(row["_id"]) in text_by_id:
            raise RowError(where, f"`_id` {row['_id']!r} occurs twice; give each text its own id")
        text_by_id[str(row["_id"])] = " ".join(str(row[key]) for key in ("title", "text") if row.get(key))
    return text_by_id


def _read_values(path: Path, indices: tuple[int, int, int], names: Sequence[str], encoding: str | None) -> Qrels:
    values: Qrels = {}
    for where, query, document, cell in _triples(path, indices, names, encoding):
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise RowError(where, f"{cell!r} is not a finite number; give each document one")
        if document in values.setdefault(query, {}):
            raise RowError(where, f"query {query!r} has document {document!r} twice; keep one")
        values[query][document] = value
    if not values:
        raise InputError(f"{path}: empty; expected a query, a document and a number per line")
    return values


def _triples(
    path: Path, indices: tuple[int, int, int], names: Sequence[str], encoding: str | None
) -> Iterator[tuple[str, str, str, str]]:
    """(location, query, document, value as text) for each row."""
    if file_type(path) in TABLE_TYPES:
        for where, row in _table(path, encoding).read():
            found_names = [_find_name(row, choices) for choices in (QUERY, DOCUMENT, names)]
            if None in found_names:
                wanted = f"{QUERY[0]}, {DOCUMENT[0]} and {names[0]}"
                raise RowError(where, f"expected columns {wanted}, found {', '.join(row)}; rename them")
            yield where, *(str(row[column]) for column in found_names if column is not None)  # type: ignore[misc]
        return
    num_columns = 4 if indices == QRELS_COLUMNS else 6
    for line_number, line in read_lines(path, encoding):
        cells = line.split()
        if not cells:
            continue
        if len(cells) != num_columns:
            form = "query iteration document grade" if num_columns == 4 else "query Q0 document rank score run"
            found = format_count(len(cells), "column")
            raise RowError(LineLocation(path, line_number), f"{found}, expected {num_columns} ({form}); fix it")
        query, document, cell = (cells[index] for index in indices)
        yield LineLocation(path, line_number), query, document, cell


def _find_name(row: TableRow, choices: Sequence[str]) -> str | None:
    return next((name for name in choices if name in row), None)
