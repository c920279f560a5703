"""Texts of any length as examples: each is one window or several, whose vectors are pooled before pooler and
classifier, in training as in prediction. A training step reads some of a long text's windows, drawn anew in each pass.

Letters: N texts, W windows of them, H hidden size, C outputs.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from bothways.batch import Batch
from bothways.checkpoint.checkpoint import Checkpoint
from bothways.checkpoint.new_head import with_head
from bothways.data.columns import Table
from bothways.finetuning.task import length_line, window_policy
from bothways.inference.windows import whole_length
from bothways.log import logger
from bothways.model.model import Model
from bothways.model.pooler import reads_apart
from bothways.rng import Purpose, generator
from bothways.settings import Classify, FineTune, Regress
from bothways.tokenizer.tokenizer import Encoding

DEPTH = 2 / 3  # of an encoder's layers, where few texts are classified (docs/LOG.md, "Few examples")
FEW_TEXTS = 50  # so few leave a dev set of a few rows, by which no training can be judged
LEAST_TEXTS = 16  # a step of few texts, though of many tokens, has a noisy gradient
AT_ONCE = 8192  # tokens of which activations are kept for the backward pass; what is more is worked out once again


@dataclass(frozen=True)
class Texts:
    """Texts as windows, with what is to be predicted of each: a class [N], a number [N], or labels [N, C]."""

    windows: list[list[Encoding]]
    targets: np.ndarray
    apart: "Texts | None" = None
    """The second texts of pairs whose texts are read each by itself."""

    @staticmethod
    def of(table: Table, targets: np.ndarray, start: Checkpoint, settings: FineTune, *, apart: bool = False) -> "Texts":
        """InputError where the first text of a pair leaves too little room for the second in what the model reads.
        apart: read the texts of pairs each by itself."""
        if apart and table.pairs is not None:
            first, second = (
                Texts.of(replace(table, texts=texts, pairs=None), targets, start, settings)
                for texts in (table.texts, table.pairs)
            )
            return replace(first, apart=second)
        encodings = start.need_tokenizer().encode_many(table.texts, table.pairs)
        return Texts(window_policy(settings, start).split(encodings, table.where), targets)

    @cached_property
    def sizes(self) -> list[int]:
        """Tokens of each text (or pair), over all its windows."""
        own = [sum(map(len, parts)) for parts in self.windows]
        return [*map(sum, zip(own, self.apart.sizes, strict=True))] if self.apart else own

    @property
    def lengths(self) -> list[int]:
        """Tokens of each text (or pair), whole."""
        own = [*map(whole_length, self.windows)]
        return [*map(sum, zip(own, self.apart.lengths, strict=True))] if self.apart else own

    def drawn(self, most: int, *, seed: int, epoch: int) -> "Texts":
        """The same texts with at most so many of each one's windows (0: all), drawn for this pass."""
        if self.apart:
            alone = replace(self, apart=None).drawn(most, seed=seed, epoch=epoch)
            return replace(alone, apart=self.apart.drawn(most, seed=seed, epoch=epoch))
        if not most or all(len(parts) <= most for parts in self.windows):
            return self
        windows = []
        for row, parts in enumerate(self.windows):
            if len(parts) > most:
                places = generator(seed, Purpose.WINDOWS, epoch, row).permutation(len(parts))[:most]
                parts = [parts[place] for place in sorted(places)]
            windows.append(parts)
        return replace(self, windows=windows)

    def batch(self, rows: Sequence[int]) -> Batch:
        """All windows of these texts, sorted by length, with the text each belongs to (2 n and 2 n + 1 are the texts of
        pair n, read apart) and the texts' targets."""
        roles = [self, self.apart] if self.apart else [self]
        texts = [role.windows[row] for row in rows for role in roles]
        parts = [(window, text) for text, windows in enumerate(texts) for window in windows]
        parts.sort(key=lambda part: len(part[0]))
        return replace(
            Batch.from_encodings([window for window, _ in parts]),
            text_of_window=torch.tensor([text for _, text in parts]),
            labels=torch.from_numpy(self.targets[list(rows)]),
        )

    def describe(self) -> str:
        """How many, how long, and how many are read in windows."""
        lengths, windowed = self.lengths, sum(len(parts) > 1 for parts in self.windows)
        return (
            f"{len(lengths):,} {'pairs' if self.apart else 'texts'}, {length_line(lengths)}; {windowed} read in windows"
        )


