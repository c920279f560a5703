"""The head of a tagger that is fitted to the states of a frozen encoder.

Letters: T tokens, M of them with a label, H hidden size, C outputs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bothways.model.linear import linear_head
from bothways.model.losses import classification_loss
from bothways.model.model import Model
from bothways.tasks.arrays import NO_LABEL
from bothways.tasks.batch_plan import compute_outputs
from bothways.tasks.tag.examples import TaggedWindows
from bothways.tasks.training_task import sample_rows
from bothways.text.batch import Batch

MAX_LABELLED_TOKENS = 60_000  # for fitting a linear model of tokens


def labelled_token_scores(model: Model, batch: Batch) -> Sequence[Tensor]:
    """Scores of the labelled tokens of each window, [M, C]."""
    assert batch.labels is not None
    is_labelled_T = batch.labels != NO_LABEL
    counts = [int(part.sum()) for part in is_labelled_T.split(batch.lengths.tolist())]
    return model.token_scores("tokens", model(batch)[is_labelled_T]).split(counts)


def fit_linear_head(
    features: Model, data: Mapping[str, TaggedWindows], documents: Sequence[Any], num_tags: int
) -> linear_head.LinearHead:
    """The head for labelled tokens of train.

    features: a model without its last layer. documents: the documents of train.
    """
    rows = {}
    groups = list[str]()
    for split, max_tokens in (("train", MAX_LABELLED_TOKENS), ("dev", linear_head.MAX_ROWS)):
        windows = data[split].windows
        sampled = sample_rows([len(window.labels) for window in windows], max_tokens, seed=0)
        examples = TaggedWindows([windows[row] for row in sampled])
        labels_M = torch.from_numpy(np.concatenate([window.labels for window in examples.windows]))
        features_MH = np.concatenate(compute_outputs(features, examples, labelled_token_scores))
        rows[split] = torch.from_numpy(features_MH), labels_M
        if split == "train":
            groups = [documents[row] for row in sampled for _ in windows[row].labels]
    return linear_head.fit(rows["train"], classification_loss, num_tags, groups=groups, dev=rows["dev"])
