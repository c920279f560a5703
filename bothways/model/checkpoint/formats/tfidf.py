"""Linear models over TF-IDF, without an encoder: their terms as JSON, their weights beside them."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from bothways.base.errors import InputError, MissingFile
from bothways.base.io import atomic_directory, write_json
from bothways.model.checkpoint.card_file import write_card
from bothways.model.checkpoint.description import (
    CONFIG,
    METADATA_FILE,
    MULTI_LABEL,
    WORDS,
    Description,
    problem_type,
)
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats.format import Format, StoredModel
from bothways.model.checkpoint.weights import not_finite_error, write_weights
from bothways.model.linear.tfidf import Tfidf, TfidfModel

TERMS = "terms.json"
WEIGHTS = "tfidf.safetensors"
ENCODER = "encoder"  # beside a TF-IDF model that is the better model of a run


class TfidfFormat(Format):
    model_type = "bothways-tfidf"

    def open(self, directory: Directory) -> StoredModel:
        raise no_encoder_error(directory.path, classifies=directory.config.get("problem_type") != "regression")


def no_encoder_error(directory: Path, *, classifies: bool) -> InputError:
    """The error of a use for which a TF-IDF model lacks an encoder."""
    kind = "classifies texts" if classifies else "predicts a number for each text (regression)"
    beside = directory.parent / ENCODER
    other = str(beside) if (beside / CONFIG).exists() else "a checkpoint with an encoder"  # of the same run
    return InputError(
        f"{directory}: a TF-IDF model, which {kind} and has no encoder; use it with predict, evaluate or info, or pass "
        f"{other}"
    )


def write_tfidf(model: TfidfModel, described: Description, target: Path, *, card: str = "") -> None:
    """Write a TF-IDF model.

    model: with its terms and weights.
    described: its labels and metadata.
    target: a directory, which is created or replaced.
    card: the text of README.md, unless the directory has one that the user has written; "": none is written.
    """
    config = {
        "model_type": TfidfFormat.model_type,
        "problem_type": problem_type(described, 1),
        "id2label": {str(index): name for index, name in enumerate(described.labels)},
        "strength": model.strength,
    }
    with atomic_directory(target) as directory:
        write_json(directory / CONFIG, config)
        write_terms(model, directory)
        write_json(directory / METADATA_FILE, {"format": 1, **described.metadata})
        if card:
            write_card(card, directory, replaced=target)


def write_terms(model: TfidfModel, directory: Path) -> None:
    """Write the terms and the weights of a TF-IDF model into a directory."""
    import torch

    terms = {"words": [*model.tfidf.words], "characters": [*model.tfidf.characters]}
    (directory / TERMS).write_text(json.dumps(terms), encoding="utf-8")

    weights = {
        "idf": model.tfidf.idf_F,
        "weight": model.weight_CF,
        "bias": model.bias_C,
    }
    write_weights({name: torch.from_numpy(value).float() for name, value in weights.items()}, directory / WEIGHTS)


def read_tfidf(directory: Directory) -> tuple[TfidfModel, Description]:
    """InputError if terms, weights and labels do not belong together."""
    config = directory.config
    names = config.get("id2label") or {}
    labels = tuple(str(name) for name in names.values())
    model = read_terms(directory, max(1, len(labels)), float(config["strength"]))
    described = Description(
        model_type=TfidfFormat.model_type,
        labels=labels,
        multi_label=config.get("problem_type") == MULTI_LABEL,
        metadata=directory.metadata,
    )
    return model, described


def read_words(directory: Directory, num_outputs: int) -> TfidfModel:
    """The TF-IDF model that is a part of an encoder's model. InputError if it has another number of outputs than the
    encoder's head."""
    facts = directory.metadata[WORDS]
    return read_terms(directory, num_outputs, float(facts.get("strength", 0.0)))


def read_terms(directory: Directory, num_outputs: int, strength: float) -> TfidfModel:
    """The TF-IDF model whose terms and weights are in a directory.

    directory: of the model.
    num_outputs: rows that the weights must have.
    strength: scikit-learn's C, with which the model was fitted.

    InputError if they do not belong together.
    """
    file = directory.path / WEIGHTS
    for name in (TERMS, WEIGHTS):
        if not directory.has(name):
            raise MissingFile(f"{directory.path / name}: missing; copy the whole directory of the model")

    terms = directory.read(directory.path / TERMS)
    weights = dict[str, np.ndarray](load_file(file))
    broken = [name for name, value in weights.items() if not np.isfinite(value).all()]
    if broken:
        raise not_finite_error(file, broken)

    words = {term: index for index, term in enumerate(terms["words"])}
    characters = {term: index for index, term in enumerate(terms["characters"])}
    size = len(words) + len(characters)
    num_rows, num_features = weights["weight"].shape
    fits_terms = weights["idf"].shape == (size,) and num_features in (size, 4 * size + 2)  # of texts, or of pairs
    if not fits_terms or weights["bias"].shape != (num_rows,):
        raise InputError(f"{file}: does not belong to {TERMS}; fine-tune again")
    if num_rows != num_outputs:
        raise InputError(f"{directory.path / CONFIG}: id2label does not belong to {WEIGHTS}; fine-tune again")

    return TfidfModel(
        Tfidf(words, characters, weights["idf"]),
        weights["weight"],
        weights["bias"],
        strength=strength,
    )
