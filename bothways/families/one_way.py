"""One-way BERT: left to right (Radford 2018), or two one-way halves concatenated (Peters 2018).

No other library has these models, so their model_type is our own.
"""

from collections.abc import Mapping
from dataclasses import replace

from bothways.families.bert import BERT, FIELDS, LAYERS
from bothways.families.spec import FamilySpec

UNSUPPORTED_HEADS = {"next_sentence", "spans"}  # they read [CLS], which attends to nothing before it


def backward_names(names: Mapping[str, str | tuple[str, ...]]) -> dict[str, str | tuple[str, ...]]:
    """The names of the backward layers."""

    def renamed(name: str) -> str:
        return name.replace("encoder.layer.", "encoder.back.")

    return {
        f"back.{module}": renamed(hf_name) if isinstance(hf_name, str) else tuple(map(renamed, hf_name))
        for module, hf_name in names.items()
    }


ONE_WAY: FamilySpec = replace(
    BERT,
    model_type="bothways-oneway",
    pairs="none",
    config_keys={**FIELDS, "direction": "direction", "embedding_size": "embedding_size"},
    parameter_names={**BERT.parameter_names, **backward_names(LAYERS)},
    head_names={name: table for name, table in BERT.head_names.items() if name not in UNSUPPORTED_HEADS},
    architectures={
        heads: name.replace("Bert", "BothwaysOneWay")
        for heads, name in BERT.architectures.items()
        if not heads & UNSUPPORTED_HEADS
    },
)
