"""Batches of pre-training: functions of the seed and the step, within the budget, nothing lost."""

import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import count, islice
from threading import Event

import numpy as np
import pytest
import torch

from bothways.base.errors import InputError
from bothways.text.batch import Batch
from bothways.text.batching import (
    batch_fingerprint,
    build_in_processes,
    chunked,
    divide_evenly,
    epoch_order,
    prefetch,
    sort_by_length,
    token_batches,
)
from bothways.text.corpus.sampler import MixedSampler, StepSampler
from bothways.text.corpus.token_store import TokenStore


def builders():
    """The processes that build batches; others may run beside them, such as those that tokenize (joblib)."""
    return [child for child in multiprocessing.active_children() if type(child).__name__ == "ForkProcess"]


def test_an_order_is_a_permutation_and_a_function_of_seed_epoch_and_part(global_seed):
    places = [(seed, epoch, part) for seed in (0, 1) for epoch in (0, 1, 2) for part in (0, 1)]
    orders = {at: epoch_order(97, seed=at[0], epoch=at[1], part=at[2]).tolist() for at in places}
    assert all(sorted(order) == list(range(97)) for order in orders.values())
    assert len(set(map(tuple, orders.values()))) == 12
    np.random.seed(5)
    assert epoch_order(97, seed=1, epoch=2).tolist() == orders[1, 2, 0]


@pytest.mark.parametrize("budget", [1, 17, 40, 1000])
def test_batches_keep_the_order_and_the_budget_and_are_as_full_as_they_can_be(budget):
    lengths = np.random.default_rng(0).integers(1, 31, 97).tolist()
    order = epoch_order(97, seed=0, epoch=0).tolist()
    batches = list(token_batches(order, lengths, budget))
    assert [row for rows in batches for row in rows] == order
    sizes = [sum(lengths[row] for row in rows) for rows in batches]
    assert all(size <= budget or len(rows) == 1 for size, rows in zip(sizes, batches, strict=True))
    following = [lengths[rows[0]] for rows in batches[1:]]
    assert all(size + extra > budget for size, extra in zip(sizes, following, strict=False))


def test_no_rows_give_no_batches():
    assert list(token_batches([], [], 10)) == [] and list(chunked([], 3)) == []
    assert divide_evenly([], [], 3) == [[], [], []]


def test_rows_by_length_stand_in_their_order_where_they_are_equal():
    assert sort_by_length([4, 3, 0, 2, 1], [5, 2, 5, 7, 2]) == [1, 4, 0, 2, 3]


def test_blocks_are_of_the_size_and_the_last_one_is_the_rest():
    assert list(chunked(iter("abcdefg"), 3)) == [["a", "b", "c"], ["d", "e", "f"], ["g"]]


@pytest.mark.parametrize("parts", [1, 2, 3, 8, 64])
def test_a_step_is_divided_into_parts_of_about_equal_tokens_each_sorted_by_length(parts):
    lengths = np.random.default_rng(1).integers(5, 128, 300).tolist()
    rows = np.random.default_rng(2).permutation(300)[:61].tolist()
    divided = divide_evenly(rows, lengths, parts)
    assert len(divided) == parts and sorted(row for part in divided for row in part) == sorted(rows)
    assert all(part == sort_by_length(part, lengths) for part in divided)
    tokens = [sum(lengths[row] for row in part) for part in divided]
    # No part has more than another by more than its shortest row: that one came last.
    assert all(mine - min(tokens) <= lengths[part[0]] for part, mine in zip(divided, tokens, strict=True) if part)
    assert divide_evenly(rows[::-1], lengths, parts) == divided  # however the rows stand


def test_with_fewer_rows_than_parts_some_are_empty():
    assert divide_evenly([7, 2], [0, 0, 9, 0, 0, 0, 0, 4], 4) == [[2], [7], [], []]


# --- the steps of a run ---------------------------------------------------------------------------------------------

NUM_DOCUMENTS = 203


@pytest.fixture(scope="module")
def store():
    rng = np.random.default_rng(3)
    document_sizes = rng.integers(1, 30, NUM_DOCUMENTS)
    sentence_sizes = rng.integers(2, 15, document_sizes.sum())
    starts = [np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64) for sizes in (sentence_sizes, document_sizes)]
    return TokenStore(np.arange(starts[0][-1], dtype=np.int32), *starts)


