"""Learn a WordPiece vocabulary: characters, then again and again the most frequent pair of neighbours becomes a piece.

Pair merging (Sennrich 2016, section 3.2) with WordPiece's `##` before what continues a word. Ties are decided by text
and all else is a sum of whole numbers: the same text gives the same vocabulary, whatever its order or the processes.
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

from bothways.errors import InputError
from bothways.log import logger
from bothways.tokenizer import accents
from bothways.tokenizer.basic import Splitter
from bothways.tokenizer.wordpiece import CONTINUATION, SPECIAL_TOKENS
from bothways.tokenizer.workers import worker_pool

DELETED = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"  # BERT deletes these, where str.split() would split
WHITE_SPACE = re.compile(r"\s")  # where str.split() splits
MAX_CHUNKS = 2_000_000  # distinct ones held at a time, some 400 MB
BLOCK = 16_000_000  # characters to be counted a task
READ_AHEAD = 2  # tasks waiting for a free process
BATCH = 50_000  # chunks to be split a task
SEPARATOR, INSIDE = 0, -1  # what stands on a `_Line` beside pieces
NUM_CODE_POINTS = 0x110000
LEARNABLE = 50  # times that a word must stand in a text to be worth an entry
SMALLEST, LARGEST = 8_000, 30_522  # entries chosen by a text (Charpentier 2024 took 8,192 for 10 M words; BERT 30,522)

Split: TypeAlias = Callable[[str], list[str]]
Counts: TypeAlias = list[tuple[str, int]]
Array: TypeAlias = NDArray[Any]
In = TypeVar("In")
Out = TypeVar("Out")


class SplitRules(TypedDict):
    """How text is read, by the names that `Splitter` and `Tokenizer` have for it."""

    lowercase: bool
    strip_accents: bool | None


def learn_vocabulary(
    texts: Iterable[str], size: int | None, alphabet: int, lowercase: bool, strip_accents: bool | None, *,
    processes: int = 1,
) -> tuple[dict[str, int], SplitRules]:  # fmt: skip
    """A vocabulary of these texts with its ids, and the rules by which they were read: `count_words`, `merge_pieces`.

    size: None chooses it by the text (`size_for`). strip_accents: None strips them from lower-cased text that does not
    need them; the choice and its reason are logged.
    """
    rules: SplitRules = {"lowercase": lowercase, "strip_accents": strip_accents}
    if strip_accents is None and lowercase:
        words = count_words(texts, accents.KEEP_ACCENTS, processes)
        measured = accents.measure_accents(words)
        logger.info(str(measured))
        if measured.are_needed:
            rules["strip_accents"] = False
        else:
            words = accents.strip_accents_from(words)
    else:
        words = count_words(texts, Splitter(**rules), processes)
    pieces = merge_pieces(words, size or choose_size(words), alphabet_limit=alphabet)
    return {piece: index for index, piece in enumerate(pieces)}, rules


def choose_size(words: Mapping[str, int]) -> int:
    """Entries for a text: one for each word that stands there often enough to be learned, within 8,000 and 30,522."""
    often = sum(count >= LEARNABLE for count in words.values())
    return min(max(often, SMALLEST), LARGEST)


def count_words(texts: Iterable[str], split: Split, processes: int = 1) -> Counter[str]:
    """How often each word stands in the texts; `split` cleans a text and gives its words.

    It runs once a distinct chunk between white space, so it may be slow but must not look across white space. With more
    than one process it must be picklable.
    """
    if isinstance(texts, str):
        raise InputError(f"texts is one string ({texts[:20]!r}...) where a list of texts is expected; write [text]")
    if processes < 1:
        raise InputError(f"processes ({processes}) must be at least 1; 1 runs everything in this process")
    chunks: Counter[str] = Counter()
    words: Counter[str] = Counter()
    with worker_pool(processes, "count words") if processes > 1 else nullcontext() as pool:
        for counts in _map(pool, processes, _count_chunks, _blocks(texts)):
            chunks.update(counts)
            if len(chunks) > MAX_CHUNKS:
                _move(chunks, words, split, pool, processes)
        _move(chunks, words, split, pool, processes)
    return words


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts, some BLOCK characters at a time."""
    block: list[str] = []
    size = 0
    for text in texts:
        for part in _parts(text):
            block.append(part)
            size += len(part)
            if size >= BLOCK:
                yield block
                block, size = [], 0
    yield block


def _parts(text: str) -> Iterator[str]:
    """The text without DELETED characters; one longer than BLOCK is cut, at white space."""
    for character in DELETED:
        if character in text:  # much faster than a replacement that finds nothing
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


def _move(chunks: Counter[str], words: Counter[str], split: Split, pool: Executor | None, processes: int) -> None:
    """Add the words of all chunks to `words` and forget the chunks."""
    items = iter(chunks.items())
    batches = iter(lambda: list(islice(items, BATCH)), [])
    for counts in _map(pool, processes, partial(_split_chunks, split), batches):
        words.update(counts)
    chunks.clear()


