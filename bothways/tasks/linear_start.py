"""Heads that are fitted to the vectors of texts of a frozen encoder.

Letters: N texts, W windows of them, T tokens, H hidden size.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from bothways.model.config import encodes_separately
from bothways.model.heads import mean_pool
from bothways.model.linear import linear_head
from bothways.model.model import Model
from bothways.model.prepacked import prepack
from bothways.tasks.batch_plan import compute_outputs
from bothways.tasks.forward import last_layer, pool_over_windows
from bothways.tasks.text_examples import TRAIN_WINDOWS, TextExamples
from bothways.text.batch import Batch

MAX_WINDOWS = 8  # windows of a text to pool over
FEW_TOKENS = 200_000  # training texts with fewer tokens are read with as many windows as dev and test


class FrozenFeatures:
    """Vectors of the texts of a split, computed on first use: features[split] has float32 [N, H] by pooling.

    "head" is the hidden state that the model's head reads, "mean" the mean of all tokens, each pooled over windows.

    At most MAX_WINDOWS windows of a text are read, and of large training sets only as many as in a training step, so
    that computing the features takes less than half an epoch, or a few seconds.

    model: in eval mode, on the device and in the dtype of the computation.
    """

    def __init__(self, model: Model, data: Mapping[str, TextExamples]) -> None:
        self.data = data
        self.num_layers = model.config.num_hidden_layers
        self.model: Model | None = model  # until the features of all splits are there
        self._computed: dict[str, dict[str, Tensor]] = {}

    def sample(self, split: str) -> TextExamples:
        """The windows that are read."""
        sample = self.data[split].sample_windows(MAX_WINDOWS, seed=0, epoch=0)
        if split != "train" or sum(sample.sizes) <= FEW_TOKENS:
            return sample
        return sample.sample_windows(TRAIN_WINDOWS, seed=0, epoch=0)

    def __getitem__(self, split: str) -> dict[str, Tensor]:
        if split not in self._computed:
            assert self.model is not None
            forward = partial(pool_states, encode=prepack(self.model))
            states_N2H = np.stack(compute_outputs(self.model, self.sample(split), forward))
            head_NH, mean_NH = torch.from_numpy(states_N2H).unbind(1)
            self._computed[split] = {"head": head_NH.contiguous(), "mean": mean_NH.contiguous()}
            if self._computed.keys() >= self.data.keys():
                self.model = None
        return self._computed[split]


def pool_states(model: Model, batch: Batch, *, encode: Callable[[Batch], Tensor]) -> Tensor:
    """The state read by the head and the mean of all tokens, for each text: [N, 2, H]; for separate pairs [N, 2, 2, H].

    encode: computes the model's hidden states.
    """
    hidden_TH = encode(batch)
    states = model.text_states(hidden_TH, batch), mean_pool(hidden_TH, batch.lengths)
    separate = encodes_separately(model.config)
    return torch.stack([pool_over_windows(x_WH, batch, separate=separate) for x_WH in states], 1)


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
    layer = last_layer(model, "classes")
    dev = None if "dev" in splits else read_rows("dev")
    linear_head.fit((x_NH, targets), loss, layer.out_features, groups=units, dev=dev, score=score).write_to(layer)
