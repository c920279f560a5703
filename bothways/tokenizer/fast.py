"""How BERT reads a text: words, and the pieces of each; and how pieces become text again (Devlin 2018, section 3).

Ids come from a memory of whitespace-separated chunks, which is what makes it fast; where each token stands in the text
is worked out only when asked for.
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

# Control characters at which Python's str.split() splits, but which BERT removes.
_FALSE_SPACES = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"
_MARKS = frozenset(string.punctuation)  # of ASCII, all of which is punctuation to BERT
_DROP_FALSE_SPACES = dict.fromkeys(map(ord, _FALSE_SPACES))


class TokenSpan(NamedTuple):
    """Where a token stands: characters [start, end) of its text, and which word of it."""

    start: int
    end: int
    word: int


class BertBackend:
    """Text to ids and places, pieces to text. specials: read `[MASK]` and others as special tokens where they stand.

    separators: [SEP] tokens between the texts of a pair. second_segment: of the second text. spaced: whether a space
    stands before the text, which makes no difference here, but in library.py.
    """

    num_separators = second_segment_id = 1

    def __init__(
        self, vocab: dict[str, int], *, lowercase: bool = True, strip_accents: bool | None = None,
        split_chinese: bool = True, max_word_length: int = 100,
    ) -> None:  # fmt: skip
        self.vocab = vocab
        self.splitter = Splitter(lowercase=lowercase, strip_accents=strip_accents, split_chinese=split_chinese)
        self.wordpiece = WordPiece(vocab, unknown_id=vocab[SPECIAL_TOKENS[1]], max_word_length=max_word_length)
        self._memory = BoundedCache(self._chunk_ids)

    @property
    def rules(self) -> dict[str, Any]:
        """All that ids depend on, beside the vocabulary."""
        rules = {name: getattr(self.splitter, name) for name in ("lowercase", "strip_accents", "split_chinese")}
        return {**rules, "max_word_length": self.wordpiece.max_word_length}

    def __reduce__(self) -> tuple[Callable[..., "BertBackend"], tuple[dict[str, int]]]:
        return partial(BertBackend, **self.rules), (self.vocab,)

    def ids(self, text: str, special_tokens: Sequence[str] = (), *, leading_space: bool = False) -> list[int]:
        if special_tokens:
            parts = _parts(text, special_tokens)
            return list(chain.from_iterable([self.vocab[p]] if special else self.ids(p) for p, _, special in parts))
        if text.isascii() and self.splitter.lowercase:
            text = text.lower()  # fewer chunks to remember
        for char in _FALSE_SPACES:
            if char in text:
                text = text.translate(_DROP_FALSE_SPACES)
                break
        return list(chain.from_iterable(map(self._memory.__getitem__, text.split())))

    def token_spans(
        self, text: str, special_tokens: Sequence[str] = (), *, leading_space: bool = False
    ) -> list[TokenSpan]:
        token_spans: list[TokenSpan] = []
        for part, shift, special in _parts(text, special_tokens):
            first_word = token_spans[-1].word + 1 if token_spans else 0
            if special:
                token_spans.append(TokenSpan(shift, shift + len(part), first_word))
                continue
            for word_index, (word, origins) in enumerate(self.splitter.spans(part), first_word):
                for start, end in self.wordpiece.spans(word):
                    token_spans.append(TokenSpan(shift + origins[start], shift + origins[end - 1] + 1, word_index))
        return token_spans

    def text(self, tokens: Sequence[str], clean_up_spaces: bool) -> str:
        text = " ".join(tokens).replace(" " + CONTINUATION, "")
        for apart, together in _CLOSED_UP if clean_up_spaces else ():
            text = text.replace(apart, together)
        return text

    def is_continuation(self, token: str) -> bool:
        """Whether an entry of the vocabulary goes on with a word."""
        return token.startswith(CONTINUATION)

    def append_token(self, before: str, token: str) -> str:
        """What stands before a gap, with an entry in the gap: a piece that goes on with a word closes up to it."""
        return before.rstrip() + token[len(CONTINUATION) :] if self.is_continuation(token) else before + token

    def save(self, path: str | PathLike[str], tokens: Sequence[str], longest_input: int, segments: int) -> None:
        from bothways.tokenizer import files

        files.save(path, tokens, self.splitter, self.wordpiece.max_word_length, longest_input, segments)

    def _chunk_ids(self, chunk: str) -> tuple[int, ...]:
        # A mark at either end is a word of its own, whatever the rest is; the rest has often been met.
        if 1 < len(chunk) <= BoundedCache.MAX_LENGTH:
            if chunk[-1] in _MARKS:
                return self._memory[chunk[:-1]] + self.wordpiece(chunk[-1])
            if chunk[0] in _MARKS:
                return self.wordpiece(chunk[0]) + self._memory[chunk[1:]]
        words = self.splitter(chunk)
        if len(words) == 1:
            return self.wordpiece(words[0])
        # The few words whose marks could change places once more, split alone, are not remembered under their own name.
        alone = not chunk.isascii() and self.splitter.must_reorder("".join(words))
        return tuple(chain.from_iterable(map(self.wordpiece if alone else self._memory.__getitem__, words)))


def _parts(text: str, special_tokens: Sequence[str]) -> list[tuple[str, int, bool]]:
    """(part, where it starts, whether it is a special token) of a text in which some special tokens are read."""
    if not special_tokens:
        return [(text, 0, False)]
    parts, start = [], 0
    for match in re.finditer("|".join(map(re.escape, special_tokens)), text):
        parts += [(text[start : match.start()], start, False), (match[0], match.start(), True)]
        start = match.end()
    return [*parts, (text[start:], start, False)]


# What transformers' clean-up does, in its order, so that decoded text compares equal.
_CLOSED_UP = (
    *((" " + mark, mark) for mark in ".?!,"),
    (" ' ", "'"),
    *((" " + clitic, clitic) for clitic in ("n't", "'m", "'s", "'ve", "'re")),
)
