"""POST /v1/systemone: typed questions about a state, as transformers' server reads and answers them.

The probabilities come from the scores of statements, not from a chat template: an option is read as its description,
or as its name if it has none, behind the instructions. A choice always picks an option.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct

from bothways.base.errors import InputError
from bothways.serving.bodies import ModelBody, Refusal
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
from bothways.tasks.decide.questions import NO, YES, YesNo

MOST_QUESTIONS = 64
MOST_ASSETS = 4
CONTENT = "a string, a JSON object or a list"
TRUE, FALSE = "true", "false"
Json = str | dict[str, Any] | list[Any]
Content = Annotated[Json | None, Meta(description=CONTENT)]


class Noul(Struct, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="noul"):
    """Whether something is true: the instructions, or which of two descriptions fits."""

    instructions: Content = None
    criteria: Annotated[dict[str, Json | None] | None, Meta(description="a JSON object of true and false")] = None

    def asked(self) -> Asked:
        """The choice between the two descriptions if there are two, else the question itself, or the one description
        if there is no question. InputError if nothing is asked."""
        criteria = self.criteria or {}
        if not {*criteria} <= {TRUE, FALSE}:
            raise InputError("the criteria of a noul are true and false; it has others")

        text = _text(self.instructions)
        is_true, is_false = _text(criteria.get(TRUE)), _text(criteria.get(FALSE))
        if is_true and is_false:
            one_of = NumberedOptions.of(text, [(TRUE, is_true), (FALSE, is_false)])
            return Asked(one_of.question, partial(_noul, key=one_of.keys[0]))

        if not (text or is_true or is_false):
            raise InputError("a noul needs instructions or criteria; give a question or a statement")
        if text or is_true:
            return Asked(YesNo(text or is_true), partial(_noul, key=YES))
        return Asked(YesNo(is_false), partial(_noul, key=NO))


class ChoiceOfCriteria(Struct, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="choice"):
    """Which of the criteria fits."""

    criteria: Annotated[dict[str, Json | None], Meta(description="a JSON object of options and their descriptions")]
    instructions: Content = None

    def asked(self) -> Asked:
        if not self.criteria:
            raise InputError("a choice needs `criteria` with its options")
        options = [(name, _text(description)) for name, description in self.criteria.items()]
        one_of = NumberedOptions.of(_text(self.instructions), options)
        return Asked(one_of.question, partial(_choice, one_of=one_of, names=[*self.criteria]))


class ScoreOfCriteria(Struct, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="score"):
    """Which level of a scale fits, the lowest first."""

    criteria: Annotated[list[Json], Meta(description="a list of levels")]
    instructions: Content = None

    def asked(self) -> Asked:
        if not self.criteria:
            raise InputError("a score needs `criteria` with its levels")
        one_of = NumberedOptions.of(_text(self.instructions), [(_text(level), "") for level in self.criteria])
        return Asked(one_of.question, partial(_score, one_of=one_of, levels=self.criteria))


def _text(content: Json | None) -> str:
    return "" if content is None else as_text(content).strip()


def _noul(decision: Decision, key: str) -> dict[str, Any]:
    return {"type": "noul", "noul": decision.probabilities[key]}


def _choice(decision: Decision, one_of: NumberedOptions, names: Sequence[str]) -> dict[str, Any]:
    probabilities = one_of.probabilities(decision)
    by_name = dict(zip(names, probabilities, strict=True))
    return {
        "type": "choice",
        # Of equal probabilities the name decides, so that the order of the options does not.
        "choice": max(by_name, key=lambda name: (by_name[name], name)),
        "confidence": confidence_in_choice(probabilities),
        "probabilities": by_name,
    }


def _score(decision: Decision, one_of: NumberedOptions, levels: Sequence[Json]) -> dict[str, Any]:
    probabilities = one_of.probabilities(decision)
    return {
        "type": "score",
        "score": mean_level(probabilities),
        "legend": {str(number): level for number, level in enumerate(levels)},
        "confidence": confidence_in_level(probabilities),
        "probabilities": {str(number): share for number, share in enumerate(probabilities)},
    }


# --- the body ---------------------------------------------------------------------------------------------------------

KINDS: Mapping[str, type[Struct]] = {
    "noul": Noul,
    "choice": ChoiceOfCriteria,
    "score": ScoreOfCriteria,
}


class SystemOneBody(ModelBody, kw_only=True, forbid_unknown_fields=True):
    """Transformers' System One: typed questions about a state."""

    truncate: ClassVar[bool] = False
    is_read_first: ClassVar[bool] = True  # as transformers does

    model: Annotated[str, Meta(description="Name of the model.")]
    state: Annotated[Json, Meta(description=CONTENT)]
    questions: Annotated[
        dict[str, Noul | ChoiceOfCriteria | ScoreOfCriteria],
        Meta(description="a JSON object of 1 to 64 questions by name, each of the type noul, choice or score"),
    ]
    assets: Annotated[
        dict[str, dict[str, Any]],
        Meta(description="a JSON object of images, which are refused"),
    ] = msgspec.field(default_factory=dict)

    @classmethod
    def prepare(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """With structs of the questions. Refusal for null, which is not like an absent field here, and for too many
        questions or assets."""
        for name, value in given.items():
            if value is None:
                raise Refusal(422, f"`{name[:30]}` is null; give a value or leave it out", place=(name,))

        assets = given.get("assets")
        if isinstance(assets, dict) and len(assets) > MOST_ASSETS:
            raise Refusal(422, f"`assets` has {len(assets):,} images, more than {MOST_ASSETS}", place=("assets",))

        questions = given.get("questions")
        if not isinstance(questions, dict):
            return given
        if not 1 <= len(questions) <= MOST_QUESTIONS:
            message = f"`questions` has {len(questions):,} questions; ask 1 to {MOST_QUESTIONS}"
            raise Refusal(422, message, place=("questions",))
        read = {name: read_question(KINDS, one, ("questions", name)) for name, one in questions.items()}
        return {**given, "questions": read}

    def read_texts(self) -> list[str]:
        """The state; an object or a list as compact JSON."""
        if self.assets:
            raise Refusal(400, "`assets` has images, which are not read here; send the text alone", "Validation")
        return [as_text(self.state)]

    def asked(self, own: OptionSet | None) -> list[Asked]:
        return [at_place(one.asked, ("questions", name)) for name, one in self.questions.items()]

    def reply(self, answers: list[list[Any]], model: str, num_tokens: int) -> Any:
        return {
            "model": self.model,
            "answers": dict(zip(self.questions, answers[0], strict=True)),
            "usage": {
                "input_tokens": num_tokens,
                "output_tokens": 0,
            },
        }
