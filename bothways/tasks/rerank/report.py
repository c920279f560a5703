"""Reranking in a report: numbers and warnings about the queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bothways.base.errors import format_count
from bothways.tasks import training_task
from bothways.tasks.rerank.scoring import BY_TFIDF, NDCG, NO_RERANKING
from bothways.text.data.splits import overlap_warnings

if TYPE_CHECKING:
    from bothways.tasks.rerank.training import RerankTraining


@dataclass(frozen=True)
class RankReport(training_task.TaskReport):
    task: RerankTraining

    def num_rows(self, split: str) -> int:
        """The number of queries that have a relevant passage."""
        rows = self.task.rows[split]
        return len({unit for unit, label in zip(rows.units, rows.labels, strict=True) if label})

    def lengths(self, split: str) -> Sequence[int]:
        return self.task.data[split].texts.lengths

    def lines(self) -> Iterator[str]:
        yield from (f"{split}: {examples.describe()}" for split, examples in self.task.data.items())
        untrained = []
        for split in self.task.data:
            if split != "train":
                scores = self.task.scoring.scored(split, self.task.scoring.found(split))
                untrained.append(f"{split} {NDCG} {self.task.scoring.score_predictions(scores)[NDCG]:.4f}")
        yield f"{NO_RERANKING}: {', '.join(untrained)}"

    @property
    def warnings(self) -> list[str]:
        tables = self.task.rows
        warnings = [*dict.fromkeys(note for table in tables.values() for note in table.notes)]
        warnings += overlap_warnings({split: [*dict.fromkeys(table.keys)] for split, table in tables.items()})
        if not tables["train"].has_ranks:
            warnings.append(
                f"no column has the rank or the score of a search; {NO_RERANKING!r} is the {BY_TFIDF} of the passages"
            )
        unused = len(tables["train"].lists) - len(self.task.data["train"].lists)
        if unused:
            warnings.append(
                f"{format_count(unused, 'query', 'queries')} of train are left out: they have no relevant passage, or "
                "no other one"
            )
        return warnings
