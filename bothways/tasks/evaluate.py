"""Measure a model: a classifier on labelled tables, a pre-trained one on text it has not read."""

from pathlib import Path
from typing import Any

import numpy as np

from bothways import checkpoint, metrics
from bothways.data.corpus import Corpus
from bothways.data.examples import label_numbers, read_table
from bothways.data.pairs import Pairs
from bothways.data.store import build
from bothways.errors import InputError
from bothways.predict import Predictor
from bothways.settings import Evaluate
from bothways.tasks.heldout import HeldOut


def run(settings: Evaluate) -> dict[str, Any]:
    """The metrics by name: accuracy and the like for classes; perplexity of masked words for text."""
    predictor = Predictor(checkpoint.load(settings.model), dtype=settings.dtype)
    if "classes" in predictor.module.num_outputs:
        return classes(predictor, settings)
    if "masked_words" in predictor.module.num_outputs:
        return masked_words(predictor, settings)
    raise InputError(
        f"{settings.model}: no head to be measured (no classes, no masked words); fine-tune or pre-train one"
    )


def classes(predictor: Predictor, settings: Evaluate) -> dict[str, Any]:
    gold: list[str] = []
    predicted: list[str] = []
    for file in settings.file:
        columns = {"text": settings.text_column, "pair": settings.pair_column, "label": settings.label_column}
        table = read_table(Path(file), **columns, need_labels=True)
        label_numbers(table, predictor.labels)  # unknown labels are named before any work
        gold += table.labels or []
        predicted += [found.label for found in predictor.classify(table.texts, table.pairs)]
    found = metrics.classification(gold, predicted)
    low, high = metrics.interval(sum(map(str.__eq__, gold, predicted)), len(gold))
    return {**found, "accuracy_interval": [low, high], "texts": len(gold)}


def masked_words(predictor: Predictor, settings: Evaluate) -> dict[str, Any]:
    corpus = Corpus(settings.file, settings.documents, settings.text_column, settings.on_error)
    store = build(corpus.documents(), predictor.tokenizer, language=settings.language)
    learned: Pairs = predictor.checkpoint.made.get("settings", {}).get("pairs", "next")
    length = min(settings.length, predictor.module.config.max_position_embeddings)
    pairs = learned if "next_sentence" in predictor.module.num_outputs else "none"
    held = HeldOut(store, np.arange(store.num_documents), predictor.tokenizer, length, pairs=pairs, most=4096)
    return {**held.measure(predictor.module), "tokens": store.num_tokens}
