"""TF-IDF vectors (Salton 1988) and linear models over them, as a baseline. No torch; scipy is imported when used.

Wang and Manning 2012 show how strong such a baseline is. Letters: N texts (or pairs), F features, C outputs.
"""

import re
from array import array
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from bothways.measure.linear import regressions
from bothways.measure.linear.regressions import Kind, Score, random_order, scores
from bothways.rng import Purpose, generator

Matrix = Any  # a scipy.sparse.csr_array, [N, F]
WORD, NGRAM_SIZES = re.compile(r"\w+"), range(2, 6)
MIN_TEXTS = 50  # with fewer texts, n-grams that occur in a single text are kept too
MAX_TERMS, MAX_WEIGHTS = 100_000, 4_000_000  # limits of n-grams, and of features times outputs
CLASS_STRENGTHS, NUMBER_STRENGTHS = (1.0, 10.0, 100.0), (0.1, 1.0, 10.0)
MAX_TRAIN_ROWS, MAX_DEV_ROWS = 100_000, 10_000
PROJECTED = 512  # size of dense vectors
NUM_PAIR_PARTS = 4  # features of a pair: both texts, their product and their difference


@dataclass(frozen=True)
class Tfidf:
    """Texts to vectors: (1 + log count) * idf of words, word bigrams, and character n-grams (2 to 5) within words.

    Everything is lower-cased. The word part and the character part of a vector each have length 1.
    words, characters: the column of each n-gram within its part; words come first. idf_F: log((1 + N) / (1 + n)) + 1.
    """

    words: dict[str, int]
    characters: dict[str, int]
    idf_F: np.ndarray

    @staticmethod
    def learn(texts: Sequence[str], max_terms: int) -> tuple["Tfidf", Matrix]:
        """The vocabulary and idf of these texts, and their vectors.

        Keeps at most `max_terms` n-grams, the most frequent ones. With MIN_TEXTS texts or more, drops n-grams that
        occur in a single text.
        """
        vocabularies = (_growing_vocabulary(), _growing_vocabulary())
        counts = _count_ngrams(texts, *vocabularies)
        frequencies = [np.bincount(part.indices, minlength=part.shape[1]) for part in counts]
        ranked = np.sort(np.concatenate(frequencies))[::-1]
        min_frequency = 2 if len(texts) >= MIN_TEXTS else 1
        if len(ranked) > max_terms:
            min_frequency = max(min_frequency, int(ranked[max_terms]) + 1)
        columns = [np.flatnonzero(frequency >= min_frequency) for frequency in frequencies]
        terms = ([*vocabulary] for vocabulary in vocabularies)
        words, characters = (
            {names[column]: index for index, column in enumerate(part_columns.tolist())}
            for names, part_columns in zip(terms, columns, strict=True)
        )
        num_texts_F = np.concatenate([frequency[part] for frequency, part in zip(frequencies, columns, strict=True)])
        tfidf = Tfidf(words, characters, np.log((1 + len(texts)) / (1 + num_texts_F)) + 1)
        return tfidf, tfidf._weigh([count[:, part] for count, part in zip(counts, columns, strict=True)])

    def __call__(self, texts: Sequence[str]) -> Matrix:
        """[N, F] float64."""
        return self._weigh(_count_ngrams(texts, self.words, self.characters))

    def _weigh(self, counts: Sequence[Matrix]) -> Matrix:
        """Vectors from the counts of word and character n-grams in each text."""
        from scipy import sparse

        parts = []
        for part, idf_F in zip(counts, np.split(self.idf_F, [len(self.words)]), strict=True):
            values, sizes = (np.log(part.data) + 1) * idf_F[part.indices], np.diff(part.indptr)
            rows = np.repeat(np.arange(part.shape[0]), sizes)
            lengths = np.sqrt(np.bincount(rows, values**2, part.shape[0]))
            parts.append(sparse.csr_array((values / lengths[rows], part.indices, part.indptr), part.shape))
        return sparse.hstack(parts, format="csr")

    def features(self, texts: Sequence[str], pairs: Sequence[str] | None) -> Matrix:
        """Features of texts or pairs for a linear model."""
        return self(texts) if pairs is None else self.pair_features(self(texts), self(pairs))

    def pair_features(self, first: Matrix, second: Matrix) -> Matrix:
        """Features of pairs: both vectors, their product, their absolute difference, and the cosines of the word part
        and of the character part."""
        from scipy import sparse

        product = first * second
        cosines = [product[:, : len(self.words)].sum(1), product[:, len(self.words) :].sum(1)]
        parts = [first, second, product, abs(first - second), sparse.csr_array(np.stack(cosines, 1))]
        return sparse.hstack(parts, format="csr")


