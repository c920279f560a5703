"""Predictor for linear models over TF-IDF, with saving and loading."""

import json
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import numpy as np
import torch
from safetensors.numpy import load_file
from torch import Tensor

from bothways.checkpoint.checkpoint import CONFIG, METADATA_FILE, MULTI_LABEL, TFIDF, Checkpoint
from bothways.checkpoint.metadata import read_metadata
from bothways.checkpoint.weights import write_weights
from bothways.errors import InputError
from bothways.inference.base import ReadOptions
from bothways.inference.predictor import Predictor
from bothways.inference.text_scores import MAX_SCORES
from bothways.inference.windows import WindowPolicy
from bothways.io import atomic_directory, write_json
from bothways.linear.tfidf import Tfidf, TfidfModel
from bothways.tokenizer.files import read_json

TERMS, WEIGHTS = "terms.json", "tfidf.safetensors"


class TfidfPredictor(Predictor):
    """A linear model over TF-IDF features, with `classify` or `regress`. It does not split texts into windows."""

    def __init__(self, directory: Path, *, window: int | None = None) -> None:
        if window:
            raise InputError(f"window ({window}) is for models that read tokens; TF-IDF models read whole texts")
        config, metadata = read_json(directory / CONFIG), read_metadata(directory / METADATA_FILE)
        self.model = _read(directory, float(config["strength"]))
        labels = tuple(map(str, (config.get("id2label") or {}).values()))
        if len(self.model.bias_C) != max(1, len(labels)):
            raise InputError(f"{directory / CONFIG}: id2label does not belong to {WEIGHTS}; fine-tune again")
        # The attributes of Model that the methods of Predictor use.
        self.module = cast(Any, SimpleNamespace(num_outputs={"classes": len(self.model.bias_C)}))
        is_multi_label = config.get("problem_type") == MULTI_LABEL
        self.checkpoint = Checkpoint(
            self.module, model_type=TFIDF, labels=labels, multi_label=is_multi_label, metadata=metadata
        )
        self.device, self.dtype, self.window_policy = torch.device("cpu"), torch.float64, WindowPolicy()
        self._set_up()

    def save(self, path: str | PathLike[str]) -> None:
        save(self.model, Path(path), self.checkpoint)

    def _text_scores(
        self, head: str, texts: Sequence[str], pairs: Sequence[str] | None, options: ReadOptions
    ) -> Iterator[Tensor]:
        num_outputs = len(self.model.bias_C)
        if not texts and not pairs:
            yield torch.zeros(0, num_outputs)
            return
        self.check_pairs(pairs is not None, "the call")
        step = max(1, MAX_SCORES // num_outputs)
        for start in range(0, max(1, len(texts)), step):
            part = slice(start, start + step)
            scores_NC = self.model(texts[part], None if pairs is None else pairs[part])
            yield torch.from_numpy(scores_NC).float()

    def _encode(self, *arguments: object) -> NoReturn:
        raise InputError("a TF-IDF model has no text vectors; it predicts labels or numbers")


def save(model: TfidfModel, target: Path, described: Checkpoint) -> None:
    """Write a TF-IDF model. described: a checkpoint with its labels and metadata."""
    with atomic_directory(target) as directory:
        kind = (
            MULTI_LABEL
            if described.multi_label
            else "single_label_classification"
            if described.labels
            else "regression"
        )
        names = {str(index): name for index, name in enumerate(described.labels)}
        config = {"model_type": TFIDF, "problem_type": kind, "id2label": names, "strength": model.strength}
        write_json(directory / CONFIG, config)
        terms = {"words": [*model.tfidf.words], "characters": [*model.tfidf.characters]}
        (directory / TERMS).write_text(json.dumps(terms), encoding="utf-8")
        weights = {"idf": model.tfidf.idf_F, "weight": model.weight_CF, "bias": model.bias_C}
        write_weights({name: torch.from_numpy(value).float() for name, value in weights.items()}, directory / WEIGHTS)
        write_json(directory / METADATA_FILE, {"format": 1, **described.metadata})


def _read(directory: Path, strength: float) -> TfidfModel:
    """InputError if terms and weights do not belong together."""
    terms, file = read_json(directory / TERMS), directory / WEIGHTS
    weights: Mapping[str, np.ndarray] = load_file(file)
    words, characters = ({term: index for index, term in enumerate(terms[name])} for name in ("words", "characters"))
    size = len(words) + len(characters)
    num_outputs, num_features = weights["weight"].shape
    if (
        weights["idf"].shape != (size,)
        or weights["bias"].shape != (num_outputs,)
        or num_features not in (size, 4 * size + 2)
    ):
        raise InputError(f"{file}: does not belong to {TERMS}; fine-tune again")
    return TfidfModel(Tfidf(words, characters, weights["idf"]), weights["weight"], weights["bias"], strength)
