"""Sentence embeddings from matching pairs (contrastive) or scored pairs (Reimers 2019).

Letters: N pairs of R texts each (text, pair, and perhaps a hard negative), H dimensions; Q different texts, D different
pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bothways.base.errors import InputError, flag
from bothways.base.io import is_same_file
from bothways.measure import metrics
from bothways.model.checkpoint.formats.hugging_face import POOLER
from bothways.model.families import FAMILIES
from bothways.model.linear.tfidf import MAX_TERMS, Tfidf
from bothways.settings.base import TextColumns
from bothways.settings.finetune import TrainEmbed
from bothways.settings.predict import Evaluate
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks import training_task
from bothways.tasks.arrays import NO_LABEL, Floats, cosines, normalize, top_k
from bothways.tasks.pair_examples import PairBatch, PairExamples, text_ids
from bothways.tasks.pooling import pooling_name
from bothways.tasks.scores import Predictions, Scores
from bothways.tasks.task import Evaluator, LabelledRows, Task, file_given_twice
from bothways.tasks.text_rows import read_trained_table
from bothways.text.batch import Batch
from bothways.text.batching import chunked
from bothways.text.data.beir import read_qrels, read_ranking
from bothways.text.data.model_inputs import first_columns, resolve_columns
from bothways.text.data.near_duplicates import first_locations, text_key
from bothways.text.data.pairs import NO_NEGATIVES, TextPairs, read_pair_file, usual_negatives
from bothways.text.data.split_tables import divide_rows, read_unlabelled
from bothways.text.data.splits import overlap_warnings, parts_for

if TYPE_CHECKING:
    from torch import Tensor

    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.model.losses import Loss
    from bothways.model.model import Model
    from bothways.model.transforms import Transform
    from bothways.tasks.task import LoadedModel

TOP = 10  # results of a ranking that are scored
EMBED_CHUNK = 8192  # texts that are embedded together
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
        from bothways.tasks.forward import text_vectors

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
        where = [f"{split}, text {query}" for query in scores]
        return Predictions(
            where=where,
            gold=[None] * len(where),
            predicted=[*scores.values()],
            groups=where,
            details=[None] * len(where),
        )

    def score_predictions(self, predictions: Predictions) -> Scores:
        if self.task.has_scores:
            return pair_scores(predictions.gold, predictions.predicted, predictions.groups)
        columns = {name: [row[name] for row in predictions.predicted] for name in predictions.predicted[0]}
        intervals = metrics.mean_intervals(columns, predictions.groups)
        return Scores.with_intervals(self.metric, {name: fmean(values) for name, values in columns.items()}, intervals)


@dataclass(frozen=True)
class PairSummary(training_task.Summary):
    task: Embedding

    def num_rows(self, split: str) -> int:
        return len(self.task.pairs[split].texts[0])

    def lengths(self, split: str) -> Sequence[int]:
        return self.task.data[split].lengths

    def lines(self) -> Iterator[str]:
        yield from (f"{split}: {examples.describe()}" for split, examples in self.task.data.items())
        if self.task.has_scores:
            yield f"scores: {self.task.low:g} is cosine 0, {self.task.high:g} is cosine 1"
        else:
            negatives = " and the hard negatives" if len(self.task.data["train"].windows) > 2 else ""
            yield f"matching pairs; negatives: all other pairs of the step{negatives}"

    def describe(self) -> str:
        metric = self.task.scoring.metric
        untrained = [
            f"{split} {metric} {values[metric]:.4f}" for split, values in self.task.scoring.untrained_metrics.items()
        ]
        return f"{super().describe()}\nbefore training: {', '.join(untrained)}"

    @property
    def warnings(self) -> list[str]:
        keys = {split: pair_keys(part.texts) for split, part in self.task.pairs.items()}
        notes = dict.fromkeys(note for part in self.task.pairs.values() for note in part.notes)
        warnings = [*notes, *overlap_warnings(keys)]
        for split, part in self.task.pairs.items():
            num_empty = sum(not all(map(str.strip, texts)) for texts in zip(*part.texts, strict=True))
            if num_empty:
                warnings.append(f"{num_empty:,} of {len(part.texts[0]):,} pairs of {split} have an empty text")
        if (isolated := self.task.num_isolated) > len(self.task.data["train"].sizes) / 100:
            warnings.append(
                f"{isolated:,} pairs are alone in their step and have no negatives (raise {flag('batch_tokens')}, or "
                f"give {flag('batch_size')})"
            )
        return warnings


@dataclass(frozen=True)
class Embedding(training_task.TrainingTask):
    """Pairs of texts, with or without scores. There is no head; the whole encoder is trained.

    dims: numbers of leading dimensions that are trained to work as vectors (Matryoshka), ascending; the last one is the
    hidden size. low, high: the scores that correspond to cosine 0 and 1.
    """

    name: ClassVar[str] = "embed"
    initial_model: ClassVar[str] = "the model before training"
    needs_gain: ClassVar[bool] = True
    settings: TrainEmbed
    pretrained: Checkpoint
    pairs: Mapping[str, TextPairs]
    data: Mapping[str, PairExamples]
    pooling: str
    dims: tuple[int, ...]
    low: float
    high: float

    @staticmethod
    def build(settings: TrainEmbed, pretrained: Checkpoint, pairs: Mapping[str, TextPairs]) -> Embedding:
        dims = check_dims(settings.matryoshka_dims, pretrained.model.config.hidden_size)
        low, high = score_range(pairs["train"].scores, settings.train)
        data = {}
        reader = training_task.text_reader(settings.windows, pretrained)
        for split, part in pairs.items():
            scores = None if part.scores is None else ((part.scores - low) / (high - low)).astype(np.float32)
            data[split] = PairExamples.encode(part.texts, scores, *reader)

        pooling = pooling_name(settings.pooling, pretrained.pooling)
        task = Embedding(
            settings=settings,
            pretrained=pretrained,
            pairs=pairs,
            data=data,
            pooling=pooling,
            dims=dims,
            low=low,
            high=high,
        )

        if task.num_isolated == len(data["train"].sizes):
            raise InputError(
                f"batch_tokens ({settings.batch_tokens or training_task.BATCH_TOKENS}) holds a single pair per step, "
                f"which has no negatives; raise it, or give {flag('batch_size')}"
            )
        return task

    @property
    def has_scores(self) -> bool:
        return self.data["train"].scores is not None

    def initial_checkpoint(self, seed: int) -> Checkpoint:
        """The unchanged encoder; seeds differ in the order of examples and in dropout."""
        from bothways.model.model import Model
        from bothways.model.parameters import same_random_numbers

        dropout = self.settings.dropout
        config = self.pretrained.model.config.replace(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
        with same_random_numbers():
            model = Model(config)
        model.encoder.load_state_dict(self.pretrained.model.encoder.state_dict())
        return replace(
            self.pretrained,
            model=model,
            labels=(),
            pooling=self.pooling,
            normalized=True,
            metadata={},
            words=None,
            scope=None,
        )

    @property
    def transforms(self) -> Sequence[Transform]:
        has_pooler = FAMILIES[self.pretrained.model_type].hf_names(POOLER, ())
        from bothways.model.transforms import RestorePooler

        return (RestorePooler(self.pretrained.model.pooler),) if has_pooler else ()

    @property
    def objective(self) -> PairObjective:
        return PairObjective(
            pooling=self.pooling,
            dims=self.dims,
            has_scores=self.has_scores,
            temperature=self.settings.temperature,
        )

    def read_by(self, teacher: Checkpoint) -> Embedding:
        width = self.pretrained.model.config.hidden_size
        size = teacher.model.config.hidden_size
        if size < width:
            raise InputError(
                f"{self.settings.teacher}: vectors of {size} dimensions cannot teach {width} dimensions; use a teacher "
                "that is at least as wide"
            )
        data = {
            split: PairExamples.encode(
                part.texts, self.data[split].scores, *training_task.text_reader(self.settings.windows, teacher)
            )
            for split, part in self.pairs.items()
        }
        pooling = pooling_name("auto", teacher.pooling)
        return replace(self, pretrained=teacher, data=data, pooling=pooling, dims=(size,))

    def soft_labels(self, reader: training_task.TrainingTask, outputs: Floats) -> list[Tensor]:
        """The teacher's vectors of each pair, [R, H]; a wider teacher's vectors on their principal components."""
        import torch

        return [*reduce_dimensions(torch.from_numpy(outputs), self.pretrained.model.config.hidden_size).transpose(0, 1)]

    def with_unlabelled(self) -> Embedding:
        """With the texts in rows of as many as in a pair; the last row is filled up with the first texts."""
        train = self.pairs["train"]
        table = read_unlabelled(self.settings)
        added = table.texts + (table.pairs or [])
        added += added[: -len(added) % len(train.texts)]
        columns = [column + added[role :: len(train.texts)] for role, column in enumerate(train.texts)]
        num_pairs = len(train.texts[0])
        scores = self.data["train"].scores
        if scores is not None:
            scores = np.append(scores, np.full(len(columns[0]) - num_pairs, np.nan, np.float32))
        examples = PairExamples.encode(
            columns, scores, *training_task.text_reader(self.settings.windows, self.pretrained)
        )
        examples.ids[:, num_pairs:] = NO_LABEL
        pairs = replace(train, texts=columns, scores=scores)
        return replace(self, pairs={**self.pairs, "train": pairs}, data={**self.data, "train": examples})

    def baselines(self, split: str, *, words: bool = True) -> Iterator[training_task.Baseline]:
        """The cosine of TF-IDF vectors."""
        from scipy.sparse import vstack

        examples = self.data[split]
        name = "cosine of TF-IDF"
        train_texts = [text for column in self.pairs["train"].texts[:2] for text in column]
        tfidf, _ = Tfidf.learn(train_texts, MAX_TERMS)
        first, *others = (tfidf(column).to_scipy() for column in self.pairs[split].texts)
        if examples.scores is not None:
            cosines = (first * others[0]).sum(1).tolist()
            yield training_task.Baseline(name, self.scoring.cosine_predictions(split, cosines))
            return

        queries_Q, passages_D = distinct_rows(examples.ids)
        texts_QF = first[queries_Q]
        passages_FD = vstack(others, format="csr")[passages_D].T.tocsr()
        rankings = rank_by_scores(lambda rows: (texts_QF[rows] @ passages_FD).toarray(), examples.ids)
        yield training_task.Baseline(name, self.scoring.ranking_predictions(split, *rankings))

    @cached_property
    def num_isolated(self) -> int:
        """The number of pairs in the first epoch that have no negatives, since they are alone in a micro-batch."""
        if self.has_scores or len(self.data["train"].windows) > 2:
            return 0
        sizes = self.data["train"].sizes
        plan = training_task.BatchPlan.of(self)
        steps = plan.step_rows(self.settings.seed, 0, sizes)
        return sum(len(part) == 1 for rows in steps for part in plan.micro_batches(rows, sizes))

    scoring = cached_property(PairScoring)
    summary = cached_property(PairSummary)


def pair_keys(texts: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Keys that are equal for near duplicates of the first two texts."""
    return [*zip(*([*map(text_key, column)] for column in texts[:2]), strict=True)]


