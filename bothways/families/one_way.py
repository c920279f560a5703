"""BERT that looks one way: ahead only (Radford 2018), or in two halves that are joined (Peters 2018). No other library
has them, so their type is our own."""

from collections.abc import Mapping
from dataclasses import replace

from bothways.families.bert import BERT, FIELDS, LAYERS
from bothways.families.spec import FamilySpec

LEFT_OUT = {"next_sentence", "spans"}  # "no answer" stands at [CLS], which has seen nothing


def back(names: Mapping[str, str | tuple[str, ...]]) -> dict[str, str | tuple[str, ...]]:
    """The same layers a second time."""

    def renamed(name: str) -> str:
        return name.replace("encoder.layer.", "encoder.back.")

    return {
        f"back.{ours}": renamed(one) if isinstance(one, str) else tuple(map(renamed, one))
        for ours, one in names.items()
    }


ONE_WAY: FamilySpec = replace(
    BERT,
    model_type="bothways-oneway",
    pairs="none",
    config_keys={**FIELDS, "direction": "direction", "embedding_size": "embedding_size"},
    parameter_names={**BERT.parameter_names, **back(LAYERS)},
    head_names={name: table for name, table in BERT.head_names.items() if name not in LEFT_OUT},
    architectures={
        heads: name.replace("Bert", "BothwaysOneWay")
        for heads, name in BERT.architectures.items() if not heads & LEFT_OUT
    },
)  # fmt: skip
