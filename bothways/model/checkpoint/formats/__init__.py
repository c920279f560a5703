"""The formats of checkpoints, by the model_type of config.json; any other is a family's, in the Hugging Face layout.

A format whose files are also the family's keeps its model_type, and has its own name in bothways_format. A
new format is one file here and one entry in FORMATS. A format is imported when a directory has it, or to save.
Adapters stand first, as any model may have one; their folder, model/adapters, is known here by these names alone.
"""

from typing import TYPE_CHECKING

from bothways.base.registry import Registry
from bothways.model.checkpoint.directory import STATIC
from bothways.model.checkpoint.formats.format import Format
from bothways.model.checkpoint.formats.hugging_face import HUGGING_FACE

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint

FORMATS = Registry[type[Format]](
    "format",
    "bothways.formats",
    {
        "bothways-adapter": "bothways.model.adapters.formats:AdapterFormat",
        "peft": "bothways.model.adapters.formats:PeftFormat",
        "bothways-int8": "bothways.model.checkpoint.formats.int8:Int8Format",
        "bothways-pruned": "bothways.model.checkpoint.formats.pruned:PrunedFormat",
        "bothways-mean-layer": "bothways.model.checkpoint.formats.mean_layer:MeanLayerFormat",
        "bothways-static": "bothways.model.checkpoint.formats.static:TrainedStaticFormat",
        "bothways-linear": "bothways.model.checkpoint.formats.linear:LinearFormat",
        "bothways-packed": "bothways.model.checkpoint.formats.packed:PackedFormat",
        STATIC: "bothways.model.checkpoint.formats.static:StaticFormat",
        "bothways-tfidf": "bothways.model.checkpoint.formats.tfidf:TfidfFormat",
    },
)


def format_of(checkpoint: "Checkpoint") -> Format:
    """The format in which a checkpoint is saved: the first that holds it."""
    for kind in FORMATS.values():
        form = kind()
        if form.holds(checkpoint):
            return form
    return HUGGING_FACE
