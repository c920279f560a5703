"""Question answering metrics: exact match and word F1, as in the official SQuAD scorers.

SQuAD 1.1: Rajpurkar 2016, section 6.1. SQuAD 2.0: Rajpurkar 2018, where the answer "" means that the question has no
answer. The two differ when normalization leaves nothing of both answers: F1 is 0 in 1.1 and 1 in 2.0. Scores are in
percent.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from bothways.base.errors import InputError
from bothways.measure.metrics.intervals import Intervals, mean_intervals

Version = Literal["1.1", "2.0"]
Metric = Literal["f1", "exact_match"]
METRICS: tuple[Metric, ...] = ("exact_match", "f1")
GoldAnswers = Mapping[str, Sequence[str]]  # {id: accepted answers}; an empty sequence if there is no answer
ARTICLE = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def answer_scores(
    gold: GoldAnswers,
    predictions: Mapping[str, str],
    version: Version | None = None,
) -> dict[str, float]:
    """exact_match and f1 in percent, the number of questions n, and how many of them are `missing` a prediction.

    gold: the accepted answers of each question.
    predictions: the answer to each question; a missing one scores 0, and unknown ids are ignored.
    version: None means 2.0 if some question has no answer, else 1.1.

    SQuAD 2.0 adds HasAns_exact, HasAns_f1, HasAns_total and the same for NoAns: questions with and without an answer.

    >>> answer_scores({"q": ["the red house"]}, {"q": "red house"})["exact_match"]
    100.0
    """
    version = version or squad_version(gold)
    exact = _best_scores(gold, predictions, "exact_match", version)
    word_f1 = _best_scores(gold, predictions, "f1", version)
    scores = {
        "exact_match": _percent(exact, gold),
        "f1": _percent(word_f1, gold),
        "n": len(gold),
        "missing": len(gold.keys() - predictions.keys()),
    }

    if version == "2.0":
        for prefix, ids in _answerable(gold).items():
            scores[f"{prefix}_exact"] = _percent(exact, ids)
            scores[f"{prefix}_f1"] = _percent(word_f1, ids)
            scores[f"{prefix}_total"] = len(ids)
    return scores


def answer_intervals(
    gold: GoldAnswers,
    predictions: Mapping[str, str],
    groups: Mapping[str, Hashable],
    version: Version | None = None,
) -> Intervals:
    """95 % intervals of the scores of `answer_scores`, in percent.

    gold: the accepted answers of each question.
    predictions: the answer to each question.
    groups: the passage of each question. Questions about one passage are resampled together, unless all are about it.
    version: as for `answer_scores`.
    """
    version = version or squad_version(gold)
    columns = {metric: _best_scores(gold, predictions, metric, version) for metric in METRICS}
    bounds = mean_intervals(
        {metric: [*column.values()] for metric, column in columns.items()},
        [groups[id] for id in gold],
    )
    intervals = dict(bounds)
    resamples = dict(bounds.resamples)

    if version == "2.0":
        for prefix, ids in _answerable(gold).items():
            if not ids:
                continue
            parts = {
                f"{prefix}_exact": [columns["exact_match"][id] for id in ids],
                f"{prefix}_f1": [columns["f1"][id] for id in ids],
            }
            part_bounds = mean_intervals(parts, [groups[id] for id in ids])
            intervals |= part_bounds
            resamples |= part_bounds.resamples

    return Intervals(
        {name: (100 * low, 100 * high) for name, (low, high) in intervals.items()},
        {name: 100 * resamples_B for name, resamples_B in resamples.items()},
        bounds.num_units,
    )


def squad_version(gold: GoldAnswers) -> Version:
    return "1.1" if all(gold.values()) else "2.0"


def _answerable(gold: GoldAnswers) -> dict[str, list[str]]:
    """The questions with and without an answer, by the prefix that their scores have in SQuAD 2.0."""
    return {
        "HasAns": [id for id, answers in gold.items() if answers],
        "NoAns": [id for id, answers in gold.items() if not answers],
    }


def _best_scores(
    gold: GoldAnswers,
    predictions: Mapping[str, str],
    metric: Metric,
    version: Version,
) -> dict[str, float]:
    """For each question, the best score (0..1) of its prediction over the accepted answers."""
    score: Callable[[str, str], float] = exact_match if metric == "exact_match" else lambda a, b: f1(a, b, version)

    best = {}
    for id, answers in gold.items():
        best[id] = 0.0
        if id in predictions:
            best[id] = max(score(accepted, predictions[id]) for accepted in _accepted(answers, version))
    return best


def _accepted(answers: Sequence[str], version: Version) -> Sequence[str]:
    """The answers to compare with, `""` if there are none; in 2.0 without answers that normalize to ""."""
    return [answer for answer in answers if version == "1.1" or normalize(answer)] or [""]


def exact_match(gold: str, answer: str) -> float:
    """1 if the normalized answers are equal, else 0."""
    return float(normalize(gold) == normalize(answer))


def f1(gold: str, answer: str, version: Version = "2.0") -> float:
    """Word F1 of the normalized answers, in 0..1.

    gold: an accepted answer.
    answer: the answer to score.
    version: in 2.0, two answers that normalize to "" are equal.
    """
    gold_words = normalize(gold).split()
    words = normalize(answer).split()
    if version == "2.0" and not (gold_words and words):
        return float(gold_words == words)

    num_shared = (Counter(gold_words) & Counter(words)).total()
    return 2 * num_shared / (len(gold_words) + len(words)) if num_shared else 0.0


def normalize(answer: str) -> str:
    """Lower-case; remove ASCII punctuation and English articles; collapse white space."""
    return " ".join(ARTICLE.sub(" ", answer.lower().translate(PUNCTUATION)).split())


def _percent(scores: Mapping[str, float], ids: Iterable[str]) -> float:
    values = [scores[id] for id in ids]
    return 100 * sum(values) / len(values) if values else 0.0


class Threshold(NamedTuple):
    """No answer is given if the no-answer score exceeds `value`. `score`: the metric at this threshold, in percent."""

    value: float
    score: float


def best_threshold(
    gold: GoldAnswers,
    predictions: Mapping[str, str],
    no_answer_scores: Mapping[str, float],
    metric: Metric = "f1",
) -> Threshold:
    """The no-answer threshold with the best score, as in the SQuAD 2.0 scorer; ties go to the lowest.

    gold: the accepted answers of each question.
    predictions: the best non-empty answer to each question.
    no_answer_scores: higher means that "" is preferred.
    metric: the score to raise.

    A question without accepted answers is right if none is given, any other only by an answer, even if normalization
    leaves nothing of them (which `answer_scores`, like the official scorer, takes for "").
    Questions with equal no-answer scores are treated alike, so that this threshold reaches `score`. (The official
    scorer adds questions one by one and may report a score that no threshold reaches.)

    InputError if a question has no answer or no no-answer score.
    """
    if missing := gold.keys() - (predictions.keys() & no_answer_scores.keys()):
        raise InputError(
            f"question {min(missing)}: a threshold needs an answer and a no-answer score for each question"
        )

    # The gain of answering a question rather than giving no answer, summed over questions of equal score.
    answered = _best_scores(gold, predictions, metric, "2.0")
    gain_by_score: dict[float, float] = {}
    for id, accepted in gold.items():
        gain = answered[id] if accepted else float(not predictions[id]) - 1
        score = no_answer_scores[id]
        gain_by_score[score] = gain_by_score.get(score, 0.0) + gain

    # Below every score no question is answered: right are the questions without an accepted answer.
    value = math.nextafter(min(gain_by_score), -math.inf)
    total = float(sum(not accepted for accepted in gold.values()))
    best = total
    for score in sorted(gain_by_score):
        total += gain_by_score[score]
        if total > best:
            best = total
            value = score
    return Threshold(value, 100 * best / len(gold))