def _split_chunks(split: Split, chunks: Counts) -> Counter[str]:
    counts: Counter[str] = Counter()
    for chunk, count in chunks:
        for word in split(chunk):
            counts[word] += count
    return counts


def _map(pool: Executor | None, processes: int, function: Callable[[In], Out], inputs: Iterable[In]) -> Iterator[Out]:
    """map(function, inputs), in the pool if there is one, never reading more than a few inputs ahead."""
    if pool is None:
        yield from map(function, inputs)
        return
    running: deque[Future[Out]] = deque()
    for item in inputs:
        running.append(pool.submit(function, item))
        if len(running) == processes + READ_AHEAD:
            yield running.popleft().result()
    yield from (future.result() for future in running)


def merge_pieces(
    word_counts: Mapping[str, int],
    size: int,
    specials: Sequence[str] = SPECIAL_TOKENS,
    *,
    alphabet_limit: int = 1000,
    min_count: int = 2,
    max_word_length: int = 100,
) -> list[str]:
    """Specials; characters that start a word, then those that continue one (`##a`), by code point; then merged pieces.

    The most frequent pair of neighbours is merged first; of equally frequent ones that with the first left, then right
    piece in code point order. There are fewer than `size` entries if no pair stands `min_count` times in the text.
    Words that the vocabulary will not spell are left out: longer than `max_word_length`, with a character that is not
    among the `alphabet_limit` most frequent ones, or starting with `##`.
    """
    for name, value in (("alphabet_limit", alphabet_limit), ("min_count", min_count)):
        if value < 1:
            raise InputError(f"{name} ({value}) must be at least 1")
    line = _Line(*_spell(word_counts, alphabet_limit, max_word_length))
    vocabulary = dict.fromkeys([*specials, *line.pieces[1:]])
    if len(vocabulary) > size:
        raise InputError(
            f"a vocabulary of {size} entries is too small: {len(specials)} special tokens and {len(line.pieces) - 1} "
            f"single characters make {len(vocabulary)}; ask for more, or for an alphabet of fewer than {alphabet_limit}"
        )
    pairs = _Pairs(min_count)
    for piece in line.pieces[1:]:
        for right, count in line.followers(piece):
            pairs.add(piece, right, count)
    while len(vocabulary) < size and (pair := pairs.pop()):
        left, right = pair
        joined = left + right.removeprefix(CONTINUATION)
        before, after, num_touching = line.merge(left, right, joined)
        for piece, count in before:
            pairs.subtract(piece, left, count)
            pairs.add(piece, joined, count)
        for piece, count in after:
            pairs.subtract(right, piece, count)
            pairs.add(joined, piece, count)
        pairs.subtract(right, left, num_touching)
        pairs.add(joined, joined, num_touching)
        vocabulary[joined] = None
    return list(vocabulary)


def _spell(word_counts: Mapping[str, int], alphabet_limit: int, max_word_length: int) -> tuple[list[str], Array, Array]:
    """All words on a line, separators around them -> pieces; which stands at each place; how often its word does."""
    words = [word for word in word_counts if 0 < len(word) <= max_word_length and not word.startswith(CONTINUATION)]
    codes = np.frombuffer(" ".join(["", *words, ""]).encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int32)
    lengths = np.array([1 + len(word) for word in words] + [1])
    separators = np.cumsum(lengths) - lengths
    # Whole numbers in float64, which np.bincount adds without error up to 2**53.
    weights = np.repeat(np.array([word_counts[word] for word in words] + [0], np.float64), lengths)
    weights[separators] = 0

    totals = np.bincount(codes, weights)
    in_alphabet = np.zeros(len(totals), np.bool_)
    in_alphabet[np.argsort(-totals, kind="stable")[:alphabet_limit]] = True
    can_spell = in_alphabet[codes]
    can_spell[separators] = True
    weights *= np.repeat(np.logical_and.reduceat(can_spell, separators), lengths)

    forms = codes + NUM_CODE_POINTS  # as it continues a word ...
    forms[separators[:-1] + 1] -= NUM_CODE_POINTS  # ... and as it starts one
    occurring = np.flatnonzero(np.bincount(forms[weights > 0]))
    if not len(occurring):
        raise InputError(
            f"no word to learn from among {len(word_counts)} distinct ones; give words of at most {max_word_length} "
            f"characters (max_word_length), all among the {alphabet_limit} most frequent (alphabet_limit)"
        )
    symbol_by_form = np.zeros(2 * NUM_CODE_POINTS, np.int32)
    symbol_by_form[occurring] = np.arange(1, len(occurring) + 1)
    pieces = [CONTINUATION * (form >= NUM_CODE_POINTS) + chr(form % NUM_CODE_POINTS) for form in occurring.tolist()]
    return ["", *pieces], np.where(weights > 0, symbol_by_form[forms], SEPARATOR), weights


