"""Batches of inference: memory that is too small for them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bothways.base.errors import InputError
from bothways.base.log import messages_to
from bothways.inference import runner
from bothways.inference.runner import BatchRunner
from bothways.tasks.pooling import pool_windows
from bothways.text.batching import delayed
from bothways.text.token_windows import TokenWindows

CPU = torch.device("cpu")


class SmallMemory:
    """A model with memory for batches of at most `room` tokens; its states are the ids."""

    config = SimpleNamespace(hidden_size=1)

    def __init__(self, room):
        self.room, self.sizes = room, []

    def __call__(self, batch):
        self.sizes.append(batch.num_tokens)
        if batch.num_tokens > self.room:
            raise torch.OutOfMemoryError("no room")
        return batch.input_ids[:, None].float()


def sums(hidden_TH, batch):
    return [float(part.sum()) for part in hidden_TH.split(batch.lengths.tolist())]


@pytest.fixture
def encodings(tokenizer):
    return [tokenizer.encode("the cat " * number) for number in (7, 1, 5, 2, 6, 3, 4)]


@pytest.fixture
def windows(encodings):
    return TokenWindows.from_encodings(encodings)


def test_a_batch_that_does_not_fit_in_memory_is_halved_with_a_message_and_so_are_later_ones(encodings, windows):
    expected = [float(sum(encoding.ids)) for encoding in encodings]
    model, lines = SmallMemory(20), []
    runner = BatchRunner(model, device=CPU, dtype=torch.float32, batch_tokens=64)
    with messages_to(lines.append):
        assert runner.run(windows, sums) == expected
    assert len(lines) == 2 and all("out of memory on cpu" in line for line in lines)
    assert runner.batch_tokens < 32 and sum(size > 20 for size in model.sizes) == 2
    sizes = len(model.sizes)
    assert runner.run(windows, sums) == expected  # without a further attempt that fails
    assert all(size <= 20 for size in model.sizes[sizes:])


def test_a_single_window_that_does_not_fit_in_memory_is_an_error(windows):
    runner = BatchRunner(SmallMemory(9), device=CPU, dtype=torch.float32, batch_tokens=64)
    with pytest.raises(InputError, match=r"out of memory on cpu with a single window of \d+ tokens; .*window"):
        runner.run(windows, sums)


def test_a_result_is_read_when_later_ones_have_been_started():
    started, read = [], []
    for item in delayed((started.append(number) or number for number in range(4)), by=1):
        read.append((item, len(started)))
    assert read == [(0, 2), (1, 3), (2, 4), (3, 4)]
    assert [*delayed(iter("abc"), by=0)] == ["a", "b", "c"] and [*delayed(iter(""), by=2)] == []


@pytest.mark.parametrize("kind", ["mean", "max", "cls"])
def test_windows_are_pooled_to_the_same_bits_in_training_and_inference(kind):
    rng = np.random.default_rng(0)
    text_W = rng.permutation(np.repeat(np.arange(9), [1, 5, 1, 40, 2, 3, 1, 7, 1]))
    vectors_WH, sizes_W = rng.standard_normal((len(text_W), 5), np.float32), rng.integers(1, 60, len(text_W))
    for sizes in (sizes_W, None):
        pooled_NH = pool_windows(kind, vectors_WH, text_W, 9, sizes)
        tensors = (None if values is None else torch.from_numpy(values) for values in (vectors_WH, text_W, sizes))
        vectors, texts, rows = tensors
        assert np.array_equal(pooled_NH, pool_windows(kind, vectors, texts, 9, rows).numpy())
        for text, pooled_H in enumerate(pooled_NH):
            of_text = vectors_WH[text_W == text]
            count = sizes[text_W == text].sum() if kind == "mean" and sizes is not None else len(of_text)
            expected = of_text.max(0) if kind == "max" else of_text.sum(0) / count
            assert pooled_H == pytest.approx(expected, abs=1e-6)
    assert pool_windows(kind, vectors_WH[:0], text_W[:0], 0).shape == (0, 5)


def test_a_server_packs_weights_before_it_forks(make_predictor, monkeypatch):
    model = make_predictor(pooling="mean", dtype="bfloat16")
    model.backend.prepare_to_fork()
    monkeypatch.delattr(runner, "prepack")  # so that packing them again fails
    assert model.embed("a dog").shape == (24,)
