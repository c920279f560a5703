"""Embeddings: the loss, the scores of cosines and of rankings, and the evaluator.

Letters: N pairs of R texts each (text, pair, and perhaps a hard negative), H dimensions; Q different texts, D different
pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bothways.measure import metrics
from bothways.tasks import training_task
from bothways.tasks.arrays import NO_LABEL, Floats, cosines, normalize, top_k
from bothways.tasks.embed.examples import PairBatch, PairExamples, pair_keys
from bothways.tasks.scores import Predictions, Scores
from bothways.tasks.task import Evaluator
from bothways.text.batch import Batch
from bothways.text.batching import chunked
from bothways.text.data.near_duplicates import first_locations

if TYPE_CHECKING:
    from torch import Tensor

    from bothways.model.losses import Loss
    from bothways.model.model import Model
    from bothways.tasks.embed.training import Embedding
    from bothways.tasks.task import LoadedModel

TOP = 10  # results of a ranking that are scored
COMPARE_CHUNK = 256  # texts that are compared with all others together
LOSS_PAIRS = 256  # pairs that compete with each other in the loss of an evaluation


@dataclass(frozen=True)
class PairObjective(training_task.LabelObjective):
    """Distance of cosines and scores, or a ranking of the matching text among all others of the batch.

    dims: numbers of leading dimensions that are trained to work as vectors (Matryoshka). temperature: of the ranking.
    """

    pooling: str
    dims: tuple[int, ...]
    has_scores: bool
    temperature: float

    @property
    def ranks_batch(self) -> bool:  # type: ignore[override]
        return not self.has_scores

    @property
    def target(self) -> str:  # type: ignore[override]
        return "scores" if self.has_scores else "pairs"

    def num_targets(self, batch: Batch) -> int:
        assert batch.labels is not None
        return batch.labels.shape[-1]

    def forward(self, module: Any, batch: Batch) -> Tensor:
        """The vectors of each pair, [R, N, H]."""
        from bothways.tasks.embed.forward import text_vectors

        assert isinstance(batch, PairBatch)
        return text_vectors(module, batch, self.pooling)

    def label_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        assert batch.labels is not None
        is_labelled_N = ~batch.labels.isnan() if self.has_scores else batch.labels[0] != NO_LABEL
        if not is_labelled_N.any():
            return outputs.sum() * 0.0, 0
        matches = None
        if isinstance(batch, PairBatch) and batch.matches is not None:
            matches = batch.matches[is_labelled_N][..., is_labelled_N]
        return self.loss(outputs[:, is_labelled_N], batch.labels[..., is_labelled_N], matches)

    def teacher_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        """1 - cosine, the mean over the texts of a pair."""
        from bothways.model.losses import vector_distance

        assert batch.soft_labels is not None
        total, _ = vector_distance(outputs.transpose(0, 1).flatten(0, 1), batch.soft_labels.flatten(0, 1))
        return total / len(outputs), outputs.shape[1]

    def loss(self, vectors_RNH: Tensor, labels: Tensor, matches_NRN: Tensor | None = None) -> Loss:
        """labels: scores [N] or text ids [R, N]. matches: see `PairBatch`."""
        from bothways.tasks.losses import cosine_loss, matryoshka_loss, ranking_loss

        if self.has_scores:
            return matryoshka_loss(partial(cosine_loss, scores_N=labels), vectors_RNH, self.dims)
        ranking = partial(ranking_loss, ids_RN=labels, temperature=self.temperature, matches_NRN=matches_NRN)
        return matryoshka_loss(ranking, vectors_RNH, self.dims)


@dataclass(frozen=True)
class PairScoring(training_task.Scoring):
    """The vectors of all texts, [R, N, H]."""

    trivial_baseline: ClassVar[str] = "before training"
    task: Embedding

    @property
    def metric(self) -> str:
        return "spearman" if self.task.has_scores else f"ndcg@{TOP}"

    def forward(self, model: Model, batch: Batch) -> list[Tensor]:
        """The vectors of each pair, [R, H]."""
        return list(self.task.objective.forward(model, batch).transpose(0, 1))

    def outputs(self, model: Model, split: str) -> Floats:
        """The vectors of all texts, [R, N, H]."""
        return np.stack(super().outputs(model, split)).swapaxes(0, 1)

    def compute_metrics(self, split: str, outputs: Floats) -> training_task.Metrics:
        """The baseline is the metric before training."""
        return {**self.vector_metrics(split, outputs), "baseline": self.untrained_metrics[split][self.metric]}

    @cached_property
    def untrained_metrics(self) -> dict[str, training_task.Metrics]:
        """Metrics of the pre-trained model, by split."""
        model = self.task.inference_copy(self.task.pretrained.model)
        return {
            split: self.vector_metrics(split, self.outputs(model, split))
            for split in self.task.data
            if split != "train"
        }

    def vector_metrics(self, split: str, vectors_RNH: Floats) -> training_task.Metrics:
        """Mean loss, correlations or ranking metrics, and the metric at each number of dimensions."""
        import torch

        examples = self.task.data[split]
        num_pairs = vectors_RNH.shape[1]
        vectors = torch.from_numpy(vectors_RNH)
        labels = torch.from_numpy(examples.labels)
        loss = self.task.objective.loss
        parts = chunked(range(num_pairs), LOSS_PAIRS)
        losses = []
        for rows in parts:
            matches = None if self.task.has_scores else torch.from_numpy(examples.matches(rows))
            losses.append(loss(vectors[:, rows], labels[..., rows], matches)[0])

        by_dims = {dims: self.similarity_metrics(vectors_RNH[..., :dims], examples) for dims in self.task.dims}
        prefixes = {f"{self.metric}_{dims}": by_dims[dims][self.metric] for dims in self.task.dims[:-1]}
        return {"loss": float(torch.stack(losses).sum()) / num_pairs, **by_dims[self.task.dims[-1]], **prefixes}

    def similarity_metrics(self, vectors_RNH: Floats, examples: PairExamples) -> training_task.Metrics:
        if examples.scores is None:
            return metrics.ranking_scores(*rank_pairs(vectors_RNH, examples.ids), k=TOP)
        cosines_N = cosines(vectors_RNH[0], vectors_RNH[1])
        values = metrics.regression(examples.scores.tolist(), cosines_N.tolist())
        return {name: values[name] for name in ("spearman", "pearson")}  # cosines and scores differ in scale

    def compared_outputs(self, outputs: Floats) -> Sequence[Floats]:
        """The vectors at each number of dimensions: with `--matryoshka-dims`, short ones are to gain, too."""
        return [outputs[..., :dims] for dims in self.task.dims]

    def predictions(self, split: str, outputs: Floats) -> Predictions:
        """For scored pairs the score and the cosine, else the ranking metrics of each distinct text."""
        examples = self.task.data[split]
        if examples.scores is not None:
            return self.cosine_predictions(split, cosines(outputs[0], outputs[1]).tolist())
        return self.ranking_predictions(split, *rank_pairs(outputs, examples.ids))

    def cosine_predictions(self, split: str, cosines: list[float]) -> Predictions:
        where = [f"{split}: pair {row}" for row in range(len(cosines))]
        gold = self.task.pairs[split].scores
        assert gold is not None
        units = first_locations(pair_keys(self.task.pairs[split].texts), where)
        return Predictions(
            where=where,
            gold=gold.tolist(),
            predicted=cosines,
            groups=units,
            details=[None] * len(where),
        )

    def ranking_predictions(
        self, split: str, qrels: Mapping[str, Mapping[str, float]], rankings: Mapping[str, Sequence[str]]
    ) -> Predictions:
        scores = metrics.query_scores(qrels, rankings, k=TOP)
        return Predictions.of_rankings({f"{split}, text {query}": values for query, values in scores.items()})

    def score_predictions(self, predictions: Predictions) -> Scores:
        if self.task.has_scores:
            return pair_scores(predictions.gold, predictions.predicted, predictions.groups)
        columns = {name: [row[name] for row in predictions.predicted] for name in predictions.predicted[0]}
        intervals = metrics.mean_intervals(columns, predictions.groups)
        return Scores.with_intervals(self.metric, {name: fmean(values) for name, values in columns.items()}, intervals)


def rank_pairs(vectors_RNH: Floats, ids_RN: np.ndarray) -> tuple[dict[str, dict[str, float]], dict[str, list[str]]]:
    """A search of each distinct first text among all other texts, negatives included: the gold passages of each query,
    {query: {passage: 1}}, and the TOP passages with the greatest cosines, best first.

    Near duplicates, whose ids are equal, are one query or one passage: the first of them. All second texts of
    the rows of a query are right for it. A text is excluded from its own ranking, unless it is its own gold passage.
    """
    queries_Q, passages_D = distinct_rows(ids_RN)
    texts_QH = normalize(vectors_RNH[0][queries_Q])
    passages_DH = normalize(vectors_RNH[1:].reshape(-1, vectors_RNH.shape[-1])[passages_D])
    return rank_by_scores(lambda rows: texts_QH[rows] @ passages_DH.T, ids_RN)


def distinct_rows(ids_RN: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each distinct query and of each distinct passage, [Q] and [D], sorted by id. The rows of
    passages count through the second texts, then through the negatives."""
    _, queries_Q = np.unique(ids_RN[0], return_index=True)
    _, passages_D = np.unique(ids_RN[1:], return_index=True)
    return queries_Q, passages_D


