"""The formats of checkpoints, by the model_type of config.json; any other is a family's, in the Hugging Face layout.

A format whose files are also those of the family keeps its model_type, and has its own name in bothways_format. A
new format is one file here and one entry in FORMATS.
"""

from collections.abc import Mapping
from typing import Any

from bothways.checkpoint.contents import Checkpoint
from bothways.checkpoint.formats.cloze import ClozeFormat
from bothways.checkpoint.formats.format import Format
from bothways.checkpoint.formats.hugging_face import HUGGING_FACE
from bothways.checkpoint.formats.int8 import Int8Format
from bothways.checkpoint.formats.linear import LinearFormat
from bothways.checkpoint.formats.mean_layer import MeanLayerFormat
from bothways.checkpoint.formats.packed import PackedFormat
from bothways.checkpoint.formats.pruned import PrunedFormat
from bothways.checkpoint.formats.static import StaticFormat
from bothways.checkpoint.formats.tfidf import TfidfFormat

FORMATS: dict[str, Format] = {
    entry.model_type: entry
    for entry in (
        Int8Format(),
        ClozeFormat(),
        PrunedFormat(),
        MeanLayerFormat(),
        LinearFormat(),
        PackedFormat(),
        StaticFormat(),
        TfidfFormat(),
    )
}


def detect(hf_config: Mapping[str, Any]) -> Format:
    """The format of a directory whose config.json has this content."""
    return FORMATS.get(str(hf_config.get("bothways_format", hf_config.get("model_type"))), HUGGING_FACE)


def format_of(checkpoint: Checkpoint) -> Format:
    """The format in which a checkpoint is saved: the first that holds it."""
    return next((entry for entry in FORMATS.values() if entry.holds(checkpoint)), HUGGING_FACE)
