"""The model before the first step: the frozen encoder with a fitted head, stored for runs that are resumed."""

from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file

from bothways.checkpoint.weights import write_weights
from bothways.finetuning.task import Task
from bothways.model.model import Model

FILE, HEADS = "linear_start.safetensors", "heads."


@dataclass(frozen=True)
class LinearStart:
    """directory: of the training, where the fitted head is stored."""

    directory: Path

    def apply(self, task: Task, model: Model) -> None:
        """Fit the head of a model, in place, or read it if it was fitted before."""
        file = self.directory / FILE
        if file.exists():
            model.load_state_dict(load_file(file), strict=False)
        else:
            task.fit_head(model)
            self.directory.mkdir(parents=True, exist_ok=True)
            write_weights({name: value for name, value in model.state_dict().items() if name.startswith(HEADS)}, file)
