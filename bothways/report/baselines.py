"""A fine-tuned model beside simple ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from bothways.metrics import Interval
from bothways.report.chart import axis, dot, label, line, shown
from bothways.report.markup import Html, Unit, element, written

WIDTH, ROW, TOP = 340, 34, 14


@dataclass(frozen=True)
class ModelScore:
    """The metric of one model; interval: where other rows would put it, with 95 % probability."""

    name: str
    value: float
    interval: Interval | None


@dataclass(frozen=True)
class BaselineComparison:
    """The fine-tuned model first, then the simple models of the same rows."""

    metric: str
    models: Sequence[ModelScore]
    verdict: str
    unit: Unit = "share"
    heading: ClassVar[str] = "Simple models on the same rows"
    wide: ClassVar[bool] = False

    def body(self) -> Html:
        return shown(self._picture(), f"{self.verdict[0].upper()}{self.verdict[1:]}. Lines: 95 % intervals.")

    def _picture(self) -> Html:
        ends = [bound for one in self.models for bound in (one.value, *(one.interval or ()))]
        scale = axis(self.metric, ends, (12.0, WIDTH - 12.0), self.unit)
        bottom = TOP + ROW * len(self.models)
        parts = [line((scale.at(tick), TOP), (scale.at(tick), bottom), "grid") for tick in scale.ticks()]
        parts.append(line((scale.start, bottom), (scale.end, bottom), "axis"))
        parts += [label((scale.at(tick), bottom + 15), scale.written(tick), "middle") for tick in scale.ticks()]
        parts.append(label(((scale.start + scale.end) / 2, bottom + 31), self.metric, "middle.name"))
        for number, one in enumerate(self.models):
            style, height = f"series{min(number, 1)}", TOP + ROW * number + 22.0
            parts.append(label((scale.start, height - 10), one.name, style))
            parts.append(label((scale.end, height - 10), written(one.value, self.unit), f"end.{style}"))
            if one.interval:
                low, high = map(scale.at, one.interval)
                parts.append(line((low, height), (high, height), f"interval.{style}"))
            parts.append(dot((scale.at(one.value), height), style, radius=4.5, told=f"{one.name}: {one.value:.4g}"))
        told = "; ".join(f"{one.name} {written(one.value, self.unit)}" for one in self.models)
        words = (element("title", self.heading), element("desc", f"{self.metric}: {told}"))
        return element("svg", *words, *parts, attributes={"viewBox": f"0 0 {WIDTH} {bottom + 40}", "role": "img"})
