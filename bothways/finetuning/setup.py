"""Set-up of a fine-tuning run: from its settings to the task, its batches and training options.

After this only the task reads settings, for its own data and head.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from bothways.checkpoint.contents import Checkpoint
from bothways.device import choose_device, choose_dtype
from bothways.finetuning.recipe import (
    ADAPTER_RATES,
    TRANSFORMS,
    EpochCount,
    default_learning_rate,
    layer_learning_rates,
)
from bothways.finetuning.teacher import Lessons
from bothways.model.model import Model
from bothways.settings.finetune import FineTune
from bothways.tasks.training_task import BatchPlan, Distilled, TrainingTask, inference_copy
from bothways.training.losses import Objective
from bothways.training.schedule import TrainingOptions
from bothways.training.transforms import Transform, apply_all

COOLDOWN = 0.1  # fraction of the steps so far, in which early stopping lets the learning rate fall to 0


@dataclass(frozen=True)
class FineTuneSetup:
    """What a fine-tuning run trains, on which examples, and how.

    options: without the steps, which depend on the examples of an epoch. alpha: weight of a teacher's outputs.
    stays_frozen: whether the encoder is not trained, since there are few examples. skips_training: whether the
    model is the linear start, for that reason or because of a learning rate of 0. uses_default_rate: whether the
    learning rate was not requested. tries_rates: whether trials choose it. quantizes: whether the last part of the
    training is with int8 layers. compares: whether baselines are fitted. delivers_tfidf: whether TF-IDF may be
    the model of the run; not if an option asks for a kind of encoder.
    measured: what the score of a table without enough test rows is (`plan_scores`); unscored: why there
    is none. window, truncates: how long texts are read. sources: names of the model and the data, for messages.
    defaults: of the settings, for the report.
    """

    task: TrainingTask
    transforms: tuple[Transform, ...]
    options: TrainingOptions
    batches: BatchPlan
    length: EpochCount
    minutes: float | None
    evaluations_per_epoch: float | None
    alpha: float
    stays_frozen: bool
    skips_training: bool
    uses_default_rate: bool
    tries_rates: bool
    averages: bool
    quantizes: bool
    seeds: range
    keep_seed: Literal["best", "median"]
    folds: int
    compares: bool
    delivers_tfidf: bool
    measured: str
    unscored: str
    window: int
    truncates: bool
    sources: Mapping[str, Any]
    defaults: Mapping[str, Any]

    def prepare_model(self, seed: int) -> Checkpoint:
        """The initial model of a seed, as it is trained."""
        initial = self.task.initial_checkpoint(seed)
        apply_all(self.transforms, initial.model)
        return initial

    def objective(self, lessons: Lessons | None) -> Objective:
        """The loss of the labels, and that of a teacher's outputs if there are any."""
        is_distilled = lessons is not None and bool(lessons.soft_labels)
        return Distilled(self.task.objective, self.alpha) if is_distilled else self.task.objective

    def learning_rates(self, model: Model) -> list[tuple[str, float, int]]:
        """(name, peak learning rate, number of parameters) of each block of the model."""
        return layer_learning_rates(model, self.options.learning_rate, self.options.layer_decay)

    def inference_copy(self, model: Model) -> Model:
        """A copy in eval mode, on the device and in the number format of the training."""
        return inference_copy(model, self.options.device, self.options.dtype)


def build_setup(settings: FineTune, task: TrainingTask, measured: str = "", unscored: str = "") -> FineTuneSetup:
    """Everything that the training of a task takes. In cross-validation each fold has its own."""
    device, frozen = choose_device(settings.device), task.stays_frozen
    requested = [build(settings, task.pretrained) for build in TRANSFORMS.values()]
    has_start = settings.linear_start and task.initial_model != ""
    averages = has_start and not settings.is_distilled and not settings.freeze and task.scoring.has_row_losses
    rate, default_rate = settings.learning_rate, default_learning_rate(task.pretrained.model.config.hidden_size)
    if settings.adapter:
        default_rate *= ADAPTER_RATES[settings.adapter]
    options = TrainingOptions(
        steps=0,
        learning_rate=default_rate if rate is None else rate,
        schedule=settings.schedule,
        warmup=settings.warmup,
        weight_decay=settings.weight_decay,
        layer_decay=settings.layer_decay,
        max_grad_norm=settings.max_grad_norm,
        best_by=task.metric,
        best_rows=task.summary.num_rows("dev"),
        evaluate_first=has_start,
        keeps_initial=not averages,
        checkpoint_every=settings.checkpoint_every,
        patience=settings.patience,
        negligible_loss=0.0 if settings.patience is None or settings.is_distilled else task.objective.negligible_loss,
        cooldown=COOLDOWN,
        device=device,
        dtype=choose_dtype(settings.dtype, device),
    )
    return FineTuneSetup(
        task=task,
        transforms=(*(transform for transform in requested if transform), *task.transforms),
        options=options,
        batches=BatchPlan.of(settings, task),
        length=EpochCount(settings.epochs, task.min_steps),
        minutes=settings.minutes,
        evaluations_per_epoch=settings.evaluations_per_epoch,
        alpha=settings.alpha,
        stays_frozen=frozen,
        skips_training=frozen or (rate == 0 and has_start),
        uses_default_rate=rate is None,
        averages=averages,
        quantizes=settings.quantize is not None and not frozen,
        tries_rates=rate is None and averages,
        seeds=range(settings.seed, settings.seed + settings.seeds),
        keep_seed=settings.keep_seed,
        folds=settings.folds or 0,
        compares=settings.baselines and not unscored,
        delivers_tfidf=not (settings.adapter or settings.quantize or settings.teacher),
        measured=measured,
        unscored=unscored,
        window=settings.window,
        truncates=settings.long == "truncate",
        sources={name: getattr(settings, name) for name in ("model", "teacher", "train", "dev", "test")},
        defaults={field.name: field.default for field in fields(settings)},
    )
