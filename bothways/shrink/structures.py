"""Structures to cut a model to: layers, heads and neurons, from a share of the weights or step by step."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bothways.base.errors import InputError, flag, format_count
from bothways.model.checkpoint.changes.cut import check_can_cut, cut_config, reason_against_cutting
from bothways.model.config import EncoderConfig
from bothways.shrink.cutting import encoder_weights

WIDTH_STEP = 8  # widths are multiples of it
CUTS = 2  # to the target, if no layers are cut
SHARES = (0.75, 0.5, 0.35, 0.25, 0.15, 0.1)  # to try for --max-drop, if no layers can be cut
NARROWINGS = 1000  # widths between all and none that are tried
ROUNDING = 1e-6  # of shares, such as 0.1 * 30


@dataclass(frozen=True)
class Structure:
    """Sizes of a model: layers, heads and feed-forward neurons of each."""

    layers: int
    heads: int
    width: int

    @staticmethod
    def of(config: EncoderConfig) -> "Structure":
        return Structure(config.num_hidden_layers, config.num_attention_heads, config.intermediate_size)

    def __str__(self) -> str:
        sizes = [
            format_count(self.layers, "layer"),
            format_count(self.heads, "head"),
            format_count(self.width, "neuron"),
        ]
        return ", ".join(sizes)

    def name(self, before: "Structure") -> str:
        """A description of the cut: '3 of 6 layers, 512 of 1,536 neurons'."""
        sizes = [
            (self.layers, before.layers, "layers"),
            (self.heads, before.heads, "heads"),
            (self.width, before.width, "neurons"),
        ]
        changed = [f"{after:,} of {whole:,} {kind}" for after, whole, kind in sizes if after != whole]
        return ", ".join(changed) or str(self)


def choose_parts(parts: tuple[str, ...], config: EncoderConfig, model_type: str) -> tuple[str, ...]:
    """The parts to cut, by default layers and neurons. InputError for a part that cannot be cut."""
    for part in parts or ("feed-forward",):
        check_can_cut(config, model_type, part)
    if parts:
        return parts
    if reason_against_cutting(config, "layers"):
        return ("feed-forward",)
    return ("layers", "feed-forward")


def structure_of_share(config: EncoderConfig, share: float, parts: Sequence[str]) -> Structure:
    """The sizes with this share of the layers' weights.

    config: of the whole model.
    share: from 0 to 1.
    parts: that may be cut.

    InputError if these parts do not have so much.
    """
    structure = Structure.of(config)
    # Layers go first, since they give the most speed: at half of the weights 1.95 times, neurons 1.49 (docs/RESULTS.md,
    # Pruning). The rest is taken from heads and neurons.
    layers = structure.layers
    if "layers" in parts:
        layers = max(1, math.ceil(share * layers - ROUNDING))
    structure = Structure(layers, structure.heads, structure.width)

    rest = share * config.num_hidden_layers / layers
    if rest < 1 - ROUNDING and {"heads", "feed-forward"} & {*parts}:
        structure = narrowed(config, structure, share * encoder_weights(config), parts)

    actual = weights_of(config, structure) / encoder_weights(config)
    if actual > share + 0.5 / config.num_hidden_layers:
        raise InputError(
            f"size ({share:g}) cannot be reached by cutting {' and '.join(parts)}: the least is {actual:.2f}; allow "
            f"more with {flag('parts')}"
        )
    return structure


def narrowed(config: EncoderConfig, structure: Structure, target: float, parts: Sequence[str]) -> Structure:
    """The structure with the most heads and neurons whose weights are at most the target, or with the fewest."""
    heads = structure.heads
    width = structure.width
    for step in range(1, NARROWINGS + 1):
        share = 1 - step / NARROWINGS
        if "heads" in parts:
            heads = max(1, round(share * config.num_attention_heads))
        if "feed-forward" in parts:
            width = max(WIDTH_STEP, round(share * config.intermediate_size / WIDTH_STEP) * WIDTH_STEP)
        if weights_of(config, Structure(structure.layers, heads, width)) <= target:
            break
    return Structure(structure.layers, heads, width)


def weights_of(config: EncoderConfig, structure: Structure) -> int:
    return encoder_weights(cut_config(config, structure.layers, structure.heads, structure.width))


def structures_to(start: EncoderConfig, target: Structure, cuts: int | None) -> Iterator[Structure]:
    """The structures on the way to the target.

    start: sizes of the whole model.
    target: the last structure.
    cuts: number of structures; by default one for each layer that is cut.
    """
    first = Structure.of(start)
    num_cuts = cuts
    if not num_cuts:
        num_cuts = first.layers - target.layers if target.layers < first.layers else CUTS

    for step in range(1, num_cuts):
        done = step / num_cuts
        width = between(first.width, target.width, done, WIDTH_STEP)
        yield Structure(
            layers=between(first.layers, target.layers, done),
            heads=between(first.heads, target.heads, done),
            width=width,
        )
    yield target


def between(before: int, after: int, done: float, multiple: int = 1) -> int:
    """A size on the way from one to another, not below the last. done: share of the way."""
    size = before + (after - before) * done
    return max(after, round(size / multiple) * multiple)


def smaller_and_smaller(config: EncoderConfig, parts: Sequence[str]) -> Iterator[Structure]:
    """Structures of fewer and fewer layers, or neurons if these parts have no layers."""
    layers = config.num_hidden_layers
    if "layers" in parts:
        shares: Sequence[float] = [count / layers for count in range(layers - 1, 0, -1)]
    else:
        shares = SHARES
    for share in shares:
        yield structure_of_share(config, share, parts)
