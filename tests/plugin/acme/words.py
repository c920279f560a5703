"""A backend: a text is the sum of the vectors of its words."""

import json

import numpy as np

from bothways.base.errors import InputError
from bothways.inference.backends.backend import Backend
from bothways.model.checkpoint.description import Description


class WordsBackend(Backend):
    def __init__(self, directory, **options):
        self.words = json.loads((directory.path / "words.json").read_text(encoding="utf-8"))
        self.description = Description(model_type="acme-words", pooling="mean")
        self.heads = {}
        self.device = "cpu"
        self.dtype = "float32"

    def refusal(self):
        return InputError("a table of word vectors; it has embed only")

    def facts(self):
        return {"model": f"{len(self.words)} word vectors"}

    def save(self, target):
        raise self.refusal()

    def text_vectors(self, texts, pooling, options):
        zero = np.zeros(3, np.float32)
        return np.stack(
            [sum((np.float32(self.words.get(word, zero)) for word in text.split()), zero) for text in texts]
        )