def begin_with_head(
    start: Checkpoint, labels: tuple[str, ...], settings: Classify | Regress, *, seed: int,
    several: bool = False, few: bool = False,
    apart: bool = False,
) -> Checkpoint:  # fmt: skip
    """What training starts from: the encoder with a new head for classes, or without labels for a number.

    few: keep only the first DEPTH of the layers if the checkpoint was trained to give vectors. Its last layers
    represent the topic of a text, and few examples do not suffice to find anything else there.
    apart: keep them all; the head reads |u - v| of the vectors of a pair's texts.
    """
    asked, means = settings.pooling, start.pooling == "mean"
    pooling: str | None = asked
    if asked == "auto":
        pooling = "mean" if means else None
    if pooling == "mean" and means and start.normalized:
        pooling = "unit"
    layers, depth = None, start.model.config.num_hidden_layers
    if apart:
        pooling = "distance"
        logger.info("few examples: the classifier reads the distance of both texts' vectors, each text read by itself")
    elif few and means and pooling != "cls":
        layers = math.ceil(DEPTH * depth)
        logger.info(f"few examples: the classifier reads the first {layers} of {depth} layers")
    return with_head(
        start, "classes", labels, seed=seed, num_outputs=len(labels) or 1, multi_label=several,
        dropout=settings.dropout, pooling=pooling, near_identity=settings.linear_start, layers=layers,
    )  # fmt: skip


def text_scores(model: Model, batch: Batch, pooling: str = "mean") -> Tensor:
    """Scores of each text from its windows' vectors, pooled (mean or max), [N, C]."""
    states_NH = over_windows(first_vectors(model, batch), batch, pooling, apart=reads_apart(model.config))
    return model.text_scores("classes", states_NH)


def over_windows(x_WH: Tensor, batch: Batch, pooling: str = "mean", *, apart: bool = False) -> Tensor:
    """The mean or the maximum over the windows of each text: [W, H] -> [N, H]; of pairs read apart [N, 2, H]."""
    assert batch.text_of_window is not None and batch.labels is not None
    exact_WH = x_WH.float()  # sums in bf16 stand still after some hundred windows
    number, text_W = (2 if apart else 1) * len(batch.labels), batch.text_of_window
    if pooling == "max":
        lowest_NH = exact_WH.new_full((number, x_WH.shape[1]), -torch.inf)
        pooled_NH = lowest_NH.scatter_reduce(0, text_W[:, None].expand_as(exact_WH), exact_WH, "amax")
    else:
        sums_NH = exact_WH.new_zeros(number, x_WH.shape[1]).index_add(0, text_W, exact_WH)
        pooled_NH = sums_NH / torch.bincount(text_W, minlength=number)[:, None]
    return (pooled_NH.unflatten(0, (-1, 2)) if apart else pooled_NH).to(x_WH.dtype)


def first_vectors(model: Model, batch: Batch, at_once: int = AT_ONCE) -> Tensor:
    """The hidden state that stands for each window, [W, H], in memory that does not grow with the windows: of more than
    `at_once` tokens the activations are worked out again on the way back (Chen 2016), some windows at a time."""

    def encode(part: Batch) -> Tensor:
        return model.text_states(model(part), part)

    if batch.num_tokens <= at_once:
        return encode(batch)
    if not torch.is_grad_enabled():
        return torch.cat([encode(part) for part in parts_of(batch, at_once)])
    return torch.cat([worked_out_again(encode, part) for part in parts_of(batch, at_once)])


def worked_out_again(encode: Callable[..., Tensor], part: Batch, *given: Any) -> Tensor:
    """encode(part, *given), whose activations are not kept but worked out again on the way back, with the same dropout:
    torch remembers the random state of those devices alone whose tensors it is given, so it is given one."""
    found: Tensor = checkpoint(lambda _: encode(part, *given), part.input_ids, use_reentrant=False)
    return found


def parts_of(batch: Batch, tokens: int) -> Iterator[Batch]:
    """The same entries in the same order as batches of at most so many tokens, at least one entry each; without
    labels."""
    ends_N = batch.lengths.cumsum(0).tolist()
    bounds, begun = [0], 0
    for place, end in enumerate(ends_N):
        if end - begun > tokens and place > bounds[-1]:
            bounds.append(place)
            begun = ends_N[place - 1]
    for first, last in pairwise([*bounds, len(ends_N)]):
        run = slice(ends_N[first - 1] if first else 0, ends_N[last - 1])
        rows = (batch.input_ids[run], batch.segment_ids[run], batch.position_ids[run], batch.lengths[first:last])
        yield Batch(*rows)
