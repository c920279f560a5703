"""Texts as arrays of token ids: windows are ranges of one flat array, and a batch is one gather from it.

An Encoding (tokenizer.py) is for results that name characters or words: tags, answers, masked words. All other texts
are read as arrays, without an object for each of them.

Letters: T tokens; N texts; W windows of them, n of these in a batch; R texts in a row, 1 or 2 for pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from bothways.text.batch import Batch
from bothways.text.tokenizer.encoding import Encoding, Part, SlidingText
from bothways.text.tokenizer.token_arrays import TokenArrays
from bothways.text.tokenizer.tokenizer import Tokenizer, check_pairs_count

if TYPE_CHECKING:
    import torch

Ids = NDArray[np.int32]
Integers = NDArray[np.int64]
Key = TypeVar("Key")
ABSENT = -1  # start and end of the second text of a row that has none


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens around the texts of a row: [CLS] text [SEP], or [CLS] text [SEP] second [SEP].

    cls_id, sep_id: their ids.
    num_separators: number of [SEP] tokens between two texts.
    second_segment_id: segment of the second text and its [SEP].
    """

    cls_id: int = 0
    sep_id: int = 0
    num_separators: int = 1
    second_segment_id: int = 0

    @staticmethod
    def of(tokenizer: Tokenizer) -> SpecialTokens:
        """The special tokens of a tokenizer."""
        backend = tokenizer.backend
        return SpecialTokens(
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            num_separators=backend.num_separators,
            second_segment_id=backend.second_segment_id,
        )


