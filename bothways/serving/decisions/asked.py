"""Questions of a request, whatever its wire: what is asked about the texts, and the JSON of each answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from msgspec import Struct

from bothways.base.errors import InputError
from bothways.serving.bodies import Place, Refusal, as_struct, place_name, wrong
from bothways.tasks.decide.decoding import Decision
from bothways.tasks.decide.option_set import OptionSet
from bothways.tasks.decide.questions import NO, YES, AskedQuestion, OneOf, YesNo

# Options that are the answers to the question itself.
ANSWERS = {
    "yes": YES,
    "no": NO,
    "true": YES,
    "false": NO,
}
YES_AND_NO = ({"yes", "no"}, {"true", "false"})


@dataclass(frozen=True)
class Asked:
    """A question of a request.

    question: about each text.
    answer: the JSON of a decision.
    """

    question: AskedQuestion
    answer: Callable[[Decision], Any]


class Asking(Protocol):
    """A body that asks questions about texts."""

    def read_texts(self) -> list[str]:
        """The texts. Refusal for anything that is not read as text."""

    def asked(self, own: OptionSet | None) -> list[Asked]:
        """The questions, which are asked about each text. Refusal if one of them cannot be asked.

        own: the options of the model, if it has some.
        """

    def reply(self, answers: list[list[Any]], model: str, num_tokens: int) -> Any:
        """The JSON of the answer.

        answers: for each text, the answer to each question.
        model: its name.
        num_tokens: that were read.
        """


# --- one of several options -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NumberedOptions:
    """One of several options, which are told apart by their numbers, since two may have one name or description.

    question: about each text.
    keys: of the options, in their order, in the probabilities of a decision.
    """

    question: AskedQuestion
    keys: tuple[str, ...]

    @staticmethod
    def of(text: str, options: Sequence[tuple[str, str]]) -> NumberedOptions:
        """The choice among options, of which one is always chosen.

        text: the question, which is read before each option; "": none.
        options: name and description; "": it has none and its name is read.

        Yes and no are the answers to the question itself: its score decides, as it does if the question is asked
        without options. So an answer does not depend on the type of the question.
        """
        read = {str(number): description.strip() or name for number, (name, description) in enumerate(options)}
        if not all(shown.strip() for shown in read.values()):
            raise InputError("an option has neither a name nor a description; give it one of them")

        answers = [shown.strip().casefold() for shown in read.values()]
        if text.strip() and len(answers) == 2 and {*answers} in YES_AND_NO:
            return NumberedOptions(YesNo(text), tuple(ANSWERS[answer] for answer in answers))
        return NumberedOptions(OneOf.of(read, text, none=False), tuple(read))

    def probabilities(self, decision: Decision) -> list[float]:
        """The probability of each option, in their order."""
        return [decision.probabilities[key] for key in self.keys]


def confidence_in_choice(probabilities: Sequence[float]) -> float:
    """How far the best option is above chance: 0 if all are equal, 1 if it is certain."""
    chance = 1 / len(probabilities)
    if len(probabilities) == 1:
        return 1.0
    return max(0.0, (max(probabilities) - chance) / (1 - chance))


def confidence_in_level(probabilities: Sequence[float]) -> float:
    """How near the levels are to the best one: 1 less their expected distance from it, as a share of the distance that
    equal probabilities have from the middle; at least 0."""
    num_levels = len(probabilities)
    if num_levels == 1:
        return 1.0

    best = max(range(num_levels), key=probabilities.__getitem__)
    distance = sum(share * abs(level - best) for level, share in enumerate(probabilities))
    middle = (num_levels - 1) / 2
    chance = sum(abs(level - middle) for level in range(num_levels)) / num_levels
    return max(0.0, 1 - distance / chance)


def mean_level(probabilities: Sequence[float]) -> float:
    """The mean of the levels, of which the lowest is 0."""
    return sum(level * share for level, share in enumerate(probabilities))


# --- reading ----------------------------------------------------------------------------------------------------------


def read_question(kinds: Mapping[str, type[Struct]], given: Any, place: Place, *, status: int = 422) -> Any:
    """The struct of a question.

    kinds: the struct of each type.
    given: its JSON.
    place: in the body.
    status: of the refusal of an unknown type.
    """
    name = place_name(place)
    if not isinstance(given, dict):
        raise wrong(name, given, "a JSON object", place)

    kind = given.get("type")
    if not isinstance(kind, str) or kind not in kinds:
        refusal = wrong(f"{name}.type", kind, f"one of {', '.join(kinds)}", (*place, "type"))
        raise Refusal(status, str(refusal), "Validation", place=refusal.place, mistake=refusal.mistake)
    return as_struct(kinds[kind], given, place)


def at_place(make: Callable[[], Any], place: Place) -> Any:
    """What `make` makes of a part of a body. Refusal that names the part if it cannot be made."""
    try:
        return make()
    except Refusal:
        raise
    except InputError as error:
        raise Refusal(422, f"`{place_name(place)}`: {error}", place=place) from None


def as_text(content: Any) -> str:
    """A text as it is; any other JSON as compact JSON. Refusal if it is nested too deeply to be written."""
    if isinstance(content, str):
        return content
    try:
        return orjson.dumps(content).decode()
    except orjson.JSONEncodeError:
        raise Refusal(422, "a JSON value is nested too deeply to be read; send it as a text") from None
