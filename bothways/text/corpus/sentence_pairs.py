"""Pre-training examples: next sentence (NSP), sentence order (SOP), or whole sentences.

Sources: Devlin 2018, section 3.1; Lan 2020, section 3.1; Liu 2019, section 4.2 (DOC-SENTENCES, not filled up to the
full length, since batches have no padding). A segment is a range of the token store. One vectorized pass computes, for
every sentence, how many sentences a chunk starting there would use; following these steps gives the chunks. Letters:
D documents, S their sentences, C chunks and the examples made of them, N examples in a batch, 2 segments of a pair.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from bothways.base.errors import InputError, flag
from bothways.base.rng import Purpose, make_keys, uniform
from bothways.text.batch import Batch
from bothways.text.corpus.token_store import TokenStore
from bothways.text.tokenizer.tokenizer import Tokenizer

PairTask = Literal["next", "order", "none"]
NO_PAIR = -100  # label of an example that is not a pair; cross-entropy ignores it
SHORTER = 0.1  # fraction of pairs with a random shorter target, so that the model sees short texts too


@dataclass(frozen=True)
class PretrainingExamples:
    """Examples as ranges of the token store.

    ranges [C, 4]: start and end of the first and of the second segment; the second is empty without pairs.
    labels [C]: next: 0 follows, 1 random. order: 0 as written, 1 swapped. none: NO_PAIR.
    sizes [C]: tokens, special ones included.
    """

    ranges: np.ndarray
    labels: np.ndarray
    sizes: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


class Sentences(NamedTuple):
    """Sentences: position in the store, first and last (exclusive) sentence of their document, random keys. All [S].

    Random streams of a key: 0 target length, 1 split, 2 coin, 3 random segment, 4 and 5 trimming, 6 direction (drawn
    for the first sentence of a document).
    """

    position: np.ndarray
    first: np.ndarray
    last: np.ndarray
    keys: np.ndarray


def make_examples(
    store: TokenStore,
    documents: np.ndarray,
    *,
    others: np.ndarray,
    length: int,
    pairs: PairTask,
    seed: int,
    epoch: int,
    separators: int = 1,
) -> PretrainingExamples:
    """Examples of at most `length` tokens from one pass over `documents`, in their order.

    store: the token store.
    documents: indices of documents in the store.
    others: sorted documents to draw random second segments from; includes `documents`.
    length: most tokens of an example, special ones included.
    pairs: the second task beside masking.
    seed, epoch: the examples of a document depend only on these, its index in the store, and `others`.
    separators: number of [SEP] tokens between two texts.

    InputError if next-sentence pairs have only one document to draw from.
    """
    if pairs == "next" and len(others) < 2:
        raise InputError(
            f"next-sentence pairs need at least 2 documents, found {len(others)} to use; put blank lines between, or "
            f"use {flag('pairs', 'none')}"
        )

    # All sentences at once: 8 M tokens take 0.1 s, chunk by chunk 2.8 s (docs/LOG.md).
    first_D = store.documents[documents]
    last_D = store.documents[documents + 1]
    counts_D = last_D - first_D
    index_S = ranges(first_D, last_D)
    text = Sentences(
        position=index_S,
        first=np.repeat(first_D, counts_D),
        last=np.repeat(last_D, counts_D),
        keys=make_keys(seed, Purpose.PAIRS, epoch, index_S),
    )

    if pairs == "none":
        return _whole_sentences(store, text, length - 2)

    room = length - 2 - separators
    if pairs == "next":
        return _next_sentence(store, text, others, room=room, separators=separators)

    backward_D = uniform(make_keys(seed, Purpose.PAIRS, epoch, first_D), 7)[6] < 0.5
    backward_S = np.repeat(backward_D, counts_D)
    return _sentence_order(store, text, backward_S, room=room, separators=separators)


def _whole_sentences(store: TokenStore, text: Sentences, room: int) -> PretrainingExamples:
    """As many whole sentences as fit; a longer sentence is divided into equal parts."""
    end_S = np.searchsorted(store.sentences, store.sentences[text.position] + room, "right") - 1
    end_S = np.maximum(end_S, text.position + 1)  # a sentence that is longer than the room is a chunk of its own
    end_S = np.minimum(end_S, text.last)

    chunks_C = chunk_starts(end_S - text.position)
    starts_C = store.sentences[text.position[chunks_C]]
    ends_C = store.sentences[end_S[chunks_C]]
    sizes_C = ends_C - starts_C

    # P parts: a chunk is one part, unless it is a sentence that is longer than the room.
    parts_C = -(-sizes_C // room)
    part_P = ranges(np.zeros_like(parts_C), parts_C)
    start_P = np.repeat(starts_C, parts_C)
    size_P = np.repeat(sizes_C, parts_C)
    parts_P = np.repeat(parts_C, parts_C)
    starts_P = start_P + size_P * part_P // parts_P
    ends_P = start_P + size_P * (part_P + 1) // parts_P

    none_P = np.zeros_like(starts_P)
    return PretrainingExamples(
        ranges=np.stack([starts_P, ends_P, none_P, none_P], axis=1),
        labels=none_P + NO_PAIR,
        sizes=2 + ends_P - starts_P,
    )


def _next_sentence(
    store: TokenStore,
    text: Sentences,
    others: np.ndarray,
    *,
    room: int,
    separators: int,
) -> PretrainingExamples:
    """Chunks of at least the target length, split between two sentences; half of the second parts are random.

    A random second part starts at a uniformly drawn sentence of another document and is as long as the text it
    replaces, so that neither lengths nor the second part alone give the label away.
    """
    target_S, cut_S, coin_S = _draw_targets(text, room)

    # At least two sentences, if the document has two. Chunks of one sentence made 61 % of the pairs of 64 tokens random
    # (docs/LOG.md).
    end_S = np.searchsorted(store.sentences, store.sentences[text.position] + target_S)
    end_S = np.maximum(end_S, text.position + 2)
    end_S = np.minimum(end_S, text.last)
    middle_S = text.position + 1 + random_integers(cut_S, end_S - text.position - 1)
    random_S = (middle_S == end_S) | (coin_S < 0.5)  # nothing follows a single sentence

    # The sentences that a random pair does not use start the next chunk.
    used_S = np.where(random_S, middle_S, end_S) - text.position
    chunks_C = chunk_starts(used_S)
    target_C = target_S[chunks_C]
    random_C = random_S[chunks_C]
    bounds_3C = store.sentences[np.stack([text.position, middle_S, end_S])[:, chunks_C]]

    # Without a second sentence to replace, the random one takes the rest of the room, or half of it.
    one_C, two_C = np.diff(bounds_3C, axis=0)
    two_C = np.where(two_C, two_C, np.maximum(target_C - one_C, target_C // 2))

    starts_2C = bounds_3C[:2].copy()
    ends_2C = bounds_3C[1:].copy()
    chunks_R = chunks_C[random_C]
    starts_2C[1, random_C], ends_2C[1, random_C] = random_segments(
        store,
        others,
        text.first[chunks_R],
        sizes_R=two_C[random_C],
        uniform_R=uniform(text.keys[chunks_R], 4)[3],
    )

    return _examples(
        starts_2C,
        ends_2C,
        labels_C=random_C,
        room_C=target_C,
        keys_C=text.keys[chunks_C],
        separators=separators,
    )


def _sentence_order(
    store: TokenStore,
    text: Sentences,
    backward_S: np.ndarray,
    *,
    room: int,
    separators: int,
) -> PretrainingExamples:
    """Chunks of at most the target length, split between two sentences; half of them have their parts swapped.

    Lengths must not give the label away. A sentence that does not fit starts the next chunk, so first sentences of
    chunks are longer than average: half of the documents are therefore processed from their end. Pairs are swapped
    before they are trimmed.
    """
    target_S, cut_S, coin_S = _draw_targets(text, room)
    starts = store.sentences
    # From sizes alone, 50.5 % of the orders can be told; 56 % if all documents were read forward (docs/LOG.md).
    mirrored_S = text.first + text.last - 1 - text.position
    index_S = np.where(backward_S, mirrored_S, text.position)

    # At least two sentences, if the document has two.
    start_S = np.minimum(np.searchsorted(starts, starts[index_S + 1] - target_S), index_S - 1)
    end_S = np.maximum(np.searchsorted(starts, starts[index_S] + target_S, "right") - 1, index_S + 2)
    start_S = np.where(backward_S, np.maximum(start_S, text.first), index_S)
    end_S = np.where(backward_S, index_S + 1, np.minimum(end_S, text.last))
    middle_S = start_S + 1 + random_integers(cut_S, end_S - start_S - 1)

    chunks_C = chunk_starts(end_S - start_S)
    start_C, middle_C, end_C = starts[np.stack([start_S, middle_S, end_S])[:, chunks_C]]

    # A single sentence is split between two tokens; a single token has no order and is dropped.
    inside_C = start_C + 1 + random_integers(cut_S[chunks_C], end_C - start_C - 1)
    middle_C = np.where(middle_C == end_C, inside_C, middle_C)
    has_two_C = end_C - start_C > 1
    chunks_C = chunks_C[has_two_C]
    bounds_3C = np.stack([start_C, middle_C, end_C])[:, has_two_C]

    swapped_C = coin_S[chunks_C] < 0.5
    starts_2C = bounds_3C[:2]
    ends_2C = bounds_3C[1:]
    return _examples(
        np.where(swapped_C, starts_2C[::-1], starts_2C),
        np.where(swapped_C, ends_2C[::-1], ends_2C),
        labels_C=swapped_C,
        room_C=target_S[chunks_C],
        keys_C=text.keys[chunks_C],
        separators=separators,
    )


def _draw_targets(text: Sentences, room: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For a chunk that starts at each sentence: target length in tokens, split position and coin toss (in 0..1). [S]"""
    short_S, cut_S, coin_S = uniform(text.keys, 3)
    # Below SHORTER, the same draw is also the length: it is uniform in 0 ... SHORTER.
    shorter_S = 2 + random_integers(short_S / SHORTER, room - 1)
    target_S = np.where(short_S < SHORTER, shorter_S, room)
    return target_S, cut_S, coin_S


