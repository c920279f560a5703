"""Evaluate sentence embeddings: retrieval (BEIR), pair retrieval, correlation with scores.

Letters: N pairs of R texts each, H vector size; Q queries or distinct texts, D documents or distinct pairs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bothways.batching import chunked
from bothways.data.beir import BeirDataset, is_beir_dataset
from bothways.data.near_duplicates import text_key
from bothways.data.pairs import NO_NEGATIVES, TextPairs, read_pair_file
from bothways.data.stream import resolve_columns
from bothways.errors import InputError
from bothways.inference.load import load
from bothways.inference.predictor import Predictor
from bothways.inference.reading import Rows
from bothways.search.ranking import RERANKED, fuse, pair_relevance
from bothways.search.words import Analyzer, Bm25, invert
from bothways.settings.base import TextColumns
from bothways.settings.predict import Evaluate
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks.arrays import normalize, top_k
from bothways.tasks.embed import COMPARE_CHUNK, TOP, pair_scores, rank_pairs, ranking_scores
from bothways.tasks.scores import Scores

EMBED_CHUNK = 8192  # texts that are embedded together


def vectors(model: Predictor, settings: Evaluate) -> Scores:
    """Scores of an embedding model: nDCG, MRR and recall at 10 for a BEIR directory, the correlation of scores and
    cosines for scored pairs, and how well each text retrieves its partner among all for other pairs."""
    if len(settings.file) != 1:
        raise InputError("an embedding model is evaluated on one file of pairs, or one BEIR directory")
    (file,) = settings.file
    if isinstance(file, Path) and is_beir_dataset(file):
        return evaluate_retrieval(model, BeirDataset.read(file), settings)
    if settings.how != "vectors" or settings.rerank or settings.round:
        name = "how" if settings.how != "vectors" else "rerank" if settings.rerank else "round"
        raise InputError(f"{name} is for a BEIR directory (corpus.jsonl, queries.jsonl, qrels/); {file} is none")
    pairs = read_trained_pairs(file, settings, model.description.settings)
    vectors_RNH = np.stack([embed_chunks(model, texts, settings.dimensions) for texts in pairs.texts[:2]])
    if pairs.scores is not None:
        cosines_N = (vectors_RNH[0] * vectors_RNH[1]).sum(1)
        keys = zip(*(map(text_key, texts) for texts in pairs.texts[:2]), strict=True)
        return pair_scores(pairs.scores.tolist(), cosines_N.tolist(), [*keys])
    ids: dict[str, int] = {}
    ids_RN = np.array([[ids.setdefault(text, len(ids)) for text in texts] for texts in pairs.texts[:2]])
    return ranking_scores(*rank_pairs(vectors_RNH, ids_RN), k=TOP)


def read_trained_pairs(file: TableSource, settings: Evaluate, trained: Mapping[str, Any]) -> TextPairs:
    """Read pairs by the named columns, else by those of the model's own settings (`trained`).

    Scores are ignored if the model was trained on pairs without scores, unless a column of scores is named.
    """
    names = resolve_columns(file, settings, trained, ("text", "pair", "label"))
    columns = TextColumns(**{f"{use}_column": name for use, name in names.items()}, encoding=settings.encoding)
    unscored = trained.get("objective") == "pairs" or trained.get("negative_column") is not None
    unscored = unscored and settings.label_column is None
    return read_pair_file(file, columns, "pairs" if unscored else "auto", NO_NEGATIVES)


def evaluate_retrieval(model: Predictor, dataset: BeirDataset, settings: Evaluate) -> Scores:
    """nDCG, MRR and recall at TOP of the documents for each query, by words, by vectors, or by both."""
    queries, documents = dataset.queries, dataset.documents
    vectors: tuple[Rows, Rows] | None = None
    if settings.how != "words":
        queries_QH, documents_DH = (
            embed_chunks(model, [*part.values()], settings.dimensions) for part in (queries, documents)
        )
        vectors = queries_QH, rounded_to_int8(documents_DH) if settings.round == "int8" else documents_DH
    if settings.how == "vectors" and not settings.rerank and vectors is not None:
        ranking = nearest_documents(*vectors, [*queries], [*documents])
    else:
        ranking = ranked_documents(dataset, vectors, settings)
    if settings.rerank:
        ranking = rerank_documents(dataset, ranking, settings)
    measured = ranking_scores(dataset.qrels, ranking, k=TOP)
    return replace(measured, counts={"documents": len(documents)})


def ranked_documents(
    dataset: BeirDataset, vectors: tuple[Rows, Rows] | None, settings: Evaluate
) -> dict[str, list[str]]:
    """{query: documents, best first}: TOP of them, or RERANKED to be ordered anew. vectors: of the queries and of the
    documents; None for words alone."""
    names, number = [*dataset.documents], RERANKED if settings.rerank else TOP
    analyzer = Analyzer(settings.language)
    lists, lengths = invert([analyzer.terms(text) for text in dataset.documents.values()])
    bm25, by_term = Bm25(lengths, np.ones(len(names), bool)), {term: [one] for term, one in lists.items()}
    allowed_D, ranking = np.ones(len(names), bool), {}
    for row, (query, text) in enumerate(dataset.queries.items()):
        scores, above = [], []
        if settings.how != "vectors":
            scores.append(bm25.scores(analyzer.terms(text), by_term))
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


def rerank_documents(
    dataset: BeirDataset, ranking: Mapping[str, list[str]], settings: Evaluate
) -> dict[str, list[str]]:
    """The documents of each query in the order of a model's scores of (query, document)."""
    assert settings.rerank is not None
    model = load(settings.rerank, dtype=settings.dtype, device=settings.device)
    result = {}
    for query, names in ranking.items():
        scores = pair_relevance(model, dataset.queries[query], [dataset.documents[name] for name in names])
        order = np.argsort(-np.array(scores), kind="stable")
        result[query] = [names[place] for place in order][:TOP]
    return result


def rounded_to_int8(vectors_NH: Rows) -> Rows:
    """The vectors as they are after rounding to 8 bits, with one scale each."""
    scale_N1 = np.abs(vectors_NH).max(1, keepdims=True).clip(min=1e-30) / 127
    rounded_NH: Rows = (vectors_NH / scale_N1).round() * scale_N1
    return rounded_NH


def embed_chunks(model: Predictor, texts: Sequence[str], dimensions: int | None = None) -> Rows:
    """A vector per text, [N, H], computed in chunks, so that only the vectors of all texts are in memory. dimensions:
    keep only the first ones, and scale to length 1 again."""
    vectors_NH: Rows = np.empty((0, 0), np.float32)
    for rows in chunked(range(len(texts)), EMBED_CHUNK):
        vectors_nH = model.embed([texts[row] for row in rows])
        if dimensions is not None:
            if dimensions > vectors_nH.shape[1]:
                raise InputError(f"dimensions ({dimensions}) is more than the {vectors_nH.shape[1]} of the model")
            vectors_nH = normalize(vectors_nH[:, :dimensions])
        if not len(vectors_NH):
            vectors_NH = np.empty((len(texts), vectors_nH.shape[1]), np.float32)
        vectors_NH[rows[0] : rows[-1] + 1] = vectors_nH
    return vectors_NH
