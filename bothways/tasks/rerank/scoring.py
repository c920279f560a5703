"""Reranking: the loss, the scores of rankings, and the evaluator.

Letters: N passages of L queries.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from bothways.measure import metrics
from bothways.tasks import training_task
from bothways.tasks.arrays import Floats
from bothways.tasks.rerank.decoding import WEIGHTS, Reranking
from bothways.tasks.rerank.examples import RankBatch
from bothways.tasks.scores import Predictions, Scores
from bothways.tasks.text_examples import MAX_PAIR_TOKENS
from bothways.tasks.text_rows import TextEvaluator
from bothways.text.batch import Batch

if TYPE_CHECKING:
    from torch import Tensor

    from bothways.model.losses import Loss
    from bothways.model.model import Model
    from bothways.tasks.rerank.training import RerankTraining
    from bothways.tasks.task import LoadedModel

TOP = 10  # places of a ranking that are scored
NDCG = f"ndcg@{TOP}"
MRR = f"mrr@{TOP}"
NO_RERANKING = "no reranking"
BY_TFIDF = "order by TF-IDF"


@dataclass(frozen=True)
class ListObjective(training_task.LabelObjective):
    """The ranking of the passages of each query, among each other."""

    target = "queries"

    def num_targets(self, batch: Batch) -> int:
        return len(_list_sizes(batch))

    def forward(self, module: Any, batch: Batch) -> Tensor:
        """The score of each passage, [N]."""
        from bothways.tasks.forward import pool_over_windows, window_vectors

        x_WH = window_vectors(module, batch, MAX_PAIR_TOKENS)
        scores_N1: Tensor = module.text_scores("classes", pool_over_windows(x_WH, batch))
        return scores_N1[:, 0]

    def label_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        from bothways.tasks.losses import list_loss

        assert batch.labels is not None
        return list_loss(outputs, batch.labels, _list_sizes(batch))

    def teacher_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        from bothways.tasks.losses import list_distance

        assert batch.soft_labels is not None
        return list_distance(outputs, batch.soft_labels, _list_sizes(batch))


def _list_sizes(batch: Batch) -> list[int]:
    assert isinstance(batch, RankBatch) and batch.list_sizes is not None
    sizes: list[int] = batch.list_sizes.tolist()
    return sizes


@dataclass(frozen=True)
class ListScoring(training_task.Scoring):
    """The scores of the passages of each query, [L][n]. The order that is scored is the combined one."""

    trivial_baseline: ClassVar[str] = NO_RERANKING
    task: RerankTraining

    @property
    def metric(self) -> str:
        return NDCG

    def forward(self, model: Model, batch: Batch) -> Sequence[Tensor]:
        return self.task.objective.forward(model, batch).split(_list_sizes(batch))

    def outputs(self, model: Model, split: str) -> Sequence[Floats]:
        """The scores of the passages of each query. Those of a model that was scored last are known: every passage of
        dev and test takes longer than a step, and the last evaluation, the scores and the report need the same."""
        from bothways.model.parameters import fingerprint_weights

        if self.task.settings.quantize:
            return super().outputs(model, split)
        weights = fingerprint_weights(model)
        if self.task.scored.get(split, ("", ()))[0] != weights:
            self.task.scored[split] = weights, super().outputs(model, split)
        return self.task.scored[split][1]

    def compute_metrics(self, split: str, outputs: Sequence[Floats]) -> training_task.Metrics:
        """On dev, the weight of the model's scores is chosen."""
        if split == "dev":
            values = {weight: self.mean_ndcg(split, outputs, weight) for weight in self.weights}
            self.task.choice["weight"] = max(self.weights, key=values.__getitem__)
        scores = self.query_scores(split, self.combined(split, outputs, self.task.reranking.weight))
        return {
            "loss": self.loss(split, outputs),
            NDCG: fmean(values[NDCG] for values in scores.values()),
            MRR: fmean(values[MRR] for values in scores.values()),
            "weight": self.task.reranking.weight,
            "baseline": fmean(values[NDCG] for values in self.query_scores(split, self.found(split)).values()),
        }

    @property
    def weights(self) -> Sequence[float]:
        """Those that dev chooses from: only the model's own order, if no search has ranked the rows."""
        return WEIGHTS if self.task.rows["dev"].has_ranks else WEIGHTS[:1]

    def mean_ndcg(self, split: str, outputs: Sequence[Floats], weight: float) -> float:
        scores = self.query_scores(split, self.combined(split, outputs, weight))
        return fmean(values[NDCG] for values in scores.values())

    def loss(self, split: str, outputs: Sequence[Floats]) -> float:
        import torch

        from bothways.tasks.losses import list_loss

        scores_N = torch.from_numpy(np.concatenate(outputs))
        labels_N = torch.from_numpy(self.task.data[split].texts.targets)
        total, _ = list_loss(scores_N, labels_N, self.task.data[split].num_passages)
        return float(total) / len(outputs)

    def combined(self, split: str, outputs: Sequence[Floats], weight: float) -> list[float | None]:
        """The number that orders each passage, [N]; None for one that the search did not find."""
        reranking = Reranking(weight)
        ranks = self.task.ranks(split)
        scores = np.concatenate(outputs).tolist()
        return [
            None if rank is None else reranking.combined(score, rank) for score, rank in zip(scores, ranks, strict=True)
        ]

    def found(self, split: str) -> list[float | None]:
        """The number that orders each passage without reranking, [N]; None for one that the search did not find."""
        return [None if rank is None else -float(rank) for rank in self.task.ranks(split)]

    def query_scores(self, split: str, values: Sequence[float | None]) -> dict[str, dict[str, float]]:
        rows = self.task.rows[split]
        return ranked_scores(rows.labels, values, rows.units)

    def predictions(self, split: str, outputs: Sequence[Floats]) -> Predictions:
        return self.scored(split, self.combined(split, outputs, self.task.reranking.weight))

    def scored(self, split: str, values: Sequence[float | None]) -> Predictions:
        """The scores of each query, whose passages are ordered by these values."""
        return Predictions.of_rankings(self.query_scores(split, values))

    def score_predictions(self, predictions: Predictions) -> Scores:
        return scores_of_queries(predictions.predicted)


