"""The tokenizer: special tokens, pairs and windows over long texts -> Encoding; and ids back to text (Devlin 2018,
section 3). How a text itself is read: reading.py, or library.py for other kinds than BERT's.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from os import PathLike
from typing import TypeVar

from bothways.errors import InputError, brief
from bothways.tokenizer.fast import BertReading, Place
from bothways.tokenizer.library import LibraryReading
from bothways.tokenizer.wordpiece import SPECIALS

Value = TypeVar("Value")
SHORTEST_ROOM = 64  # tokens that must remain for the sliding text of a pair


class Source:
    """One text (or list of words) as ids; traces every id to its place in the text when first asked."""

    def __init__(
        self, text: str | Sequence[str], tokenizer: "Tokenizer", specials: Sequence[str] = (),
        ids: list[int] | None = None,
    ) -> None:  # fmt: skip
        self.text, self.tokenizer, self.specials = text, tokenizer, specials
        if ids is None and isinstance(text, str):
            ids = tokenizer.ids(text, specials)
        self.ids = list(chain.from_iterable(tokenizer.ids(word, spaced=True) for word in text)) if ids is None else ids

    @cached_property
    def places(self) -> list[Place]:
        reading = self.tokenizer.reading
        if isinstance(self.text, str):
            return reading.places(self.text, self.specials)
        return [
            Place(start, end, index)
            for index, word in enumerate(self.text)
            for start, end, _ in reading.places(word, spaced=True)
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
        """0 for [CLS], the first text and its [SEP]; 1 for the second and its [SEP], where segments are told apart."""
        source, first, last = self.sources[-1]
        size = (last - first + 1) * (len(self.sources) - 1)  # of the second, where there is one
        return [0] * (len(self.ids) - size) + [source.tokenizer.reading.second_segment] * size

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
            row += [special] * (which * source.tokenizer.reading.separators)
            row += [value(which, place) for place in source.places[first:last]]
        return [*row, special]


class Tokenizer:
    """BERT's tokenizer. vocab: token -> id, ids 0..V-1, with [PAD] [UNK] [CLS] [SEP] [MASK] among them.

    lowercase, strip_accents (None: as lowercase), chinese: see `Splitter`. reading: another way to read text than
    BERT's; special tokens are then its own. A `[SEP]` written in a text is text, unless specials=True is asked for.
    Lone surrogates are read as U+FFFD (which BERT drops); `replaced_surrogates` counts them.
    """

    def __init__(
        self, vocab: dict[str, int], *, lowercase: bool = True, strip_accents: bool | None = None, chinese: bool = True,
        longest_word: int = 100, reading: LibraryReading | None = None,
    ) -> None:  # fmt: skip
        self.specials = reading.specials if reading else SPECIALS
        if missing := [token for token in self.specials if token not in vocab]:
            raise InputError(
                f"vocabulary of {len(vocab)} entries lacks {', '.join(map(brief, missing))}: add a line for "
                f"each ({', '.join(map(brief, self.specials))} are needed)"
            )
        self.vocab = vocab
        self.tokens = [token for token, _ in sorted(vocab.items(), key=lambda entry: entry[1])]
        if sorted(vocab.values()) != list(range(len(vocab))):
            raise InputError(f"vocabulary ids must be 0 to {len(vocab) - 1}, each once: number the entries anew")
        special_ids = [vocab[token] for token in self.specials]
        self.pad_id, self.unknown_id, self.cls_id, self.sep_id, self.mask_id = special_ids[: len(SPECIALS)]
        self.special_ids = frozenset(special_ids)
        self.reading: BertReading | LibraryReading = reading or BertReading(
            vocab, lowercase=lowercase, strip_accents=strip_accents, chinese=chinese, longest_word=longest_word
        )
        self.replaced_surrogates = 0

    # --- made, kept -----------------------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Tokenizer":
        """Read a vocab.txt, a tokenizer.json, the files of another kind (other_files.py), or a checkpoint directory.

        InputError names what is wrong with it.
        """
        from bothways.tokenizer import formats

        stored = formats.load(path)
        try:
            return cls(stored.vocab, **stored.options)
        except InputError as error:
            raise InputError(f"{stored.file}: {error}") from None

    @classmethod
    def learn(
        cls, texts: Iterable[str], size: int | None = 30522, lowercase: bool = True, processes: int = 1,
        alphabet: int = 1000, *, strip_accents: bool | None = None, tell: Callable[[str], object] | None = None,
    ) -> "Tokenizer":  # fmt: skip
        """Learn a WordPiece vocabulary of at most `size` entries. The same texts give the same one, byte for byte.

        size: None chooses 8,000 to 30,522 by the text. Words with a character that is not among the `alphabet` most
        frequent ones are left out, to be [UNK]. strip_accents: None strips the accents of lower-cased text unless words
        would be mixed up (`accents.measure`); cased text keeps them. tell: gets that choice and its reason, in one
        line.
        """
        from bothways.tokenizer.learn import learn_vocabulary

        vocab, rules = learn_vocabulary(texts, size, alphabet, lowercase, strip_accents, processes=processes, tell=tell)
        return cls(vocab, **rules)

    def save(self, path: str | PathLike[str], longest_input: int = 512, segments: int = 2) -> None:
        """Write the vocabulary, tokenizer.json and tokenizer_config.json into a directory, as transformers reads them.

        longest_input, segments: how many tokens and segments the model beside it knows.
        """
        self.reading.save(path, self.tokens, longest_input, segments)

    def __len__(self) -> int:
        return len(self.vocab)

    # --- text -> ids ----------------------------------------------------------------------------------------------

    def encode(self, text: str, pair: str | None = None, specials: bool | Sequence[str] = False) -> Encoding:
        """[CLS] text [SEP], or [CLS] text [SEP] pair [SEP].

        specials: read `[MASK]` and the like as special tokens; all of them, or only those named.
        """
        named = (specials,) if isinstance(specials, str) else specials
        read = self.specials if named is True else tuple(named or ())
        if unknown := set(read) - set(self.specials):
            raise InputError(f"special token {min(unknown)!r} is not one of {', '.join(self.specials)}")
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
            from bothways.tokenizer.workers import parallel_ids

            flat = [*texts, *(pairs or [])]
            ids = parallel_ids(self, flat, processes)
            sources = [Source(text, self, ids=own) for text, own in zip(flat, ids, strict=True)]
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

    def slide(self, encoding: Encoding, *, size: int, overlap: int, cut: bool = False) -> list[Encoding]:
        """The windows of what is already encoded; the encoding itself where it fits.

        cut: the first two at most, for who keeps but one; then a token of room for the second text of a pair is enough.
        """
        if len(encoding) <= size:
            return [encoding]
        *fixed, (source, first, last) = encoding.sources
        room = size - len(encoding) + last - first
        if fixed and room < (1 if cut else SHORTEST_ROOM):
            raise InputError(
                f"the first text of a pair takes {fixed[0][2]} of {size} tokens and leaves {room} for the second, "
                f"fewer than {SHORTEST_ROOM}: shorten it or use a larger window"
            )
        if not 0 <= overlap < room:
            raise InputError(f"overlap ({overlap}) must be at least 0 and less than the {room} text tokens of a window")
        starts = range(first, last - overlap, room - overlap)[: 2 if cut else None]
        return [self.framed([*fixed, (source, start, min(start + room, last))]) for start in starts]

    def decode(self, ids: Sequence[int], specials: bool = False, clean: bool = True) -> str:
        """Ids to readable text. specials: keep [CLS] and the like. clean: close up punctuation and English clitics."""
        tokens = [self.tokens[index] for index in ids if specials or index not in self.special_ids]
        return self.reading.text(tokens, clean)

    # --- inside ---------------------------------------------------------------------------------------------------

    def ids(self, text: str, specials: Sequence[str] = (), *, spaced: bool = False) -> list[int]:
        """The ids of a text alone. spaced: as if a space stood before it, which matters to some kinds."""
        if not text.isascii():
            self._count_surrogates(text)
        return self.reading.ids(text, specials, spaced=spaced)

    def _count_surrogates(self, text: str) -> None:
        try:
            text.encode()
        except UnicodeEncodeError:
            self.replaced_surrogates += sum(0xD800 <= ord(char) < 0xE000 for char in text)

    def _whole(self, first: Source, second: Source | None) -> Encoding:
        sources = [first] if second is None else [first, second]
        return self.framed([(source, 0, len(source.ids)) for source in sources])

    def framed(self, sources: Sequence[tuple[Source, int, int]]) -> Encoding:
        """[CLS] first [SEP], or both texts, each a range of what was read."""
        ids = [self.cls_id]
        for which, (source, first, last) in enumerate(sources):
            ids += [self.sep_id] * (which * self.reading.separators)
            ids += source.ids if last - first == len(source.ids) else source.ids[first:last]
        ids.append(self.sep_id)
        return Encoding(ids, tuple(sources))
