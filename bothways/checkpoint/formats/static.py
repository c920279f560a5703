"""Static vectors, which have no encoder: a table of vectors and a tokenizer, as model2vec stores them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bothways.checkpoint.formats.format import Format, StoredModel
from bothways.errors import InputError
from bothways.linear.static_vectors import MODEL_TYPE


class StaticFormat(Format):
    model_type = MODEL_TYPE

    def open(self, directory: Path, hf_config: Mapping[str, Any]) -> StoredModel:
        raise InputError(f"{directory}: static vectors, which have no encoder; name an encoder, such as bothways-en")
