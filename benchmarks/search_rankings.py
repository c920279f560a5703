"""Rankings of documents as arrays: what a search found, and what it should find, kept as numbers of documents."""

from collections.abc import Callable

import numpy as np

from bothways.text.data.beir import BeirDataset

TOP = 10
Rows = np.ndarray | Callable[[int], np.ndarray]  # scores [Q, D], or documents from the number of a query, best first


def gold_ranking(name: str, data: BeirDataset) -> dict[str, np.ndarray]:
    """The judgements: {"NAME/gold": [J, 2] numbers of query and document, "NAME/grades": [J]}."""
    query_numbers = {query: number for number, query in enumerate(data.queries)}
    document_numbers = {document: number for number, document in enumerate(data.documents)}
    judged = [
        (query_numbers[query], document_numbers[document], grade)
        for query, grades in data.qrels.items()
        for document, grade in grades.items()
        if query in query_numbers and document in document_numbers
    ]
    pairs = np.array([pair[:2] for pair in judged], np.int32)
    return {f"{name}/gold": pairs, f"{name}/grades": np.array([grade for *_, grade in judged], np.float16)}


def best_documents(data: BeirDataset, rows: Rows) -> np.ndarray:
    """The numbers of the TOP best documents of each query, [Q, TOP], -1 where there are fewer.

    rows: the scores of all documents for each query, or a function that ranks TOP + 1 of them. A document with the name
    of the query itself is left out.
    """
    names = [*data.documents]
    best_QT = np.full((len(data.queries), TOP), -1, np.int16)
    for number, query in enumerate(data.queries):
        order = rows(number) if callable(rows) else np.argsort(-rows[number], kind="stable")
        found = [slot for slot in order[: TOP + 1].tolist() if names[slot] != query][:TOP]
        best_QT[number, : len(found)] = found
    return best_QT
