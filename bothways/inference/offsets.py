"""From tokens back to the text: the characters they take, BERT's words, and the given words that hold these.

Letters: W of BERT's words in a text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bothways.tokenizer.fast import TokenSpan
from bothways.tokenizer.tokenizer import Encoding, TokenizedText
from bothways.tokenizer.unicode import is_mark, is_punctuation

Numbers = NDArray[np.int64]


@lru_cache(maxsize=1)
def traced(source: TokenizedText) -> TokenizedText:
    """A copy to ask where tokens stand, so that what a data set keeps does not grow (220 bytes a token); remembered
    while one question about a passage follows another."""
    return TokenizedText(source.text, source.tokenizer, source.special_tokens, source.ids)


def characters(source: TokenizedText, first: int, last: int) -> tuple[int, int]:
    """The characters [start, end) of tokens first..last of a text, both included.

    Marks at the end that BERT dropped (an accent written as a character of its own) belong to the last one.
    """
    text, places = source.text, source.token_spans
    assert isinstance(text, str)
    end = places[last].end
    limit = places[last + 1].start if last + 1 < len(places) else len(text)
    while end < limit and is_mark(text[end]):
        end += 1
    return places[first].start, end


@dataclass(frozen=True)
class BertWords:
    """BERT's words of a text, as far as its windows read it: the first and last token of each, [W]."""

    source: TokenizedText
    first_W: Numbers
    last_W: Numbers


def bert_words(windows: Sequence[Encoding]) -> BertWords:
    """BERT's words of the text that these windows cover. Those of other tokenizers are parted at punctuation too, and
    spaces, which may be tokens there, are none."""
    source = traced(windows[0].ranges[0][0])
    text, places = source.text, source.token_spans
    assert isinstance(text, str)
    _, _, num_read = windows[-1].ranges[0]  # fewer than there are where the text was truncated
    begins_S = [_begins_word(text, before, place) for before, place in pairwise([TokenSpan(0, 0, -1), *places])]
    first_W = np.flatnonzero(np.array(begins_S, bool))
    last_W = np.append(first_W, len(places))[1:] - 1
    has_text_W = [
        bool(text[places[first].start : places[last].end].strip())
        for first, last in zip(first_W.tolist(), last_W.tolist(), strict=True)
    ]
    is_read_W = (first_W < num_read) & np.array(has_text_W, bool)
    return BertWords(source, first_W[is_read_W], last_W[is_read_W])


def _begins_word(text: str, before: TokenSpan, place: TokenSpan) -> bool:
    touching = text[max(before.end - 1, 0) : before.end] + text[place.start : place.start + 1]
    return place.word != before.word or (before.end <= place.start and any(map(is_punctuation, touching)))


def given_words(words: Sequence[str], read: BertWords) -> tuple[Numbers, NDArray[np.bool_]]:
    """For each of BERT's words in a text of `words` joined by single spaces, the one that holds it, and whether it is
    the first in it, [W]."""
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])[:-1]
    places = read.source.token_spans
    starts_W = np.array([places[first].start for first in read.first_W.tolist()], np.int64)
    given_W = np.searchsorted(starts, starts_W, side="right") - 1
    return given_W, np.diff(given_W, prepend=-1) > 0
