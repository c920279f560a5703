"""Specification of an adapter: kind, sizes, supported models, and JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from bothways.errors import InputError, flag
from bothways.model.config import EncoderConfig

Kind = Literal["lora", "bottleneck", "bitfit", "prefix", "prompt"]
LoraMap = Literal["query", "key", "value", "attention-output", "inner", "output"]
Places = Literal["both", "feed-forward"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LORA_MAPS: tuple[LoraMap, ...] = get_args(LoraMap)
QKV = "query", "key", "value"
MERGEABLE = "lora", "bitfit"  # kinds that change weights the model has already
ROWS = "prefix", "prompt"  # kinds that add rows to each text
LARGEST = 1024  # rank, width or number of rows, in settings and in files
BOTTLENECK_SHARE = 8  # hidden size divided by the default width of a bottleneck


@dataclass(frozen=True)
class AdapterSpec:
    """An adapter without its weights.

    rank, alpha: of LoRA, whose change of a weight is alpha / rank * B A. maps: the linear maps that LoRA changes. size:
    width of a bottleneck. places: of bottlenecks, behind attention and feed-forward or behind feed-forward only. rows:
    number of rows that are added to each text. base: where the model is that it belongs to. fingerprint: of that
    model's encoder.
    """

    kind: Kind
    rank: int = 8
    alpha: float = 16.0
    maps: tuple[LoraMap, ...] = LORA_MAPS
    size: int = 0
    places: Places = "both"
    rows: int = 16
    base: str = ""
    fingerprint: str = ""

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    @property
    def is_mergeable(self) -> bool:
        """Whether the model can have the adapter's effect without it."""
        return self.kind in MERGEABLE

    def to_json(self) -> dict[str, Any]:
        """The fields that this kind has; the base has a place of its own."""
        fields = {"lora": ("rank", "alpha", "maps"), "bottleneck": ("size", "places")}
        names = ("kind", *fields.get(self.kind, ("rows",) if self.kind in ROWS else ()), "fingerprint")
        return {name: value for name, value in asdict(self).items() if name in names}

    @staticmethod
    def from_json(values: Mapping[str, Any], base: str, source: object) -> "AdapterSpec":
        """InputError, naming the source, for values of the wrong type."""
        try:
            known = {name: values[name] for name in AdapterSpec.__annotations__ if name in values}
            spec = AdapterSpec(**{**known, "maps": tuple(known.get("maps", LORA_MAPS)), "base": base})
            numbers = spec.rank, spec.size, spec.rows
            is_valid = spec.kind in KINDS and {*spec.maps} <= {*LORA_MAPS} and spec.places in get_args(Places)
            is_valid = is_valid and all(isinstance(number, int) and 0 <= number <= LARGEST for number in numbers)
            if is_valid and spec.rank and isinstance(spec.alpha, int | float) and isinstance(spec.fingerprint, str):
                return spec
        except TypeError:
            pass
        raise InputError(f"{source}: adapter ({dict(values)!s:.200}) is broken; save or download it again")


def check_supported(spec: AdapterSpec, config: EncoderConfig, model_type: str) -> None:
    """InputError if a model cannot have an adapter of this kind."""

    def refuse(reason: str, instead: str) -> InputError:
        return InputError(f"adapter ({spec.kind}) is not supported for {model_type}: {reason}; {instead}")

    if config.relative_positions:
        raise refuse("its attention reads the projections in two ways", f"fine-tune with {flag('freeze')}")
    has_windows = config.full_attention_every > 1 or config.sparse_attention is not None
    if spec.kind in ROWS and (config.position_embedding != "learned" or has_windows or config.direction != "both"):
        raise refuse(
            "added rows need attention over the whole text and learned positions", f"use {flag('adapter', 'lora')}"
        )
    if spec.kind == "bitfit" and not config.linear_bias:
        raise refuse("it has no biases", f"use {flag('adapter', 'lora')}")