class _Line:
    """All words side by side, cut into pieces; a piece's symbol stands at its first and at its last character.

    So the neighbours of a piece from place p to place q are read at p - 1 and q + 1: there are no links to follow.
    """

    def __init__(self, pieces: Sequence[str], symbols: Array, weights: Array) -> None:
        self.pieces = list(pieces)  # by symbol
        self.symbol_by_piece = {piece: symbol for symbol, piece in enumerate(pieces)}
        self.lengths = [1] * len(pieces)
        self.symbols, self.weights = symbols, weights
        in_order = np.argsort(symbols.astype(np.min_scalar_type(len(pieces))), kind="stable")
        in_order = in_order.astype(np.int32 if len(symbols) < 2**31 else np.int64)
        # Where each symbol starts, ascending; and, until `_current` is asked, where it did before it was merged away.
        self.positions: list[Array] = np.split(in_order, np.cumsum(np.bincount(symbols))[:-1])

    def followers(self, piece: str) -> Counts:
        """What stands after a single character, and how often."""
        places = self.positions[self.symbol_by_piece[piece]]
        return self._count(self.symbols[places + 1], self.weights[places])

    def merge(self, left: str, right: str, joined: str) -> tuple[Counts, Counts, int]:
        """Merge a pair wherever it stands -> what stands before it, what after it, how often it stands after itself."""
        a, b = self.symbol_by_piece[left], self.symbol_by_piece[right]
        places = self._find(a, b)
        ends = places + (self.lengths[a] + self.lengths[b])
        weights, before, after = self.weights[places], self.symbols[places - 1], self.symbols[ends]
        is_touching = ends[:-1] == places[1:]  # a stands after b here, soon the new piece after itself
        before[1:][is_touching] = after[:-1][is_touching] = SEPARATOR
        self._write(places, a, b, joined)
        return self._count(before, weights), self._count(after, weights), int(weights[1:][is_touching].sum())

    def _find(self, a: int, b: int) -> Array:
        """Where b follows a, ascending; if a is b, left to right without overlap."""
        places: Array
        if len(self.positions[a]) <= len(self.positions[b]):
            places = self._current(a)
            places = places[self.symbols[places + self.lengths[a]] == b]
        else:
            places = self._current(b)
            places = places[self.symbols[places - 1] == a] - self.lengths[a]
        if a == b:
            index = np.arange(len(places))
            starts_run = np.diff(places, prepend=0) != self.lengths[a]
            places = places[(index - np.maximum.accumulate(index * starts_run)) % 2 == 0]
        return places

    def _current(self, symbol: int) -> Array:
        places: Array = self.positions[symbol]
        self.positions[symbol] = places = places[self.symbols[places] == symbol]
        return places

    def _write(self, places: Array, a: int, b: int, joined: str) -> None:
        # Always a new piece: wherever these letters are one, earlier merges took the same course inside them.
        symbol = self.symbol_by_piece[joined] = len(self.pieces)
        self.pieces.append(joined)
        self.lengths.append(self.lengths[a] + self.lengths[b])
        self.positions.append(places)
        middle = places + self.lengths[a]
        self.symbols[middle] = INSIDE
        self.symbols[places] = self.symbols[middle + (self.lengths[b] - 1)] = symbol

    def _count(self, symbols: Array, weights: Array) -> Counts:
        totals = np.bincount(symbols, weights)
        totals[SEPARATOR] = 0  # it is no piece
        found = np.flatnonzero(totals)
        counts = totals[found].astype(np.int64)
        return [(self.pieces[symbol], count) for symbol, count in zip(found.tolist(), counts.tolist(), strict=True)]


class _Pairs:
    """How often each pair of pieces stands side by side, and which does most often. A pair can only get rarer."""

    def __init__(self, min_count: int) -> None:
        self.min_count = min_count
        self.counts: dict[tuple[str, str], int] = {}
        self.queue: list[tuple[int, tuple[str, str]]] = []  # a heap of (-count, pair), with the count it had at first

    def add(self, left: str, right: str, count: int) -> None:
        if count >= self.min_count:
            self.counts[left, right] = count
            heappush(self.queue, (-count, (left, right)))

    def subtract(self, left: str, right: str, count: int) -> None:
        if (left, right) in self.counts:
            self.counts[left, right] -= count

    def pop(self) -> tuple[str, str] | None:
        """The most frequent pair, the first by text among equals; None if no pair is frequent enough."""
        while self.queue:
            negative, pair = heappop(self.queue)
            count = self.counts[pair]
            if count == -negative:
                return pair
            if count >= self.min_count:
                heappush(self.queue, (-count, pair))
        return None
