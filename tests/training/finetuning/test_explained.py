"""The words that support the worst mistakes, in the report of a run: a planted word that decides is among them."""

import html
import re

import pytest
import torch

from bothways.settings import Classify, Regress
from tests.training.finetuning.gallery import class_rows, finish, number_rows

pytestmark = pytest.mark.slow

WORDS = re.compile(r'<p class="verdict">words: (.*?)</p>')
EFFECT = re.compile(r"<strong>(.*?)</strong> ([+-]\S+?)(?:,|$)")


def shown_words(run):
    """The words of each mistake that has some, with their effects."""
    found = []
    for line in WORDS.findall(run.report):
        bare = re.sub(r"</?bdi[^>]*>", "", line)
        found.append([(html.unescape(word), float(effect)) for word, effect in EFFECT.findall(bare)])
    return found


def with_wrong_labels(rows):
    """The first dogs among the rows are labelled as cats."""
    dogs = [index for index, row in enumerate(rows) if row["label"] == "canine"][:3]
    return [{**row, "label": "feline"} if index in dogs else row for index, row in enumerate(rows)]


@pytest.fixture(scope="module")
def start(checkpoint_of):
    return checkpoint_of(num_hidden_layers=1, options={"pooling": "mean", "normalized": True})


@pytest.fixture(scope="module")
def trained(start, finetuned):
    """A trained encoder, which is wrong about three labels of its test rows."""
    return finetuned(
        Classify,
        model=start,
        train=class_rows(0, 240),
        dev=class_rows(1, 45),
        test=with_wrong_labels(class_rows(2, 60)),
        epochs=10.0,
    )


def test_the_word_that_decides_is_in_the_report(trained):
    words = shown_words(trained)
    assert len(words) >= 3
    assert len([1 for supporting in words if supporting[0][0] == "dog" and supporting[0][1] > 20]) >= 2, words
    for supporting in words:
        assert len(supporting) <= 3 and all(effect >= 0 for _, effect in supporting)
    assert "Words: what the probability of the predicted label loses without the word" in trained.report


def test_the_words_are_those_that_the_saved_model_explains(trained):
    """The first mistake of the report, which is the most confident one."""
    text = re.search(r'<p class="text"[^>]*>([^<]*)</p>\s*<p class="verdict">words: ', trained.report)[1]
    explanation = trained.predictor.explain(text)
    expected = [(word.word, round(100 * word.effect, 1)) for word in explanation.top(3) if word.effect > 0]
    for (word, effect), (name, own) in zip(shown_words(trained)[0], expected, strict=True):
        assert word == name and effect == pytest.approx(own, abs=0.11)


@pytest.mark.parametrize("model", ["few", "tf-idf"])
def test_linear_models_of_few_rows_have_them_too(model, start, finetuned, tmp_path):
    """By the model of all rows, of the mistakes of the models of other folds."""
    rows = with_wrong_labels(class_rows(0, 45))
    if model == "few":
        run = finetuned(Classify, model=start, train=rows, epochs=None, learning_rate=None, linear_start=True)
    else:
        run = finish(Classify(model=model, train=rows, out=tmp_path / "run"))
    firsts = [supporting[0][0] for supporting in shown_words(run)]
    assert "dog" in firsts


def test_the_largest_errors_have_the_words_that_move_the_number_away(start, finetuned):
    """A word that raises the number where it is too high, and one that lowers it where it is too low."""
    planted = [
        {"text": "cat cat cat on the mat", "score": 1000},
        {"text": "dog dog dog on the mat", "score": 20000},
    ]
    run = finetuned(
        Regress,
        model=start,
        train=number_rows(0, 250),
        dev=number_rows(1, 40),
        test=[*number_rows(2, 40), *planted],
        epochs=12.0,
    )
    high_or_low = shown_words(run)[:2]
    assert {supporting[0][0] for supporting in high_or_low} <= {"cat", "dog"}
    # 20,000 is farther from what the model has seen, so the number that is too low comes first.
    assert high_or_low[0][0][1] < 0 < high_or_low[1][0][1]


def test_explanations_draw_no_random_number(trained):
    """So a training with a seed stays the same training."""
    before = torch.get_rng_state()
    trained.predictor.explain("the cat ran")
    assert torch.equal(before, torch.get_rng_state())
