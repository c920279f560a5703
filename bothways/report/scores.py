"""How good the models are: mean and spread over seeds, and each seed by itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from bothways.report.markup import Html, Unit, element, figure, isolated, join, table, written


@dataclass(frozen=True)
class ScoreSummary:
    """A metric on a split: mean and sample standard deviation over n seeds, or folds. `selected`: something was chosen
    on it. interval: where other rows would put it, with 95 % probability; rows: how many it is of. pooled: of folds,
    the metric of all their rows together, which the interval is of."""

    metric: str
    split: str
    mean: float
    spread: float
    n: int
    selected: bool = False
    unit: Unit = "share"
    interval: tuple[float, float] | None = None
    rows: int | None = None
    over: Literal["seeds", "folds"] = "seeds"
    pooled: float | None = None


def bounds(score: ScoreSummary) -> str:
    """'95 %: 88.6% to 93.1%', and of how many rows; "" where nobody worked it out."""
    if score.interval is None:
        return ""
    low, high = (written(bound, score.unit) for bound in score.interval)
    pooled = "" if score.pooled is None else f"all rows together {written(score.pooled, score.unit)}, "
    return f"{pooled}95 %: {low} to {high}" + (f", {score.rows:,} rows" if score.rows else "")


def spread(score: ScoreSummary) -> str:
    """One seed has no spread, and says so. That of a share is in percentage points, like the mean beside it."""
    if score.n == 1:
        return "one seed"
    return f"± {written(score.spread, score.unit).rstrip('%')}, {score.n} {score.over}"


def chosen(score: ScoreSummary) -> Html:
    return element("span.badge", "selected on this") if score.selected else Html()


def headline(scores: Sequence[ScoreSummary]) -> Html:
    """The first metric, large, on every split that has it."""
    tiles = [
        element(
            "div.tile",
            element("dt", score.metric, ", ", isolated(score.split)),
            element(
                "dd",
                element("strong", figure(score.mean, score.unit)),
                element("span.spread", spread(score)),
                element("span.spread", bounds(score)) if score.interval else Html(),
                chosen(score),
            ),
        )
        for score in scores
        if score.metric == scores[0].metric
    ]
    return element("dl.tiles", *tiles)


@dataclass(frozen=True)
class ScoreTable:
    """Every metric on every split; in the order of their first mention."""

    scores: Sequence[ScoreSummary]
    heading: ClassVar[str] = "Scores"
    wide: ClassVar[bool] = False

    def body(self) -> Html:
        by_place = {(score.metric, score.split): score for score in self.scores}
        splits = list(dict.fromkeys(score.split for score in self.scores))
        metrics = list(dict.fromkeys(score.metric for score in self.scores))
        rows = [[metric, *(_cell(by_place.get((metric, split))) for split in splits)] for metric in metrics]
        over = " or ".join(dict.fromkeys(score.over for score in self.scores)) or "seeds"
        caption = f"Mean and sample standard deviation over {over}."
        if any(score.interval for score in self.scores):
            caption += " 95 %: where other rows of the same kind would put the score, by chance alone."
        if any(score.selected for score in self.scores):
            caption += " A score on the split that the checkpoint was selected on flatters it."
        return table(caption, ["Metric", *map(isolated, splits)], rows)


def _cell(score: ScoreSummary | None) -> Html:
    if score is None:
        return element("span.spread", "none")
    interval = element("span.spread", bounds(score)) if score.interval else Html()
    return join((figure(score.mean, score.unit), element("span.spread", spread(score)), interval, chosen(score)))


@dataclass(frozen=True)
class SeedScores:
    """One training: its number, its scores by split, whether it failed (was no better than a constant answer), whether
    its model was kept."""

    number: int
    scores: Mapping[str, float]
    failed: bool = False
    kept: bool = False


@dataclass(frozen=True)
class SeedTable:
    """The metric of every training."""

    metric: str
    seeds: Sequence[SeedScores]
    unit: Unit = "share"
    heading: ClassVar[str] = "Seeds"
    wide: ClassVar[bool] = False

    def body(self) -> Html:
        splits = list(dict.fromkeys(split for seed in self.seeds for split in seed.scores))
        rows = [
            [str(seed.number), _remark(seed), *(self._score(seed, split) for split in splits)] for seed in self.seeds
        ]
        failed = sum(seed.failed for seed in self.seeds)
        caption = f"{self.metric} of each training. {failed or 'None'} of {len(self.seeds)} failed"
        caption += " (no better than one constant answer)."
        return table(caption, [self.heading.removesuffix("s"), "", *map(isolated, splits)], rows, words=2)

    def _score(self, seed: SeedScores, split: str) -> Html:
        return figure(seed.scores[split], self.unit) if split in seed.scores else Html("none")


@dataclass(frozen=True)
class FoldTable(SeedTable):
    """The metric of every fold, by the model that was trained without it."""

    heading: ClassVar[str] = "Folds"


def _remark(seed: SeedScores) -> Html:
    badges = [("kept", seed.kept), ("failed", seed.failed)]
    return join(element(f"span.badge.{name}", name) for name, holds in badges if holds)
