"""Settings: a frozen dataclass per verb, which also defines the command-line options. No torch.

A module is imported when a name of it is first used, so that a command loads only its own settings.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from bothways.settings.compress import Prune, Shrink
    from bothways.settings.deploy import Bench, Export, Merge, Pack, Quantize, Unpack
    from bothways.settings.distill import Distill
    from bothways.settings.evaluate import Evaluate
    from bothways.settings.finetune import (
        Adapters,
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
    from bothways.settings.search import Extract, Index, Mcp, Search
    from bothways.settings.serve import Serve
    from bothways.settings.tools import Cache, Demo, Info
    from bothways.settings.vocab import Vocab

__all__ = [
    "BOUNDS",
    "Adapters",
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
    "Extract",
    "Family",
    "Fill",
    "FineTune",
    "Glue",
    "Grouped",
    "Index",
    "Info",
    "Mcp",
    "Merge",
    "Pack",
    "Predict",
    "Pretrain",
    "Prune",
    "Quantize",
    "Recipe",
    "Regress",
    "Search",
    "Serve",
    "Shrink",
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
_MODULES = {
    "BOUNDS": "base",
    "Adapters": "finetune",
    "Answer": "finetune",
    "Bench": "deploy",
    "Cache": "tools",
    "Classify": "finetune",
    "Demo": "tools",
    "Distill": "distill",
    "Dtype": "base",
    "Embed": "predict",
    "Encoded": "base",
    "Evaluate": "evaluate",
    "Export": "deploy",
    "Extract": "search",
    "Family": "base",
    "Fill": "predict",
    "FineTune": "finetune",
    "Glue": "finetune",
    "Grouped": "finetune",
    "Index": "search",
    "Info": "tools",
    "Mcp": "search",
    "Merge": "deploy",
    "Pack": "deploy",
    "Predict": "predict",
    "Pretrain": "pretrain",
    "Prune": "compress",
    "Quantize": "deploy",
    "Recipe": "finetune",
    "Regress": "finetune",
    "Search": "search",
    "Serve": "serve",
    "Shrink": "compress",
    "Size": "base",
    "Tag": "finetune",
    "TagColumns": "base",
    "TextColumns": "base",
    "TextPooling": "finetune",
    "TextTraining": "pretrain",
    "TrainEmbed": "finetune",
    "TrainingDtype": "base",
    "Unpack": "deploy",
    "Vocab": "vocab",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'bothways.settings' has no attribute {name!r}")
    return getattr(import_module(f"bothways.settings.{_MODULES[name]}"), name)
