"""Distillation objective: masked words, next sentence, and the teacher's outputs for the same text.

The teacher reads the masked passages in the student's pieces (logits, hidden states, relations), the passages before
masking in its own pieces (passage vectors), and texts cut from them (vectors). It runs in every step and is not
trained.

Letters: T tokens, M masked positions, N texts, H hidden size of the teacher, S of the student. In losses: H hidden size
of student or teacher, R relation heads, D head size, n texts of S tokens in a bucket.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.base.rng import Purpose, derive_seed
from bothways.model.buckets import Bucket, build_buckets
from bothways.model.heads import mean_pool
from bothways.model.losses import Loss, logits_loss, vector_distance
from bothways.model.model import Model
from bothways.model.rows import pooled_rows, read_states
from bothways.model.states import States, compute_states, queries_keys_values
from bothways.text.batch import Batch
from bothways.text.corpus.masking import MaskRule
from bothways.text.corpus.sampler import StepRows
from bothways.text.corpus.token_store import TokenStore
from bothways.training.pretraining.distillation import shared_texts
from bothways.training.pretraining.objectives import Predictions, PretrainingObjective

COSINES = {"vectors": "vector_cosine", "passage_vectors": "passage_cosine"}  # figures by loss
TEMPERATURE = 2.0  # of the softmax of logits
WHOLE_TEXTS = 0.25  # fraction of the texts that are also read whole, if words are learned too
MASKED = -1e4  # score of a key that is padding; its probability is exactly 0
# Losses on masked passages.
OF_PASSAGES = (
    "relations",
    "hidden_states",
    "logits",
)


@dataclass(frozen=True)
class Weights:
    """Weight of each loss from the teacher. The loss of masked words has weight 1, or 0 without `words`."""

    words: bool
    relations: float = 0.0
    hidden_states: float = 0.0
    logits: float = 0.0
    vectors: float = 0.0
    passage_vectors: float = 0.0

    @property
    def of_passages(self) -> dict[str, float]:
        """Losses for which the teacher reads the masked passages."""
        return {name: getattr(self, name) for name in OF_PASSAGES if getattr(self, name)}

    @property
    def of_vectors(self) -> dict[str, float]:
        """Losses of whole texts."""
        return {name: getattr(self, name) for name in COSINES if getattr(self, name)}

    def describe(self) -> str:
        """The losses with their weights, in words."""
        titles = ["masked words"] if self.words else []
        from_teacher = {**self.of_passages, **self.of_vectors}
        for name, weight in from_teacher.items():
            titles.append(f"{name.replace('_', ' ')} (weight {weight:g})")
        return ", ".join(titles)


@dataclass(frozen=True, eq=False)
class DistillationTeacher:
    """The frozen teacher.

    model: moved to the device and dtype of the student when it is first used.
    ids: its ids for the student's tokens.
    pooling: how its text vectors are made.
    basis_HS: directions of its text vectors that the student's vectors follow; None: all.
    """

    model: Model
    ids: shared_texts.TeacherIds
    pooling: str
    basis_HS: Tensor | None

    def __post_init__(self) -> None:
        self.model.eval().requires_grad_(False)

    def move_to(self, parameter: Tensor) -> None:
        """Compute on the device and in the dtype of the student."""
        weight = next(self.model.parameters())
        if (weight.device, weight.dtype) != (parameter.device, parameter.dtype):
            self.model.to(parameter.device, parameter.dtype)

    def states(self, batch: Batch) -> States:
        """Hidden states for passages in the student's pieces."""
        batch = shared_texts.with_teacher_ids(batch, torch.from_numpy(self.ids.ids_V))
        with torch.no_grad():
            return compute_states(self.model, batch)

    def vectors(self, batch: Batch) -> Tensor:
        """Vectors of texts, projected to the student's width, [N, S]."""
        with torch.no_grad():
            vectors_NH = F.normalize(encode_texts(self.model, batch, self.pooling).float())
            if self.basis_HS is None:
                return vectors_NH
            return vectors_NH @ self.basis_HS.to(vectors_NH.device)


