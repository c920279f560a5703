"""Why a model predicts what it predicts: each text is read whole and once without each of its words.

The effect of a word is exact, not estimated: the score of the prediction minus its score without the word. All variants
of a text are read in ragged batches, as other texts are.

Letters: N texts, V variants of a text, C outputs of the head, H size of a vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bothways.base.errors import InputError, join_names
from bothways.inference.explanation import Cut, Explanation, WordEffect, word_cuts
from bothways.inference.reading import ReadOptions
from bothways.tasks import TASKS
from bothways.tasks.answer.decoding import Candidates
from bothways.tasks.arrays import Floats, sigmoid, softmax
from bothways.tasks.tag.decoding import Entity, WordLabels, decode_entities, word_labels
from bothways.tasks.windows import merge_rows

if TYPE_CHECKING:
    from bothways.inference.predictor import Predictor

CHARACTERS = 1 << 20  # of the variants that are computed together


@dataclass(frozen=True)
class Variants:
    """A text (or pair) and its variants: the first is whole, each of the others lacks a word.

    cuts: the word that each of the others lacks, with the number of its text (0, or 1 for the second of a pair).
    texts, pairs: the variants.
    """

    cuts: Sequence[tuple[int, Cut]]
    texts: Sequence[str]
    pairs: Sequence[str] | None

    @staticmethod
    def of(text: str, pair: str | None, *, first: bool = True) -> Variants:
        """first: whether words of the first text are left out, too."""
        cuts = [(0, cut) for cut in word_cuts(text)] if first else []
        if pair is None:
            return Variants(cuts, [text, *(cut.apply(text) for _, cut in cuts)], None)

        cuts += [(1, cut) for cut in word_cuts(pair)]
        return Variants(
            cuts=cuts,
            texts=[text, *(text if number else cut.apply(text) for number, cut in cuts)],
            pairs=[pair, *(cut.apply(pair) if number else pair for number, cut in cuts)],
        )

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def num_characters(self) -> int:
        return sum(map(len, self.texts)) + sum(map(len, self.pairs or ()))

    def effects(self, scores_V: Sequence[float] | Floats) -> tuple[WordEffect, ...]:
        """The effect of each word, from the score of each variant."""
        whole = (self.texts[0], "" if self.pairs is None else self.pairs[0])
        score, *others = map(float, scores_V)
        return tuple(
            WordEffect(
                word=whole[number][cut.start : cut.end],
                start=cut.start,
                end=cut.end,
                effect=score - other,
                text=number,
            )
            for (number, cut), other in zip(self.cuts, others, strict=True)
        )


def explanations(
    model: Predictor,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    label: str | None,
    options: ReadOptions,
) -> Iterator[Explanation]:
    """The explanation of each text (or pair). A text without words has none in its explanation.

    label: of a classifier, the label that is explained, of a tagger the label of the entities; None: the most probable
    label, all entities.

    InputError if the model predicts nothing that has a score, or has no such label.
    """
    head = TASKS[model.task].head
    if head not in ("classes", "tokens", "spans") and pairs is None:
        heads = ", ".join(model.backend.heads) or "none"
        raise InputError(
            f"the model has no head whose predictions can be explained (heads: {heads}); give a second text, for the "
            "similarity of two, or fine-tune a classifier: bothways finetune classify"
        )
    _check_label(model, head, label)
    if head == "spans" and pairs is None:
        raise InputError("pairs is None; give one passage per question")

    is_answer = head == "spans"
    seconds: Sequence[str | None] = [None] * len(texts) if pairs is None else pairs
    all_variants = (Variants.of(*row, first=not is_answer) for row in zip(texts, seconds, strict=True))
    for part in _parts(all_variants):
        if head == "classes":
            yield from _of_classes(model, part, label, options)
        elif head == "tokens":
            yield from _of_entities(model, part, label, options)
        elif head == "spans":
            yield from _of_answers(model, part, options)
        else:
            yield from _of_similarity(model, part, options)


def _check_label(model: Predictor, head: str, label: str | None) -> None:
    if label is None:
        return
    if head == "tokens":
        tagset = model.tagset
        names = sorted({name if tagset.plain else name[2:] for name in tagset.readable} - {"", "O"})
    else:
        names = [*model.labels]
    if not names:
        raise InputError(f"label ({label!r:.60}) is for labels; the task of this model is {model.task}; leave it out")
    if label not in names:
        raise InputError(f"label ({label!r:.60}) is not a label of the model ({join_names(names)}); name one")


def _parts(all_variants: Iterator[Variants]) -> Iterator[list[Variants]]:
    """The variants of several texts, to be computed together."""
    part: list[Variants] = []
    size = 0
    for variants in all_variants:
        part.append(variants)
        size += variants.num_characters
        if size >= CHARACTERS:
            yield part
            part = []
            size = 0
    if part:
        yield part


def _joined(part: Sequence[Variants]) -> tuple[list[str], list[str] | None, list[slice]]:
    """All variants of a part as one list, and where the variants of each text are in it."""
    texts = [text for variants in part for text in variants.texts]
    pairs = [pair for variants in part for pair in variants.pairs or ()]
    slices = []
    start = 0
    for variants in part:
        slices.append(slice(start, start + len(variants)))
        start += len(variants)
    return texts, pairs or None, slices


# --- classes and numbers ----------------------------------------------------------------------------------------------


def _of_classes(
    model: Predictor, part: Sequence[Variants], label: str | None, options: ReadOptions
) -> Iterator[Explanation]:
    texts, pairs, slices = _joined(part)
    scores = np.concatenate([*model.backend.text_scores("classes", texts, pairs, options)])
    labels = model.labels
    if labels:
        scores = (sigmoid if model.description.multi_label else softmax)(scores)

    for variants, rows in zip(part, slices, strict=True):
        scores_VC = scores[rows]
        column = 0
        if label is not None:
            column = labels.index(label)
        elif labels:
            column = int(scores_VC[0].argmax())
        yield Explanation(
            label=labels[column] if labels else None,
            score=float(scores_VC[0, column]),
            words=variants.effects(scores_VC[:, column]),
        )


# --- entities ---------------------------------------------------------------------------------------------------------


def _of_entities(
    model: Predictor, part: Sequence[Variants], label: str | None, options: ReadOptions
) -> Iterator[Explanation]:
    texts, _, slices = _joined(part)
    windows = model.encoder.encode(texts, None, options)
    rows = model.encoder.token_scores("tokens", windows, options)
    tagset = model.tagset

    for variants, places in zip(part, slices, strict=True):
        read = [
            (parts, merge_rows(parts, part_rows))
            for parts, part_rows in zip(windows[places], rows[places], strict=True)
        ]
        found = decode_entities(*read[0], tagset)
        whole, *others = [word_labels(parts, scores_SC, tagset) for parts, scores_SC in read]

        entities = []
        for entity, (_, first, last) in zip(found, whole.spans, strict=True):
            if label is not None and entity.label != label:
                continue
            scores_V = [entity.score]
            for (_, cut), other in zip(variants.cuts, others, strict=True):
                scores_V.append(_score_without(whole, other, range(first, last), cut))
            entities.append(_of_entity(entity, variants, scores_V))
        yield _together(entities, variants)


def _score_without(whole: WordLabels, other: WordLabels, words: range, cut: Cut) -> float:
    """The score of an entity in a text without a word: the mean probability of its labels at the words that are left; 0
    if none is left.

    whole, other: the labels of the words of the whole text, and of the text without the word.
    words: of the entity, in the whole text.
    """
    kept = [word for word in words if not cut.start <= whole.starts[word] < cut.end]
    if not kept:
        return 0.0

    labels = [int(whole.labels_W[word]) for word in kept]
    # The word that is first now begins the entity, and the word that is last ends it.
    labels[-1] = int(whole.labels_W[words[-1]])
    labels[0] = int(whole.labels_W[words[0]])

    word_by_start = {start: word for word, start in enumerate(other.starts)}
    probabilities = []
    for word, label in zip(kept, labels, strict=True):
        place = word_by_start.get(cut.moved(whole.starts[word]))
        probabilities.append(0.0 if place is None else float(np.exp(other.log_WC[place, label])))
    return float(np.mean(probabilities))


def _of_entity(entity: Entity, variants: Variants, scores_V: Sequence[float]) -> Explanation:
    return Explanation(
        label=entity.label,
        score=entity.score,
        words=variants.effects(scores_V),
        span=(entity.start, entity.end),
    )


def _together(entities: Sequence[Explanation], variants: Variants) -> Explanation:
    """The explanation of all entities of a text: the mean of their scores, and of the effects on them."""
    if not entities:
        return Explanation(label=None, score=0.0, words=variants.effects([0.0] * len(variants)))
    score = float(np.mean([entity.score for entity in entities]))
    effects_W = np.mean([[word.effect for word in entity.words] for entity in entities], axis=0)
    return Explanation(
        label=None,
        score=score,
        words=variants.effects([score, *(score - effects_W)]),
        entities=tuple(entities),
    )


# --- answers ----------------------------------------------------------------------------------------------------------


def _of_answers(model: Predictor, part: Sequence[Variants], options: ReadOptions) -> Iterator[Explanation]:
    questions, passages, slices = _joined(part)
    candidates = model.answer_candidates(questions, passages or [], **options)
    threshold = model.description.metadata.get("no_answer_threshold")

    for variants, rows in zip(part, slices, strict=True):
        whole, *others = candidates[rows]
        answer = whole.answers(1, threshold)[0]
        span = (answer.start, answer.end)
        scores_V = [answer.score]
        for (_, cut), other in zip(variants.cuts, others, strict=True):
            scores_V.append(_answer_without(other, span, cut, threshold))
        yield Explanation(
            label=answer.text,
            score=answer.score,
            words=variants.effects(scores_V),
            span=span,
        )


def _answer_without(other: Candidates, span: tuple[int, int], cut: Cut, threshold: float | None) -> float:
    """The probability of an answer in a passage without a word; of an answer that has the word, of what is left."""
    start, end = span
    if start == end:  # no answer
        return other.probability(None, threshold)

    start = cut.moved(start)
    left = other.passage[start : cut.moved(end)]
    start += len(left) - len(left.lstrip())
    end = start + len(left.strip())
    return other.probability((start, end), threshold) if start < end else 0.0


# --- similarity -------------------------------------------------------------------------------------------------------


def _of_similarity(model: Predictor, part: Sequence[Variants], options: ReadOptions) -> Iterator[Explanation]:
    firsts, seconds, slices = _joined(part)
    # Each text of a pair is read once for all variants that have it.
    different = [*dict.fromkeys([*firsts, *(seconds or ())])]
    row_by_text = {text: row for row, text in enumerate(different)}
    vectors_NH = model.embed(different, **options)

    for variants, rows in zip(part, slices, strict=True):
        first_VH = vectors_NH[[row_by_text[text] for text in firsts[rows]]]
        second_VH = vectors_NH[[row_by_text[text] for text in (seconds or [])[rows]]]
        cosines_V = (first_VH * second_VH).sum(1)
        yield Explanation(
            label=None,
            score=float(cosines_V[0]),
            words=variants.effects(cosines_V),
        )
