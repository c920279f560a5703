"""Frozen features: what an encoder that is not trained gives for texts and tokens, as input for linear models.

Letters: N texts, W windows of them, T tokens, H hidden size.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn

from bothways.batch import Batch
from bothways.finetuning import linear_start
from bothways.finetuning.task import outputs
from bothways.finetuning.texts import Texts, over_windows
from bothways.model.heads import ClassificationHead
from bothways.model.model import Model
from bothways.model.pooler import mean_pool, reads_apart
from bothways.model.prepacked import prepack
from bothways.rng import Purpose, generator
from bothways.settings import TextVectors

MOST_TOKENS = 60_000  # with a label, that a linear model of tokens is fitted on
MOST_WINDOWS = 8  # of a text, that a vector is pooled over
FEW_TOKENS = 200_000  # of training texts, which are read as dev and test are


class FrozenTexts:
    """Vectors of the texts of each split, float32 [N, H] by pooling: "head" (the state that the model's head reads) and
    "mean" (of all tokens), each pooled over a text's windows. One pass a split, made when it is first asked for.

    Of a long text some windows are drawn: at most MOST_WINDOWS, and if the training texts are long and many, of each of
    them as many as a training step reads. So it takes less than half an epoch or some seconds.

    model: in eval mode, on the device and in the number format that it is to compute in.
    """

    def __init__(self, model: Model, data: Mapping[str, Texts], settings: TextVectors) -> None:
        self.model, self.data, self.settings = model, data, settings
        self.computed: dict[str, dict[str, Tensor]] = {}

    def texts(self, split: str) -> Texts:
        """What is read."""
        whole = self.data[split].drawn(MOST_WINDOWS, seed=0, epoch=0)
        if split != "train" or sum(whole.sizes) <= FEW_TOKENS:
            return whole
        return whole.drawn(self.settings.train_windows, seed=0, epoch=0)

    def __getitem__(self, split: str) -> dict[str, Tensor]:
        if split not in self.computed:
            read = partial(states, encode=prepack(self.model), window_pooling=self.settings.window_pooling)
            head_NH, mean_NH = torch.stack(outputs(self.model, self.texts(split), read)).unbind(1)
            self.computed[split] = {"head": head_NH.contiguous(), "mean": mean_NH.contiguous()}
        return self.computed[split]


def states(model: Model, batch: Batch, *, encode: Callable[[Batch], Tensor], window_pooling: str) -> Tensor:
    """Of each text the state that the head reads and the mean of its tokens, [N, 2, H]; of pairs read apart those of
    both texts, [N, 2, 2, H]. encode: what gives the model's hidden states."""
    hidden_TH = encode(batch)
    both = model.text_states(hidden_TH, batch), mean_pool(hidden_TH, batch.lengths)
    apart = reads_apart(model.config)
    return torch.stack([over_windows(x_WH, batch, window_pooling, apart=apart) for x_WH in both], 1)


def fit_text_head(
    model: Model,
    frozen: FrozenTexts,
    loss: linear_start.RowLoss,
    on: Sequence[str],
    score: linear_start.Score | None = None,
) -> None:
    """Give the last layer of a model for texts the values that are best on what its encoder gives now for these splits;
    dev chooses the strength of the penalty by the score (else by the loss), if it is none of them."""
    pooler = model.eval().pooler
    assert pooler is not None

    def rows_of(split: str) -> linear_start.Rows:
        with torch.no_grad():
            return pooler(frozen[split]["head"]), torch.from_numpy(frozen.data[split].targets)

    features, targets = map(torch.cat, zip(*map(rows_of, on), strict=True))
    layer, dev = last_layer(model, "classes"), None if "dev" in on else rows_of("dev")
    linear_start.fit((features, targets), loss, layer.out_features, dev=dev, score=score).write_to(layer)


def last_layer(model: Model, head: str) -> nn.Linear:
    part = model.heads[head]
    assert isinstance(part, ClassificationHead)
    return part.output


def head_inputs(model: Model, head: str) -> Model:
    """A copy of a model in which a head returns, in float32, the features that its last linear layer reads."""
    copy = deepcopy(model).eval()
    part = copy.heads[head]
    assert isinstance(part, ClassificationHead)
    size, device = part.output.in_features, part.output.weight.device
    part.output = nn.Linear(size, size, device=device)
    with torch.no_grad():
        part.output.weight.copy_(torch.eye(size))
        part.output.bias.zero_()
    return copy


def drawn(counts: Sequence[int], most: int, *, seed: int) -> list[int]:
    """Rows drawn by the seed until their counts, such as labelled tokens, reach `most`; in order."""
    found, total = [], 0
    for row in generator(seed, Purpose.FOLDS).permutation(len(counts)).tolist():
        if total >= most:
            break
        found.append(row)
        total += counts[row]
    return sorted(found)
