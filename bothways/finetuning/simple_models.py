"""Simple models that fine-tuning has to beat: linear models over TF-IDF and over frozen vectors, the commonest tag of
each word, the sentence that shares most words with a question.

Letters: N texts (or pairs), H hidden size, C outputs.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bothways.checkpoint.checkpoint import Checkpoint
from bothways.data.columns import Table
from bothways.data.conll import Sentence
from bothways.data.squad import Question
from bothways.data.tags import OUTSIDE
from bothways.finetuning.features import FrozenTexts
from bothways.finetuning.task import at_work
from bothways.finetuning.texts import Texts
from bothways.inference.predictor import Predictor
from bothways.linear import regressions, tfidf
from bothways.linear.regressions import Kind, Score, standardized
from bothways.linear.tfidf import Rows, TfidfModel
from bothways.settings import FineTune

MOST_OUTPUTS = 300  # classes of a linear model, which is fitted to each
MOST_PAIRS = 10_000  # training pairs whose texts are encoded
STRENGTHS = (1.0, 10.0, 100.0, 1000.0, 10_000.0)  # beside the mean loss, over frozen vectors
METHODS: Mapping[Kind, str] = {
    "classes": "logistic regression",
    "labels": "logistic regression",
    "number": "ridge regression",
}
Simple = tuple[str, np.ndarray, TfidfModel | None]  # a model's name, its scores [N, C], itself if it can be saved
SENTENCE = re.compile(r".+?(?:[.!?]+(?=\s)|$)", re.DOTALL)


class TextTask(Protocol):
    """What models of texts are fitted on."""

    @property
    def settings(self) -> FineTune: ...
    @property
    def start(self) -> Checkpoint: ...
    @property
    def tables(self) -> Mapping[str, Table]: ...
    @property
    def data(self) -> Mapping[str, Texts]: ...
    @property
    def frozen(self) -> FrozenTexts: ...


def linear_models(
    task: TextTask, split: str, kind: Kind, num_outputs: int, *, balanced: bool = False, score: Score | None = None
) -> Iterator[Simple]:
    """Linear models over TF-IDF and over frozen vectors (means of all tokens; of pairs those of each text), fitted on
    train and chosen on dev by the score; of pairs with numbers also the cosine without any fitting. None with more than
    MOST_OUTPUTS outputs."""
    if num_outputs > MOST_OUTPUTS:
        return
    targets = {name: texts.targets for name, texts in task.data.items()}
    rows = {name: Rows(table.texts, table.pairs, targets[name]) for name, table in task.tables.items()}
    model = tfidf.fit(rows["train"], rows["dev"], kind, num_outputs, balanced=balanced, score=score)
    yield f"TF-IDF + {METHODS[kind]}", model(rows[split].texts, rows[split].pairs), model
    paired = rows["train"].pairs is not None
    if paired:
        predictor = Predictor(task.start, dtype=task.settings.dtype)
        few = {name: rows[name].at_most(MOST_PAIRS) for name in ("train", "dev") if name != split}
        rows |= few
        vectors = {name: pair_vectors(predictor, rows[name], task.settings) for name in {"train", "dev", split}}
        features = {name: pair_features(*both) for name, both in vectors.items()}
    else:
        frozen = task.frozen
        if frozen.model.config.num_hidden_layers < task.start.model.config.num_hidden_layers:
            whole = at_work(task.start.model, task.settings)
            frozen = FrozenTexts(whole, task.data, frozen.settings)
        features = {name: frozen[name]["mean"] for name in {"train", "dev", split}}
        if task.start.pooling and task.start.normalized:
            features = {name: F.normalize(x_NH) for name, x_NH in features.items()}
    train_NF, dev_NF, own_NF = standardized(*(features[name].numpy() for name in ("train", "dev", split)))
    strengths = [strength / len(train_NF) for strength in STRENGTHS]
    fitted_on, chosen_on = (train_NF, rows["train"].targets), (dev_NF, rows["dev"].targets)
    weight_CF, bias_C, _ = regressions.fit(
        fitted_on, chosen_on, kind, num_outputs, strengths, balanced=balanced, score=score
    )
    yield f"frozen vectors + {METHODS[kind]}", regressions.scores(own_NF, weight_CF, bias_C), None
    if kind == "number" and paired:
        yield "cosine of frozen vectors", F.cosine_similarity(*vectors[split]).double()[:, None].numpy(), None


def pair_vectors(predictor: Predictor, rows: Rows, settings: FineTune) -> tuple[Tensor, Tensor]:
    """The vectors of first and of second texts, each [N, H], of length 1; pooled as the checkpoint says, else by the
    mean."""
    assert rows.pairs is not None
    texts = [*rows.texts, *rows.pairs]
    found = torch.from_numpy(predictor.embed(texts, long=settings.long, window=settings.window))
    return found[: len(rows)], found[len(rows) :]


def pair_features(u_NH: Tensor, v_NH: Tensor) -> Tensor:
    """Both vectors, their distance in every place and their product (Conneau 2017, section 3.1), [N, 4H]."""
    return torch.cat([u_NH, v_NH, (u_NH - v_NH).abs(), u_NH * v_NH], 1)


def commonest_tags(train: Sequence[Sentence], sentences: Sequence[Sentence], *, plain: bool) -> list[list[str]]:
    """For each word the tag that it has most often in train; for unknown words outside, or of plain tags the commonest
    of all."""
    by_word: dict[str, Counter[str]] = {}
    for one in train:
        for word, tag in zip(one.words, one.tags, strict=True):
            by_word.setdefault(word, Counter())[tag] += 1
    unknown = sum(by_word.values(), Counter()).most_common(1)[0][0] if plain else OUTSIDE
    known = {word: tags.most_common(1)[0][0] for word, tags in by_word.items()}
    return [[known.get(word, unknown) for word in one.words] for one in sentences]


def sentence_answer(question: Question) -> str:
    """The sentence of the passage with most of the question's words, the first of several."""
    asked = {*tfidf.WORD.findall(question.question.lower())}
    sentences = [match[0].strip() for match in SENTENCE.finditer(question.context)]
    return max(sentences, key=lambda one: len(asked & {*tfidf.WORD.findall(one.lower())}), default="")
