"""Order, batch size, padding and other texts do not change a result; nothing is truncated silently.

Padding itself is in parity/test_model.py. For a text longer than the model's window, a slow formula gives the
expected result.
"""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from bothways.base.errors import InputError
from bothways.model.kernels import append_dummy_text
from bothways.tasks.windows import own_rows
from bothways.text.batch import Batch
from bothways.text.token_windows import TokenWindows
from tests.families import ENCODERS

SIZE, OVERLAP = 19, 6
HEADS = {"classes": 5, "masked_words": 0}
LABELS = ("red", "green", "blue", "black", "white")


def sentence(num_words, seed=0):
    """Words of one to three tokens of the small vocabulary."""
    draw = random.Random(seed)
    return " ".join(draw.choice(["the", "cat", "cats", "on", "mat", "xy", "qqz", ".", "dog"]) for _ in range(num_words))


TEXTS = [sentence(count, seed=count) for count in (9, 1, 33, 4, 4, 60, 0, 15, 2, 9, 21)]
ABLE = torch.cpu.get_capabilities()
SAME_BITS = ABLE.get("avx512_bf16") and not ABLE.get("amx_bf16")  # where bf16 was measured
READ = {"window": SIZE, "overlap": OVERLAP}


@pytest.fixture(scope="module", params=ENCODERS)
def family_predictor(request, make_predictor):
    return lambda dtype: make_predictor(request.param, HEADS, labels=LABELS, dtype=dtype)


@pytest.fixture(scope="module")
def predictor(family_predictor):
    return family_predictor("float32")


@pytest.fixture(scope="module")
def expected(predictor):
    """The results of all texts together, not to be changed."""
    return results(predictor, TEXTS)


def results(predictor, texts):
    """All results of a Predictor for texts, a list of arrays per text."""
    hidden = predictor.hidden_states(texts, **READ)
    vectors = [predictor.embed(texts, pooling=kind, **READ) for kind in ("mean", "cls", "max")]
    classes = [list(prediction.scores.values()) for prediction in predictor.classify(texts, **READ)]
    return [[*row] for row in zip(hidden, *vectors, np.array(classes), strict=True)]


def assert_same(actual, expected):
    for ours, others in zip(actual, expected, strict=True):
        for one, other in zip(ours, others, strict=True):
            assert one.shape == other.shape
            assert np.abs(one - other).max() < 1e-5


def test_order_does_not_change_a_result(predictor, expected):
    order = random.Random(3).sample(range(len(TEXTS)), len(TEXTS))
    moved = results(predictor, [TEXTS[row] for row in order])
    assert_same(moved, [expected[row] for row in order])


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [1, 40])  # one text, some; all: soak/
def test_batch_size_does_not_change_a_result(predictor, expected, tokens, monkeypatch):
    check_batch_size(predictor, expected, tokens, monkeypatch)


def check_batch_size(predictor, expected, tokens, monkeypatch):
    batches = []
    plain = TokenWindows.gather
    monkeypatch.setattr(TokenWindows, "gather", lambda self, rows: batches.append(len(rows)) or plain(self, rows))
    monkeypatch.setattr(predictor.encoder.runner, "batch_tokens", tokens)
    assert_same(results(predictor, TEXTS), expected)
    assert (max(batches) == 1) == (tokens == 1)


@pytest.mark.slow
def test_company_does_not_change_a_result(predictor, expected):
    assert_same([results(predictor, [text])[0] for text in TEXTS], expected)
    twice = results(predictor, TEXTS + TEXTS)
    assert_same(twice[: len(TEXTS)], expected)
    assert_same(twice[len(TEXTS) :], expected)


@pytest.mark.slow
def test_company_does_not_change_a_result_in_half_precision_either(family_predictor):
    half = family_predictor("bf16")
    for arrays, text in zip(results(half, TEXTS), TEXTS, strict=True):
        for ours, others in zip(arrays, results(half, [text])[0], strict=True):
            assert np.abs(ours - others).max() <= (1e-5 if SAME_BITS else 0.05)


