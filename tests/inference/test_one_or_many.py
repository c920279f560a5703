"""Every method of Predictor takes one text or many, streams endless input, and may be shared between threads."""

from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice

import numpy as np
import pytest
import torch
import transformers

from bothways.base.errors import InputError
from bothways.model.checkpoint import checkpoint

TEXTS = ["the cat sat on the mat", "a dog", "cats ran . the dog " * 9, "on", "the [MASK] sat"]
PAIRS = ["a dog ran", "the mat", "on", "cats sat on the mat " * 9, "xyz"]
TAGS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
LABELS = ("red", "green", "blue")
FAMILIES = ["bert", "albert", "modernbert", "longformer", "big_bird", "deberta"]
HEADS = {  # task -> heads and labels
    "answer": ({"spans": 2}, ()),
    "classify": ({"classes": 3}, LABELS),
    "embed": ({}, ()),
    "fill": ({"masked_words": 0, "next_sentence": 2}, ()),
    "is_next": ({"next_sentence": 2}, ()),
    "regress": ({"classes": 1}, ()),
    "tag": ({"tokens": 5}, TAGS),
}


def inputs_of(task, texts=TEXTS, pairs=PAIRS):
    """The positional arguments of a task's method."""
    if task == "fill":
        return ([f"{text} [MASK]" for text in texts],)
    return (texts, pairs) if task in ("answer", "is_next") else (texts,)


def assert_same(actual, expected):
    if isinstance(expected, np.ndarray | np.floating | float):
        assert np.shape(actual) == np.shape(expected) and np.abs(np.subtract(actual, expected)).max() < 1e-5
    elif isinstance(expected, list):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, dict):
        assert actual == pytest.approx(expected, abs=1e-5)
    elif hasattr(expected, "__dataclass_fields__"):
        for name in expected.__dataclass_fields__:
            assert_same(getattr(actual, name), getattr(expected, name))
    else:
        assert actual == expected


@pytest.fixture(params=HEADS)
def task(request):
    return request.param


@pytest.fixture
def predictor(task, make_predictor):
    heads, labels = HEADS[task]
    return make_predictor("bert", heads, labels=labels)


def test_the_task_is_the_method_that_the_head_is_for(task, predictor):
    assert predictor.task == task
    assert repr(predictor).startswith(f"Predictor(task={task!r}, model_type='bert'")
    assert callable(getattr(predictor, predictor.task))


def test_a_pooling_makes_vectors_the_task_of_a_pretrained_model(make_predictor):
    for heads in ({"masked_words": 0}, {"next_sentence": 2}):
        assert make_predictor("bert", heads, pooling="mean").task == "embed"


def test_a_model_of_many_labels_is_shown_with_some(make_predictor):
    labels = tuple(f"class{number}" for number in range(97))
    shown = repr(make_predictor("bert", {"classes": 97}, labels=labels))
    assert "'class0'" in shown and "92 more" in shown and "'class9'" not in shown


def test_one_text_has_the_result_of_a_list_of_one(task, predictor):
    method, inputs = getattr(predictor, task), inputs_of(task)
    many = method(*inputs)
    for row, expected in enumerate(many):
        result = method(*(column[row] for column in inputs))
        assert isinstance(result, float | type(expected))
        assert_same(result, float(expected) if isinstance(result, float) else expected)
    assert len(method(*(iter(column) for column in inputs))) == len(TEXTS)


def test_hidden_states_and_tags_of_words_take_one_text_too(make_predictor):
    tagger = make_predictor("bert", {"tokens": 5}, labels=TAGS)
    assert_same(tagger.hidden_states(TEXTS[0]), tagger.hidden_states(TEXTS)[0])
    words = [text.split() for text in TEXTS]
    assert tagger.tag_words(words[0]) == tagger.tag_words(words)[0]


def test_a_string_beside_a_list_is_rejected(make_predictor):
    reader = make_predictor("bert", {"spans": 2})
    for questions, passages in (("the cat", ["a dog"]), (["the cat"], "a dog")):
        with pytest.raises(InputError, match="is a single string"):
            reader.answer(questions, passages)


def test_unknown_options_and_positional_options_are_type_errors(predictor, task):
    method, inputs = getattr(predictor, task), inputs_of(task)
    with pytest.raises(TypeError, match="windows"):
        method(*inputs, windows=9)
    with pytest.raises(TypeError, match="positional"):
        method(*inputs, None, None)


