"""Learn a WordPiece vocabulary by merging frequent pairs (Sennrich 2016, section 3.2).

Continuations of words are marked with `##`. Ties are broken by text and all counts are integers, so the same text gives
the same vocabulary, regardless of its order and of the number of processes.
"""

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from typing import Any, TypeAlias, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from bothways.base.errors import InputError
from bothways.base.log import logger
from bothways.text.tokenizer import accents
from bothways.text.tokenizer.basic import Splitter
from bothways.text.tokenizer.wordpiece import CONTINUATION, SPECIAL_TOKENS
from bothways.text.tokenizer.worker_processes import are_fewer, worker_pool

DELETED = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"  # BERT deletes these; str.split() would split at them
WHITE_SPACE = re.compile(r"\s")  # where str.split() splits
MAX_CHUNKS = 2_000_000  # distinct ones in memory, about 400 MB
BLOCK = 16_000_000  # characters per counting task
READ_AHEAD = 2  # queued tasks beyond the running ones
BATCH = 50_000  # chunks per splitting task
SEPARATOR = 0  # symbol in `_SymbolLine` around words
INSIDE = -1  # symbol between the ends of a piece
NUM_CODE_POINTS = 0x110000
MIN_WORD_COUNT = 50  # occurrences of a word that counts towards the vocabulary size
MIN_SIZE = 8_000  # chosen sizes (Charpentier 2024: 8,192 for 10 M words)
MAX_SIZE = 30_522  # as BERT's

SplitFunction: TypeAlias = Callable[[str], list[str]]
Counts: TypeAlias = list[tuple[str, int]]
Array: TypeAlias = NDArray[Any]
Input = TypeVar("Input")
Output = TypeVar("Output")


class SplitRules(TypedDict):
    """Options of `Splitter` and `Tokenizer`."""

    lowercase: bool
    strip_accents: bool | None


def learn_vocabulary(
    texts: Iterable[str],
    size: int | None,
    alphabet: int,
    lowercase: bool,
    strip_accents: bool | None,
    *,
    processes: int = 1,
) -> tuple[dict[str, int], SplitRules]:
    """Learn a vocabulary: `count_words`, then `merge_pieces`. Returns token -> id, and the options of `Splitter`.

    texts: the texts; they are read once.
    size: None chooses a size for the text (`choose_size`).
    alphabet: number of characters of the words that are not ignored (`merge_pieces`).
    lowercase: whether upper and lower case are one.
    strip_accents: None strips accents from lower-cased text that does not need them; the choice and its reason are
    logged.
    processes: number of processes that count words.
    """
    rules: SplitRules = {"lowercase": lowercase, "strip_accents": strip_accents}
    if strip_accents is None and lowercase:
        words = count_words(texts, accents.KEEP_ACCENTS, processes)
        stats = accents.measure_accents(words)
        logger.info(str(stats))
        if stats.are_needed:
            rules["strip_accents"] = False
        else:
            words = accents.strip_accents_from(words)
    else:
        words = count_words(texts, Splitter(**rules), processes)

    pieces = merge_pieces(words, size or choose_size(words), alphabet_limit=alphabet)
    return {piece: index for index, piece in enumerate(pieces)}, rules


def choose_size(words: Mapping[str, int]) -> int:
    """A vocabulary size for a text: the number of words with at least 50 occurrences, within 8,000 to 30,522."""
    num_frequent = sum(count >= MIN_WORD_COUNT for count in words.values())
    return min(max(num_frequent, MIN_SIZE), MAX_SIZE)