def reduce_dimensions(vectors_RNH: Tensor, size: int) -> Tensor:
    """Unit vectors on their first `size` principal components, which keep their cosines best; no change if they have
    that many dimensions."""
    import torch
    import torch.nn.functional as F

    if vectors_RNH.shape[-1] == size:
        return vectors_RNH
    unit_RNH = F.normalize(vectors_RNH, dim=-1)
    flat_TH = unit_RNH.flatten(0, 1).double()
    _, basis_HH = torch.linalg.eigh(flat_TH.T @ flat_TH)  # ascending
    return unit_RNH @ basis_HH[:, -size:].float()


def check_dims(dims: tuple[int, ...], hidden_size: int) -> tuple[int, ...]:
    """Matryoshka sizes, sorted, without duplicates, and with hidden_size. InputError for sizes above hidden_size."""
    if invalid := [size for size in dims if not 1 <= size <= hidden_size]:
        raise InputError(f"matryoshka_dims ({invalid[0]}) must be from 1 to the model's hidden_size ({hidden_size})")
    return tuple(sorted({*dims, hidden_size}))


def score_range(scores: np.ndarray | None, source: object) -> tuple[float, float]:
    """The scores that correspond to cosine 0 and 1: 0 and 1 if all scores are in -1..1; else their minimum and maximum,
    such as 0 and 5 in STS-B."""
    if scores is None:
        return 0.0, 1.0
    low = float(scores.min())
    high = float(scores.max())
    if low == high:
        raise InputError(
            f"{source}: all scores are {low:g}; there is nothing to learn. To ignore scores, use "
            f"{flag('objective', 'pairs')}"
        )
    return (0.0, 1.0) if low >= -1 and high <= 1 else (low, high)


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


