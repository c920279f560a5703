"""The plan of a fine-tuning run: the model, its training rows and options, and the rows of its score.

Settings are read here only. After this the task alone reads them, for its own data and head.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from bothways.base.device import choose_device, choose_dtype
from bothways.base.errors import InputError, flag
from bothways.base.log import muted
from bothways.base.progress import working
from bothways.model.adapters.spec import AdapterSpec, check_supported
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.cut import with_layers
from bothways.model.checkpoint.contents import Checkpoint, check_head_supported, check_plain
from bothways.model.families import FAMILIES
from bothways.model.losses import Objective
from bothways.model.model import Model
from bothways.model.parameters import inference_copy
from bothways.model.transforms import AddAdapter, FakeInt8, Transform, apply_all
from bothways.pretrained import STATIC
from bothways.settings.finetune import FineTune
from bothways.tasks import TASKS, task_of
from bothways.tasks.batch_plan import BatchPlan, Epoch, Examples
from bothways.tasks.training_task import Distilled, TrainingTask
from bothways.text.batch import Batch
from bothways.training.distributed import SINGLE_PROCESS, Processes
from bothways.training.finetuning.ground.budget import Budget
from bothways.training.finetuning.ground.epochs import ADAPTER_RATES, default_learning_rate
from bothways.training.finetuning.ground.linear_candidates import FewRows
from bothways.training.finetuning.ground.tfidf_options import check_tfidf, trains_tfidf
from bothways.training.finetuning.scored_rows import ScoredRows, asks_for_training, choose_rows
from bothways.training.finetuning.teacher import Teacher, TeacherOutputs
from bothways.training.schedule import TrainingOptions

COOLDOWN = 0.1  # fraction of the steps so far, in which early stopping lets the learning rate fall to 0


@dataclass(frozen=True)
class Plan:
    """Model, examples and options of a training run.

    settings: as the run records them.
    task: data, head and scores.
    teacher: whose outputs are learned, if any.
    transforms: that change the model for training.
    options: without the steps, which depend on the examples of an epoch.
    batches: how the examples are divided into steps.
    epochs: how often the examples are read; None: depends on their number.
    budget: the time of the run.
    evaluations_per_epoch: None: depends on the number of steps.
    alpha: weight of a teacher's outputs.
    few: linear models of all rows on the frozen encoder, if these score the run.
    stays_frozen: whether they are the model of the run, since there are few rows.
    build_trained: builds the plan of a training in cross-validation, which is then tried if there is time.
    build_linear: builds the plan of such models, for a run whose training is not clearly better on dev.
    follows_few: whether this is the plan that build_trained has built.
    was_asked: whether a training was asked for.
    reason: why the encoder is not trained.
    skips_training: whether nothing is trained in steps: TF-IDF, or the linear start, because of a learning rate of 0.
    uses_default_rate: whether the learning rate was not requested.
    tries_rates: whether trials choose the learning rate.
    averages: whether dev selects a point between the linear start and the trained weights.
    quantizes: whether a second phase of the training is with int8 layers.
    compares: whether baselines are fitted.
    is_tfidf: whether the model of the run is TF-IDF, so that no encoder is trained.
    delivers_tfidf: whether TF-IDF may be the model of the run; not if an option asks for a kind of encoder.
    seeds: of the trainings on these rows.
    fold: the part of the rows that is only scored; None: a plan of the whole run.
    num_folds: of the run.
    build_fold: builds the plans of the folds.
    measured: description of the score of a table with too few test rows.
    unscored: why there is no score.
    window, truncates: how long texts are read.
    processes: among which the micro-batches of a step are divided.
    """

    settings: FineTune
    task: TrainingTask
    teacher: Teacher | None
    transforms: tuple[Transform, ...]
    options: TrainingOptions
    batches: BatchPlan
    epochs: float | None
    budget: Budget
    evaluations_per_epoch: float | None
    alpha: float
    few: FewRows | None
    stays_frozen: bool
    build_trained: Callable[[], "Plan"] | None
    build_linear: Callable[[], "Plan"] | None
    follows_few: bool
    was_asked: bool
    reason: str
    skips_training: bool
    uses_default_rate: bool
    tries_rates: bool
    averages: bool
    quantizes: bool
    compares: bool
    is_tfidf: bool
    delivers_tfidf: bool
    seeds: range
    fold: int | None
    num_folds: int
    build_fold: Callable[..., "Plan"] | None
    measured: str
    unscored: str
    window: int
    truncates: bool
    processes: Processes

    @property
    def sources(self) -> Mapping[str, Any]:
        """Names of the models and the data, for messages."""
        return {name: getattr(self.settings, name) for name in ("model", "teacher", "train", "dev", "test")}

    @property
    def split(self) -> str:
        """The split whose score is reported, if the rows are not folded."""
        return "test" if "test" in self.task.data else "dev"

    @property
    def trainings(self) -> Iterator[tuple[int, int | None]]:
        """(seed, fold) of each training: first of the folds, then of the model of the run."""
        for fold in range(self.num_folds):
            yield self.seeds[0] + 1 + fold, fold
        for seed in self.seeds:
            yield seed, None

    @property
    def num_trainings(self) -> int:
        return self.num_folds + len(self.seeds)

    def of_fold(self, fold: int | None) -> "Plan":
        """The plan of the trainings of a fold; None: this one."""
        if fold is None:
            return self
        assert self.build_fold is not None
        return self.build_fold(fold=fold)

    @cached_property
    def teacher_outputs(self) -> TeacherOutputs | None:
        """The teacher's outputs for the examples, if there is a teacher; computed once."""
        if self.teacher is None:
            return None
        if self.fold is None:
            return self.teacher.teach()
        with muted():
            return self.teacher.teach()

    @property
    def training_task(self) -> TrainingTask:
        """The task, with the examples that only a teacher labels."""
        return self.teacher_outputs.task if self.teacher_outputs else self.task

    @property
    def examples(self) -> Examples:
        """The training examples."""
        return self.training_task.data["train"]

    @property
    def objective(self) -> Objective:
        """The loss of the labels, with the loss of a teacher's outputs if there are any."""
        if self.teacher_outputs is None or not self.teacher_outputs.soft_labels:
            return self.task.objective
        return Distilled(self.task.objective, self.alpha)

    def epoch(self, seed: int) -> Epoch:
        return self.batches.epoch(self.teacher_outputs or self.task, seed)

    def steps(self, seed: int, first: int = 0) -> Iterator[Sequence[Batch]]:
        """The micro-batches of this process for each step from one on, endlessly."""
        rank = self.processes.rank
        world_size = self.processes.world_size
        steps = self.batches.steps(self.teacher_outputs or self.task, seed)
        for examples, rows in islice(steps, first, None):
            parts = list(self.batches.micro_batches(rows, examples.sizes, world_size))
            yield [examples.batch(part) for part in parts[rank::world_size]]

    def prepare_model(self, seed: int) -> Checkpoint:
        """The initial model of a seed, as it is trained."""
        initial = self.task.initial_checkpoint(seed)
        apply_all(self.transforms, initial.model)
        return initial

    def inference_copy(self, model: Model) -> Model:
        """A copy in eval mode, on the device and in the number format of the training."""
        return inference_copy(model, self.options.device, self.options.dtype)


