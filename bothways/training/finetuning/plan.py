"""The plan of a fine-tuning run: the model, its training rows and options, and the rows of its score.

Settings are read here only. After this the task alone reads them, for its own data and head.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from bothways.base.device import choose_device, choose_dtype
from bothways.base.errors import InputError, flag, format_count
from bothways.base.log import logger, muted
from bothways.base.progress import working
from bothways.model.adapters.spec import AdapterSpec, Kind, check_supported
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.cut import with_layers
from bothways.model.checkpoint.contents import Checkpoint, check_head_supported, check_plain
from bothways.model.families import FAMILIES
from bothways.model.losses import Objective
from bothways.model.model import Model
from bothways.model.parameters import inference_copy
from bothways.model.transforms import AddAdapter, FakeInt8, Transform, apply_all
from bothways.settings.finetune import FineTune
from bothways.tasks import TASKS, task_of
from bothways.tasks.batch_plan import EPOCHS, BatchPlan, Epoch, Examples
from bothways.tasks.regress.training import Regression
from bothways.tasks.texts import TextTask
from bothways.tasks.training_task import Distilled, TrainingTask
from bothways.text.batch import Batch
from bothways.training.distributed import SINGLE_PROCESS, Processes
from bothways.training.finetuning.budget import Budget
from bothways.training.finetuning.linear_candidates import CERTAIN, FOLDS, FewRows
from bothways.training.finetuning.teacher import Teacher, TeacherOutputs
from bothways.training.schedule import TrainingOptions

COOLDOWN = 0.1  # fraction of the steps so far, in which early stopping lets the learning rate fall to 0
MIN_TEST_ROWS = 5  # a test split with fewer rows, divided off the training table, judges nothing
MIN_FOLDED_ROWS = 10  # to be scored out-of-fold
# With few rows, what fine-tuning usually gains is less than what so many rows can show (docs/LOG.md, "The first
# labels").
USELESS_ROWS = 5  # of a class, from which on a doubling gains something
GAIN_OF_DOUBLING = 0.01  # of accuracy, about
DISAGREEMENT = 0.15  # share of the rows that two models disagree on
LINEAR_MODELS = "linear models"  # as the description of a score names them
MAX_LINEAR_ROWS = 2500  # of which linear models are fitted out-of-fold if training is no clear gain
NO_GAIN = "training was not clearly better: linear models on the frozen encoder and TF-IDF are fitted to all rows"
TRAINED_FOLDS = 5  # in which a training of few rows is tried
BuildTask = Callable[[FineTune, int | None], TrainingTask]  # of a fold; None: of all rows
MAX_EPOCHS = 20.0  # unless --epochs is given
FEW_TOKENS = 150_000  # one to two minutes for a small model on two cores
EVALUATION_SHARE = 0.15  # of the time of training
EVALUATION_COST = 1 / 3  # of a token, relative to a trained one
MIN_EVALUATIONS = 3  # of a run, unless --evaluations-per-epoch is given
MAX_EVALUATIONS = 12


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
    skips_training: whether the model is the linear start, because of a learning rate of 0.
    uses_default_rate: whether the learning rate was not requested.
    tries_rates: whether trials choose the learning rate.
    averages: whether dev selects a point between the linear start and the trained weights.
    quantizes: whether a second phase of the training is with int8 layers.
    compares: whether baselines are fitted.
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
    head = TASKS[task_of(settings).name].head
    pretrained = checkpoint.load(settings.model, static=head == "classes")
    if pretrained.model.config.is_static:
        check_static(settings)
    if settings.keep_layers:
        pretrained = with_layers(pretrained, settings.keep_layers)

    if head:
        check_head_supported(pretrained, head, settings.model)
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
                f"an encoder ({flag('model', 'bothways-en')})"
            )


@dataclass(frozen=True)
class ScoredRows:
    """The rows of a run, and how they are scored.

    settings: of the run.
    task: of all rows.
    build_fold: builds the task of a fold.
    few, stays_frozen, reason, measured, unscored: see Plan.
    build_trained, build_linear: build the rows of these plans.
    """

    settings: FineTune
    task: TrainingTask
    build_fold: Callable[[int], TrainingTask] | None = None
    few: FewRows | None = None
    stays_frozen: bool = False
    build_trained: Callable[[], "ScoredRows"] | None = None
    build_linear: Callable[[], "ScoredRows"] | None = None
    reason: str = ""
    measured: str = ""
    unscored: str = ""


def choose_rows(settings: FineTune, build_task: BuildTask) -> ScoredRows:
    """How to train and to score a run.

    With few rows (`are_few`), its model is linear, over all of them, and each row is scored by models of the other
    folds. If a training was asked for, and a test split divided off the training table would have fewer than
    MIN_TEST_ROWS rows, such models score the run, too. Without them, or with too few rows for folds, there is no score.
    """
    task = build_task(settings, None)
    rows = ScoredRows(settings, task, partial(build_task, settings))

    # Test rows with their own file are not among the rows that linear models may be fitted to.
    num_test = 0 if settings.test or "test" not in task.data else task.report.num_rows("test")
    num_rows = task.report.num_development_rows + num_test
    is_few = task.num_kinds is not None and are_few(num_rows, task.num_kinds) and not asks_for_training(settings)
    is_split = not (settings.folds or settings.dev or settings.test or settings.teacher or settings.seeds > 1)
    if not is_few and (not is_split or num_test >= MIN_TEST_ROWS):
        has_linear = isinstance(task, TextTask) and num_rows <= MAX_LINEAR_ROWS and not settings.folds
        if not has_linear or asks_for_training(settings) or not task.scoring.has_row_losses:
            return rows
        return replace(rows, build_linear=partial(linear_rows, rows, num_rows, NO_GAIN))

    remedy = f"about {10 * MIN_TEST_ROWS} rows, or a file for {flag('test')}, give one"
    if not isinstance(task, TextTask):
        reason = f"{format_count(num_test, 'test row')} of {num_rows} are too few to judge it"
        return replace(rows, unscored=f"no score: {reason}; {flag('folds', 5)} scores every row; {remedy}")

    linear = linear_rows(rows, num_rows, few_reason(num_rows, task))
    few = linear.few
    assert few is not None
    folded = replace(settings, test=None, folds=settings.folds or TRAINED_FOLDS)

    def build_trained() -> ScoredRows:
        return ScoredRows(folded, build_task(folded, None), partial(build_task, folded))

    if is_few:
        rows = replace(linear, build_trained=build_trained if few.folds and not settings.test else None)
    else:
        rows = replace(linear, task=with_dev(task, build_task, settings), stays_frozen=False)
    if few.folds or settings.test:
        return rows

    reason = f"{num_rows} rows are too few for folds"
    enough = f"it takes about {max(MIN_FOLDED_ROWS, task.min_folded_rows):g}, or a file for {flag('test')}"
    return replace(rows, measured="", unscored=f"no score: {reason}; {enough}")


def linear_rows(rows: ScoredRows, num_rows: int, reason: str) -> ScoredRows:
    """The same rows for linear models, over all of them but test rows with their own file.

    rows: of a training.
    num_rows: their number.
    reason: see Plan.
    """
    task = rows.task
    settings = rows.settings
    assert isinstance(task, TextTask)
    few = FewRows(task.with_all_rows(keep_test=bool(settings.test)), settings.folds)
    measured = "" if settings.test else f"out-of-fold, {num_rows} rows, {len(few.score_folds)} folds, {LINEAR_MODELS}"
    return replace(
        rows,
        task=few.task,
        few=few,
        stays_frozen=True,
        reason=reason,
        measured=measured,
    )


def few_reason(num_rows: int, task: TextTask) -> str:
    """Why the encoder is not trained on few rows."""
    kinds = "" if isinstance(task, Regression) else f" of {format_count(task.num_outputs, 'class', 'classes')}"
    return (
        f"{format_count(num_rows, 'row')}{kinds}: fine-tuning usually gains less than the "
        f"{100 * smallest_difference(num_rows):.1f} points that so few rows can show; linear models on the frozen "
        f"encoder and TF-IDF are fitted to all of them ({flag('epochs', 10)} trains the encoder)"
    )


def with_dev(task: TrainingTask, build_task: BuildTask, settings: FineTune) -> TrainingTask:
    """The task without test rows: nine tenths for training, and one that selects weights; as it is, if that leaves a
    part empty."""
    try:
        return build_task(replace(settings, folds=FOLDS), None)
    except InputError:
        return task


def are_few(num_rows: int, num_kinds: int) -> bool:
    """Whether fine-tuning usually gains less than the rows can show: the smallest difference of two models whose 95 %
    interval on all these rows is above 0."""
    doublings = math.log2(max(num_rows, 1) / num_kinds / USELESS_ROWS)
    return GAIN_OF_DOUBLING * doublings < smallest_difference(num_rows)


def smallest_difference(num_rows: int) -> float:
    """The smallest difference of two accuracies that so many rows can show."""
    return CERTAIN * math.sqrt(DISAGREEMENT / max(num_rows, 1))


def asks_for_training(settings: FineTune) -> bool:
    """Whether the settings ask for a training of the encoder, so that few rows are no reason to leave it as it is."""
    return bool(
        settings.epochs is not None
        or settings.learning_rate  # not 0, which trains only a head
        or settings.dev
        or settings.adapter
        or settings.quantize
        or settings.is_distilled
        or settings.seeds > 1
        or not settings.linear_start
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
        skips_training=rate == 0 and has_start,
        uses_default_rate=rate is None,
        tries_rates=rate is None and has_start and has_losses,
        averages=averages,
        quantizes=settings.quantize is not None and not is_frozen and fold is None,
        compares=settings.baselines and not rows.unscored,
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


# --- epochs and steps


def num_epochs(epochs: float | None, min_steps: int, epoch: Epoch) -> float:
    """The number of epochs: more for few examples, which need a minimum of steps (Mosbach 2021, section 6), unless they
    are long.

    epochs: as requested; None: the default.
    min_steps: of the default; few examples are read more often, as long as that takes at most FEW_TOKENS.
    epoch: steps and tokens of one epoch.
    """
    if epochs is not None:
        return epochs

    wanted = min_steps / epoch.steps
    affordable = FEW_TOKENS / epoch.tokens
    return min(MAX_EPOCHS, max(EPOCHS, min(wanted, affordable)))


def num_steps(epochs: float | None, min_steps: int, epoch: Epoch) -> int:
    return max(1, math.ceil(num_epochs(epochs, min_steps, epoch) * epoch.steps))


def log_epochs(epochs: float | None, min_steps: int, epoch: Epoch) -> None:
    """Log the length, if it is not three epochs; as a warning if it is far too short."""
    default_epochs = num_epochs(None, min_steps, epoch)
    default_steps = num_steps(None, min_steps, epoch)
    if epochs is None:
        if default_epochs > EPOCHS:
            logger.info(
                f"{default_epochs:.3g} epochs of {format_count(epoch.steps, 'step')}, as there are few examples "
                f"({flag('epochs')})"
            )
        return

    steps = num_steps(epochs, min_steps, epoch)
    verb = "epoch is" if epochs == 1 else "epochs are"
    usual = f"the default is {default_steps:,} ({default_epochs:.3g} epochs)"
    text = f"{epochs:g} {verb} {format_count(steps, 'step')}; {usual}"
    if steps < min_steps and 2 * steps <= default_steps:
        logger.warning(f"{text}; after so few steps a model has often learned little")
    elif steps != default_steps:
        logger.info(text)


def evaluation_interval(steps: int, epoch: Epoch, dev_tokens: int) -> int:
    """Steps between evaluations that take EVALUATION_SHARE of the time, so that early stopping sees trends.

    steps: of the training.
    epoch: steps and tokens of one epoch.
    dev_tokens: of an evaluation.
    """
    # By tokens, which predict the time, and not by a clock: a seed gives the same run everywhere.
    training_tokens = steps / epoch.steps * epoch.tokens
    affordable = round(EVALUATION_SHARE * training_tokens / (EVALUATION_COST * max(1, dev_tokens)))
    num_evaluations = min(MAX_EVALUATIONS, max(MIN_EVALUATIONS, affordable))
    return max(1, steps // num_evaluations)


# --- learning rates


def default_learning_rate(width: int) -> float:
    """The peak learning rate for a hidden size.

    Wide models were fine-tuned at 5e-5 (768; Devlin 2018, appendix A.3) and at 2e-5 to 5e-5 (1,024), narrow ones at
    3e-4 (256; Clark 2020, appendix B); MiniLM with 384 does better at 1.5e-4 than at 5e-5 (docs/LOG.md).
    """
    return min(5e-5 * (768 / width) ** 1.5, 5e-4)


# Of the learning rate for all weights, tried on SST-2 and STS-B with MiniLM (docs/LOG.md).
ADAPTER_RATES: dict[Kind, float] = {"lora": 7.0, "bitfit": 14.0}
