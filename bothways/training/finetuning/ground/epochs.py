"""How long a training is, how often it is evaluated, and its peak learning rate, unless the settings say so."""

import math

from bothways.base.errors import flag, format_count
from bothways.base.log import logger
from bothways.model.adapters.spec import Kind
from bothways.tasks.batch_plan import EPOCHS, Epoch

MAX_EPOCHS = 20.0  # unless --epochs is given
FEW_TOKENS = 150_000  # one to two minutes for a small model on two cores
EVALUATION_SHARE = 0.15  # of the time of training
EVALUATION_COST = 1 / 3  # of a token, relative to a trained one
MIN_EVALUATIONS = 3  # of a run, unless --evaluations-per-epoch is given
MAX_EVALUATIONS = 12


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


def default_learning_rate(width: int) -> float:
    """The peak learning rate for a hidden size.

    Wide models were fine-tuned at 5e-5 (768; Devlin 2018, appendix A.3) and at 2e-5 to 5e-5 (1,024), narrow ones at
    3e-4 (256; Clark 2020, appendix B); MiniLM with 384 does better at 1.5e-4 than at 5e-5 (docs/LOG.md).
    """
    return min(5e-5 * (768 / width) ** 1.5, 5e-4)


# Of the learning rate for all weights, tried on SST-2 and STS-B with MiniLM (docs/LOG.md).
ADAPTER_RATES: dict[Kind, float] = {"lora": 7.0, "bitfit": 14.0}
