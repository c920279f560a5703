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
    """Documents by name.

    names: the name of each document.
    analyzer: splits texts into terms; None if only vectors are searched.
    bm25: the scores by words, if words are searched.
    by_term: the inverted lists of each term.
    vectors_DH: a vector of length 1 for each document; None if only words are searched.
    """

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
        """A collection of these documents.

        documents: name -> text.
        analyzer: splits texts into terms; None: the English one.
        has_words: whether words are searched, too.
        vectors_DH: a vector of length 1 for each document; None if only words are searched.
        """
        names = [*documents]
        if not has_words:
            return Collection(names=names, analyzer=None, bm25=None, by_term={}, vectors_DH=vectors_DH)

        analyzer = analyzer or Analyzer("en")
        lists, lengths = invert([analyzer.terms(text) for text in documents.values()])
        all_exist = np.ones(len(names), bool)
        return Collection(
            names=names,
            analyzer=analyzer,
            bm25=Bm25(lengths, all_exist, background_shares(analyzer.language)),
            by_term={term: [inverted] for term, inverted in lists.items()},
            vectors_DH=vectors_DH,
        )

    def search(self, query: str, vector_H: np.ndarray | None, number: int) -> list[tuple[str, float]]:
        """The best documents and their fused scores in 0..1, best first.

        query: the query.
        vector_H: the vector of the query; None searches words alone.
        number: most documents.
        """
        scores = []
        above = []
        if self.analyzer is not None and self.bm25 is not None:
            scores.append(self.bm25.scores(self.analyzer.terms(query), self.by_term))
            above.append(0.0)
        if self.vectors_DH is not None and vector_H is not None:
            scores.append(self.vectors_DH @ vector_H)
            above.append(-np.inf)

        allowed = np.ones(len(self.names), bool)
        slots, fused = fuse(scores, allowed, number, above=above)
        return [(self.names[slot], float(score)) for slot, score in zip(slots, fused, strict=True)]
