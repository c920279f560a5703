"""Calls of the model: a method of Predictor for a batch of texts from several requests, with equal options."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bothways.base.errors import InputError
from bothways.inference.decisions import scores_of_questions
from bothways.inference.predictor import Predictor
from bothways.inference.reading import ReadOptions
from bothways.tasks.decide.questions import AskedQuestion
from bothways.tasks.task import Item, firsts, split_pairs
from bothways.tasks.windows import Long

ATTENTION_TOKENS = 64  # of a text at most
EXPLAIN_TOKENS = 256  # of a text (or pair) at most, which is read once for each of its words


@dataclass(frozen=True)
class Call:
    """A computation and its options. Texts of equal calls share a batch.

    compute: (model, items, reading options, the options below) -> a result per item.
    long: how long texts are read, by default as in fine-tuning, else in windows.
    options: by name.
    """

    compute: Callable[..., Sequence[Any]]
    long: Long | None = None
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, model: Predictor, items: Sequence[Item]) -> Sequence[Any]:
        reading: ReadOptions = {} if self.long is None else {"long": self.long}
        return self.compute(model, items, reading, **dict(self.options))


def embed(model: Predictor, items: Sequence[Item], reading: ReadOptions, *, normalize: bool) -> Sequence[Any]:
    """A vector per text, float32 [H]."""
    return [*model.embed(firsts(items), normalize=normalize, **reading)]


def embed_all(model: Predictor, items: Sequence[Item], reading: ReadOptions) -> Sequence[Any]:
    """A vector per token of each text, float32 [S, H]."""
    return model.hidden_states(firsts(items), **reading)


def question_scores(
    model: Predictor, items: Sequence[Item], reading: ReadOptions, *, questions: tuple[AskedQuestion, ...]
) -> Sequence[Any]:
    """The score of each statement of each question for each text, float32 [K]."""
    return [*scores_of_questions(model.encoder, firsts(items), questions, reading)]


def explain(model: Predictor, items: Sequence[Item], reading: ReadOptions, *, label: str | None) -> Sequence[Any]:
    """The explanation of each text (or pair), as JSON."""
    found = model.explain(*split_pairs(items), label=label, **reading)
    return [explanation.to_json() for explanation in found]


def attention(
    model: Predictor, items: Sequence[Item], reading: ReadOptions, *, layer: int | None, head: int | None
) -> Sequence[Any]:
    """The tokens of each text, and the weights of a layer and head.

    model: computes them.
    items: texts.
    reading: has no effect; the texts are short.
    layer, head: counted from 0; None: those in which words read most from single words far off.

    InputError if there is no such layer or head, or too many tokens.
    """
    results = []
    for text in firsts(items):
        encoding = model.tokenizer.encode(text)
        num_tokens = len(encoding)
        if num_tokens > ATTENTION_TOKENS:
            raise InputError(
                f"the text has {num_tokens} tokens; attention is for at most {ATTENTION_TOKENS}, shorten it"
            )

        maps = model.attention(text)
        # A number that does not exist is refused before one is chosen beside it.
        maps.of_head(layer or 0, head or 0)
        # Layer 0 and head 0 of most models look at [CLS] and [SEP], which shows nothing (docs/LOG.md, "/attention").
        is_special = [sequence is None for sequence in encoding.sequence_ids]
        chosen_layer, chosen_head = maps.clearest_head(is_special, layer=layer, head=head)

        results.append(
            {
                "tokens": maps.tokens,
                "weights": maps.of_head(chosen_layer, chosen_head).tolist(),
                "layer": chosen_layer,
                "head": chosen_head,
            }
        )
    return results
