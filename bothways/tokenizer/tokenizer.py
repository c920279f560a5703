"""The tokenizer: special tokens, pairs and windows over long texts -> Encoding; and ids back to text (Devlin 2018,
section 3).

Ids come from a memory of whitespace-separated chunks, which is what makes it fast; where each token stands in the text
is worked out only when asked for.
"""

import re
import string
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from os import PathLike
from typing import NamedTuple, TypeVar

from bothways.errors import InputError
from bothways.tokenizer.text import Splitter
from bothways.tokenizer.wordpiece import CONTINUATION, SPECIALS, Memory, WordPiece

# Control characters at which Python's str.split() splits, but which BERT removes.
_FALSE_SPACES = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"
_MARKS = frozenset(string.punctuation)  # of ASCII, all of which is punctuation to BERT
_DROP_FALSE_SPACES = dict.fromkeys(map(ord, _FALSE_SPACES))
Value = TypeVar("Value")
SHORTEST_ROOM = 64  # tokens that must remain for the sliding text of a pair


class Place(NamedTuple):
    """Where a token stands: characters [start, end) of its text, and which word of it."""

    start: int
    end: int
    word: int


class Source:
    """One text (or list of words) as ids; traces every id to its place in the text when first asked."""

    def __init__(
        self,
        text: str | Sequence[str],
        tokenizer: "Tokenizer",
        specials: Sequence[str] = (),
        ids: list[int] | None = None,
    ) -> None:
        self.text, self.tokenizer, self.specials = text, tokenizer, specials
        if ids is None and isinstance(text, str):
            ids = tokenizer.ids(text, specials)
        self.ids = list(chain.from_iterable(map(tokenizer.ids, text))) if ids is None else ids

    @cached_property
    def places(self) -> list[Place]:
        if isinstance(self.text, str):
            return self.tokenizer._places(self.text, self.specials)
        return [
            Place(start, end, index)
            for index, word in enumerate(self.text)
            for start, end, _ in self.tokenizer._places(word)
        ]


