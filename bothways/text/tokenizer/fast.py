"""BERT's tokenization of a text: basic tokenization, WordPiece and a cache; decoding.

Ids of whitespace-separated chunks are cached as bytes, which makes encoding fast: a text is one join of them. Token
spans are computed on demand.
"""

import re
import string
import unicodedata
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from os import PathLike
from typing import Any, NamedTuple

from bothways.text.tokenizer.basic import Splitter
from bothways.text.tokenizer.wordpiece import CONTINUATION, SPECIAL_TOKENS, AddedToken, BoundedCache, WordPiece

# Control characters that str.split() treats as white space, but BERT removes.
_FALSE_SPACES = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"
_DROP_FALSE_SPACES = dict.fromkeys(map(ord, _FALSE_SPACES))
_PUNCTUATION = frozenset(string.punctuation)  # ASCII; BERT splits at all of it
# The replacements of transformers' clean_up_tokenization, in the same order.
_CLEAN_UP = {
    " .": ".",
    " ?": "?",
    " !": "!",
    " ,": ",",
    " ' ": "'",
    " n't": "n't",
    " 'm": "'m",
    " 's": "'s",
    " 've": "'ve",
    " 're": "'re",
}
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

    vocab, lowercase, strip_accents, split_chinese, max_word_length: see `Tokenizer`.
    added: tokens to parse in every text, and tokens of SPECIAL_TOKENS with unusual flags.

    Parameters of the methods:
    special_tokens: tokens such as `[MASK]` to parse in the text.
    leading_space: whether a space precedes the text, which matters only in library.py.
    """

    num_separators = 1  # [SEP] tokens between the texts of a pair
    second_segment_id = 1  # segment of the second text
    has_bos_and_eos = False  # whether the files name [CLS] and [SEP] also as the first and the last token of a text

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
        self.vocab = vocab
        self.added = tuple(added)
        self._always = [token for token in added if token.content not in SPECIAL_TOKENS]
        self._finders = cache(self._build_finders)

        self.splitter = Splitter(lowercase=lowercase, strip_accents=strip_accents, split_chinese=split_chinese)
        unknown_id = vocab[SPECIAL_TOKENS[1]]
        self.wordpiece = WordPiece(vocab, unknown_id=unknown_id, max_word_length=max_word_length)
        self._cache = BoundedCache(self._chunk_ids)

    @property
    def rules(self) -> dict[str, Any]:
        """All options that ids depend on, besides the vocabulary."""
        rules: dict[str, Any] = {
            "lowercase": self.splitter.lowercase,
            "strip_accents": self.splitter.strip_accents,
            "split_chinese": self.splitter.split_chinese,
            "max_word_length": self.wordpiece.max_word_length,
        }
        if self.added:
            rules["added"] = self.added
        return rules

    def __reduce__(self) -> tuple[Callable[..., "BertBackend"], tuple[dict[str, int]]]:
        return partial(BertBackend, **self.rules), (self.vocab,)

    def ids(self, text: str, special_tokens: Sequence[str] = (), *, leading_space: bool = False) -> list[int]:
        if not special_tokens and not self._always:
            return self._plain_ids(text)

        ids: list[int] = []
        for part, _, index in self._parts(text, special_tokens):
            if index is None:
                ids += self._plain_ids(part)
            else:
                ids.append(index)
        return ids

    def packed_ids(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text as the bytes of 32-bit integers."""
        if self._always:
            return [array("i", self.ids(text)).tobytes() for text in texts]

        # One search through all texts, since hardly any has such a character.
        joined = "".join(texts)
        if any(char in joined for char in _FALSE_SPACES):
            texts = [text.translate(_DROP_FALSE_SPACES) for text in texts]
        return [*map(self._packed, texts)]

    def _plain_ids(self, text: str) -> list[int]:
        for char in _FALSE_SPACES:
            if char in text:
                text = text.translate(_DROP_FALSE_SPACES)
                break
        return memoryview(self._packed(text)).cast("i").tolist()

    def _packed(self, text: str) -> bytes:
        if self.splitter.lowercase and text.isascii():
            text = text.lower()  # fewer distinct chunks in the cache
        # Joining bytes takes half the time of chaining tuples into a list, and an array needs no list.
        return b"".join(map(self._cache.__getitem__, text.split()))

    def _chunk_ids(self, chunk: str) -> bytes:
        if chunk.isascii() and chunk.isalnum():  # a word as it stands, which the splitter would only lower-case
            return self._word_ids(chunk.lower() if self.splitter.lowercase else chunk)

        # Punctuation at either end is always a word of its own; the rest is often in the cache.
        if 1 < len(chunk) <= BoundedCache.MAX_LENGTH:
            if chunk[-1] in _PUNCTUATION:
                return self._cache[chunk[:-1]] + self._cache[chunk[-1]]
            if chunk[0] in _PUNCTUATION:
                return self._cache[chunk[0]] + self._cache[chunk[1:]]

        words = self.splitter(chunk)
        if len(words) == 1:
            return self._word_ids(words[0])

        # Split alone, a few words would have their combining marks reordered again, so these are not cached.
        must_reorder = not chunk.isascii() and self.splitter.must_reorder("".join(words))
        word_ids = self._word_ids if must_reorder else self._cache.__getitem__
        return b"".join(map(word_ids, words))

    def _word_ids(self, word: str) -> bytes:
        return array("i", self.wordpiece(word)).tobytes()

    def token_spans(
        self,
        text: str,
        special_tokens: Sequence[str] = (),
        *,
        leading_space: bool = False,
    ) -> list[TokenSpan]:
        spans: list[TokenSpan] = []
        for part, positions, index in self._parts(text, special_tokens):
            first_word = spans[-1].word + 1 if spans else 0
            if index is not None:
                spans.append(TokenSpan(positions[0], positions[-1] + 1, first_word))
                continue

            for word_index, (word, origins) in enumerate(self.splitter.spans(part), first_word):
                for start, end in self.wordpiece.spans(word):
                    first = positions[origins[start]]
                    last = positions[origins[end - 1]]
                    spans.append(TokenSpan(first, last + 1, word_index))
        return spans

    def _parts(self, text: str, special_tokens: Sequence[str]) -> Iterator[Part]:
        """The text, split at the tokens to parse; tokens that are not normalized come first, as in the reference."""
        raw, normalized = self._finders(tuple(special_tokens))
        _, normalized_tokens = normalized
        for part, positions, index in self._split(text, range(len(text)), raw):
            if index is not None or not normalized_tokens:
                yield part, positions, index
                continue

            changed, origins = self._normalizer.normalize(part)
            changed_positions = [positions[origin] for origin in origins]
            pieces = [*self._split(changed, changed_positions, normalized)]
            has_token = any(index is not None for _, _, index in pieces)
            if has_token:
                yield from pieces
            else:  # as it is, since it will be normalized as a whole
                yield part, positions, None

    def _build_finders(self, special_tokens: tuple[str, ...]) -> tuple[Finder, Finder]:
        """A finder of the tokens to parse in a text as it is, and one of the tokens in the normalized text."""
        added_by_name = {token.content: token for token in self.added}
        requested = [added_by_name.get(name, AddedToken(name)) for name in special_tokens if name in SPECIAL_TOKENS]

        raw: dict[str, AddedToken] = {}
        normalized: dict[str, AddedToken] = {}
        for token in (*self._always, *requested):
            if token.normalized:
                text, _ = self._normalizer.normalize(token.content)
                normalized[text] = token
            else:
                raw[token.content] = token
        return _finder(raw), _finder(normalized)

    def _split(self, text: str, positions: Sequence[int], finder: Finder) -> Iterator[Part]:
        """Split a text at tokens, the leftmost and then the longest first."""
        pattern, tokens = finder
        start = 0
        for match in pattern.finditer(text):
            token = tokens[match[0]]
            first, last = match.span()

            if token.single_word and (_ends_word(text[first - 1 : first]) or _ends_word(text[last : last + 1])):
                continue  # inside a word

            if token.lstrip:
                first = start + len(text[start:first].rstrip())
            while token.rstrip and text[last : last + 1].isspace():
                last += 1

            if start < first:
                yield text[start:first], positions[start:first], None
            yield text[first:last], positions[first:last], self.vocab[token.content]
            start = last

        yield text[start:], positions[start:], None

    @cached_property
    def _normalizer(self) -> Splitter:
        return replace(self.splitter, split_punctuation=False)

    def text(self, tokens: Sequence[str], clean_up_spaces: bool) -> str:
        text = " ".join(tokens).replace(" " + CONTINUATION, "")
        if clean_up_spaces:
            for spaced, joined in _CLEAN_UP.items():
                text = text.replace(spaced, joined)
        return text

    def is_continuation(self, token: str) -> bool:
        return token.startswith(CONTINUATION)

    def append_token(self, text: str, token: str) -> str:
        """The text with a token appended, without a space if the token continues a word."""
        if self.is_continuation(token):
            return text.rstrip() + token[len(CONTINUATION) :]
        return text + token

    def save(
        self,
        path: str | PathLike[str],
        tokens: Sequence[str],
        max_length: int,
        segments: int,
    ) -> None:
        from bothways.text.tokenizer.save import save

        save(
            path,
            tokens,
            self.splitter,
            max_word_length=self.wordpiece.max_word_length,
            max_length=max_length,
            segments=segments,
            added=self.added,
        )


def _finder(tokens: dict[str, AddedToken]) -> Finder:
    names = sorted(filter(None, tokens), key=len, reverse=True)
    pattern = "|".join(map(re.escape, names)) or "(?!)"  # which is never found
    return re.compile(pattern), tokens


def _ends_word(char: str) -> bool:
    """Whether a character, or none, belongs to a word: \\w of the reference, which counts marks."""
    if char == "":
        return False
    category = unicodedata.category(char)
    return category[0] in "LM" or category in ("Nd", "Nl", "Pc")
