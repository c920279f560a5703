"""Comparison of a fine-tuned model with simple baselines, as a chart with 95 % intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from bothways.metrics import Interval
from bothways.report.chart import build_axis, dot, figure, label, line
from bothways.report.markup import Html, Unit, element, format_number

WIDTH, ROW_HEIGHT, TOP = 340, 34, 14


@dataclass(frozen=True)
class ModelScore:
    """The metric of a model. interval: 95 % interval over other rows."""

    name: str
    value: float
    interval: Interval | None


@dataclass(frozen=True)
class BaselineComparison:
    """models: the fine-tuned model first, then the baselines, all scored on the same rows."""

    metric: str
    models: Sequence[ModelScore]
    verdict: str
    unit: Unit = "share"
    heading: ClassVar[str] = "Baselines on the same rows"
    wide: ClassVar[bool] = False

    def body(self) -> Html:
        return figure(self._chart(), f"{self.verdict[0].upper()}{self.verdict[1:]}. Lines: 95 % intervals.")

    def _chart(self) -> Html:
        values = [value for model in self.models for value in (model.value, *(model.interval or ()))]
        axis = build_axis(self.metric, values, (12.0, WIDTH - 12.0), self.unit)
        bottom = TOP + ROW_HEIGHT * len(self.models)
        parts = [line((axis.at(tick), TOP), (axis.at(tick), bottom), "grid") for tick in axis.ticks()]
        parts.append(line((axis.start, bottom), (axis.end, bottom), "axis"))
        parts += [label((axis.at(tick), bottom + 15), axis.format_tick(tick), "middle") for tick in axis.ticks()]
        parts.append(label(((axis.start + axis.end) / 2, bottom + 31), self.metric, "middle.name"))
        for index, model in enumerate(self.models):
            style, y = f"series{min(index, 1)}", TOP + ROW_HEIGHT * index + 22.0
            parts.append(label((axis.start, y - 10), model.name, style))
            parts.append(label((axis.end, y - 10), format_number(model.value, self.unit), f"end.{style}"))
            if model.interval:
                low, high = map(axis.at, model.interval)
                parts.append(line((low, y), (high, y), f"interval.{style}"))
            tooltip = f"{model.name}: {model.value:.4g}"
            parts.append(dot((axis.at(model.value), y), style, radius=4.5, tooltip=tooltip))
        values_text = "; ".join(f"{model.name} {format_number(model.value, self.unit)}" for model in self.models)
        titles = (element("title", self.heading), element("desc", f"{self.metric}: {values_text}"))
        return element("svg", *titles, *parts, attributes={"viewBox": f"0 0 {WIDTH} {bottom + 40}", "role": "img"})
