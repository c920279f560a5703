"""Initial student: kept layers of the teacher, or the teacher projected to another width.

Letters: V entries of the student's vocabulary, H hidden size of the teacher, S of the student.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from bothways.base.errors import InputError, flag
from bothways.base.log import logger
from bothways.model.checkpoint.changes.cut import check_layers, copy_weights
from bothways.model.checkpoint.changes.width import check_can_project, project
from bothways.model.checkpoint.contents import Checkpoint, new_model, with_dropout
from bothways.model.config import EncoderConfig
from bothways.model.heads import MaskedLMHead
from bothways.model.model import Model
from bothways.text.batch import Batch
from bothways.text.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class StudentPlan:
    """How the student is made from the teacher.

    layers: indices of layers of the teacher, one for each layer of the student.
    hidden_size: of the student.
    intermediate_size: of the student's feed-forward layers.
    """

    layers: tuple[int, ...]
    hidden_size: int
    intermediate_size: int

    def config(self, teacher: EncoderConfig, tokenizer: Tokenizer) -> EncoderConfig:
        """The config of the student, whose heads are as wide as the teacher's; without dropout."""
        return with_dropout(teacher, 0.0).replace(
            num_hidden_layers=len(self.layers),
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_attention_heads=self.hidden_size // teacher.head_size,
            vocab_size=len(tokenizer),
            pad_token_id=tokenizer.pad_id,
        )

    def keeps_width(self, teacher: EncoderConfig) -> bool:
        """Whether the student is as wide as the teacher, so that weights can be copied."""
        return (self.hidden_size, self.intermediate_size) == (teacher.hidden_size, teacher.intermediate_size)


def plan_student(
    teacher: EncoderConfig, *, keep_layers: Sequence[int], num_layers: int | None, hidden_size: int | None
) -> StudentPlan:
    """Check the sizes of the student, and fill in the sizes that are not set.

    teacher: the teacher's config.
    keep_layers: indices of the teacher's layers to keep; empty: `num_layers` evenly spaced layers.
    num_layers: of the student; None: as many as the teacher has.
    hidden_size: of the student; None: as wide as the teacher.

    InputError if the teacher cannot be cut or projected to these sizes.
    """
    depth = teacher.num_hidden_layers
    check_layers(keep_layers, depth, "teacher")
    count = len(keep_layers) or num_layers or depth
    if count > depth:
        raise InputError(f"layers ({count}) is more than the {depth} of the teacher")

    # A multiple of the head size, since the student keeps the teacher's size of heads and has fewer of them.
    hidden = hidden_size or teacher.hidden_size
    if hidden > teacher.hidden_size or hidden % teacher.head_size:
        raise InputError(
            f"hidden_size ({hidden}) must be a multiple of the teacher's head size {teacher.head_size}, at most "
            f"{teacher.hidden_size}"
        )
    inner = teacher.intermediate_size * hidden // teacher.hidden_size

    # From the first layer to the last; a single layer is the first.
    evenly_spaced = [round(index * (depth - 1) / max(1, count - 1)) for index in range(count)]
    plan = StudentPlan(
        layers=tuple(keep_layers or evenly_spaced),
        hidden_size=hidden,
        intermediate_size=inner,
    )

    if not plan.keeps_width(teacher):
        check_can_project(teacher)
    if count < depth and (teacher.full_attention_every > 1 or teacher.num_layer_groups):
        raise InputError(
            f"the layers of this teacher differ in attention or share weights; keep all {depth}, or name another start "
            f"with {flag('student')}"
        )
    return plan


def build_student(
    teacher: Checkpoint,
    plan: StudentPlan,
    tokenizer: Tokenizer,
    ids_V: Tensor,
    heads: Mapping[str, int],
    sample: Sequence[Batch],
    *,
    seed: int,
) -> tuple[Checkpoint, Tensor | None]:
    """The student, and the basis [H, S] of its hidden states in the teacher's; None if the widths are the same.

    teacher: the model that the student is made from.
    plan: layers and sizes of the student.
    tokenizer: of the student.
    ids_V: the teacher's ids of the student's vocabulary.
    heads: names of the student's heads, with their numbers of outputs; 0: the vocabulary.
    sample: batches of the student's ids, to fit a projection.
    seed: of weights that the teacher does not have.
    """
    source = teacher.model
    config = plan.config(source.config, tokenizer)

    # A student of text vectors alone has no head, and keeps the pooler if the teacher has one.
    has_pooler = not heads and source.pooler is not None
    model = new_model(config, heads, seed, pooler=has_pooler)
    if "masked_words" in heads and "masked_words" not in source.heads:
        start_head_at_words(model)

    origin = f"layers {', '.join(map(str, plan.layers))} of the teacher"
    basis_HS = None
    if plan.keeps_width(source.config):
        copy_weights(source, model, plan.layers, ids_V)
    else:
        basis_HS = project(source.eval(), model.eval(), plan.layers, ids_V, sample)
        origin += f", projected from {source.config.hidden_size} to {config.hidden_size} dimensions"
    logger.info(f"the student starts from {origin}")

    # The student has no task yet: fields that describe the task of the teacher are emptied.
    student = replace(
        teacher,
        model=model,
        tokenizer=tokenizer,
        labels=(),
        multi_label=False,
        metadata={},
        words=None,
        scope=None,
        statements=None,
    )
    return student, basis_HS


def start_head_at_words(model: Model) -> None:
    """Start a new head of masked words at the identity: a hidden state near a word's vector then predicts the word.

    model: is changed, in place.
    """
    head = model.heads["masked_words"]
    assert isinstance(head, MaskedLMHead)
    with torch.no_grad():
        nn.init.eye_(head.transform.weight)
        if head.transform.bias is not None:
            nn.init.zeros_(head.transform.bias)