def make_plan(
    settings: FineTune,
    start: Checkpoint | None = None,
    processes: Processes = SINGLE_PROCESS,
    budget: Budget | None = None,
) -> Plan:
    """Read the data and the models of a run.

    settings: of the run.
    start: the model to start from, instead of the model of the settings.
    processes: among which the micro-batches of a step are divided.
    budget: the time of the run, if that has begun.
    """
    budget = budget or Budget.of(settings.minutes)
    pretrained = start or load_start(settings)
    with working("reading the data"):
        rows = choose_rows(settings, lambda settings, fold: task_of(settings).train(settings, pretrained, fold))
    if len(rows.task.data["train"].sizes) < 2:
        raise InputError(f"{settings.train}: only one training example; at least two are needed{rows.task.hint}")

    teacher = None
    if settings.teacher is not None:
        teacher = checkpoint.load(settings.teacher, static=True)
        check_plain(teacher.model)
    return plan_of(rows, teacher, processes, budget=budget)


def load_start(settings: FineTune) -> Checkpoint:
    """The model to start from. InputError if the task cannot use it."""
    if trains_tfidf(settings):
        check_tfidf(settings)
        # Nothing of it is saved: it counts tokens, and is the baseline.
        return checkpoint.load(STATIC, static=True)

    task = TASKS[task_of(settings).name]
    # Static vectors can tell classes and numbers, but not in which order words stand, or how far two texts agree.
    pretrained = checkpoint.load(settings.model, static=task.labelled is not None)
    if pretrained.model.config.is_static:
        check_static(settings)
    if settings.keep_layers:
        pretrained = with_layers(pretrained, settings.keep_layers)

    if task.head:
        check_head_supported(pretrained, task.head, settings.model)
    else:
        check_plain(pretrained.model)
    return pretrained


def check_static(settings: FineTune) -> None:
    """InputError for an option about what static vectors lack."""
    lacking = {
        "keep_layers": (settings.keep_layers, "no layers"),
        "adapter": (settings.adapter, "no layers that could be adapted"),
        "quantize": (settings.quantize, "no layers that could be quantized"),
        "pooling": (getattr(settings, "pooling", "") == "cls", "no state of [CLS]"),
    }
    for name, (value, lack) in lacking.items():
        if value:
            raise InputError(
                f"{flag(name)}: {settings.model} is static vectors, which have {lack}; leave the option out, or name "
                "an encoder, such as bothways-en"
            )


