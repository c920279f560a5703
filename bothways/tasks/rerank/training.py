"""Training of a reranker.

It learns the order of the passages that a search has found, so its baseline is that order: no reranking.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bothways.base.errors import InputError, flag
from bothways.model.linear.tfidf import MAX_TERMS, Tfidf
from bothways.settings.finetune import Rerank
from bothways.tasks import training_task
from bothways.tasks.arrays import Floats
from bothways.tasks.rerank.decoding import Reranking
from bothways.tasks.rerank.examples import RankExamples
from bothways.tasks.rerank.report import RankReport
from bothways.tasks.rerank.scoring import BY_TFIDF, NO_RERANKING, ListObjective, ListScoring
from bothways.text.data.rankings import RankedPassages, ranks_by_score

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint

STEP_QUERIES = 8  # of a step, at least
MICRO_BATCH_TOKENS = 4096


@dataclass(frozen=True)
class RerankTraining(training_task.TrainingTask):
    """Queries with their passages.

    choice: what dev chooses, by name: the weight of the model's score. scored: by split, the fingerprint of the model
    that was scored last, and its scores.
    """

    name: ClassVar[str] = "rerank"
    max_micro_batch_tokens: ClassVar[float] = MICRO_BATCH_TOKENS
    min_step_examples: ClassVar[int] = STEP_QUERIES
    min_steps: ClassVar[int] = 150
    initial_model: ClassVar[str] = ""
    keeps_start: ClassVar[str] = NO_RERANKING
    settings: Rerank
    pretrained: Checkpoint
    rows: Mapping[str, RankedPassages]
    data: Mapping[str, RankExamples]
    choice: dict[str, float] = field(default_factory=dict)
    scored: dict[str, tuple[str, Sequence[Floats]]] = field(default_factory=dict)

    @staticmethod
    def build(settings: Rerank, pretrained: Checkpoint, rows: Mapping[str, RankedPassages]) -> RerankTraining:
        reader = training_task.text_reader(settings.windows, pretrained)
        data = {split: RankExamples.encode(table, *reader) for split, table in rows.items()}
        data["train"] = data["train"].learnable()
        if not data["train"].lists:
            raise InputError(
                f"{settings.train}: no query has both a relevant passage (label above 0) and another one (label 0); "
                f"add rows, or give {flag('pairs')} and {flag('negatives_from')}"
            )
        return RerankTraining(settings=settings, pretrained=pretrained, rows=rows, data=data)

    @property
    def reranking(self) -> Reranking:
        """How the model reranks, with the weight that dev chose last."""
        if not self.rows["dev"].has_ranks:
            return Reranking()
        deepest = max((rank for rank in self.rows["dev"].ranks if rank is not None), default=None)
        return Reranking(self.choice.get("weight", 1.0), deepest)

    def ranks(self, split: str) -> list[int | None]:
        """The place of each passage in the search; without a search, in the order by TF-IDF."""
        table = self.rows[split]
        return table.ranks if table.has_ranks else ranks_by_score(table, self.cosines[split])

    @cached_property
    def cosines(self) -> dict[str, list[float]]:
        """The cosines of the TF-IDF vectors of query and passage, by split but train."""
        train = self.rows["train"]
        tfidf, _ = Tfidf.learn([*dict.fromkeys([*train.queries, *train.passages])], MAX_TERMS)
        cosines = {}
        for split, table in self.rows.items():
            if split != "train":
                queries = tfidf(table.queries).to_scipy()
                passages = tfidf(table.passages).to_scipy()
                cosines[split] = np.asarray(queries.multiply(passages).sum(1)).ravel().tolist()
        return cosines

    def training_examples(self, seed: int, epoch: int) -> RankExamples:
        return self.data["train"].sample(self.settings.negatives + 1, seed=seed, epoch=epoch)

    def initial_checkpoint(self, seed: int) -> Checkpoint:
        from bothways.model.checkpoint.changes.new_head import with_head

        return with_head(
            self.pretrained,
            "classes",
            (),
            seed=seed,
            num_outputs=1,
            dropout=self.settings.dropout,
            pooling=self.settings.pooling,
            near_identity=True,
        )

    @property
    def objective(self) -> ListObjective:
        return ListObjective()

    def read_by(self, teacher: Checkpoint) -> RerankTraining:
        raise InputError(f"teacher ({self.settings.teacher}): a reranker has none yet; leave it out")

    def with_unlabelled(self) -> RerankTraining:
        raise InputError(f"unlabelled ({self.settings.unlabelled[0]}): a reranker has no use for it; leave it out")

    def baselines(self, split: str, *, words: bool = True) -> Iterator[training_task.Baseline]:
        """The order of the search, and that by TF-IDF."""
        scoring = self.scoring
        yield training_task.Baseline(NO_RERANKING, scoring.scored(split, scoring.found(split)))
        if self.rows[split].has_ranks:
            ranks = self.rows[split].ranks
            cosines = [
                None if rank is None else cosine for cosine, rank in zip(self.cosines[split], ranks, strict=True)
            ]
            yield training_task.Baseline(BY_TFIDF, scoring.scored(split, cosines))

    def metadata(self, metrics_by_split: Mapping[str, training_task.Metrics]) -> dict[str, Any]:
        weight = metrics_by_split["dev"].get("weight", 1.0)
        return {"reads_pairs": True, **replace(self.reranking, weight=weight).to_json()}

    scoring = cached_property(ListScoring)
    report = cached_property(RankReport)
