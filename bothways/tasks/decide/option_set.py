"""The options that a model decides among by itself: learned from rows, or named when it was asked for.

Letters: N texts, C options, K statements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bothways.base.errors import InputError
from bothways.model.checkpoint.description import DECIDE
from bothways.tasks.arrays import Floats
from bothways.tasks.decide.questions import AskedQuestion, OneOf, Options, read_options

if TYPE_CHECKING:
    from bothways.model.checkpoint.description import Description

UNKNOWN = -1  # place of an option that a model does not know
NONE_SHARE = 0.05  # of texts like the training texts that are refused where the probability of one option is 1


@dataclass(frozen=True)
class OptionSet:
    """The options of a model.

    options: what each is called, and its descriptions.
    text: the question that is read before each description.
    none: whether no option may fit, unless one asks otherwise.
    pair_scale: weight of the scores of the statements in the scores of the options; 0: they are not read.
    has_head: whether a linear head was fitted for these options, whose scores are the other part.
    """

    options: Mapping[str, tuple[str, ...]]
    text: str = ""
    none: bool = True
    pair_scale: float = 1.0
    has_head: bool = False

    @staticmethod
    def of(options: Options, text: str = "", *, none: bool = True) -> OptionSet:
        """The options of a question that is asked without training. InputError as `OneOf.of`."""
        return OptionSet(read_options(options), text.strip(), none)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.options,)

    @property
    def question(self) -> OneOf:
        return OneOf(self.options, self.text, self.none)

    @property
    def statements(self) -> tuple[str, ...]:
        return self.question.statements

    def option_scores(self, scores_NK: Floats) -> Floats:
        """The score of each option from those of its descriptions: the logarithm of the sum of exp(s), float32
        [N, C]."""
        sizes = [len(descriptions) for descriptions in self.options.values()]
        starts = np.cumsum([0, *sizes[:-1]])
        scores = scores_NK.astype(np.float64)
        scores_NC: Floats = np.logaddexp.reduceat(scores, starts, axis=1).astype(np.float32)
        return scores_NC

    def places(self, question: AskedQuestion) -> list[int]:
        """The place here of the option that each statement of a question is of; UNKNOWN for an option that has no
        head here, or other descriptions, or is asked for in another question."""
        if not isinstance(question, OneOf) or question.text != self.text or not self.has_head:
            return [UNKNOWN] * len(question.statements)
        number_of = {name: number for number, name in enumerate(self.options)}
        places = []
        for name, descriptions in question.options.items():
            is_known = name in self.options and descriptions in (self.options[name], (name,))
            places += [number_of[name] if is_known else UNKNOWN] * len(descriptions)
        return places

    # --- files --------------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        return {
            "options": {name: [*descriptions] for name, descriptions in self.options.items()},
            "question": self.text,
            "none": self.none,
            "pair_scale": self.pair_scale,
            "has_head": self.has_head,
        }

    def scaled(self, factor: float) -> OptionSet:
        """The same with other weights of the statements, as those of the head are scaled."""
        return replace(self, pair_scale=self.pair_scale * factor)


def stored_options(model: Description) -> OptionSet | None:
    """The options of a model; None for one that has none. InputError for an entry of bothways.json that is broken."""
    stored = model.metadata.get(DECIDE)
    if stored is None:
        return None
    try:
        return OptionSet(
            options=read_options(stored["options"]),
            text=stored["question"],
            none=stored["none"],
            pair_scale=float(stored["pair_scale"]),
            has_head=stored["has_head"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"bothways.json: decide is broken ({error!r:.80}); fine-tune again") from None


def learned_scores(scores_C: Floats, none: float, places: list[int]) -> NDArray[np.float64]:
    """Log-odds of options that a model has learned, against none of those that one asks for, [K].

    The probabilities of all options and of none are known. What is not asked for belongs to none of these.

    scores_C: of all options that were learned.
    none: the probability that the text is not like the training texts.
    places: of the options that are asked for, one for each statement; UNKNOWN gives NaN.
    """
    scores = scores_C.astype(np.float64)
    powers_C = np.exp(scores - scores.max())
    shares_C = (1 - none) * powers_C / powers_C.sum()

    asked = sorted({place for place in places if place != UNKNOWN})
    is_asked_C = np.isin(np.arange(len(shares_C)), asked)
    rest = none + float(shares_C[~is_asked_C].sum())
    tiny = np.finfo(np.float64).tiny
    odds_C = np.log(np.maximum(shares_C, tiny)) - np.log(max(rest, tiny))
    counts = {place: places.count(place) for place in asked}
    return np.array([np.nan if place == UNKNOWN else odds_C[place] - np.log(counts[place]) for place in places])
