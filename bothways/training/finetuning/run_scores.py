"""The scores of all models of a run, and which of them the run delivers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bothways.measure.metrics import Interval
from bothways.training.finetuning.ground.score import Score
from bothways.training.finetuning.model_scores import ModelScores
from bothways.training.finetuning.run_models import RunModel

BETTER = "better than"  # how a verdict begins on a model that is clearly better
MODEL = "model"  # directory of a run: the delivered model


@dataclass(frozen=True)
class RunScores:
    """The models of a run, compared.

    model: the one that the run has trained.
    baselines: the scores of simple models on the same rows; none if they are not compared.
    model_verdict: whether the model is better than the baselines.
    verdict: the verdict on the model that is delivered.
    rival: a baseline that is saved, since it may be as good.
    delivers_rival: whether the rival is delivered instead.
    refused: why no model is delivered.
    """

    model: RunModel
    baselines: Sequence[Score] = ()
    model_verdict: str = ""
    verdict: str = ""
    rival: RunModel | None = None
    delivers_rival: bool = False
    refused: str = ""

    @property
    def delivered(self) -> RunModel:
        """The model that the run delivers."""
        return self.rival if self.rival and self.delivers_rival else self.model

    @property
    def warnings(self) -> list[str]:
        return [] if self.verdict.startswith(BETTER) else [self.verdict]

    def directory_of(self, model: RunModel, run: Path) -> Path:
        """Where a model is saved. run: directory of the run."""
        return run / (MODEL if model is self.delivered else model.place)

    def calibrated(self) -> "RunScores":
        """The same with calibrated models."""
        return replace(self, model=self.model.calibrated(), rival=self.rival and self.rival.calibrated())


def differences(scores: ModelScores, baselines: Sequence[Score]) -> Mapping[str, Interval]:
    """95 % intervals of the difference between the score of a model and the score of each baseline."""
    return {baseline.model: scores.score.difference(baseline) for baseline in baselines}
