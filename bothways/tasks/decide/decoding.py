"""Decisions: the option that fits a text, with the probabilities of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

SHOWN = 5  # options in repr(Decision)


@dataclass(frozen=True, repr=False)
class Decision:
    """What fits a text, of the options that were named.

    label: the most probable option, as it was named; None where it is more probable that none fits.
    score: the probability of the label, or that none fits.
    probabilities: of each option, as it was named.
    none: the probability that none of them fits; 0 where one had to be chosen. Together they are 1.
    level: of ordered levels, the mean, where the lowest is 0; None for other questions.
    """

    label: str | None
    score: float
    probabilities: dict[str, float] = field(default_factory=dict)
    none: float = 0.0
    level: float | None = None

    @staticmethod
    def of(probabilities: Mapping[str, float], none: float, level: float | None = None) -> Decision:
        """The decision for the largest probability. Of equal ones, the name decides, so that their order does not."""
        best = max(probabilities, key=lambda name: (probabilities[name], name))
        is_none = none > probabilities[best]
        return Decision(
            label=None if is_none else best,
            score=none if is_none else probabilities[best],
            probabilities=dict(probabilities),
            none=none,
            level=level,
        )

    def __repr__(self) -> str:
        """With the SHOWN highest probabilities, to four digits."""
        best = sorted(self.probabilities.items(), key=lambda item: -item[1])
        entries = [f"{name!r}: {value:.4g}" for name, value in best[:SHOWN]]
        if len(best) > SHOWN:
            entries.append(f"... {len(best) - SHOWN:,} more")
        level = "" if self.level is None else f", level={self.level:.4g}"
        return (
            f"{type(self).__name__}(label={self.label!r}, score={self.score:.4g}, "
            f"probabilities={{{', '.join(entries)}}}, none={self.none:.4g}{level})"
        )

    def lines(self) -> Iterator[str]:
        """The options, the most probable first, and "none of these"."""
        rows = [(value, name) for name, value in self.probabilities.items()]
        if self.none:
            rows.append((self.none, "(none of these)"))
        for value, name in sorted(rows, key=lambda row: -row[0]):
            yield f"{value:6.1%}  {name}"

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "label": self.label,
            "score": self.score,
            "probabilities": self.probabilities,
            "none": self.none,
        }
        if self.level is not None:
            content["level"] = self.level
        return content