def ranked_scores(
    labels: Sequence[float | None], values: Sequence[float | None], units: Sequence[Hashable]
) -> dict[str, dict[str, float]]:
    """{query: {NDCG: .., MRR: ..}} of each query that has a relevant passage.

    labels: of each passage; None counts as 0. values: what orders it, greater first, equal ones in the order of the
    rows; None: it is in no ranking. units: its query.
    """
    grades: dict[str, dict[str, float]] = {}
    ordered: dict[str, list[tuple[float, str]]] = {}
    for row, (label, value, unit) in enumerate(zip(labels, values, units, strict=True)):
        query = str(unit)
        grades.setdefault(query, {})[str(row)] = label or 0.0
        ranking = ordered.setdefault(query, [])
        if value is not None:
            ranking.append((-value, str(row)))
    # Python's sort is stable, so that equal values stay in the order of the rows.
    rankings = {query: [row for _, row in sorted(found, key=lambda one: one[0])] for query, found in ordered.items()}
    scores = metrics.query_scores(grades, rankings, k=TOP)
    return {query: {name: values[name] for name in (NDCG, MRR)} for query, values in scores.items()}


def scores_of_queries(scores: Sequence[Mapping[str, float]]) -> Scores:
    """The means over queries, with their 95 % intervals."""
    columns = {name: [values[name] for values in scores] for name in (NDCG, MRR)}
    intervals = metrics.mean_intervals(columns, range(len(scores)))
    means = {name: fmean(values) for name, values in columns.items()}
    return Scores.with_intervals(NDCG, means, intervals, counts={"queries": len(scores)}, secondary=MRR)


class RankedRow(NamedTuple):
    """A query with a passage. label: None without labels. unit: the query. rank: in the search, if it is known."""

    text: str
    pair: str
    label: float | None
    unit: str
    rank: int | None


@dataclass(frozen=True)
class RankEvaluator(TextEvaluator[float]):
    """Reranking: nDCG and MRR of the passages of each query, in the order that the model gives them."""

    agreement: ClassVar[str] = "spearman"
    primary = NDCG
    secondary = MRR

    def predict(self, model: LoadedModel, rows: Sequence[RankedRow]) -> list[float]:  # type: ignore[override]
        scores = model.rerank([row.text for row in rows], [row.pair for row in rows]).tolist()
        reranking = Reranking.of(model.description.metadata)
        return [reranking.combined(score, row.rank) for score, row in zip(scores, rows, strict=True)]

    def compare(self, gold: Any, predictions: Any, units: Any = None, *, intervals: bool = True) -> Scores:
        scores = [*ranked_scores(gold, predictions, units).values()]
        measured = scores_of_queries(scores)
        return measured if intervals else Scores(NDCG, {name: measured[name] for name in (NDCG, MRR)}, secondary=MRR)

    def agree(self, predictions: Sequence[float], reference: Sequence[float] | None) -> Scores:
        assert reference is not None
        values = metrics.regression(reference, predictions)
        return Scores("spearman", {"spearman": values["spearman"]}, {"texts": len(reference)})
