"""SQuAD 1.1 and 2.0 scores equal the official scorers'. Published predictions: soak/test_scorers.py."""

import random

import pytest

from bothways.base.errors import InputError
from bothways.measure.metrics import answer_scores, best_threshold
from bothways.measure.metrics.answers import exact_match, f1, normalize

GOLD = {
    "article": ["the Eiffel Tower", "Eiffel Tower, Paris"],
    "punctuation": ["1,000 km."],
    "unicode": ["Étretat’s cliffs"],
    "repeated": ["ho ho ho"],
    "unanswered": ["Rome"],
    "wrong": ["Vienna", "Wien"],
}
PREDICTIONS = {
    "article": "An Eiffel tower in Paris!",  # eiffel tower in paris: 2/3 with the first answer, 6/7 with the second
    "punctuation": "1000 KM",
    "unicode": "ÉTRETAT’S",  # ’ is not ASCII punctuation
    "repeated": "ho ho",  # 2 of 3 words, 2 of 2
    "wrong": "Graz",
    "unknown": "Rome",
}


@pytest.mark.parametrize(
    ("answer", "normalized"),
    [
        ("The  Cat,\tand a\nhat!", "cat and hat"),
        ("a.b c-d", "ab cd"),  # punctuation goes before articles: a.b is not an article
        ("theatre another Ana", "theatre another ana"),
        ("“The” Äpfel", "“ ” äpfel"),  # an article between marks that stay
        ("THE", ""),
        ("l'an neuf", "lan neuf"),
    ],
)
def test_normal_form(answer, normalized):
    assert normalize(answer) == normalized


def test_scores_by_hand_the_best_of_several_answers_counts_and_a_missing_one_scores_0():
    scores = answer_scores(GOLD, PREDICTIONS)
    assert scores["exact_match"] == pytest.approx(100 * 1 / 6)
    assert scores["f1"] == pytest.approx(100 * (6 / 7 + 1 + 2 / 3 + 4 / 5 + 0 + 0) / 6)
    assert (scores["n"], scores["missing"]) == (6, 1)
    assert "HasAns_f1" not in scores


def test_an_empty_normal_form_matches_itself_and_has_an_f1_in_2_0_only():
    assert exact_match("The", "a") == 1
    assert f1("The", "a", "1.1") == 0
    assert f1("The", "a", "2.0") == 1
    assert f1("The", "cat", "2.0") == f1("cat", "", "2.0") == f1("cat", "", "1.1") == 0


def test_no_answer_is_correct_for_impossible_questions():
    gold = {"1": ["cat"], "2": [], "3": [], "4": ["the", "an old cat"], "5": []}
    scores = answer_scores(gold, {"1": "", "2": "", "3": "dog", "4": "old dog", "5": "The"})
    assert (scores["exact_match"], scores["f1"]) == pytest.approx((100 * 2 / 5, 100 * 2.5 / 5))
    assert (scores["HasAns_exact"], scores["HasAns_f1"], scores["HasAns_total"]) == pytest.approx((0, 100 * 0.5 / 2, 2))
    assert (scores["NoAns_exact"], scores["NoAns_f1"], scores["NoAns_total"]) == pytest.approx((200 / 3, 200 / 3, 3))
    # An answer that is empty after normalization does not count if there is another.
    assert answer_scores({"1": ["the", "cat"]}, {"1": "The"}, "2.0")["exact_match"] == 0
    assert answer_scores({"1": ["the", "cat"]}, {"1": "The"}, "1.1")["exact_match"] == 100


def test_the_version_follows_from_the_questions_and_can_be_set():
    gold = {"1": ["The"]}
    assert answer_scores(gold, {"1": "a"})["f1"] == 0
    assert answer_scores(gold, {"1": "a"}, "2.0")["f1"] == 100
    assert answer_scores({}, {})["f1"] == 0


def score_at(threshold, gold, predictions, scores, metric):
    """An answer that is withheld is right if there is none; one that is given, if there is one and it is right."""
    given = [key for key in gold if gold[key] and scores[key] <= threshold]
    right = [answer_scores({key: gold[key]}, predictions, "2.0")[metric] for key in given]
    withheld = [100.0 for key in gold if not gold[key] and scores[key] > threshold]
    return sum(right + withheld) / len(gold)


@pytest.mark.parametrize("metric", ["f1", "exact_match"])
def test_the_best_threshold_is_the_best_of_all(metric):
    """Ties between scores, thresholds that answer nothing and those that answer all among them."""
    chance = random.Random(29)
    thresholds = set()
    for _ in range(60):
        words = ["red", "red cat", "old red cat", "the"]
        gold = {str(k): [chance.choice(words)] if chance.random() < 0.5 else [] for k in range(9)}
        predictions = {key: chance.choice(words) for key in gold}
        scores = {key: chance.choice([-2.5, -1.0, 0.0, 0.5, 3.0, 7.0]) for key in gold} | {"4": -2.5}
        value, best = best_threshold(gold, predictions, scores, metric)
        tried = {
            threshold: score_at(threshold, gold, predictions, scores, metric)
            for threshold in (-3, -2.5, -1.0, 0.0, 0.5, 3.0, 7.0)
        }
        assert best == pytest.approx(max(tried.values()))
        assert score_at(value, gold, predictions, scores, metric) == pytest.approx(best)
        assert min(t for t, score in tried.items() if score > best - 1e-6) == (value if value >= -2.5 else -3)
        thresholds.add(value)
    assert len(thresholds) > 3


@pytest.mark.parametrize(
    ("gold", "predictions", "expected"),
    [
        ({"1": ["the"], "2": []}, {"1": "The", "2": "x"}, (1, 100)),  # only an answer is right for "the"
        ({"1": ["..."], "2": ["cat"]}, {"1": "cat", "2": "cat"}, (2, 50)),
        ({"1": [], "2": ["cat"]}, {"1": "the", "2": "cat"}, (1 - 1e-9, 50)),  # any answer is wrong without one
        ({"1": [], "2": ["cat"]}, {"1": "", "2": "cat"}, (2, 100)),
    ],
)
@pytest.mark.parametrize("metric", ["f1", "exact_match"])
def test_a_threshold_asks_whether_there_is_an_answer_not_what_is_left_of_it(gold, predictions, expected, metric):
    assert best_threshold(gold, predictions, {"1": 1.0, "2": 2.0}, metric) == pytest.approx(expected)


def test_a_threshold_needs_every_question():
    with pytest.raises(InputError, match="question 2: .*no-answer score"):
        best_threshold({"1": [], "2": []}, {"1": "x", "2": "y"}, {"1": 0.5})


def test_scores_of_a_part_are_added_in_the_order_of_the_questions():
    """Floats in the order of a set would differ in their last bits from process to process."""
    random_state = random.Random(3)
    words = "red blue green dog cat sun moon tree".split()

    def answer() -> str:
        return " ".join(random_state.choices(words, k=random_state.randint(1, 7)))

    for _ in range(20):
        gold = {f"q{number}": [answer()] if number % 3 else [] for number in range(97)}
        predictions = {question: answer() for question in gold}
        answered = [question for question in gold if gold[question]]
        values = [f1(gold[question][0], predictions[question]) for question in answered]
        assert answer_scores(gold, predictions)["HasAns_f1"] == 100 * sum(values) / len(values)
