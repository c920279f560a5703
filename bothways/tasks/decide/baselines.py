"""What decisions are compared with: the most frequent option, TF-IDF of the descriptions, and the vectors alone.

Letters: N texts, C options, K descriptions, V words, H size of a vector.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bothways.tasks.arrays import Floats, softmax
from bothways.tasks.decide.option_set import OptionSet, stored_options
from bothways.tasks.decide.scoring import automated

if TYPE_CHECKING:
    from bothways.tasks.task import LoadedModel

COSINE_SCALE = 20.0  # of a cosine as log-odds
WORD = re.compile(r"\w+")


def baseline_scores(model: LoadedModel, texts: Sequence[str], gold: Sequence[str]) -> dict[str, dict[str, float]]:
    """Accuracy and automated share of each baseline, which always picks an option."""
    asked = stored_options(model.description)
    assert asked is not None
    most_frequent = Counter(label for label in gold).most_common(1)[0][1] / len(gold)
    return {
        "most frequent option": {"accuracy": most_frequent, "automated": 0.0},
        "TF-IDF of descriptions": scores_of(word_cosines(texts, asked), asked, gold),
        "vectors alone": scores_of(vector_cosines(model, texts, asked), asked, gold),
    }


def scores_of(cosines_NK: Floats, asked: OptionSet, gold: Sequence[str]) -> dict[str, float]:
    shares_NC = softmax(asked.option_scores(COSINE_SCALE * cosines_NK))
    names = asked.names
    right_N = np.array([names[best] == label for best, label in zip(shares_NC.argmax(1), gold, strict=True)])
    return {"accuracy": float(right_N.mean()), "automated": automated(shares_NC.max(1), right_N)}


def vector_cosines(model: LoadedModel, texts: Sequence[str], asked: OptionSet) -> Floats:
    """The cosine of the vectors of each text and of each description, [N, K]."""
    texts_NH: Floats = model.embed([*texts])
    descriptions_KH: Floats = model.embed([*asked.statements])
    return texts_NH @ descriptions_KH.T


def word_cosines(texts: Sequence[str], asked: OptionSet) -> Floats:
    """The cosine of words weighted by TF-IDF, whose frequencies are those of the texts, [N, K]."""
    documents = [Counter(WORD.findall(text.lower())) for text in (*texts, *asked.statements)]
    frequency = Counter(word for counts in documents[: len(texts)] for word in counts)
    wanted = {word for counts in documents[len(texts) :] for word in counts}
    number_of = {word: number for number, word in enumerate(sorted(wanted))}

    vectors_DV = np.zeros((len(documents), len(number_of)), np.float32)
    lengths_D = np.zeros(len(documents))
    for row, counts in enumerate(documents):
        for word, count in counts.items():
            weight = (1 + np.log(count)) * (1 + np.log((1 + len(texts)) / (1 + frequency[word])))
            lengths_D[row] += weight**2
            if word in number_of:
                vectors_DV[row, number_of[word]] = weight
    vectors_DV /= np.sqrt(np.maximum(lengths_D, 1e-12))[:, None].astype(np.float32)
    return vectors_DV[: len(texts)] @ vectors_DV[len(texts) :].T