def plan_of(
    rows: ScoredRows,
    teacher: Checkpoint | None = None,
    processes: Processes = SINGLE_PROCESS,
    *,
    budget: Budget | None = None,
    fold: int | None = None,
    follows_few: bool = False,
) -> Plan:
    """The plan of a run, or of a fold of its rows.

    rows: of the run.
    teacher: whose outputs are learned, if any.
    processes: among which the micro-batches of a step are divided.
    budget: the time of the run, if that has begun.
    fold: the part of the rows that is only scored; None: the plan of the run.
    follows_few: whether this training of few rows is tried after their linear models.
    """
    settings = rows.settings
    task = rows.task
    budget = budget or Budget.of(settings.minutes)
    if fold is not None:
        assert rows.build_fold
        task = rows.build_fold(fold)

    rate = settings.learning_rate
    is_tfidf = trains_tfidf(settings)
    is_frozen = rows.stays_frozen and fold is None
    has_start = settings.linear_start and task.initial_model != ""
    has_losses = not settings.is_distilled and task.scoring.has_row_losses
    averages = has_start and (has_losses or task.needs_gain)
    requested = [build(settings, task.pretrained) for build in TRANSFORMS.values()]
    return Plan(
        settings=settings,
        task=task,
        teacher=Teacher.of(task, teacher) if teacher else None,
        transforms=(*filter(None, requested), *task.transforms),
        options=training_options(settings, task, evaluate_first=has_start, keeps_initial=not averages),
        batches=BatchPlan.of(task),
        epochs=settings.epochs,
        budget=budget,
        evaluations_per_epoch=settings.evaluations_per_epoch,
        alpha=settings.alpha,
        few=rows.few,
        stays_frozen=is_frozen,
        build_trained=partial(trained_plan, rows, processes, budget) if rows.build_trained and fold is None else None,
        build_linear=partial(linear_plan, rows, processes, budget) if rows.build_linear and fold is None else None,
        follows_few=follows_few,
        was_asked=asks_for_training(settings),
        reason=rows.reason,
        skips_training=is_tfidf or (rate == 0 and has_start),
        uses_default_rate=rate is None,
        tries_rates=rate is None and has_start and has_losses,
        averages=averages,
        quantizes=settings.quantize is not None and not is_frozen and fold is None,
        compares=settings.baselines and not rows.unscored,
        is_tfidf=is_tfidf,
        delivers_tfidf=not (settings.adapter or settings.quantize or settings.teacher),
        seeds=range(settings.seed, settings.seed + settings.seeds),
        fold=fold,
        num_folds=0 if is_frozen else settings.folds or 0,
        build_fold=partial(plan_of, rows, teacher, processes, budget=budget) if fold is None else None,
        measured=rows.measured,
        unscored=rows.unscored,
        window=settings.window,
        truncates=settings.long == "truncate",
        processes=processes,
    )


def trained_plan(rows: ScoredRows, processes: Processes, budget: Budget) -> Plan:
    """The plan of a training of few rows in cross-validation."""
    assert rows.build_trained
    return plan_of(rows.build_trained(), None, processes, budget=budget, follows_few=True)


def linear_plan(rows: ScoredRows, processes: Processes, budget: Budget) -> Plan:
    """The plan of linear models of the rows of a training."""
    assert rows.build_linear
    return plan_of(rows.build_linear(), None, processes, budget=budget)


def training_options(
    settings: FineTune, task: TrainingTask, *, evaluate_first: bool, keeps_initial: bool
) -> TrainingOptions:
    """Options of the training loop, without the steps.

    settings: of the run.
    task: whose metric selects the weights.
    evaluate_first: whether the initial weights are evaluated.
    keeps_initial: whether they can be the best.
    """
    device = choose_device(settings.device)
    rate = settings.learning_rate
    if rate is None:
        rate = default_learning_rate(task.pretrained.model.config.hidden_size)
        rate *= ADAPTER_RATES[settings.adapter] if settings.adapter else 1.0
    stops_early = settings.patience is not None and not settings.is_distilled
    return TrainingOptions(
        steps=0,
        learning_rate=rate,
        warmup=settings.warmup,
        best_by=task.metric,
        best_rows=task.report.num_rows("dev") if "dev" in task.data else 0,
        evaluate_first=evaluate_first,
        keeps_initial=keeps_initial,
        checkpoint_every=settings.checkpoint_every,
        patience=settings.patience,
        negligible_loss=task.objective.negligible_loss if stops_early else 0.0,
        cooldown=COOLDOWN,
        device=device,
        dtype=choose_dtype(settings.dtype, device),
    )


def add_adapter(settings: FineTune, pretrained: Checkpoint) -> AddAdapter | None:
    """The adapter of the settings, if any. InputError if the model cannot have it."""
    if settings.adapter is None:
        return None

    base = str(settings.model)
    spec = AdapterSpec(
        settings.adapter,
        rank=settings.rank,
        alpha=2.0 * settings.rank,
        base=str(Path(base).resolve()) if Path(base).exists() else base,
    )

    family = FAMILIES[pretrained.model_type]
    check_supported(spec, pretrained.model.config, family.model_type)
    return AddAdapter(spec, family, settings.seed)


# What changes the model for training, by setting: a new one is one entry. None: not requested.
TRANSFORMS: dict[str, Callable[[FineTune, Checkpoint], Transform | None]] = {
    "quantize": lambda settings, pretrained: FakeInt8() if settings.quantize else None,
    "adapter": add_adapter,
}