def test_equal_texts_of_a_call_have_equal_results_and_are_read_once(predictor, monkeypatch):
    batches = []
    plain = TokenWindows.gather
    monkeypatch.setattr(TokenWindows, "gather", lambda self, rows: batches.append(len(rows)) or plain(self, rows))
    vectors = predictor.embed([TEXTS[0], TEXTS[2], TEXTS[0], TEXTS[0]], normalize=False)
    assert sum(batches) == 2
    assert np.array_equal(vectors[0], vectors[2]) and np.array_equal(vectors[0], vectors[3])
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3
    first, second, third = predictor.hidden_states([TEXTS[0], TEXTS[2], TEXTS[0]])
    assert np.array_equal(first, third) and first is not third and len(second) != len(first)
    one, other = predictor.classify([TEXTS[0]] * 2, [TEXTS[3], TEXTS[1]])
    assert one != other


def test_the_company_of_a_pair_does_not_change_it(predictor):
    pairs = [sentence(count, seed=90 + count) for count in (3, 11, 7, 5)]
    firsts = [TEXTS[row] for row in (0, 3, 6, 1)]
    together = [prediction.scores for prediction in predictor.classify(firsts, pairs)]
    for row, (first, second) in enumerate(zip(firsts, pairs, strict=True)):
        (by_itself,) = predictor.classify([first], [second])
        assert max(abs(together[row][label] - by_itself.scores[label]) for label in LABELS) < 1e-5


def test_other_tokens_do_change_a_result(predictor):
    """So that the tests above cannot pass on a model with the same result for every text."""
    one, other = results(predictor, ["the cat sat on mat", "the cat sat on dog"])
    for mine, yours in zip(one, other, strict=True):
        assert np.abs(mine - yours).max() > 1e-3
    shifted = predictor.embed(["cat the dog", "dog the cat"])
    assert np.abs(shifted[0] - shifted[1]).max() > 1e-3


def test_no_texts_give_no_results(predictor):
    assert predictor.hidden_states([]) == []
    assert predictor.embed([]).shape == (0, 24)
    assert predictor.embed([], pooling="max").shape == (0, 24)
    assert predictor.classify([]) == []


# --- long texts -----------------------------------------------------------------------------------------------------


def alone(predictor, encoding):
    """The hidden states of one window by itself, [S, H]."""
    with torch.no_grad():
        return predictor.module(Batch.from_encodings([encoding])).numpy()


def best_rows(predictor, text, size, overlap):
    """The slow formula: each token from the window where it is furthest from a cut."""
    windows = predictor.tokenizer.encode_windows(text, size=size, overlap=overlap)
    hidden = [alone(predictor, window) for window in windows]
    total = len(predictor.tokenizer.encode(text)) - 2
    rows = [hidden[0][0]]
    for token in range(total):
        best, chosen = -1.0, None
        for window, states in zip(windows, hidden, strict=True):
            _, first, last = window.ranges[0]
            if first <= token < last:
                left = token - first if first > 0 else np.inf
                right = last - 1 - token if last < total else np.inf
                if min(left, right) > best:
                    best, chosen = min(left, right), states[1 + token - first]
        rows.append(chosen)
    return np.stack([*rows, hidden[-1][-1]])


@pytest.mark.parametrize(("size", "overlap"), [(19, 6), (19, 0), (20, 5), (17, 11)])
def test_a_long_text_has_one_row_a_token_from_the_window_furthest_from_a_cut(predictor, size, overlap):
    text = sentence(53, seed=8)
    (rows,) = predictor.hidden_states([text], window=size, overlap=overlap)
    assert len(rows) == len(predictor.tokenizer.encode(text))
    assert np.abs(rows - best_rows(predictor, text, size, overlap)).max() < 1e-5


