"""Sampler: the examples of every pre-training step, reproducible from the seed and the step.

An epoch is a permutation of the documents, divided into sections that fit in memory. The examples of a section are
built, shuffled, and grouped into batches by a token budget.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from bothways.base.errors import InputError
from bothways.base.rng import Purpose, generator
from bothways.text.batching import divide_evenly, epoch_order, token_batches
from bothways.text.corpus.sentence_pairs import PairTask, PretrainingExamples, make_examples
from bothways.text.corpus.token_store import TokenStore

SECTION_TOKENS = 2**22
SECTION_STEPS = 16  # least steps of a section: its last batches may be smaller, and should be rare


@dataclass(frozen=True)
class StepRows:
    """The rows of `examples` in a step, and the epoch and section that the examples belong to."""

    epoch: int
    section: int
    rows: list[int]
    examples: PretrainingExamples

    def __reduce__(self) -> tuple[Callable[..., "StepRows"], tuple[Any, ...]]:
        """Pickled with only the examples of its rows, for a process that builds their batch."""
        columns = (self.examples.ranges, self.examples.labels, self.examples.sizes)
        used = [column[self.rows] for column in columns]
        return _unpickle, (self.epoch, self.section, self.rows, used)


def _unpickle(
    epoch: int,
    section: int,
    rows: list[int],
    columns: Sequence[np.ndarray],
) -> StepRows:
    """A step whose examples are zero in all other rows."""
    num_rows = max(rows, default=-1) + 1
    filled = []
    for values in columns:
        column = np.zeros((num_rows, *values.shape[1:]), values.dtype)
        column[rows] = values
        filled.append(column)

    ranges, labels, sizes = filled
    examples = PretrainingExamples(ranges=ranges, labels=labels, sizes=sizes)
    return StepRows(epoch=epoch, section=section, rows=rows, examples=examples)


class StepSampler:
    """The examples of each step, determined by (store, settings, step).

    Every epoch reads each document once.

    store: the token store.
    documents: indices of the documents to read.
    length: most tokens of an example.
    pairs: the second task beside masking.
    batch_tokens: most tokens of a step.
    seed: of the orders and examples.
    section_tokens: about as many tokens are in memory at a time, as one section.
    counts: steps of each section started so far. Save and restore them to resume quickly; without them the sampler
    recounts the steps, with the same result.
    separators: number of [SEP] tokens between two texts.
    """

    def __init__(
        self,
        store: TokenStore,
        documents: np.ndarray,
        *,
        length: int,
        pairs: PairTask,
        batch_tokens: int,
        seed: int,
        section_tokens: int = SECTION_TOKENS,
        counts: Sequence[int] = (),
        separators: int = 1,
    ) -> None:
        self.store = store
        self.documents = np.sort(documents)
        self.length = length
        self.pairs = pairs
        self.batch_tokens = batch_tokens
        self.seed = seed
        self.section_tokens = section_tokens
        self.separators = separators
        self.counts = list(counts)

    def restore(self, counts: Sequence[int]) -> None:
        """Take the saved `counts` of an earlier run."""
        self.counts[:] = counts

    def steps(self, first: int = 0) -> Iterator[StepRows]:
        """Step `first` and all following steps, without end."""
        section_start = 0  # the first step of the section
        for index, (epoch, section, documents) in enumerate(self._sections()):
            if epoch > 0 and section_start == 0:
                raise InputError("the corpus yields no examples: its texts are single words; give longer ones")

            # A section that ends before `first` is skipped without making its examples.
            if index < len(self.counts) and section_start + self.counts[index] <= first:
                section_start += self.counts[index]
                continue

            examples = make_examples(
                self.store,
                documents,
                others=self.documents,
                length=self.length,
                pairs=self.pairs,
                seed=self.seed,
                epoch=epoch,
                separators=self.separators,
            )
            batches = self._batches(examples, epoch, section)

            if index == len(self.counts):
                self.counts.append(len(batches))
            for rows in batches[max(0, first - section_start) :]:
                yield StepRows(epoch=epoch, section=section, rows=rows, examples=examples)
            section_start += len(batches)

    def _sections(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """(epoch, section, documents): each epoch shuffles the documents and divides them into equal sections."""
        sizes_D = np.diff(self.store.sentences[self.store.documents])[self.documents]
        section_tokens = max(self.section_tokens, SECTION_STEPS * self.batch_tokens)
        num_sections = max(1, round(sizes_D.sum() / section_tokens))

        for epoch in count():
            order = epoch_order(len(self.documents), seed=self.seed, epoch=epoch)
            before_D = sizes_D[order].cumsum() - sizes_D[order]
            section_D = before_D * num_sections // sizes_D.sum()
            cuts = np.flatnonzero(np.diff(section_D)) + 1
            for section, documents in enumerate(np.split(self.documents[order], cuts)):
                yield epoch, section, documents

    def _batches(self, examples: PretrainingExamples, epoch: int, section: int) -> list[list[int]]:
        """The batches of a section. If the last has less than half the budget, it is balanced with the one before."""
        order = epoch_order(len(examples), seed=self.seed, epoch=epoch, part=section + 1).tolist()
        lengths = examples.sizes.tolist()
        batches = list(token_batches(order, lengths, self.batch_tokens))

        if len(batches) > 1:
            last_tokens = sum(lengths[row] for row in batches[-1])
            if 2 * last_tokens < self.batch_tokens:
                batches[-2:] = divide_evenly(batches[-2] + batches[-1], lengths, 2)

        return batches


class MixedSampler:
    """Steps of several samplers in turn: step i is the next one of samplers[cycle[i % len(cycle)]].

    counts: the counts of each sampler.
    """

    def __init__(self, samplers: Sequence[StepSampler], cycle: Sequence[int]) -> None:
        self.samplers = samplers
        self.cycle = cycle
        self.counts = [sampler.counts for sampler in samplers]

    def restore(self, counts: Sequence[Sequence[int]]) -> None:
        """Take the saved `counts` of an earlier run."""
        for sampler, sampler_counts in zip(self.samplers, counts, strict=True):
            sampler.restore(sampler_counts)

    def steps(self, first: int = 0) -> Iterator[StepRows]:
        """Step `first` and all following steps, without end."""
        cycles, rest = divmod(first, len(self.cycle))
        iterators = []
        for index, sampler in enumerate(self.samplers):
            steps_before = cycles * self.cycle.count(index) + self.cycle[:rest].count(index)
            iterators.append(sampler.steps(steps_before))

        for step in count(first):
            yield next(iterators[self.cycle[step % len(self.cycle)]])


def sample_documents(store: TokenStore, documents: np.ndarray) -> np.ndarray:
    """A random sample of held-out documents, sorted: at most one section of tokens, at least two documents."""
    order = documents[generator(0, Purpose.HELD_OUT, 1).permutation(len(documents))]
    sizes = np.diff(store.sentences[store.documents])[order]
    count = int((sizes.cumsum() - sizes < SECTION_TOKENS).sum())
    return np.sort(order[: max(2, count)])
