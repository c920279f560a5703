"""The task of a model: which method of Predictor its head is for."""

from typing import Literal

from bothways.checkpoint.checkpoint import Checkpoint

TaskName = Literal["answer", "classify", "embed", "fill", "is_next", "regress", "tag"]


def task_from_heads(checkpoint: Checkpoint) -> TaskName:
    """The name of a method of Predictor, from the checkpoint's heads, labels and pooling.

    Fine-tuned heads come first. Pre-trained models with a pooling, and models whose heads no method uses, are embedding
    models.
    """
    heads = checkpoint.model.num_outputs
    if "spans" in heads:
        return "answer"
    if "tokens" in heads:
        return "tag"
    if "classes" in heads:
        return "classify" if checkpoint.labels else "regress"
    if checkpoint.pooling is None:
        if "masked_words" in heads and checkpoint.model.config.direction == "both":
            return "fill"
        if "next_sentence" in heads and "masked_words" not in heads:
            return "is_next"
    return "embed"
