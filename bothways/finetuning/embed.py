"""Fine-tuning a model that gives each text a vector (Reimers 2019): of pairs that belong together, or of scored pairs;
no head, the whole encoder learns.

Letters: N pairs of R texts each (the text, its own pair, and perhaps one that does not belong), H numbers a vector; Q
different texts, D different pairs.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bothways import metrics
from bothways.batch import Batch
from bothways.batching import chunked
from bothways.checkpoint import checkpoint, state_dict
from bothways.checkpoint.checkpoint import Checkpoint
from bothways.data.near_duplicates import text_key
from bothways.data.pairs import TextPairs, read_pairs
from bothways.data.splits import overlap_warning
from bothways.device import choose_device, choose_dtype
from bothways.errors import InputError
from bothways.evaluation.evaluators import pair_scores
from bothways.evaluation.retrieval import TOP, rank_by_scores, rank_pairs
from bothways.evaluation.scores import Predictions
from bothways.families import FAMILIES
from bothways.finetuning.finetune import BATCH_TOKENS, Result, fine_tuned, parts_of_step, step_rows
from bothways.finetuning.pair_texts import PairBatch, PairTexts, text_vectors
from bothways.finetuning.task import Baseline, Figures, Task, outputs
from bothways.inference.pooling import pooling_name
from bothways.linear.tfidf import MOST_TERMS, Tfidf
from bothways.model.model import Model
from bothways.settings import TrainEmbed
from bothways.training.losses import Loss
from bothways.training.pair_losses import cosine_loss, matryoshka_loss, ranking_loss
from bothways.training.run import MetricsCallback

COMPARED = 256  # pairs among which each text's own is to be found where only the loss is measured


def run(settings: TrainEmbed, *, progress: MetricsCallback | None = None) -> Result:
    """Fine-tune as told; keeps the best or median seed by dev, reports on test if there is one, else on dev (and says
    so).

    Pairs compete within a micro-batch; a step needs no micro-batches to bound its memory (tasks/pair_texts.py).
    """
    start = checkpoint.load(settings.model)
    checkpoint.check_not_int8(start.model)
    return fine_tuned(settings, lambda fold: Embedding.of(settings, start, read_pairs(settings, fold)), progress)


@dataclass(frozen=True)
class Embedding(Task):
    """Pairs of texts, with scores or without. sizes: how many of a vector's first numbers are to do as vectors, rising;
    the last is all of them. low, high: the scores whose cosines are to be 0 and 1."""

    name: ClassVar[str] = "embed"
    constant: ClassVar[str] = "before training"
    doubted: ClassVar[str] = ""
    step_0: ClassVar[str] = "the model as it was before training"
    settings: TrainEmbed
    start: Checkpoint
    pairs: Mapping[str, TextPairs]
    data: Mapping[str, PairTexts]
    pooling: str
    sizes: tuple[int, ...]
    low: float
    high: float

    @staticmethod
    def of(settings: TrainEmbed, start: Checkpoint, pairs: Mapping[str, TextPairs]) -> "Embedding":
        sizes = checked_sizes(settings.matryoshka_dims, start.model.config.hidden_size)
        low, high = cosine_range(settings, pairs["train"].scores)
        data = {}
        for split, found in pairs.items():
            scores = None if found.scores is None else ((found.scores - low) / (high - low)).astype(np.float32)
            data[split] = PairTexts.of(found.texts, scores, start, settings)
        pooling = pooling_name(settings.pooling, start.pooling)
        task = Embedding(settings, start, pairs, data, pooling, sizes, low, high)
        if task.alone == len(data["train"].sizes):
            raise InputError(
                f"batch_tokens ({settings.batch_tokens or BATCH_TOKENS}) holds one pair a step, which has no other to "
                "compete with; raise it, or give --batch-size"
            )
        return task

    @property
    def scored(self) -> bool:
        return self.data["train"].scores is not None

    @property
    def metric(self) -> str:
        return "spearman" if self.scored else f"mrr@{TOP}"

    @cached_property
    def alone(self) -> int:
        """How many pairs of the first pass have no other, and no negative, to compete with."""
        if self.scored or len(self.data["train"].windows) > 2:
            return 0
        sizes = self.data["train"].sizes
        steps = step_rows(self.settings, self, self.settings.seed, 0, sizes)
        return sum(len(part) == 1 for rows in steps for part in parts_of_step(self.settings, self, rows, sizes))

    def begin(self, seed: int) -> Checkpoint:
        """The encoder as it is, for every seed; what differs is the order of the examples, and dropout."""
        rate = self.settings.dropout
        config = self.start.model.config.replace(hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)
        model = Model(config)
        model.encoder.load_state_dict(self.start.model.encoder.state_dict())
        return replace(self.start, model=model, labels=(), pooling=self.pooling, normalized=True, metadata={})

    def finished(self, model: Model) -> None:
        """Published encoders carry a pooler, which no vector goes through: it stays as it was, where it has a name."""
        if FAMILIES[self.start.model_type].hf_names(state_dict.POOLER, ()):
            model.pooler = deepcopy(self.start.model.pooler)

    def counts(self, batch: Batch) -> dict[str, int]:
        assert batch.labels is not None
        return {"scores" if self.scored else "pairs": batch.labels.shape[-1]}

    def losses(self, model: Model, batch: Batch) -> dict[str, Loss]:
        assert isinstance(batch, PairBatch) and batch.labels is not None
        vectors_RNH = text_vectors(model, batch, self.pooling)
        return {"scores" if self.scored else "pairs": self.loss(vectors_RNH, batch.labels)}

    def loss(self, vectors_RNH: Tensor, labels: Tensor) -> Loss:
        """labels: scores [N] or ids [R, N]."""
        if self.scored:
            return matryoshka_loss(partial(cosine_loss, scores_N=labels), vectors_RNH, self.sizes)
        ranked = partial(ranking_loss, ids_RN=labels, temperature=self.settings.temperature)
        return matryoshka_loss(ranked, vectors_RNH, self.sizes)

    def outputs(self, model: Model, split: str) -> Tensor:
        """The vectors of each pair, [R, N, H]."""
        return torch.stack(outputs(model, self.data[split], self.read)).transpose(0, 1)

    def evaluate(self, split: str, outputs: Tensor) -> Figures:
        """Mean loss, correlations of cosine and score or how well texts find their pairs, the metric by size; the
        baseline is the metric before training."""
        return {**self.figures(split, outputs), "baseline": self.untrained[split][self.metric]}

    @cached_property
    def untrained(self) -> dict[str, Figures]:
        """The figures of the model that training starts from."""
        device = choose_device("auto")
        model = deepcopy(self.start.model).to(device, choose_dtype(self.settings.dtype, device))
        return {split: self.figures(split, self.outputs(model, split)) for split in self.data if split != "train"}

    def figures(self, split: str, vectors_RNH: Tensor) -> Figures:
        texts = self.data[split]
        labels = torch.from_numpy(texts.labels)
        num_pairs = vectors_RNH.shape[1]
        sums = [self.loss(vectors_RNH[:, rows], labels[..., rows])[0] for rows in chunked(range(num_pairs), COMPARED)]
        found = {size: self.quality(vectors_RNH[..., :size], texts) for size in self.sizes}
        by_size = {f"{self.metric}_{size}": found[size][self.metric] for size in self.sizes[:-1]}
        return {"loss": float(torch.stack(sums).sum()) / num_pairs, **found[self.sizes[-1]], **by_size}

    def read(self, model: Model, batch: Batch) -> list[Tensor]:
        """The vectors of each pair, [R, H]."""
        assert isinstance(batch, PairBatch)
        return list(text_vectors(model, batch, self.pooling).transpose(0, 1))

    def quality(self, vectors_RNH: Tensor, texts: PairTexts) -> Figures:
        if texts.scores is None:
            return metrics.ranking_scores(*rank_pairs(vectors_RNH, texts.ids), k=TOP)
        cosines_N = F.cosine_similarity(vectors_RNH[0], vectors_RNH[1], dim=-1)
        found = metrics.regression(texts.scores.tolist(), cosines_N.tolist())
        return {name: found[name] for name in ("spearman", "pearson")}  # a cosine has not the scores' unit

    def num_rows(self, split: str) -> int:
        return len(self.pairs[split].texts[0])

    def predictions(self, split: str, outputs: Tensor) -> Predictions:
        """The score of each pair and its cosine; or of each different text how well it finds its pairs."""
        texts = self.data[split]
        if texts.scores is not None:
            return self.correlated(split, F.cosine_similarity(outputs[0], outputs[1], dim=-1).tolist())
        return self.ranked(split, *rank_pairs(outputs, texts.ids))

    def correlated(self, split: str, cosines: list[float]) -> Predictions:
        where = [f"{split}, pair {number}" for number in range(1, 1 + len(cosines))]
        gold = self.pairs[split].scores
        assert gold is not None
        return Predictions(where, gold.tolist(), cosines, where, [None] * len(where))

    def ranked(
        self, split: str, gold: Mapping[str, Mapping[str, float]], ranking: Mapping[str, Sequence[str]]
    ) -> Predictions:
        found = metrics.query_scores(gold, ranking, k=TOP)
        where = [f"{split}, text {query}" for query in found]
        return Predictions(where, [None] * len(where), [*found.values()], where, [None] * len(where))

    def baselines(self, split: str) -> Iterator[Baseline]:
        """The cosine of TF-IDF vectors; that of the model before training is `baseline`."""
        texts, name = self.data[split], "cosine of TF-IDF"
        tfidf, _ = Tfidf.learned([text for part in self.pairs["train"].texts[:2] for text in part], MOST_TERMS)
        first, second = (tfidf(part) for part in self.pairs[split].texts[:2])
        if texts.scores is not None:
            yield Baseline(name, self.correlated(split, (first * second).sum(1).tolist()))
            return
        first_Q, first_D = (np.unique(ids_N, return_index=True)[1] for ids_N in texts.ids[:2])
        texts_QF, pairs_FD = first[first_Q], second[first_D].T.tocsr()
        found = rank_by_scores(lambda rows: torch.from_numpy((texts_QF[rows] @ pairs_FD).toarray()), texts.ids)
        yield Baseline(name, self.ranked(split, *found))

    def scores(self, found: Predictions) -> dict[str, Any]:
        if self.scored:
            return pair_scores(found.gold, found.predicted).by_name
        means = {name: [row[name] for row in found.predicted] for name in found.predicted[0]}
        bounds = {name: metrics.mean_interval(values, found.groups) for name, values in means.items()}
        return metrics.with_intervals({name: fmean(values) for name, values in means.items()}, bounds)

    def lengths(self, split: str) -> Sequence[int]:
        return self.data[split].lengths

    def describe(self) -> str:
        found = [f"{split}: {texts.describe()}" for split, texts in self.data.items()]
        if self.scored:
            found.append(f"scores: {self.low:g} is to be cosine 0, {self.high:g} cosine 1")
        else:
            negatives = " and the negatives given" if len(self.data["train"].windows) > 2 else ""
            found.append(f"pairs: each text's own against all others of its step{negatives}")
        before = [f"{split} {self.metric} {figures[self.metric]:.4f}" for split, figures in self.untrained.items()]
        return "\n".join([*found, *self.warnings, f"before training: {', '.join(before)}"])

    @property
    def warnings(self) -> list[str]:
        both = {
            split: zip(*([*map(text_key, texts)] for texts in part.texts[:2]), strict=True)
            for split, part in self.pairs.items()
        }
        shared = overlap_warning({split: [*keys] for split, keys in both.items()})
        notes = dict.fromkeys(note for part in self.pairs.values() for note in part.notes)
        found = [*notes, *([shared] if shared else [])]
        for split, part in self.pairs.items():
            if number := sum(not all(map(str.strip, texts)) for texts in zip(*part.texts, strict=True)):
                found.append(f"{number:,} of {len(part.texts[0]):,} pairs of {split} have an empty text")
        if self.alone > len(self.data["train"].sizes) / 100:
            way = "they teach nothing (raise --batch-tokens, or give --batch-size)"
            found.append(f"{self.alone:,} pairs are alone in their step: {way}")
        return found


def checked_sizes(sizes: tuple[int, ...], hidden_size: int) -> tuple[int, ...]:
    """Rising, each once, the whole vector's last. InputError for one that a vector does not have."""
    if wrong := [size for size in sizes if not 1 <= size <= hidden_size]:
        raise InputError(f"sizes ({wrong[0]}) must be from 1 to the model's hidden_size ({hidden_size})")
    return tuple(sorted({*sizes, hidden_size}))


def cosine_range(settings: TrainEmbed, scores: np.ndarray | None) -> tuple[float, float]:
    """The scores whose cosines are to be 0 and 1: 0 and 1 where all are from -1 to 1, so that they can be cosines
    themselves; else the least and the greatest (0 and 5 of STS-B)."""
    if scores is None:
        return 0.0, 1.0
    low, high = float(scores.min()), float(scores.max())
    if low == high:
        raise InputError(
            f"{settings.train}: every score is {low:g}, which teaches nothing; leave scores aside with "
            "--objective pairs"
        )
    return (0.0, 1.0) if low >= -1 and high <= 1 else (low, high)
