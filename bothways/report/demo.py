"""Sections of the demo's page: gaps, following sentences, search, and scores beside simple models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bothways.report.markup import Html, element, format_number, isolate, join, table


@dataclass(frozen=True)
class Gaps:
    """Gaps with the first guesses. rows: (text, guesses, note)."""

    rows: Sequence[tuple[str, str, str]]
    summary: str
    heading: ClassVar[str] = "Masked words"
    wide: ClassVar[bool] = True

    def body(self) -> Html:
        return join((element("p", self.summary), table("First guesses.", ["Text", "Guesses", ""], self.rows, words=3)))


@dataclass(frozen=True)
class NextSentences:
    """Which of two sentences follows. rows: (first, the one that follows, its probability, another, its
    probability)."""

    rows: Sequence[tuple[str, str, float, str, float]]
    heading: ClassVar[str] = "Which sentence follows?"
    wide: ClassVar[bool] = True

    def body(self) -> Html:
        cells = [[first, f"{right} ({p:.0%})", f"{wrong} ({q:.0%})"] for first, right, p, wrong, q in self.rows]
        caption = "Probability that each follows the first sentence."
        return table(caption, ["First", "Written to follow", "Written about something else"], cells, words=3)


@dataclass(frozen=True)
class SearchHits:
    """Questions with the best passage by vectors and by shared words. rows: dicts with question, by_vectors, by_words,
    right and words_right."""

    rows: Sequence[Mapping[str, Any]]
    heading: ClassVar[str] = "Search by meaning"
    wide: ClassVar[bool] = True

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
class DemoComparison:
    """Scores of fine-tuned models beside simple models. rows: (task, name of the model, score, interval or None)."""

    rows: Sequence[tuple[str, str, float, tuple[float, float] | None]]
    heading: ClassVar[str] = "Beside simple models"
    wide: ClassVar[bool] = True

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
