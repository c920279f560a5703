"""Losses as (sum, count): masked language model, classification, regression; and objectives, which compute them.

Sums and counts of micro-batches and processes add up exactly.

Letters: M masked positions, N texts, C classes, E embedding size, V vocabulary.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch.nn.functional as F
from torch import Tensor, nn

from bothways.model.model import Model
from bothways.model.vocabulary_scores import WordCandidates, candidate_cross_entropy, linear_cross_entropy
from bothways.text.batch import Batch

Loss = tuple[Tensor, int | Tensor]  # a count in the memory of the GPU stays there
Losses = Callable[[Any, Batch], Mapping[str, Loss]]  # (module, batch) -> losses by name
Counts = Callable[[Batch], Mapping[str, int]]  # number of targets of each loss


def masked_lm_loss(
    x_ME: Tensor,
    table_VE: Tensor,
    bias_V: Tensor,
    labels_M: Tensor,
    candidates: WordCandidates | None = None,
) -> Loss:
    """Cross-entropy of vocabulary scores at masked positions (Devlin 2018, section 3.1). Zero if nothing is masked.

    x_ME: output of the head at the masked positions.
    table_VE, bias_V: the output layer, whose weights are the embeddings of the words.
    labels_M: the words that were masked.
    candidates: that the softmax runs over, among them the masked words; None: all words.
    """
    if not len(labels_M):
        # Keeps every parameter in the graph: sharded processes must agree on which ones have gradients.
        return (x_ME.sum() + table_VE.sum() + bias_V.sum()) * 0.0, 0

    if candidates is None:
        return linear_cross_entropy(x_ME, table_VE, bias_V, labels_M), len(labels_M)
    return candidate_cross_entropy(x_ME, table_VE, bias_V, candidates), len(labels_M)


def classification_loss(scores_NC: Tensor, labels_N: Tensor) -> Loss:
    """Cross-entropy of class scores, in float32. Next sentence is the case C = 2 (0: follows, 1: random)."""
    total = F.cross_entropy(scores_NC.float(), labels_N, reduction="sum")
    return total, len(labels_N)


def mse_loss(scores_N: Tensor, labels_N: Tensor) -> Loss:
    """Squared error, for regression."""
    total = F.mse_loss(scores_N.float(), labels_N.float(), reduction="sum")
    return total, len(labels_N)


# --- of a teacher ----------------------------------------------------------------------------------------------------


def vector_distance(student_NH: Tensor, teacher_NH: Tensor) -> Loss:
    """1 - cosine, for hidden states (DistilBERT, Sanh 2019, section 2) and for text vectors."""
    cosines_N = F.cosine_similarity(student_NH.float(), teacher_NH.float(), dim=-1)
    return (1 - cosines_N).sum(), len(cosines_N)


def logits_loss(student_MV: Tensor, teacher_MV: Tensor, temperature: float) -> Loss:
    """T^2 KL(teacher || student) of softened word probabilities (Hinton 2015, section 2; Sanh 2019, section 2).

    student_MV, teacher_MV: logits over the vocabulary.
    temperature: divides both; a higher one weighs improbable words more.
    """
    student_MV = F.log_softmax(student_MV.float() / temperature, -1)
    teacher_MV = F.log_softmax(teacher_MV.float() / temperature, -1)
    divergence = F.kl_div(student_MV, teacher_MV, log_target=True, reduction="sum")

    # Softened gradients are smaller by 1 / T^2 (Hinton 2015).
    return divergence * temperature**2, len(student_MV)


class Objective(Protocol):
    """How a model is trained, independent of data and schedule."""

    def module(self, model: Model, seed: int) -> nn.Module:
        """The module to train, which contains the model. seed: for weights outside the model."""
        ...

    def counts(self, batch: Batch) -> Mapping[str, int]:
        """Number of targets of each loss, from the batch alone."""
        ...

    def forward(self, module: nn.Module, batch: Batch) -> Any:
        """Hidden states [T, H], or other outputs that `losses` needs."""
        ...

    def losses(self, module: nn.Module, batch: Batch, outputs: Any) -> Mapping[str, Loss]:
        """Each loss by name, as (sum, count)."""
        ...


def forward_losses(objective: Objective) -> Losses:
    """Forward pass and losses as one function of (module, batch), for the training loop."""

    def losses(module: Any, batch: Batch) -> Mapping[str, Loss]:
        outputs = objective.forward(module, batch)
        return objective.losses(module, batch, outputs)

    return losses
