"""Long texts: the windows in which a model reads them, and which window speaks for what."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bothways.errors import InputError, RowsError
from bothways.inputs import whole_number
from bothways.tokenizer.tokenizer import MIN_WINDOW_TEXT, Encoding, Tokenizer

Long = Literal["windows", "error", "truncate"]
NUM_SPECIALS = 2  # [CLS] and [SEP] of one text
SMALLEST_WINDOW = NUM_SPECIALS + 1


def check_window(window: object, overlap: object) -> None:
    """InputError where a window (None: that of the model) cannot hold a token of a text, or an overlap is negative."""
    if window is not None:
        whole_number("window", window, SMALLEST_WINDOW, "tokens, special tokens included")
    if overlap is not None:
        whole_number("overlap", overlap, 0, "tokens")


def fit(
    tokenizer: Tokenizer, encodings: Sequence[Encoding], *, readable: int, long: Long, window: int, overlap: int
) -> list[list[Encoding]]:
    """Each encoding as windows of at most `window` tokens, and never more than the `readable` ones of the model.

    An overlap as long as a window (or as the room that the first text of a pair leaves) is taken as a quarter of it.
    long "error": RowsError where a text takes several. "truncate": the caller keeps the first of several, and says so.
    """
    if long not in get_args(Long):
        raise InputError(f"long={long!r} is not supported; one of {', '.join(get_args(Long))} is")
    if window > readable:
        window, overlap = readable, min(overlap, readable // 4)
    if overlap + NUM_SPECIALS >= window:
        overlap = window // 4
    if long != "windows":
        overlap = 0  # nothing slides
    windows = [_slide(tokenizer, encoding, window, overlap, long) for encoding in encodings]
    sizes = {row: len(one) for row, (one, parts) in enumerate(zip(encodings, windows, strict=True)) if len(parts) > 1}
    if sizes and long == "error":
        told = f"longer than {window} tokens"
        raise RowsError(
            f"{len(sizes)} of {len(windows)} texts are {told} (up to {max(sizes.values())})",
            {row: f"{told} ({size}); shorten it, read it in windows" for row, size in sizes.items()},
        )
    return windows


def _slide(tokenizer: Tokenizer, encoding: Encoding, window: int, overlap: int, long: Long) -> list[Encoding]:
    _, first, last = encoding.ranges[-1]
    room = window - len(encoding) + last - first
    overlap = overlap if overlap < room else room // 4
    return tokenizer.split_windows(encoding, size=window, overlap=overlap, cut=long == "truncate")


def window_of(encoding: Encoding, window: int, readable: int, room: int = MIN_WINDOW_TEXT) -> int:
    """The window an example is read in: a larger one where the first text of a pair, which stays whole, needs it.
    InputError where it leaves too little room for the second in what the model reads."""
    if len(encoding.ranges) == 1 or len(encoding) <= window:
        return window
    (_, first, last), (_, sliding, end) = encoding.ranges
    fixed = len(encoding) - (end - sliding)
    if fixed + room > readable:
        raise InputError(
            f"the first text of the pair takes {last - first} of the {readable} tokens that the model reads, "
            f"which leaves {max(0, readable - fixed)} for the second, fewer than {room}; shorten it"
        )
    return max(window, min(fixed + MIN_WINDOW_TEXT, readable))


def lengths_of_long(encodings: Sequence[Encoding], windows: Sequence[Sequence[Encoding]]) -> list[int]:
    """Tokens of each encoding that does not fit into one window."""
    return [len(encoding) for encoding, parts in zip(encodings, windows, strict=True) if len(parts) > 1]


def whole_length(windows: Sequence[Encoding]) -> int:
    """Tokens of the text (or pair) that these windows are of, though they be cut."""
    source, first, last = windows[0].ranges[-1]
    return len(windows[0]) - (last - first) + len(source.ids)


def own_rows(windows: Sequence[Encoding]) -> list[tuple[int, int]]:
    """Which rows [first, last) of each window stand for its text: of what two windows share, the left one's is half.

    So every token is taken from the window where it stands furthest from a cut; [CLS] from the first, [SEP] from the
    last.
    """
    first_tokens = [window.ranges[-1][1] for window in windows]
    bounds = [(bound + 1) // 2 for bound in span_bounds(windows)]
    rows = [
        (bounds[index] - first + 1, bounds[index + 1] - first + 1)  # behind [CLS]
        for index, first in enumerate(first_tokens)
    ]
    rows[0] = (0, rows[0][1])
    rows[-1] = (rows[-1][0], rows[-1][1] + 1)
    return rows


def span_bounds(windows: Sequence[Encoding]) -> list[int]:
    """Window k speaks for the spans of tokens first..last whose first + last is in [bounds[k], bounds[k + 1]).

    So every span is taken from the window where its nearer end stands furthest from a cut, and a window that speaks
    for a span holds all of it if any does: of left and right window, one loses room to its end, one to its start.
    """
    ranges = [window.ranges[-1][1:] for window in windows]
    shared = [right_first + left_last for (_, left_last), (right_first, _) in pairwise(ranges)]
    return [0, *shared, 2 * ranges[-1][1]]


def merge_rows(windows: Sequence[Encoding], rows: Iterable[NDArray[np.float32]]) -> NDArray[np.float32]:
    """One row a token of the whole text, [S, *], from the rows of each of its windows."""
    return np.concatenate([row[first:last] for row, (first, last) in zip(rows, own_rows(windows), strict=True)])
