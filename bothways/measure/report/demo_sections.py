"""Sections of the demo's page: gaps, following sentences, search, scores beside simple models, and a map of senses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bothways.measure.report.chart import build_axis, dot, figure, label, plot
from bothways.measure.report.markup import Html, Section, element, format_number, isolate, join, table

WIDTH, HEIGHT = 520, 320


@dataclass(frozen=True)
class Gaps(Section):
    """Gaps with the first guesses. rows: (text, guesses, note)."""

    rows: Sequence[tuple[str, str, str]]
    summary: str
    heading = "Masked words"

    def body(self) -> Html:
        return join((element("p", self.summary), table("First guesses.", ["Text", "Guesses", ""], self.rows, words=3)))


@dataclass(frozen=True)
class NextSentences(Section):
    """Which of two sentences follows. rows: (first, the one that follows, its probability, another, its
    probability)."""

    rows: Sequence[tuple[str, str, float, str, float]]
    heading = "Which sentence follows?"

    def body(self) -> Html:
        cells = [[first, f"{right} ({p:.0%})", f"{wrong} ({q:.0%})"] for first, right, p, wrong, q in self.rows]
        caption = "Probability that each follows the first sentence."
        return table(caption, ["First", "Written to follow", "Written about something else"], cells, words=3)


@dataclass(frozen=True)
class SearchHits(Section):
    """Questions with the best passage by vectors and by shared words. rows: dicts with question, by_vectors, by_words,
    right and words_right."""

    rows: Sequence[Mapping[str, Any]]
    heading = "Search by meaning"

    def body(self) -> Html:
        right, by_words = (sum(row[key] for row in self.rows) for key in ("right", "words_right"))
        note = element(
            "p",
            f"No question shares a word with the passage that answers it. By vectors {right} of {len(self.rows)} are "
            f"first, by words (TF-IDF) {by_words}.",
        )
        cells = [
            [row["question"], _marked(row["by_vectors"], row["right"]), _marked(row["by_words"], row["words_right"])]
            for row in self.rows
        ]
        return join((note, table("The first passage.", ["Question", "By vectors", "By words"], cells, words=3)))


def _marked(text: str, right: bool) -> Html:
    name = "kept" if right else "failed"
    return join((isolate(text), " ", element(f"span.badge.{name}", "right" if right else "wrong")))


@dataclass(frozen=True)
class DemoComparison(Section):
    """Scores of fine-tuned models beside simple models. rows: (task, name of the model, score, interval or None)."""

    rows: Sequence[tuple[str, str, float, tuple[float, float] | None]]
    heading = "Beside simple models"

    def body(self) -> Html:
        cells = [
            [task, name, format_number(score, "share"), _bar(score), _interval(interval)]
            for task, name, score, interval in self.rows
        ]
        head = ["Task", "Model", "Accuracy", "", "95 % interval"]
        return table("Accuracy on texts that no model was trained on.", head, cells, words=2)


def _bar(score: float) -> Html:
    return element("span.gauge", Html("&nbsp;"), attributes={"style": f"--share: {score:.3f}"})


def _interval(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{interval[0]:.1%} to {interval[1]:.1%}"


@dataclass(frozen=True)
class WordSenses:
    """A word in sentences: vectors [N, H] of its token, of length 1, and the sense in each sentence."""

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
    """Maps of some words, with the sentences below."""

    words: Sequence[WordSenses]
    heading = "One word, several senses"

    def body(self) -> Html:
        note = element(
            "p",
            "Each dot is the same word in another sentence: its vector in the last layer, in the two directions that "
            "differ most. A cosine of 1 means the same vector. A model with one vector for each word has 1 everywhere.",
        )
        return join((note, element("div.pictures", *map(_draw, self.words)), _table(self.words)))


def _draw(word: WordSenses) -> Html:
    positions_N2 = word.positions()
    x = build_axis("first component", positions_N2[:, 0].tolist(), (46, WIDTH - 110))
    y = build_axis("second component", positions_N2[:, 1].tolist(), (HEIGHT - 40, 24))
    names = list(dict.fromkeys(word.senses))
    shapes = []
    for (left, top), sense, sentence in zip(positions_N2.tolist(), word.senses, word.sentences, strict=True):
        style = f"series{names.index(sense)}"
        place = x.at(left), y.at(top)
        shapes += [dot(place, style, radius=5, tooltip=sentence), label((place[0] + 8, place[1] + 4), sense, style)]
    same, different = word.mean_cosines
    caption = f"{word.word}: mean cosine {same:.2f} within a sense, {different:.2f} across senses"
    description = f"{len(word.senses)} sentences with the word {word.word}, by sense: {', '.join(names)}."
    return figure(plot(f"Senses of {word.word}", description, x, y, *shapes, size=(WIDTH, HEIGHT)), caption)


def _table(words: Sequence[WordSenses]) -> Html:
    rows = [
        [word.word, sense, sentence]
        for word in words
        for sense, sentence in zip(word.senses, word.sentences, strict=True)
    ]
    return table("The sentences.", ["Word", "Sense", "Sentence"], rows, words=3)
