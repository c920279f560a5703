"""From tokens back to the text: the characters they take, BERT's words, and the given words that hold these.

Letters: W of BERT's words in a text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bothways.tokenizer.tokenizer import Encoding, Source
from bothways.tokenizer.unicode import is_mark

Numbers = NDArray[np.int64]


@lru_cache(maxsize=1)
def traced(source: Source) -> Source:
    """A copy to ask where tokens stand, so that what a data set keeps does not grow (220 bytes a token); remembered
    while one question about a passage follows another."""
    return Source(source.text, source.tokenizer, source.specials, source.ids)


def characters(source: Source, first: int, last: int) -> tuple[int, int]:
    """The characters [start, end) of tokens first..last of a text, both included.

    Marks at the end that BERT dropped (an accent written as a character of its own) belong to the last one.
    """
    text, places = source.text, source.places
    assert isinstance(text, str)
    end = places[last].end
    limit = places[last + 1].start if last + 1 < len(places) else len(text)
    while end < limit and is_mark(text[end]):
        end += 1
    return places[first].start, end


@dataclass(frozen=True)
class BertWords:
    """BERT's words of a text, as far as its windows read it: the first and last token of each, [W]."""

    source: Source
    first_W: Numbers
    last_W: Numbers


def bert_words(windows: Sequence[Encoding]) -> BertWords:
    """BERT's words of the text that these windows cover."""
    source = traced(windows[0].sources[0][0])
    _, _, num_read = windows[-1].sources[0]  # fewer than there are where the text was truncated
    words = np.array([place.word for place in source.places], np.int64)
    first_W = np.flatnonzero(np.diff(words, prepend=-1))
    last_W = np.append(first_W, len(words))[1:] - 1
    is_read_W = first_W < num_read
    return BertWords(source, first_W[is_read_W], last_W[is_read_W])


def given_words(words: Sequence[str], read: BertWords) -> tuple[Numbers, NDArray[np.bool_]]:
    """For each of BERT's words in a text of `words` joined by single spaces, the one that holds it, and whether it is
    the first in it, [W]."""
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])[:-1]
    places = read.source.places
    starts_W = np.array([places[first].start for first in read.first_W.tolist()], np.int64)
    given_W = np.searchsorted(starts, starts_W, side="right") - 1
    return given_W, np.diff(given_W, prepend=-1) > 0
