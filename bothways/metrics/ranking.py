"""Search results against judgements: nDCG@k (Järvelin 2002), MRR@k and recall@k, means over queries, in 0..1.

A grade above 0 is relevant; the gain is the grade itself, its discount log2(1 + rank), ranks from 1 (trec_eval's nDCG).
"""

import math
from collections.abc import Mapping, Sequence

from bothways.errors import InputError
from bothways.metrics.intervals import Interval, mean_interval

Grades = Mapping[str, float]  # {document: grade}; what is not judged has grade 0


def ranking_scores(
    gold: Mapping[str, Grades], ranking: Mapping[str, Sequence[str]], *, k: int = 10
) -> dict[str, float]:
    """{"ndcg@k", "mrr@k", "recall@k", "queries"} of {query: documents, best first}; the names have k as a number.

    A query without a ranking scores 0. A query without a relevant document cannot be scored: it is left out, and
    `queries` counts the others. InputError for a document ranked twice, and where no query can be scored.
    """
    by_query = query_scores(gold, ranking, k=k)
    number = len(by_query)
    means = {name: sum(scores[name] for scores in by_query.values()) / number for name in next(iter(by_query.values()))}
    return {**means, "queries": number}


def ranking_intervals(
    gold: Mapping[str, Grades], ranking: Mapping[str, Sequence[str]], *, k: int = 10
) -> dict[str, Interval]:
    """The 95 % intervals of `ranking_scores`' means; queries are independent."""
    by_query = [*query_scores(gold, ranking, k=k).values()]
    return {name: mean_interval([one[name] for one in by_query], range(len(by_query))) for name in by_query[0]}


def query_scores(
    gold: Mapping[str, Grades], ranking: Mapping[str, Sequence[str]], *, k: int = 10
) -> dict[str, dict[str, float]]:
    """{query: {"ndcg@k", "mrr@k", "recall@k"}} of the queries that can be scored. InputError as `ranking_scores`."""
    queries = [query for query, grades in gold.items() if any(grade > 0 for grade in grades.values())]
    if not queries:
        raise InputError(f"none of {len(gold)} queries has a relevant document (grade above 0); check the judgements")
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
    """The discounted gain of the first k documents as a share of the best there could be."""
    found = _discounted_gain([grades.get(document, 0) for document in documents[:k]])
    return found / _discounted_gain(sorted(grades.values(), reverse=True)[:k])


def _discounted_gain(grades: Sequence[float]) -> float:
    return sum(max(grade, 0) / math.log2(1 + rank) for rank, grade in enumerate(grades, 1))


def reciprocal_rank(grades: Grades, documents: Sequence[str], k: int) -> float:
    """1 / the rank of the first relevant document; 0 where none is among the first k."""
    return next((1 / rank for rank, document in enumerate(documents[:k], 1) if grades.get(document, 0) > 0), 0.0)


def recall(grades: Grades, documents: Sequence[str], k: int) -> float:
    """The share of the relevant documents that are among the first k."""
    relevant = {document for document, grade in grades.items() if grade > 0}
    return len(relevant.intersection(documents[:k])) / len(relevant)