def test_each_token_of_a_long_text_counts_once_in_its_vector(predictor):
    text = sentence(53, seed=8)
    rows = best_rows(predictor, text, SIZE, OVERLAP)
    mean, largest = (predictor.embed([text], pooling=kind, normalize=False, **READ)[0] for kind in ("mean", "max"))
    assert np.abs(mean - rows.mean(0)).max() < 1e-5
    assert np.abs(largest - rows.max(0)).max() < 1e-5
    windows = predictor.tokenizer.encode_windows(text, size=SIZE, overlap=OVERLAP)
    first = np.mean([alone(predictor, window)[0] for window in windows], axis=0)
    assert np.abs(predictor.embed([text], pooling="cls", normalize=False, **READ)[0] - first).max() < 1e-5


def test_a_normal_vector_is_of_length_one(predictor):
    for kind in ("auto", "mean", "cls", "max"):
        plain, normal = (
            predictor.embed(TEXTS, pooling=kind, normalize=normalize, **READ) for normalize in (False, True)
        )
        assert np.abs(np.linalg.norm(normal, axis=1) - 1).max() < 1e-6
        assert np.abs(plain / np.linalg.norm(plain, axis=1, keepdims=True) - normal).max() < 1e-6


def test_classes_of_a_long_text_are_those_of_its_windows_first_vectors_averaged(predictor):
    text = sentence(53, seed=8)
    windows = predictor.tokenizer.encode_windows(text, size=SIZE, overlap=OVERLAP)
    assert len(windows) > 3
    first = torch.from_numpy(np.mean([alone(predictor, window)[0] for window in windows], axis=0))
    head, pooler = predictor.module.heads["classes"].output, predictor.module.pooler
    with torch.no_grad():
        expected = torch.softmax(pooler(first) @ head.weight.T + head.bias, -1)
    (prediction,) = predictor.classify([text], **READ)
    assert np.abs(np.array([prediction.scores[label] for label in LABELS]) - expected.numpy()).max() < 1e-6
    assert prediction.label == LABELS[int(expected.argmax())] and prediction.score == max(prediction.scores.values())


@pytest.mark.parametrize("head", ["classes", "tokens", "spans"])
@pytest.mark.parametrize("family", ENCODERS)
def test_a_dummy_text_at_the_end_of_a_batch_changes_nothing(family, head, make_model, tokenizer):
    """In bf16 on a processor, where it makes numbers of tokens alike."""
    model = make_model(family, {head: 2})
    batch = Batch.from_encodings([tokenizer.encode(text) for text in sorted(TEXTS, key=len)[:8]])
    filled = append_dummy_text(batch, torch.zeros(1, dtype=torch.bfloat16))
    assert filled.num_tokens % 16 == 0 and 0 < filled.num_tokens - batch.num_tokens < 16
    plain, whole = model.encoder(batch), model.encoder(filled)[: batch.num_tokens]
    assert (plain - whole).abs().max() < 1e-5
    weights = torch.randn(plain.shape, generator=torch.Generator().manual_seed(0))
    for one, other in zip(gradients(model, plain, weights), gradients(model, whole, weights), strict=True):
        assert torch.linalg.vector_norm(one - other) <= 1e-5 * torch.linalg.vector_norm(one)

    marked = replace(batch, global_tokens=torch.arange(batch.num_tokens) % 7 == 0)
    states = model.encoder(append_dummy_text(marked, torch.zeros(1, dtype=torch.bfloat16)))[: batch.num_tokens]
    assert (model.encoder(marked) - states).abs().max() < 1e-5
    seen = []
    model.encoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].num_tokens))
    assert model(batch).shape == plain.shape
    half = model.bfloat16()
    assert half(batch).shape == plain.shape
    assert seen == [batch.num_tokens, filled.num_tokens]


def test_long_batches_are_filled_up_to_fewer_numbers_of_tokens():
    weight = torch.zeros(1, dtype=torch.bfloat16)
    numbers = [
        append_dummy_text(Batch.from_arrays(*np.zeros((2, n), int), np.array([n])), weight).num_tokens
        for n in range(1, 999)
    ]
    assert sorted(set(numbers)) == [*range(16, 256, 16), *range(256, 1025, 64)]
    assert all(0 <= number - n < (16 if n <= 256 else 64) for n, number in enumerate(numbers, 1))


