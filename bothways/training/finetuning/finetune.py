"""Fine-tuning, from a table of texts to a saved model (Devlin 2018, section 4).

`plan -> train_seeds -> select -> compare -> train_all_rows -> deliver`, or on few rows `plan -> fit_few_rows ->
deliver`

Several seeds are reported with mean and standard deviation, since single runs mislead (Dodge 2020; Mosbach 2021).
"""

from bothways.base.device import choose_device, retain_freed_memory
from bothways.base.log import logger
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings.finetune import FineTune
from bothways.training.distributed import process_group
from bothways.training.finetuning.all_rows import train_all_rows
from bothways.training.finetuning.budget import Budget
from bothways.training.finetuning.compare import compare
from bothways.training.finetuning.deliver import FineTuneResult, deliver, read_result
from bothways.training.finetuning.few_rows import compare_trained, fit_few_rows, plan_training
from bothways.training.finetuning.plan import Plan, make_plan
from bothways.training.finetuning.processes import Training
from bothways.training.finetuning.seeds import check_same, check_unchanged, train_seeds
from bothways.training.finetuning.select import select
from bothways.training.run import Callbacks, Run


def run(settings: FineTune, *, start: Checkpoint | None = None, callbacks: Callbacks = ()) -> FineTuneResult:
    """Fine-tune a model; reports on test if there is one, else on dev. start: the model to start from, instead of that
    of the settings. Of several processes (torchrun), all take part in training, and the main process does the rest."""
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
            return processes.broadcast(follow(plan, run))


def follow(plan: Plan, run: Run) -> FineTuneResult:
    """Train, select, compare and deliver in a run directory; what is done already is read from there."""
    check_unchanged(plan, run)
    if "result" in run.metadata:
        logger.info(f"{run.directory}: the run is already done")
        return read_result(run, plan.task.name)
    if plan.stays_frozen:
        return few_or_trained(plan, run)
    return train(plan, run)


def few_or_trained(plan: Plan, run: Run) -> FineTuneResult:
    """Linear models of few rows. If there is time, a training is tried in cross-validation, and delivered if it is
    clearly better on the same rows."""
    fitted = fit_few_rows(plan, run)
    trained = plan_training(plan, run)
    if trained is None:
        return deliver(*fitted, run)
    tried = compare_trained(plan, trained, train_seeds(trained, run, folds_only=True))
    logger.info(tried.line)
    if not tried.is_better:
        return deliver(*tried.noted(fitted), run)
    return train(trained, run)


def train(plan: Plan, run: Run) -> FineTuneResult:
    seeds = train_seeds(plan, run)
    selection = select(plan, seeds, run.directory)
    if plan.build_linear and selection.scores.score.frozen:
        return deliver(*fit_few_rows(plan.build_linear(), run), run, trained=plan)
    comparison = compare(plan, selection, run)
    last = train_all_rows(plan, selection, comparison, run)
    return deliver(plan, selection, comparison, run, last=last)


def take_part(plan: Plan) -> FineTuneResult:
    """Compute the share of this process in each training, until the main process has the result."""
    if plan.options.device.type == "cpu":
        retain_freed_memory()
    received: Training | FineTuneResult
    current = plan  # or the plan of a fold
    while isinstance(received := plan.processes.broadcast(None), Training):
        if received.fold != current.fold:
            current = plan.of_fold(received.fold)
        received.run(current, received.load(current))
    return received
