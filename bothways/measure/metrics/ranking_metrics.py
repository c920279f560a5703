"""Retrieval metrics: nDCG@k (Järvelin 2002), MRR@k, recall@k; means over queries, in 0..1.

Documents with a grade above 0 are relevant. As in trec_eval, the gain is the grade itself and the discount is
log2(1 + rank), with ranks from 1.
"""

import math
from collections.abc import Mapping, Sequence

from bothways.base.errors import InputError
from bothways.measure.metrics.intervals import Intervals, mean_intervals

Grades = Mapping[str, float]  # {document: grade}; 0 for documents without a judgment


def ranking_scores(
    gold: Mapping[str, Grades],
    ranking: Mapping[str, Sequence[str]],
    *,
    k: int = 10,
) -> dict[str, float]:
    """{"ndcg@k", "mrr@k", "recall@k", "queries"}, with k as a number in the keys.

    gold: the graded documents of each query. A query without a relevant document is skipped; `queries` counts the rest.
    ranking: the documents found for each query, best first. A query without a ranking scores 0.
    k: the number of documents that count.

    InputError if a document is ranked twice or no query can be scored.

    >>> ranking_scores({"query": {"a": 1}}, {"query": ["b", "a"]})["mrr@10"]
    0.5
    """
    by_query = [*query_scores(gold, ranking, k=k).values()]

    means: dict[str, float] = {}
    for name in by_query[0]:
        means[name] = sum(scores[name] for scores in by_query) / len(by_query)
    return {**means, "queries": len(by_query)}


def ranking_intervals(
    gold: Mapping[str, Grades],
    ranking: Mapping[str, Sequence[str]],
    *,
    k: int = 10,
) -> Intervals:
    """95 % intervals of the means of `ranking_scores`, assuming independent queries."""
    by_query = [*query_scores(gold, ranking, k=k).values()]
    columns = {name: [scores[name] for scores in by_query] for name in by_query[0]}
    return mean_intervals(columns, range(len(by_query)))


def query_scores(
    gold: Mapping[str, Grades],
    ranking: Mapping[str, Sequence[str]],
    *,
    k: int = 10,
) -> dict[str, dict[str, float]]:
    """{query: {"ndcg@k", "mrr@k", "recall@k"}} for queries with a relevant document; see `ranking_scores`."""
    queries = [query for query, grades in gold.items() if any(grade > 0 for grade in grades.values())]
    if not queries:
        raise InputError(f"none of {len(gold)} queries has a relevant document (grade above 0); check the qrels")

    by_query = {}
    for query in queries:
        documents = ranking.get(query, ())
        if len(set(documents)) < len(documents):
            raise InputError(f"query {query!r}: a document is ranked twice; rank each once")

        grades = gold[query]
        by_query[query] = {
            f"ndcg@{k}": ndcg(grades, documents, k),
            f"mrr@{k}": reciprocal_rank(grades, documents, k),
            f"recall@{k}": recall(grades, documents, k),
        }
    return by_query


def ndcg(grades: Grades, documents: Sequence[str], k: int) -> float:
    """Discounted cumulative gain of the first k documents, divided by the gain of the ideal ranking."""
    gain = _discounted_gain([grades.get(document, 0) for document in documents[:k]])
    ideal_gain = _discounted_gain(sorted(grades.values(), reverse=True)[:k])
    return gain / ideal_gain


def _discounted_gain(grades: Sequence[float]) -> float:
    return sum(max(grade, 0) / math.log2(1 + rank) for rank, grade in enumerate(grades, 1))


def reciprocal_rank(grades: Grades, documents: Sequence[str], k: int) -> float:
    """1 / rank of the first relevant document; 0 if none is among the first k."""
    for rank, document in enumerate(documents[:k], 1):
        if grades.get(document, 0) > 0:
            return 1 / rank
    return 0.0


def recall(grades: Grades, documents: Sequence[str], k: int) -> float:
    """The fraction of the relevant documents among the first k."""
    relevant = {document for document, grade in grades.items() if grade > 0}
    return len(relevant.intersection(documents[:k])) / len(relevant)
