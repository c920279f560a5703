"""Frozen features: vectors of texts and tokens from an encoder that is not trained.

Letters: N texts, W windows of them, T tokens, H hidden size.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn

from bothways.batch import Batch
from bothways.config import encodes_separately
from bothways.finetuning.task import compute_outputs
from bothways.finetuning.text_examples import TextExamples, pool_over_windows
from bothways.linear import linear_head
from bothways.model.heads import ClassificationHead
from bothways.model.model import Model
from bothways.model.pooler import mean_pool
from bothways.model.prepacked import prepack
from bothways.rng import Purpose, generator

MAX_LABELLED_TOKENS = 60_000  # for fitting a linear model of tokens
MAX_WINDOWS = 8  # windows of a text to pool over
FEW_TOKENS = 200_000  # training texts with fewer tokens are read with as many windows as dev and test


class FrozenFeatures:
    """Vectors of the texts of a split, computed on first use: features[split] has float32 [N, H] by pooling.

    "head" is the hidden state that the model's head reads, "mean" the mean of all tokens, each pooled over windows.

    At most MAX_WINDOWS windows of a text are read, and of large training sets only as many as in a training step, so
    that computing the features takes less than half an epoch, or a few seconds.

    model: in eval mode, on the device and in the dtype of the computation. train_windows: windows of a text in a
    training step. window_pooling: "mean" or "max", over the windows of a text.
    """

    def __init__(self, model: Model, data: Mapping[str, TextExamples], train_windows: int, window_pooling: str) -> None:
        self.data, self.train_windows, self.window_pooling = data, train_windows, window_pooling
        self.num_layers = model.config.num_hidden_layers
        self.model: Model | None = model  # until the features of all splits are there
        self._computed: dict[str, dict[str, Tensor]] = {}

    def sample(self, split: str) -> TextExamples:
        """The windows that are read."""
        sample = self.data[split].sample_windows(MAX_WINDOWS, seed=0, epoch=0)
        if split != "train" or sum(sample.sizes) <= FEW_TOKENS:
            return sample
        return sample.sample_windows(self.train_windows, seed=0, epoch=0)

    def __getitem__(self, split: str) -> dict[str, Tensor]:
        if split not in self._computed:
            assert self.model is not None
            forward = partial(pool_states, encode=prepack(self.model), window_pooling=self.window_pooling)
            head_NH, mean_NH = torch.stack(compute_outputs(self.model, self.sample(split), forward)).unbind(1)
            self._computed[split] = {"head": head_NH.contiguous(), "mean": mean_NH.contiguous()}
            if self._computed.keys() >= self.data.keys():
                self.model = None
        return self._computed[split]


def pool_states(model: Model, batch: Batch, *, encode: Callable[[Batch], Tensor], window_pooling: str) -> Tensor:
    """The state read by the head and the mean of all tokens, for each text: [N, 2, H]; for separate pairs [N, 2, 2, H].

    encode: computes the model's hidden states.
    """
    hidden_TH = encode(batch)
    states = model.text_states(hidden_TH, batch), mean_pool(hidden_TH, batch.lengths)
    separate = encodes_separately(model.config)
    return torch.stack([pool_over_windows(x_WH, batch, window_pooling, separate=separate) for x_WH in states], 1)


def fit_text_head(
    model: Model,
    features: FrozenFeatures,
    loss: linear_head.RowLoss,
    splits: Sequence[str],
    score: linear_head.Score | None = None,
) -> None:
    """Fit the last layer of a text head, in place, to the features of these splits.

    The penalty is selected on dev by the score (by the loss if there is no score), or in cross-validation if dev is
    among the splits.
    """
    pooler = model.eval().pooler
    assert pooler is not None

    def read_rows(split: str) -> linear_head.Rows:
        with torch.no_grad():
            return pooler(features[split]["head"]), torch.from_numpy(features.data[split].targets)

    x_NH, targets = map(torch.cat, zip(*map(read_rows, splits), strict=True))
    units = [unit for split in splits for unit in features.data[split].units]
    layer, dev = last_layer(model, "classes"), None if "dev" in splits else read_rows("dev")
    linear_head.fit((x_NH, targets), loss, layer.out_features, groups=units, dev=dev, score=score).write_to(layer)


def last_layer(model: Model, head: str) -> nn.Linear:
    part = model.heads[head]
    assert isinstance(part, ClassificationHead)
    return part.output


def without_last_layer(model: Model, head: str) -> Model:
    """A copy whose head returns, in float32, the features that its last layer reads."""
    copy = deepcopy(model).eval()
    part = copy.heads[head]
    assert isinstance(part, ClassificationHead)
    size, device = part.output.in_features, part.output.weight.device
    part.output = nn.Linear(size, size, device=device)
    with torch.no_grad():
        part.output.weight.copy_(torch.eye(size))
        part.output.bias.zero_()
    return copy


def sample_rows(counts: Sequence[int], target: int, *, seed: int) -> list[int]:
    """Random rows, in order, whose counts (such as labelled tokens) add up to at least `target`, or all rows."""
    rows, total = [], 0
    for row in generator(seed, Purpose.FOLDS).permutation(len(counts)).tolist():
        if total >= target:
            break
        rows.append(row)
        total += counts[row]
    return sorted(rows)
