"""The worst mistakes of a report with the words that support them, by the model that the report is about."""

from collections.abc import Callable, Mapping, Sequence

from bothways.base.progress import working
from bothways.inference.explanation import WordEffect, word_cuts
from bothways.inference.predictor import Predictor
from bothways.measure.report import LabelMistake, LabelMistakes, NumberMistake, NumberMistakes, Section, WordSupport

NUM_EXPLAINED = 10  # mistakes, the worst first
NUM_WORDS = 3
MAX_WORDS = 64  # of a text or a pair: a text of n words is read n + 1 times

Mistake = LabelMistake | NumberMistake


def with_words(sections: Sequence[Section], build_predictor: Callable[[], Predictor]) -> list[Section]:
    """The same sections, in which the worst mistakes have the words that support them most.

    sections: of the report; sections without mistakes of texts stay as they are.
    build_predictor: makes a Predictor of the model whose mistakes they are; called if there are any.
    """
    explained = list[Section]()
    for section in sections:
        if isinstance(section, LabelMistakes | NumberMistakes):
            cases = _short(section.worst)
            explained.append(section.with_words(_supports(cases, build_predictor)) if cases else section)
        else:
            explained.append(section)
    return explained


def _short(worst: Sequence[Mistake]) -> list[Mistake]:
    """The first mistakes with a short text."""
    cases = []
    for case in worst[:NUM_EXPLAINED]:
        # A number that is as it should be is no mistake.
        is_wrong = case.gold != case.predicted
        num_words = len(word_cuts(case.text)) + len(word_cuts(case.pair or ""))
        if is_wrong and 0 < num_words <= MAX_WORDS:
            cases.append(case)
    return cases


def _supports(
    cases: Sequence[Mistake], build_predictor: Callable[[], Predictor]
) -> Mapping[tuple[str, str | None], Sequence[WordSupport]]:
    """The words of each mistake, by its texts."""
    with working("words of the mistakes"):
        model = build_predictor()
        return {(case.text, case.pair): _words(case, model) for case in cases}


def _words(case: Mistake, model: Predictor) -> list[WordSupport]:
    """The words that support a mistake most."""
    if isinstance(case, LabelMistake):
        # By name: a model that is trained on all rows may have another first label than the model of the other folds.
        explanation = model.explain(case.text, case.pair, label=case.predicted)
        strongest = explanation.top(NUM_WORDS)
        supporting = [word for word in strongest if word.effect > 0]
    else:
        explanation = model.explain(case.text, case.pair)
        # Without the word, the number is nearer to gold.
        direction = 1 if case.predicted > case.gold else -1
        strongest = sorted(explanation.words, key=lambda word: -direction * word.effect)[:NUM_WORDS]
        supporting = [word for word in strongest if direction * word.effect > 0]
    return [_support(word) for word in supporting]


def _support(word: WordEffect) -> WordSupport:
    return WordSupport(word=word.word, effect=word.effect)
