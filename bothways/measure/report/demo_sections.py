"""Sections of the demo's page: a map of senses, gaps, following sentences, search, scores, wrong labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bothways.measure.report.chart import build_axis, dot, figure, label, plot
from bothways.measure.report.markup import Html, Section, element, format_number, isolate, join, table

WIDTH = 520
HEIGHT = 320
WAYS = ("found", "by_words")  # of search: passages by vectors, and by TF-IDF


@dataclass(frozen=True)
class Gaps(Section):
    """Gaps with the first guesses. rows: (text, guesses, note)."""

    rows: Sequence[tuple[str, str, str]]
    heading = "Gaps"

    def body(self) -> Html:
        return table("The first five guesses for [MASK].", ["Text", "Guesses", ""], self.rows, words=3)


@dataclass(frozen=True)
class NextSentences(Section):
    """Which of two sentences follows.

    rows: (first sentence, the sentence that follows, its probability, another sentence, its probability).
    """

    rows: Sequence[tuple[str, str, float, str, float]]
    heading = "Which sentence follows?"

    def body(self) -> Html:
        cells = []
        for first, right, right_probability, wrong, wrong_probability in self.rows:
            cells.append([first, f"{right} ({right_probability:.0%})", f"{wrong} ({wrong_probability:.0%})"])
        caption = "Probability that each follows the first sentence."
        return table(caption, ["First", "Written to follow", "Written about something else"], cells, words=3)


@dataclass(frozen=True)
class SearchHits(Section):
    """Questions with the best passages by vectors and by shared words.

    rows: dicts with question, found (passages by vectors) and by_words (by TF-IDF); a passage is its text and whether
        it is the right one.
    """

    rows: Sequence[Mapping[str, Any]]
    heading = "Search by meaning"

    def body(self) -> Html:
        num_by_meaning, num_by_words = (sum(_has_right(row[way]) for row in self.rows) for way in WAYS)
        note = element(
            "p",
            "No question shares a word with the passage that answers it. It is among the first three for "
            f"{num_by_meaning} of {len(self.rows)} by meaning, for {num_by_words} by words (TF-IDF).",
        )

        cells = [[row["question"], *(_render_passages(row[way]) for way in WAYS)] for row in self.rows]
        return join((note, table("Passages.", ["Question", "By meaning", "By words"], cells, words=3)))


def _has_right(passages: Sequence[tuple[str, bool]]) -> bool:
    return any(is_right for _, is_right in passages)


def _render_passages(passages: Sequence[tuple[str, bool]]) -> Html:
    items = []
    for text, is_right in passages:
        badge = [" ", element("span.badge.kept", "right")] if is_right else []
        items.append(element("li", isolate(text), *badge))
    return element("ol", *items)


@dataclass(frozen=True)
class PlantedErrors(Section):
    """The first suspects among labels of which some were changed. rows: (text, label, suggestion, whether changed)."""

    rows: Sequence[tuple[str, str, str, bool]]
    summary: str
    heading = "Wrong labels, found without training"

    def body(self) -> Html:
        cells = [[text, label, suggested, "yes" if changed else ""] for text, label, suggested, changed in self.rows]
        return table(self.summary, ["Text", "Label", "Suggested", "Changed on purpose"], cells, words=4)


@dataclass(frozen=True)
class Remarks(Section):
    """Lines as a list, or as code."""

    heading: str
    lines: Sequence[str]
    is_code: bool = False

    def body(self) -> Html:
        if self.is_code:
            return element("pre", element("code", "\n".join(self.lines)))
        return element("ul", *(element("li", line) for line in self.lines))


@dataclass(frozen=True)
class DemoComparison(Section):
    """The score of a fine-tuned model beside simple models. rows: (name of the model, score, interval or None)."""

    rows: Sequence[tuple[str, float, tuple[float, float] | None]]
    heading = "Learned from labels"

    def body(self) -> Html:
        cells = [
            [name, format_number(score, "share"), _bar(score), _interval(interval)]
            for name, score, interval in self.rows
        ]
        head = ["Model", "Right", "", "95 % interval"]
        return table("Right on messages that no model was trained on.", head, cells)


def _bar(score: float) -> Html:
    return element("span.gauge", Html("&nbsp;"), attributes={"style": f"--share: {score:.3f}"})


def _interval(interval: tuple[float, float] | None) -> str:
    if interval is None:
        return ""
    low, high = interval
    return f"{low:.1%} to {high:.1%}"


@dataclass(frozen=True)
class WordSenses:
    """A word in sentences.

    word: the word.
    sentences: N sentences with the word.
    senses: its sense in each sentence.
    vectors_NH: the vector of its token in each sentence, of length 1.
    """

    word: str
    sentences: Sequence[str]
    senses: Sequence[str]
    vectors_NH: np.ndarray

    @property
    def mean_cosines(self) -> tuple[float, float]:
        """Mean cosine of two different sentences with the same sense, and with different senses."""
        cosines_NN = self.vectors_NH @ self.vectors_NH.T
        same_NN = np.array(self.senses)[:, None] == np.array(self.senses)
        others_NN = ~np.eye(len(self.senses), dtype=bool)
        return float(cosines_NN[same_NN & others_NN].mean()), float(cosines_NN[~same_NN].mean())

    def positions(self) -> np.ndarray:
        """The first two principal components, [N, 2]."""
        centred_NH = self.vectors_NH - self.vectors_NH.mean(0)
        left_NN, values_N, _ = np.linalg.svd(centred_NH, full_matrices=False)
        positions_N2: np.ndarray = left_NN[:, :2] * values_N[:2]
        return positions_N2


@dataclass(frozen=True)
class SenseMap(Section):
    """Maps of some words; pointing at a dot shows its sentence."""

    words: Sequence[WordSenses]
    heading = "One word, several senses"

    def body(self) -> Html:
        note = element(
            "p",
            "Each dot is the same word in another sentence: its vector in the last layer, in the two directions that "
            "differ most. A cosine of 1 means the same vector. A model with one vector for each word has 1 everywhere.",
        )
        return join((note, element("div.pictures", *map(_draw, self.words))))


def _draw(word: WordSenses) -> Html:
    positions_N2 = word.positions()
    x = build_axis("first component", positions_N2[:, 0].tolist(), (46, WIDTH - 110))
    y = build_axis("second component", positions_N2[:, 1].tolist(), (HEIGHT - 40, 24))

    names = list(dict.fromkeys(word.senses))
    shapes = []
    for (left, top), sense, sentence in zip(positions_N2.tolist(), word.senses, word.sentences, strict=True):
        style = f"series{names.index(sense)}"
        shapes.append(dot((x.at(left), y.at(top)), style, radius=5, tooltip=f"{sense}: {sentence}"))

    # Each sense is named once, beside the picture: names beside dots that are close read "direction direction".
    for index, sense in enumerate(names):
        style = f"series{index}"
        top = 30 + 20 * index
        shapes.append(dot((WIDTH - 98, top), style, radius=5))
        shapes.append(label((WIDTH - 88, top + 4), sense, style))

    same, different = word.mean_cosines
    caption = f"{word.word}: mean cosine {same:.2f} within a sense, {different:.2f} across senses"
    description = f"{len(word.senses)} sentences with the word {word.word}, by sense: {', '.join(names)}."
    return figure(plot(f"Senses of {word.word}", description, x, y, *shapes, size=(WIDTH, HEIGHT)), caption)
