"""Character offsets: from tokens to characters, to BERT's words, and to pre-split words.

Letters: W words of BERT's basic tokenization in a text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bothways.text.data.tags import word_starts
from bothways.text.tokenizer.characters import is_mark, is_punctuation
from bothways.text.tokenizer.encoding import Encoding, TokenizedText
from bothways.text.tokenizer.fast import TokenSpan

Indices = NDArray[np.int64]


@lru_cache(maxsize=1)
def with_positions(source: TokenizedText) -> TokenizedText:
    """A copy whose `token_spans` may be accessed. They take 220 bytes per token, so the original should not store them.
    The last copy is cached, for consecutive questions about one passage."""
    return TokenizedText(
        text=source.text,
        tokenizer=source.tokenizer,
        special_tokens=source.special_tokens,
        ids=source.ids,
    )


def char_span(source: TokenizedText, first: int, last: int) -> tuple[int, int]:
    """The characters [start, end) of tokens first..last of a text, both inclusive.

    Combining marks at the end that BERT dropped (accents as separate characters) are included.
    """
    text = source.text
    places = source.token_spans
    assert isinstance(text, str)
    end = places[last].end
    limit = places[last + 1].start if last + 1 < len(places) else len(text)
    while end < limit and is_mark(text[end]):
        end += 1
    return places[first].start, end


@dataclass(frozen=True)
class BertWords:
    """BERT's words in the part of a text that its windows read: the first and last token of each, [W]."""

    source: TokenizedText
    first_W: Indices
    last_W: Indices


def bert_words(windows: Sequence[Encoding]) -> BertWords:
    """BERT's words of the text that these windows cover. Words of other tokenizers are split at punctuation too, and
    their space tokens are not words."""
    source = with_positions(windows[0].ranges[0][0])
    text = source.text
    places = source.token_spans
    assert isinstance(text, str)
    _, _, num_read = windows[-1].ranges[0]  # fewer than all tokens if the text was truncated
    is_first_S = [_begins_word(text, before, place) for before, place in pairwise([TokenSpan(0, 0, -1), *places])]
    first_W = np.flatnonzero(np.array(is_first_S, bool))
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


def align_words(words: Sequence[str], bert: BertWords) -> tuple[Indices, NDArray[np.bool_]]:
    """For each of BERT's words in join_words(words): the index of the word that contains it, and whether it is the
    first one there, [W]."""
    starts = np.array(word_starts(words), np.int64)
    places = bert.source.token_spans
    starts_W = np.array([places[first].start for first in bert.first_W.tolist()], np.int64)
    word_W = np.searchsorted(starts, starts_W, side="right") - 1
    return word_W, np.diff(word_W, prepend=-1) > 0
