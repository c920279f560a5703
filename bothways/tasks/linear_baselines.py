"""Baseline models: linear models over TF-IDF and frozen vectors, most frequent tags.

Letters: N texts (or pairs), H hidden size, C outputs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bothways.model.linear import regressions, tfidf
from bothways.model.linear.regressions import Kind, standardize
from bothways.model.linear.tfidf import TextRows, TfidfModel
from bothways.tasks.scores import Predictions
from bothways.tasks.texts import TextTask
from bothways.text.data.squad import Question
from bothways.text.data.tags import OUTSIDE, Sentence

if TYPE_CHECKING:
    from torch import Tensor

COSINE = "cosine of frozen vectors"
MAX_CHECKED = 10_000  # rows whose labels are checked
MAX_OUTPUTS = 300  # outputs of a linear model, whose cost grows with each output
STRENGTHS = (1.0, 10.0, 100.0, 1000.0, 10_000.0)  # C of scikit-learn times the number of rows, for frozen vectors
METHODS: Mapping[Kind, str] = {
    "classes": "logistic regression",
    "labels": "logistic regression",
    "number": "ridge regression",
}
SENTENCE = re.compile(r".+?(?:[.!?]+(?=\s)|$)", re.DOTALL)


def table_rows(task: TextTask, split: str) -> TextRows:
    table = task.tables[split]
    return TextRows(texts=table.texts, pairs=table.pairs, targets=task.data[split].targets, groups=table.units)


def fit_tfidf(task: TextTask, max_rows: int | None = None) -> TfidfModel:
    """A linear model over TF-IDF, fitted on train, or on max_rows of its rows, with the penalty selected on dev."""
    train = table_rows(task, "train")
    dev = table_rows(task, "dev")
    if max_rows is not None:
        train = train.sample(max_rows)
    kind = task.linear_kind
    score = task.linear_score
    return tfidf.fit(train, dev, kind, task.num_outputs, balanced=task.balanced, score=score)


def fit_linear_baselines(
    task: TextTask, split: str, *, words: bool = True
) -> Iterator[tuple[str, np.ndarray, TfidfModel | None]]:
    """Linear models over TF-IDF and over frozen vectors, fitted on train, with the penalty selected on dev: the name of
    each, its scores [N, C] for a split, and the model itself if it can be saved. words: with TF-IDF.

    Frozen vectors are means of all tokens; for pairs, means of each text (`separate`). For pairs with numbers, the
    cosine of their vectors is a further baseline. Yields nothing for more than MAX_OUTPUTS outputs.
    """
    import torch
    import torch.nn.functional as F

    kind = task.linear_kind
    num_outputs = task.num_outputs
    if num_outputs > MAX_OUTPUTS:
        return
    if words:
        model = task.tfidf_model
        yield f"TF-IDF + {METHODS[kind]}", model(task.tables[split].texts, task.tables[split].pairs), model
    if task.separate:
        vectors_N2H = task.separate.frozen[split]["head"]
        with torch.no_grad():
            scores_NC = task.separate.frozen_model.text_scores("classes", vectors_N2H).double().numpy()
        yield f"frozen vector pairs + {METHODS[kind]}", scores_NC, None
        if kind == "number":
            cosines_N1 = F.cosine_similarity(vectors_N2H[:, 0], vectors_N2H[:, 1])[:, None].double().numpy()
            yield COSINE, cosines_N1, None
        return
    features = mean_vectors(task, {"train", "dev", split})
    train_NH, dev_NH, split_NH = standardize(*(features[name].numpy() for name in ("train", "dev", split)))
    strengths = [strength / len(train_NH) for strength in STRENGTHS]
    weight_CH, bias_C, _ = regressions.fit(
        (train_NH, task.data["train"].targets),
        (dev_NH, task.data["dev"].targets),
        kind,
        num_outputs,
        strengths,
        groups=task.tables["train"].units,
        balanced=task.balanced,
        score=task.linear_score,
    )
    yield f"frozen vectors + {METHODS[kind]}", regressions.scores(split_NH, weight_CH, bias_C), None


def predict_out_of_fold(task: TextTask) -> Predictions | None:
    """Predictions for all rows, or MAX_CHECKED random ones, by linear models on the frozen vectors of the other folds.

    None for more than MAX_OUTPUTS outputs, and with texts without a label.
    """
    num_outputs = task.num_outputs
    if num_outputs > MAX_OUTPUTS or task.settings.unlabelled:
        return None

    if task.separate:
        task = task.separate
        vectors = [task.frozen[split]["head"].numpy() for split in task.data]
        features = [np.concatenate([abs(x[:, 0] - x[:, 1]), x[:, 0] * x[:, 1]], 1) for x in vectors]
    else:
        means = mean_vectors(task, {*task.data})
        features = [means[split].numpy() for split in task.data]

    x_NF = np.concatenate(features)
    ends = np.cumsum([*map(len, features)])
    rows = np.sort(regressions.random_order(len(x_NF))[:MAX_CHECKED])
    targets = np.concatenate([examples.targets for examples in task.data.values()])[rows]
    units = [unit for table in task.tables.values() for unit in table.units]
    groups = [units[row] for row in rows.tolist()]

    scores_NC = np.zeros((len(x_NF), num_outputs))
    scores_NC[rows] = regressions.out_of_fold_scores(
        x_NF[rows],
        targets,
        task.linear_kind,
        num_outputs,
        groups=groups,
        balanced=task.balanced,
    )

    parts = zip(task.data, np.split(scores_NC, ends[:-1]), strict=True)
    return Predictions.joined(task.scoring.predictions(split, task.outputs_of(part)) for split, part in parts).take(
        rows
    )


def mean_vectors(task: TextTask, splits: set[str]) -> dict[str, Tensor]:
    """Means of all tokens from all layers, [N, H]; of length 1 if the checkpoint normalizes its vectors."""
    import torch.nn.functional as F

    features = {name: task.frozen_whole[name]["mean"] for name in splits}
    if task.pretrained.pooling and task.pretrained.normalized:
        features = {name: F.normalize(x_NH) for name, x_NH in features.items()}
    return features


def most_frequent_tags(train: Sequence[Sentence], sentences: Sequence[Sentence], *, plain: bool) -> list[list[str]]:
    """The most frequent tag of each word in train. Unknown words get O, or for plain tags the most frequent tag."""
    counts_by_word: dict[str, Counter[str]] = {}
    for sentence in train:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            counts_by_word.setdefault(word, Counter())[tag] += 1
    unknown = sum(counts_by_word.values(), Counter()).most_common(1)[0][0] if plain else OUTSIDE
    tag_by_word = {word: counts.most_common(1)[0][0] for word, counts in counts_by_word.items()}
    return [[tag_by_word.get(word, unknown) for word in sentence.words] for sentence in sentences]


def best_matching_sentence(question: Question) -> str:
    """The sentence of the passage that shares most words with the question; the first one if there are several."""
    words = {*tfidf.WORD.findall(question.question.lower())}
    sentences = [match[0].strip() for match in SENTENCE.finditer(question.context)]
    return max(sentences, key=lambda sentence: len(words & {*tfidf.WORD.findall(sentence.lower())}), default="")
