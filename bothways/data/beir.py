"""Search as people measure it: judgements and rankings in TREC's columns or tables with names, and BEIR's directories
of a corpus, queries and judgements (Thakur 2021).

| judgements | `query iteration document grade` (TREC)   | table with columns of QUERY, DOCUMENT and GRADE |
| ranking    | `query Q0 document rank score run` (TREC) | table with columns of QUERY, DOCUMENT and SCORE |
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bothways.data.files import NAMED_KINDS, kind_of, text_lines
from bothways.data.tables import Row, rows
from bothways.errors import InputError

QUERY, DOCUMENT = ("query", "query-id", "query_id", "qid"), ("document", "corpus-id", "corpus_id", "doc", "doc_id")
GRADE = SCORE = ("score", "grade", "relevance", "label")
QRELS, RUN = (0, 2, 3), (0, 2, 4)  # where TREC has query, document and number, of 4 and of 6 columns
TABLES = (".csv", ".tsv", ".jsonl", ".parquet", *NAMED_KINDS)
Numbers = dict[str, dict[str, float]]  # {query: {document: grade or score}}


def are_judgements(path: Path, encoding: str | None = None) -> bool:
    """Whether the file holds grades of documents for queries, by its first row."""
    if path.is_dir() or not path.exists():
        return False
    if kind_of(path) in TABLES:
        named = _first_row(path, encoding)
        return named is not None and None not in (_name(named, QUERY), _name(named, DOCUMENT), _name(named, GRADE))
    first = next((line.split() for _, line in text_lines(path, encoding) if line.strip()), [])
    return len(first) == 4 and first[1] in ("0", "Q0") and first[3].lstrip("-").isdigit()


def read_judgements(path: Path, encoding: str | None = None) -> Numbers:
    """{query: {document: grade}}. InputError names the file and line of what is no judgement."""
    return _numbers(path, QRELS, GRADE, encoding)


def read_ranking(path: Path, encoding: str | None = None) -> dict[str, list[str]]:
    """{query: documents, best first}, by falling score; of equal ones the greater name first, as trec_eval has it."""
    found = _numbers(path, RUN, SCORE, encoding)
    return {
        query: sorted(scores, key=lambda document: (scores[document], document), reverse=True)
        for query, scores in found.items()
    }


@dataclass(frozen=True)
class Collection:
    """Documents and queries by name, with the grades of some documents for each query."""

    documents: dict[str, str]
    queries: dict[str, str]
    judgements: Numbers

    @staticmethod
    def read(directory: Path, split: str = "test") -> "Collection":
        """BEIR's form: corpus.jsonl (`_id`, `title`, `text`), queries.jsonl (`_id`, `text`), qrels/SPLIT.tsv. Titles
        stand before their texts; of the queries those are kept that have judgements."""
        judgements = read_judgements(_one(directory / "qrels", split, (".tsv", ".txt", ".jsonl", ".csv")))
        queries = _texts(_one(directory, "queries", (".jsonl",)))
        if missing := sorted(judgements.keys() - queries.keys()):
            raise InputError(f"{directory}: query {missing[0]!r} of the judgements is not among the queries; add it")
        documents = _texts(_one(directory, "corpus", (".jsonl",)))
        judged = {document for grades in judgements.values() for document in grades}
        if judged.isdisjoint(documents):
            raise InputError(f"{directory}: no judged document is in the corpus, such as {min(judged)!r}; check ids")
        return Collection(documents, {query: queries[query] for query in judgements}, judgements)


def is_collection(path: Path) -> bool:
    return path.is_dir() and (path / "qrels").is_dir()


def _one(directory: Path, name: str, kinds: Sequence[str]) -> Path:
    """The one file of that name, packed or not."""
    found = [path for path in sorted(directory.glob(f"{name}.*")) if kind_of(path) in kinds]
    if not found:
        raise InputError(f"{directory}: no {name}{kinds[0]}; expected corpus.jsonl, queries.jsonl and qrels/test.tsv")
    return found[0]


def _texts(path: Path) -> dict[str, str]:
    """{id: text, after its title where it has one}"""
    found = {}
    for where, row in rows(path):
        if row.get("_id") is None or not isinstance(row.get("text"), str):
            raise InputError(f"{where}: expected `_id` and `text`, found {', '.join(row)}; mend it")
        if str(row["_id"]) in found:
            raise InputError(f"{where}: `_id` {row['_id']!r} stands above already; give each text its own")
        found[str(row["_id"])] = " ".join(str(row[key]) for key in ("title", "text") if row.get(key))
    return found


def _numbers(path: Path, places: tuple[int, int, int], names: Sequence[str], encoding: str | None) -> Numbers:
    found: Numbers = {}
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
    if kind_of(path) in TABLES:
        for where, row in rows(path, encoding=encoding):
            columns = [_name(row, choices) for choices in (QUERY, DOCUMENT, names)]
            if None in columns:
                wanted = f"{QUERY[0]}, {DOCUMENT[0]} and {names[0]}"
                raise InputError(f"{where}: expected columns {wanted}, found {', '.join(row)}; rename them")
            yield where, *(str(row[column]) for column in columns if column is not None)  # type: ignore[misc]
        return
    number = 4 if places == QRELS else 6
    for line_number, line in text_lines(path, encoding):
        values = line.split()
        if not values:
            continue
        if len(values) != number:
            form = "query iteration document grade" if number == 4 else "query Q0 document rank score run"
            raise InputError(f"{path}:{line_number}: {len(values)} columns, expected {number} ({form}); mend it")
        query, document, value = (values[place] for place in places)
        yield f"{path}:{line_number}", query, document, value


def _name(row: Row, choices: Sequence[str]) -> str | None:
    return next((name for name in choices if name in row), None)


def _first_row(path: Path, encoding: str | None) -> Row | None:
    return next((row for _, row in rows(path, encoding=encoding)), None)
