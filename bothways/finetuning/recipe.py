"""How a task is trained: epochs, evaluations, learning rates."""

import math
from collections import Counter
from collections.abc import Sequence

from bothways.adapters.spec import Kind
from bothways.errors import format_count
from bothways.log import logger
from bothways.model.model import Model
from bothways.tasks.training_task import EPOCHS, Epoch
from bothways.training.optimizer import layer_depths

MAX_EPOCHS = 20.0  # unless --epochs is given
FEW_TOKENS = 150_000  # one to two minutes for a small model on two cores
EVALUATION_SHARE, EVALUATION_COST = 0.15, 1 / 3  # of the time of training; of a token, relative to a trained one
MIN_EVALUATIONS, MAX_EVALUATIONS = 3, 12  # of a run, unless --evaluations-per-epoch is given


# --- epochs and steps


def num_epochs(epochs: float | None, min_steps: int, epoch: Epoch) -> float:
    """The number of epochs: more for few examples, which need a minimum of steps (Mosbach 2021, section 6), unless they
    are long. epochs: as requested; None: the default. min_steps: of the default; few examples are read more often, as
    long as that takes at most FEW_TOKENS."""
    if epochs is not None:
        return epochs
    wanted, affordable = min_steps / epoch.steps, FEW_TOKENS / epoch.tokens
    return min(MAX_EPOCHS, max(EPOCHS, min(wanted, affordable)))


def num_steps(epochs: float | None, min_steps: int, epoch: Epoch) -> int:
    return max(1, math.ceil(num_epochs(epochs, min_steps, epoch) * epoch.steps))


def log_epochs(epochs: float | None, min_steps: int, epoch: Epoch) -> None:
    """Log the length, if it is not three epochs; as a warning if it is far too short."""
    default_epochs, default_steps = num_epochs(None, min_steps, epoch), num_steps(None, min_steps, epoch)
    if epochs is None:
        if default_epochs > EPOCHS:
            logger.info(
                f"{default_epochs:.3g} epochs of {format_count(epoch.steps, 'step')}, as there are few "
                "examples (--epochs)"
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

    By tokens, which predict the time, and not by a clock: a seed gives the same run everywhere.
    """
    training = steps / epoch.steps * epoch.tokens
    affordable = round(EVALUATION_SHARE * training / (EVALUATION_COST * max(1, dev_tokens)))
    return max(1, steps // min(MAX_EVALUATIONS, max(MIN_EVALUATIONS, affordable)))


# --- learning rates


def default_learning_rate(width: int) -> float:
    """The peak learning rate for a hidden size.

    Wide models were fine-tuned at 5e-5 (768; Devlin 2018, appendix A.3) and at 2e-5 to 5e-5 (1,024), narrow ones at
    3e-4 (256; Clark 2020, appendix B); MiniLM with 384 does better at 1.5e-4 than at 5e-5 (docs/LOG.md).
    """
    return min(5e-5 * (768 / width) ** 1.5, 5e-4)


# Of the learning rate for all weights, tried on SST-2 and STS-B with MiniLM (docs/LOG.md).
ADAPTER_RATES: dict[Kind, float] = {"lora": 7.0, "bottleneck": 7.0, "bitfit": 14.0, "prefix": 70.0, "prompt": 70.0}


def layer_learning_rates(model: Model, peak: float, layer_decay: float) -> list[tuple[str, float, int]]:
    """(name, peak learning rate, number of parameters) from the embeddings to the head; 0 for a frozen block.

    eta_l = eta * layer_decay^(L - l) (Sun 2019, section 5.3).
    """
    depths = layer_depths([name for name, _ in model.named_parameters()])
    top, sizes, trained = max(depths.values()), Counter[int](), set[int]()
    for name, value in model.named_parameters():
        sizes[depths[name]] += value.numel()
        if value.requires_grad:
            trained.add(depths[name])
    num_layers = model.config.num_unique_layers
    names = ["embeddings", *(f"layer {layer}" for layer in range(1, num_layers + 1)), "head"][: top + 1]
    rates = [peak * layer_decay ** (top - depth) for depth in range(top + 1)]
    return [
        (name, rates[depth] if depth in trained else 0.0, sizes[depth])
        for depth, name in enumerate(names)
        if sizes[depth]
    ]


def format_learning_rates(rates: Sequence[tuple[str, float, int]]) -> str:
    rows = [f"  {name:12} {f'{rate:.2e}' if rate else 'frozen'}" for name, rate, _ in rates]
    return "\n".join(["peak learning rates", *rows])
