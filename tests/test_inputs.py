"""Predictor arguments: texts from any sequence or column, tables rejected, whole numbers checked."""

from collections import deque

import numpy as np
import pyarrow
import pytest

from bothways.base.errors import InputError
from bothways.inference.predictor import Predictor
from bothways.tasks.windows import read_texts

TEXTS = ["the cat", "a mat"]


class Series:
    """Like a column of pandas or polars: not a Python sequence."""

    def __init__(self, values):
        self.values = values

    def __iter__(self):
        return iter(self.values)

    def tolist(self):
        return list(self.values)


class Frame(dict):
    columns = property(lambda self: [*self])


@pytest.fixture(scope="module")
def classifier(make_predictor):
    return make_predictor("bert", {"classes": 2}, labels=("no", "yes"))


@pytest.mark.parametrize(
    "kind",
    [
        tuple, iter, deque, Series, np.array, pyarrow.array,
        lambda texts: np.array(texts, object),
        lambda texts: pyarrow.chunked_array([texts[:1], texts[1:]]),
        lambda texts: [np.str_(text) for text in texts],
        lambda texts: pyarrow.array(texts).dictionary_encode(),
    ],
)  # fmt: skip
def test_texts_come_from_any_sequence_or_column(kind, classifier):
    texts = read_texts("texts", kind(TEXTS))
    assert texts == TEXTS and type(texts) is list
    assert classifier.classify(kind(TEXTS), kind(TEXTS[::-1])) == classifier.classify(TEXTS, TEXTS[::-1])
    assert np.array_equal(classifier.embed(kind(TEXTS)), classifier.embed(TEXTS))


def test_pandas_columns_are_texts_and_pandas_tables_are_rejected(classifier):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"text": TEXTS, "label": ["no", "yes"]}, index=[7, 5])
    assert classifier.classify(table["text"]) == classifier.classify(TEXTS)
    with pytest.raises(InputError, match="^texts .*DataFrame.* text, label"):
        classifier.embed(table)


@pytest.mark.parametrize("table", [{"text": TEXTS}, Frame(text=TEXTS), pyarrow.table({"text": TEXTS})])
def test_every_method_rejects_a_table_and_lists_its_columns(table, classifier, make_predictor):
    tagger, reader = make_predictor("bert", {"tokens": 2}, labels=("A", "B")), make_predictor("bert", {"spans": 2})
    number = make_predictor("bert", {"classes": 1})
    for method in (
        classifier.embed, classifier.hidden_states, classifier.classify, number.regress, tagger.tag, tagger.tag_words,
        lambda texts: classifier.classify(TEXTS, texts), lambda texts: reader.answer(texts, TEXTS),
        lambda texts: reader.answer(TEXTS, texts), lambda words: tagger.tag_words([words]),
    ):  # fmt: skip
        with pytest.raises(InputError, match=rf"{type(table).__name__}.* columns text;"):
            method(table)


@pytest.mark.parametrize("texts", [None, 5, b"text", {"a", "b"}, np.array("text"), [None], ["a", 3.0], [["a"]]])
def test_other_values_are_rejected_in_one_line(texts, classifier):
    pairs = 5 if texts is None else texts
    for call in (lambda: classifier.embed(texts), lambda: classifier.classify(TEXTS[:1], pairs)):
        with pytest.raises(InputError) as error:
            call()
        assert "\n" not in str(error.value) and len(str(error.value)) < 150


def test_one_text_with_many_pairs_is_refused(classifier):
    for texts, pairs, name in ((["a", "b", "c"], "xyz", "pairs"), ("abc", ["x"], "texts")):
        with pytest.raises(InputError, match=f"^{name} is a single string"):
            classifier.classify(texts, pairs)


def test_whole_numbers_are_checked_by_every_method(classifier, make_predictor):
    filler, reader = make_predictor("bert", {"masked_words": 0}), make_predictor("bert", {"spans": 2})
    for method, name in (
        (lambda value: classifier.embed(TEXTS, window=value), "window"),
        (lambda value: classifier.classify(TEXTS, TEXTS, window=value), "window"),
        (lambda value: filler.fill("[MASK]", window=value), "window"),
        (lambda value: reader.answer(TEXTS, TEXTS, window=value), "window"),
        (lambda value: classifier.embed(TEXTS, overlap=value), "overlap"),
        (lambda value: reader.answer("a", "b", overlap=value), "overlap"),
        (lambda value: reader.answer("a", "b", max_answer_tokens=value), "max_answer_tokens"),
        (lambda value: reader.answer("a", "b", top=value), "top"),
        (lambda value: filler.fill("[MASK]", top=value), "top"),
        (lambda value: classifier.classify(TEXTS, top=value), "top"),
    ):
        for value in (-1, "8", 2.5):
            with pytest.raises(InputError, match=rf"^{name} (\(-1\) |is '8';|is 2.5;)"):
                method(value)
    assert classifier.classify(TEXTS, top=np.int64(1)) == classifier.classify(TEXTS, top=1)


def test_a_window_without_room_for_a_token_is_rejected(classifier):
    for window in (0, 1, 2):
        with pytest.raises(InputError, match=rf"^window \({window}\) .* 3 tokens"):
            classifier.embed(["a"], window=window)
    long = "the cat sat " * 9
    assert classifier.embed([long], window=3).shape == (1, 24)
    with pytest.raises(InputError, match=r"^window \(1\) .* 3 tokens"):
        Predictor(classifier.checkpoint, dtype="float32", device="cpu", window=1)