def count_words(texts: Iterable[str], split: SplitFunction, processes: int = 1) -> Counter[str]:
    """Count the words of texts.

    texts: the texts; they are read once.
    split: normalizes a text and returns its words. It runs once per distinct chunk between white space, so it may be
    slow, but it must not depend on the surrounding text. With more than one process it must be picklable.
    processes: number of processes; a text of one block is counted in this one.
    """
    if isinstance(texts, str):
        raise InputError(f"texts is a single string ({texts[:20]!r}...); give a list of texts: [text]")
    if processes < 1:
        raise InputError(f"processes ({processes}) must be at least 1, which uses only this process")

    chunks: Counter[str] = Counter()
    words: Counter[str] = Counter()
    # On 410 MB counting takes 27 s and merging 7, mostly for cache misses in the table of chunks (docs/LOG.md).
    is_small, blocks = are_fewer(_blocks(texts), 2)
    is_alone = processes == 1 or is_small
    with nullcontext() if is_alone else worker_pool(processes, "count words") as pool:
        for counts in _map(pool, processes, _count_chunks, blocks):
            chunks.update(counts)
            if len(chunks) > MAX_CHUNKS:
                _split_into_words(chunks, words, split, pool=pool, processes=processes)
        _split_into_words(chunks, words, split, pool=pool, processes=processes)
    return words


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in blocks of about BLOCK characters."""
    block: list[str] = []
    size = 0
    for text in texts:
        for part in _parts(text):
            block.append(part)
            size += len(part)
            if size >= BLOCK:
                yield block
                block = []
                size = 0
    yield block


def _parts(text: str) -> Iterator[str]:
    """The text without DELETED characters, cut at white space after each BLOCK characters."""
    for character in DELETED:
        if character in text:  # much faster than replacing without a match
            text = text.replace(character, "")

    start = 0
    while start < len(text):
        space = WHITE_SPACE.search(text, start + BLOCK)
        end = space.start() if space else len(text)
        yield text[start:end]
        start = end


def _count_chunks(texts: Iterable[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text.split())
    return counts


def _split_into_words(
    chunks: Counter[str],
    words: Counter[str],
    split: SplitFunction,
    *,
    pool: Executor | None,
    processes: int,
) -> None:
    """Split all chunks, add their counts to `words`, and clear `chunks`."""
    items = iter(chunks.items())
    batches = iter(lambda: list(islice(items, BATCH)), [])
    for counts in _map(pool, processes, partial(_split_chunks, split), batches):
        words.update(counts)
    chunks.clear()


def _split_chunks(split: SplitFunction, chunks: Counts) -> Counter[str]:
    counts: Counter[str] = Counter()
    for chunk, count in chunks:
        for word in split(chunk):
            counts[word] += count
    return counts


def _map(
    pool: Executor | None,
    processes: int,
    function: Callable[[Input], Output],
    inputs: Iterable[Input],
) -> Iterator[Output]:
    """map(function, inputs), in the pool if there is one, reading only a few inputs ahead."""
    if pool is None:
        yield from map(function, inputs)
        return

    running: deque[Future[Output]] = deque()
    for item in inputs:
        running.append(pool.submit(function, item))
        if len(running) == processes + READ_AHEAD:
            yield running.popleft().result()
    yield from (future.result() for future in running)


def merge_pieces(
    word_counts: Mapping[str, int],
    size: int,
    special_tokens: Sequence[str] = SPECIAL_TOKENS,
    *,
    alphabet_limit: int = 1000,
    min_count: int = 2,
    max_word_length: int = 100,
) -> list[str]:
    """The vocabulary: special tokens; initial characters, then continuing ones (`##a`), by code point; merged pieces.

    The most frequent pair of adjacent pieces is merged first; ties are broken by the left, then the right piece in code
    point order.

    word_counts: the words, with their counts; words that start with `##` are ignored.
    size: most entries; there are fewer if no pair occurs `min_count` times.
    special_tokens: the first entries.
    alphabet_limit: words with a character that is not among this many most frequent ones are ignored.
    min_count: least count of a pair that is merged.
    max_word_length: longer words are ignored.

    InputError if the special tokens and the characters are more than `size`, or no word is left.
    """
    for name, value in (("alphabet_limit", alphabet_limit), ("min_count", min_count)):
        if value < 1:
            raise InputError(f"{name} ({value}) must be at least 1")

    pieces, symbols, weights = _spell(word_counts, alphabet_limit, max_word_length)
    line = _SymbolLine(pieces, symbols, weights)
    vocabulary = dict.fromkeys([*special_tokens, *line.pieces[1:]])
    if len(vocabulary) > size:
        raise InputError(
            f"a vocabulary of {size} entries is too small for {len(special_tokens)} special tokens and "
            f"{len(line.pieces) - 1} characters; use at least {len(vocabulary)}, or an alphabet below {alphabet_limit}"
        )

    pairs = _PairQueue(line, min_count)
    while len(vocabulary) < size and (pair := pairs.pop()):
        left, right = pair
        joined = left + right.removeprefix(CONTINUATION)
        pairs.merge(left, right, joined)
        vocabulary[joined] = None
    return list(vocabulary)


def _spell(word_counts: Mapping[str, int], alphabet_limit: int, max_word_length: int) -> tuple[list[str], Array, Array]:
    """All words in one line, with separators around them -> pieces; the symbol and the word count of each position."""
    words = [word for word in word_counts if 0 < len(word) <= max_word_length and not word.startswith(CONTINUATION)]
    encoded = " ".join(["", *words, ""]).encode("utf-32-le", "surrogatepass")
    codes = np.frombuffer(encoded, "<u4").astype(np.int32)
    lengths = np.array([1 + len(word) for word in words] + [1])
    separators = np.cumsum(lengths) - lengths

    # Integers in float64, which np.bincount adds exactly up to 2**53.
    weights = np.repeat(np.array([word_counts[word] for word in words] + [0], np.float64), lengths)
    weights[separators] = 0

    # Words with a rare character count nothing.
    totals = np.bincount(codes, weights)
    in_alphabet = np.zeros(len(totals), np.bool_)
    in_alphabet[np.argsort(-totals, kind="stable")[:alphabet_limit]] = True
    can_spell = in_alphabet[codes]
    can_spell[separators] = True
    weights *= np.repeat(np.logical_and.reduceat(can_spell, separators), lengths)

    forms = codes + NUM_CODE_POINTS  # characters that continue a word ...
    forms[separators[:-1] + 1] -= NUM_CODE_POINTS  # ... and initial ones
    occurring = np.flatnonzero(np.bincount(forms[weights > 0]))
    if not len(occurring):
        raise InputError(
            f"no usable word among {len(word_counts)}; words must have at most {max_word_length} characters "
            f"(max_word_length), all among the {alphabet_limit} most frequent ones (alphabet_limit)"
        )
    symbol_by_form = np.zeros(2 * NUM_CODE_POINTS, np.int32)
    symbol_by_form[occurring] = np.arange(1, len(occurring) + 1)

    pieces = []
    for form in occurring.tolist():
        prefix = CONTINUATION if form >= NUM_CODE_POINTS else ""
        pieces.append(prefix + chr(form % NUM_CODE_POINTS))
    symbols = np.where(weights > 0, symbol_by_form[forms], SEPARATOR)
    return ["", *pieces], symbols, weights


class _SymbolLine:
    """All words in one array, split into pieces; the symbol of a piece is at its first and at its last character.

    The neighbours of a piece at positions p..q are therefore at p - 1 and q + 1, without a linked list.
    """

    def __init__(self, pieces: Sequence[str], symbols: Array, weights: Array) -> None:
        self.pieces = list(pieces)  # pieces by symbol
        self.symbol_by_piece = {piece: symbol for symbol, piece in enumerate(pieces)}
        self.lengths = [1] * len(pieces)
        self.symbols = symbols
        self.weights = weights

        in_order = np.argsort(symbols.astype(np.min_scalar_type(len(pieces))), kind="stable")
        in_order = in_order.astype(np.int32 if len(symbols) < 2**31 else np.int64)
        # The start positions of each symbol, ascending. `_current` removes those that were merged meanwhile.
        self.positions: list[Array] = np.split(in_order, np.cumsum(np.bincount(symbols))[:-1])

    def followers(self, piece: str) -> Counts:
        """The pieces after a single character, with counts."""
        starts = self.positions[self.symbol_by_piece[piece]]
        return self._count(self.symbols[starts + 1], self.weights[starts])

    def merge(self, left: str, right: str, joined: str) -> tuple[Counts, Counts, int]:
        """Merge all occurrences of a pair -> counts of pieces before it and after it, and of the pair after itself."""
        a = self.symbol_by_piece[left]
        b = self.symbol_by_piece[right]
        starts = self._find(a, b)
        ends = starts + (self.lengths[a] + self.lengths[b])
        weights = self.weights[starts]
        before = self.symbols[starts - 1]
        after = self.symbols[ends]

        # Where the new piece follows itself, its neighbours are about to be merged, too.
        is_touching = ends[:-1] == starts[1:]
        before[1:][is_touching] = SEPARATOR
        after[:-1][is_touching] = SEPARATOR
        num_touching = int(weights[1:][is_touching].sum())

        self._write(starts, a, b, joined)
        return self._count(before, weights), self._count(after, weights), num_touching

    def _find(self, a: int, b: int) -> Array:
        """Positions where b follows a, ascending; if a is b, without overlap from left to right."""
        starts: Array
        if len(self.positions[a]) <= len(self.positions[b]):
            starts = self._current(a)
            starts = starts[self.symbols[starts + self.lengths[a]] == b]
        else:
            starts = self._current(b)
            starts = starts[self.symbols[starts - 1] == a] - self.lengths[a]

        if a == b:  # in a run of touching pairs, every second one
            index = np.arange(len(starts))
            starts_run = np.diff(starts, prepend=0) != self.lengths[a]
            starts = starts[(index - np.maximum.accumulate(index * starts_run)) % 2 == 0]
        return starts

    def _current(self, symbol: int) -> Array:
        """The start positions of a symbol that are still there."""
        starts: Array = self.positions[symbol]
        starts = starts[self.symbols[starts] == symbol]
        self.positions[symbol] = starts
        return starts

    def _write(
        self,
        starts: Array,
        a: int,
        b: int,
        joined: str,
    ) -> None:
        # Always a new piece: the same letters are always merged in the same order.
        symbol = len(self.pieces)
        self.symbol_by_piece[joined] = symbol
        self.pieces.append(joined)
        self.lengths.append(self.lengths[a] + self.lengths[b])
        self.positions.append(starts)

        middle = starts + self.lengths[a]
        last = middle + (self.lengths[b] - 1)
        self.symbols[middle] = INSIDE
        self.symbols[starts] = symbol
        self.symbols[last] = symbol

    def _count(self, symbols: Array, weights: Array) -> Counts:
        totals = np.bincount(symbols, weights)
        totals[SEPARATOR] = 0  # not a piece

        occurring = np.flatnonzero(totals)
        counts = totals[occurring].astype(np.int64)
        return [(self.pieces[symbol], count) for symbol, count in zip(occurring.tolist(), counts.tolist(), strict=True)]


class _PairQueue:
    """A priority queue of pairs of adjacent pieces by count. Counts can only decrease."""

    def __init__(self, line: _SymbolLine, min_count: int) -> None:
        self.line = line
        self.min_count = min_count
        self.counts: dict[tuple[str, str], int] = {}
        self.queue: list[tuple[int, tuple[str, str]]] = []  # a heap of (-count when added, pair)

        for piece in line.pieces[1:]:
            for right, count in line.followers(piece):
                self.add(piece, right, count)

    def merge(self, left: str, right: str, joined: str) -> None:
        """Merge a pair in the line, and count pairs with the new piece instead of pairs with its parts."""
        before, after, num_touching = self.line.merge(left, right, joined)
        for piece, count in before:
            self.subtract(piece, left, count)
            self.add(piece, joined, count)
        for piece, count in after:
            self.subtract(right, piece, count)
            self.add(joined, piece, count)
        self.subtract(right, left, num_touching)
        self.add(joined, joined, num_touching)

    def add(self, left: str, right: str, count: int) -> None:
        if count >= self.min_count:
            self.counts[left, right] = count
            heappush(self.queue, (-count, (left, right)))

    def subtract(self, left: str, right: str, count: int) -> None:
        if (left, right) in self.counts:
            self.counts[left, right] -= count

    def pop(self) -> tuple[str, str] | None:
        """The most frequent pair, ties broken by text; None if no pair is frequent enough."""
        while self.queue:
            negative, pair = heappop(self.queue)
            count = self.counts[pair]
            if count == -negative:
                return pair
            if count >= self.min_count:
                heappush(self.queue, (-count, pair))
        return None
