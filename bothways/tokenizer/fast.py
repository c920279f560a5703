"""BERT's tokenization of a text: basic tokenization, WordPiece and a cache; decoding.

Ids of whitespace-separated chunks are cached, which makes encoding fast. Token spans are computed on demand.
"""

import re
import string
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from os import PathLike
from typing import Any, NamedTuple

from bothways.tokenizer.basic import Splitter
from bothways.tokenizer.wordpiece import CONTINUATION, SPECIAL_TOKENS, BoundedCache, WordPiece

# Control characters that str.split() treats as white space, but BERT removes.
_FALSE_SPACES = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"
_PUNCTUATION = frozenset(string.punctuation)  # ASCII; BERT splits at all of it
_DROP_FALSE_SPACES = dict.fromkeys(map(ord, _FALSE_SPACES))


class TokenSpan(NamedTuple):
    """The position of a token: characters [start, end) of its text, and the index of its word."""

    start: int
    end: int
    word: int


class BertBackend:
    """Text to ids and token spans, and tokens to text.

    special_tokens: tokens such as `[MASK]` to parse in the text. num_separators: number of [SEP] tokens between the
    texts of a pair. second_segment_id: segment id of the second text. leading_space: whether a space precedes the text,
    which matters only in library.py. has_bos_and_eos: whether the files name [CLS] and [SEP] also as the tokens at the
    beginning and the end of a text.
    """

    num_separators = second_segment_id = 1
    has_bos_and_eos = False

    def __init__(
        self,
        vocab: dict[str, int],
        *,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        split_chinese: bool = True,
        max_word_length: int = 100,
    ) -> None:
        self.vocab = vocab
        self.splitter = Splitter(lowercase=lowercase, strip_accents=strip_accents, split_chinese=split_chinese)
        self.wordpiece = WordPiece(vocab, unknown_id=vocab[SPECIAL_TOKENS[1]], max_word_length=max_word_length)
        self._cache = BoundedCache(self._chunk_ids)

    @property
    def rules(self) -> dict[str, Any]:
        """All options that ids depend on, besides the vocabulary."""
        rules = {name: getattr(self.splitter, name) for name in ("lowercase", "strip_accents", "split_chinese")}
        return {**rules, "max_word_length": self.wordpiece.max_word_length}

    def __reduce__(self) -> tuple[Callable[..., "BertBackend"], tuple[dict[str, int]]]:
        return partial(BertBackend, **self.rules), (self.vocab,)

    def ids(self, text: str, special_tokens: Sequence[str] = (), *, leading_space: bool = False) -> list[int]:
        if special_tokens:
            parts = _split_special(text, special_tokens)
            rows = ([self.vocab[part]] if is_special else self.ids(part) for part, _, is_special in parts)
            return list(chain.from_iterable(rows))
        if text.isascii() and self.splitter.lowercase:
            text = text.lower()  # fewer distinct chunks in the cache
        for char in _FALSE_SPACES:
            if char in text:
                text = text.translate(_DROP_FALSE_SPACES)
                break
        return list(chain.from_iterable(map(self._cache.__getitem__, text.split())))

    def token_spans(
        self, text: str, special_tokens: Sequence[str] = (), *, leading_space: bool = False
    ) -> list[TokenSpan]:
        spans: list[TokenSpan] = []
        for part, shift, is_special in _split_special(text, special_tokens):
            first_word = spans[-1].word + 1 if spans else 0
            if is_special:
                spans.append(TokenSpan(shift, shift + len(part), first_word))
                continue
            for word_index, (word, origins) in enumerate(self.splitter.spans(part), first_word):
                for start, end in self.wordpiece.spans(word):
                    spans.append(TokenSpan(shift + origins[start], shift + origins[end - 1] + 1, word_index))
        return spans

    def text(self, tokens: Sequence[str], clean_up_spaces: bool) -> str:
        text = " ".join(tokens).replace(" " + CONTINUATION, "")
        for spaced, joined in _CLEAN_UP if clean_up_spaces else ():
            text = text.replace(spaced, joined)
        return text

    def is_continuation(self, token: str) -> bool:
        """Whether a token continues a word."""
        return token.startswith(CONTINUATION)

    def append_token(self, text: str, token: str) -> str:
        """The text with a token appended, without a space if the token continues a word."""
        return text.rstrip() + token[len(CONTINUATION) :] if self.is_continuation(token) else text + token

    def save(self, path: str | PathLike[str], tokens: Sequence[str], max_length: int, segments: int) -> None:
        from bothways.tokenizer import bert_files

        bert_files.save(path, tokens, self.splitter, self.wordpiece.max_word_length, max_length, segments)

    def _chunk_ids(self, chunk: str) -> tuple[int, ...]:
        # Punctuation at either end is always a word of its own; the rest is often in the cache.
        if 1 < len(chunk) <= BoundedCache.MAX_LENGTH:
            if chunk[-1] in _PUNCTUATION:
                return self._cache[chunk[:-1]] + self.wordpiece(chunk[-1])
            if chunk[0] in _PUNCTUATION:
                return self.wordpiece(chunk[0]) + self._cache[chunk[1:]]
        words = self.splitter(chunk)
        if len(words) == 1:
            return self.wordpiece(words[0])
        # Split alone, a few words would have their combining marks reordered again, so these are not cached.
        must_reorder = not chunk.isascii() and self.splitter.must_reorder("".join(words))
        return tuple(chain.from_iterable(map(self.wordpiece if must_reorder else self._cache.__getitem__, words)))


def _split_special(text: str, special_tokens: Sequence[str]) -> list[tuple[str, int, bool]]:
    """Split a text at special tokens: (part, its start, whether it is a special token)."""
    if not special_tokens:
        return [(text, 0, False)]
    parts, start = [], 0
    for match in re.finditer("|".join(map(re.escape, special_tokens)), text):
        parts += [(text[start : match.start()], start, False), (match[0], match.start(), True)]
        start = match.end()
    return [*parts, (text[start:], start, False)]


# The replacements of transformers' clean_up_tokenization, in the same order.
_CLEAN_UP = (
    *((" " + sign, sign) for sign in ".?!,"),
    (" ' ", "'"),
    *((" " + clitic, clitic) for clitic in ("n't", "'m", "'s", "'ve", "'re")),
)