def encode_texts(model: Model, batch: Batch, pooling: str) -> Tensor:
    """The model's vector for each text, [N, H]."""
    return pool(read_states(model, batch, pooled_rows(pooling, batch)), batch, pooling)


def pool(hidden_TH: Tensor, batch: Batch, pooling: str) -> Tensor:
    """A vector for each text, the mean of its tokens or its first one, [N, H]."""
    if pooling == "cls":
        return hidden_TH[batch.first_tokens]
    return mean_pool(hidden_TH, batch.lengths)


class Student(nn.Module):
    """The student with the map of its hidden states to the teacher's width, which only training needs."""

    def __init__(self, model: Model, teacher_size: int, *, needs_map: bool, basis_HS: Tensor | None, seed: int) -> None:
        super().__init__()
        self.model = model
        self.map: nn.Module = nn.Identity()
        if not needs_map:
            return

        # If the student was made from the teacher, the map starts where their states agree.
        student_size = model.config.hidden_size
        self.map = nn.Linear(student_size, teacher_size, bias=False)
        with torch.no_grad():
            if basis_HS is not None and basis_HS.shape == self.map.weight.shape:
                self.map.weight.copy_(basis_HS)
            elif teacher_size == student_size:
                self.map.weight.copy_(torch.eye(teacher_size))
            else:
                generator = torch.Generator().manual_seed(derive_seed(seed, Purpose.EXTRAS))
                nn.init.orthogonal_(self.map.weight, generator=generator)