@dataclass(slots=True)  # not frozen: that would cost as much as encoding a short text
class Encoding:
    """A text, a pair or a window of one, ready for a model. All lists are one entry a token, specials included.

    ids: entries of the vocabulary. sources: for the first text and its pair, the token range [first, last) held here.
    """

    ids: list[int]
    sources: tuple[tuple[Source, int, int], ...]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> list[str]:
        tokens = self.sources[0][0].tokenizer.tokens
        return [tokens[index] for index in self.ids]

    @property
    def segment_ids(self) -> list[int]:
        """0 for [CLS], the first text and its [SEP]; 1 for the second and its [SEP]."""
        first = 2 + self.sources[0][2] - self.sources[0][1]
        return [0] * first + [1] * (len(self.ids) - first)

    @property
    def sequence_ids(self) -> list[int | None]:
        """Which text a token is from, None for [CLS] and [SEP]."""
        return self._laid_out(lambda which, _: which, None)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Characters [start, end) of the token in its own text (or given word); (0, 0) for [CLS] and [SEP]."""
        return self._laid_out(lambda _, place: (place.start, place.end), (0, 0))

    @property
    def word_ids(self) -> list[int | None]:
        """Which word of its text (or which given word) a token belongs to, None for [CLS] and [SEP]."""
        return self._laid_out(lambda _, place: place.word, None)

    def _laid_out(self, value: Callable[[int, Place], Value], special: Value) -> list[Value]:
        row = [special]
        for which, (source, first, last) in enumerate(self.sources):
            row += [value(which, place) for place in source.places[first:last]]
            row.append(special)
        return row


class Tokenizer:
    """BERT's tokenizer. vocab: token -> id, ids 0..V-1, with [PAD] [UNK] [CLS] [SEP] [MASK] among them.

    lowercase, strip_accents (None: as lowercase), chinese: see `Splitter`. A `[SEP]` written in a text is text, unless
    specials=True is asked for. Lone surrogates are read as U+FFFD (which BERT drops); `replaced_surrogates` counts
    them.
    """

    def __init__(
        self,
        vocab: dict[str, int],
        *,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        chinese: bool = True,
        longest_word: int = 100,
    ) -> None:
        if missing := [token for token in SPECIALS if token not in vocab]:
            raise InputError(
                f"vocabulary of {len(vocab)} entries lacks {', '.join(missing)}: add a line for each "
                "(BERT needs [PAD], [UNK], [CLS], [SEP] and [MASK])"
            )
        self.vocab = vocab
        self.tokens = [token for token, _ in sorted(vocab.items(), key=lambda entry: entry[1])]
        if sorted(vocab.values()) != list(range(len(vocab))):
            raise InputError(f"vocabulary ids must be 0 to {len(vocab) - 1}, each once: number the entries anew")
        self.pad_id, self.unknown_id, self.cls_id, self.sep_id, self.mask_id = (vocab[token] for token in SPECIALS)
        self.special_ids = frozenset(vocab[token] for token in SPECIALS)
        self.splitter = Splitter(lowercase=lowercase, strip_accents=strip_accents, chinese=chinese)
        self.wordpiece = WordPiece(vocab, unknown_id=self.unknown_id, longest_word=longest_word)
        self.replaced_surrogates = 0
        self._memory = Memory(self._chunk_ids)

    # --- made, kept -----------------------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Tokenizer":
        """Read a vocab.txt, a tokenizer.json, or a checkpoint directory. InputError names what is wrong with it."""
        from bothways.tokenizer import files

        stored = files.load(path)
        rules = stored.splitter
        try:
            return cls(
                stored.vocab,
                lowercase=rules.lowercase,
                strip_accents=rules.strip_accents,
                chinese=rules.chinese,
                longest_word=stored.longest_word,
            )
        except InputError as error:
            raise InputError(f"{stored.file}: {error}") from None

    @classmethod
    def learn(cls, texts: Iterable[str], size: int = 30522, lowercase: bool = True, processes: int = 1) -> "Tokenizer":
        """Learn a WordPiece vocabulary of at most `size` entries. The same texts give the same one, byte for byte."""
        from bothways.tokenizer import learn

        pieces = learn.learn_pieces(texts, Splitter(lowercase=lowercase), size, processes=processes)
        return cls({piece: index for index, piece in enumerate(pieces)}, lowercase=lowercase)

    def save(self, path: str | PathLike[str], longest_input: int = 512) -> None:
        """Write vocab.txt, tokenizer.json and tokenizer_config.json into a directory, as transformers reads them.

        longest_input: how many tokens the model beside it reads.
        """
        from bothways.tokenizer import files

        files.save(path, self.tokens, self.splitter, self.wordpiece.longest_word, longest_input)

    def __len__(self) -> int:
        return len(self.vocab)

    def __reduce__(self) -> tuple[Callable[..., "Tokenizer"], tuple[dict[str, int], bool, bool | None, bool, int]]:
        rules = self.splitter
        return _rebuild, (self.vocab, rules.lowercase, rules.strip_accents, rules.chinese, self.wordpiece.longest_word)

    # --- text -> ids ----------------------------------------------------------------------------------------------

    def encode(self, text: str, pair: str | None = None, specials: bool | Sequence[str] = False) -> Encoding:
        """[CLS] text [SEP], or [CLS] text [SEP] pair [SEP].

        specials: read `[MASK]` and the like as special tokens; all of them, or only those named.
        """
        named = (specials,) if isinstance(specials, str) else specials
        read = SPECIALS if named is True else tuple(named or ())
        if unknown := set(read) - set(SPECIALS):
            raise InputError(f"special token {min(unknown)!r} is not one of {', '.join(SPECIALS)}")
        return self._whole(Source(text, self, read), None if pair is None else Source(pair, self, read))

    def encode_words(self, words: Sequence[str], pair: Sequence[str] | None = None) -> Encoding:
        """Text that is already split: word ids count the given words, offsets stand within each."""
        return self._whole(Source(list(words), self), None if pair is None else Source(list(pair), self))

    def encode_many(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, processes: int = 1
    ) -> list[Encoding]:
        """Encode every text (with its pair); over several processes if asked, which pays for very many texts."""
        if isinstance(texts, str):
            raise InputError("texts is one string; give a list of texts: [text]")
        if pairs is not None and len(pairs) != len(texts):
            raise InputError(f"{len(texts)} texts but {len(pairs)} pairs: give one pair a text")
        if processes > 1:
            from bothways.tokenizer import parallel

            flat = [*texts, *(pairs or [])]
            sources = [
                Source(text, self, ids=ids) for text, ids in zip(flat, parallel.ids(self, flat, processes), strict=True)
            ]
            firsts, seconds = sources[: len(texts)], sources[len(texts) :] or repeat(None, len(texts))
            return [self._whole(*both) for both in zip(firsts, seconds, strict=True)]
        return [self.encode(*both) for both in zip(texts, pairs or repeat(None, len(texts)), strict=True)]

    def windows(self, text: str, pair: str | None = None, size: int = 512, overlap: int = 128) -> list[Encoding]:
        """Encodings of at most `size` tokens, specials counted, that cover the text.

        Neighbours share `overlap` text tokens, so each starts size - specials - overlap further on. Of a pair the first
        text stays whole and the second slides. InputError where no progress is possible or a pair leaves too little
        room.
        """
        return self.slide(self.encode(text, pair), size=size, overlap=overlap)

    def slide(self, encoding: Encoding, *, size: int, overlap: int) -> list[Encoding]:
        """The windows of what is already encoded; the encoding itself where it fits."""
        if len(encoding) <= size:
            return [encoding]
        *fixed, (source, first, last) = encoding.sources
        room = size - len(encoding) + last - first
        if fixed and room < SHORTEST_ROOM:
            raise InputError(
                f"the first text of a pair takes {size - 3 - room} of {size} tokens and leaves {room} for the second, "
                f"fewer than {SHORTEST_ROOM}: shorten it or use a larger window"
            )
        if not 0 <= overlap < room:
            raise InputError(f"overlap ({overlap}) must be at least 0 and less than the {room} text tokens of a window")
        starts = range(first, last - overlap, room - overlap)
        return [self._framed([*fixed, (source, start, min(start + room, last))]) for start in starts]

    def decode(self, ids: Sequence[int], specials: bool = False, clean: bool = True) -> str:
        """Ids to readable text. specials: keep [CLS] and the like. clean: close up punctuation and English clitics."""
        tokens = [self.tokens[index] for index in ids if specials or index not in self.special_ids]
        text = " ".join(tokens).replace(" " + CONTINUATION, "")
        if clean:
            for apart, together in _CLOSED_UP:
                text = text.replace(apart, together)
        return text

    # --- inside ---------------------------------------------------------------------------------------------------

    def ids(self, text: str, specials: Sequence[str] = ()) -> list[int]:
        if specials:
            return list(
                chain.from_iterable(
                    [self.vocab[part]] if special else self.ids(part) for part, _, special in _parts(text, specials)
                )
            )
        if not text.isascii():
            self._count_surrogates(text)
        elif self.splitter.lowercase:
            text = text.lower()  # fewer chunks to remember
        for char in _FALSE_SPACES:
            if char in text:
                text = text.translate(_DROP_FALSE_SPACES)
                break
        return list(chain.from_iterable(map(self._memory.__getitem__, text.split())))

    def _count_surrogates(self, text: str) -> None:
        try:
            text.encode()
        except UnicodeEncodeError:
            self.replaced_surrogates += sum(0xD800 <= ord(char) < 0xE000 for char in text)

    def _chunk_ids(self, chunk: str) -> tuple[int, ...]:
        # A mark at either end is a word of its own, whatever the rest is; the rest has often been met.
        if 1 < len(chunk) <= Memory.LONGEST:
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

    def _places(self, text: str, specials: Sequence[str] = ()) -> list[Place]:
        places: list[Place] = []
        for part, shift, special in _parts(text, specials):
            first_word = places[-1].word + 1 if places else 0
            if special:
                places.append(Place(shift, shift + len(part), first_word))
                continue
            for word_index, (word, origins) in enumerate(self.splitter.spans(part), first_word):
                for start, end in self.wordpiece.spans(word):
                    places.append(Place(shift + origins[start], shift + origins[end - 1] + 1, word_index))
        return places

    def _whole(self, first: Source, second: Source | None) -> Encoding:
        sources = [first] if second is None else [first, second]
        return self._framed([(source, 0, len(source.ids)) for source in sources])

    def _framed(self, sources: Sequence[tuple[Source, int, int]]) -> Encoding:
        ids = [self.cls_id]
        for source, first, last in sources:
            ids += source.ids if last - first == len(source.ids) else source.ids[first:last]
            ids.append(self.sep_id)
        return Encoding(ids, tuple(sources))


def _parts(text: str, specials: Sequence[str]) -> list[tuple[str, int, bool]]:
    """(part, where it starts, whether it is a special token) of a text in which some special tokens are read."""
    if not specials:
        return [(text, 0, False)]
    parts, start = [], 0
    for match in re.finditer("|".join(map(re.escape, specials)), text):
        parts += [(text[start : match.start()], start, False), (match[0], match.start(), True)]
        start = match.end()
    return [*parts, (text[start:], start, False)]


def _rebuild(
    vocab: dict[str, int], lowercase: bool, strip_accents: bool | None, chinese: bool, longest_word: int
) -> Tokenizer:
    return Tokenizer(
        vocab, lowercase=lowercase, strip_accents=strip_accents, chinese=chinese, longest_word=longest_word
    )


# What transformers' clean-up does, in its order, so that decoded text compares equal.
_CLOSED_UP = (
    *((" " + mark, mark) for mark in ".?!,"),
    (" ' ", "'"),
    *((" " + clitic, clitic) for clitic in ("n't", "'m", "'s", "'ve", "'re")),
)
