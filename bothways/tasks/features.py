"""Frozen features: what an encoder that is not trained gives for texts and tokens, as input for linear models.

Letters: N texts, W windows of them, T tokens, H hidden size.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from bothways.batch import Batch
from bothways.data.draws import Purpose, generator
from bothways.model.heads import Classes
from bothways.model.model import Model
from bothways.model.standing import mean_of_texts
from bothways.tasks.task import outputs
from bothways.tasks.texts import Texts, mean_of_windows

MOST_TOKENS = 60_000  # with a label, that a linear model of tokens is fitted on


class FrozenTexts:
    """Vectors of the texts of each split, float32 [N, H] by pooling: "head" (the state that the model's head reads) and
    "mean" (of all tokens), averaged over a text's windows. One pass a split, made when it is first asked for.

    model: in eval mode, on the device and in the number format that it is to compute in.
    """

    def __init__(self, model: Model, data: Mapping[str, Texts]) -> None:
        self.model, self.data = model, data
        self.computed: dict[str, dict[str, Tensor]] = {}

    def __getitem__(self, split: str) -> dict[str, Tensor]:
        if split not in self.computed:
            head_NH, mean_NH = torch.stack(outputs(self.model, self.data[split], states)).unbind(1)
            self.computed[split] = {"head": head_NH.contiguous(), "mean": mean_NH.contiguous()}
        return self.computed[split]


def states(model: Model, batch: Batch) -> Tensor:
    """Of each text the state that the head reads and the mean of its tokens, [N, 2, H]."""
    hidden_TH = model(batch)
    head_WH, mean_WH = model.text_states(hidden_TH, batch), mean_of_texts(hidden_TH, batch.lengths)
    return mean_of_windows(torch.stack([head_WH, mean_WH], 1), batch)


def head_inputs(model: Model, head: str) -> Model:
    """A copy of a model in which a head returns, in float32, the features that its last linear layer reads."""
    copy = deepcopy(model).eval()
    part = copy.heads[head]
    assert isinstance(part, Classes)
    size, device = part.output.in_features, part.output.weight.device
    part.output = nn.Linear(size, size, device=device)
    with torch.no_grad():
        part.output.weight.copy_(torch.eye(size))
        part.output.bias.zero_()
    return copy


def drawn(counts: Sequence[int], most: int, *, seed: int) -> list[int]:
    """Rows drawn by the seed until their counts, such as labelled tokens, reach `most`; in order, all if they do not."""
    found, total = [], 0
    for row in generator(seed, Purpose.FOLDS).permutation(len(counts)).tolist():
        if total >= most:
            break
        found.append(row)
        total += counts[row]
    return sorted(found)
