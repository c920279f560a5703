"""POST /decide: one choice, or several questions by name, about a text or a list of texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from bothways.base.errors import InputError
from bothways.serving.bodies import OneOrMany, ReadingBody, Refusal, wrong
from bothways.serving.decisions.asked import Asked, at_place, read_question
from bothways.tasks.decide.decoding import Decision
from bothways.tasks.decide.option_set import OptionSet
from bothways.tasks.decide.questions import MOST_OPTIONS, Levels, OneOf, YesNo

MOST_QUESTIONS = 400  # of a request
OPTIONS = "a list of names, or a JSON object of names with a description or a list of descriptions"
QUESTIONS = "a JSON object of questions by name, each of the type choice, yes_no or levels"
NamedOptions = Annotated[list[str] | dict[str, str | list[str]] | None, Meta(description=OPTIONS)]


class OptionsAsked(Struct, kw_only=True, tag_field="type", tag="choice"):
    """Which option fits."""

    options: Annotated[list[str] | dict[str, str | list[str]], Meta(description=OPTIONS)]
    question: str = ""
    none: bool = True

    def read(self) -> OneOf:
        return OneOf.of(self.options, self.question, none=self.none)


class YesNoAsked(Struct, kw_only=True, tag_field="type", tag="yes_no"):
    """Whether a statement, or the answer to a question, is true."""

    question: str

    def read(self) -> YesNo:
        if not self.question.strip():
            raise InputError("`question` is empty; give a statement or a question")
        return YesNo(self.question)


class LevelsAsked(Struct, kw_only=True, tag_field="type", tag="levels"):
    """How much, on a scale whose lowest level comes first."""

    levels: Annotated[list[str], Meta(min_length=1, max_length=MOST_OPTIONS, description="a list of strings")]
    question: str = ""

    def read(self) -> Levels:
        if not all(level.strip() for level in self.levels):
            raise InputError("a level is empty; name each level")
        if len({*self.levels}) < len(self.levels):
            raise InputError("a level is given twice; give each level once")
        return Levels(tuple(self.levels), self.question)


KINDS: Mapping[str, type[Struct]] = {
    "choice": OptionsAsked,
    "yes_no": YesNoAsked,
    "levels": LevelsAsked,
}


class DecideBody(ReadingBody, kw_only=True):
    """Which option fits each text, or the answers to several questions about it."""

    inputs: OneOrMany
    options: NamedOptions = None
    question: str = ""
    none: bool = True
    questions: Annotated[
        dict[str, OptionsAsked | YesNoAsked | LevelsAsked] | None,
        Meta(description=QUESTIONS),
    ] = None

    @classmethod
    def prepare(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """With structs of the questions, so that a mistake is named with its question."""
        questions = given.get("questions")
        if not isinstance(questions, dict):
            return given

        if not 1 <= len(questions) <= MOST_QUESTIONS:
            raise Refusal(422, f"`questions` has {len(questions):,} questions; ask 1 to {MOST_QUESTIONS}")
        read = {name: read_question(KINDS, one, ("questions", name)) for name, one in questions.items()}
        return {**given, "questions": read}

    def read_texts(self) -> list[str]:
        return [self.inputs] if isinstance(self.inputs, str) else self.inputs

    def asked(self, own: OptionSet | None) -> list[Asked]:
        if self.questions is None:
            if self.options is None and own is not None:
                return [Asked(own.question, Decision.to_json)]
            if self.options is None:
                raise wrong("options", None, f"{OPTIONS}; or ask several `questions`")
            return [Asked(OneOf.of(self.options, self.question, none=self.none), Decision.to_json)]

        if self.options is not None or self.question or not self.none:
            raise Refusal(422, "each of `questions` has options of its own; leave out `options`, `question` and `none`")
        return [
            Asked(at_place(one.read, ("questions", name)), Decision.to_json) for name, one in self.questions.items()
        ]

    def reply(self, answers: list[list[Any]], model: str, num_tokens: int) -> Any:
        """A decision per text; with `questions`, for each text the decisions by the names of the questions."""
        rows = [
            decisions[0] if self.questions is None else dict(zip(self.questions, decisions, strict=True))
            for decisions in answers
        ]
        return rows[0] if isinstance(self.inputs, str) else rows
