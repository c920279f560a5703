"""What a resumed run needs: fingerprints of the examples and weights that it was started with, its linear start."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file

from bothways.batching import batch_fingerprint
from bothways.checkpoint.weights import write_weights
from bothways.errors import InputError
from bothways.model.model import Model
from bothways.model.parameters import fingerprint_weights
from bothways.tasks.training_task import Examples, TrainingTask
from bothways.training.run import Run

LINEAR_START, HEADS = "linear_start.safetensors", "heads."
SAMPLES = 256  # examples whose tokens and labels are hashed, and numbers of each tensor


def check_unchanged(task: TrainingTask, run: Run, sources: Mapping[str, Any], teacher: Model | None = None) -> None:
    """InputError if a resumed run was started with other examples or other weights, or with another teacher.

    sources: names of the model and the teacher.
    """
    examples = {split: fingerprint_examples(examples) for split, examples in task.data.items()}
    recorded = run.metadata.get("examples", examples)
    if changed := [split for split in examples if examples[split] != recorded.get(split)]:
        raise InputError(
            f"{run.directory}: the run was started with other examples of {changed[0]}; give the same files, or a new "
            "directory"
        )
    weights = {"start": fingerprint_weights(task.pretrained.model)}
    if teacher is not None:
        weights["teacher"] = fingerprint_weights(teacher)
    for name, source in (("start", sources["model"]), ("teacher", sources["teacher"])):
        if name in weights and run.metadata.get(name, weights[name]) != weights[name]:
            raise InputError(
                f"{run.directory}: the weights in {source} have changed since the run was started; restore them, or "
                "give a new directory"
            )
    run.update_metadata(examples=examples, **weights, rows={split: task.summary.num_rows(split) for split in examples})


def fingerprint_examples(examples: Examples) -> str:
    """Hash of all sizes, and of tokens and labels of a sample spread over the examples."""
    sizes = hashlib.sha256(np.array(examples.sizes).tobytes()).hexdigest()[:16]
    num_examples = len(examples.sizes)
    return f"{sizes} {batch_fingerprint(examples.batch(range(0, num_examples, -(-num_examples // SAMPLES))))}"


@dataclass(frozen=True)
class LinearStart:
    """directory: of the training, where the fitted head is stored."""

    directory: Path

    def apply(self, task: TrainingTask, model: Model) -> None:
        """Fit the head of a model, in place, or read it if it was fitted before."""
        file = self.directory / LINEAR_START
        if file.exists():
            model.load_state_dict(load_file(file), strict=False)
        else:
            task.fit_head(model)
            self.directory.mkdir(parents=True, exist_ok=True)
            write_weights({name: value for name, value in model.state_dict().items() if name.startswith(HEADS)}, file)
