"""Shrinking: the fastest or smallest form of a fine-tuned model within a stated loss, of all that are measured.

`model -cut and trained, layer by layer-> each in float and in int8 -> the best within the loss`
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from bothways.checkpoint.contents import Checkpoint
from bothways.compression.candidates import Candidate, Choice, Measured, Rule
from bothways.compression.prune import UNCHANGED, PruningPlan, candidate, cuts, keep_best, plan
from bothways.evaluation.before_after import spread_evenly
from bothways.log import working
from bothways.model.int8 import replace_linears
from bothways.model.int8_training import CALIBRATION_EXAMPLES, calibrate, read_examples
from bothways.settings.compress import Shrink


def cuts_and_int8(plan: PruningPlan, measured: Sequence[Measured]) -> Iterator[Candidate]:
    """The unchanged model and smaller ones, each in float and in int8, until one loses too much; last, the smallest
    that does not, trained for int8, if int8 alone loses too much."""
    untrained: Candidate | None = None
    for one in cuts(plan, measured):
        yield one
        if not plan.rule.allows(measured[-1]):
            break
        name = "all layers" if one.name == UNCHANGED else one.name
        yield candidate(f"{name}, int8", in_int8(plan, one.checkpoint))
        untrained = None if plan.rule.allows(measured[-1]) else replace(one, name=name)
    if untrained:
        trained = plan.train(len(plan.targets) + 1, untrained.checkpoint, quantize="int8")
        yield candidate(f"{untrained.name}, trained for int8", trained)


def in_int8(plan: PruningPlan, source: Checkpoint) -> Checkpoint:
    """All layers in int8, calibrated on training texts."""
    model, examples = source.model.float().eval(), plan.task.data["train"]
    rows = spread_evenly(range(len(examples.sizes)), CALIBRATION_EXAMPLES)
    layers = calibrate(model, partial(read_examples, model, plan.task.objective.forward, examples, rows))
    return replace(source, model=replace_linears(model, {name: one.linear for name, one in layers.items()}))


@working("shrink")
def run(settings: Shrink) -> Choice:
    """Measure the forms of a model, and write the best and a picture."""
    pruning = plan(settings.pruning)
    rule = Rule(settings.max_drop, settings.best)
    return keep_best("shrink", settings, replace(pruning, start=pruning.original, rule=rule))
