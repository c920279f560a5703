"""Evaluate search in a BEIR directory: by words, by vectors of a model, or by both, and reranked by another model.

Letters: Q queries, D documents, H vector size.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bothways.inference.predictor import Predictor
from bothways.inference.reading import Rows
from bothways.search.ranking import RERANKED, fuse, pair_relevance
from bothways.search.words import Analyzer, Bm25, background_shares, invert
from bothways.settings.base import How
from bothways.tasks.arrays import top_k
from bothways.tasks.embed import COMPARE_CHUNK, TOP, embed_chunks, ranking_scores
from bothways.tasks.scores import Scores
from bothways.text.batching import chunked
from bothways.text.data.beir import BeirDataset


def evaluate_retrieval(
    model: Predictor,
    directory: Path,
    *,
    how: How,
    language: str,
    dimensions: int | None,
    rerank: Callable[[], Predictor] | None,
) -> Scores:
    """nDCG, MRR and recall at TOP of the documents for each query.

    rerank: loads the model that orders the best documents anew.
    """
    dataset = BeirDataset.read(directory)
    queries, documents = dataset.queries, dataset.documents
    vectors: tuple[Rows, Rows] | None = None
    if how != "words":
        queries_QH, documents_DH = (embed_chunks(model, [*part.values()], dimensions) for part in (queries, documents))
        vectors = queries_QH, documents_DH
    if how == "vectors" and not rerank and vectors is not None:
        ranking = nearest_documents(*vectors, [*queries], [*documents])
    else:
        words = Analyzer(language) if how != "vectors" else None
        ranking = ranked_documents(dataset, vectors, words, RERANKED if rerank else TOP)
    if rerank:
        ranking = rerank_documents(dataset, ranking, rerank())
    measured = ranking_scores(dataset.qrels, ranking, k=TOP)
    return replace(measured, counts={"documents": len(documents)})


def ranked_documents(
    dataset: BeirDataset, vectors: tuple[Rows, Rows] | None, words: Analyzer | None, number: int
) -> dict[str, list[str]]:
    """{query: documents, best first}. vectors: of the queries and of the documents; None for words alone. words: None
    for vectors alone. number: of documents for each query."""
    names = [*dataset.documents]
    if words is not None:
        lists, lengths = invert([words.terms(text) for text in dataset.documents.values()])
        bm25 = Bm25(lengths, np.ones(len(names), bool), background_shares(words.language))
        by_term = {term: [one] for term, one in lists.items()}
    allowed_D, ranking = np.ones(len(names), bool), {}
    for row, (query, text) in enumerate(dataset.queries.items()):
        scores, above = [], []
        if words is not None:
            scores.append(bm25.scores(words.terms(text), by_term))
            above.append(0.0)
        if vectors is not None:
            scores.append(vectors[1] @ vectors[0][row])
            above.append(-np.inf)
        slots, _ = fuse(scores, allowed_D, number + 1, above=above)
        ranking[query] = [name for name in (names[slot] for slot in slots) if name != query][:number]
    return ranking


def nearest_documents(
    queries_QH: Rows, documents_DH: Rows, queries: Sequence[str], documents: Sequence[str]
) -> dict[str, list[str]]:
    """{query: the documents with the greatest cosines, best first}, by exhaustive search. Vectors have length 1. A
    document with the same id as the query is excluded (as in the code of Thakur 2021)."""
    ranking: dict[str, list[str]] = {}
    for rows in chunked(range(len(queries)), COMPARE_CHUNK):
        best = top_k(queries_QH[rows] @ documents_DH.T, TOP + 1).tolist()
        for row, columns in zip(rows, best, strict=True):
            names = [documents[column] for column in columns]
            ranking[queries[row]] = [name for name in names if name != queries[row]][:TOP]
    return ranking


def rerank_documents(dataset: BeirDataset, ranking: Mapping[str, list[str]], model: Predictor) -> dict[str, list[str]]:
    """The documents of each query in the order of a model's scores of (query, document)."""
    result = {}
    for query, names in ranking.items():
        scores = pair_relevance(model, dataset.queries[query], [dataset.documents[name] for name in names])
        order = np.argsort(-np.array(scores), kind="stable")
        result[query] = [names[place] for place in order][:TOP]
    return result
