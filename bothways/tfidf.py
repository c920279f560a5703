"""TF-IDF vectors of texts and a linear model over them (Salton 1988; Wang and Manning 2012 on how far that goes): the
simple model that fine-tuning has to beat. No torch; scikit-learn is loaded when a model is fitted.

Letters: N texts (or pairs), F features, C outputs.
"""

import re
import warnings
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from scipy import sparse

from bothways.data.draws import Purpose, generator

Kind = Literal["classes", "labels", "number"]
Matrix = Any  # a scipy.sparse.csr_array, [N, F]
WORD, SIZES = re.compile(r"\w+"), range(2, 6)  # characters of an n-gram
FEW_TEXTS = 50  # with fewer, n-grams that stand in one text alone count too
MOST_TERMS, MOST_WEIGHTS = 100_000, 4_000_000  # n-grams, and features times outputs: of more the commonest are kept
NEVER = -30.0  # the score of a class without a training row
STRENGTHS: dict[Kind, Sequence[float]] = {
    "classes": (1.0, 10.0, 100.0),
    "labels": (1.0, 10.0, 100.0),
    "number": (0.1, 1.0, 10.0),
}
FOLDS, FEW = 3, 100  # cross-validation where there are fewer rows than FEW to choose by
MOST_ROWS, MOST_CHOSEN_ON = 100_000, 10_000  # rows that a model, or its strength, is learned on
MOST_WORK, MOST_CHOICE = 250_000_000, 12_000_000  # products of numbers in one pass of a fit
PARTS = 4  # of a pair's features: one text, the other, their product and their difference


@dataclass(frozen=True)
class Tfidf:
    """Texts -> (1 + log count) * idf of words, pairs of words, and n-grams of 2 to 5 characters within words, all in
    lower case; words and characters have length 1 each.

    words, characters: the column of each n-gram, characters' after the words'. idf_F: log((1 + N) / (1 + n)) + 1.
    """

    words: dict[str, int]
    characters: dict[str, int]
    idf_F: np.ndarray

    @staticmethod
    def learned(texts: Sequence[str], most: int) -> tuple["Tfidf", Matrix]:
        """With the `most` commonest n-grams of those that stand in more than one text; and the texts' vectors."""
        tables = (_growing(), _growing())
        counts = _counts(texts, *tables)
        frequencies = [np.bincount(part.indices, minlength=part.shape[1]) for part in counts]
        ranked = np.sort(np.concatenate(frequencies))[::-1]
        least = 2 if len(texts) >= FEW_TEXTS else 1
        least = max(least, int(ranked[most]) + 1) if len(ranked) > most else least
        columns = [np.flatnonzero(frequency >= least) for frequency in frequencies]
        terms = ([*table] for table in tables)
        words, characters = (
            {names[column]: place for place, column in enumerate(kept.tolist())}
            for names, kept in zip(terms, columns, strict=True)
        )
        found = np.concatenate([frequency[kept] for frequency, kept in zip(frequencies, columns, strict=True)])
        tfidf = Tfidf(words, characters, np.log((1 + len(texts)) / (1 + found)) + 1)
        return tfidf, tfidf._weighed([part[:, kept] for part, kept in zip(counts, columns, strict=True)])

    def __call__(self, texts: Sequence[str]) -> Matrix:
        """[N, F] float64."""
        return self._weighed(_counts(texts, self.words, self.characters))

    def _weighed(self, counts: Sequence[Matrix]) -> Matrix:
        """Vectors from how often each word and each n-gram of characters stands in each text."""
        parts = []
        for part, idf_F in zip(counts, np.split(self.idf_F, [len(self.words)]), strict=True):
            values, sizes = (np.log(part.data) + 1) * idf_F[part.indices], np.diff(part.indptr)
            rows = np.repeat(np.arange(part.shape[0]), sizes)
            lengths = np.sqrt(np.bincount(rows, values**2, part.shape[0]))
            parts.append(sparse.csr_array((values / lengths[rows], part.indices, part.indptr), part.shape))
        return sparse.hstack(parts, format="csr")

    def features(self, texts: Sequence[str], pairs: Sequence[str] | None) -> Matrix:
        """What a linear model reads of texts or pairs."""
        return self(texts) if pairs is None else self.of_pairs(self(texts), self(pairs))

    def of_pairs(self, first: Matrix, second: Matrix) -> Matrix:
        """Of pairs both vectors, their product, their distance in every place, and their cosines by words and by
        characters."""
        product = first * second
        cosines = [product[:, : len(self.words)].sum(1), product[:, len(self.words) :].sum(1)]
        parts = [first, second, product, abs(first - second), sparse.csr_array(np.stack(cosines, 1))]
        return sparse.hstack(parts, format="csr")