def test_progress_counts_distinct_windows_up_to_their_total(predictor, task):
    calls = []
    getattr(predictor, task)(*inputs_of(task), batch_tokens=20, progress=lambda *numbers: calls.append(numbers))
    done, totals = zip(*calls, strict=True)
    assert len(calls) > 2 and [*done] == sorted(set(done)) and set(totals) == {done[-1]}


# --- is_next --------------------------------------------------------------------------------------------------------


def test_next_sentence_probabilities_are_those_of_transformers(make_predictor, tmp_path):
    ours = make_predictor("bert", {"masked_words": 0, "next_sentence": 2}, max_position_embeddings=128)
    checkpoint.save(ours.checkpoint, tmp_path / "model")
    transformers.logging.disable_progress_bar()
    peer = transformers.BertForNextSentencePrediction.from_pretrained(tmp_path / "model").eval()
    probabilities = ours.is_next(TEXTS, PAIRS)
    assert probabilities.dtype == np.float32 and probabilities.shape == (5,)
    for text, pair, probability in zip(TEXTS, PAIRS, probabilities, strict=True):
        encoding = ours.tokenizer.encode(text, pair)
        with torch.no_grad():
            logits = peer(torch.tensor([encoding.ids]), token_type_ids=torch.tensor([encoding.segment_ids])).logits
        assert probability == pytest.approx(float(logits.softmax(-1)[0, 0]), abs=1e-6)


def test_next_sentences_need_their_head_and_a_second_text(make_predictor):
    with pytest.raises(InputError, match=r"heads: masked_words"):
        make_predictor("bert", {"masked_words": 0}).is_next("the cat", "a dog")
    with pytest.raises(InputError, match="^second"):
        make_predictor("bert", {"next_sentence": 2}).is_next("the cat", None)


# --- streams --------------------------------------------------------------------------------------------------------


def test_an_endless_stream_gives_the_results_of_lists(task, predictor):
    method, inputs = getattr(predictor, task), inputs_of(task)
    read = []

    def endless(column):
        for number in count():
            read.append(number)
            yield column[number % len(column)]

    results = [*islice(predictor.stream(method, *map(endless, inputs), rows=3, batch_tokens=64), 7)]
    assert len(read) <= 9 * len(inputs)
    expected = method(*([column[number % len(column)] for number in range(7)] for column in inputs))
    assert_same(results, [*expected])


def test_a_stream_of_single_rows_waits_for_no_other_text(make_predictor):
    predictor, read = make_predictor("bert"), []

    def slow():
        for text in TEXTS:
            read.append(text)
            yield text

    for number, _ in enumerate(predictor.stream(predictor.embed, slow(), rows=1, normalize=False), 1):
        assert len(read) == number


def test_a_stream_ends_with_its_texts_and_its_pairs_must_be_as_many(make_predictor):
    predictor = make_predictor("bert", {"next_sentence": 2})
    assert [*predictor.stream(predictor.embed, [])] == []
    with pytest.raises(InputError, match="5 texts but 2 pairs"):
        [*predictor.stream(predictor.is_next, TEXTS, PAIRS[:2])]
    with pytest.raises(InputError, match="texts is one string"):
        predictor.stream(predictor.embed, "the cat")


# --- threads --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bf16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_four_threads_get_the_results_of_one(family, dtype, make_predictor):
    predictor = make_predictor(family, {"classes": 3, "masked_words": 0}, labels=LABELS, dtype=dtype)
    calls = [
        lambda: predictor.embed(TEXTS, window=20),
        lambda: predictor.classify(TEXTS, PAIRS),
        lambda: predictor.hidden_states(TEXTS, long="truncate", window=20),
        lambda: predictor.fill(["the [MASK] sat", "a [MASK] [MASK]"]),
    ]
    expected = [call() for call in calls]
    predictor.truncated_texts = 0
    order = [number % len(calls) for number in range(24)]
    with ThreadPoolExecutor(4) as threads:
        results = [*threads.map(lambda index: calls[index](), order)]
    for index, result in zip(order, results, strict=True):
        assert_same(result, expected[index])
    assert predictor.truncated_texts == order.count(2)
