"""Evaluate search in a BEIR directory: by words, by vectors of a model, or by both, and reranked by another model.

Letters: Q queries, D documents, H vector size.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bothways.inference.predictor import Predictor
from bothways.inference.ranking import RERANKED, rerank_order
from bothways.inference.reading import Rows
from bothways.settings.base import How
from bothways.tasks.arrays import top_k
from bothways.tasks.embed.scoring import COMPARE_CHUNK, TOP, ranking_scores
from bothways.tasks.embed.task import embed_chunks
from bothways.tasks.scores import Scores
from bothways.text.batching import chunked
from bothways.text.data.beir import BeirDataset
from bothways.text.retrieval.collection import Collection
from bothways.text.retrieval.words import Analyzer


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

    model: embeds the queries and the documents.
    directory: queries, documents and judgments.
    how: by words, by vectors, or by both.
    language: the language whose words are analyzed.
    dimensions: of the vectors; None: all.
    rerank: loads the model that orders the best documents anew.
    """
    dataset = BeirDataset.read(directory)

    vectors: tuple[Rows, Rows] | None = None
    if how != "words":
        queries_QH = embed_chunks(model, [*dataset.queries.values()], dimensions)
        documents_DH = embed_chunks(model, [*dataset.documents.values()], dimensions)
        vectors = (queries_QH, documents_DH)

    if how == "vectors" and not rerank and vectors is not None:
        ranking = nearest_documents(*vectors, [*dataset.queries], [*dataset.documents])
    else:
        words = Analyzer(language) if how != "vectors" else None
        ranking = ranked_documents(dataset, vectors, words, number=RERANKED if rerank else TOP)
    if rerank:
        ranking = rerank_documents(dataset, ranking, rerank())

    scores = ranking_scores(dataset.qrels, ranking, k=TOP)
    return replace(scores, counts={"documents": len(dataset.documents)})


def ranked_documents(
    dataset: BeirDataset,
    vectors: tuple[Rows, Rows] | None,
    words: Analyzer | None,
    number: int,
) -> dict[str, list[str]]:
    """{query: documents, best first}.

    dataset: the queries and the documents.
    vectors: the vectors of the queries and of the documents; None for words alone.
    words: None for vectors alone.
    number: the number of documents for each query.
    """
    collection = Collection.of(
        dataset.documents,
        analyzer=words,
        has_words=words is not None,
        vectors_DH=None if vectors is None else vectors[1],
    )

    ranking = {}
    for row, (query, text) in enumerate(dataset.queries.items()):
        vector_H = None if vectors is None else vectors[0][row]
        hits = collection.search(text, vector_H, number + 1)  # one more, as a document may be the query itself
        ranking[query] = [name for name, _ in hits if name != query][:number]
    return ranking


def nearest_documents(
    queries_QH: Rows,
    documents_DH: Rows,
    queries: Sequence[str],
    documents: Sequence[str],
) -> dict[str, list[str]]:
    """{query: the documents with the greatest cosines, best first}, by exhaustive search.

    queries_QH, documents_DH: the vectors, of length 1.
    queries, documents: the ids. A document with the same id as the query is excluded (as in the code of Thakur 2021).
    """
    ranking: dict[str, list[str]] = {}
    for rows in chunked(range(len(queries)), COMPARE_CHUNK):
        best = top_k(queries_QH[rows] @ documents_DH.T, TOP + 1).tolist()
        for row, columns in zip(rows, best, strict=True):
            query = queries[row]
            names = [documents[column] for column in columns]
            ranking[query] = [name for name in names if name != query][:TOP]
    return ranking


def rerank_documents(
    dataset: BeirDataset,
    ranking: Mapping[str, list[str]],
    model: Predictor,
) -> dict[str, list[str]]:
    """The documents of each query in the order that a model of (query, document) gives them."""
    result = {}
    for query, names in ranking.items():
        texts = [dataset.documents[name] for name in names]
        order, _ = rerank_order(model, dataset.queries[query], texts)
        result[query] = [names[index] for index in order][:TOP]
    return result