def rank_by_scores(
    scores: Callable[[Sequence[int]], Floats], ids_RN: np.ndarray
) -> tuple[dict[str, dict[str, float]], dict[str, list[str]]]:
    """`rank_pairs`, given a function that scores some distinct queries with all distinct passages, [B, D]. Both are
    sorted by id."""
    queries_Q = np.unique(ids_RN[0])
    passages_D = np.unique(ids_RN[1:])
    own_passages = ids_RN[0][ids_RN[0] == ids_RN[1]]
    gold: dict[str, dict[str, float]] = {str(query): {} for query in queries_Q}
    for query, passage in ids_RN[:2].T.tolist():
        gold[str(query)][str(passage)] = 1.0

    ranking: dict[str, list[str]] = {}
    for rows in chunked(range(len(queries_Q)), COMPARE_CHUNK):
        scores_BD = scores(rows)
        itself_BD = (queries_Q[rows, None] == passages_D) & ~np.isin(passages_D, own_passages)
        scores_BD[itself_BD] = -np.inf
        for row, columns in zip(rows, top_k(scores_BD, TOP), strict=True):
            ranking[str(queries_Q[row])] = [*map(str, passages_D[columns])]
    return gold, ranking


@dataclass(frozen=True)
class VectorEvaluator(Evaluator[str, np.ndarray]):
    """Sentence embeddings: cosine similarity with the vectors of the reference."""

    def predict(self, model: LoadedModel, rows: Sequence[str]) -> list[np.ndarray]:
        return list(model.embed(rows))

    def agree(self, predictions: Sequence[np.ndarray], reference: Sequence[np.ndarray] | None) -> Scores:
        cosines_N = 100 * (np.array(predictions) * np.array(reference)).sum(1)
        scores = {"mean cosine": float(cosines_N.mean()), "least cosine": float(cosines_N.min())}
        return Scores("mean cosine", scores, {"texts": len(predictions)}, secondary="least cosine", maximum=100)


def pair_scores(gold: Sequence[float], cosines: Sequence[float], units: Sequence[Hashable] | None = None) -> Scores:
    """Correlations of gold scores and cosines. No errors, since a cosine does not have the unit of the scores."""
    names = ("spearman", "pearson")
    scores = metrics.regression(gold, cosines)
    bounds = metrics.regression_intervals(gold, cosines, units)
    return Scores.with_intervals(
        "spearman",
        {name: scores[name] for name in names},
        bounds,
        counts={"pairs": len(gold)},
        secondary="pearson",
    )


def ranking_scores(
    qrels: Mapping[str, Mapping[str, float]], ranking: Mapping[str, Sequence[str]], *, k: int = 10
) -> Scores:
    """nDCG, MRR and recall at k of search results."""
    bounds = metrics.ranking_intervals(qrels, ranking, k=k)
    return Scores.with_intervals(f"ndcg@{k}", metrics.ranking_scores(qrels, ranking, k=k), bounds)