@dataclass(frozen=True)
class TokenWindows:
    """The windows of N texts (or pairs), as ranges of one array of ids.

    ids [T]: tokens of all texts.
    ranges [W, 2 R]: start and end in `ids` of the tokens of each window, without special tokens; of a pair first the
    range of its first text, then the range of the part of the second text that the window shows.
    wholes [N, 2 R]: the same of the whole texts.
    bounds [N + 1]: the windows of text n are bounds[n] ... bounds[n + 1] - 1.
    special: the special tokens that a batch has around its texts.
    """

    ids: Ids
    ranges: Integers
    wholes: Integers
    bounds: Integers
    special: SpecialTokens

    @staticmethod
    def of_ranges(ids: Ids, ranges: Integers, special: SpecialTokens) -> TokenWindows:
        """Texts of these ranges, each a window of its own."""
        return TokenWindows(
            ids=ids,
            ranges=ranges,
            wholes=ranges,
            bounds=np.arange(len(ranges) + 1),
            special=special,
        )

    @staticmethod
    def of_arrays(arrays: TokenArrays, tokenizer: Tokenizer) -> TokenWindows:
        """Texts that a tokenizer has encoded, each as one window of any length."""
        ids, starts = arrays
        # A batch adds the special tokens, which windows of a long text do not have in `ids`.
        ranges = np.stack([starts[:-1] + 1, starts[1:] - 1], axis=1)
        return TokenWindows.of_ranges(ids, ranges, SpecialTokens.of(tokenizer))

    @staticmethod
    def encode(
        tokenizer: Tokenizer, texts: Sequence[str], pairs: Sequence[str] | None = None
    ) -> tuple[TokenWindows, Integers]:
        """The different texts (or pairs), each as one window of any length, and for each text given its row among
        them, [N]. Equal strings are tokenized once.

        texts: the texts.
        pairs: a second text for each of them.
        """
        check_pairs_count(texts, pairs)
        if pairs is None:
            different, rows = distinct(texts)
            return TokenWindows.of_arrays(tokenizer.encode_arrays(different), tokenizer), rows

        different_pairs, rows = distinct([*zip(texts, pairs, strict=True)])
        strings, string_rows = distinct([*chain.from_iterable(different_pairs)])
        single = TokenWindows.of_arrays(tokenizer.encode_arrays(strings), tokenizer)
        # Both texts of a pair, one behind the other.
        ranges = single.ranges[string_rows].reshape(-1, 4)
        return TokenWindows.of_ranges(single.ids, ranges, single.special), rows

    @staticmethod
    def from_encodings(encodings: Sequence[Encoding]) -> TokenWindows:
        """Encodings, each a window of its own."""
        if not encodings:
            return TokenWindows.of_ranges(np.zeros(0, np.int32), np.zeros((0, 2), np.int64), SpecialTokens())

        special = SpecialTokens.of(encodings[0].ranges[0][0].tokenizer)
        lengths_N = np.fromiter(map(len, encodings), np.int64, len(encodings))
        ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.int32, lengths_N.sum())

        ends_N = lengths_N.cumsum() - 1
        starts_N = ends_N + 2 - lengths_N
        if all(len(encoding.ranges) == 1 for encoding in encodings):
            return TokenWindows.of_ranges(ids, np.stack([starts_N, ends_N], axis=1), special)

        ranges: list[tuple[int, int, int, int]] = []
        for start, end, encoding in zip(starts_N.tolist(), ends_N.tolist(), encodings, strict=True):
            if len(encoding.ranges) == 1:
                ranges.append((start, end, ABSENT, ABSENT))
                continue
            _, first, last = encoding.ranges[0]
            middle = start + last - first
            ranges.append((start, middle, middle + special.num_separators, end))
        return TokenWindows.of_ranges(ids, np.array(ranges, np.int64), special)

    def __len__(self) -> int:
        return len(self.wholes)

    @property
    def is_pairs(self) -> bool:
        """Whether rows may have a second text."""
        return bool(self.ranges.shape[1] == 4)

    @cached_property
    def lengths(self) -> Integers:
        """Tokens of each window, special tokens included. [W]"""
        return self._lengths(self.ranges)

    @cached_property
    def whole_lengths(self) -> Integers:
        """Tokens of each whole text (or pair), special tokens and truncated ones included. [N]"""
        return self._lengths(self.wholes)

    def _lengths(self, ranges: Integers) -> Integers:
        sizes = ranges[:, 1] - ranges[:, 0] + 2
        if not self.is_pairs:
            return sizes
        second = ranges[:, 3] - ranges[:, 2] + self.special.num_separators
        lengths: Integers = sizes + np.where(ranges[:, 2] == ABSENT, 0, second)
        return lengths

    @cached_property
    def num_windows(self) -> Integers:
        """Number of windows of each text. [N]"""
        return np.diff(self.bounds)

    @property
    def has_one_each(self) -> bool:
        """Whether each text has one window. That may still show a part of it."""
        return len(self.ranges) == len(self.wholes)

    @cached_property
    def text_rows(self) -> Integers:
        """The text of each window. [W]"""
        return np.repeat(np.arange(len(self)), self.num_windows)

    @cached_property
    def sizes(self) -> Integers:
        """Tokens of each text, summed over its windows: shared tokens count in each of them. [N]"""
        sums = np.concatenate([[0], self.lengths.cumsum()])
        sizes: Integers = sums[self.bounds[1:]] - sums[self.bounds[:-1]]
        return sizes

    @property
    def are_truncated(self) -> NDArray[np.bool_]:
        """Whether the last window of each text ends before the text. [N]"""
        lasts = self.ranges[self.bounds[1:] - 1]
        truncated: NDArray[np.bool_] = lasts[:, -1] < self.wholes[:, -1]
        return truncated

    def sliding(self, row: int) -> SlidingText:
        """The sizes of a text that may need several windows. The text is whole: it has one window."""
        start, end, *second = self.wholes[row].tolist()
        length = int(self.whole_lengths[row])
        if not second or second[0] == ABSENT:
            return SlidingText(length, size=end - start)
        return SlidingText(length, size=second[1] - second[0], first=end - start)

    @cached_property
    def own_rows(self) -> Integers:
        """The rows [first, last) to use from each window of single texts, so that every token is used once. [W, 2]

        Tokens that two windows share are divided at the middle, as in `own_rows` of tasks/windows.py.
        """
        if self.has_one_each:
            return np.stack([np.zeros_like(self.lengths), self.lengths], axis=1)

        begins_W = self.wholes[self.text_rows, 0]
        first_W = self.ranges[:, 0] - begins_W
        last_W = self.ranges[:, 1] - begins_W
        is_first_W = np.zeros(len(first_W), bool)
        is_first_W[self.bounds[:-1]] = True
        is_last_W = np.roll(is_first_W, -1)

        # [CLS] comes from the first window, [SEP] from the last.
        middle_W = (first_W + np.roll(last_W, 1) + 1) // 2
        low_W = np.where(is_first_W, -1, middle_W)
        high_W = np.where(is_last_W, last_W + 1, np.roll(middle_W, -1))
        own_W2: Integers = np.stack([low_W, high_W], axis=1) + 1 - first_W[:, None]
        return own_W2

    # --- other windows of the same ids --------------------------------------------------------------------------------

    def take(self, rows: Sequence[int] | Integers) -> TokenWindows:
        """These texts only, with their windows."""
        rows = np.asarray(rows, np.int64)
        windows, bounds = self.windows_of(rows)
        return replace(
            self,
            ranges=self.ranges[windows],
            wholes=self.wholes[rows],
            bounds=bounds,
        )

    def windows_of(self, rows: Integers) -> tuple[Integers, Integers]:
        """The windows of these texts, and where the windows of each begin among them, [n + 1]."""
        if self.has_one_each:
            return rows, np.arange(len(rows) + 1)
        counts = self.num_windows[rows]
        bounds = np.concatenate([[0], counts.cumsum()])
        windows = np.repeat(self.bounds[rows] - bounds[:-1], counts) + np.arange(bounds[-1])
        return windows, bounds

    def joined(self, other: TokenWindows) -> TokenWindows:
        """These texts, and then the texts of another set of the same tokenizer, both single or both pairs."""
        shift = len(self.ids)

        def moved(ranges: Integers) -> Integers:
            return np.where(ranges == ABSENT, ABSENT, ranges + shift)

        return TokenWindows(
            ids=np.concatenate([self.ids, other.ids]),
            ranges=np.concatenate([self.ranges, moved(other.ranges)]),
            wholes=np.concatenate([self.wholes, moved(other.wholes)]),
            bounds=np.concatenate([self.bounds, self.bounds[-1] + other.bounds[1:]]),
            special=self.special,
        )

    def kept(self, windows: Integers) -> TokenWindows:
        """The same texts with these windows only, ascending; each text keeps at least one."""
        counts = np.bincount(self.text_rows[windows], minlength=len(self))
        return replace(
            self,
            ranges=self.ranges[windows],
            bounds=np.concatenate([[0], counts.cumsum()]),
        )

    def divided(self, parts_by_row: Mapping[int, Sequence[Part]]) -> TokenWindows:
        """Some of the texts, which have one window each, in several windows.

        parts_by_row: the parts of the text that slides (of a pair the second) that the windows of a row show.
        """
        if not parts_by_row:
            return self

        counts = np.ones(len(self), np.int64)
        for row, parts in parts_by_row.items():
            counts[row] = len(parts)
        bounds = np.concatenate([[0], counts.cumsum()])

        # Of a pair without a second text, the first one slides.
        slides = np.where(self.wholes[:, -2] == ABSENT, 0, self.wholes.shape[1] - 2)
        ranges = np.repeat(self.ranges, counts, axis=0)
        for row, parts in parts_by_row.items():
            slide = slides[row]
            ranges[bounds[row] : bounds[row + 1], slide : slide + 2] = self.wholes[row, slide] + np.array(parts)
        return replace(self, ranges=ranges, bounds=bounds)

    # --- batches ------------------------------------------------------------------------------------------------------

    def batch(self, windows: Sequence[int] | Integers, device: torch.device | str = "cpu") -> Batch:
        """These windows, in their order, on a device, which computes positions and segments itself, so that only the
        ids travel to it."""
        ids_T, lengths_n, second_n = self.gather(windows)
        if str(device) == "cpu":
            # For a text or two, operations of torch take longer than operations of numpy.
            return Batch.from_arrays(ids_T, self.segments(lengths_n, second_n), lengths_n)
        segment = self.special.second_segment_id
        return Batch.from_tokens(ids_T, lengths_n, second_n if segment else None, segment, device=device)

    def gather(self, windows: Sequence[int] | Integers) -> tuple[Ids, Integers, Integers | None]:
        """Ids [T] of these windows with their special tokens, their lengths [n], and for pairs how many of these tokens
        are of the second text and its [SEP], [n]."""
        ranges = self.ranges[windows]
        if not self.is_pairs:
            starts_n = ranges[:, 0] - 1
            lengths_n = ranges[:, 1] - starts_n + 1
            ids_T, ends_n = self._gather(starts_n, lengths_n)
            ids_T[ends_n - lengths_n] = self.special.cls_id
            ids_T[ends_n - 1] = self.special.sep_id
            return ids_T, lengths_n, None

        # Each text of a pair is a piece with the special tokens before it, the last one also with the [SEP] behind it.
        separators = self.special.num_separators
        has_second_n = ranges[:, 2] != ABSENT
        first_n = ranges[:, 1] - ranges[:, 0] + np.where(has_second_n, 1, 2)
        second_n = np.where(has_second_n, ranges[:, 3] - ranges[:, 2] + 1, 0)
        sizes_n2 = np.stack([first_n, np.where(has_second_n, second_n + separators, 0)], axis=1)
        starts_n2 = np.stack([ranges[:, 0] - 1, ranges[:, 2] - separators], axis=1)

        ids_T, ends_2n = self._gather(starts_n2.ravel(), sizes_n2.ravel())
        ends_n2 = ends_2n.reshape(-1, 2)
        ids_T[ends_n2[:, 0] - first_n] = self.special.cls_id
        for index in range(separators):
            ids_T[ends_n2[has_second_n, 0] + index] = self.special.sep_id
        ids_T[ends_n2[:, 1] - 1] = self.special.sep_id
        return ids_T, sizes_n2.sum(1), second_n

    def _gather(self, starts: Integers, sizes: Integers) -> tuple[Ids, Integers]:
        """Pieces of the ids, one after another, and the end of each. They may begin or end outside of the array, where
        a special token will stand."""
        ends = sizes.cumsum()
        index_T = np.repeat(starts - ends + sizes, sizes)
        index_T += np.arange(len(index_T))
        if not len(self.ids):
            return np.zeros(len(index_T), np.int32), ends
        return self.ids.take(index_T, mode="clip"), ends

    def segments(self, lengths_n: Integers, second_n: Integers | None) -> Integers:
        """The segments of the tokens of gathered windows, [T]."""
        segments_T = np.zeros(lengths_n.sum(), np.int64)
        if second_n is not None and self.special.second_segment_id:
            for end, size in zip(lengths_n.cumsum().tolist(), second_n.tolist(), strict=True):
                segments_T[end - size : end] = self.special.second_segment_id
        return segments_T


def distinct(keys: Sequence[Key]) -> tuple[Sequence[Key], Integers]:
    """The different keys, in the order of their first appearance, and for each key its number among them."""
    number_by_key = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    if len(number_by_key) == len(keys):
        return keys, np.arange(len(keys))
    return [*number_by_key], np.fromiter(map(number_by_key.__getitem__, keys), np.int64, len(keys))
