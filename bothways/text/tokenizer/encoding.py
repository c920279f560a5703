"""Encoding: a text, a pair or a window of one as ids, which knows the characters and words of its tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from bothways.base.errors import format_count
from bothways.text.tokenizer.fast import TokenSpan

if TYPE_CHECKING:
    from bothways.text.tokenizer.tokenizer import Tokenizer

Value = TypeVar("Value")
Part = tuple[int, int]  # tokens [start, end) of a text
MIN_WINDOW_TEXT = 64  # tokens that must remain for the sliding text of a pair
TOKENS_SHOWN = 8  # in the representation of an Encoding


class TokenizedText:
    """A text (or list of words) as ids, without the special tokens around it.

    text: a string, or a list of words.
    tokenizer: makes ids and spans of the text.
    special_tokens: the special tokens to parse in the text.
    ids: the ids, if they are already computed.
    """

    def __init__(
        self,
        text: str | Sequence[str],
        tokenizer: "Tokenizer",
        special_tokens: Sequence[str] = (),
        ids: list[int] | None = None,
    ) -> None:
        self.text = text
        self.tokenizer = tokenizer
        self.special_tokens = special_tokens

        if ids is not None:
            self.ids = ids
        elif isinstance(text, str):
            self.ids = tokenizer.ids(text, special_tokens)
        else:
            ids_by_word = (tokenizer.ids(word, leading_space=True) for word in text)
            self.ids = list(chain.from_iterable(ids_by_word))

    @cached_property
    def token_spans(self) -> list[TokenSpan]:
        """The characters and the word of each token. Computed on first use: most callers need only ids."""
        backend = self.tokenizer.backend
        if isinstance(self.text, str):
            return backend.token_spans(self.text, self.special_tokens)

        spans: list[TokenSpan] = []
        for index, word in enumerate(self.text):
            for start, end, _ in backend.token_spans(word, leading_space=True):
                spans.append(TokenSpan(start, end, index))
        return spans


@dataclass(slots=True, repr=False)  # not frozen: that would cost as much as encoding a short text
class Encoding:
    """A text, a pair, or a window of one, as model input. Lists have an entry per token, special tokens included.

    ids: vocabulary indices.
    ranges: the text and its pair, each with the range [first, last) of its tokens that are in this window.
    """

    ids: list[int]
    ranges: tuple[tuple[TokenizedText, int, int], ...]

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        more = ", ..." if len(self) > TOKENS_SHOWN else ""
        return f"Encoding({format_count(len(self), 'token')}: {', '.join(self.tokens[:TOKENS_SHOWN])}{more})"

    @property
    def tokens(self) -> list[str]:
        tokens = self.ranges[0][0].tokenizer.tokens
        return [tokens[index] for index in self.ids]

    @property
    def segment_ids(self) -> list[int]:
        """0 for [CLS], the first text and its [SEP]; 1 for the second text and its [SEP] if the model has segments."""
        is_pair = len(self.ranges) == 2
        text, first, last = self.ranges[-1]
        second_size = last - first + 1 if is_pair else 0  # with its [SEP]
        second_segment_id = text.tokenizer.backend.second_segment_id
        return [0] * (len(self.ids) - second_size) + [second_segment_id] * second_size

    @property
    def sequence_ids(self) -> list[int | None]:
        """The text a token belongs to, 0 or 1; None for [CLS] and [SEP]."""
        return self._align(lambda sequence, _: sequence, None)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Characters [start, end) of the token in its text (or pre-split word); (0, 0) for [CLS] and [SEP]."""
        return self._align(lambda _, span: (span.start, span.end), (0, 0))

    @property
    def word_ids(self) -> list[int | None]:
        """The index of the token's word in its text (or of the pre-split word); None for [CLS] and [SEP]."""
        return self._align(lambda _, span: span.word, None)

    @property
    def sliding(self) -> "SlidingText":
        """The sizes of this text (or pair), for windows."""
        *fixed, (_, first, last) = self.ranges
        num_first = fixed[0][2] - fixed[0][1] if fixed else None
        return SlidingText(len(self), size=last - first, first=num_first)

    def parts(self, parts: Sequence[Part]) -> "list[Encoding]":
        """Windows that show these parts of the text that slides, each with the special tokens and, of a pair, the first
        text."""
        *fixed, (text, first, _) = self.ranges
        build = text.tokenizer.build_encoding
        return [build([*fixed, (text, first + start, first + end)]) for start, end in parts]

    def _align(self, value: Callable[[int, TokenSpan], Value], special: Value) -> list[Value]:
        """A value for each token: value(sequence, span) for text, `special` for special tokens."""
        row = [special]
        for sequence, (text, first, last) in enumerate(self.ranges):
            # Separators stand only before the second text (sequence 1).
            row += [special] * (sequence * text.tokenizer.backend.num_separators)
            row += [value(sequence, span) for span in text.token_spans[first:last]]
        return [*row, special]


class SlidingText(NamedTuple):
    """The sizes of a text (or pair) that may need several windows.

    length: its tokens, special tokens included.
    size: tokens of the text that slides, of a pair the second. All other tokens are in every window.
    first: tokens of the first text of a pair; None for a single text.
    """

    length: int
    size: int
    first: int | None = None


def slide(size: int, room: int, overlap: int) -> list[Part]:
    """The parts of a text of `size` tokens that windows with room for `room` of them show, of which neighbours share
    `overlap`."""
    # A start within the last `overlap` tokens would show only what the window before shows.
    starts = range(0, size - overlap, room - overlap)
    return [(start, min(start + room, size)) for start in starts]
