"""BERT's tokenization of a text: basic tokenization, WordPiece and a cache; decoding.

Ids of whitespace-separated chunks are cached, which makes encoding fast. Token spans are computed on demand.
"""

import re
import string
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from itertools import chain
from os import PathLike
from typing import Any, NamedTuple

from bothways.text.tokenizer.basic import Splitter
from bothways.text.tokenizer.wordpiece import CONTINUATION, SPECIAL_TOKENS, AddedToken, BoundedCache, WordPiece

# Control characters that str.split() treats as white space, but BERT removes.
_FALSE_SPACES = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"
_PUNCTUATION = frozenset(string.punctuation)  # ASCII; BERT splits at all of it
_DROP_FALSE_SPACES = dict.fromkeys(map(ord, _FALSE_SPACES))
# A text or part of one, the index in the text of each of its characters, and the id if it is a token.
Part = tuple[str, Sequence[int], int | None]
Finder = tuple[re.Pattern[str], dict[str, AddedToken]]  # finds tokens in a text; the tokens by what it finds


class TokenSpan(NamedTuple):
    """The position of a token: characters [start, end) of its text, and the index of its word."""

    start: int
    end: int
    word: int


class BertBackend:
    """Text to ids and token spans, and tokens to text.

    special_tokens: tokens such as `[MASK]` to parse in the text. added: tokens to parse in every text, and those of
    SPECIAL_TOKENS with unusual flags. num_separators: number of [SEP] tokens between the texts of a pair.
    second_segment_id: segment id of the second text. leading_space: whether a space precedes the text, which matters
    only in library.py. has_bos_and_eos: whether the files name [CLS] and [SEP] also as the tokens at the beginning and
    the end of a text.
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
        added: Sequence[AddedToken] = (),
    ) -> None:
        self.vocab, self.added = vocab, tuple(added)
        self._always = [token for token in added if token.content not in SPECIAL_TOKENS]
        self._finders = cache(self._build_finders)
        self.splitter = Splitter(lowercase=lowercase, strip_accents=strip_accents, split_chinese=split_chinese)
        self.wordpiece = WordPiece(vocab, unknown_id=vocab[SPECIAL_TOKENS[1]], max_word_length=max_word_length)
        self._cache = BoundedCache(self._chunk_ids)

    @property
    def rules(self) -> dict[str, Any]:
        """All options that ids depend on, besides the vocabulary."""
        rules = {name: getattr(self.splitter, name) for name in ("lowercase", "strip_accents", "split_chinese")}
        added = {"added": self.added} if self.added else {}
        return {**rules, "max_word_length": self.wordpiece.max_word_length, **added}

    def __reduce__(self) -> tuple[Callable[..., "BertBackend"], tuple[dict[str, int]]]:
        return partial(BertBackend, **self.rules), (self.vocab,)

    def ids(self, text: str, special_tokens: Sequence[str] = (), *, leading_space: bool = False) -> list[int]:
        if special_tokens or self._always:
            parts = self._parts(text, special_tokens)
            rows = (self._plain_ids(part) if index is None else [index] for part, _, index in parts)
            return list(chain.from_iterable(rows))
        return self._plain_ids(text)

    def _plain_ids(self, text: str) -> list[int]:
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
        for part, places, index in self._parts(text, special_tokens):
            first_word = spans[-1].word + 1 if spans else 0
            if index is not None:
                spans.append(TokenSpan(places[0], places[-1] + 1, first_word))
                continue
            for word_index, (word, origins) in enumerate(self.splitter.spans(part), first_word):
                for start, end in self.wordpiece.spans(word):
                    spans.append(TokenSpan(places[origins[start]], places[origins[end - 1]] + 1, word_index))
        return spans

    def _parts(self, text: str, special_tokens: Sequence[str]) -> Iterator[Part]:
        """The text, split at the tokens to parse: those that are not normalized first, as in the reference."""
        raw, normalized = self._finders(tuple(special_tokens))
        for part, places, index in self._split(text, range(len(text)), raw):
            if index is not None or not normalized[1]:
                yield part, places, index
                continue
            changed, origins = self._normalizer.normalize(part)
            pieces = [*self._split(changed, [places[origin] for origin in origins], normalized)]
            yield from pieces if any(index is not None for _, _, index in pieces) else [(part, places, None)]

    def _build_finders(self, special_tokens: tuple[str, ...]) -> tuple[Finder, Finder]:
        """A finder of the tokens to parse in a text as it is, and one of those in the normalized text."""
        flags = {token.content: token for token in self.added}
        tokens = [
            *self._always,
            *(flags.get(name, AddedToken(name)) for name in special_tokens if name in SPECIAL_TOKENS),
        ]
        normalized = {self._normalizer.normalize(token.content)[0]: token for token in tokens if token.normalized}
        return _finder({token.content: token for token in tokens if not token.normalized}), _finder(normalized)

    def _split(self, text: str, places: Sequence[int], finder: Finder) -> Iterator[Part]:
        """Split a text at tokens, the leftmost and then the longest first."""
        start, (pattern, tokens) = 0, finder
        for match in pattern.finditer(text):
            token, (first, last) = tokens[match[0]], match.span()
            if token.single_word and (_ends_word(text[first - 1 : first]) or _ends_word(text[last : last + 1])):
                continue
            if token.lstrip:
                first = start + len(text[start:first].rstrip())
            while token.rstrip and text[last : last + 1].isspace():
                last += 1
            if start < first:
                yield text[start:first], places[start:first], None
            yield text[first:last], places[first:last], self.vocab[token.content]
            start = last
        yield text[start:], places[start:], None

    @cached_property
    def _normalizer(self) -> Splitter:
        return replace(self.splitter, split_punctuation=False)

    def text(self, tokens: Sequence[str], clean_up_spaces: bool) -> str:
        text = " ".join(tokens).replace(" " + CONTINUATION, "")
        for spaced, joined in _CLEAN_UP if clean_up_spaces else ():
            text = text.replace(spaced, joined)
        return text

    def is_continuation(self, token: str) -> bool:
        return token.startswith(CONTINUATION)

    def append_token(self, text: str, token: str) -> str:
        """The text with a token appended, without a space if the token continues a word."""
        return text.rstrip() + token[len(CONTINUATION) :] if self.is_continuation(token) else text + token

    def save(self, path: str | PathLike[str], tokens: Sequence[str], max_length: int, segments: int) -> None:
        from bothways.text.tokenizer import bert_files

        longest = self.wordpiece.max_word_length
        bert_files.save(path, tokens, self.splitter, longest, max_length, segments, self.added)

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


def _finder(tokens: dict[str, AddedToken]) -> Finder:
    names = sorted(filter(None, tokens), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, names)) or "(?!)"), tokens  # (?!) is never found


def _ends_word(char: str) -> bool:
    """Whether a character, or none, belongs to a word: \\w of the reference, which counts marks."""
    return char != "" and (unicodedata.category(char) in ("Nd", "Nl", "Pc") or unicodedata.category(char)[0] in "LM")


# The replacements of transformers' clean_up_tokenization, in the same order.
_CLEAN_UP = (
    *((" " + sign, sign) for sign in ".?!,"),
    (" ' ", "'"),
    *((" " + clitic, clitic) for clitic in ("n't", "'m", "'s", "'ve", "'re")),
)
