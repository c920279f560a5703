"""Examples of one or two segments: next sentence (Devlin 2018, section 3.1), sentence order (Lan 2020, section 3.1), or
whole sentences of one document (Liu 2019, section 4.2, DOC-SENTENCES: where nothing pads, nothing needs filling up).

A segment is a range of the token store. Every sentence is asked, all at once, how many sentences a chunk beginning with
it would use; walking by the answers gives the chunks. Letters: D documents, S their sentences, C chunks and the
examples they become, N of them in a batch; 2 is for the first and the second segment.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from bothways.batch import Batch
from bothways.corpus.segments import chunk_starts, random_integers, random_segments, ranges, trim_pairs
from bothways.corpus.store import TokenStore
from bothways.errors import InputError
from bothways.rng import Purpose, make_keys, uniform
from bothways.tokenizer.tokenizer import Tokenizer

PairTask = Literal["next", "order", "none"]
SHORTER = 0.1  # pairs meant to be shorter than the length, so that the model sees short texts too


@dataclass(frozen=True)
class Examples:
    """ranges [C, 4]: start and end of the first segment and of the second in the store's ids; no second: empty.

    labels [C]: of next, 0 follows and 1 random; of order, 0 as written and 1 swapped. sizes [C]: tokens with specials.
    """

    ranges: np.ndarray
    labels: np.ndarray
    sizes: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


class SentenceArrays(NamedTuple):
    """Their numbers in the store, at which numbers their document begins and ends, and the keys of their draws. [S]

    Draws: 0 target, 1 split, 2 coin, 3 elsewhere, 4 and 5 trimming, 6 direction (of a document's first sentence).
    """

    number: np.ndarray
    first: np.ndarray
    last: np.ndarray
    keys: np.ndarray


def make_examples(
    store: TokenStore, documents: np.ndarray, *, others: np.ndarray, length: int, pairs: PairTask, seed: int,
    epoch: int, separators: int = 1,
) -> Examples:  # fmt: skip
    """One pass over these documents: examples of at most `length` tokens, in the order of the documents given.

    others: what random seconds are taken from, sorted, `documents` among them. separators: [SEP] tokens between two
    texts. A document's examples follow from (seed, epoch, its place in the store, others) alone. InputError where there
    is no other document to take from.
    """
    if pairs == "next" and len(others) < 2:
        raise InputError(
            f"next-sentence pairs need at least 2 documents, found {len(others)} to use; put blank lines between, or "
            "use --pairs none"
        )
    first_D, last_D = store.documents[documents], store.documents[documents + 1]
    number_S = ranges(first_D, last_D)
    first_S, last_S = (np.repeat(bound_D, last_D - first_D) for bound_D in (first_D, last_D))
    text = SentenceArrays(number_S, first_S, last_S, make_keys(seed, Purpose.PAIRS, epoch, number_S))
    if pairs == "none":
        return _whole_sentences(store, text, length - 2)
    if pairs == "next":
        return _next_sentence(store, text, others, length, separators)
    backward_D = uniform(make_keys(seed, Purpose.PAIRS, epoch, first_D), 7)[6] < 0.5
    return _sentence_order(store, text, np.repeat(backward_D, last_D - first_D), length, separators)


def _next_sentence(store: TokenStore, text: SentenceArrays, others: np.ndarray, length: int, between: int) -> Examples:
    """Sentences that reach the target, split at one of their bounds; half of the second parts come from elsewhere.

    From anywhere else, with equal chance for every sentence, and of the size of what would have followed: neither sizes
    nor a second part by itself tell which it is.
    """
    target_S, cut_S, coin_S = _draw_targets(text, length - 2 - between)
    end_S = np.searchsorted(store.sentences, store.sentences[text.number] + target_S)
    end_S = np.minimum(np.maximum(end_S, text.number + 2), text.last)  # two at least, where there are two
    middle_S = text.number + 1 + random_integers(cut_S, end_S - text.number - 1)
    random_S = (middle_S == end_S) | (coin_S < 0.5)  # a sentence alone has nothing that follows
    chunks_C = chunk_starts(
        np.where(random_S, middle_S, end_S) - text.number
    )  # what a random pair does not use comes next
    target_C, random_C = target_S[chunks_C], random_S[chunks_C]
    bounds_3C = store.sentences[np.stack([text.number, middle_S, end_S])[:, chunks_C]]
    one_C, two_C = np.diff(bounds_3C, axis=0)
    two_C = np.where(two_C, two_C, np.maximum(target_C - one_C, target_C // 2))
    starts_2C, ends_2C = bounds_3C[:2].copy(), bounds_3C[1:].copy()
    chunks_R = chunks_C[random_C]
    starts_2C[1, random_C], ends_2C[1, random_C] = random_segments(
        store, others, text.first[chunks_R], two_C[random_C], uniform(text.keys[chunks_R], 4)[3]
    )
    return _examples(starts_2C, ends_2C, random_C, target_C, text.keys[chunks_C], between)


def _sentence_order(
    store: TokenStore, text: SentenceArrays, backward_S: np.ndarray, length: int, between: int
) -> Examples:
    """Sentences within the target, split at one of their bounds; half of them with their parts swapped.

    Sizes must not tell which. What did not fit a chunk begins the next one, so first sentences are longer than others:
    half of the documents are walked from their end. And pairs are swapped before they are trimmed.
    """
    target_S, cut_S, coin_S = _draw_targets(text, length - 2 - between)
    at, number_S = store.sentences, np.where(backward_S, text.first + text.last - 1 - text.number, text.number)
    # Two sentences at least, where there are two.
    start_S = np.minimum(np.searchsorted(at, at[number_S + 1] - target_S), number_S - 1)
    end_S = np.maximum(np.searchsorted(at, at[number_S] + target_S, "right") - 1, number_S + 2)
    start_S = np.where(backward_S, np.maximum(start_S, text.first), number_S)
    end_S = np.where(backward_S, number_S + 1, np.minimum(end_S, text.last))
    middle_S = start_S + 1 + random_integers(cut_S, end_S - start_S - 1)
    chunks_C = chunk_starts(end_S - start_S)
    start_C, middle_C, end_C = at[np.stack([start_S, middle_S, end_S])[:, chunks_C]]
    # Of a sentence alone the tokens are split; a token alone has no order and is left out.
    inside_C = start_C + 1 + random_integers(cut_S[chunks_C], end_C - start_C - 1)
    middle_C = np.where(middle_C == end_C, inside_C, middle_C)
    has_two_C = end_C - start_C > 1
    chunks_C, bounds_3C = chunks_C[has_two_C], np.stack([start_C, middle_C, end_C])[:, has_two_C]
    swapped_C = coin_S[chunks_C] < 0.5
    starts_2C, ends_2C = (np.where(swapped_C, side[::-1], side) for side in (bounds_3C[:2], bounds_3C[1:]))
    return _examples(starts_2C, ends_2C, swapped_C, target_S[chunks_C], text.keys[chunks_C], between)


def _whole_sentences(store: TokenStore, text: SentenceArrays, room: int) -> Examples:
    """As many whole sentences as there is room for; one that is longer becomes equal parts."""
    end_S = np.searchsorted(store.sentences, store.sentences[text.number] + room, "right") - 1
    end_S = np.minimum(np.maximum(end_S, text.number + 1), text.last)
    chunks_C = chunk_starts(end_S - text.number)
    starts_C, ends_C = store.sentences[np.stack([text.number, end_S])[:, chunks_C]]
    sizes_C = ends_C - starts_C
    parts_C = -(-sizes_C // room)
    part_P = ranges(np.zeros_like(parts_C), parts_C)
    start_P, size_P, parts_P = (np.repeat(values_C, parts_C) for values_C in (starts_C, sizes_C, parts_C))
    starts_P, ends_P = start_P + size_P * part_P // parts_P, start_P + size_P * (part_P + 1) // parts_P
    none_P = np.zeros_like(starts_P)
    return Examples(np.stack([starts_P, ends_P, none_P, none_P], axis=1), none_P, 2 + ends_P - starts_P)


def _draw_targets(text: SentenceArrays, room: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many tokens a chunk that begins here is meant to have, where to split it, and the toss of a coin."""
    short_S, cut_S, coin_S = uniform(text.keys, 3)
    return np.where(short_S < SHORTER, 2 + random_integers(short_S / SHORTER, room - 1), room), cut_S, coin_S


def _examples(
    starts_2C: np.ndarray, ends_2C: np.ndarray, labels_C: np.ndarray, room_C: np.ndarray, keys_C: np.ndarray,
    between: int,
) -> Examples:  # fmt: skip
    starts_2C, ends_2C = trim_pairs(starts_2C, ends_2C, room_C, uniform(keys_C, 6)[4:])
    ranges_C22 = np.stack([starts_2C, ends_2C]).transpose(2, 1, 0)
    return Examples(ranges_C22.reshape(-1, 4), labels_C.astype(np.int64), 2 + between + (ends_2C - starts_2C).sum(0))


def to_batch(store: TokenStore, examples: Examples, rows: np.ndarray, tokenizer: Tokenizer) -> tuple[Batch, np.ndarray]:
    """These examples as [CLS] first [SEP] second [SEP], or as the tokenizer frames them, and their labels [N]."""
    ranges_N22, lengths_N = examples.ranges[rows].reshape(-1, 2, 2), examples.sizes[rows]
    sizes_N2 = ranges_N22[..., 1] - ranges_N22[..., 0]
    ends_N, separators = lengths_N.cumsum(), tokenizer.backend.num_separators
    first_N = ends_N - lengths_N
    places_N2 = first_N[:, None] + np.stack([np.ones_like(first_N), 1 + separators + sizes_N2[:, 0]], axis=1)
    ids_T = np.full(lengths_N.sum(), tokenizer.sep_id)
    ids_T[first_N] = tokenizer.cls_id
    ids_T[ranges(places_N2.ravel(), (places_N2 + sizes_N2).ravel())] = store.ids[ranges(*ranges_N22.reshape(-1, 2).T)]
    segments_T = np.zeros_like(ids_T)
    segments_T[ranges(np.minimum(places_N2[:, 1], ends_N), ends_N)] = tokenizer.backend.second_segment_id
    return Batch.from_arrays(ids_T, segments_T, lengths_N), examples.labels[rows]
