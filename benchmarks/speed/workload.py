"""Benchmark workloads: a method, and texts of exact lengths or the user's own."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.speed.options import Options
from benchmarks.speed.peer_files import Work
from bothways.base.errors import InputError
from bothways.inference.predictor import Predictor
from bothways.model.config import encodes_separately
from bothways.tasks import MASK, TASKS
from bothways.text.data.examples import read_table
from bothways.text.data.model_inputs import resolve_columns
from bothways.text.data.squad import read_squad
from bothways.text.rows.text_files import file_type
from bothways.text.tokenizer.tokenizer import Tokenizer

QUESTION = "What is it about?"  # asked about every passage
OWN, MAX_USER_TEXTS = "your texts", 1000  # a random sample of at most 1000
TEXTS_PER_LENGTH = 512  # distinct texts per length, so that no system computes the same text repeatedly


@dataclass(frozen=True)
class Method:
    """The method of a model's task.

    peers: the output that comparable peers compute; None if there are none. frame: tokens of an empty text (special
    tokens, and a question). gap: whether one word is a mask. asks: whether a question is asked about each text.
    """

    name: str
    run: Callable[[Sequence[str]], object]
    peers: Work | None
    frame: int
    gap: bool = False
    asks: bool = False

    @property
    def alone(self) -> bool:
        """Whether the texts alone are encoded, in one pass."""
        return not (self.gap or self.asks)


@dataclass(frozen=True)
class Workload:
    """Calls that are made in turn. texts: a description; length: tokens of every text, if equal; tokens: tokens of each
    call."""

    texts: str
    length: int | None
    texts_per_call: int
    calls: tuple[tuple[str, ...], ...]
    tokens: tuple[int, ...]


def task_method(model: Predictor) -> Method:
    """The method of the model's task; embed for tasks that have no single-text method, and for models that encode the
    texts of a pair separately."""
    frame = len(model.tokenizer.encode(""))
    if encodes_separately(model.module.config):
        return Method("embed", model.embed, "vectors", frame)
    entry = TASKS[model.task]
    if entry.load().inputs == "questions":
        frame = len(model.tokenizer.encode(QUESTION, ""))
        return Method(model.task, lambda texts: model.answer([QUESTION] * len(texts), texts), None, frame, asks=True)
    if entry.head == "next_sentence":
        return Method("embed", model.embed, "vectors", frame)
    peers: Work | None = "classes" if entry.head == "classes" else None if entry.head else "vectors"
    return Method(model.task, getattr(model, model.task), peers, frame, gap=entry.head == "masked_words")


def workloads(options: Options, model: Predictor, method: Method) -> list[Workload]:
    """Workloads for every batch size and every length that the model can read, then for the user's texts.

    InputError if a length has no room for a word, or if no length is left.
    """
    if short := [length for length in options.lengths if length <= method.frame]:
        raise InputError(
            f"lengths ({short[0]}) must be at least {method.frame + 1}: {method.frame} tokens are not text"
        )
    lengths = [length for length in options.lengths if length <= longest(model)]
    if not lengths:
        raise InputError(
            f"lengths ({options.lengths[0]}) must be at most {longest(model)}, the size of a window (--window)"
        )
    results = list(fixed_length_workloads(lengths, options.batches, model.tokenizer, method))
    if options.texts:
        texts = read_user_texts(options, options.texts, model, method)
        max_tokens = longest(model) - method.frame
        results += user_text_workloads(texts, options.batches, model.tokenizer, method, max_tokens=max_tokens)
    return results


def longest(model: Predictor) -> int:
    """The maximum number of tokens that is read at once; the user's texts are truncated to it for every system."""
    return model.window_policy.read_size


def fixed_length_workloads(
    lengths: Sequence[int], batches: Sequence[int], tokenizer: Tokenizer, method: Method
) -> Iterator[Workload]:
    words, draw = single_token_words(tokenizer), random.Random(0)
    for length in lengths:
        for size in batches:
            calls = [
                tuple(build_text(draw.choices(words, k=length - method.frame), method) for _ in range(size))
                for _ in range(max(1, TEXTS_PER_LENGTH // size))
            ]
            yield Workload(f"{length} tokens", length, size, tuple(calls), (length * size,) * len(calls))


def user_text_workloads(
    texts: Sequence[str], batches: Sequence[int], tokenizer: Tokenizer, method: Method, *, max_tokens: int
) -> Iterator[Workload]:
    """The texts, truncated to the frame plus `max_tokens` tokens, in calls of each size and all in one call."""
    num_special = len(tokenizer.encode(""))
    truncated = [truncate(text, max_tokens + num_special, tokenizer) for text in texts]
    specials: tuple[str, ...] = ()
    if method.gap:
        specials = (tokenizer.tokens[tokenizer.mask_id],)
        truncated = [build_text(text.split(), method).replace(MASK, *specials) for text in truncated]
    sizes = [len(tokenizer.encode(text, allow_special=specials)) - num_special + method.frame for text in truncated]
    for size in [*(size for size in batches if size < len(truncated)), len(truncated)]:
        starts = range(0, len(truncated) - size + 1, size)
        calls = tuple(tuple(truncated[start : start + size]) for start in starts)
        yield Workload(OWN, None, size, calls, tuple(sum(sizes[start : start + size]) for start in starts))


def read_user_texts(options: Options, path: Path, model: Predictor, method: Method) -> list[str]:
    """A sample of the file's non-blank texts; for question answering its passages. InputError if there are none."""
    if method.asks and file_type(path) == ".json":
        questions = read_squad(path, on_error="skip", encoding=options.encoding)
        texts = list(dict.fromkeys(question.context for question in questions))
    else:
        texts = read_table(
            path, text=text_column(options, path, model, method), need_labels=False, encoding=options.encoding
        ).texts
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise InputError(f"{path}: contains only blank texts; give some with words")
    return random.Random(0).sample(texts, min(len(texts), MAX_USER_TEXTS))


def text_column(options: Options, path: Path, model: Predictor, method: Method) -> str | None:
    """The column with the texts: that of the options, else that of fine-tuning; for question answering the column with
    the passages. None: a usual name."""
    if options.text_column or file_type(path) == ".txt":
        return options.text_column
    role = "pair" if method.asks else "text"
    column = resolve_columns(path, options, model.description.settings, (role,))[role]
    return column or ("context" if method.asks else None)


def single_token_words(tokenizer: Tokenizer) -> list[str]:
    """Words that are a single token between spaces."""
    frame = len(tokenizer.encode(""))
    words = (tokenizer.backend.text([token], clean_up_spaces=False).strip() for token in tokenizer.tokens)
    single = [word for word in words if word.isalpha() and len(tokenizer.encode(f"{word} {word}")) == frame + 2]
    if not single:
        raise InputError("the vocabulary has no word that is a single token; use another tokenizer")
    return single


def build_text(words: Sequence[str], method: Method) -> str:
    """The words as a text, with a mask in place of the middle one if the method fills masks."""
    middle = len(words) // 2
    return " ".join([*words[:middle], MASK, *words[middle + 1 :]] if method.gap else words)


def truncate(text: str, tokens: int, tokenizer: Tokenizer) -> str:
    """The longest prefix of a text with at most `tokens` tokens, special tokens included, found by bisection."""
    low, high = 0, len(text)
    if len(tokenizer.encode(text)) <= tokens:
        return text
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if len(tokenizer.encode(text[:middle])) <= tokens else (low, middle)
    return text[:low]
