"""Perplexity of the masked words of plain text, for pre-trained models."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from bothways.base.errors import InputError, flag
from bothways.inference.predictor import Predictor
from bothways.model.families import FAMILIES
from bothways.settings.predict import Evaluate
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks.scores import Scores, count_skipped
from bothways.text.corpus.documents import Corpus
from bothways.text.corpus.sentence_pairs import PairTask
from bothways.text.corpus.token_store import build_in_memory

MOST_EXAMPLES = 4096
# By the direction in which a model reads; "forward" otherwise.
OBJECTIVES: dict[str, Literal["masked", "halves", "forward"]] = {
    "both": "masked",
    "halves": "halves",
}


def evaluate_masked_words(model: Predictor, files: Sequence[TableSource], settings: Evaluate) -> Scores:
    """Perplexity of masked words of a pre-trained model, on new text; of next words, if it reads in one direction.

    model: the model.
    files: plain text, or tables with a column of texts.
    settings: the settings of `evaluate`.

    InputError if a window is named.
    """
    from bothways.training.pretraining.heldout import HeldOut  # needs torch

    if settings.window is not None:
        raise InputError(
            f"window ({settings.window}) is for texts with labels; masked words are read {flag('max_length')} at a time"
        )
    model.warn_of_lost_decoder()

    column = settings.text_column or "text"
    corpus = Corpus(tuple(files), settings.documents, column, settings.on_error, settings.encoding)
    skipped: Counter[str] = Counter()
    store = build_in_memory(corpus.documents(skipped), model.tokenizer, language=settings.language)

    default = FAMILIES[model.description.model_type].pairs
    pairs: PairTask = model.description.settings.get("pairs", default)
    config = model.module.config
    held_out = HeldOut(
        store,
        np.arange(store.num_documents),
        model.tokenizer,
        min(settings.max_length, config.max_position_embeddings),
        pairs=pairs if "next_sentence" in model.backend.heads else "none",
        most=MOST_EXAMPLES,
        objective=OBJECTIVES.get(config.direction, "forward"),
    )
    scores = held_out.measure(model.module)

    counts = {"tokens": store.num_tokens, **count_skipped(skipped)}
    return Scores("perplexity", {**scores}, counts)
