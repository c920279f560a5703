"""The course of a training, by which a training of more rows repeats it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from bothways.base.io import write_atomic
from bothways.training.run_checkpoints import TrainingState
from bothways.training.schedule import TrainingOptions

COURSE = "course.json"  # in the directory of a seed


@dataclass(frozen=True)
class Course:
    """The course of a training that dev has decided, which a training of more rows repeats.

    steps: of the schedule.
    learning_rate: its peak.
    best_step: of the weights.
    last_step: when the training ended.
    stopped_at: when it was decided to end, from which the learning rate fell to 0; 0: never.
    fraction: of the way from the initial to the trained weights.
    seconds: of its steps.
    """

    steps: int
    learning_rate: float
    best_step: int
    last_step: int
    stopped_at: int
    fraction: float
    seconds: float

    @staticmethod
    def of(options: TrainingOptions, progress: TrainingState, fraction: float) -> "Course":
        return Course(
            steps=options.steps,
            learning_rate=options.learning_rate,
            best_step=progress.best_step,
            last_step=progress.step,
            stopped_at=progress.stopped_at,
            fraction=fraction,
            seconds=progress.seconds,
        )

    @property
    def selected_step(self) -> int:
        """The step of the weights that were selected; 0: the weights before the training."""
        return 0 if self.fraction == 0 else self.best_step

    @property
    def share(self) -> float:
        """Of its steps that are repeated."""
        return self.best_step / max(1, self.last_step)

    def write(self, directory: Path) -> None:
        write_atomic(directory / COURSE, json.dumps(asdict(self)))

    @staticmethod
    def read(directory: Path) -> "Course | None":
        """The course of a seed; None for a seed of an older version of the package."""
        file = directory / COURSE
        if not file.exists():
            return None
        return Course(**json.loads(file.read_text(encoding="utf-8")))
