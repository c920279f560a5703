"""Fine-tuning, from a table of texts to a saved model (Devlin 2018, section 4).

- `plan -> train_seeds -> select -> compare -> train_all_rows -> deliver`
- On few rows, `plan -> fit_few_rows -> deliver`: linear models on the frozen encoder. If there is time, a training is
  tried as well.
- Of TF-IDF as the model, `plan -> fit_tfidf -> deliver`, or on few rows the same as of any other.

Several seeds are reported with mean and standard deviation, since single runs mislead (Dodge 2020; Mosbach 2021).
"""

from bothways.base.device import choose_device, retain_freed_memory
from bothways.base.log import logger
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings.finetune import FineTune
from bothways.training.distributed import process_group
from bothways.training.finetuning.all_rows import train_all_rows
from bothways.training.finetuning.compare import compare
from bothways.training.finetuning.deliver import FineTuneResult, deliver, read_result
from bothways.training.finetuning.few_rows import compare_trained, fit_few_rows, plan_training
from bothways.training.finetuning.fit_tfidf import fit_tfidf
from bothways.training.finetuning.ground.budget import Budget
from bothways.training.finetuning.plan import Plan, make_plan
from bothways.training.finetuning.processes import Training
from bothways.training.finetuning.seeds import check_same, check_unchanged, train_seeds
from bothways.training.finetuning.select import select
from bothways.training.run import Callbacks, Run


def run(settings: FineTune, *, start: Checkpoint | None = None, callbacks: Callbacks = ()) -> FineTuneResult:
    """Fine-tune a model; reports on test if there is one, else on dev.

    Of several processes (torchrun), all take part in training, and the main process does the rest.

    settings: of the run.
    start: the model to start from, instead of the model of the settings.
    callbacks: called with each row of metrics.
    """
    # The minutes include the preparation of the plan.
    budget = Budget.of(settings.minutes)

    with process_group(choose_device(settings.device)) as processes:
        plan = make_plan(settings, start, processes, budget)
        check_same(plan)
        if not processes.is_main_process:
            return take_part(plan)

        with Run(
            plan.settings.out,
            f"finetune {plan.task.name}",
            plan.settings,
            resume=plan.settings.resume,
            device=plan.options.device,
            callbacks=callbacks,
        ) as run:
            result = follow(plan, run)
            # The other processes wait for it in `take_part`.
            return processes.broadcast(result)


def follow(plan: Plan, run: Run) -> FineTuneResult:
    """Train, select, compare and deliver in a run directory; what is done already is read from there."""
    check_unchanged(plan, run)

    if "result" in run.metadata:
        logger.info(f"{run.directory}: the run is already done")
        return read_result(run, plan.task.name)
    if plan.stays_frozen:
        return few_or_trained(plan, run)
    if plan.is_tfidf:
        return deliver(plan, fit_tfidf(plan, run), run)
    return train(plan, run)


def few_or_trained(plan: Plan, run: Run) -> FineTuneResult:
    """Deliver linear models of few rows, or a trained model.

    If there is time, a training is tried in cross-validation. A trained model is delivered if it is clearly better on
    the same rows.
    """
    fitted = fit_few_rows(plan, run)
    trained_plan = plan_training(plan, run)
    if trained_plan is None:
        return deliver(*fitted, run)

    folds = train_seeds(trained_plan, run, folds_only=True)
    tried = compare_trained(plan, trained_plan, folds)
    logger.info(tried.line)
    if not tried.is_better:
        fitted_plan, scores = fitted
        return deliver(fitted_plan, tried.noted(scores), run)

    # The folds are read from the run directory; only the model of the run is still to be trained.
    return train(trained_plan, run)


def train(plan: Plan, run: Run) -> FineTuneResult:
    """Train the seeds and deliver the selected model, or linear models if training was not better on dev."""
    seeds = train_seeds(plan, run)
    encoder, baselines = select(plan, seeds, run.directory)
    if plan.build_linear and encoder.scores.frozen:
        fitted = fit_few_rows(plan.build_linear(), run)
        return deliver(*fitted, run, trained=plan)

    scores = compare(plan, encoder, baselines, run)
    last = train_all_rows(plan, scores, run)
    return deliver(plan, scores, run, last=last)


def take_part(plan: Plan) -> FineTuneResult:
    """Compute the share of this process in each training, until the main process has the result."""
    if plan.options.device.type == "cpu":
        retain_freed_memory()

    # A fold has a plan of its own, which is built once for all its trainings.
    current_plan = plan
    received: Training | FineTuneResult
    while isinstance(received := plan.processes.broadcast(None), Training):
        if received.fold != current_plan.fold:
            current_plan = plan.of_fold(received.fold)

        start = received.load(current_plan)
        received.run(current_plan, start)
    return received
