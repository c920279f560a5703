"""Predictor.label_next: of unlabelled texts, those to label next (active_learning.py).

Letters: N texts, H size of a vector.
"""

from hashlib import blake2b
from typing import TYPE_CHECKING, Unpack

import numpy as np

from bothways.errors import InputError, format_count
from bothways.inference.base import PredictorBase
from bothways.inference.reading import ReadOptions, Texts
from bothways.tasks.arguments import read_one_or_many, whole_number
from bothways.tasks.arrays import normalize

if TYPE_CHECKING:
    from bothways.inference.active_learning import CandidatePool, UnlabelledTexts


class LabelChoice(PredictorBase):
    def label_next(self, texts: Texts, n: int, pairs: Texts | None = None, **options: Unpack[ReadOptions]) -> list[int]:
        """The indices of the n texts (or pairs) to label next: the classifier is uncertain of them, and they differ.

        The most uncertain text comes first. Empty texts are left out, and of texts that differ only in case, spaces or
        punctuation one is kept. The choice depends on nothing but texts, order and model. InputError if there are fewer
        than n different texts, or if the model is not a classifier.
        """
        from bothways.inference.active_learning import CandidatePool

        firsts, seconds, is_single = read_one_or_many(texts, pairs)
        if is_single:
            raise InputError("texts is a single string; give a list of texts to choose from")
        pool = CandidatePool(whole_number("n", n, 1))
        pool.add(self.label_candidates(firsts, seconds, **options))
        return choose_all(pool, f"{format_count(len(firsts), 'text')} given")

    def label_candidates(
        self, texts: list[str], pairs: list[str] | None, **options: Unpack[ReadOptions]
    ) -> "UnlabelledTexts":
        """What `label_next` needs to know of each text (or pair). InputError if the model is not a classifier."""
        from bothways.inference.active_learning import UnlabelledTexts, uncertainties

        if self.task != "classify":
            raise InputError(f"label_next is for classifiers; the task of this model is {self.task}")
        uncertainty, vectors = [], []
        for scores_nC, vectors_nH in self.backend.scored_vectors("classes", texts, pairs, options):
            uncertainty.append(uncertainties(scores_nC, multi_label=self.description.multi_label))
            vectors.append(normalize(vectors_nH))
        keys = [_row_key(*row) for row in zip(texts, pairs or [""] * len(texts), strict=True)]
        return UnlabelledTexts(np.arange(len(keys)), keys, np.concatenate(uncertainty), np.concatenate(vectors))


def choose_all(pool: "CandidatePool", source: str) -> list[int]:
    """The indices that a pool chooses. InputError if there are fewer than it wants; source: what they come from."""
    chosen = pool.choose()
    if len(chosen) < pool.number:
        different = f"{len(chosen):,} of them different and not empty"
        raise InputError(f"label_next ({pool.number:,}) is more than there are: {source}, {different}; ask for fewer")
    return chosen


def _row_key(text: str, pair: str) -> str:
    """A key that near-duplicate rows share; "" for an empty row."""
    from bothways.data.near_duplicates import text_key

    keys = text_key(text), text_key(pair)
    return blake2b(repr(keys).encode(), digest_size=16).hexdigest() if any(keys) else ""
