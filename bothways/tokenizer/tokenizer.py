"""The tokenizer: special tokens, pairs and windows over long texts -> Encoding; and ids back to text (Devlin 2018,
section 3). How a text itself is read: reading.py, or library.py for other kinds than BERT's.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from os import PathLike
from typing import TypeVar

from bothways.errors import InputError, shorten
from bothways.tokenizer.fast import BertBackend, TokenSpan
from bothways.tokenizer.library import LibraryBackend
from bothways.tokenizer.wordpiece import SPECIAL_TOKENS

Value = TypeVar("Value")
MIN_WINDOW_TEXT = 64  # tokens that must remain for the sliding text of a pair


class TokenizedText:
    """One text (or list of words) as ids; traces every id to its place in the text when first asked."""

    def __init__(
        self, text: str | Sequence[str], tokenizer: "Tokenizer", special_tokens: Sequence[str] = (),
        ids: list[int] | None = None,
    ) -> None:  # fmt: skip
        self.text, self.tokenizer, self.special_tokens = text, tokenizer, special_tokens
        if ids is None and isinstance(text, str):
            ids = tokenizer.ids(text, special_tokens)
        self.ids = (
            list(chain.from_iterable(tokenizer.ids(word, leading_space=True) for word in text)) if ids is None else ids
        )

    @cached_property
    def token_spans(self) -> list[TokenSpan]:
        backend = self.tokenizer.backend
        if isinstance(self.text, str):
            return backend.token_spans(self.text, self.special_tokens)
        return [
            TokenSpan(start, end, index)
            for index, word in enumerate(self.text)
            for start, end, _ in backend.token_spans(word, leading_space=True)
        ]


@dataclass(slots=True)  # not frozen: that would cost as much as encoding a short text
class Encoding:
    """A text, a pair or a window of one, ready for a model. All lists are one entry a token, specials included.

    ids: entries of the vocabulary. sources: for the first text and its pair, the token range [first, last) held here.
    """

    ids: list[int]
    ranges: tuple[tuple[TokenizedText, int, int], ...]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> list[str]:
        tokens = self.ranges[0][0].tokenizer.tokens
        return [tokens[index] for index in self.ids]

    @property
    def segment_ids(self) -> list[int]:
        """0 for [CLS], the first text and its [SEP]; 1 for the second and its [SEP], where segments are told apart."""
        source, first, last = self.ranges[-1]
        size = (last - first + 1) * (len(self.ranges) - 1)  # of the second, where there is one
        return [0] * (len(self.ids) - size) + [source.tokenizer.backend.second_segment_id] * size

    @property
    def sequence_ids(self) -> list[int | None]:
        """Which text a token is from, None for [CLS] and [SEP]."""
        return self._laid_out(lambda which, _: which, None)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Characters [start, end) of the token in its own text (or given word); (0, 0) for [CLS] and [SEP]."""
        return self._laid_out(lambda _, span: (span.start, span.end), (0, 0))

    @property
    def word_ids(self) -> list[int | None]:
        """Which word of its text (or which given word) a token belongs to, None for [CLS] and [SEP]."""
        return self._laid_out(lambda _, span: span.word, None)

    def _laid_out(self, value: Callable[[int, TokenSpan], Value], special: Value) -> list[Value]:
        row = [special]
        for which, (source, first, last) in enumerate(self.ranges):
            row += [special] * (which * source.tokenizer.backend.num_separators)
            row += [value(which, span) for span in source.token_spans[first:last]]
        return [*row, special]


