"""The queue: batches by budget, the longest wait first, limits, cancelled requests, errors of one request, the end."""

import threading

import pytest

from bothways.serving.inference_queue import InferenceQueue, QueueFull

WAIT = 250.0  # seconds, at most: a guard against hangs


class Gate:
    """A computation that writes down its batches and waits until it is opened."""

    def __init__(self):
        self.batches, self.begun, self.opened = [], threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, call, texts):
        self.batches.append((call, texts))
        self.begun.release()
        assert self.opened.acquire(timeout=WAIT)
        if "bad" in texts:
            raise ValueError("bad")
        return [f"{call} {text}" for text in texts]

    def let(self, count=100):
        for _ in range(count):
            self.opened.release()


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def start(gate):
    queues = []

    def open_queue(**options):
        queues.append(InferenceQueue(gate, **{"batch_tokens": 10, "queue_tokens": 30} | options))
        return queues[-1]

    yield open_queue
    gate.let()
    for queue in queues:
        assert queue.close(timeout=WAIT)


def busy(queue, gate):
    """Occupy a thread of the queue."""
    ticket = queue.submit("a", ["first"], [1])
    assert gate.begun.acquire(timeout=WAIT)
    return ticket


def test_a_batch_takes_whole_texts_up_to_its_budget(start, gate):
    queue = start()
    busy(queue, gate)
    one, two = queue.submit("a", ["1", "2"], [4, 4]), queue.submit("a", ["3", "4"], [4, 4])
    assert (queue.tokens, len(queue)) == (16, 2)
    gate.let()
    assert (one.future.result(WAIT), two.future.result(WAIT)) == (["a 1", "a 2"], ["a 3", "a 4"])
    assert [texts for _, texts in gate.batches] == [["first"], ["1", "2"], ["3", "4"]]
    assert (queue.tokens, len(queue)) == (0, 0)


def test_texts_of_a_request_are_divided_and_a_text_above_the_budget_is_a_batch(start, gate):
    queue = start()
    busy(queue, gate)
    ticket = queue.submit("a", ["1", "2", "3"], [8, 12, 3])
    gate.let()
    assert ticket.future.result(WAIT) == ["a 1", "a 2", "a 3"]
    assert [texts for _, texts in gate.batches[1:]] == [["1"], ["2"], ["3"]]


def test_the_longest_wait_is_first_and_other_options_are_another_batch(start, gate):
    queue = start()
    busy(queue, gate)
    tickets = [queue.submit(call, [str(number)], [1]) for number, call in enumerate("bab")]
    gate.let()
    assert [ticket.future.result(WAIT) for ticket in tickets] == [["b 0"], ["a 1"], ["b 2"]]
    assert gate.batches[1:] == [("b", ["0", "2"]), ("a", ["1"])]


def test_more_tokens_than_may_wait_are_refused_with_a_time(start, gate):
    queue = start()
    busy(queue, gate)
    queue.submit("a", ["1"], [30])
    with pytest.raises(QueueFull, match="30 tokens are waiting") as caught:
        queue.submit("a", ["2"], [1])
    assert caught.value.seconds > 0


def test_a_cancelled_request_leaves_the_queue_before_its_batch(start, gate):
    queue = start()
    busy(queue, gate)
    left, stays = queue.submit("a", ["left"], [20]), queue.submit("a", ["stays"], [1])
    queue.cancel(left)
    assert queue.tokens == 1 and left.future.cancelled()
    gate.let()
    assert stays.future.result(WAIT) == ["a stays"]
    assert all("left" not in texts for _, texts in gate.batches)


def test_an_error_is_that_of_its_request_alone(start, gate):
    queue = start()
    busy(queue, gate)
    good, bad, other = (queue.submit("a", [text], [1]) for text in ("good", "bad", "other"))
    gate.let()
    assert (good.future.result(WAIT), other.future.result(WAIT)) == (["a good"], ["a other"])
    with pytest.raises(ValueError, match="bad"):
        bad.future.result(WAIT)
    assert queue.is_alive and queue.submit("a", ["next"], [1]).future.result(WAIT) == ["a next"]


def test_an_error_in_one_batch_drops_the_other_texts_of_its_request(start, gate):
    queue = start()
    busy(queue, gate)
    bad, other = queue.submit("a", ["bad", "never"], [9, 9]), queue.submit("a", ["other"], [1])
    gate.let()
    assert other.future.result(WAIT) == ["a other"] and queue.tokens == 0
    with pytest.raises(ValueError, match="bad"):
        bad.future.result(WAIT)
    assert all("never" not in texts for _, texts in gate.batches)


def test_several_threads_compute_batches_beside_each_other(start, gate):
    queue = start(workers=2)
    busy(queue, gate)
    ticket = queue.submit("a", ["1", "2"], [10, 10])
    assert gate.begun.acquire(timeout=WAIT)  # the second thread began while the first still computes
    gate.let()
    assert ticket.future.result(WAIT) == ["a 1", "a 2"]


def test_a_closed_queue_finishes_what_waits_and_refuses_the_rest(start, gate):
    queue = start()
    busy(queue, gate)
    ticket = queue.submit("a", ["1"], [1])
    assert not queue.close(timeout=0.0)
    with pytest.raises(QueueFull, match="stopping"):
        queue.submit("a", ["2"], [1])
    gate.let()
    assert ticket.future.result(WAIT) == ["a 1"]
    assert queue.close(timeout=WAIT) and not queue.is_alive


def test_a_batch_alone_has_all_cores_and_batches_beside_each_other_share_them():

    from bothways.serving.workers import Cores

    cores = Cores(4)
    with cores.share() as alone, cores.share() as second, cores.share() as third:
        assert (alone, second, third) == (4, 2, 1)
    with cores.share() as again:
        assert again == 4
    assert cores.workers("cpu") == 4 and cores.workers("cuda:0") == 1
