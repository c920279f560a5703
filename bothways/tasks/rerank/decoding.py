"""Reranking: the score of a model of (query, passage) and the rank of the search, combined into one order.

The score of a passage is its log-probability of being the relevant one among the passages of its query, as the ranking
loss trains it. The score of a rank is log(1 / rank), by Zipf's law. Their weighted sum orders the passages.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

RERANKING = "reranking"  # key in bothways.json of a model
WEIGHTS = (1.0, 0.75, 0.5, 0.25)  # of the model's score, of which dev chooses one; 0 would be no reranking


@dataclass(frozen=True)
class Reranking:
    """How a model reranks the results of a search.

    weight: of the model's score, in 0..1; the rank has the rest. passages: how many of the first passages are
    reranked, as in the measurement; None: as many as the search does.
    """

    weight: float = 1.0
    passages: int | None = None

    @staticmethod
    def of(metadata: Mapping[str, Any]) -> "Reranking":
        """That of a model, by its metadata; of a model that was trained otherwise, its score alone."""
        return Reranking(**metadata.get(RERANKING, {}))

    def to_json(self) -> dict[str, Any]:
        return {RERANKING: asdict(self)}

    def combined(self, score: float, rank: int | None) -> float:
        """The number that orders a passage of its query; greater is better. rank: from 1; None: unknown."""
        if self.weight == 1.0 or rank is None:
            return score
        return self.weight * score - (1 - self.weight) * math.log(rank)

    def order(self, scores: Sequence[float]) -> list[int]:
        """The order of passages, best first, as their indices. scores: of passages in the order of the search; those
        after the first `passages` are not given."""
        values = [self.combined(score, rank) for rank, score in enumerate(scores, 1)]
        return sorted(range(len(values)), key=lambda place: -values[place])