class Tokenizer:
    """BERT's tokenizer. vocab: token -> id, ids 0..V-1, with [PAD] [UNK] [CLS] [SEP] [MASK] among them.

    lowercase, strip_accents (None: as lowercase), chinese: see `Splitter`. reading: another way to read text than
    BERT's; special tokens are then its own. A `[SEP]` written in a text is text, unless specials=True is asked for.
    Lone surrogates are read as U+FFFD (which BERT drops); `replaced_surrogates` counts them.
    """

    def __init__(
        self, vocab: dict[str, int], *, lowercase: bool = True, strip_accents: bool | None = None,
        split_chinese: bool = True, max_word_length: int = 100, backend: LibraryBackend | None = None,
    ) -> None:  # fmt: skip
        self.special_tokens = backend.special_tokens if backend else SPECIAL_TOKENS
        if missing := [token for token in self.special_tokens if token not in vocab]:
            raise InputError(
                f"vocabulary of {len(vocab)} entries lacks {', '.join(map(shorten, missing))}: add a line for "
                f"each ({', '.join(map(shorten, self.special_tokens))} are needed)"
            )
        self.vocab = vocab
        self.tokens = [token for token, _ in sorted(vocab.items(), key=lambda entry: entry[1])]
        if sorted(vocab.values()) != list(range(len(vocab))):
            raise InputError(f"vocabulary ids must be 0 to {len(vocab) - 1}, each once: number the entries anew")
        special_ids = [vocab[token] for token in self.special_tokens]
        self.pad_id, self.unknown_id, self.cls_id, self.sep_id, self.mask_id = special_ids[: len(SPECIAL_TOKENS)]
        self.special_ids = frozenset(special_ids)
        self.backend: BertBackend | LibraryBackend = backend or BertBackend(
            vocab,
            lowercase=lowercase,
            strip_accents=strip_accents,
            split_chinese=split_chinese,
            max_word_length=max_word_length,
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
        alphabet: int = 1000, *, strip_accents: bool | None = None, log: Callable[[str], object] | None = None,
    ) -> "Tokenizer":  # fmt: skip
        """Learn a WordPiece vocabulary of at most `size` entries. The same texts give the same one, byte for byte.

        size: None chooses 8,000 to 30,522 by the text. Words with a character that is not among the `alphabet` most
        frequent ones are left out, to be [UNK]. strip_accents: None strips the accents of lower-cased text unless words
        would be mixed up (`accents.measure`); cased text keeps them. tell: gets that choice and its reason, in one
        line.
        """
        from bothways.tokenizer.learn import learn_vocabulary

        vocab, rules = learn_vocabulary(texts, size, alphabet, lowercase, strip_accents, processes=processes, log=log)
        return cls(vocab, **rules)

    def save(self, path: str | PathLike[str], longest_input: int = 512, segments: int = 2) -> None:
        """Write the vocabulary, tokenizer.json and tokenizer_config.json into a directory, as transformers reads them.

        longest_input, segments: how many tokens and segments the model beside it knows.
        """
        self.backend.save(path, self.tokens, longest_input, segments)

    def __len__(self) -> int:
        return len(self.vocab)

    # --- text -> ids ----------------------------------------------------------------------------------------------

    def encode(self, text: str, pair: str | None = None, allow_special: bool | Sequence[str] = False) -> Encoding:
        """[CLS] text [SEP], or [CLS] text [SEP] pair [SEP].

        specials: read `[MASK]` and the like as special tokens; all of them, or only those named.
        """
        named = (allow_special,) if isinstance(allow_special, str) else allow_special
        read = self.special_tokens if named is True else tuple(named or ())
        if unknown := set(read) - set(self.special_tokens):
            raise InputError(f"special token {min(unknown)!r} is not one of {', '.join(self.special_tokens)}")
        return self._whole(TokenizedText(text, self, read), None if pair is None else TokenizedText(pair, self, read))

    def encode_words(self, words: Sequence[str], pair: Sequence[str] | None = None) -> Encoding:
        """Text that is already split: word ids count the given words, offsets stand within each."""
        return self._whole(TokenizedText(list(words), self), None if pair is None else TokenizedText(list(pair), self))

    def encode_many(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, processes: int = 1
    ) -> list[Encoding]:
        """Encode every text (with its pair); over several processes if asked, which pays for very many texts."""
        if isinstance(texts, str):
            raise InputError("texts is one string; give a list of texts: [text]")
        if pairs is not None and len(pairs) != len(texts):
            raise InputError(f"{len(texts)} texts but {len(pairs)} pairs: give one pair a text")
        if processes > 1:
            from bothways.tokenizer.workers import encode_ids_parallel

            flat = [*texts, *(pairs or [])]
            ids = encode_ids_parallel(self, flat, processes)
            ranges = [TokenizedText(text, self, ids=own) for text, own in zip(flat, ids, strict=True)]
            firsts, seconds = ranges[: len(texts)], ranges[len(texts) :] or repeat(None, len(texts))
            return [self._whole(*both) for both in zip(firsts, seconds, strict=True)]
        return [self.encode(*both) for both in zip(texts, pairs or repeat(None, len(texts)), strict=True)]

    def encode_windows(self, text: str, pair: str | None = None, size: int = 512, overlap: int = 128) -> list[Encoding]:
        """Encodings of at most `size` tokens, specials counted, that cover the text.

        Neighbours share `overlap` text tokens, so each starts size - specials - overlap further on. Of a pair the first
        text stays whole and the second slides. InputError where no progress is possible or a pair leaves too little
        room.
        """
        return self.split_windows(self.encode(text, pair), size=size, overlap=overlap)

    def split_windows(self, encoding: Encoding, *, size: int, overlap: int, cut: bool = False) -> list[Encoding]:
        """The windows of what is already encoded; the encoding itself where it fits.

        cut: the first two at most, for who keeps but one; then a token of room for the second text of a pair is enough.
        """
        if len(encoding) <= size:
            return [encoding]
        *fixed, (source, first, last) = encoding.ranges
        room = size - len(encoding) + last - first
        if fixed and room < (1 if cut else MIN_WINDOW_TEXT):
            raise InputError(
                f"the first text of a pair takes {fixed[0][2]} of {size} tokens and leaves {room} for the second, "
                f"fewer than {MIN_WINDOW_TEXT}: shorten it or use a larger window"
            )
        if not 0 <= overlap < room:
            raise InputError(f"overlap ({overlap}) must be at least 0 and less than the {room} text tokens of a window")
        starts = range(first, last - overlap, room - overlap)[: 2 if cut else None]
        return [self.build_encoding([*fixed, (source, start, min(start + room, last))]) for start in starts]

    def decode(self, ids: Sequence[int], keep_special: bool = False, clean_up_spaces: bool = True) -> str:
        """Ids to readable text.

        keep_special: keep [CLS] and other special tokens. clean_up_spaces: remove spaces before punctuation and English
        clitics.
        """
        tokens = [self.tokens[index] for index in ids if keep_special or index not in self.special_ids]
        return self.backend.text(tokens, clean_up_spaces)

    # --- inside ---------------------------------------------------------------------------------------------------

    def ids(self, text: str, special_tokens: Sequence[str] = (), *, leading_space: bool = False) -> list[int]:
        """The ids of a text alone. spaced: as if a space stood before it, which matters to some kinds."""
        if not text.isascii():
            self._count_surrogates(text)
        return self.backend.ids(text, special_tokens, leading_space=leading_space)

    def _count_surrogates(self, text: str) -> None:
        try:
            text.encode()
        except UnicodeEncodeError:
            self.replaced_surrogates += sum(0xD800 <= ord(char) < 0xE000 for char in text)

    def _whole(self, first: TokenizedText, second: TokenizedText | None) -> Encoding:
        ranges = [first] if second is None else [first, second]
        return self.build_encoding([(source, 0, len(source.ids)) for source in ranges])

    def build_encoding(self, ranges: Sequence[tuple[TokenizedText, int, int]]) -> Encoding:
        """[CLS] first [SEP], or both texts, each a range of what was read."""
        ids = [self.cls_id]
        for which, (source, first, last) in enumerate(ranges):
            ids += [self.sep_id] * (which * self.backend.num_separators)
            ids += source.ids if last - first == len(source.ids) else source.ids[first:last]
        ids.append(self.sep_id)
        return Encoding(ids, tuple(ranges))
