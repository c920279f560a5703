"""Sentence pairs for next-sentence prediction (Devlin 2018, section 3.1, task 2), or single runs of sentences.

A segment is a run of whole sentences of one document, so it is a range of the token store. The pair is filled to the
length; half of the second segments follow the first, half are from another document; one pair in ten is meant to be
shorter.
"""

from typing import NamedTuple

import numpy as np

from bothways.batch import Batch
from bothways.data.draws import Purpose, generator
from bothways.data.store import TokenStore
from bothways.errors import InputError
from bothways.tokenizer.tokenizer import Tokenizer

SHORTER = 0.1  # pairs meant to be shorter than the length, so that the model sees short texts too


class Example(NamedTuple):
    """Two segments as token ranges of the store, and whether the second follows the first. No second: an empty
    range."""

    first: tuple[int, int]
    second: tuple[int, int]
    follows: bool

    @property
    def num_tokens(self) -> int:
        """With [CLS] and a [SEP] after each segment."""
        sizes = [end - start for start, end in (self.first, self.second)]
        return 1 + sum(size + 1 for size in sizes if size)


def make_examples(store: TokenStore, *, length: int, pairs: bool, seed: int, epoch: int) -> list[Example]:
    """One pass over the corpus: examples of at most `length` tokens, in the order of the documents."""
    if pairs and store.num_documents < 2:
        raise InputError(
            "next-sentence pairs need at least 2 documents, found 1; put blank lines between, or use --pairs none"
        )
    examples: list[Example] = []
    for document in range(store.num_documents):
        rng = generator(seed, Purpose.PAIRS, epoch, document)
        examples += _of_document(store, document, length - 3, rng) if pairs else _runs(store, document, length - 2)
    return examples


def _of_document(store: TokenStore, document: int, room: int, rng: np.random.Generator) -> list[Example]:
    at = store.sentences
    sentence, last = store.documents[document : document + 2].tolist()
    examples = []
    while sentence < last:
        target = int(rng.integers(2, room + 1)) if rng.random() < SHORTER else room
        # Sentences that fill it, two at least, so that there is something to follow.
        end = min(last, max(sentence + 2, int(np.searchsorted(at, at[sentence] + target))))
        middle = int(rng.integers(sentence + 1, end)) if end - sentence > 1 else end
        first = (int(at[sentence]), int(at[middle]))
        if middle == end or rng.random() < 0.5:
            second = _elsewhere(store, document, target - (first[1] - first[0]), rng)
            examples.append(Example(*_trim(first, second, target, rng), follows=False))
            sentence = middle  # what was not used comes next
        else:
            examples.append(Example(*_trim(first, (int(at[middle]), int(at[end])), target, rng), follows=True))
            sentence = end
    return examples


def _elsewhere(store: TokenStore, document: int, size: int, rng: np.random.Generator) -> tuple[int, int]:
    """Sentences of another document, from a random one on, until `size` tokens are there."""
    other = int(rng.integers(store.num_documents - 1))
    other += other >= document
    first, last = store.documents[other : other + 2].tolist()
    start = int(rng.integers(first, last))
    end = int(np.searchsorted(store.sentences, store.sentences[start] + max(size, 1)))
    return int(store.sentences[start]), int(store.sentences[min(last, max(end, start + 1))])


def _trim(
    first: tuple[int, int], second: tuple[int, int], room: int, rng: np.random.Generator
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Both within `room` tokens: the longer gives way first, and loses tokens at either end by the toss of a coin."""
    sizes = (first[1] - first[0], second[1] - second[0])
    kept = (min(sizes[0], max(room - sizes[1], (room + 1) // 2)), min(sizes[1], max(room - sizes[0], room // 2)))

    def cut(segment: tuple[int, int], size: int) -> tuple[int, int]:
        front = int(rng.binomial(segment[1] - segment[0] - size, 0.5))
        return segment[0] + front, segment[0] + front + size

    return cut(first, kept[0]), cut(second, kept[1])


def _runs(store: TokenStore, document: int, room: int) -> list[Example]:
    """Runs of tokens of one document, each as long as it may be."""
    start, end = (int(store.sentences[bound]) for bound in store.documents[document : document + 2])
    return [Example((at, min(at + room, end)), (0, 0), follows=False) for at in range(start, end, room)]


def to_batch(store: TokenStore, examples: list[Example], tokenizer: Tokenizer) -> tuple[Batch, np.ndarray]:
    """The examples as a batch, and which of their pairs follow [N] (0: follows, 1: random, as in BERT)."""
    cls, sep = (np.array([index], np.int32) for index in (tokenizer.cls_id, tokenizer.sep_id))
    ids, segments = [], []
    for first, second, _ in examples:
        parts = [cls, store.ids[slice(*first)], sep]
        sizes = [first[1] - first[0] + 2]
        if second[1] > second[0]:
            parts += [store.ids[slice(*second)], sep]
            sizes.append(second[1] - second[0] + 1)
        ids += parts
        segments.append(np.repeat(np.arange(len(sizes)), sizes))
    lengths = np.array([example.num_tokens for example in examples])
    batch = Batch.of_arrays(np.concatenate(ids), np.concatenate(segments), lengths)
    return batch, np.array([not example.follows for example in examples], np.int64)
