"""Settings: a frozen dataclass per verb, which also defines the command-line options. No torch."""

from bothways.settings.base import (
    BOUNDS,
    Dtype,
    Encoded,
    Family,
    Size,
    TagColumns,
    TextColumns,
    TrainingDtype,
)
from bothways.settings.deploy import Bench, Export, Pack, Quantize, Unpack
from bothways.settings.distill import Distill
from bothways.settings.evaluate import Evaluate
from bothways.settings.finetune import (
    Answer,
    Classify,
    FineTune,
    Glue,
    Grouped,
    Recipe,
    Regress,
    Tag,
    TextPooling,
    TrainEmbed,
)
from bothways.settings.predict import Embed, Fill, Predict
from bothways.settings.pretrain import Pretrain, TextTraining
from bothways.settings.search import Index, Search
from bothways.settings.serve import Serve
from bothways.settings.tools import Cache, Demo, Info
from bothways.settings.vocab import Vocab

__all__ = [
    "BOUNDS",
    "Answer",
    "Bench",
    "Cache",
    "Classify",
    "Demo",
    "Distill",
    "Dtype",
    "Embed",
    "Encoded",
    "Evaluate",
    "Export",
    "Family",
    "Fill",
    "FineTune",
    "Glue",
    "Grouped",
    "Index",
    "Info",
    "Pack",
    "Predict",
    "Pretrain",
    "Quantize",
    "Recipe",
    "Regress",
    "Search",
    "Serve",
    "Size",
    "Tag",
    "TagColumns",
    "TextColumns",
    "TextPooling",
    "TextTraining",
    "TrainEmbed",
    "TrainingDtype",
    "Unpack",
    "Vocab",
]
