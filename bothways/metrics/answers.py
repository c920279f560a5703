"""Answers to questions about a passage: exact match and F1 of words, as SQuAD's scorers define them.

SQuAD 1.1 (Rajpurkar 2016, section 6.1); 2.0 (Rajpurkar 2018), where the answer "" says that there is none. They differ
in answers of which normalizing leaves nothing: two such have F1 0 in 1.1 and 1 in 2.0. Scores are in percent.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from bothways.errors import InputError
from bothways.metrics.intervals import Interval, mean_interval

Version = Literal["1.1", "2.0"]
Metric = Literal["f1", "exact_match"]
GoldAnswers = Mapping[str, Sequence[str]]  # {id: answers, each of them right}; none where there is no answer
ARTICLE = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(answer: str) -> str:
    """Lower case, without ASCII punctuation and English articles, one space between words."""
    return " ".join(ARTICLE.sub(" ", answer.lower().translate(PUNCTUATION)).split())


def exact_match(gold: str, answer: str) -> float:
    """1 where the two are the same once normalized, else 0."""
    return float(normalize(gold) == normalize(answer))


def f1(gold: str, answer: str, version: Version = "2.0") -> float:
    """F1 of the words of the normalized answer, in 0..1."""
    gold_words, words = normalize(gold).split(), normalize(answer).split()
    if version == "2.0" and not (gold_words and words):
        return float(gold_words == words)
    shared = (Counter(gold_words) & Counter(words)).total()
    return 2 * shared / (len(gold_words) + len(words)) if shared else 0.0


def answer_scores(
    gold: GoldAnswers, predictions: Mapping[str, str], version: Version | None = None
) -> dict[str, float]:
    """exact_match and f1 in percent, n questions, of which `missing` have no prediction and score 0.

    In 2.0 also HasAns_exact, HasAns_f1, HasAns_total and the same for NoAns, of the questions with and without an
    answer. version: 2.0 where a question has no answer, else 1.1. Predictions for other ids do not count.
    """
    version = version or squad_version(gold)
    exact, by_f1 = (_best_scores(gold, predictions, metric, version) for metric in ("exact_match", "f1"))
    scores = {
        "exact_match": _percent(exact, gold),
        "f1": _percent(by_f1, gold),
        "n": len(gold),
        "missing": len(gold.keys() - predictions.keys()),
    }
    if version == "2.0":
        answered = {id for id, answers in gold.items() if answers}
        for name, ids in (("HasAns", answered), ("NoAns", gold.keys() - answered)):
            scores[f"{name}_exact"], scores[f"{name}_f1"] = _percent(exact, ids), _percent(by_f1, ids)
            scores[f"{name}_total"] = len(ids)
    return scores


def answer_intervals(
    gold: GoldAnswers, predictions: Mapping[str, str], groups: Mapping[str, Hashable], version: Version | None = None
) -> dict[str, Interval]:
    """The 95 % intervals of `answer_scores`' scores, in percent. groups: the passage of each question; the questions
    about one are drawn together, unless there are few passages (FEW_UNITS)."""
    version = version or squad_version(gold)
    exact, by_f1 = (_best_scores(gold, predictions, metric, version) for metric in ("exact_match", "f1"))
    asked = {"exact_match": (exact, [*gold]), "f1": (by_f1, [*gold])}
    if version == "2.0":
        for name, ids in (
            ("HasAns", [id for id in gold if gold[id]]),
            ("NoAns", [id for id in gold if not gold[id]]),
        ):
            asked |= {f"{name}_exact": (exact, ids), f"{name}_f1": (by_f1, ids)}
    found = {
        name: mean_interval([values[id] for id in ids], [groups[id] for id in ids])
        for name, (values, ids) in asked.items()
        if ids
    }
    return {name: (100 * low, 100 * high) for name, (low, high) in found.items()}


def squad_version(gold: GoldAnswers) -> Version:
    return "1.1" if all(gold.values()) else "2.0"


def _best_scores(
    gold: GoldAnswers, predictions: Mapping[str, str], metric: Metric, version: Version
) -> dict[str, float]:
    """The best score, 0..1, that each prediction has with an answer to its question."""
    score: Callable[[str, str], float] = exact_match if metric == "exact_match" else lambda a, b: f1(a, b, version)
    return {
        id: max(score(right, predictions[id]) for right in _accepted(answers, version)) if id in predictions else 0.0
        for id, answers in gold.items()
    }


def _accepted(answers: Sequence[str], version: Version) -> Sequence[str]:
    """The answers to compare with: in 2.0 those of which normalizing leaves something; where there is none, ""."""
    return [answer for answer in answers if version == "1.1" or normalize(answer)] or [""]


def _percent(scores: Mapping[str, float], ids: Iterable[str]) -> float:
    found = [scores[id] for id in ids]
    return 100 * sum(found) / len(found) if found else 0.0


class Threshold(NamedTuple):
    """A question is given no answer where its no-answer score is above `value`; `score`: what this scores, percent."""

    value: float
    score: float


def best_threshold(
    gold: GoldAnswers, predictions: Mapping[str, str], no_answer_scores: Mapping[str, float], metric: Metric = "f1"
) -> Threshold:
    """The threshold that scores best on these questions (SQuAD 2.0's scorer); the lowest of equals.

    predictions: the best answer to each question that is not ""; no_answer_scores: how much "" is to be preferred.
    Questions of one score are decided together: `score` is what answer_scores gives for the threshold. (The scorer
    takes them one by one, and may name a score that no threshold has.)
    """
    if missing := gold.keys() - (predictions.keys() & no_answer_scores.keys()):
        raise InputError(
            f"question {min(missing)}: a threshold needs an answer and a no-answer score for each question"
        )
    answering = _best_scores(gold, predictions, metric, "2.0")
    silent = _best_scores(gold, dict.fromkeys(gold, ""), metric, "2.0")
    gain_by_score: dict[float, float] = {}
    for id in gold:
        score = no_answer_scores[id]
        gain_by_score[score] = gain_by_score.get(score, 0.0) + answering[id] - silent[id]
    total = best = sum(silent.values())
    value = math.nextafter(min(gain_by_score), -math.inf)  # below every score: nothing is answered
    for score in sorted(gain_by_score):
        total += gain_by_score[score]
        if total > best:
            best, value = total, score
    return Threshold(value, 100 * best / len(gold))