def _examples(
    starts_2C: np.ndarray,
    ends_2C: np.ndarray,
    *,
    labels_C: np.ndarray,
    room_C: np.ndarray,
    keys_C: np.ndarray,
    separators: int,
) -> PretrainingExamples:
    """The examples of these pairs of segments, trimmed to the room of each."""
    starts_2C, ends_2C = trim_pairs(starts_2C, ends_2C, room_C, uniform_2C=uniform(keys_C, 6)[4:])
    ranges_C22 = np.stack([starts_2C, ends_2C]).transpose(2, 1, 0)
    return PretrainingExamples(
        ranges=ranges_C22.reshape(-1, 4),
        labels=labels_C.astype(np.int64),
        sizes=2 + separators + (ends_2C - starts_2C).sum(0),
    )


def to_batch(
    store: TokenStore,
    examples: PretrainingExamples,
    rows: np.ndarray,
    tokenizer: Tokenizer,
) -> tuple[Batch, np.ndarray]:
    """The batch of these examples, [CLS] first [SEP] second [SEP] or as the tokenizer has it, and their labels [N].

    store: the token store that the examples are ranges of.
    examples: all examples of a section.
    rows: indices of the examples.
    tokenizer: gives the special tokens.
    """
    ranges_N22 = examples.ranges[rows].reshape(-1, 2, 2)
    lengths_N = examples.sizes[rows]
    sizes_N2 = ranges_N22[..., 1] - ranges_N22[..., 0]
    separators = tokenizer.backend.num_separators

    # The positions of the texts: the first one after [CLS], the second after the separators.
    ends_N = lengths_N.cumsum()
    first_N = ends_N - lengths_N
    offsets_N2 = np.stack([np.ones_like(first_N), 1 + separators + sizes_N2[:, 0]], axis=1)
    starts_N2 = first_N[:, None] + offsets_N2

    ids_T = np.full(lengths_N.sum(), tokenizer.sep_id)
    ids_T[first_N] = tokenizer.cls_id
    text_positions = ranges(starts_N2.ravel(), (starts_N2 + sizes_N2).ravel())
    ids_T[text_positions] = store.ids[ranges(*ranges_N22.reshape(-1, 2).T)]

    # Without pairs, the second text would start at the end or behind it, so nothing is marked.
    segments_T = np.zeros_like(ids_T)
    second_N = np.minimum(starts_N2[:, 1], ends_N)
    segments_T[ranges(second_N, ends_N)] = tokenizer.backend.second_segment_id

    return Batch.from_arrays(ids_T, segments_T, lengths_N), examples.labels[rows]


