"""Forward passes that tasks share: from a batch to scores or vectors of its texts and windows; last layers of heads.

Letters: N texts, W windows of them, T tokens, H hidden size, C outputs.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bothways.base.errors import InputError
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.config import encodes_separately
from bothways.model.heads import ClassificationHead
from bothways.model.model import Model
from bothways.model.parameters import no_init
from bothways.model.rows import read_states, text_rows
from bothways.tasks.pooling import pool_windows
from bothways.tasks.text_examples import MAX_TOKENS
from bothways.text.batch import Batch

MAX_LISTED = 5  # labels in an error message


def last_layer(model: Model, head: str) -> nn.Linear:
    part = model.heads[head]
    assert isinstance(part, ClassificationHead)
    return part.output


def without_last_layer(model: Model, head: str) -> Model:
    """A copy whose head returns, in float32, the features that its last layer reads."""
    copy = deepcopy(model).eval()
    part = copy.heads[head]
    assert isinstance(part, ClassificationHead)
    size = part.output.in_features

    with no_init():
        part.output = nn.Linear(size, size, device=part.output.weight.device)
    with torch.no_grad():
        part.output.weight.copy_(torch.eye(size))
        part.output.bias.zero_()
    return copy


def with_labels(teacher: Checkpoint, head: str, names: Sequence[str], source: object) -> Checkpoint:
    """The teacher with the outputs of its head in the order of these names. InputError unless they are its labels."""
    labels_by_owner = {
        "the teacher": {*teacher.labels} - {*names},
        "the training data": {*names} - {*teacher.labels},
    }
    differences: list[str] = []
    for owner, labels in labels_by_owner.items():
        if labels:
            differences.append(f"only {owner} has {', '.join(sorted(labels)[:MAX_LISTED])}")
    if differences:
        raise InputError(f"{source}: its labels are not those of the training data: {'; '.join(differences)}")

    order = [teacher.labels.index(name) for name in names]
    model = deepcopy(teacher.model)
    layer = last_layer(model, head)
    layer.weight = nn.Parameter(layer.weight.detach()[order])
    layer.bias = nn.Parameter(layer.bias.detach()[order])
    return replace(teacher, model=model, labels=tuple(names))


def text_scores(model: Model, batch: Batch) -> Tensor:
    """Scores of each text, [N, C]. pooling: over the windows of a text."""
    x_WH = window_vectors(model, batch)
    x_NH = pool_over_windows(x_WH, batch, separate=encodes_separately(model.config))
    return model.text_scores("classes", x_NH)


def pool_over_windows(x_WH: Tensor, batch: Batch, *, separate: bool = False) -> Tensor:
    """Mean or maximum over the windows of each text: [W, H] -> [N, H]; for separate texts of pairs [N, 2, H]."""
    assert batch.text_of_window is not None and batch.labels is not None
    num_texts = (2 if separate else 1) * len(batch.labels)
    pooled_NH = pool_windows("mean", x_WH, batch.text_of_window, num_texts).to(x_WH.dtype)
    return pooled_NH.unflatten(0, (-1, 2)) if separate else pooled_NH


def window_vectors(model: Model, batch: Batch, max_tokens: int = MAX_TOKENS) -> Tensor:
    """The pooled hidden state of each window, [W, H]; in a batch of more than max_tokens with checkpointing."""

    def encode(part: Batch) -> Tensor:
        return model.text_states(read_states(model, part, text_rows(model.config, part)), part)

    if batch.num_tokens <= max_tokens:
        return encode(batch)
    return torch.cat([checkpointed(encode, part) for part in split_batch(batch, max_tokens)])


def checkpointed(encode: Callable[..., Tensor], batch: Batch, *arguments: Any) -> Tensor:
    """encode(batch, *arguments) without storing activations; the backward pass, if there is one, recomputes them.

    Dropout is the same both times, since torch restores the random state. It does so only for the devices of tensors
    that are direct arguments, so input_ids are passed although unused.
    """
    if not torch.is_grad_enabled():
        return encode(batch, *arguments)
    result: Tensor = checkpoint(lambda _: encode(batch, *arguments), batch.input_ids, use_reentrant=False)
    return result


def split_batch(batch: Batch, max_tokens: int) -> Iterator[Batch]:
    """The windows of a batch, in order, as batches of at most max_tokens (or of one longer window), without labels."""
    ends = batch.lengths.cumsum(0).tolist()
    bounds = [0]
    start = 0
    for row, end in enumerate(ends):
        if end - start > max_tokens and row > bounds[-1]:
            bounds.append(row)
            start = ends[row - 1]

    for first, last in pairwise([*bounds, len(ends)]):
        tokens = slice(ends[first - 1] if first else 0, ends[last - 1])
        yield Batch(
            input_ids=batch.input_ids[tokens],
            segment_ids=batch.segment_ids[tokens],
            position_ids=batch.position_ids[tokens],
            lengths=batch.lengths[first:last],
        )
