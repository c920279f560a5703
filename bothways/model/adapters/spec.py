"""Specification of an adapter: kind, sizes, supported models, and JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from bothways.base.errors import InputError, flag
from bothways.model.config import EncoderConfig

Kind = Literal["lora", "bitfit"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LARGEST = 1024  # rank, in settings and in files


@dataclass(frozen=True)
class AdapterSpec:
    """An adapter without its weights.

    rank, alpha: of LoRA, whose change of a weight is alpha / rank * B A. base: where the model is that it belongs to.
    fingerprint: of that model's encoder.
    """

    kind: Kind
    rank: int = 8
    alpha: float = 16.0
    base: str = ""
    fingerprint: str = ""

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    def to_json(self) -> dict[str, Any]:
        """The fields that this kind has; the base has a place of its own."""
        names = ("kind", *(("rank", "alpha") if self.kind == "lora" else ()), "fingerprint")
        return {name: value for name, value in asdict(self).items() if name in names}

    @staticmethod
    def from_json(values: Mapping[str, Any], base: str, source: object) -> "AdapterSpec":
        """InputError, naming the source, for values of the wrong type."""
        try:
            known = {name: values[name] for name in AdapterSpec.__annotations__ if name in values}
            spec = AdapterSpec(**{**known, "base": base})
            is_valid = spec.kind in KINDS and isinstance(spec.rank, int) and 0 < spec.rank <= LARGEST
            if is_valid and isinstance(spec.alpha, int | float) and isinstance(spec.fingerprint, str):
                return spec
        except TypeError:
            pass
        raise InputError(f"{source}: adapter ({dict(values)!s:.200}) is broken; save or download it again")


def check_supported(spec: AdapterSpec, config: EncoderConfig, model_type: str) -> None:
    """InputError if a model cannot have an adapter of this kind."""

    def refuse(reason: str, instead: str) -> InputError:
        return InputError(f"adapter ({spec.kind}) is not supported for {model_type}: {reason}; {instead}")

    if config.relative_positions:
        raise refuse("its attention reads the projections in two ways", f"fine-tune without {flag('adapter')}")
    if spec.kind == "bitfit" and not config.linear_bias:
        raise refuse("it has no biases", f"use {flag('adapter', 'lora')}")
