"""A fine-tuning run of any task, and the model that it starts from."""

from collections.abc import Sequence
from pathlib import Path

from bothways.checkpoint import checkpoint
from bothways.checkpoint.changes.cut import with_layers
from bothways.checkpoint.changes.new_head import check_head_supported
from bothways.checkpoint.contents import Checkpoint, check_plain
from bothways.finetuning import finetune
from bothways.finetuning.finetune import FineTuneResult
from bothways.settings.finetune import FineTune
from bothways.tasks import TASKS, task_of
from bothways.training.run import Callbacks


def load_initial_model(model: Path, keep_layers: Sequence[int] = ()) -> Checkpoint:
    """A checkpoint with the layers to keep; without any, all. InputError for layers that it does not have."""
    pretrained = checkpoint.load(model)
    return with_layers(pretrained, keep_layers) if keep_layers else pretrained


def run(settings: FineTune, *, callbacks: Callbacks = ()) -> FineTuneResult:
    """Fine-tune a model; reports on test if there is one, else on dev."""
    pretrained, task = load_initial_model(settings.model, settings.keep_layers), task_of(settings)
    if head := TASKS[task.name].head:
        check_head_supported(pretrained, head, settings.model)
    else:
        check_plain(pretrained.model)
    return finetune.run(settings, lambda settings, fold: task.train(settings, pretrained, fold), callbacks)
