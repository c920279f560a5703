"""Entities found: precision, recall and F1 of spans that are right in label, first and last word.

Counted as conlleval (CoNLL-2000, CoNLL-2003) and seqeval count. Shares are in 0..1; a share of nothing is 0.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from bothways.data.tags import Scheme, tags_to_spans
from bothways.errors import InputError
from bothways.metrics.intervals import Interval, decision_intervals, mean_interval, resampling_units

LocatedSpan = tuple[Hashable, str, int, int]  # (document, label, start, end), in words or in characters


def entity_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], scheme: Scheme, *, strict: bool = False
) -> dict[str, Any]:
    """What `span_scores` gives, and `accuracy`, the share of words whose tag is right. One sequence of tags a text.

    Gold and predicted tags may be of IOB1, IOB2 and BIOES in any mixture, which are read alike (`spans_of`); accuracy
    compares them as written. InputError where a prediction has other words than the gold sequence.
    """
    if len(gold) != len(predicted):
        raise InputError(f"{len(gold)} gold sequences of tags, {len(predicted)} predicted; give one for each")
    for number, (right, found) in enumerate(zip(gold, predicted, strict=True), 1):
        if len(right) != len(found):
            raise InputError(f"sequence {number}: {len(right)} gold tags, {len(found)} predicted; give one a word")
    correct = sum(
        a == b for right, found in zip(gold, predicted, strict=True) for a, b in zip(right, found, strict=True)
    )
    scores = span_scores(_located(gold, scheme, strict), _located(predicted, scheme, strict))
    return {**scores, "accuracy": _ratio(correct, sum(map(len, gold)))}


def entity_intervals(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    scheme: Scheme,
    groups: Sequence[Hashable] | None = None,
) -> dict[str, Interval]:
    """The 95 % intervals of `entity_scores`' precision, recall, f1, f1_macro and accuracy. groups: what each sequence
    is part of (its document), which is drawn as a whole; without them, or with few (FEW_UNITS), each is by itself."""
    groups = range(len(gold)) if groups is None else groups
    accuracy = tag_interval(gold, predicted, groups)
    if scheme == "plain":
        return {"accuracy": accuracy}
    marks = decision_intervals(
        _located(gold, scheme, False), _located(predicted, scheme, False), resampling_units(groups)
    )
    return {**{name: marks[name] for name in ("precision", "recall", "f1", "f1_macro")}, "accuracy": accuracy}


def tag_interval(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], groups: Sequence[Hashable]
) -> Interval:
    """That of the share of words whose tag is right."""
    shares = [
        _ratio(sum(a == b for a, b in zip(right, found, strict=True)), len(right))
        for right, found in zip(gold, predicted, strict=True)
    ]
    return mean_interval(shares, groups, [*map(len, gold)])


def _located(sequences: Sequence[Sequence[str]], scheme: Scheme, strict: bool) -> list[LocatedSpan]:
    return [
        (text, span.label, span.first, span.last)
        for text, tags in enumerate(sequences)
        for span in tags_to_spans(tags, scheme, strict=strict)
    ]


def span_scores(gold: Iterable[LocatedSpan], predicted: Iterable[LocatedSpan]) -> dict[str, Any]:
    """precision, recall, f1 over all spans, f1_macro (the mean of the labels' f1), and by_type: {label: {precision,
    recall, f1, support}}, labels in order, support the number of gold spans. A span given twice counts once."""
    gold, predicted = set(gold), set(predicted)
    labels = sorted({label for _, label, _, _ in gold | predicted})
    by_type = {label: _span_scores(_with_label(gold, label), _with_label(predicted, label)) for label in labels}
    overall = _span_scores(gold, predicted)
    del overall["support"]
    f1_macro = _ratio(sum(scores["f1"] for scores in by_type.values()), len(by_type))
    return {**overall, "f1_macro": f1_macro, "by_type": by_type}


def _with_label(spans: set[LocatedSpan], label: str) -> set[LocatedSpan]:
    return {span for span in spans if span[1] == label}


def _span_scores(gold: set[LocatedSpan], predicted: set[LocatedSpan]) -> dict[str, float]:
    right = len(gold & predicted)
    return {
        "precision": _ratio(right, len(predicted)),
        "recall": _ratio(right, len(gold)),
        "f1": _ratio(2 * right, len(gold) + len(predicted)),
        "support": len(gold),
    }


def _ratio(part: float, whole: int) -> float:
    return part / whole if whole else 0.0
