"""Which example stands where: pure functions of (seed, epoch), and for a corpus of any size of the step alone.

An epoch is a permutation of the documents, cut into sections that fit in memory; a section's examples are made,
shuffled, and filled into batches by a token budget.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from bothways.batching import divide_evenly, epoch_order, token_batches
from bothways.corpus.sentence_pairs import Examples, PairTask, make_examples
from bothways.corpus.store import TokenStore
from bothways.errors import InputError

SECTION_TOKENS = 2**22
SECTION_STEPS = 16  # at least, so that its last ones, which may be smaller, are few


@dataclass(frozen=True)
class StepRows:
    """The rows of `examples` that make a step, and the section of the epoch whose examples these are."""

    epoch: int
    section: int
    rows: list[int]
    examples: Examples


class StepSampler:
    """The steps of a run over some documents of a store: which examples, a function of (store, settings, step) alone.

    Every document is read once in every epoch. Of its sections, of about `section_tokens`, one is in memory.
    counts: the steps of each section begun so far, to be kept and given back so that a later step is found at once;
    without them they are counted again, to the same result.
    """

    def __init__(
        self, store: TokenStore, documents: np.ndarray, *, length: int, pairs: PairTask, batch_tokens: int, seed: int,
        section_tokens: int = SECTION_TOKENS, counts: Sequence[int] = (), separators: int = 1,
    ) -> None:  # fmt: skip
        self.store, self.documents = store, np.sort(documents)
        self.length, self.pairs, self.batch_tokens, self.seed = length, pairs, batch_tokens, seed
        self.section_tokens, self.separators = section_tokens, separators
        self.counts = list(counts)

    def steps(self, first: int = 0) -> Iterator[StepRows]:
        """Step `first` and all after it, without end."""
        begins = 0  # the step at which a section begins
        for number, (epoch, section, documents) in enumerate(self._sections()):
            if epoch > 0 and begins == 0:
                raise InputError("the corpus gives no examples: its texts are single words; give longer ones")
            if number < len(self.counts) and begins + self.counts[number] <= first:
                begins += self.counts[number]
                continue
            examples = make_examples(
                self.store, documents, others=self.documents, length=self.length, pairs=self.pairs, seed=self.seed,
                epoch=epoch, separators=self.separators,
            )  # fmt: skip
            batches = self._batches(examples, epoch, section)
            if number == len(self.counts):
                self.counts.append(len(batches))
            for rows in batches[max(0, first - begins) :]:
                yield StepRows(epoch, section, rows, examples)
            begins += len(batches)

    def _sections(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """(epoch, section, its documents): the documents of each epoch anew in random order, in equal shares."""
        sizes_D = np.diff(self.store.sentences[self.store.documents])[self.documents]
        number = max(1, round(sizes_D.sum() / max(self.section_tokens, SECTION_STEPS * self.batch_tokens)))
        for epoch in count():
            order = epoch_order(len(self.documents), seed=self.seed, epoch=epoch)
            section_D = (sizes_D[order].cumsum() - sizes_D[order]) * number // sizes_D.sum()
            cuts = np.flatnonzero(np.diff(section_D)) + 1
            for section, documents in enumerate(np.split(self.documents[order], cuts)):
                yield epoch, section, documents

    def _batches(self, examples: Examples, epoch: int, section: int) -> list[list[int]]:
        """A section's steps. Where the last would have less than half the budget, the last two share their rows."""
        order = epoch_order(len(examples), seed=self.seed, epoch=epoch, part=section + 1).tolist()
        lengths = examples.sizes.tolist()
        batches = list(token_batches(order, lengths, self.batch_tokens))
        if len(batches) > 1 and 2 * sum(lengths[row] for row in batches[-1]) < self.batch_tokens:
            batches[-2:] = divide_evenly(batches[-2] + batches[-1], lengths, 2)
        return batches