@dataclass(frozen=True)
class TfidfModel:
    """A linear model over TF-IDF vectors of texts or pairs, whose outputs are scores of classes or labels, or a number.

    strength: scikit-learn's C, the weight of the losses relative to the penalty.
    """

    tfidf: Tfidf
    weight_CF: np.ndarray
    bias_C: np.ndarray
    strength: float

    def __call__(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> np.ndarray:
        """[N, C] float64."""
        return self.scores(self.tfidf.features(texts, pairs))

    def scores(self, features: Matrix) -> np.ndarray:
        """[N, C] float64, from `Tfidf.features`."""
        return scores(features, self.weight_CF, self.bias_C)

    def scaled(self, deviation: float, mean: float) -> "TfidfModel":
        """The model for the original numbers, if this one was fitted to standardized ones."""
        return replace(self, weight_CF=self.weight_CF * deviation, bias_C=self.bias_C * deviation + mean)


@dataclass(frozen=True)
class Rows:
    """Texts, optionally with second texts, and targets: classes [N], labels [N, C] (0 or 1) or numbers [N]. groups: the
    group of each row, which stays together in cross-validation."""

    texts: Sequence[str]
    pairs: Sequence[str] | None
    targets: np.ndarray
    groups: Sequence[Hashable] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def sample(self, max_rows: int) -> "Rows":
        """At most `max_rows` of these rows, chosen at random."""
        if len(self) <= max_rows:
            return self
        rows = random_order(len(self))[:max_rows].tolist()
        pairs = None if self.pairs is None else [self.pairs[row] for row in rows]
        groups = None if self.groups is None else [self.groups[row] for row in rows]
        return Rows([self.texts[row] for row in rows], pairs, self.targets[rows], groups)


def fit(
    train: Rows, dev: Rows, kind: Kind, num_outputs: int = 1, *, balanced: bool = False, score: Score | None = None
) -> TfidfModel:
    """Fit a model to at most MAX_TRAIN_ROWS rows; see `regressions.fit`."""
    train, dev = train.sample(MAX_TRAIN_ROWS), dev.sample(MAX_DEV_ROWS)
    max_terms = min(MAX_TERMS, MAX_WEIGHTS // (num_outputs * (1 if train.pairs is None else NUM_PAIR_PARTS)))
    tfidf, x_NF = Tfidf.learn([*train.texts, *(train.pairs or [])], max_terms)
    if train.pairs is not None:
        x_NF = tfidf.pair_features(x_NF[: len(train)], x_NF[len(train) :])
    held_out = tfidf.features(dev.texts, dev.pairs), dev.targets
    strengths = NUMBER_STRENGTHS if kind == "number" else CLASS_STRENGTHS
    solution = regressions.fit(
        (x_NF, train.targets),
        held_out,
        kind,
        num_outputs,
        strengths,
        groups=train.groups,
        balanced=balanced,
        score=score,
    )
    return TfidfModel(tfidf, *solution)


def project(features: Matrix, size: int = PROJECTED) -> np.ndarray:
    """Dense vectors [N, size] with about the same inner products: the sum of the features of each of `size` random
    groups, with random signs (Charikar 2002)."""
    from scipy import sparse

    rng, num_features = generator(0, Purpose.LABELS), features.shape[1]
    groups, signs = rng.integers(size, size=num_features), 1.0 - 2 * rng.integers(2, size=num_features)
    matrix = sparse.csr_array((signs, groups, np.arange(num_features + 1)), (num_features, size))
    dense: np.ndarray = (features @ matrix).toarray()
    return dense


def _growing_vocabulary() -> dict[str, int]:
    """A dict in which looking up a new term assigns it the next index."""
    vocabulary: defaultdict[str, int] = defaultdict()
    vocabulary.default_factory = vocabulary.__len__
    return vocabulary


def _count_ngrams(texts: Sequence[str], words: dict[str, int], characters: dict[str, int]) -> tuple[Matrix, Matrix]:
    """Counts of the words and word bigrams, and of the character n-grams, in each text.

    Terms that are missing from a vocabulary are ignored, unless it grows. Characters are counted once per distinct
    word, which takes a third of the time on 1,780 articles.
    """
    chunks = _growing_vocabulary()
    chunks_by_text = _count_terms((text.lower().split() for text in texts), chunks)
    ngrams_by_chunk = _count_terms(map(_character_ngrams, chunks), characters)
    return _count_terms(map(_word_ngrams, texts), words), (chunks_by_text @ ngrams_by_chunk).tocsr()


def _count_terms(rows: Iterable[Sequence[str]], vocabulary: dict[str, int]) -> Matrix:
    """Counts of the vocabulary's terms in each row: [rows, terms]."""
    from scipy import sparse

    indices, ends = array("l"), array("l", [0])
    grows = isinstance(vocabulary, defaultdict)
    for terms in rows:
        if grows:
            indices.extend(map(vocabulary.__getitem__, terms))
        else:
            indices.extend(vocabulary[term] for term in terms if term in vocabulary)
        ends.append(len(indices))
    columns = np.frombuffer(indices, np.dtype("l")) if indices else np.zeros(0, np.int64)
    shape = (len(ends) - 1, len(vocabulary))
    counts = sparse.csr_array((np.ones(len(columns)), columns, np.frombuffer(ends, np.dtype("l"))), shape)
    counts.sum_duplicates()
    return counts


def _word_ngrams(text: str) -> list[str]:
    words = WORD.findall(text.lower())
    return [*words, *(f"{first} {second}" for first, second in pairwise(words))]


def _character_ngrams(word: str) -> list[str]:
    padded = f" {word} "
    return [padded[start : start + size] for size in NGRAM_SIZES for start in range(len(padded) - size + 1)]
