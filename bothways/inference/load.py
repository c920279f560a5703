"""`bothways.load`: a model at work from a directory, be it a checkpoint, a run, or a linear model over TF-IDF that a
fine-tuning run has saved because it was better."""

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

from bothways.checkpoint.checkpoint import CONFIG, METADATA_FILE, MULTI_LABEL, Checkpoint
from bothways.checkpoint.metadata import read_metadata
from bothways.checkpoint.weights import write_weights
from bothways.errors import InputError
from bothways.inference import predictor
from bothways.inference.predictor import SCORES, Predictor
from bothways.inference.windows import Long
from bothways.inputs import read_texts
from bothways.io import atomic_directory, write_json
from bothways.linear.tfidf import Tfidf, TfidfModel
from bothways.tokenizer.files import read_json

KIND, TERMS, NUMBERS = "bothways-tfidf", "terms.json", "tfidf.safetensors"


def load(path: str | PathLike[str], dtype: str = "auto", device: str = "auto") -> Predictor:
    """A Predictor from a checkpoint directory in the Hugging Face layout, from a run, or from a model over TF-IDF.

    dtype auto: bf16 where the processor is fast at it, else float32; "float32" is exact. A model over TF-IDF computes
    on the processor in float64 whatever they are.
    """
    config = Path(path) / CONFIG
    if config.is_file() and read_json(config).get("model_type") == KIND:
        return TfidfPredictor(Path(path))
    return predictor.load(path, dtype, device)


class TfidfPredictor(Predictor):
    """A linear model over TF-IDF at work: `classify` or `score`. It reads texts whole."""

    def __init__(self, directory: Path) -> None:
        config, made = read_json(directory / CONFIG), read_metadata(directory / METADATA_FILE)
        self.model = _read(directory, float(config["strength"]))
        labels = tuple(map(str, (config.get("id2label") or {}).values()))
        if len(self.model.bias_C) != max(1, len(labels)):
            raise InputError(f"{directory / CONFIG}: id2label does not belong to {NUMBERS}; fine-tune again")
        # What a Predictor asks of its module.
        self.module = cast(Any, SimpleNamespace(num_outputs={"classes": len(self.model.bias_C)}))
        several = config.get("problem_type") == MULTI_LABEL
        self.checkpoint = Checkpoint(self.module, model_type=KIND, labels=labels, multi_label=several, metadata=made)
        self.device, self.dtype, self.truncated_texts = torch.device("cpu"), torch.float64, 0

    def read_in(self, window: int | None) -> None:
        if window:
            raise InputError(f"window ({window}) is for models that read tokens; one over TF-IDF reads texts whole")

    def save(self, path: str | PathLike[str]) -> None:
        save(self.model, Path(path), self.checkpoint)

    def _text_scores(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None,
        long: Long | None,
        window: int | None,
        overlap: int | None,
    ) -> Iterator[Tensor]:
        firsts, seconds = read_texts("texts", texts), None if pairs is None else read_texts("pairs", pairs)
        self.refuse_other_texts(seconds is not None, "the call")
        step = max(1, SCORES // len(self.model.bias_C))
        for begin in range(0, max(1, len(firsts)), step):
            part = slice(begin, begin + step)
            yield torch.from_numpy(self.model(firsts[part], None if seconds is None else seconds[part])).float()

    def _windows(self, *given: object) -> NoReturn:
        raise InputError("a model over TF-IDF has no vectors of texts; it gives labels or numbers")


def save(model: TfidfModel, target: Path, described: Checkpoint) -> None:
    """Write a model over TF-IDF. described: its labels, and how it came to be."""
    with atomic_directory(target) as beside:
        kind = (
            MULTI_LABEL
            if described.multi_label
            else "single_label_classification"
            if described.labels
            else "regression"
        )
        names = {str(place): name for place, name in enumerate(described.labels)}
        write_json(
            beside / CONFIG, {"model_type": KIND, "problem_type": kind, "id2label": names, "strength": model.strength}
        )
        terms = {"words": [*model.tfidf.words], "characters": [*model.tfidf.characters]}
        (beside / TERMS).write_text(json.dumps(terms), encoding="utf-8")
        numbers = {"idf": model.tfidf.idf_F, "weight": model.weight_CF, "bias": model.bias_C}
        write_weights({name: torch.from_numpy(value).float() for name, value in numbers.items()}, beside / NUMBERS)
        write_json(beside / METADATA_FILE, {"format": 1, **described.metadata})


def _read(directory: Path, strength: float) -> TfidfModel:
    """InputError where terms and numbers do not belong together."""
    terms, file = read_json(directory / TERMS), directory / NUMBERS
    numbers: Mapping[str, np.ndarray] = load_file(file)
    words, characters = ({term: place for place, term in enumerate(terms[name])} for name in ("words", "characters"))
    size = len(words) + len(characters)
    outputs, features = numbers["weight"].shape
    if numbers["idf"].shape != (size,) or numbers["bias"].shape != (outputs,) or features not in (size, 4 * size + 2):
        raise InputError(f"{file}: does not belong to {TERMS}; fine-tune again")
    return TfidfModel(Tfidf(words, characters, numbers["idf"]), numbers["weight"], numbers["bias"], strength)
