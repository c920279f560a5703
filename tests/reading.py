"""Which files of the package run from text to loss, and from text to label, for BERT: prints them as JSON, in the
order of their first call.

The reading lists of docs/ARCHITECTURE.md are made from this (tests/test_architecture.py).
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import bothways
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes import new_head
from bothways.model.config import SIZES
from bothways.model.losses import forward_losses
from bothways.model.model import Model, initialize
from bothways.pretrained import DEFAULT
from bothways.text.corpus.masking import MaskRule
from bothways.text.corpus.sampler import StepSampler
from bothways.text.corpus.token_store import build_in_memory
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.training.pretraining.objectives import build_objective, example_batch
from bothways.training.run_checkpoints import TrainingState
from bothways.training.schedule import TrainingOptions
from bothways.training.step import StepQueue
from bothways.training.trainer import Trainer

PACKAGE = Path(bothways.__file__).parent
TEXTS = [
    "The kettle boiled. She made a pot of tea. Rain fell on the roof.",
    "A cat slept. The dog ran away. It was late.",
]


def text_to_loss() -> None:
    """Texts -> tokens -> examples of sentence pairs -> masks -> model -> losses -> one step of the optimizer."""
    tokenizer = Tokenizer.load(PACKAGE / "pretrained" / DEFAULT)
    store = build_in_memory(TEXTS, tokenizer)
    sampler = StepSampler(store, np.arange(len(TEXTS)), length=32, pairs="next", batch_tokens=128, seed=0)
    objective = build_objective("masked", "next")
    model = Model(SIZES["tiny"].replace(vocab_size=len(tokenizer)), objective.heads)
    initialize(model, 0.02, torch.Generator().manual_seed(0))
    step, rule = next(sampler.steps()), MaskRule.from_tokenizer(tokenizer, 0.15, "tokens")
    batch = objective.mask(example_batch(store, step, step.rows, tokenizer), step, step.rows, rule, seed=0)
    options = TrainingOptions(steps=1, learning_rate=1e-3, device=torch.device("cpu"), dtype=torch.float32)
    trainer = Trainer(model, forward_losses(objective), objective.counts, options)
    state = TrainingState()
    queue = StepQueue(trainer, state.scale)
    queue.add(state, [batch])
    queue.read(state)


def text_to_label(classifier: Path) -> None:
    """A directory -> tokenizer and model; text -> tokens -> windows -> model -> label."""
    model = bothways.load(classifier, dtype="float32", device="cpu", backend="torch")
    model.classify("The kettle boiled.")


def files_of(path: Callable[[], None]) -> list[str]:
    """The files whose functions `path` calls, without .py. Everything is imported before."""
    path()
    called: dict[str, None] = {}

    def note(frame, event, argument) -> None:
        """Told of each call of a function in Python, and, since it returns None, of nothing within."""
        if frame.f_code.co_name != "<module>":
            called.setdefault(frame.f_code.co_filename)

    sys.settrace(note)
    try:
        path()
    finally:
        sys.settrace(None)
    files = [Path(file) for file in called]
    return [file.relative_to(PACKAGE).with_suffix("").as_posix() for file in files if PACKAGE in file.parents]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        start = checkpoint.load(PACKAGE / "pretrained" / DEFAULT)
        checkpoint.save(new_head.with_head(start, "classes", ("a", "b"), seed=0), Path(folder) / "model")
        paths = {"text to loss": text_to_loss, "text to label": lambda: text_to_label(Path(folder) / "model")}
        print(json.dumps({name: files_of(path) for name, path in paths.items()}))


if __name__ == "__main__":
    main()
