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
WORD = re.compile(r"\w+")
NGRAM_SIZES = range(2, 6)  # characters
MIN_TEXTS = 50  # with fewer texts, n-grams that occur in a single text are kept too
MAX_TERMS = 100_000  # n-grams
MAX_WEIGHTS = 4_000_000  # features times outputs
CLASS_STRENGTHS = (1.0, 10.0, 100.0)
NUMBER_STRENGTHS = (0.1, 1.0, 10.0)
MAX_TRAIN_ROWS = 100_000
MAX_DEV_ROWS = 10_000
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
        words = _growing_vocabulary()
        characters = _growing_vocabulary()
        word_counts, character_counts = _count_ngrams(texts, words, characters)
        word_frequencies = _num_texts(word_counts)
        character_frequencies = _num_texts(character_counts)

        # Words and characters compete for the same number of terms.
        ranked = np.sort(np.concatenate([word_frequencies, character_frequencies]))[::-1]
        min_frequency = 2 if len(texts) >= MIN_TEXTS else 1
        if len(ranked) > max_terms:
            min_frequency = max(min_frequency, int(ranked[max_terms]) + 1)
        word_columns = np.flatnonzero(word_frequencies >= min_frequency)
        character_columns = np.flatnonzero(character_frequencies >= min_frequency)

        num_texts_F = np.concatenate([word_frequencies[word_columns], character_frequencies[character_columns]])
        tfidf = Tfidf(
            words=_renumber(words, word_columns),
            characters=_renumber(characters, character_columns),
            idf_F=np.log((1 + len(texts)) / (1 + num_texts_F)) + 1,
        )
        counts = [word_counts.columns(word_columns), character_counts.columns(character_columns)]
        return tfidf, tfidf._weigh(counts)

    def __call__(self, texts: Sequence[str]) -> Csr:
        """[N, F] float64."""
        counts = _count_ngrams(texts, self.words, self.characters)
        return self._weigh(counts)

    def _weigh(self, counts: Sequence[Csr]) -> Csr:
        """Vectors from the counts of word and character n-grams in each text."""
        parts = []
        for part, idf_F in zip(counts, np.split(self.idf_F, [len(self.words)]), strict=True):
            values = (np.log(part.data) + 1) * idf_F[part.indices]
            rows_K = part.row_numbers
            lengths_N = np.sqrt(np.bincount(rows_K, values**2, part.shape[0]))
            parts.append(replace(part, data=values / lengths_N[rows_K]))
        return hstack(parts)

    def features(self, texts: Sequence[str], pairs: Sequence[str] | None) -> Csr:
        """Features of texts or pairs for a linear model."""
        if pairs is None:
            return self(texts)
        return self.pair_features(self(texts), self(pairs))

    def pair_features(self, first: Csr, second: Csr) -> Csr:
        """Features of pairs: both vectors, their product, their absolute difference, and the cosines of the word part
        and of the character part."""
        product, distance = product_and_distance(first, second)

        # Both parts have length 1, so the sum of their products is their cosine.
        is_word_K = product.indices < len(self.words)
        word_cosines_N = product.where(is_word_K).row_sums()
        character_cosines_N = product.where(~is_word_K).row_sums()
        num_pairs = len(word_cosines_N)
        cosines = Csr(
            data=np.stack([word_cosines_N, character_cosines_N], 1).ravel(),
            indices=np.tile([0, 1], num_pairs),
            indptr=2 * np.arange(num_pairs + 1),
            width=2,
        )
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
        return replace(
            self,
            weight_CF=self.weight_CF * deviation,
            bias_C=self.bias_C * deviation + mean,
        )


@dataclass(frozen=True)
class Gram:
    """Few rows as a linear model with an L2 penalty sees them: by their products with each other.

    features_NR: coordinates of the rows in the space that they span; their products equal the products of the TF-IDF
    features x_NF. A model of these R <= N numbers is one of the F terms, and has the same penalty.
    basis_NR: features_NR = x_NF @ x_NF.T @ basis_NR.
    """

    tfidf: Tfidf
    x_NF: Csr
    basis_NR: np.ndarray
    features_NR: "torch.Tensor"

    def model(self, weight_CR: np.ndarray, bias_C: np.ndarray, strength: float) -> TfidfModel:
        """The model of the terms for a model of the coordinates.

        weight_CR, bias_C: of the coordinates.
        strength: of the penalty.
        """
        weight_FC = self.x_NF.to_scipy().T @ (self.basis_NR @ weight_CR.T)
        return TfidfModel(
            tfidf=self.tfidf,
            weight_CF=np.ascontiguousarray(weight_FC.T),
            bias_C=bias_C,
            strength=strength,
        )


def gram(texts: Sequence[str], pairs: Sequence[str] | None, num_outputs: int) -> Gram:
    """The products of some rows. Terms and idf come from all rows: they need no labels.

    texts, pairs: of the rows; pairs: second texts.
    num_outputs: of the models to come, which limits the number of terms.
    """
    import torch

    tfidf, x_NF = learn_features(texts, pairs, num_outputs)
    rows = x_NF.to_scipy()
    products_NN = (rows @ rows.T).toarray()

    # The directions that the rows span, scaled so that products of coordinates are products of rows.
    values_N, vectors_NN = np.linalg.eigh(products_NN)
    is_kept_N = values_N > SPANNED * max(values_N.max(), 1e-12)
    basis_NR = vectors_NN[:, is_kept_N] / np.sqrt(values_N[is_kept_N])
    features_NR = (products_NN @ basis_NR).astype(np.float32)
    return Gram(tfidf=tfidf, x_NF=x_NF, basis_NR=basis_NR, features_NR=torch.from_numpy(features_NR))


