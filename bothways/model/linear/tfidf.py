"""TF-IDF vectors (Salton 1988) and linear models over them, as a baseline. No torch; scipy only to fit.

Wang and Manning 2012 show how strong such a baseline is. Letters: N texts (or pairs), F features, C outputs.
"""

import re
from array import array
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bothways.base.rng import Purpose, generator
from bothways.model.linear import regressions
from bothways.model.linear.regressions import Kind, Score, random_order, scores
from bothways.model.linear.sparse import Csr, count_columns, expand, hstack, product_and_distance

if TYPE_CHECKING:
    import torch

Matrix = Csr  # features [N, F]
WORD, NGRAM_SIZES = re.compile(r"\w+"), range(2, 6)
MIN_TEXTS = 50  # with fewer texts, n-grams that occur in a single text are kept too
MAX_TERMS, MAX_WEIGHTS = 100_000, 4_000_000  # limits of n-grams, and of features times outputs
CLASS_STRENGTHS, NUMBER_STRENGTHS = (1.0, 10.0, 100.0), (0.1, 1.0, 10.0)
MAX_TRAIN_ROWS, MAX_DEV_ROWS = 100_000, 10_000
PROJECTED = 512  # size of dense vectors
SPANNED = 1e-8  # smallest squared length of a direction that rows span, relative to the largest
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
    def learn(texts: Sequence[str], max_terms: int) -> tuple["Tfidf", Csr]:
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
        return tfidf, tfidf._weigh([count.columns(part) for count, part in zip(counts, columns, strict=True)])

    def __call__(self, texts: Sequence[str]) -> Csr:
        """[N, F] float64."""
        return self._weigh(_count_ngrams(texts, self.words, self.characters))

    def _weigh(self, counts: Sequence[Csr]) -> Csr:
        """Vectors from the counts of word and character n-grams in each text."""
        parts = []
        for part, idf_F in zip(counts, np.split(self.idf_F, [len(self.words)]), strict=True):
            values, rows_K = (np.log(part.data) + 1) * idf_F[part.indices], part.row_numbers
            lengths_N = np.sqrt(np.bincount(rows_K, values**2, part.shape[0]))
            parts.append(replace(part, data=values / lengths_N[rows_K]))
        return hstack(parts)

    def features(self, texts: Sequence[str], pairs: Sequence[str] | None) -> Csr:
        """Features of texts or pairs for a linear model."""
        return self(texts) if pairs is None else self.pair_features(self(texts), self(pairs))

    def pair_features(self, first: Csr, second: Csr) -> Csr:
        """Features of pairs: both vectors, their product, their absolute difference, and the cosines of the word part
        and of the character part."""
        product, distance = product_and_distance(first, second)
        is_word_K = product.indices < len(self.words)
        cosines_N2 = np.stack([product.where(part_K).row_sums() for part_K in (is_word_K, ~is_word_K)], 1)
        cosines = Csr(cosines_N2.ravel(), np.tile([0, 1], len(cosines_N2)), 2 * np.arange(len(cosines_N2) + 1), 2)
        return hstack([first, second, product, distance, cosines.where(cosines.data != 0)])


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

    def scores(self, features: Csr) -> np.ndarray:
        """[N, C] float64, from `Tfidf.features`."""
        return scores(features, self.weight_CF, self.bias_C)

    def scaled(self, deviation: float, mean: float) -> "TfidfModel":
        """The model for the original numbers, if this one was fitted to standardized ones."""
        return replace(self, weight_CF=self.weight_CF * deviation, bias_C=self.bias_C * deviation + mean)


@dataclass(frozen=True)
class Gram:
    """Few rows as a linear model with an L2 penalty sees them: by their products with each other.

    features_NR: coordinates of the rows in the space that they span, whose products are those of the TF-IDF features
    x_NF. A model of these R <= N numbers is one of the F terms, and has the same penalty. basis_NR: features_NR =
    x_NF @ x_NF.T @ basis_NR.
    """

    tfidf: Tfidf
    x_NF: Csr
    basis_NR: np.ndarray
    features_NR: "torch.Tensor"

    def model(self, weight_CR: np.ndarray, bias_C: np.ndarray, strength: float) -> TfidfModel:
        """The model of the terms for a model of the coordinates."""
        weight_FC = self.x_NF.to_scipy().T @ (self.basis_NR @ weight_CR.T)
        return TfidfModel(self.tfidf, np.ascontiguousarray(weight_FC.T), bias_C, strength)


