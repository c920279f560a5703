"""The task of reranking: a score for each query with a passage, by which passages are ordered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bothways.settings.finetune import Rerank
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks.model_use import ModelUse
from bothways.tasks.regress.task import RegressTask
from bothways.tasks.rerank.files import read_ranking_tables
from bothways.tasks.rerank.scoring import RankedRow, RankEvaluator
from bothways.tasks.rerank.training import RerankTraining
from bothways.tasks.task import LabelledRows
from bothways.text.data.model_inputs import ModelInput, resolve_columns
from bothways.text.data.rankings import read_rankings

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.tasks.task import LoadedModel


class RerankTask(RegressTask):
    """A score for each query with a passage, by which passages are ordered."""

    name = "rerank"
    pair_use = ModelUse(
        kind="a reranker: it scores how well a passage fits a query",
        tag="text-ranking",
        call='model.rerank("late trains", "The train to Bern was late.")',
        route="/rerank",
        body='{"query": "late trains", "texts": ["The train to Bern was late.", "It rained."]}',
        libraries={
            "sentence-transformers": (
                "from sentence_transformers import CrossEncoder\n\n"
                'model = CrossEncoder("MODEL")\n'
                'print(model.predict([("late trains", "The train to Bern was late.")]))  # after a sigmoid'
            )
        },
    )

    def train(self, settings: Rerank, pretrained: Checkpoint, fold: int | None) -> RerankTraining:  # type: ignore[override]
        return RerankTraining.build(settings, pretrained, read_ranking_tables(settings, fold))

    def read(
        self, model: LoadedModel, files: Sequence[TableSource], columns: Any, *, need_labels: bool
    ) -> LabelledRows:
        """Queries with their passages, with the ranks of the search if the table has them."""
        rows = list[RankedRow]()
        for file in files:
            names = resolve_columns(file, columns, model.description.settings, ("text", "pair", "label"))
            named = replace(columns, **{f"{use}_column": name for use, name in names.items()})
            table = read_rankings(file, named)
            rows += map(RankedRow, table.queries, table.passages, table.labels, table.units, table.ranks)
        return LabelledRows(RankEvaluator(), rows, labelled=True)

    def predict_rows(self, model: LoadedModel, rows: Sequence[ModelInput], **options: Any) -> list[dict[str, Any]]:
        texts = [row[0] for row in rows]
        pairs = [row[1] or "" for row in rows]
        return [{"score": score} for score in model.rerank(texts, pairs, **options).tolist()]


RERANK = RerankTask()