class Distillation(PretrainingObjective):
    """Masked words together with losses from a teacher. store: the text that rows refer to."""

    def __init__(self, weights: Weights, teacher: DistillationTeacher, store: TokenStore) -> None:
        super().__init__()
        self.weights = weights
        self.teacher = teacher
        self.store = store

    @property
    def heads(self) -> dict[str, int]:
        return super().heads if self.weights.words else {}

    def module(self, model: Model, seed: int) -> nn.Module:
        return Student(
            model,
            self.teacher.model.config.hidden_size,
            needs_map=bool(self.weights.hidden_states),
            basis_HS=self.teacher.basis_HS,
            seed=seed,
        )

    def mask(self, batch: Batch, step: StepRows, rows: Sequence[int], rule: MaskRule, *, seed: int) -> Batch:
        """Mask the passages, and attach texts cut from them. Only the texts, if words are not learned."""
        ids = self.teacher.ids
        longest = self.teacher.model.config.max_position_embeddings

        texts: Batch | None = None
        teacher_texts: Batch | None = None
        if self.weights.vectors:
            fraction = WHOLE_TEXTS if self.reads_passages else 1.0
            cut_N2 = shared_texts.cut_texts(self.store, step, list(rows), seed=seed, fraction=fraction)
            if len(cut_N2):
                texts, teacher_texts = shared_texts.student_and_teacher_texts(self.store, cut_N2, ids, longest)

        # Before the passages are masked.
        passages: Batch | None = None
        if self.weights.passage_vectors:
            passages = shared_texts.teacher_passages(batch, ids, longest)

        if self.reads_passages:
            batch = super().mask(batch, step, rows, rule, seed=seed)
        return shared_texts.DistillationBatch(
            **vars(batch),
            texts=texts,
            teacher_texts=teacher_texts,
            teacher_passages=passages,
        )

    @property
    def reads_passages(self) -> bool:
        return self.weights.words or bool(self.weights.of_passages) or bool(self.weights.passage_vectors)

    def rows(self, batch: Batch) -> Tensor | None:
        return None  # the teacher is followed in all tokens

    def counts(self, batch: Batch) -> dict[str, int]:
        assert isinstance(batch, shared_texts.DistillationBatch)
        counts = {name: batch.num_tokens for name in self.weights.of_passages}
        if self.weights.words:
            counts |= super().counts(batch)
        if "logits" in counts:
            counts["logits"] = super().counts(batch)["masked_lm"]
        if self.weights.vectors:
            counts["vectors"] = 0 if batch.texts is None else len(batch.texts)
        if self.weights.passage_vectors:
            counts["passage_vectors"] = len(batch)
        return counts

    def forward(self, module: nn.Module, batch: Batch) -> States | None:
        assert isinstance(module, Student)
        return compute_states(module.model, batch) if self.reads_passages else None

    def losses(self, module: nn.Module, batch: Batch, outputs: Any) -> dict[str, Loss]:
        assert isinstance(module, Student) and isinstance(batch, shared_texts.DistillationBatch)
        self.teacher.move_to(next(module.parameters()))
        by_name: dict[str, Loss] = {}
        if self.weights.words:
            by_name |= super().losses(module.model, batch, outputs.last_TH)

        if self.weights.of_passages:
            from_teacher = self._losses_of_passages(module, batch, outputs, self.teacher.states(batch))
            for name, weight in self.weights.of_passages.items():
                value, count = from_teacher[name]
                by_name[name] = (weight * value, count)

        if self.weights.vectors:
            value, count = self._vector_loss(module, batch)
            by_name["vectors"] = (self.weights.vectors * value, count)

        if self.weights.passage_vectors:
            assert batch.teacher_passages is not None
            vectors_NS = pool(outputs.last_TH, batch, self.teacher.pooling)
            value, count = vector_distance(vectors_NS, self.teacher.vectors(batch.teacher_passages))
            by_name["passage_vectors"] = (self.weights.passage_vectors * value, count)
        return by_name

    def _losses_of_passages(self, module: Student, batch: Batch, states: States, target: States) -> dict[str, Loss]:
        """The losses with a weight, from the states of student and teacher for the same tokens."""
        wanted = self.weights.of_passages
        by_name: dict[str, Loss] = {}
        if "relations" in wanted:
            by_name["relations"] = self._relation_loss(module.model, batch, states, target)
        if "hidden_states" in wanted:
            by_name["hidden_states"] = mean_hidden_state_loss(module.map, states.layers, target.layers)
        if "logits" in wanted:
            by_name["logits"] = self._logits_loss(module.model, batch, states, target)
        return by_name

    def _relation_loss(self, student: Model, batch: Batch, states: States, target: States) -> Loss:
        """The relations in the last layer of both."""
        teacher = self.teacher.model
        layer = len(states.layers) - 2
        teacher_layer = len(target.layers) - 2
        heads = default_relation_heads(student.config.hidden_size, teacher.config.hidden_size)
        student_T3H = queries_keys_values(student, layer, states.layers[layer])
        teacher_T3H = queries_keys_values(teacher, teacher_layer, target.layers[teacher_layer])
        return relation_loss(student_T3H, teacher_T3H, batch.lengths, heads)

    def _logits_loss(self, student: Model, batch: Batch, states: States, target: States) -> Loss:
        """The scores of masked words, in the student's vocabulary."""
        assert batch.masked_positions is not None
        student_MV = student.word_scores(states.last_TH[batch.masked_positions])
        all_MV = self.teacher.model.word_scores(target.last_TH[batch.masked_positions])
        ids_V = torch.from_numpy(self.teacher.ids.ids_V).to(student_MV.device)
        return logits_loss(student_MV, all_MV[:, ids_V], TEMPERATURE)

    def _vector_loss(self, module: Student, batch: shared_texts.DistillationBatch) -> Loss:
        """Cosine distance of text vectors. Zero if the batch has no texts."""
        if batch.texts is None or batch.teacher_texts is None:
            zeros = [value.sum().float() * 0 for value in module.model.encoder.parameters()]
            return torch.stack(zeros).sum(), 0

        vectors_NS = encode_texts(module.model, batch.texts, self.teacher.pooling)
        return vector_distance(vectors_NS, self.teacher.vectors(batch.teacher_texts))

    def figures(self, means: Mapping[str, float]) -> dict[str, float]:
        """Mean cosine of the student's and the teacher's vectors: of texts, and of passages that only the student
        reads with masks."""
        cosines = {}
        for name, weight in self.weights.of_vectors.items():
            cosines[COSINES[name]] = 1 - means[name] / weight
        return cosines

    def predictions(self, module: nn.Module, batch: Batch, outputs: Any) -> Predictions:
        assert isinstance(module, Student)
        if not self.weights.words:
            return {}
        return super().predictions(module.model, batch, outputs.last_TH)


