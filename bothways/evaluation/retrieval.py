"""How good a model's vectors are: at finding judged documents, at finding each text's own pair, or as scores of pairs.

Letters: N pairs of R texts each, H numbers a vector; Q queries or different texts, D documents or different pairs.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bothways.batching import chunked
from bothways.data.beir import BeirDataset, is_beir_dataset
from bothways.data.pairs import NO_NEGATIVES, TextPairs, read_pair_file
from bothways.data.stream import resolve_columns
from bothways.errors import InputError
from bothways.evaluation.scores import pair_scores, ranking_scores
from bothways.inference.predictor import Predictor
from bothways.settings import Evaluate, TextColumns
from bothways.tables_in_memory import TableSource

FOUND = 10  # places of a ranking that are looked at
AT_ONCE = 8192  # texts that are embedded together
COMPARED = 256  # texts at once that are compared with all others


def vectors(predictor: Predictor, settings: Evaluate) -> dict[str, Any]:
    """Of a directory with a corpus, queries and judgements: nDCG, reciprocal rank and recall at 10. Of pairs with
    scores: how these and the cosines correlate. Of pairs alone: how well each text finds its own among all."""
    if len(settings.file) != 1:
        raise InputError("a model that gives vectors is measured on one file of pairs, or one directory of BEIR's form")
    (file,) = settings.file
    if isinstance(file, Path) and is_beir_dataset(file):
        return retrieved(predictor, BeirDataset.read(file))
    pairs = pairs_of(file, settings, predictor.checkpoint.settings)
    vectors_RNH = torch.stack([embedded(predictor, texts) for texts in pairs.texts[:2]])
    if pairs.scores is not None:
        cosines_N = (vectors_RNH[0] * vectors_RNH[1]).sum(1)
        return pair_scores(pairs.scores.tolist(), cosines_N.tolist())
    numbers: dict[str, int] = {}
    ids_RN = np.array([[numbers.setdefault(text, len(numbers)) for text in texts] for texts in pairs.texts[:2]])
    return ranking_scores(*found_pairs(vectors_RNH, ids_RN), k=FOUND)


def pairs_of(file: TableSource, settings: Evaluate, learned: Mapping[str, Any]) -> TextPairs:
    """By the columns named, else those `learned` from; without scores where it learned from pairs alone, unless a
    column of them is named."""
    own = resolve_columns(file, settings, learned, ("text", "pair", "label"))
    columns = TextColumns(**{f"{use}_column": name for use, name in own.items()}, encoding=settings.encoding)
    alone = learned.get("objective") == "pairs" or learned.get("negative_column") is not None
    return read_pair_file(file, columns, "pairs" if alone and settings.label_column is None else "auto", NO_NEGATIVES)


def retrieved(predictor: Predictor, given: BeirDataset) -> dict[str, Any]:
    queries_QH, documents_DH = (embedded(predictor, [*part.values()]) for part in (given.queries, given.documents))
    ranking = nearest(queries_QH, documents_DH, [*given.queries], [*given.documents])
    return {**ranking_scores(given.qrels, ranking, k=FOUND), "documents": len(given.documents)}


def embedded(predictor: Predictor, texts: Sequence[str]) -> Tensor:
    """A vector a text, [N, H], some texts at a time: of millions the vectors alone stay in memory."""
    vectors_NH = torch.empty(len(texts), predictor.module.config.hidden_size)
    for rows in chunked(range(len(texts)), AT_ONCE):
        vectors_NH[rows[0] : rows[-1] + 1] = torch.from_numpy(predictor.embed([texts[row] for row in rows]))
    return vectors_NH


def nearest(
    queries_QH: Tensor, documents_DH: Tensor, queries: Sequence[str], documents: Sequence[str]
) -> dict[str, list[str]]:
    """{query: the documents of greatest cosine, best first}, all compared. Vectors of length 1. A document with a
    query's own name is not found by it (Thakur 2021's code)."""
    ranking: dict[str, list[str]] = {}
    for rows in chunked(range(len(queries)), COMPARED):
        best = (queries_QH[rows] @ documents_DH.T).topk(min(FOUND + 1, len(documents))).indices.tolist()
        for row, places in zip(rows, best, strict=True):
            names = [documents[place] for place in places]
            ranking[queries[row]] = [name for name in names if name != queries[row]][:FOUND]
    return ranking


def found_pairs(vectors_RNH: Tensor, ids_RN: np.ndarray) -> tuple[dict[str, dict[str, float]], dict[str, list[str]]]:
    """What each text is to find, {text: {pair: 1}}, and the FOUND pairs of greatest cosine among all, best first.

    A text that stands among the pairs does not find itself, unless it is its own pair.
    """
    firsts = (np.unique(ids_N, return_index=True)[1] for ids_N in ids_RN[:2])
    texts_QH, pairs_DH = (
        F.normalize(vectors_NH[first], dim=-1) for vectors_NH, first in zip(vectors_RNH[:2], firsts, strict=True)
    )
    return ranked_pairs(lambda rows: texts_QH[rows] @ pairs_DH.T, ids_RN)


def ranked_pairs(
    scores: Callable[[Sequence[int]], Tensor], ids_RN: np.ndarray
) -> tuple[dict[str, dict[str, float]], dict[str, list[str]]]:
    """The same from the scores of some different texts with all different pairs, [B, D]; both sorted by their ids."""
    texts_Q, pairs_D = (np.unique(ids_N) for ids_N in ids_RN[:2])
    own_pairs = ids_RN[0][ids_RN[0] == ids_RN[1]]
    gold: dict[str, dict[str, float]] = {str(text): {} for text in texts_Q}
    for text, pair in ids_RN[:2].T.tolist():
        gold[str(text)][str(pair)] = 1.0
    ranking: dict[str, list[str]] = {}
    for rows in chunked(range(len(texts_Q)), COMPARED):
        scores_BD = scores(rows)
        itself_BD = (texts_Q[rows, None] == pairs_D) & ~np.isin(pairs_D, own_pairs)
        scores_BD[torch.from_numpy(itself_BD)] = -torch.inf
        best = scores_BD.topk(min(FOUND, len(pairs_D))).indices.numpy()
        ranking |= {str(texts_Q[row]): [*map(str, pairs_D[found])] for row, found in zip(rows, best, strict=True)}
    return gold, ranking