# --- with a model -----------------------------------------------------------------------------------------------------


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


def read_pairs(settings: TrainEmbed, fold: int | None = None) -> dict[str, TextPairs]:
    """The pairs by split: train, dev and possibly test.

    Without a dev file, a tenth of the training table becomes dev; without dev and test files, another tenth becomes
    test. Pairs with the same or a near-duplicate first text stay together. fold: the test fold in cross-validation.
    """
    if settings.objective == "scores" and settings.negative_column is not None:
        raise InputError(
            f"negative_column ({settings.negative_column}) is for pairs; leave it out, or use "
            f"{flag('objective', 'pairs')}"
        )

    objective = settings.objective
    pairs_by_split = dict[str, TextPairs]()
    for name, path in settings.sources.items():  # train is the first
        pairs = read_pair_file(path, settings, objective, settings.negative_column, settings.on_error)
        if name == "train" and pairs.scores is None and len(set(pairs.texts[1])) < 2:
            raise InputError(f"{path}: a single pair has no negatives; add pairs")
        objective = "pairs" if pairs.scores is None else "scores"
        pairs_by_split[name] = pairs

    if "dev" in pairs_by_split:
        return pairs_by_split

    train = pairs_by_split["train"]
    rows = divide_rows(settings, [*map(text_key, train.texts[0])], parts_for(pairs_by_split), fold)
    return {**pairs_by_split, **{name: train.take(split_rows) for name, split_rows in rows.items()}}


