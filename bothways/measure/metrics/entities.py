"""Named entity (NER) metrics: precision, recall and F1 of spans with exact bounds and label.

Counted like conlleval (CoNLL-2000, CoNLL-2003) and seqeval. Scores are in 0..1; 0 divided by 0 counts as 0.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from bothways.base.errors import InputError
from bothways.measure.metrics.intervals import Intervals, decision_intervals, mean_intervals, resampling_units
from bothways.text.data.tags import Scheme, tags_to_spans

LocatedSpan = tuple[Hashable, str, int, int]  # (document, label, start, end), in words or in characters


def entity_scores(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    scheme: Scheme,
    *,
    strict: bool = False,
) -> dict[str, Any]:
    """The scores of `span_scores`, and `accuracy`: the fraction of words with the right tag.

    gold, predicted: one sequence of tags per text. They may mix IOB1, IOB2 and BIOES (see `tags_to_spans`); accuracy
        compares tags literally.
    scheme: the scheme of the tags.
    strict: only spans whose tags are written exactly as the scheme writes them (seqeval's strict mode).

    InputError if the numbers of sequences, or of tags in one sequence, differ.

    >>> entity_scores([["B-PER", "I-PER", "O"]], [["B-PER", "O", "O"]], "iob2")["f1"]
    0.0
    """
    if len(gold) != len(predicted):
        raise InputError(f"{len(gold)} gold sequences of tags, {len(predicted)} predicted; give one per text")
    for index, (gold_tags, predicted_tags) in enumerate(zip(gold, predicted, strict=True), 1):
        if len(gold_tags) != len(predicted_tags):
            raise InputError(
                f"sequence {index}: {len(gold_tags)} gold tags, {len(predicted_tags)} predicted; give one per word"
            )

    scores = span_scores(_located(gold, scheme, strict), _located(predicted, scheme, strict))
    num_right = sum(map(_count_right, gold, predicted))
    return {**scores, "accuracy": _ratio(num_right, sum(map(len, gold)))}


def entity_intervals(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    scheme: Scheme,
    groups: Sequence[Hashable] | None = None,
) -> Intervals:
    """95 % intervals of precision, recall, f1, f1_macro and accuracy of `entity_scores`.

    gold, predicted: one sequence of tags per text.
    scheme: the scheme of the tags; "plain" tags are no spans, and have an accuracy alone.
    groups: the document of each sequence; documents are resampled as a whole. Without groups, or with only one,
        sequences are resampled.
    """
    groups = range(len(gold)) if groups is None else groups
    accuracies = [
        _ratio(_count_right(gold_tags, predicted_tags), len(gold_tags))
        for gold_tags, predicted_tags in zip(gold, predicted, strict=True)
    ]
    accuracy = mean_intervals({"accuracy": accuracies}, groups, [*map(len, gold)])
    if scheme == "plain":
        return accuracy

    bounds = decision_intervals(
        _located(gold, scheme, strict=False),
        _located(predicted, scheme, strict=False),
        resampling_units(groups),
    )
    # Without the Matthews correlation, which assumes one decision per row.
    names = ("precision", "recall", "f1", "f1_macro")
    intervals = {name: bounds[name] for name in names}
    resamples = {name: bounds.resamples[name] for name in names}
    return Intervals({**intervals, **accuracy}, {**resamples, **accuracy.resamples}, bounds.num_units)


def _count_right(gold_tags: Sequence[str], predicted_tags: Sequence[str]) -> int:
    return sum(gold_tag == tag for gold_tag, tag in zip(gold_tags, predicted_tags, strict=True))


def _located(sequences: Sequence[Sequence[str]], scheme: Scheme, strict: bool) -> list[LocatedSpan]:
    return [
        (text, span.label, span.first, span.last)
        for text, tags in enumerate(sequences)
        for span in tags_to_spans(tags, scheme, strict=strict)
    ]


def span_scores(gold: Iterable[LocatedSpan], predicted: Iterable[LocatedSpan]) -> dict[str, Any]:
    """precision, recall and f1 over all spans, f1_macro (the mean over labels) and by_type.

    by_type: {label: {precision, recall, f1, support}}, sorted by label; support is the number of gold spans. Duplicate
    spans count once.
    """
    gold = set(gold)
    predicted = set(predicted)
    overall = _span_scores(gold, predicted)
    del overall["support"]

    labels = sorted({label for _, label, _, _ in gold | predicted})
    by_type = {label: _span_scores(_with_label(gold, label), _with_label(predicted, label)) for label in labels}
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


def _ratio(numerator: float, denominator: int) -> float:
    return numerator / denominator if denominator else 0.0