def ranges(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The integers of all ranges [start, end), concatenated."""
    sizes = ends - starts
    return np.repeat(starts - sizes.cumsum() + sizes, sizes) + np.arange(sizes.sum())


def random_integers(uniform: np.ndarray, bound: np.ndarray | int) -> np.ndarray:
    """Uniform integers in 0 ... bound - 1, from uniform numbers in [0, 1)."""
    return (uniform * bound).astype(np.int64)


def chunk_starts(used_S: np.ndarray) -> np.ndarray:
    """The first sentence of each chunk, if a chunk that starts at sentence s uses used_S[s] sentences. [C]"""
    steps = used_S.tolist()
    starts = []
    index = 0
    while index < len(steps):
        starts.append(index)
        index += steps[index]
    return np.array(starts, np.int64)


def random_segments(
    store: TokenStore,
    others: np.ndarray,
    first_R: np.ndarray,
    sizes_R: np.ndarray,
    uniform_R: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of segments of `sizes_R` tokens from a random sentence of another document.

    A sentence too close to the end of its document is replaced by the last one with enough tokens after it.
    store: the token store.
    others: the documents to draw from, O of them.
    first_R: for each of R segments, the first sentence of the document to exclude.
    sizes_R: tokens of each segment.
    uniform_R: a random number in [0, 1) for each segment.
    """
    first_O = store.documents[others]
    counts_O = store.documents[others + 1] - first_O
    ends_O = counts_O.cumsum()

    # A sentence is drawn by its rank among the sentences of all other documents. Ranks from the excluded document on
    # move up by its number of sentences.
    excluded_R = np.searchsorted(first_O, first_R)
    skipped_R = counts_O[excluded_R]
    rank_R = random_integers(uniform_R, ends_O[-1] - skipped_R)
    rank_R += np.where(rank_R >= ends_O[excluded_R] - skipped_R, skipped_R, 0)
    other_R = np.searchsorted(ends_O, rank_R, "right")
    drawn_R = first_O[other_R] + rank_R - ends_O[other_R] + counts_O[other_R]

    # Sizes alone told 65.4 % of the labels while a segment could end early with its document, and tell 50.2 % now.
    stops_R = store.sentences[first_O[other_R] + counts_O[other_R]]
    fitting_R = np.searchsorted(store.sentences, stops_R - sizes_R, "right") - 1
    starts_R = store.sentences[np.maximum(np.minimum(drawn_R, fitting_R), first_O[other_R])]
    return starts_R, np.minimum(starts_R + sizes_R, stops_R)


def trim_pairs(
    starts_2C: np.ndarray,
    ends_2C: np.ndarray,
    room_C: np.ndarray,
    uniform_2C: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Trim both segments of each pair to `room_C` tokens together.

    The longer segment is trimmed first; the tokens to remove are divided at random between its two ends.
    """
    sizes_2C = ends_2C - starts_2C
    one_C, two_C = sizes_2C
    first_limit_C = np.maximum(room_C - two_C, (room_C + 1) // 2)
    second_limit_C = np.maximum(room_C - one_C, room_C // 2)
    limit_2C = np.stack([first_limit_C, second_limit_C])

    trimmed_2C = np.minimum(sizes_2C, limit_2C)
    starts_2C = starts_2C + random_integers(uniform_2C, sizes_2C - trimmed_2C + 1)
    return starts_2C, starts_2C + trimmed_2C
