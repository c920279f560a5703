"""Settings of `prune` and `shrink`."""

from dataclasses import fields
from typing import Literal

from bothways.errors import InputError
from bothways.settings.base import Checked, Compute, Data, OptionalData, Printed, TextColumns, settings
from bothways.settings.fields import Location, Locations, Several, argument, option

TARGETS = "size", "speed", "max_drop"


@settings
class Prune(TextColumns, Checked, Compute, Printed):
    """Prune a fine-tuned model: fewer layers, heads, feed-forward neurons or vocabulary entries, in steps with training
    between, in which the model as it was is the teacher."""

    model: Location = argument("DIR")
    """A fine-tuned model: a checkpoint or a run."""
    texts: Data = option("data", flag="--with")
    """Labelled data to train on, such as that of the fine-tuning; dev and test are split off it, unless given."""
    out: Location = option("output", aliases=("-o",))
    """Output directory."""
    size: float | None = option("model", default=None, least=0.01, most=0.99, first=True)
    """Target: this share of the weights of the layers, such as 0.5."""
    speed: float | None = option("task", default=None, least=1.01, most=100, first=True)
    """Target: this many times as fast, such as 2."""
    max_drop: float | None = option("evaluation", default=None, least=0, first=True)
    """Target: as small as possible with at most this drop of the score, in percentage points."""
    parts: Several[Literal["layers", "feed-forward", "heads"]] = option("task", default=(), first=True)
    """What may be cut. [layers as far as possible, then feed-forward neurons; only these where layers differ]"""
    vocabulary_from: Locations = option("model", default=(), metavar="FILE", first=True)
    """Keep only the vocabulary entries that these texts and those of --with need; other words are split smaller."""
    cuts: int | None = option("task", default=None, least=1, most=100)
    """Number of cuts to the target, with training after each. [one for each layer; else 2]"""
    dev: OptionalData = option("data", default=None, first=True)
    """Data for the selection of weights. [a tenth of --with]"""
    test: OptionalData = option("data", default=None, first=True)
    """Data for the reported score. [without --dev, a tenth of --with]"""
    alpha: float = option("task", default=0.5, least=0, most=1)
    """Weight of the teacher's outputs in the loss, from 0 to 1; the labels have the rest."""
    epochs: float | None = option("training", default=None, least=0.001, first=True)
    """Passes over the training data after the last cut; after the others a third of them. [as in fine-tuning]"""
    seed: int = option("training", default=0, least=0, most=2**63 - 1)
    """Random seed."""
    resume: bool = option("output", default=False, first=True)
    """Continue in the output directory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        targets = [name for name in TARGETS if getattr(self, name) is not None]
        if len(targets) > 1:
            raise InputError(f"{targets[0]} and {targets[1]} exclude each other; name one target")
        if not targets and not self.vocabulary_from:
            raise InputError("prune needs a target: size, speed, max_drop or vocabulary_from")


@settings
class Shrink(TextColumns, Checked, Compute, Printed):
    """Shrink a fine-tuned model: cut it layer by layer with training between, each also in int8, and keep the fastest
    that loses no more than allowed. Writes a picture of quality against speed."""

    model: Location = argument("DIR")
    """A fine-tuned model: a checkpoint or a run."""
    texts: Data = option("data", flag="--with")
    """Labelled data to train on, such as that of the fine-tuning; dev and test are split off it, unless given."""
    out: Location = option("output", aliases=("-o",))
    """Output directory."""
    max_drop: float = option("evaluation", default=1.0, least=0, first=True)
    """Largest allowed drop of the score on dev, in percentage points."""
    best: Literal["speed", "size"] = option("task", default="speed", first=True)
    """Which of the models within the drop is kept: the fastest or the smallest."""
    dev: OptionalData = option("data", default=None, first=True)
    """Data for the selection of weights, and of the model. [a tenth of --with]"""
    test: OptionalData = option("data", default=None, first=True)
    """Data for the reported score. [without --dev, a tenth of --with]"""
    alpha: float = option("task", default=0.5, least=0, most=1)
    """Weight of the teacher's outputs in the loss, from 0 to 1; the labels have the rest."""
    epochs: float | None = option("training", default=None, least=0.001, first=True)
    """Passes over the training data after each cut. [as in fine-tuning]"""
    seed: int = option("training", default=0, least=0, most=2**63 - 1)
    """Random seed."""
    resume: bool = option("output", default=False, first=True)
    """Continue in the output directory."""

    @property
    def pruning(self) -> Prune:
        """The settings of its cuts."""
        shared = {field.name for field in fields(Shrink)} & {field.name for field in fields(Prune)}
        return Prune(**{name: getattr(self, name) for name in shared})