def read_trained_pairs(file: TableSource, settings: Evaluate, trained: Mapping[str, Any]) -> TextPairs:
    """Read pairs by the named columns, else by the columns of the model's own settings (`trained`).

    Scores are ignored if the model was trained on pairs without scores, unless a column of scores is named. Negatives
    are read as in training, if the file has any, since a search of the pairs is among them, too.
    """
    unscored = trained.get("objective") == "pairs" or trained.get("negative_column") is not None
    names = resolve_columns(file, settings, trained, ("text", "pair", "label", "negative"))
    negative = names.pop("negative") or usual_negatives(first_columns(file, settings.encoding))
    columns = TextColumns(**{f"{use}_column": name for use, name in names.items()}, encoding=settings.encoding)
    unscored = unscored and settings.label_column is None
    pairs = read_pair_file(file, columns, "pairs" if unscored else "auto", NO_NEGATIVES)
    if pairs.scores is None and negative is not None:
        return read_pair_file(file, columns, "pairs", negative)
    return pairs


def embed_chunks(model: LoadedModel, texts: Sequence[str], dimensions: int | None = None) -> Floats:
    """A vector per text, [N, H], computed in chunks, so that only the vectors of all texts are in memory. dimensions:
    keep only the first ones, and scale to length 1 again."""
    vectors_NH: Floats = np.empty((0, 0), np.float32)
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


class EmbedTask(Task):
    """A vector for each text."""

    name = "embed"
    gold = "ranking"
    route = "/embed"
    evaluate_options = ("how", "rerank", "dimensions")
    evaluate_data = "pairs of texts or a BEIR directory"

    def train(self, settings: TrainEmbed, pretrained: Checkpoint, fold: int | None) -> Embedding:
        return Embedding.build(settings, pretrained, read_pairs(settings, fold))

    def read(
        self, model: LoadedModel, files: Sequence[TableSource], columns: Any, *, need_labels: bool
    ) -> LabelledRows:
        """Texts without labels, for which the vectors of two models are compared."""
        named = columns.label_column is not None
        texts = [text for file in files for text in read_trained_table(model, file, columns, need_labels=named).texts]
        return LabelledRows(VectorEvaluator(), texts, labelled=False)

    def evaluate(self, model: LoadedModel, files: Sequence[TableSource], columns: Any) -> Scores:
        """The correlation of scores and cosines for scored pairs; for other pairs how well each text retrieves its
        partner among all."""
        if len(files) != 1:
            raise InputError("an embedding model is evaluated on one file of pairs, or one BEIR directory")
        (file,) = files
        if columns.how != "vectors" or columns.rerank:
            name = "how" if columns.how != "vectors" else "rerank"
            raise InputError(f"{name} is for a BEIR directory (corpus.jsonl, queries.jsonl, qrels/); {file} is none")
        pairs = read_trained_pairs(file, columns, model.description.settings)
        vectors_RNH = np.stack([embed_chunks(model, texts, columns.dimensions) for texts in pairs.texts])
        if pairs.scores is not None:
            cosines_N = (vectors_RNH[0] * vectors_RNH[1]).sum(1)
            return pair_scores(pairs.scores.tolist(), cosines_N.tolist(), pair_keys(pairs.texts))
        return ranking_scores(*rank_pairs(vectors_RNH, text_ids(pairs.texts)), k=TOP)

    def score_file(self, predictions: Path, gold: Path, columns: Evaluate) -> Scores:
        """Rankings of documents for each query, against relevance judgements (qrels)."""
        if is_same_file(predictions, gold):
            raise file_given_twice(gold, "relevance judgements are no ranking")
        qrels = read_qrels(gold, columns.encoding)
        ranking = read_ranking(predictions, columns.encoding)
        if qrels.keys().isdisjoint(ranking):
            raise InputError(f"{predictions}: no query is one of {gold}, such as {min(qrels)!r}; check the names")
        return ranking_scores(qrels, ranking)


EMBED = EmbedTask()
