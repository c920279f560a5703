"""The rows of a run: which of them train its model, and which of them score it. With few rows, linear models of all."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from bothways.base.errors import InputError, flag, format_count
from bothways.settings.finetune import FineTune
from bothways.tasks.linear_baselines import MAX_OUTPUTS
from bothways.tasks.regress.training import Regression
from bothways.tasks.texts import TextTask
from bothways.tasks.training_task import TrainingTask
from bothways.training.finetuning.ground.linear_candidates import CERTAIN, FOLDS, MAX_WORD_ROWS, FewRows
from bothways.training.finetuning.ground.tfidf_options import trains_tfidf

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
    is_frozen = isinstance(task, TextTask) and task.is_frozen
    is_few = task.num_kinds is not None and are_few(num_rows, task.num_kinds) and not asks_for_training(settings)
    is_few = is_few or is_frozen
    is_tfidf = trains_tfidf(settings)
    if is_tfidf and isinstance(task, TextTask):
        is_few = is_few and num_rows <= MAX_WORD_ROWS and task.num_outputs <= MAX_OUTPUTS
    is_split = not (settings.folds or settings.dev or settings.test or settings.teacher or settings.seeds > 1)
    if not is_few and (not is_split or num_test >= MIN_TEST_ROWS):
        has_linear = isinstance(task, TextTask) and num_rows <= MAX_LINEAR_ROWS and not settings.folds
        if not has_linear or is_tfidf or asks_for_training(settings) or not task.scoring.has_row_losses:
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
        can_train = few.folds and not settings.test and not is_tfidf and not is_frozen
        rows = replace(linear, build_trained=build_trained if can_train else None)
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
    whole = task.with_all_rows(keep_test=bool(settings.test))
    few = FewRows(whole, settings.folds, is_tfidf=trains_tfidf(settings))
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
    """Why the encoder is not trained on few rows, or why TF-IDF is fitted to all of them."""
    kinds = "" if isinstance(task, Regression) else f" of {format_count(task.num_outputs, 'class', 'classes')}"
    rows = f"{format_count(num_rows, 'row')}{kinds}"
    if trains_tfidf(task.settings):
        return f"{rows}: a part of so few rows would show little, so TF-IDF is fitted to all of them"
    if task.is_frozen:
        return (
            f"{rows}: linear models on the frozen encoder, and the statements of the options, are fitted to all of them"
        )
    return (
        f"{rows}: fine-tuning usually gains less than the "
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
