"""A collection of texts in memory, searched by words, by vectors or by both, as an index is.

Letters: D documents, H vector size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bothways.text.retrieval.bm25 import Bm25, InvertedList, invert
from bothways.text.retrieval.fusion import fuse
from bothways.text.retrieval.words import Analyzer, background_shares


@dataclass(frozen=True)
class Collection:
    """Documents by name. analyzer: of words; None: searched by vectors alone. vectors_DH: of length 1; None: by words
    alone."""

    names: Sequence[str]
    analyzer: Analyzer | None
    bm25: Bm25 | None
    by_term: Mapping[str, Sequence[InvertedList]]
    vectors_DH: np.ndarray | None

    @staticmethod
    def of(
        documents: Mapping[str, str],
        *,
        analyzer: Analyzer | None = None,
        has_words: bool = True,
        vectors_DH: np.ndarray | None = None,
    ) -> "Collection":
        """analyzer: None: the English one. has_words: whether words are searched, too."""
        names = [*documents]
        if not has_words:
            return Collection(names, None, None, {}, vectors_DH)
        analyzer = analyzer or Analyzer("en")
        lists, lengths = invert([analyzer.terms(text) for text in documents.values()])
        bm25 = Bm25(lengths, np.ones(len(names), bool), background_shares(analyzer.language))
        return Collection(names, analyzer, bm25, {term: [one] for term, one in lists.items()}, vectors_DH)

    def search(self, query: str, vector_H: np.ndarray | None, number: int) -> list[tuple[str, float]]:
        """The best documents and their fused scores in 0..1, best first. vector_H: of the query."""
        scores, above = [], []
        if self.analyzer is not None and self.bm25 is not None:
            scores.append(self.bm25.scores(self.analyzer.terms(query), self.by_term))
            above.append(0.0)
        if self.vectors_DH is not None and vector_H is not None:
            scores.append(self.vectors_DH @ vector_H)
            above.append(-np.inf)
        slots, fused = fuse(scores, np.ones(len(self.names), bool), number, above=above)
        return [(self.names[slot], float(score)) for slot, score in zip(slots, fused, strict=True)]
