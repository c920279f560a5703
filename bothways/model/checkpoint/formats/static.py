"""Static vectors: a directory of model2vec, or a model with a head on them, which Bothways has trained."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bothways.base.errors import InputError
from bothways.model.checkpoint.description import CONFIG
from bothways.model.checkpoint.directory import STATIC, Directory
from bothways.model.checkpoint.formats.format import Format, StoredModel
from bothways.model.checkpoint.formats.hugging_face import LayoutFormat, hf_state_dict
from bothways.model.checkpoint.weights import WEIGHTS, Array, read_weights, write_floats
from bothways.model.config import NO_POOLER
from bothways.model.families import FAMILIES
from bothways.model.linear.static_vectors import StaticVectors, read_static
from bothways.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from bothways.model.checkpoint.contents import Checkpoint

FAMILY = "static"


class StaticFormat(Format):
    """Static vectors as model2vec and sentence-transformers store them, which only embed texts."""

    model_type = STATIC

    def open(self, directory: Directory) -> StoredModel:
        vectors = read_static(directory.path)
        if not isinstance(vectors.tokenizer, Tokenizer):
            raise InputError(
                f"{directory.path}: its tokenizer has no [CLS] and [SEP], which training needs; use vectors that keep "
                "them, such as bothways-en-static or those of distill --static"
            )

        num_entries, size = vectors.table.shape
        return StoredModel(
            {
                "model_type": FAMILY,
                "vocab_size": num_entries,
                "hidden_size": size,
                "num_hidden_layers": 0,
                "pad_token_id": vectors.tokenizer.pad_id,
            },
            lambda _: _arrays(vectors),
            normalized=vectors.normalize,
            pooling="mean",
            tokenizer=vectors.tokenizer,
        )


def _arrays(vectors: StaticVectors) -> Mapping[str, Array]:
    """The arrays of static vectors by the names of their family."""
    counts_V = np.ones(len(vectors.tokenizer), np.float32)
    counts_V[vectors.unknown] = 0
    counts_V[[vectors.tokenizer.cls_id, vectors.tokenizer.sep_id]] = 0
    return {"embedding.weight": vectors.table.whole, "counts": counts_V}


class TrainedStaticFormat(LayoutFormat):
    """A head on static vectors, and their table."""

    model_type = "bothways-static"
    stores_pooling = False  # sentence-transformers has no such encoder

    def open(self, directory: Directory) -> StoredModel:
        config = {**directory.config}
        config.pop("bothways_format", None)
        act = config.pop("pooler_act", "none")
        if act not in NO_POOLER:
            raise InputError(f"{directory.path / CONFIG}: pooler_act {act!r:.60} is not supported; fine-tune again")
        return StoredModel(
            config,
            lambda _: read_weights(directory),
            pooler_act=act,
            normalized=act != "none",
            pooling="mean",
        )

    def holds(self, checkpoint: "Checkpoint") -> bool:
        return checkpoint.model_type == FAMILY

    def write(self, checkpoint: "Checkpoint", directory: "Path", hf_config: dict[str, Any]) -> dict[str, Any]:
        write_floats(hf_state_dict(checkpoint.model, FAMILIES[FAMILY], ""), directory / WEIGHTS)
        return {
            **hf_config,
            "bothways_format": self.model_type,
            "pooler_act": checkpoint.model.config.pooler_act,
        }
