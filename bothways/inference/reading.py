"""Reading texts: options of methods that read them, progress, and equal texts."""

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from bothways.base.errors import InputError, flag
from bothways.base.progress import ProgressBar, heartbeat, working
from bothways.tasks.windows import WINDOW, Long, WindowPolicy, whole_number
from bothways.text.token_windows import Integers
from bothways.text.tokenizer.encoding import Encoding

if TYPE_CHECKING:
    from bothways.model.checkpoint.description import Description

Rows = NDArray[np.float32]
Texts = Iterable[str]  # a list, an iterator, a NumPy array, a pandas or Arrow column
Progress = Callable[[int, int], object]  # called with (inputs done, inputs in total)
ProgressOption = Progress | bool | None  # True: a bar, or lines where none can be drawn


class ReadOptions(TypedDict, total=False):
    """Keyword options of every method that reads texts.

    long: "windows" splits long texts into overlapping windows, "truncate" truncates them (with a message, and counted
    in `truncated_texts`), "error" raises an error.
    window: maximum tokens of a window, special tokens included; default: as in fine-tuning, else 512.
    overlap: text tokens shared by neighbouring windows; default: as in fine-tuning, else 128.
    batch_tokens: maximum tokens per batch (default 4096).
    progress: a function called after each batch with the number of windows done and in total, where equal windows count
    once; or True, which draws a bar on a terminal and in a notebook, and writes a line every half minute elsewhere.
    """

    long: Long | None
    window: int | None
    overlap: int | None
    batch_tokens: int | None
    progress: ProgressOption


class ClassifyOptions(ReadOptions, total=False):
    top: int | None
    coverage: float | None
    min_score: float | None
    in_scope: float | None


class TagOptions(ReadOptions, total=False):
    min_score: float | None


class AnswerOptions(ReadOptions, total=False):
    top: int
    min_score: float | None
    max_answer_tokens: int | None


class ExplainOptions(ReadOptions, total=False):
    label: str | None


def expanded(distinct_NH: Rows, rows: Integers) -> Rows:
    """A vector for each text given. rows: of each text among the different ones."""
    return distinct_NH if len(rows) == len(distinct_NH) else distinct_NH[rows]


def check_names(options: Mapping[str, Any]) -> None:
    """TypeError for an unknown option, as Python raises for any unknown keyword."""
    names = ReadOptions.__annotations__
    for name in options:
        if name not in names:
            raise TypeError(f"got an unexpected keyword argument {name!r}; reading options are {', '.join(names)}")


def run_options(options: ReadOptions) -> dict[str, Any]:
    """The options of BatchRunner."""
    batch_tokens = options.get("batch_tokens")
    if batch_tokens is not None:
        batch_tokens = whole_number("batch_tokens", batch_tokens, 1)

    progress = options.get("progress")
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise InputError(f"progress ({progress!r}) must be True, or a function that is called with (done, total)")
    return {"batch_tokens": batch_tokens, "progress": progress}


def trained_window_policy(trained: Mapping[str, Any], max_length: int, window: int | None) -> WindowPolicy:
    """The window policy recorded by fine-tuning, in its settings (`trained`); or windows of `window` tokens."""
    size = trained.get("window") or WINDOW
    overlap = trained.get("overlap")
    policy = WindowPolicy(
        size=size,
        overlap=size // 4 if overlap is None else overlap,
        long="truncate" if trained.get("long") == "truncate" else "windows",
        max_length=max_length,
    )

    changed = policy.changed(size=window)
    if window and window > max_length:
        raise InputError(f"window ({window}) must be at most {max_length}, which is what the model reads")
    return changed


def check_pairs(described: "Description", has_pairs: bool, source: object) -> None:
    """InputError if a source has pairs and the model was fine-tuned on single texts, or the reverse."""
    if described.metadata.get("reads_pairs") in (has_pairs, None):
        return
    if has_pairs:
        difference = "has pairs, but the model was fine-tuned on single texts"
        option = flag("text_column")
    else:
        difference = "has single texts, but the model was fine-tuned on pairs"
        option = flag("pair_column")
    raise InputError(f"{source}: {difference}; name the columns to read with {option}")


@contextmanager
def showing(progress: ProgressOption, total: int) -> Iterator[Progress]:
    """The function to call after each batch: it calls `progress`, or draws a bar, and writes a line where nothing else
    shows for half a minute that the work goes on."""
    progress_bar = ProgressBar("texts", total) if progress is True else nullcontext()
    with working("texts", thread=False) as work, progress_bar as bar:

        def show(done: int, total: int) -> None:
            work.detail = f"{done:,} of {total:,} windows"
            if callable(progress):
                progress(done, total)
            elif bar:
                bar.update(done, "")
            heartbeat.beat()

        yield show


def distinct_rows(encodings: Sequence[Encoding], *columns: Sequence[Hashable]) -> tuple[list[int], list[int]]:
    """The rows of different encodings, and for each encoding its number among them. Encodings are equal if they have
    the same ids, the same second text and the same values in `columns`."""
    number_by_key: dict[Hashable, int] = {}
    distinct: list[int] = []
    numbers: list[int] = []
    for row, encoding in enumerate(encodings):
        _, first, last = encoding.ranges[-1]
        ids = array("i", encoding.ids).tobytes()
        values = [column[row] for column in columns]
        key = (ids, len(encoding.ranges), last - first, *values)
        number = number_by_key.setdefault(key, len(distinct))
        if number == len(distinct):
            distinct.append(row)
        numbers.append(number)
    return distinct, numbers