def gradients(model, hidden_TH, weights_TH):
    parameters = [value for value in model.encoder.parameters() if value.requires_grad]
    grads = torch.autograd.grad((hidden_TH * weights_TH).sum(), parameters, allow_unused=True)
    return [value for value in grads if value is not None]


@pytest.mark.parametrize("family", ENCODERS)
def test_of_a_long_pair_the_second_text_slides(family, make_predictor):
    longer = make_predictor(family, HEADS, labels=LABELS, max_position_embeddings=100)
    first, second = sentence(6, seed=1), sentence(150, seed=2)
    windows = longer.tokenizer.encode_windows(first, second, size=99, overlap=20)
    assert len(windows) > 2
    vectors = torch.from_numpy(np.mean([alone(longer, window)[0] for window in windows], axis=0))
    with torch.no_grad():
        expected = longer.module.text_scores("classes", vectors[None]).softmax(-1)[0].numpy()
    (prediction,) = longer.classify([first], [second], window=99, overlap=20)
    assert np.abs(np.array(list(prediction.scores.values())) - expected).max() < 1e-6


def test_a_pair_whose_first_text_leaves_too_little_room_is_refused(predictor):
    with pytest.raises(InputError, match="leaves"):
        predictor.classify([sentence(6)], [sentence(150)])


@pytest.mark.parametrize("overlap", [0, 1, 6, 7, 11, 16])
@pytest.mark.parametrize("size", [19, 20])
def test_windows_own_every_token_exactly_once(size, overlap, tokenizer):
    for length in range(120):
        encoding = tokenizer.encode("x " * length)
        windows = tokenizer.split_windows(encoding, size=size, overlap=overlap)
        rows = own_rows(windows)
        owned = []
        for window, (first, last) in zip(windows, rows, strict=True):
            assert 0 <= first < last <= len(window)
            owned += [window.ranges[0][1] + row for row in range(first, last)]
        assert owned == list(range(len(encoding)))


# --- long="error", long="truncate" ----------------------------------------------------------------------------------


def test_a_long_text_is_refused_on_request(predictor):
    with pytest.raises(InputError, match=r"2 of 11 .* 40 tokens \(up to \d+\)"):
        predictor.hidden_states(TEXTS, long="error", window=40)
    assert len(predictor.hidden_states(TEXTS[:2], long="error", window=40)) == 2


def test_truncation_is_done_on_request_counted_and_logged(predictor, caplog):
    predictor.truncated_texts = 0
    states = predictor.hidden_states(TEXTS, long="truncate", window=40)
    assert predictor.truncated_texts == 2
    assert "cut 2 of 11 texts to 40 tokens" in caplog.text
    predictor.classify(TEXTS[5:6], long="truncate", window=40)
    assert predictor.truncated_texts == 3
    for text, rows in zip(TEXTS, states, strict=True):
        kept = predictor.tokenizer.encode_windows(text, size=40, overlap=0)[0]
        assert np.abs(rows - alone(predictor, kept)).max() < 1e-5
    predictor.hidden_states(TEXTS[:2], long="truncate", window=40)
    assert predictor.truncated_texts == 3


@pytest.mark.parametrize("family", ENCODERS)
def test_a_model_that_reads_less_than_the_window_uses_its_own_length(family, make_predictor):
    short = make_predictor(family, HEADS, labels=LABELS, max_position_embeddings=24)
    text = sentence(53, seed=8)
    (rows,) = short.hidden_states([text])
    assert np.abs(rows - best_rows(short, text, 24, 6)).max() < 1e-5
    (same,) = short.hidden_states([text], window=24, overlap=6)
    assert np.array_equal(rows, same)
    with pytest.raises(InputError, match=" 24 tokens"):
        short.embed([text], long="error")
