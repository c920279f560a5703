"""The time that a run has for its trainings, and about how long the parts after them take."""

from bothways.tasks.novelty import MAX_TOKENS
from bothways.training.finetuning.gain import FRACTIONS
from bothways.training.finetuning.ground.budget import LABEL_CHECK
from bothways.training.finetuning.plan import Plan

FITS = 5  # of linear models, in the search for label errors: a fold each
LINEAR_STARTS = 12  # in whose time linear models of all rows are chosen and fitted (docs/LOG.md, "The first labels")
INT8_SHARE = 1 / 3  # of the steps before, in a second phase with int8 layers
# In the seconds of the budget: evaluation of dev, linear start, and all texts by the frozen encoder (estimated).
EVALUATION = "evaluation"
LINEAR = "linear start"
VECTORS = "vectors"


def phases(plan: Plan) -> float:
    """The time of all phases of a training, relative to the time of the first one."""
    return 1 + INT8_SHARE if plan.quantizes else 1.0


def seconds_for_training(plan: Plan) -> float:
    """Of each training that is still to come: what the run has left, less what comes after them."""
    return plan.budget.share(seconds_after(plan), plan.budget.trainings) / phases(plan)


def seconds_after(plan: Plan) -> float:
    """About how long the run takes after its trainings: scores of dev and test, label errors, linear models if training
    is no clear gain, and the report."""
    per_token = plan.budget.estimate(EVALUATION) / max(1, sum(plan.task.data["dev"].sizes))
    return per_token * num_scored_tokens(plan) + label_seconds(plan) + linear_seconds(plan)


def num_scored_tokens(plan: Plan) -> int:
    """Tokens that are read after a training: in evaluations of points between start and end, and of the model, and to
    see how far the texts of a classifier lie apart."""
    sizes = {split: sum(examples.sizes) for split, examples in plan.task.data.items()}
    scored = (len(FRACTIONS) + 2) * sizes.get("dev", 0) + 2 * sizes.get("test", 0)
    return scored + min(sizes["train"], MAX_TOKENS)


def linear_seconds(plan: Plan) -> float:
    """About how long linear models of all rows take, which are fitted if training is no clear gain."""
    if plan.build_linear is None:
        return 0.0
    return LINEAR_STARTS * max(plan.budget.estimate(LINEAR), seconds_of_frozen(plan))


def seconds_of_frozen(plan: Plan) -> float:
    """Of the baseline on frozen vectors; 0 if there is none."""
    frozen = [seconds for name, seconds in plan.budget.seconds.items() if name.startswith("frozen")]
    return max(frozen, default=0.0)


def label_seconds(plan: Plan) -> float:
    """About how long the search for label errors in the training rows takes, if there is time for it: some fits of
    linear models on frozen vectors, of which the baseline is one."""
    if not plan.compares or plan.few:
        return 0.0
    seconds = FITS * seconds_of_fit(plan, seconds_of_frozen(plan))
    return seconds if plan.budget.allows(LABEL_CHECK, seconds) else 0.0


def curve_seconds(plan: Plan) -> float:
    """About how long a learning curve of linear models takes: two fits for each fold."""
    return 2 * FITS * seconds_of_fit(plan, max(plan.budget.estimate(LINEAR), seconds_of_frozen(plan)))


def seconds_of_fit(plan: Plan, measured: float) -> float:
    """Of a linear model whose time was measured together with its vectors, whose time is estimated; at least a tenth of
    the measured time."""
    return max(measured - plan.budget.estimate(VECTORS), measured / 10)
