"""POST /v1/decisions: questions about an input, as OpenAI's beta has them and `client.decisions.create` sends them.

An option or level is read as its description, or as its value if it has none, behind the instructions. The levels of a
score count from 0, and confidences are those of System One; OpenAI says neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from bothways.base.errors import InputError
from bothways.serving.bodies import ModelBody, Place, Refusal, place_name, wrong
from bothways.serving.decisions.asked import (
    Asked,
    NumberedOptions,
    as_text,
    at_place,
    confidence_in_choice,
    confidence_in_level,
    mean_level,
    read_question,
)
from bothways.tasks.decide.decoding import Decision
from bothways.tasks.decide.option_set import OptionSet
from bothways.tasks.decide.questions import MOST_OPTIONS, YES, YesNo

MOST_QUESTIONS = 400
PARTS = "a string or a list of parts"
TEXT_PARTS = ("input_text", "output_text")
Parts = Annotated[str | list[dict[str, Any]], Meta(description=PARTS)]


class Predicate(Struct, kw_only=True, tag_field="type", tag="predicate"):
    """Whether a statement is true."""

    instructions: Parts
    name: str | None = None

    def asked(self, place: Place) -> Asked:
        text = _instructions(self.instructions, place)
        return Asked(YesNo(text), partial(_predicate, name=self.name))


class ChoiceValue(Struct, kw_only=True):
    """An option of a choice. A string and a boolean are distinct: "true" is not true."""

    value: str | bool
    description: str | None = None


class ChoiceOfValues(Struct, kw_only=True, tag_field="type", tag="choice"):
    """Which of the choices fits."""

    instructions: Parts
    choices: Annotated[list[ChoiceValue], Meta(description="a list of 2 to 255 JSON objects with value, description")]
    name: str | None = None

    def asked(self, place: Place) -> Asked:
        if not 2 <= len(self.choices) <= MOST_OPTIONS:
            raise InputError(f"{len(self.choices):,} choices; give 2 to {MOST_OPTIONS}")
        values = [choice.value for choice in self.choices]
        if len({(type(value), value) for value in values}) < len(values):
            raise InputError("a choice is given twice; give each choice once")

        options = [(_name(choice.value), choice.description or "") for choice in self.choices]
        one_of = NumberedOptions.of(_instructions(self.instructions, place), options)
        return Asked(one_of.question, partial(_choice, name=self.name, one_of=one_of, values=values))


class LabelledLevel(Struct, kw_only=True):
    """A level of a scale."""

    label: str
    description: str | None = None


class ScoreOfLevels(Struct, kw_only=True, tag_field="type", tag="score"):
    """Which level of a scale fits, the lowest first."""

    instructions: Parts
    levels: Annotated[list[LabelledLevel], Meta(description="a list of JSON objects with label, description")]
    name: str | None = None

    def asked(self, place: Place) -> Asked:
        if not 1 <= len(self.levels) <= MOST_OPTIONS:
            raise InputError(f"{len(self.levels):,} levels; give 1 to {MOST_OPTIONS}")
        options = [(level.label, level.description or "") for level in self.levels]
        one_of = NumberedOptions.of(_instructions(self.instructions, place), options)
        labels = [level.label for level in self.levels]
        return Asked(one_of.question, partial(_score, name=self.name, one_of=one_of, labels=labels))


def _name(value: str | bool) -> str:
    return value if isinstance(value, str) else str(value).lower()


def _predicate(decision: Decision, name: str | None) -> dict[str, Any]:
    return {
        "type": "predicate",
        "name": name,
        "probability": decision.probabilities[YES],
    }


def _choice(
    decision: Decision, name: str | None, one_of: NumberedOptions, values: Sequence[str | bool]
) -> dict[str, Any]:
    probabilities = one_of.probabilities(decision)
    # Of equal probabilities the value decides, so that the order of the choices does not.
    best = max(range(len(values)), key=lambda number: (probabilities[number], repr(values[number])))
    return {
        "type": "choice",
        "name": name,
        "choice": values[best],
        "confidence": confidence_in_choice(probabilities),
        "probabilities": [
            {"value": value, "probability": share} for value, share in zip(values, probabilities, strict=True)
        ],
    }


def _score(decision: Decision, name: str | None, one_of: NumberedOptions, labels: Sequence[str]) -> dict[str, Any]:
    probabilities = one_of.probabilities(decision)
    return {
        "type": "score",
        "name": name,
        "score": mean_level(probabilities),
        "confidence": confidence_in_level(probabilities),
        "probabilities": [
            {"value": number, "label": label, "probability": share}
            for number, (label, share) in enumerate(zip(labels, probabilities, strict=True))
        ],
    }


# --- texts ------------------------------------------------------------------------------------------------------------


def _instructions(parts: str | list[dict[str, Any]], place: Place) -> str:
    """The text of instructions. InputError if there is none."""
    text = text_of_parts(parts, (*place, "instructions")).strip()
    if not text:
        raise InputError("`instructions` are empty; give a statement or a question")
    return text


def text_of_parts(parts: Any, place: Place) -> str:
    """The text of a string, or of parts of text and JSON, one a line. Refusal for images and anything else."""
    if isinstance(parts, str):
        return parts
    if not isinstance(parts, list):
        raise wrong(place_name(place), parts, PARTS, place)

    texts = []
    for number, part in enumerate(parts):
        part_place = (*place, number)
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in TEXT_PARTS:
            if not isinstance(part.get("text"), str):
                raise wrong(f"{place_name(part_place)}.text", part.get("text"), "a string", part_place)
            texts.append(part["text"])
        elif kind == "input_json" and isinstance(part.get("data"), dict | list):
            texts.append(as_text(part["data"]))
        else:
            raise unread(kind, part_place)
    return "\n".join(texts)


def text_of_messages(messages: list[dict[str, Any]], place: Place) -> str:
    """The contents of messages, one after another. Refusal for calls of tools and their outputs."""
    texts = []
    for number, message in enumerate(messages):
        kind = message.get("type", "message")
        if kind != "message" or "content" not in message:
            raise unread(kind, (*place, number))
        texts.append(text_of_parts(message["content"], (*place, number, "content")))
    return "\n\n".join(texts)


def unread(kind: Any, place: Place) -> Refusal:
    """The refusal of what is not text: images, calls of tools."""
    message = f"`{place_name(place)}` is of the type {kind!r:.40}, which is not read here; send text"
    return Refusal(400, message, "Validation", place=place)


# --- the body ---------------------------------------------------------------------------------------------------------

KINDS: Mapping[str, type[Struct]] = {
    "predicate": Predicate,
    "choice": ChoiceOfValues,
    "score": ScoreOfLevels,
}


class DecisionsBody(ModelBody, kw_only=True):
    """OpenAI's decisions: questions about an input."""

    truncate: ClassVar[bool] = False

    model: Annotated[str, Meta(description="Name of the model.")]
    input: Annotated[str | list[dict[str, Any]], Meta(description="a string or a list of messages")]
    questions: Annotated[
        list[Predicate | ChoiceOfValues | ScoreOfLevels],
        Meta(description="a list of 1 to 400 questions, each of the type predicate, choice or score"),
    ]

    @classmethod
    def prepare(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """With structs of the questions, so that a mistake is named with its question."""
        questions = given.get("questions")
        if not isinstance(questions, list):
            return given
        if not 1 <= len(questions) <= MOST_QUESTIONS:
            raise Refusal(422, f"`questions` has {len(questions):,} questions; ask 1 to {MOST_QUESTIONS}")

        read = [read_question(KINDS, one, ("questions", number), status=400) for number, one in enumerate(questions)]
        return {**given, "questions": read}

    def read_texts(self) -> list[str]:
        if isinstance(self.input, str):
            return [self.input]
        return [text_of_messages(self.input, ("input",))]

    def asked(self, own: OptionSet | None) -> list[Asked]:
        asked = []
        for number, one in enumerate(self.questions):
            place: Place = ("questions", number)
            asked.append(at_place(partial(one.asked, place), place))
        return asked

    def reply(self, answers: list[list[Any]], model: str, num_tokens: int) -> Any:
        return {
            "model": model,
            "answers": answers[0],
            "usage": {
                "input_tokens": num_tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 0,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": num_tokens,
            },
        }