@dataclass(frozen=True)
class TextRows:
    """Texts, optionally with second texts, and targets: classes [N], labels [N, C] (0 or 1) or numbers [N].

    groups: the group of each row, which stays together in cross-validation.
    """

    texts: Sequence[str]
    pairs: Sequence[str] | None
    targets: np.ndarray
    groups: Sequence[Hashable] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def sample(self, max_rows: int) -> "TextRows":
        """At most `max_rows` of these rows, chosen at random."""
        if len(self) <= max_rows:
            return self

        rows = random_order(len(self))[:max_rows].tolist()
        return TextRows(
            texts=[self.texts[row] for row in rows],
            pairs=None if self.pairs is None else [self.pairs[row] for row in rows],
            targets=self.targets[rows],
            groups=None if self.groups is None else [self.groups[row] for row in rows],
        )


def fit(
    train: TextRows,
    dev: TextRows,
    kind: Kind,
    num_outputs: int = 1,
    *,
    balanced: bool = False,
    score: Score | None = None,
) -> TfidfModel:
    """Fit a model to at most MAX_TRAIN_ROWS rows; see `regressions.fit`.

    train: rows to fit.
    dev: rows for selecting the strength of the penalty; may be empty.
    kind: of the targets.
    num_outputs: C.
    balanced: give all classes the same total weight.
    score: of held-out rows; None: the lowest loss decides.
    """
    train = train.sample(MAX_TRAIN_ROWS)
    dev = dev.sample(MAX_DEV_ROWS)
    tfidf, x_NF = learn_features(train.texts, train.pairs, num_outputs)
    dev_NF = tfidf.features(dev.texts, dev.pairs)

    weight_CF, bias_C, strength = regressions.fit(
        (x_NF.to_scipy(), train.targets),
        (dev_NF.to_scipy(), dev.targets),
        kind,
        num_outputs=num_outputs,
        strengths=NUMBER_STRENGTHS if kind == "number" else CLASS_STRENGTHS,
        groups=train.groups,
        balanced=balanced,
        score=score,
    )
    return TfidfModel(tfidf=tfidf, weight_CF=weight_CF, bias_C=bias_C, strength=strength)


def learn_features(texts: Sequence[str], pairs: Sequence[str] | None, num_outputs: int) -> tuple[Tfidf, Csr]:
    """The vocabulary and idf of texts or pairs, and their features for a linear model.

    texts: of the rows.
    pairs: second texts of the rows.
    num_outputs: of the model, which limits the number of terms.
    """
    if pairs is None:
        return Tfidf.learn(texts, min(MAX_TERMS, MAX_WEIGHTS // num_outputs))

    max_terms = min(MAX_TERMS, MAX_WEIGHTS // (num_outputs * NUM_PAIR_PARTS))
    tfidf, x_NF = Tfidf.learn([*texts, *pairs], max_terms)
    first_NF = x_NF[: len(texts)]
    second_NF = x_NF[len(texts) :]
    return tfidf, tfidf.pair_features(first_NF, second_NF)


def project(features: Csr, size: int = PROJECTED) -> np.ndarray:
    """Dense vectors [N, size] with about the same inner products: the sum of the features of each of `size` random
    groups, with random signs (Charikar 2002)."""
    num_rows, num_features = features.shape
    rng = generator(0, Purpose.LABELS)
    groups_F = rng.integers(size, size=num_features)
    signs_F = 1.0 - 2 * rng.integers(2, size=num_features)

    targets_K = features.row_numbers * size + groups_F[features.indices]
    values_K = features.data * signs_F[features.indices]
    sums: np.ndarray = np.bincount(targets_K, values_K, num_rows * size)
    return sums.reshape(num_rows, size)


def _growing_vocabulary() -> dict[str, int]:
    """A dict in which looking up a new term assigns it the next index."""
    vocabulary: defaultdict[str, int] = defaultdict()
    vocabulary.default_factory = vocabulary.__len__
    return vocabulary


def _num_texts(counts: Csr) -> np.ndarray:
    """In how many texts each term occurs."""
    return np.bincount(counts.indices, minlength=counts.shape[1])


def _renumber(vocabulary: dict[str, int], columns: np.ndarray) -> dict[str, int]:
    """The terms of some columns, which ascend, with new columns."""
    terms = [*vocabulary]
    return {terms[column]: index for index, column in enumerate(columns.tolist())}


def _count_ngrams(texts: Sequence[str], words: dict[str, int], characters: dict[str, int]) -> tuple[Csr, Csr]:
    """Counts of the words and word bigrams, and of the character n-grams, in each text.

    texts: the rows of the counts.
    words, characters: the vocabularies. Terms that are missing from one are ignored, unless it grows.
    """
    # Characters are counted once per distinct word: a third of the time on 1,780 articles.
    chunks = _growing_vocabulary()
    chunks_by_text = _count_terms((text.lower().split() for text in texts), chunks)
    ngrams_by_chunk = _count_terms(map(_character_ngrams, chunks), characters)
    word_counts = _count_terms(map(_word_ngrams, texts), words)
    return word_counts, expand(chunks_by_text, ngrams_by_chunk)


def _count_terms(rows: Iterable[Sequence[str]], vocabulary: dict[str, int]) -> Csr:
    """Counts of the vocabulary's terms in each row: [rows, terms]."""
    indices = array("l")
    ends = array("l", [0])
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
