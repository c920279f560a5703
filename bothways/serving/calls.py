"""What is computed for a batch: a method of Predictor for texts of several requests, with equal options."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bothways.inference.predictor import Predictor
from bothways.inference.reading import ReadOptions
from bothways.serving.attention_weights import attention_weights
from bothways.tasks.windows import Long

Item = tuple[str, str | None]  # a text and perhaps its pair


@dataclass(frozen=True)
class Call:
    """A computation and its options. Texts of equal calls share a batch. long: how long texts are read, by default as
    in fine-tuning, else in windows."""

    compute: Callable[..., Sequence[Any]]  # (model, items, reading options, the options below) -> a result per item
    long: Long | None = None
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, model: Predictor, items: Sequence[Item]) -> Sequence[Any]:
        reading: ReadOptions = {} if self.long is None else {"long": self.long}
        return self.compute(model, items, reading, **dict(self.options))


def embed(model: Predictor, items: Sequence[Item], reading: ReadOptions, *, normalize: bool) -> Sequence[Any]:
    """A vector per text, float32 [H]."""
    return [*model.embed(_firsts(items), normalize=normalize, **reading)]


def embed_all(model: Predictor, items: Sequence[Item], reading: ReadOptions) -> Sequence[Any]:
    """A vector per token of each text, float32 [S, H]."""
    return model.hidden_states(_firsts(items), **reading)


def class_scores(model: Predictor, items: Sequence[Item], reading: ReadOptions) -> Sequence[Any]:
    """The outputs of the head for classes, before a softmax or sigmoid, float32 [C] per text (or pair)."""
    parts = model.backend.text_scores("classes", _firsts(items), _seconds(items), reading)
    return [*np.concatenate([*parts])]


def tag(model: Predictor, items: Sequence[Item], reading: ReadOptions) -> Sequence[Any]:
    return [[asdict(entity) for entity in entities] for entities in model.tag(_firsts(items), **reading)]


def answer(model: Predictor, items: Sequence[Item], reading: ReadOptions, *, top: int) -> Sequence[Any]:
    answers = model.answer(_firsts(items), _seconds(items) or [], top=top, **reading)
    return [
        [{"answer": one.text, "start": one.start, "end": one.end, "score": one.score} for one in best]
        for best in answers
    ]


def fill(model: Predictor, items: Sequence[Item], reading: ReadOptions, *, top: int) -> Sequence[Any]:
    return [[[*map(asdict, mask)] for mask in masks] for masks in model.fill(_firsts(items), top=top, **reading)]


def is_next(model: Predictor, items: Sequence[Item], reading: ReadOptions) -> Sequence[Any]:
    scores = model.is_next(_firsts(items), _seconds(items) or [], **reading)
    return [{"score": score} for score in scores.tolist()]


def attention(model: Predictor, items: Sequence[Item], reading: ReadOptions, *, layer: int, head: int) -> Sequence[Any]:
    return [attention_weights(model, text, layer=layer, head=head) for text, _ in items]


def _firsts(items: Sequence[Item]) -> list[str]:
    return [text for text, _ in items]


def _seconds(items: Sequence[Item]) -> list[str] | None:
    """The second texts; None if there are none. Requests do not mix pairs and single texts."""
    return [pair for _, pair in items if pair is not None] or None
