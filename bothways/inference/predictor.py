"""Predictor: a loaded model that classifies, tags, answers, fills masks and embeds texts."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from bothways.errors import InputError
from bothways.inference.label_choice import LabelChoice
from bothways.inference.masked_words import MaskedWords
from bothways.inference.passage_answers import PassageAnswers
from bothways.inference.reading import Texts
from bothways.inference.text_scores import TextScores
from bothways.inference.text_vectors import TextVectors
from bothways.inference.word_tags import WordTags
from bothways.tasks.arguments import whole_number

Result = TypeVar("Result")
STREAM_ROWS = 1024  # texts that `stream` reads ahead and computes together


class Predictor(TextVectors, TextScores, LabelChoice, MaskedWords, WordTags, PassageAnswers):
    """A loaded model. `task` is the name of the method for its head; `stream` applies a method to endless input.

    Every method takes one text and returns one result, or takes many texts (a list, an iterator, a NumPy array, a
    pandas or Arrow column) and returns a result for each. All options are keywords (see ReadOptions).

    The result for a text does not depend on the order, the batch or the other texts: in float32 to within 1e-5; in
    bfloat16 on a CPU with AVX512-BF16 bit for bit for vectors and to within 1e-6 for probabilities, measured on all
    families. Other CPUs and GPUs may sum products in a different order for a different batch; in bfloat16 and float16
    this can change a component of a unit vector by about 0.002 and a probability by about 0.05. Equal texts of one call
    always have equal results, since they are computed once.

    Threads may share a Predictor. It can be pickled and sent to processes that are started by spawn or forkserver. A
    forked process may use a model that was loaded before the fork, unless torch has already computed with several
    threads (any method below does): then it hangs, as always with torch. Load the model after the fork, or use spawn.
    """

    def stream(
        self,
        method: Callable[..., Iterable[Result]],
        texts: Texts,
        pairs: Texts | None = None,
        *,
        rows: int = STREAM_ROWS,
        **options: Any,
    ) -> Iterator[Result]:
        """Yield the results of a method for texts from an iterator that may never end, one by one, in order.

        method: a method of this model, such as `model.embed`; options are passed to it. rows: number of texts that are
        read from the iterator and computed together; with 1, each result is available as soon as its text arrives.

            for vector in model.stream(model.embed, lines, pooling="cls"): ...
            for answers in model.stream(model.answer, questions, passages, top=3): ...
        """
        rows = whole_number("rows", rows, 1)
        for name, values in (("texts", texts), ("pairs", pairs)):
            if isinstance(values, str):
                raise InputError(f"{name} is one string; give an iterator of {name}")
        return _stream(method, iter(texts), None if pairs is None else iter(pairs), rows, options)


def _stream(
    method: Callable[..., Iterable[Result]],
    texts: Iterator[str],
    pairs: Iterator[str] | None,
    rows: int,
    options: dict[str, Any],
) -> Iterator[Result]:
    while block := [*islice(texts, rows)]:
        if pairs is None:
            yield from method(block, **options)
        else:
            yield from method(block, [*islice(pairs, len(block))], **options)
