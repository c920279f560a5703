"""Windows over long texts: how long texts are split or truncated, and how results are merged; checks of arguments."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import index
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bothways.base.errors import InputError, RowsError, shorten
from bothways.base.log import logger
from bothways.model.config import EncoderConfig
from bothways.text.token_windows import Integers, TokenWindows
from bothways.text.tokenizer.encoding import MIN_WINDOW_TEXT, Encoding, Part, SlidingText, slide


def read_one_or_many(
    texts: Any, pairs: Any = None, *, names: tuple[str, str] = ("texts", "pairs")
) -> tuple[list[str], list[str] | None, bool]:
    """Texts and their pairs as lists, and whether the input was a single text (or pair).

    names: names of the arguments, for messages. InputError if one of them is a single string and the other is not.
    """
    if not isinstance(texts, str):
        lists = read_texts(names[0], texts)
        return lists, None if pairs is None else read_texts(names[1], pairs), False

    if pairs is None:
        return [texts], None, True
    if not isinstance(pairs, str):
        raise InputError(f"{names[0]} is a single string but {names[1]} is not; give two strings or two lists")
    return [texts], [pairs], True


def read_texts(name: str, texts: Any) -> list[str]:
    """Convert an iterable, a NumPy array, or a pandas or Arrow column to a list of strings.

    name: name of the argument, for messages. InputError for a single string, a table, or a value that is not a string,
    such as None or NaN in an empty cell.
    """
    values = _read_values(name, texts)
    for number, value in enumerate(values):
        if not isinstance(value, str):
            raise InputError(f"{name}[{number}] is not a string: {shorten(repr(value))}; fill it in or leave it out")
    return values


def read_words(words: Any) -> tuple[list[Sequence[str]], bool]:
    """Pre-split texts, each a list of words, and whether the input was a single list of words. Tuples of strings are
    kept as they are."""
    values = _read_values("words", words)
    if values and isinstance(values[0], str):
        return [read_texts("words", values)], True
    lists: list[Sequence[str]] = []
    for number, value in enumerate(values):
        checked = read_texts(f"words[{number}]", value)
        is_same = isinstance(value, tuple) and [*value] == checked
        lists.append(value if is_same else checked)
    return lists, False


def whole_number(name: str, value: Any, minimum: int, unit: str = "") -> int:
    """An integer of any type as int. InputError if it is less than `minimum`."""
    required = f"{minimum} {unit}".strip()
    try:
        number = index(value)
    except TypeError:
        raise InputError(f"{name} is {shorten(repr(value))}; give a whole number of at least {required}") from None
    if number < minimum:
        raise InputError(f"{name} ({number}) must be at least {required}")
    return number


def _read_values(name: str, texts: Any) -> list[Any]:
    if isinstance(texts, str | bytes):
        raise InputError(f"{name} is a single string; give a list of {name}: [{name.removesuffix('s')}]")
    columns = _column_names(texts)
    if columns is not None:
        listed = ", ".join(map(str, columns[:9])) or "none"
        raise InputError(f"{name} is a table ({type(texts).__name__}) with columns {listed}; give one of its columns")
    if isinstance(texts, Set) or not isinstance(texts, Iterable):
        raise InputError(f"{name} is {shorten(repr(texts))}; give a list of {name}")

    # Iterating over Arrow and NumPy columns gives their own scalar types; these methods give Python objects.
    convert = getattr(texts, "to_pylist", None) or getattr(texts, "tolist", None)
    values = convert() if convert else list(texts)
    if not isinstance(values, list):  # a zero-dimensional array
        raise InputError(f"{name} is {shorten(repr(texts))}; give a list of {name}")
    return values


def _column_names(texts: Any) -> list[Any] | None:
    """The column names of a table; None for anything else. A dict counts as a table of columns."""
    if isinstance(texts, Mapping):
        return [*texts]
    for attribute in ("column_names", "columns"):  # Arrow and datasets; pandas and polars
        names = getattr(texts, attribute, None)
        if names is not None and not callable(names):
            return [*names]
    return None


# --- windows ----------------------------------------------------------------------------------------------------------


Long = Literal["windows", "error", "truncate"]
NUM_SPECIALS = 2  # [CLS] and [SEP] of a single text
SMALLEST_WINDOW = NUM_SPECIALS + 1
WINDOW = 512  # tokens, by default
OVERLAP = 128  # text tokens that two windows share, by default


def window_of(config: EncoderConfig, size: int, long: Long) -> int:
    """The tokens of a window if `size` is asked for. Static vectors read whole texts, which costs them nothing more,
    unless texts are to be cut or refused."""
    longest = config.max_position_embeddings
    if config.is_static and long == "windows":
        return longest
    return size


@dataclass(frozen=True)
class WindowPolicy:
    """How texts longer than a window are read.

    size: maximum tokens of a window, special tokens included.
    overlap: text tokens shared by neighbouring windows.
    long: "windows" reads the whole text in overlapping windows; "truncate" keeps the first window; "error" raises
    RowsError.
    max_length: the longest input of the model; None if `size` never exceeds it.

    Sizes above max_length are reduced to it. An overlap that leaves no stride becomes a quarter of the window. A pair
    whose first text does not leave MIN_WINDOW_TEXT tokens for the second gets a larger window, up to max_length.
    """

    size: int = WINDOW
    overlap: int = OVERLAP
    long: Long = "windows"
    max_length: int | None = None

    def __post_init__(self) -> None:
        whole_number("window", self.size, SMALLEST_WINDOW, "tokens, special tokens included")
        whole_number("overlap", self.overlap, 0, "tokens")
        if self.long not in get_args(Long):
            raise InputError(f"long={self.long!r} is not supported; use one of {', '.join(get_args(Long))}")

    def changed(
        self, *, size: int | None = None, overlap: int | None = None, long: Long | None = None
    ) -> "WindowPolicy":
        """A copy with other values; None keeps a value. Another size without an overlap takes the default overlap."""
        if size is None:
            size = self.size
        if overlap is None:
            overlap = self.overlap if size == self.size else OVERLAP
        return replace(self, size=size, overlap=overlap, long=long or self.long)

    @property
    def read_size(self) -> int:
        """The effective window size: `size`, limited to the longest input of the model."""
        return self.size if self.max_length is None else min(self.size, self.max_length)

    def split(self, encodings: Sequence[Encoding], names: Sequence[str] | None = None) -> list[list[Encoding]]:
        """The windows of each encoding; in a pair, the first text stays whole and the second is split.

        names: locations of the encodings for error messages; default "pairs[2]".

        RowsError if a first text leaves too little room for the second, or if a text is too long and `long` is "error".
        """
        lengths_N = np.fromiter(map(len, encodings), np.int64, len(encodings))
        windows = [[encoding] for encoding in encodings]
        for row, parts in self._plan(lengths_N, lambda row: encodings[row].sliding, names).items():
            windows[row] = encodings[row].parts(parts)
        return windows

    def divide(
        self,
        texts: TokenWindows,
        rows: Integers | None = None,
        names: Sequence[str] | None = None,
    ) -> TokenWindows:
        """The same of texts as arrays, which have one window each.

        texts: different texts or pairs.
        rows: of the texts given among them, to which error messages and `names` belong; None: they are the same.
        """
        lengths_N = texts.lengths if rows is None else texts.lengths[rows]
        row_of = range(len(texts)) if rows is None else rows
        parts_by_row = self._plan(lengths_N, lambda row: texts.sliding(row_of[row]), names)
        return texts.divided({int(row_of[row]): parts for row, parts in parts_by_row.items()})

    def _plan(
        self,
        lengths_N: Integers,
        sliding: Callable[[int], SlidingText],
        names: Sequence[str] | None,
    ) -> dict[int, list[Part]]:
        """The parts of the texts that need several windows, or are cut, by row.

        lengths_N: tokens of each text, special tokens included.
        sliding: the sizes of a row that is longer than a usual window.
        names: see `split`, as are the errors.
        """
        long_texts = {row: sliding(row) for row in np.flatnonzero(lengths_N > self.read_size).tolist()}
        if not long_texts:
            return {}

        sizes = self._sizes(long_texts, names)
        lengths = {row: text.length for row, text in long_texts.items() if text.length > sizes[row]}
        if lengths and self.long == "error":
            raise _too_long_error(lengths, sizes, len(lengths_N))

        if lengths and self.long == "truncate":
            longest_kept = max(min(text.length, sizes[row]) for row, text in long_texts.items())
            logger.warning(
                f"cut {len(lengths)} of {len(lengths_N)} texts to {longest_kept} tokens (the longest had "
                f"{max(lengths.values())}); long=windows reads them whole"
            )
        return {row: self._parts(long_texts[row], sizes[row]) for row in lengths}

    def _sizes(self, long_texts: Mapping[int, SlidingText], names: Sequence[str] | None) -> dict[int, int]:
        """The window size for each of these rows. RowsError names all pairs whose first text is too long."""
        sizes: dict[int, int] = {}
        errors: dict[int, str] = {}
        for row, text in long_texts.items():
            try:
                sizes[row] = self._size_for(text)
            except InputError as error:
                errors[row] = str(error)

        if errors:
            row = min(errors)
            name = names[row] if names else f"pairs[{row}]"
            raise RowsError(f"{name}: {errors[row]}", errors)
        return sizes

    def _size_for(self, text: SlidingText) -> int:
        """The window for a text that is longer than a usual one: larger, if the first text of a pair needs it."""
        if text.first is None:
            return self.read_size
        limit = self.max_length or self.size
        room = 1 if self.long == "truncate" else MIN_WINDOW_TEXT
        fixed = text.length - text.size  # the first text and the special tokens
        if fixed + room > limit:
            raise InputError(
                f"the first text of the pair takes {text.first} of the {limit} tokens that the model reads, "
                f"which leaves {max(0, limit - fixed)} for the second, fewer than {room}; shorten it"
            )
        return max(self.read_size, min(fixed + MIN_WINDOW_TEXT, limit))

    def _parts(self, text: SlidingText, size: int) -> list[Part]:
        """The parts of a text that windows of this size show."""
        room = size - (text.length - text.size)
        if self.long == "truncate":
            return [(0, room)]
        return slide(text.size, room, self._overlap_for(size, room))

    def _overlap_for(self, size: int, room: int) -> int:
        """room: text tokens of a window."""
        overlap = self.overlap if size == self.read_size else size // 4
        if self.size > size:
            overlap = min(overlap, size // 4)
        if overlap + NUM_SPECIALS >= size:
            overlap = size // 4
        return overlap if overlap < room else room // 4


def _too_long_error(lengths: Mapping[int, int], sizes: Mapping[int, int], num_texts: int) -> RowsError:
    """lengths: of the texts that are too long, by row. sizes: their limits. num_texts: of all texts."""
    limit = sizes[min(lengths)]
    longest = max(lengths.values())
    errors: dict[int, str] = {}
    for row, length in lengths.items():
        errors[row] = f"longer than {sizes[row]} tokens ({length}); shorten it, or read it in windows"
    return RowsError(
        f"{len(lengths)} of {num_texts} texts are longer than {limit} tokens (up to {longest})",
        errors,
    )


def is_truncated(windows: Sequence[Encoding]) -> bool:
    """Whether these windows leave out the end of their text."""
    source, _, last = windows[-1].ranges[-1]
    return last < len(source.ids)


def whole_length(windows: Sequence[Encoding]) -> int:
    """Tokens of the whole text (or pair), including truncated ones."""
    source, first, last = windows[0].ranges[-1]
    return len(windows[0]) - (last - first) + len(source.ids)


def own_rows(windows: Sequence[Encoding]) -> list[tuple[int, int]]:
    """The rows [first, last) to use from each window, so that every token of the text is used once.

    Tokens that two windows share are divided at the middle: each token is taken from the window in which it is
    furthest from a cut. [CLS] comes from the first window, [SEP] from the last.
    """
    bounds = [(bound + 1) // 2 for bound in span_bounds(windows)]
    rows: list[tuple[int, int]] = []
    for window, (first, last) in zip(windows, pairwise(bounds), strict=True):
        _, first_token, _ = window.ranges[-1]
        shift = 1 - first_token  # 1 for [CLS]
        rows.append((first + shift, last + shift))

    rows[0] = (0, rows[0][1])
    rows[-1] = (rows[-1][0], rows[-1][1] + 1)
    return rows


def span_bounds(windows: Sequence[Encoding]) -> list[int]:
    """Bounds [W + 1]: window k scores the spans of tokens first..last with bounds[k] <= first + last < bounds[k + 1].

    Every span is scored by the window in which its nearer end is furthest from a cut. That window contains the whole
    span if any window does.
    """
    ranges = [window.ranges[-1][1:] for window in windows]
    bounds = [0]
    for (_, left_last), (right_first, _) in pairwise(ranges):
        bounds.append(right_first + left_last)
    _, last = ranges[-1]
    bounds.append(2 * last)
    return bounds


def merge_rows(windows: Sequence[Encoding], rows: Iterable[NDArray[np.float32]]) -> NDArray[np.float32]:
    """One row per token of the whole text, [S, *], from the rows of its windows."""
    parts = []
    for window_rows, (first, last) in zip(rows, own_rows(windows), strict=True):
        parts.append(window_rows[first:last])
    return np.concatenate(parts)
