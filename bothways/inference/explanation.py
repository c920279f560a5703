"""Explanation: the effect of each word of a text on a prediction, and the text without one of its words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bothways.text.data.annotations import split_words

SHOWN = 10  # words of an explanation on a terminal


@dataclass(frozen=True, slots=True)
class WordEffect:
    """Characters [start, end) of a text, and how much they support a prediction.

    effect: the score of the prediction minus its score without the word. Positive: the word supports the prediction.
    text: 0, or 1 for a word of the second text of a pair.
    """

    word: str
    start: int
    end: int
    effect: float
    text: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "word": self.word,
            "start": self.start,
            "end": self.end,
            "effect": self.effect,
            "text": self.text,
        }


@dataclass(frozen=True)
class Explanation:
    """The effect of each word on a prediction.

    label: the label that is explained, the label of an entity, or the text of an answer; None for a number, for the
    similarity of two texts, and for the entities of a text together.
    score: of the whole text: a probability, the number, a cosine, or the mean score of the entities.
    words: in the order of the text; of a pair first the words of its first text.
    span: characters [start, end) of the entity, or of the answer in its passage; None for other predictions.
    entities: of a tagger, the explanation of each entity of the text.
    """

    label: str | None
    score: float
    words: tuple[WordEffect, ...]
    span: tuple[int, int] | None = None
    entities: tuple[Explanation, ...] = ()

    def top(self, n: int) -> list[WordEffect]:
        """The n words that support the prediction most, the strongest first."""
        return sorted(self.words, key=lambda word: -word.effect)[:n]

    @property
    def by_size(self) -> list[WordEffect]:
        """All words, those of the largest effects first, whatever their sign."""
        return sorted(self.words, key=lambda word: -abs(word.effect))

    def to_json(self) -> dict[str, Any]:
        """All words, those of the largest effects first."""
        content: dict[str, Any] = {"label": self.label, "score": self.score}
        if self.span is not None:
            content["start"], content["end"] = self.span
        content["words"] = [word.to_json() for word in self.by_size]
        if self.entities:
            content["entities"] = [entity.to_json() for entity in self.entities]
        return content

    def lines(self) -> Iterator[str]:
        """The prediction, and the SHOWN words of the largest effects."""
        yield f"{self.label or 'score'} {self.score:.4f}"
        for word in self.by_size[:SHOWN]:
            yield f"  {word.effect:+.4f}  {word.word}"
        if len(self.words) > SHOWN:
            yield f"  ... {len(self.words) - SHOWN:,} more"
        for entity in self.entities:
            yield from entity.lines()


# --- texts without a word ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cut:
    """A text without characters [start, end), the word.

    first, last: the characters [first, last) that are left out: the word, and a space beside it.
    gap: what stands in their place: a space, where letters or digits would touch.
    """

    start: int
    end: int
    first: int
    last: int
    gap: str = ""

    @staticmethod
    def of(text: str, start: int, end: int) -> Cut:
        before = text[:start][-1:]
        after = text[end:][:1]
        if before.isspace() and (not after or after.isspace()):
            return Cut(start, end, first=start - 1, last=end)
        if not before and after.isspace():
            return Cut(start, end, first=start, last=end + 1)
        # The words on both sides stay the words that they are.
        gap = " " if before.isalnum() and after.isalnum() else ""
        return Cut(start, end, first=start, last=end, gap=gap)

    def apply(self, text: str) -> str:
        """The text without the word."""
        return text[: self.first] + self.gap + text[self.last :]

    def moved(self, index: int) -> int:
        """Where a character of the text, which is not left out, is in the text without the word."""
        if index <= self.first:
            return index
        return max(self.first, index - (self.last - self.first) + len(self.gap))


def word_cuts(text: str) -> list[Cut]:
    """A cut for each word of a text, as BERT splits it: at white space, punctuation and ideographs. A punctuation mark
    is a word."""
    words = split_words(text)
    return [Cut.of(text, start, start + len(word)) for word, start in zip(words, words.starts, strict=True)]


def leave_out(text: str, words: Iterable[WordEffect]) -> str:
    """A text without several of its words."""
    for word in sorted(words, key=lambda word: -word.start):
        text = Cut.of(text, word.start, word.end).apply(text)
    return text
