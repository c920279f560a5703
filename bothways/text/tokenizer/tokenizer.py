"""Tokenizer: text to ids with special tokens, pairs and windows, and back (Devlin 2018).

Encoding and decoding of a single text are in fast.py (BERT) and library.py (other encoders).
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from os import PathLike

from bothways.base.errors import InputError, shorten
from bothways.base.io import Files
from bothways.text.tokenizer.characters import count_surrogates
from bothways.text.tokenizer.encoding import MIN_WINDOW_TEXT, Encoding, TokenizedText, slide
from bothways.text.tokenizer.fast import BertBackend
from bothways.text.tokenizer.library import LibraryBackend
from bothways.text.tokenizer.token_arrays import TokenArrays, join_arrays
from bothways.text.tokenizer.wordpiece import SPECIAL_TOKENS, AddedToken


def check_pairs_count(texts: Sequence[str], pairs: Sequence[str] | None) -> None:
    """InputError unless there is one second text per text, or none at all."""
    if pairs is not None and len(pairs) != len(texts):
        raise InputError(f"{len(texts)} texts but {len(pairs)} pairs; give one pair per text")


class Tokenizer:
    """Converts text to ids and back.

    vocab: token -> id, ids 0..V-1, including [PAD] [UNK] [CLS] [SEP] [MASK].
    lowercase, strip_accents (None: like lowercase), split_chinese: see `Splitter`.
    max_word_length: a word of more characters becomes [UNK].
    added: further tokens, such as the markers of entities, which are parsed in every text.
    backend: the tokenization and the special tokens of another encoder; the options before are then without effect.
    None: BERT's.

    [PAD] to [MASK] typed in user text are treated as plain text unless `allow_special` is set. Lone surrogates are read
    as U+FFFD (which BERT removes); `replaced_surrogates` counts them.

    >>> entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "play", "##ing"]
    >>> tokenizer = Tokenizer({token: index for index, token in enumerate(entries)})
    >>> tokenizer.encode("Playing").tokens
    ['[CLS]', 'play', '##ing', '[SEP]']
    >>> tokenizer.decode([2, 5, 6, 3])
    'playing'
    """

    def __init__(
        self,
        vocab: dict[str, int],
        *,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        split_chinese: bool = True,
        max_word_length: int = 100,
        added: Sequence[AddedToken] = (),
        backend: LibraryBackend | None = None,
    ) -> None:
        if backend:
            self.special_tokens = backend.special_tokens
        else:
            special = (token.content for token in added if token.special and token.content not in SPECIAL_TOKENS)
            self.special_tokens = (*SPECIAL_TOKENS, *special)

        missing = [token for token in self.special_tokens if token not in vocab]
        if missing:
            raise InputError(f"vocabulary of {len(vocab)} entries lacks {', '.join(map(shorten, missing))}; add them")

        self.vocab = vocab
        self.tokens = _in_id_order(vocab)
        # Every backend lists these five first, in this order.
        special_ids = [vocab[token] for token in self.special_tokens]
        self.pad_id, self.unknown_id, self.cls_id, self.sep_id, self.mask_id = special_ids[: len(SPECIAL_TOKENS)]
        self.special_ids = frozenset(special_ids)

        self.backend: BertBackend | LibraryBackend = backend or BertBackend(
            vocab,
            lowercase=lowercase,
            strip_accents=strip_accents,
            split_chinese=split_chinese,
            max_word_length=max_word_length,
            added=added,
        )
        self.replaced_surrogates = 0

    def __repr__(self) -> str:
        return f"Tokenizer({len(self.vocab):,} entries, {type(self.backend).__name__})"

    # --- load, learn, save ----------------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | PathLike[str] | Files) -> "Tokenizer":
        """Load a vocab.txt, a tokenizer.json, another tokenizer file (formats.py), or a checkpoint directory.

        InputError if the file is invalid or not supported.
        """
        from bothways.text.tokenizer import formats

        data = formats.load(path)

        try:
            return cls(data.vocab, **data.options)
        except InputError as error:
            raise InputError(f"{data.file}: {error}") from None

    @classmethod
    def learn(
        cls,
        texts: Iterable[str],
        size: int | None = 30522,
        lowercase: bool = True,
        processes: int = 1,
        alphabet: int = 1000,
        *,
        strip_accents: bool | None = None,
    ) -> "Tokenizer":
        """Learn a WordPiece vocabulary of at most `size` entries. Deterministic: the same texts give the same bytes.

        texts: the texts; they are read once.
        size: the largest number of entries; None chooses 8,000 to 30,522, depending on the texts.
        lowercase: whether upper and lower case are one.
        processes: number of processes that count words.
        alphabet: words with a character that is not among this many most frequent ones become [UNK].
        strip_accents: None strips accents from lower-cased text unless stripping would merge different words
        (`measure_accents`); cased text keeps them. This choice and its reason are logged.

        >>> tokenizer = Tokenizer.learn(["the cat sat on the mat"], size=30)
        >>> tokenizer.encode("the mat").tokens
        ['[CLS]', 'the', 'm', '##at', '[SEP]']
        """
        from bothways.text.tokenizer.learn import learn_vocabulary

        vocab, rules = learn_vocabulary(
            texts,
            size,
            alphabet,
            lowercase=lowercase,
            strip_accents=strip_accents,
            processes=processes,
        )
        return cls(vocab, **rules)

    def save(self, path: str | PathLike[str], max_length: int = 512, segments: int = 2) -> None:
        """Write vocabulary, tokenizer.json and tokenizer_config.json into a directory, as transformers reads them.

        path: the directory.
        max_length: number of tokens that the model supports.
        segments: number of segment types that the model supports.
        """
        self.backend.save(path, self.tokens, max_length, segments)

    def lowercased(self) -> "Tokenizer":
        """The tokenizer that reads every text in lower case, with the same vocabulary."""
        if isinstance(self.backend, LibraryBackend):
            return Tokenizer(self.vocab, backend=self.backend.lowercased())

        # Lower-casing would also strip accents by default, so the present choice is passed on.
        strip_accents = self.backend.splitter.table.strip_accents
        rules = {**self.backend.rules, "lowercase": True, "strip_accents": strip_accents}
        return Tokenizer(self.vocab, **rules)

    def __len__(self) -> int:
        return len(self.vocab)

    # --- text -> ids ----------------------------------------------------------------------------------------------

    def encode(
        self,
        text: str,
        pair: str | None = None,
        allow_special: bool | Sequence[str] = False,
    ) -> Encoding:
        """[CLS] text [SEP], or [CLS] text [SEP] pair [SEP].

        text: the text.
        pair: the second text.
        allow_special: parse special tokens such as `[MASK]` in the text; all of them, or only those listed.

        InputError if a token of `allow_special` is not a special token.
        """
        if allow_special is True:
            allowed = self.special_tokens
        elif isinstance(allow_special, str):
            allowed = (allow_special,)
        else:
            allowed = tuple(allow_special or ())

        unknown = set(allowed) - set(self.special_tokens)
        if unknown:
            raise InputError(f"special token {min(unknown)!r} is not one of {', '.join(self.special_tokens)}")
        return self._encode_texts(text, pair, special_tokens=allowed)

    def encode_words(self, words: Sequence[str], pair: Sequence[str] | None = None) -> Encoding:
        """Encode pre-split text. Word ids index the given words; offsets are relative to each word."""
        return self._encode_texts(list(words), None if pair is None else list(pair))

    def encode_many(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, processes: int = 1
    ) -> list[Encoding]:
        """Encode texts, optionally with second texts.

        texts: the texts.
        pairs: a second text for each of them.
        processes: number of processes; several pay off only for very many texts.
        """
        if isinstance(texts, str):
            raise InputError("texts is a single string; give a list of texts: [text]")
        check_pairs_count(texts, pairs)

        columns = [texts] if pairs is None else [texts, pairs]
        if processes > 1:
            return self._encode_in_processes(columns, processes)
        return [self.encode(*row) for row in zip(*columns, strict=True)]

    def _encode_in_processes(self, columns: Sequence[Sequence[str]], processes: int) -> list[Encoding]:
        """The encodings of rows of texts. columns: the texts, and possibly the second texts."""
        strings = list(chain(*columns))
        arrays = self.encode_arrays(strings, processes=processes)
        tokenized = [*self._tokenized(strings, arrays)]

        # The second text of a row stands num_rows after the first.
        num_rows = len(columns[0])
        return [self._encode_whole(tokenized[row::num_rows]) for row in range(num_rows)]

    def encode_arrays(self, texts: Sequence[str], processes: int = 1) -> TokenArrays:
        """Encode texts into one flat array of ids, without an object for each text: the ids of `encode_many`.

        texts: the texts.
        processes: number of processes; several pay off only for very many texts.

        >>> entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "play", "##ing", "a"]
        >>> tokenizer = Tokenizer({token: index for index, token in enumerate(entries)})
        >>> ids, starts = tokenizer.encode_arrays(["Playing", "a play"])
        >>> ids.tolist()
        [2, 5, 6, 3, 2, 7, 5, 3]
        >>> starts.tolist()
        [0, 4, 8]
        """
        import numpy as np

        if isinstance(texts, str):
            raise InputError("texts is a single string; give a list of texts: [text]")
        if processes > 1:
            from bothways.text.tokenizer.worker_processes import encode_parallel

            return join_arrays(encode_parallel(self, texts, processes))

        self.replaced_surrogates += count_surrogates("\n".join(texts))
        parts = self.backend.packed_ids(texts)
        first = array("i", [self.cls_id]).tobytes()
        last = array("i", [self.sep_id]).tobytes()
        joined = b"".join((first, (last + first).join(parts), last)) if parts else b""

        starts = np.zeros(len(parts) + 1, np.int64)
        sizes = np.fromiter(map(len, parts), np.int64, len(parts)) // array("i").itemsize
        np.cumsum(sizes + 2, out=starts[1:])
        return TokenArrays(np.frombuffer(joined, np.int32), starts)

    def encode_ahead(self, texts: Sequence[str], processes: int) -> "Iterator[TokenArrays]":
        """The texts as arrays, as by `encode_arrays`, in blocks, in order, computed a few blocks ahead.

        texts: the texts.
        processes: number of processes; see worker_processes.py.
        """
        from bothways.text.tokenizer.worker_processes import encode_ahead

        return encode_ahead(self, texts, processes)

    def _tokenized(self, texts: Sequence[str], arrays: TokenArrays) -> Iterator[TokenizedText]:
        """Texts whose ids are computed already."""
        ids = arrays.ids.tolist()
        for text, (start, end) in zip(texts, pairwise(arrays.starts.tolist()), strict=True):
            yield TokenizedText(text, self, ids=ids[start + 1 : end - 1])

    def encode_windows(
        self,
        text: str,
        pair: str | None = None,
        size: int = 512,
        overlap: int = 128,
    ) -> list[Encoding]:
        """Sliding windows over a text: encodings of at most `size` tokens, special tokens included.

        text: the text.
        pair: the second text; then the first text stays whole and the second slides.
        size: tokens of a window.
        overlap: text tokens that neighbouring windows share, so the stride is size - special tokens - overlap.

        InputError if the stride is not positive, or if the first text of a pair leaves too little room.
        """
        return self.split_windows(self.encode(text, pair), size=size, overlap=overlap)

    def split_windows(
        self,
        encoding: Encoding,
        *,
        size: int,
        overlap: int,
    ) -> list[Encoding]:
        """Split an encoding into sliding windows; an encoding that fits is returned as it is.

        encoding: the encoding of a text or a pair.
        size, overlap: see `encode_windows`, as are the errors.
        """
        if len(encoding) <= size:
            return [encoding]

        text = encoding.sliding
        room = size - (text.length - text.size)
        if text.first is not None and room < MIN_WINDOW_TEXT:
            raise InputError(
                f"the first text of a pair takes {text.first} of {size} tokens and leaves {room} for the second, "
                f"fewer than {MIN_WINDOW_TEXT}; shorten it or use a larger window"
            )
        if not 0 <= overlap < room:
            raise InputError(f"overlap ({overlap}) must be at least 0 and less than the {room} text tokens of a window")

        return encoding.parts(slide(text.size, room, overlap))

    def build_encoding(self, ranges: Sequence[tuple[TokenizedText, int, int]]) -> Encoding:
        """Add special tokens around one or two texts. ranges: each text with the range [first, last) of its tokens."""
        ids = [self.cls_id]
        for sequence, (text, first, last) in enumerate(ranges):
            ids += [self.sep_id] * (sequence * self.backend.num_separators)
            # Most texts fit whole: their ids need no copy by slicing.
            is_whole = last - first == len(text.ids)
            ids += text.ids if is_whole else text.ids[first:last]
        ids.append(self.sep_id)
        return Encoding(ids, tuple(ranges))

    def ids(self, text: str, special_tokens: Sequence[str] = (), *, leading_space: bool = False) -> list[int]:
        """The ids of a text without special tokens.

        text: the text.
        special_tokens: the special tokens to parse in it.
        leading_space: encode as if a space preceded the text, which gives other ids with some encoders (RoBERTa).
        """
        self.replaced_surrogates += count_surrogates(text)
        return self.backend.ids(text, special_tokens, leading_space=leading_space)

    # --- ids -> text ----------------------------------------------------------------------------------------------

    def decode(self, ids: Sequence[int], keep_special: bool = False, clean_up_spaces: bool = True) -> str:
        """Convert ids to readable text.

        ids: vocabulary indices.
        keep_special: keep [CLS] and other special tokens.
        clean_up_spaces: remove spaces before punctuation and English clitics.
        """
        tokens = [self.tokens[index] for index in ids if keep_special or index not in self.special_ids]
        return self.backend.text(tokens, clean_up_spaces)

    # --- helpers --------------------------------------------------------------------------------------------------

    def _encode_texts(self, *texts: str | list[str] | None, special_tokens: Sequence[str] = ()) -> Encoding:
        """The encoding of a text and possibly a second one, as strings or lists of words."""
        tokenized = [TokenizedText(text, self, special_tokens) for text in texts if text is not None]
        return self._encode_whole(tokenized)

    def _encode_whole(self, texts: Iterable[TokenizedText]) -> Encoding:
        """The encoding of all tokens of one or two texts."""
        return self.build_encoding([(text, 0, len(text.ids)) for text in texts])


def _in_id_order(vocab: dict[str, int]) -> list[str]:
    """The tokens of a vocabulary by id. InputError if the ids are not 0..V-1."""
    ids = [*range(len(vocab))]
    if [*vocab.values()] == ids:  # the usual order of files: saves sorting
        return [*vocab]

    tokens = sorted(vocab, key=vocab.__getitem__)
    if [vocab[token] for token in tokens] != ids:
        raise InputError(f"vocabulary ids must be 0 to {len(vocab) - 1}, each once; renumber the entries")
    return tokens
