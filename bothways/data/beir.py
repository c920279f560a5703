"""Search as people measure it: judgements and rankings in TREC's columns or tables with names, and BEIR's directories
of a corpus, queries and judgements (Thakur 2021).

| judgements | `query iteration document grade` (TREC)   | table with columns of QUERY, DOCUMENT and GRADE |
| ranking    | `query Q0 document rank score run` (TREC) | table with columns of QUERY, DOCUMENT and SCORE |
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bothways.data.files import EXPLICIT_TYPES, file_type, read_lines
from bothways.data.tables import TableRow, iter_rows
from bothways.errors import InputError

QUERY, DOCUMENT = ("query", "query-id", "query_id", "qid"), ("document", "corpus-id", "corpus_id", "doc", "doc_id")
GRADE = SCORE = ("score", "grade", "relevance", "label")
QRELS_COLUMNS, RUN_COLUMNS = (0, 2, 3), (0, 2, 4)  # where TREC has query, document and number, of 4 and of 6 columns
TABLE_TYPES = (".csv", ".tsv", ".jsonl", ".parquet", *EXPLICIT_TYPES)
Qrels = dict[str, dict[str, float]]  # {query: {document: grade or score}}


def is_qrels_file(path: Path, encoding: str | None = None) -> bool:
    """Whether the file holds grades of documents for queries, by its first row."""
    if path.is_dir() or not path.exists():
        return False
    if file_type(path) in TABLE_TYPES:
        named = _first_row(path, encoding)
        return named is not None and None not in (
            _find_name(named, QUERY),
            _find_name(named, DOCUMENT),
            _find_name(named, GRADE),
        )
    first = next((line.split() for _, line in read_lines(path, encoding) if line.strip()), [])
    return len(first) == 4 and first[1] in ("0", "Q0") and first[3].lstrip("-").isdigit()


def read_qrels(path: Path, encoding: str | None = None) -> Qrels:
    """{query: {document: grade}}. InputError names the file and line of what is no judgement."""
    return _read_values(path, QRELS_COLUMNS, GRADE, encoding)


def read_ranking(path: Path, encoding: str | None = None) -> dict[str, list[str]]:
    """{query: documents, best first}, by falling score; of equal ones the greater name first, as trec_eval has it."""
    found = _read_values(path, RUN_COLUMNS, SCORE, encoding)
    return {
        query: sorted(scores, key=lambda document: (scores[document], document), reverse=True)
        for query, scores in found.items()
    }


@dataclass(frozen=True)
class BeirDataset:
    """Documents and queries by name, with the grades of some documents for each query."""

    documents: dict[str, str]
    queries: dict[str, str]
    qrels: Qrels

    @staticmethod
    def read(directory: Path, split: str = "test") -> "BeirDataset":
        """BEIR's form: corpus.jsonl (`_id`, `title`, `text`), queries.jsonl (`_id`, `text`), qrels/SPLIT.tsv. Titles
        stand before their texts; of the queries those are kept that have qrels."""
        qrels = read_qrels(_find_file(directory / "qrels", split, (".tsv", ".txt", ".jsonl", ".csv")))
        queries = _read_texts(_find_file(directory, "queries", (".jsonl",)))
        if missing := sorted(qrels.keys() - queries.keys()):
            raise InputError(f"{directory}: query {missing[0]!r} of the judgements is not among the queries; add it")
        documents = _read_texts(_find_file(directory, "corpus", (".jsonl",)))
        judged = {document for grades in qrels.values() for document in grades}
        if judged.isdisjoint(documents):
            raise InputError(f"{directory}: no judged document is in the corpus, such as {min(judged)!r}; check ids")
        return BeirDataset(documents, {query: queries[query] for query in qrels}, qrels)


def is_beir_dataset(path: Path) -> bool:
    return path.is_dir() and (path / "qrels").is_dir()


def _find_file(directory: Path, name: str, kinds: Sequence[str]) -> Path:
    """The one file of that name, packed or not."""
    found = [path for path in sorted(directory.glob(f"{name}.*")) if file_type(path) in kinds]
    if not found:
        raise InputError(f"{directory}: no {name}{kinds[0]}; expected corpus.jsonl, queries.jsonl and qrels/test.tsv")
    return found[0]


def _read_texts(path: Path) -> dict[str, str]:
    """{id: text, after its title where it has one}"""
    found = {}
    for where, row in iter_rows(path):
        if row.get("_id") is None or not isinstance(row.get("text"), str):
            raise InputError(f"{where}: expected `_id` and `text`, found {', '.join(row)}; mend it")
        if str(row["_id"]) in found:
            raise InputError(f"{where}: `_id` {row['_id']!r} stands above already; give each text its own")
        found[str(row["_id"])] = " ".join(str(row[key]) for key in ("title", "text") if row.get(key))
    return found


def _read_values(path: Path, places: tuple[int, int, int], names: Sequence[str], encoding: str | None) -> Qrels:
    found: Qrels = {}
    for where, query, document, number in _triples(path, places, names, encoding):
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError(f"{where}: {number!r} is no number; give each document one")
        if document in found.setdefault(query, {}):
            raise InputError(f"{where}: query {query!r} has document {document!r} twice; keep one")
        found[query][document] = value
    if not found:
        raise InputError(f"{path}: empty; expected a query, a document and a number a line")
    return found


def _triples(
    path: Path, places: tuple[int, int, int], names: Sequence[str], encoding: str | None
) -> Iterator[tuple[str, str, str, str]]:
    """('file:line', query, document, number)"""
    if file_type(path) in TABLE_TYPES:
        for where, row in iter_rows(path, encoding=encoding):
            columns = [_find_name(row, choices) for choices in (QUERY, DOCUMENT, names)]
            if None in columns:
                wanted = f"{QUERY[0]}, {DOCUMENT[0]} and {names[0]}"
                raise InputError(f"{where}: expected columns {wanted}, found {', '.join(row)}; rename them")
            yield where, *(str(row[column]) for column in columns if column is not None)  # type: ignore[misc]
        return
    number = 4 if places == QRELS_COLUMNS else 6
    for line_number, line in read_lines(path, encoding):
        values = line.split()
        if not values:
            continue
        if len(values) != number:
            form = "query iteration document grade" if number == 4 else "query Q0 document rank score run"
            raise InputError(f"{path}:{line_number}: {len(values)} columns, expected {number} ({form}); mend it")
        query, document, value = (values[place] for place in places)
        yield f"{path}:{line_number}", query, document, value


def _find_name(row: TableRow, choices: Sequence[str]) -> str | None:
    return next((name for name in choices if name in row), None)


def _first_row(path: Path, encoding: str | None) -> TableRow | None:
    return next((row for _, row in iter_rows(path, encoding=encoding)), None)