TRAINING = np.setdiff1d(np.arange(NUM_DOCUMENTS), np.arange(0, NUM_DOCUMENTS, 20))


def order_of(store, *, pairs="next", section_tokens=4001, counts=(), seed=5, batch_tokens=150, documents=TRAINING):
    return StepSampler(
        store, documents, length=31, pairs=pairs, batch_tokens=batch_tokens, seed=seed, section_tokens=section_tokens,
        counts=counts,
    )  # fmt: skip


def of_step(step):
    """What a step trains on: its place, and its rows with the text they stand for."""
    return step.epoch, step.section, step.rows, step.examples.ranges[step.rows].tolist()


def two_epochs(order):
    """The steps of epochs 0 and 1."""
    steps = []
    for step in order.steps():
        if step.epoch == 2:
            return steps
        steps.append(step)


@pytest.mark.parametrize("pairs", ["next", "order", "none"])
def test_a_step_is_the_same_wherever_one_begins_with_counts_and_without(store, pairs):
    whole = order_of(store, pairs=pairs)
    expected = [of_step(step) for step in two_epochs(whole)]
    assert len(whole.counts) > 10 and max(place[1] for place in expected) > 4
    for first in (0, 1, whole.counts[0] - 1, whole.counts[0], 77, len(expected) // 2 + 3, len(expected) - 1):
        for counts in ((), whole.counts[:3], whole.counts):
            again = order_of(store, pairs=pairs, counts=counts)
            steps = [of_step(step) for step in islice(again.steps(first), len(expected) - first)]
            assert steps == expected[first:]
            assert again.counts[: len(whole.counts) - 1] == whole.counts[:-1]


def test_with_counts_sections_before_the_first_step_are_not_made_again(store, monkeypatch):
    whole = order_of(store)
    expected = [of_step(step) for step in two_epochs(whole)]
    made = []
    plain = StepSampler._batches
    monkeypatch.setattr(StepSampler, "_batches", lambda self, *at: made.append(at[1:]) or plain(self, *at))
    (step,) = islice(order_of(store, counts=whole.counts).steps(len(expected) - 1), 1)
    assert of_step(step) == expected[-1] and made == [(step.epoch, step.section)]


@pytest.mark.parametrize("pairs", ["order", "none"])
def test_in_every_epoch_each_token_of_the_training_documents_is_used_once(store, pairs):
    steps = two_epochs(order_of(store, pairs=pairs))
    bounds = store.sentences[store.documents]
    training = np.zeros(store.num_tokens, bool)
    for document in TRAINING:
        training[bounds[document] : bounds[document + 1]] = True
    for epoch in (0, 1):
        used = np.zeros(store.num_tokens, int)
        for step in steps:
            if step.epoch == epoch:
                for start, end, begins, stop in step.examples.ranges[step.rows].tolist():
                    used[start:end] += 1
                    used[begins:stop] += 1
        assert used.max() == 1 and not used[~training].any()
        # Of sentence order what is trimmed from two sentences meant for a shorter pair is lost.
        assert (used[training] == 1).mean() > (0.999 if pairs == "none" else 0.95)


def test_no_example_of_an_epoch_is_lost_or_repeated(store):
    for pairs in ("next", "none"):
        sections = {}
        for step in two_epochs(order_of(store, pairs=pairs)):
            sections.setdefault((step.epoch, step.section), (step.examples, []))[1].extend(step.rows)
        for examples, rows in sections.values():
            assert sorted(rows) == list(range(len(examples)))


def test_held_out_documents_are_never_read(store):
    bounds = store.sentences[store.documents]
    for step in two_epochs(order_of(store)):
        for column in (0, 2):
            documents = np.searchsorted(bounds, step.examples.ranges[step.rows][:, column], "right") - 1
            assert np.isin(documents, TRAINING).all()


def test_steps_are_within_the_budget_and_none_is_tiny(store):
    steps = two_epochs(order_of(store, batch_tokens=150))
    tokens = np.array([step.examples.sizes[step.rows].sum() for step in steps])
    assert tokens.max() <= 150 and tokens.min() >= 75 - 31 and len(tokens) > 300
    # Where there is more to come, no example of 31 tokens would have fit; the last two steps of a section share.
    sections = len({(step.epoch, step.section) for step in steps})
    assert 0 < (tokens <= 150 - 31).sum() <= 2 * sections


def test_sections_are_about_equal_and_hold_some_steps(store):
    sections = {}
    for step in two_epochs(order_of(store, section_tokens=4001)):
        sections[step.epoch, step.section] = int(np.diff(step.examples.ranges)[:, 0].sum())
    sizes = np.array(list(sections.values()))
    assert len(sizes) >= 10 and sizes.min() > 0.6 * sizes.max()
    few = order_of(store, section_tokens=1)  # not one section a document: 16 steps each at least
    two_epochs(few)
    assert min(few.counts[:-1]) >= 8


def test_epochs_and_seeds_differ_and_the_order_of_the_documents_does_not_matter(store):
    first = [of_step(step) for step in islice(order_of(store).steps(), 5)]
    second = [of_step(step) for step in two_epochs(order_of(store)) if step.epoch == 1][:5]
    other = [of_step(step) for step in islice(order_of(store, seed=6).steps(), 5)]
    assert first[0][3] != second[0][3] and first[0][3] != other[0][3]
    assert [of_step(step) for step in islice(order_of(store, documents=TRAINING[::-1]).steps(), 5)] == first


def test_every_epoch_has_other_documents_beside_each_other_and_every_section_another_order(store):
    bounds, together, orders = store.sentences[store.documents], {}, {}
    for step in two_epochs(order_of(store, pairs="none")):
        documents = np.searchsorted(bounds, step.examples.ranges[:, 0], "right") - 1
        together[step.epoch, step.section] = set(documents.tolist())
        orders.setdefault((step.epoch, step.section), []).extend(step.rows)
    assert all(together[0, section] != together[1, section] for _, section in together)
    smallest = min(map(len, orders.values()))
    kept = [tuple(np.argsort(rows)[:smallest].argsort().tolist()) for rows in orders.values()]
    assert len(set(kept)) == len(kept) > 10


def test_a_budget_larger_than_the_corpus_makes_one_step_an_epoch(store):
    steps = list(islice(order_of(store, batch_tokens=10**6).steps(), 3))
    assert [(step.epoch, step.section) for step in steps] == [(0, 0), (1, 0), (2, 0)]
    assert all(sorted(step.rows) == list(range(len(step.examples))) for step in steps)


def test_a_corpus_without_examples_raises_instead_of_looping_forever():
    words = TokenStore(np.arange(7, dtype=np.int32), np.arange(8), np.arange(8))
    with pytest.raises(InputError, match="no examples"):
        next(order_of(words, pairs="order", documents=np.arange(7)).steps())


def mixed_of(store, counts=((), ())):
    samplers = [order_of(store, pairs=pairs, counts=own) for pairs, own in zip(("none", "next"), counts, strict=True)]
    return MixedSampler(samplers, [0, 1, 0])


def test_samplers_take_turns_and_lose_no_step(store):
    steps = [of_step(step) for step in islice(mixed_of(store).steps(), 30)]
    single, pairs = (order_of(store, pairs=pairs) for pairs in ("none", "next"))
    assert steps[0::3] == [of_step(step) for step in islice(single.steps(), 20)][0::2]
    assert steps[2::3] == [of_step(step) for step in islice(single.steps(), 20)][1::2]
    assert steps[1::3] == [of_step(step) for step in islice(pairs.steps(), 10)]


@pytest.mark.parametrize("first", [0, 1, 2, 3, 17, 40])
def test_mixed_steps_are_the_same_wherever_one_begins_with_counts_and_without(store, first):
    whole = mixed_of(store)
    steps = [of_step(step) for step in islice(whole.steps(), first + 5)]
    assert [of_step(step) for step in islice(mixed_of(store).steps(first), 5)] == steps[first:]
    resumed = mixed_of(store)
    resumed.restore([[*counts] for counts in whole.counts])
    assert resumed.counts == whole.counts and resumed.samplers[1].counts == whole.samplers[1].counts
    assert [of_step(step) for step in islice(resumed.steps(first), 5)] == steps[first:]


def test_a_fingerprint_names_ids_masks_and_labels():
    batch = Batch.from_arrays(np.arange(11), np.zeros(11), np.array([4, 7]))
    batch = replace(batch, masked_positions=torch.tensor([2, 5]), masked_labels=torch.tensor([9, 9]))
    batch = replace(batch, labels=torch.tensor([0, 1]))
    changes = [
        {}, {"input_ids": batch.input_ids + 1}, {"masked_positions": torch.tensor([2, 6])}, {"labels": None},
        {"masked_labels": torch.tensor([9, 8])}, {"labels": torch.tensor([1, 1])}, {"lengths": torch.tensor([5, 6])},
    ]  # fmt: skip
    names = [batch_fingerprint(replace(batch, **change)) for change in changes]
    assert len(set(names)) == len(changes) and all(len(name) == 16 and int(name, 16) >= 0 for name in names)
    assert batch_fingerprint(replace(batch)) == names[0]


def test_prefetched_items_are_the_same_and_limited_in_number():
    begun = []

    def items():
        for number in range(9):
            begun.append(number)
            yield number

    coming = prefetch(items(), 2)
    assert [next(coming) for _ in range(3)] == [0, 1, 2]
    assert len(begun) <= 3 + 2 + 1 + 1  # two wait, one is in the maker's hands, and one was just taken
    assert list(coming) == [3, 4, 5, 6, 7, 8]


def test_errors_while_prefetching_are_raised_at_their_position():
    def items():
        yield 1
        raise InputError("the second is broken")

    coming = prefetch(items())
    assert next(coming) == 1
    with pytest.raises(InputError, match="the second is broken"):
        next(coming)


def test_a_producer_ends_when_the_consumer_stops():
    ended = Event()

    def items():
        try:
            yield from range(1_000_000)
        finally:
            ended.set()

    coming = prefetch(items())
    next(coming)
    coming.close()
    del coming
    assert ended.wait(200)  # far above what it takes on a busy machine


# --- in processes


class Refused(InputError):
    """An error that cannot be pickled: its constructor takes other arguments."""

    def __init__(self, number, reason):
        super().__init__(f"{number} {reason}")


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_processes_build_the_same_items_in_the_same_order_and_end_with_the_iterator(processes):
    coming = build_in_processes(lambda task: (task, torch.arange(task), os.getpid()), count(5), processes)
    items = [next(coming) for _ in range(12)]
    assert [task for task, _, _ in items] == [*range(5, 17)]
    assert all(values.tolist() == [*range(task)] for task, values, _ in items)
    workers = [pid for _, _, pid in items[:processes]]
    assert [pid for _, _, pid in items] == (workers * 12)[:12] and len({*workers, os.getpid()}) == processes + 1
    assert len(builders()) == processes
    coming.close()
    assert not builders()
    for pid in workers:
        with pytest.raises(ProcessLookupError):  # not even a zombie
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [(InputError("3 is odd"), InputError, "^3 is odd$"), (Refused(3, "odd"), RuntimeError, r"Refused\('3 odd'\)")],
)
@pytest.mark.parametrize("place", ["build", "tasks"])
def test_an_error_of_a_process_is_raised_at_its_position(place, error, kind, message):
    def fail_at(task, where):
        if place == where and task == 3:
            raise error
        return task

    tasks = (fail_at(task, "tasks") for task in range(6))
    coming = build_in_processes(lambda task: fail_at(task, "build"), tasks, 2)
    assert [*islice(coming, 3)] == [0, 1, 2]
    with pytest.raises(kind if place == "build" else type(error), match=message if place == "build" else "odd"):
        next(coming)
    assert not builders()
    assert [*build_in_processes(str, iter(range(4)), 3)] == ["0", "1", "2", "3"]  # tasks may end


def test_a_process_that_is_killed_is_named():
    coming = build_in_processes(lambda task: task and os.kill(os.getpid(), signal.SIGKILL), count(), 2)
    assert next(coming) == 0
    with pytest.raises(InputError, match="one of 2 processes that build batches was killed"):
        next(coming)
    assert not builders()


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT])
def test_processes_end_when_the_training_is_killed_or_interrupted(signum):
    program = (
        "import os, signal, time; from itertools import count; from bothways.text.batching import build_in_processes\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored where the tests run in the background
        "coming = build_in_processes(lambda task: os.getpid(), count(), 2)\n"
        "print(next(coming), next(coming), flush=True)\nwhile True: time.sleep(1)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert len(parent.stdout.readline().split()) == 2
        parent.send_signal(signum)
        assert parent.stdout.read() == b""  # ends when no process holds the pipe any more
