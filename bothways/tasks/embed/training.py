"""Training of sentence embeddings.

Letters: N pairs of R texts each (text, pair, and perhaps a hard negative), H dimensions; Q different texts, D different
pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from bothways.base.errors import InputError, flag
from bothways.model.checkpoint.formats.hugging_face import POOLER
from bothways.model.families import FAMILIES
from bothways.model.linear.tfidf import MAX_TERMS, Tfidf
from bothways.settings.finetune import TrainEmbed
from bothways.tasks import training_task
from bothways.tasks.arrays import NO_LABEL, Floats
from bothways.tasks.batch_plan import BATCH_TOKENS, BatchPlan
from bothways.tasks.embed.examples import PairExamples
from bothways.tasks.embed.report import PairReport
from bothways.tasks.embed.scoring import PairObjective, PairScoring, distinct_rows, rank_by_scores
from bothways.tasks.pooling import pooling_name
from bothways.text.data.pairs import TextPairs
from bothways.text.data.split_tables import read_unlabelled

if TYPE_CHECKING:
    from torch import Tensor

    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.model.transforms import Transform


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
                f"batch_tokens ({settings.batch_tokens or BATCH_TOKENS}) holds a single pair per step, "
                f"which has no negatives; raise it, or give {flag('batch_size')}"
            )
        return task

    @property
    def has_scores(self) -> bool:
        return self.data["train"].scores is not None

    def initial_checkpoint(self, seed: int) -> Checkpoint:
        """The unchanged encoder; seeds differ in the order of examples and in dropout."""
        from bothways.model.model import Model
        from bothways.model.parameters import no_init

        dropout = self.settings.dropout
        config = self.pretrained.model.config.replace(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
        with no_init():
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
            statements=None,
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
        plan = BatchPlan.of(self)
        steps = plan.step_rows(self.settings.seed, 0, sizes)
        return sum(len(part) == 1 for rows in steps for part in plan.micro_batches(rows, sizes))

    scoring = cached_property(PairScoring)
    report = cached_property(PairReport)


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