@dataclass(frozen=True)
class TfidfModel:
    """A linear model over TF-IDF vectors of texts or pairs: scores of classes or labels, or a number. strength: the
    weight of the losses beside the penalty's, C of scikit-learn."""

    tfidf: Tfidf
    weight_CF: np.ndarray
    bias_C: np.ndarray
    strength: float

    def __call__(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> np.ndarray:
        """[N, C] float64."""
        return linear(self.tfidf.features(texts, pairs), self.weight_CF, self.bias_C)

    def scaled(self, deviation: float, mean: float) -> "TfidfModel":
        """The same model of numbers that were standardized."""
        return replace(self, weight_CF=self.weight_CF * deviation, bias_C=self.bias_C * deviation + mean)


@dataclass(frozen=True)
class Rows:
    """Texts, their pairs if they have some, and targets: classes [N], labels [N, C] (0 or 1) or numbers [N]."""

    texts: Sequence[str]
    pairs: Sequence[str] | None
    targets: np.ndarray

    def __len__(self) -> int:
        return len(self.texts)

    def at_most(self, number: int) -> "Rows":
        """So many of these rows, drawn, or all."""
        if len(self) <= number:
            return self
        drawn = _drawn(len(self))[:number].tolist()
        pairs = None if self.pairs is None else [self.pairs[row] for row in drawn]
        return Rows([self.texts[row] for row in drawn], pairs, self.targets[drawn])


def fit(train: Rows, dev: Rows, kind: Kind, num_outputs: int = 1, *, balanced: bool = False) -> TfidfModel:
    """The model of the training rows, with the strength whose loss is lowest on dev, or, with fewer than FEW rows
    there, in cross-validation over the training rows. At most MOST_ROWS are used, fewer of many classes or long texts
    (MOST_WORK). balanced: rare classes count as much as common ones."""
    train = train.at_most(MOST_ROWS)
    most = min(MOST_TERMS, MOST_WEIGHTS // (num_outputs * (1 if train.pairs is None else PARTS)))
    tfidf, x_NF = Tfidf.learned([*train.texts, *(train.pairs or [])], most)
    if train.pairs is not None:
        x_NF = tfidf.of_pairs(x_NF[: len(train)], x_NF[len(train) :])
    a_row = max(1.0, x_NF.nnz / len(train) * (1 if num_outputs == 2 and kind == "classes" else num_outputs))
    rows = _drawn(len(train))[: int(MOST_WORK / a_row)]
    chosen_on = rows[: min(MOST_CHOSEN_ON, int(MOST_CHOICE / a_row))]
    if len(dev) >= FEW:
        dev = dev.at_most(MOST_CHOSEN_ON)
        parts = [((x_NF[chosen_on], train.targets[chosen_on]), (tfidf.features(dev.texts, dev.pairs), dev.targets))]
    else:
        folds = [chosen_on[fold::FOLDS] for fold in range(FOLDS)]
        others = [np.setdiff1d(chosen_on, fold) for fold in folds]
        parts = [
            ((x_NF[other], train.targets[other]), (x_NF[fold], train.targets[fold]))
            for other, fold in zip(others, folds, strict=True)
        ]

    def total(strength: float) -> float:
        solutions = (fit_linear(*learned_on, kind, num_outputs, strength, balanced=balanced) for learned_on, _ in parts)
        return sum(
            loss(linear(held_out[0], *solution), held_out[1], kind)
            for solution, (_, held_out) in zip(solutions, parts, strict=True)
        )

    strength = min(STRENGTHS[kind], key=total)
    solution = fit_linear(x_NF[rows], train.targets[rows], kind, num_outputs, strength, balanced=balanced)
    return TfidfModel(tfidf, *solution, strength)


def linear(x_NF: Matrix, weight_CF: np.ndarray, bias_C: np.ndarray) -> np.ndarray:
    scores_NC: np.ndarray = x_NF @ weight_CF.T + bias_C
    return scores_NC


def loss(scores_NC: np.ndarray, targets: np.ndarray, kind: Kind) -> float:
    """The sum of cross-entropies or squared errors."""
    if kind == "number":
        return float(((scores_NC[:, 0] - targets) ** 2).sum())
    if kind == "labels":
        return float(np.logaddexp(0, np.where(targets, -scores_NC, scores_NC)).sum())
    own_N = scores_NC[np.arange(len(targets)), targets]
    return float((np.logaddexp.reduce(scores_NC, axis=1) - own_N).sum())


def _drawn(number: int) -> np.ndarray:
    order: np.ndarray = generator(0, Purpose.FOLDS).permutation(number)
    return order


def fit_linear(
    features: Matrix, targets: np.ndarray, kind: Kind, num_outputs: int, strength: float, *,
    balanced: bool = False,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Weights [C, F] and bias [C] of logistic regression (classes [N], or of each label [N, C] by itself) or of ridge
    regression (numbers [N]); strength and balanced as above."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from threadpoolctl import threadpool_limits

    # On a busy machine, threads that wait for each other made a fit of 0.5 s take 20.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of solvers that stop early: a baseline needs no last digit
        if kind == "number":
            ridge = Ridge(alpha=1 / strength, solver="sparse_cg", random_state=0).fit(features, targets)
            return ridge.coef_[None], np.array([ridge.intercept_])
        if kind == "labels":
            parts = [fit_linear(features, one, "classes", 2, strength, balanced=balanced) for one in targets.T]
            return (
                np.stack([weight[1] - weight[0] for weight, _ in parts]),
                np.array([bias[1] - bias[0] for _, bias in parts]),
            )
        weight_CF, bias_C = np.zeros((num_outputs, features.shape[1])), np.full(num_outputs, NEVER)
        known = np.unique(targets)
        bias_C[known] = 0.0
        if len(known) == 1:
            return weight_CF, bias_C
        model = LogisticRegression(C=strength, max_iter=300, class_weight="balanced" if balanced else None)
        model.fit(features, targets)
        two = len(known) == 2  # of which there is one row: the second's beside the first's
        weight_CF[known[-1:] if two else known] = model.coef_
        bias_C[known[-1:] if two else known] = model.intercept_
        return weight_CF, bias_C


def _growing() -> dict[str, int]:
    """A table in which every term that is asked for gets the next number."""
    table: defaultdict[str, int] = defaultdict()
    table.default_factory = table.__len__
    return table


def _counts(texts: Sequence[str], words: dict[str, int], characters: dict[str, int]) -> tuple[Matrix, Matrix]:
    """How often each word (or pair of words) and each n-gram of characters stands in each text; of tables that do not
    grow, only their own terms.

    Characters are counted once for every different word: of 1,780 articles in a third of the time.
    """
    by_word = _growing()
    words_of_text = _counted((text.lower().split() for text in texts), by_word)
    grams_of_word = _counted(map(_characters, by_word), characters)
    return _counted(map(_words, texts), words), (words_of_text @ grams_of_word).tocsr()


def _counted(rows: Iterable[Sequence[str]], table: dict[str, int]) -> Matrix:
    """[rows, terms of the table]"""
    places, ends = array("l"), array("l", [0])
    grows = isinstance(table, defaultdict)
    for terms in rows:
        places.extend(map(table.__getitem__, terms) if grows else (table[term] for term in terms if term in table))
        ends.append(len(places))
    columns = np.frombuffer(places, np.dtype("l")) if places else np.zeros(0, np.int64)
    shape = (len(ends) - 1, len(table))
    found = sparse.csr_array((np.ones(len(columns)), columns, np.frombuffer(ends, np.dtype("l"))), shape)
    found.sum_duplicates()
    return found


def _words(text: str) -> list[str]:
    words = WORD.findall(text.lower())
    return [*words, *(f"{first} {second}" for first, second in pairwise(words))]


def _characters(word: str) -> list[str]:
    framed = f" {word} "
    return [framed[start : start + size] for size in SIZES for start in range(len(framed) - size + 1)]
