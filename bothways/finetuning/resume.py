"""Fingerprints of the examples and weights that a run was started with, which a resumed run must have too."""

import hashlib

import numpy as np

from bothways.batching import batch_fingerprint
from bothways.errors import InputError
from bothways.finetuning.plan import Plan
from bothways.model.parameters import fingerprint_weights
from bothways.tasks.training_task import Examples
from bothways.training.run import Run

SAMPLES = 256  # examples whose tokens and labels are hashed, and numbers of each tensor


def check_unchanged(plan: Plan, run: Run) -> None:
    """InputError if a resumed run was started with other examples or other weights, or with another teacher."""
    task, sources = plan.task, plan.sources
    examples = {split: fingerprint_examples(examples) for split, examples in task.data.items()}
    recorded = run.metadata.get("examples", examples)
    if changed := [split for split in examples if examples[split] != recorded.get(split)]:
        raise InputError(
            f"{run.directory}: the run was started with other examples of {changed[0]}; give the same files, or a new "
            "directory"
        )
    weights = {"start": fingerprint_weights(task.pretrained.model)}
    if plan.teacher:
        weights["teacher"] = fingerprint_weights(plan.teacher.checkpoint.model)
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