def relation_loss(student_T3H: Tensor, teacher_T3H: Tensor, lengths_N: Tensor, num_heads: int) -> Loss:
    """KL divergence between the self-attention relations of teacher and student (MiniLMv2, Wang 2021, section 3.1).

    The relations of queries, of keys and of values are softmax(x x^T / sqrt(D)) per relation head. Their mean over
    heads is summed over the three and over tokens.

    student_T3H, teacher_T3H: queries, keys and values; hidden sizes may differ.
    lengths_N: of the texts.
    num_heads: relation heads; divides both hidden sizes.
    """
    total = student_T3H.new_zeros((), dtype=torch.float32)
    for part in range(3):
        scores = relation_scores(student_T3H[:, part], teacher_T3H[:, part], lengths_N, num_heads)
        for bucket, student, teacher in scores:
            log_student = F.log_softmax(student, -1)
            log_teacher = F.log_softmax(teacher, -1)
            divergence = (log_teacher.exp() * (log_teacher - log_student)).sum(-1)

            # To tokens, and so without padding.
            total = total + bucket.ungather(divergence[..., None]).sum()
    return total / num_heads, len(student_T3H)


def relation_scores(
    student_TH: Tensor, teacher_TH: Tensor, lengths_N: Tensor, num_heads: int
) -> Iterator[tuple[Bucket, Tensor, Tensor]]:
    """Scores x x^T / sqrt(D) for each bucket, float32 [R, n, S, S]."""
    for bucket in build_buckets(lengths_N.tolist(), student_TH.device):
        scores = []
        for x_TH in (student_TH, teacher_TH):
            x = bucket.gather(x_TH.view(len(x_TH), num_heads, -1))
            products = (x @ x.mT).float() / math.sqrt(x.shape[-1])
            if bucket.key_mask is not None:
                products = products.masked_fill(~bucket.key_mask, MASKED)
            scores.append(products)
        yield bucket, scores[0], scores[1]


def default_relation_heads(student_size: int, teacher_size: int, least: int = 16) -> int:
    """The largest number of relation heads that divides both hidden sizes and leaves `least` dimensions a head."""
    common = math.gcd(student_size, teacher_size)
    divisors = [heads for heads in range(1, common + 1) if common % heads == 0]
    return max(heads for heads in divisors if student_size >= least * heads)


def mean_hidden_state_loss(
    student_map: nn.Module, student_layers: Sequence[Tensor], teacher_layers: Sequence[Tensor]
) -> Loss:
    """The mean over the student's layers, each beside the teacher's layer at the same fraction of the depth.

    student_map: to the teacher's width.
    student_layers, teacher_layers: states before the first layer and after each layer.
    """
    depth = len(student_layers) - 1
    teacher_depth = len(teacher_layers) - 1
    values = []
    count: int | Tensor = 0
    for index, student_TH in enumerate(student_layers):
        teacher_TH = teacher_layers[round(index * teacher_depth / depth)]
        value, count = hidden_state_loss(student_map(student_TH), teacher_TH)
        values.append(value)
    return torch.stack(values).mean(), count


def hidden_state_loss(student_TH: Tensor, teacher_TH: Tensor) -> Loss:
    """Squared error of hidden states, mean over dimensions (TinyBERT, Jiao 2020, eq. 8)."""
    errors_T = (student_TH.float() - teacher_TH.float()).square().mean(-1)
    return errors_T.sum(), len(errors_T)
