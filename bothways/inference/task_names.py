"""The task of a model: which method of Predictor its head is for."""

from collections.abc import Mapping
from typing import Literal

from bothways.checkpoint.description import Description

TaskName = Literal["answer", "classify", "embed", "fill", "is_next", "regress", "tag"]


def task_from_heads(heads: Mapping[str, int], described: Description, *, fills: bool = True) -> TaskName:
    """The name of a method of Predictor, from the heads of a model, its labels and its pooling.

    Fine-tuned heads come first. Pre-trained models with a pooling, and models whose heads no method uses, are embedding
    models. fills: whether the model reads in both directions, as filling masks needs.
    """
    if "spans" in heads:
        return "answer"
    if "tokens" in heads:
        return "tag"
    if "classes" in heads:
        return "classify" if described.labels else "regress"
    if described.pooling is None:
        if "masked_words" in heads and fills:
            return "fill"
        if "next_sentence" in heads and "masked_words" not in heads:
            return "is_next"
    return "embed"
