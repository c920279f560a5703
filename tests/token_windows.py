"""Windows of texts as tests make and read them."""

from collections.abc import Sequence

import numpy as np

from bothways.text.token_windows import SpecialTokens, TokenWindows


def windows_of_sizes(sizes_by_text: Sequence[Sequence[int]], first_id: int = 10) -> TokenWindows:
    """Texts whose windows have these numbers of tokens, without special tokens: all from the same ids on."""
    sizes = [size for sizes in sizes_by_text for size in sizes]
    ids = np.arange(first_id, first_id + max(sizes), dtype=np.int32)
    wholes = np.array([(0, max(sizes)) for sizes in sizes_by_text], np.int64)
    bounds = np.concatenate([[0], np.cumsum([*map(len, sizes_by_text)])])
    ranges = np.array([(0, size) for size in sizes], np.int64)
    return TokenWindows(ids, ranges, wholes, bounds, SpecialTokens(cls_id=2, sep_id=3))


def ids_of(windows: TokenWindows) -> list[list[list[int]]]:
    """The ids of each window of each text, special tokens included."""
    ids_T, lengths_W, _ = windows.gather(np.arange(len(windows.ranges)))
    by_window = [part.tolist() for part in np.split(ids_T, lengths_W.cumsum()[:-1])]
    return [by_window[start:end] for start, end in zip(windows.bounds, windows.bounds[1:], strict=False)]


def covered(windows: TokenWindows, text: int) -> set[int]:
    """The tokens of the text that slides which its windows show."""
    start = windows.wholes[text, -2]
    ranges = windows.ranges[windows.bounds[text] : windows.bounds[text + 1], -2:] - start
    return {place for first, last in ranges.tolist() for place in range(first, last)}
