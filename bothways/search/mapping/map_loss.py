"""What a search by mapped vectors loses against a search by vectors that the new model computes.

Both search the same passages: a sample whose vectors the new model has computed. Each mapped vector comes from a map
that was fitted without its passage. Letters: N passages, Q queries, H size of a vector.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bothways.tasks.embed.scoring import ranking_scores

TOP = 10  # passages that are compared
ROWS = 1024  # queries whose cosines are computed together


@dataclass(frozen=True)
class MapLoss:
    """How a search by mapped vectors compares.

    measure: neighbours: the share of the ten nearest passages of each passage that stay among the ten nearest;
        ranking: nDCG@10 of queries, whose right passages are the first ten by computed vectors;
        judgements: nDCG@10 of queries, whose right passages were given.
    value: of the search by mapped vectors, 0..1.
    exact: of the search by computed vectors; 1 unless passages were judged.
    interval: of the value, 95 % over queries; None for neighbours, which are not independent.
    number: of queries, or of passages as queries.
    passages: which are searched.
    """

    measure: Literal["neighbours", "ranking", "judgements"]
    value: float
    number: int
    passages: int
    exact: float = 1.0
    interval: tuple[float, float] | None = None

    def to_json(self) -> dict[str, object]:
        return dict(vars(self))

    def line(self) -> str:
        """The loss in one line."""
        if self.measure == "neighbours":
            return (
                f"of the ten nearest of {self.passages:,} sample passages, {self.value:.1%} stay "
                "(held-out passages as queries; no user's queries were measured)"
            )

        low, high = self.interval or (0.0, 1.0)
        shown = f"nDCG@10 {self.value:.3f} ({low:.3f} to {high:.3f})"
        place = f"{self.number:,} queries in {self.passages:,} sample passages"
        if self.measure == "judgements":
            return f"{shown} by mapped vectors, {self.exact:.3f} by computed ones: {place}, with their judgements"
        return f"{shown} by mapped vectors, where the first ten by computed ones are right: {place}"


def neighbour_loss(mapped_NH: np.ndarray, exact_NH: np.ndarray) -> MapLoss:
    """How many of the nearest passages of each passage stay. The query is its computed vector, the passage itself is
    left out."""
    top = min(TOP, len(exact_NH) - 1)
    kept = 0
    for first in range(0, len(exact_NH), ROWS):
        queries_QH = exact_NH[first : first + ROWS]
        own_Q = first + np.arange(len(queries_QH))
        exact_QK = _nearest(queries_QH, exact_NH, top, without_Q=own_Q)
        mapped_QK = _nearest(queries_QH, mapped_NH, top, without_Q=own_Q)
        kept += int((exact_QK[:, :, None] == mapped_QK[:, None, :]).sum())

    return MapLoss(
        "neighbours",
        value=kept / (top * len(exact_NH)),
        number=len(exact_NH),
        passages=len(exact_NH),
    )


def query_loss(
    queries_QH: np.ndarray,
    mapped_NH: np.ndarray,
    exact_NH: np.ndarray,
    judged: Sequence[Mapping[int, float]] | None = None,
) -> MapLoss:
    """nDCG@10 of queries.

    queries_QH: their vectors by the new model.
    mapped_NH, exact_NH: the vectors of the passages.
    judged: for each query the grades of its right passages, by their number; None: the first ten by computed vectors
        are right, each as much as the others.
    """
    top = min(TOP, len(exact_NH))
    exact_QK = _nearest(queries_QH, exact_NH, top)
    mapped_QK = _nearest(queries_QH, mapped_NH, top)

    qrels = {}
    for query, nearest_K in enumerate(exact_QK):
        grades = dict.fromkeys(nearest_K.tolist(), 1.0) if judged is None else judged[query]
        qrels[str(query)] = {str(passage): grade for passage, grade in grades.items()}

    mapped = ranking_scores(qrels, _ranking(mapped_QK), k=TOP)
    exact = ranking_scores(qrels, _ranking(exact_QK), k=TOP)
    low, high = mapped[f"ndcg@{TOP}_interval"]
    return MapLoss(
        "ranking" if judged is None else "judgements",
        value=float(mapped[f"ndcg@{TOP}"]),
        number=len(queries_QH),
        passages=len(exact_NH),
        exact=float(exact[f"ndcg@{TOP}"]),
        interval=(float(low), float(high)),
    )


def _nearest(
    queries_QH: np.ndarray,
    passages_NH: np.ndarray,
    top: int,
    without_Q: np.ndarray | None = None,
) -> np.ndarray:
    """The numbers of the nearest passages of each query, int64 [Q, top], nearest first. without_Q: one that is left
    out, for each query."""
    cosines_QN = queries_QH @ passages_NH.T
    if without_Q is not None:
        cosines_QN[np.arange(len(queries_QH)), without_Q] = -np.inf
    return np.argsort(-cosines_QN, axis=1, kind="stable")[:, :top]


def _ranking(nearest_QK: np.ndarray) -> dict[str, list[str]]:
    return {str(query): [str(passage) for passage in row_K.tolist()] for query, row_K in enumerate(nearest_QK)}