def gram(texts: Sequence[str], pairs: Sequence[str] | None, num_outputs: int) -> Gram:
    """The products of some rows. Terms and idf are those of all rows: they need no labels."""
    import torch

    learned, x_NF = learn_features(texts, pairs, num_outputs)
    rows = x_NF.to_scipy()
    products_NN = (rows @ rows.T).toarray()
    values_N, vectors_NN = np.linalg.eigh(products_NN)
    is_kept_N = values_N > SPANNED * max(values_N.max(), 1e-12)
    basis_NR = vectors_NN[:, is_kept_N] / np.sqrt(values_N[is_kept_N])
    return Gram(learned, x_NF, basis_NR, torch.from_numpy((products_NN @ basis_NR).astype(np.float32)))


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
    tfidf, x_NF = learn_features(train.texts, train.pairs, num_outputs)
    held_out = tfidf.features(dev.texts, dev.pairs).to_scipy(), dev.targets
    strengths = NUMBER_STRENGTHS if kind == "number" else CLASS_STRENGTHS
    solution = regressions.fit(
        (x_NF.to_scipy(), train.targets),
        held_out,
        kind,
        num_outputs,
        strengths,
        groups=train.groups,
        balanced=balanced,
        score=score,
    )
    return TfidfModel(tfidf, *solution)


def learn_features(texts: Sequence[str], pairs: Sequence[str] | None, num_outputs: int) -> tuple[Tfidf, Csr]:
    """The vocabulary and idf of texts or pairs, and their features for a linear model."""
    max_terms = min(MAX_TERMS, MAX_WEIGHTS // (num_outputs * (1 if pairs is None else NUM_PAIR_PARTS)))
    tfidf, x_NF = Tfidf.learn([*texts, *(pairs or [])], max_terms)
    if pairs is not None:
        x_NF = tfidf.pair_features(x_NF[: len(texts)], x_NF[len(texts) :])
    return tfidf, x_NF


def project(features: Csr, size: int = PROJECTED) -> np.ndarray:
    """Dense vectors [N, size] with about the same inner products: the sum of the features of each of `size` random
    groups, with random signs (Charikar 2002)."""
    rng, (num_rows, num_features) = generator(0, Purpose.LABELS), features.shape
    groups, signs = rng.integers(size, size=num_features), 1.0 - 2 * rng.integers(2, size=num_features)
    places_K = features.row_numbers * size + groups[features.indices]
    sums: np.ndarray = np.bincount(places_K, features.data * signs[features.indices], num_rows * size)
    return sums.reshape(num_rows, size)


def _growing_vocabulary() -> dict[str, int]:
    """A dict in which looking up a new term assigns it the next index."""
    vocabulary: defaultdict[str, int] = defaultdict()
    vocabulary.default_factory = vocabulary.__len__
    return vocabulary


def _count_ngrams(texts: Sequence[str], words: dict[str, int], characters: dict[str, int]) -> tuple[Csr, Csr]:
    """Counts of the words and word bigrams, and of the character n-grams, in each text.

    Terms that are missing from a vocabulary are ignored, unless it grows. Characters are counted once per distinct
    word, which takes a third of the time on 1,780 articles.
    """
    chunks = _growing_vocabulary()
    chunks_by_text = _count_terms((text.lower().split() for text in texts), chunks)
    ngrams_by_chunk = _count_terms(map(_character_ngrams, chunks), characters)
    return _count_terms(map(_word_ngrams, texts), words), expand(chunks_by_text, ngrams_by_chunk)


def _count_terms(rows: Iterable[Sequence[str]], vocabulary: dict[str, int]) -> Csr:
    """Counts of the vocabulary's terms in each row: [rows, terms]."""
    indices, ends = array("l"), array("l", [0])
    grows = isinstance(vocabulary, defaultdict)
    for terms in rows:
        if grows:
            indices.extend(map(vocabulary.__getitem__, terms))
        else:
            indices.extend([vocabulary[term] for term in terms if term in vocabulary])
        ends.append(len(indices))
    columns = np.frombuffer(indices, np.dtype("l")) if indices else np.zeros(0, np.int64)
    return count_columns(columns, np.frombuffer(ends, np.dtype("l")), len(vocabulary))


def _word_ngrams(text: str) -> list[str]:
    words = WORD.findall(text.lower())
    return [*words, *(f"{first} {second}" for first, second in pairwise(words))]


def _character_ngrams(word: str) -> list[str]:
    padded = f" {word} "
    return [padded[start : start + size] for size in NGRAM_SIZES for start in range(len(padded) - size + 1)]
