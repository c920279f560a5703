"""Embeddings in a report: numbers and warnings about the pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bothways.base.errors import flag
from bothways.tasks import training_task
from bothways.tasks.embed.examples import pair_keys
from bothways.text.data.splits import overlap_warnings

if TYPE_CHECKING:
    from bothways.tasks.embed.training import Embedding


@dataclass(frozen=True)
class PairReport(training_task.TaskReport):
    task: Embedding

    def num_rows(self, split: str) -> int:
        return len(self.task.pairs[split].texts[0])

    def lengths(self, split: str) -> Sequence[int]:
        return self.task.data[split].lengths

    def lines(self) -> Iterator[str]:
        yield from (f"{split}: {examples.describe()}" for split, examples in self.task.data.items())
        if self.task.has_scores:
            yield f"scores: {self.task.low:g} is cosine 0, {self.task.high:g} is cosine 1"
        else:
            negatives = " and the hard negatives" if len(self.task.data["train"].windows) > 2 else ""
            yield f"matching pairs; negatives: all other pairs of the step{negatives}"

    def describe(self) -> str:
        metric = self.task.scoring.metric
        untrained = [
            f"{split} {metric} {values[metric]:.4f}" for split, values in self.task.scoring.untrained_metrics.items()
        ]
        return f"{super().describe()}\nbefore training: {', '.join(untrained)}"

    @property
    def warnings(self) -> list[str]:
        keys = {split: pair_keys(part.texts) for split, part in self.task.pairs.items()}
        notes = dict.fromkeys(note for part in self.task.pairs.values() for note in part.notes)
        warnings = [*notes, *overlap_warnings(keys)]
        for split, part in self.task.pairs.items():
            num_empty = sum(not all(map(str.strip, texts)) for texts in zip(*part.texts, strict=True))
            if num_empty:
                warnings.append(f"{num_empty:,} of {len(part.texts[0]):,} pairs of {split} have an empty text")
        if (isolated := self.task.num_isolated) > len(self.task.data["train"].sizes) / 100:
            warnings.append(
                f"{isolated:,} pairs are alone in their step and have no negatives (raise {flag('batch_tokens')}, or "
                f"give {flag('batch_size')})"
            )
        return warnings
