"""TF-IDF vectors of texts and a linear model over them (Salton 1988; Wang and Manning 2012 on how far that goes): the
simple model that fine-tuning has to beat. No torch.

Letters: N texts (or pairs), F features, C outputs.
"""

import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from bothways.linear import regressions
from bothways.linear.regressions import Kind, Score, order_of, scores

Matrix = Any  # a scipy.sparse.csr_array, [N, F]
WORD, SIZES = re.compile(r"\w+"), range(2, 6)  # characters of an n-gram
FEW_TEXTS = 50  # with fewer, n-grams that stand in one text alone count too
MOST_TERMS, MOST_WEIGHTS = 100_000, 4_000_000  # n-grams, and features times outputs: of more the commonest are kept
CLASS_STRENGTHS, NUMBER_STRENGTHS = (1.0, 10.0, 100.0), (0.1, 1.0, 10.0)
MOST_ROWS, MOST_DEV = 100_000, 10_000
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
        return scores(self.tfidf.features(texts, pairs), self.weight_CF, self.bias_C)

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
        drawn = order_of(len(self))[:number].tolist()
        pairs = None if self.pairs is None else [self.pairs[row] for row in drawn]
        return Rows([self.texts[row] for row in drawn], pairs, self.targets[drawn])


def fit(
    train: Rows, dev: Rows, kind: Kind, num_outputs: int = 1, *, balanced: bool = False, score: Score | None = None
) -> TfidfModel:
    """The best model of the training rows (regressions.fit), of at most MOST_ROWS."""
    train, dev = train.at_most(MOST_ROWS), dev.at_most(MOST_DEV)
    most = min(MOST_TERMS, MOST_WEIGHTS // (num_outputs * (1 if train.pairs is None else PARTS)))
    tfidf, x_NF = Tfidf.learned([*train.texts, *(train.pairs or [])], most)
    if train.pairs is not None:
        x_NF = tfidf.of_pairs(x_NF[: len(train)], x_NF[len(train) :])
    held_out = tfidf.features(dev.texts, dev.pairs), dev.targets
    strengths = NUMBER_STRENGTHS if kind == "number" else CLASS_STRENGTHS
    solution = regressions.fit(
        (x_NF, train.targets), held_out, kind, num_outputs, strengths, balanced=balanced, score=score
    )
    return TfidfModel(tfidf, *solution)


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
