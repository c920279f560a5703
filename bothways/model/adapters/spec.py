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

    rank: of LoRA, whose change of a weight is alpha / rank * B A.
    alpha: of LoRA.
    base: where the model is that the adapter belongs to.
    fingerprint: of the encoder of that model.
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
        fields = asdict(self)
        del fields["base"]
        if self.kind != "lora":
            del fields["rank"]
            del fields["alpha"]
        return fields

    @staticmethod
    def from_json(values: Mapping[str, Any], base: str, source: object) -> "AdapterSpec":
        """InputError, naming the source, for values of the wrong type."""
        try:
            fields = {name: values[name] for name in AdapterSpec.__annotations__ if name in values}
            spec = AdapterSpec(**{**fields, "base": base})
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
