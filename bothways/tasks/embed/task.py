"""The task of embedding: a vector for each text.

Letters: N texts or pairs, R texts of a pair, H dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bothways.base.errors import InputError
from bothways.base.io import is_same_file
from bothways.settings.finetune import TrainEmbed
from bothways.settings.predict import Evaluate
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks.arrays import Floats, normalize
from bothways.tasks.embed.examples import pair_keys, text_ids
from bothways.tasks.embed.files import read_pairs, read_trained_pairs
from bothways.tasks.embed.scoring import TOP, VectorEvaluator, pair_scores, rank_pairs, ranking_scores
from bothways.tasks.embed.training import Embedding
from bothways.tasks.model_use import ENCODE, ModelUse
from bothways.tasks.scores import Scores
from bothways.tasks.task import LabelledRows, Task, file_given_twice
from bothways.tasks.text_rows import read_trained_table
from bothways.text.batching import chunked
from bothways.text.data.beir import read_qrels, read_ranking

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.tasks.task import LoadedModel

EMBED_CHUNK = 8192  # texts that are embedded together


def embed_chunks(model: LoadedModel, texts: Sequence[str], dimensions: int | None = None) -> Floats:
    """A vector per text, [N, H], computed in chunks, so that only the vectors of all texts are in memory. dimensions:
    keep only the first ones, and scale to length 1 again."""
    vectors_NH: Floats = np.empty((0, 0), np.float32)
    for rows in chunked(range(len(texts)), EMBED_CHUNK):
        vectors_nH = model.embed([texts[row] for row in rows])
        if dimensions is not None:
            if dimensions > vectors_nH.shape[1]:
                raise InputError(f"dimensions ({dimensions}) is more than the {vectors_nH.shape[1]} of the model")
            vectors_nH = normalize(vectors_nH[:, :dimensions])
        if not len(vectors_NH):
            vectors_NH = np.empty((len(texts), vectors_nH.shape[1]), np.float32)
        vectors_NH[rows[0] : rows[-1] + 1] = vectors_nH
    return vectors_NH


class EmbedTask(Task):
    """A vector for each text."""

    name = "embed"
    gold = "ranking"
    route = "/embed"
    use = ModelUse(
        kind="an embedding model: a vector for a text",
        tag="sentence-similarity",
        call='model.embed(["The train was late.", "The train was on time."])',
        route="/embed",
        body='{"inputs": "The train was late."}',
        libraries={"sentence-transformers": ENCODE.format(texts='["The train was late."]')},
    )
    evaluate_options = ("how", "rerank", "dimensions")
    evaluate_data = "pairs of texts or a BEIR directory"

    def train(self, settings: TrainEmbed, pretrained: Checkpoint, fold: int | None) -> Embedding:
        return Embedding.build(settings, pretrained, read_pairs(settings, fold))

    def read(
        self, model: LoadedModel, files: Sequence[TableSource], columns: Any, *, need_labels: bool
    ) -> LabelledRows:
        """Texts without labels, for which the vectors of two models are compared."""
        named = columns.label_column is not None
        texts = [text for file in files for text in read_trained_table(model, file, columns, need_labels=named).texts]
        return LabelledRows(VectorEvaluator(), texts, labelled=False)

    def evaluate(self, model: LoadedModel, files: Sequence[TableSource], columns: Any) -> Scores:
        """The correlation of scores and cosines for scored pairs; for other pairs how well each text retrieves its
        partner among all."""
        if len(files) != 1:
            raise InputError("an embedding model is evaluated on one file of pairs, or one BEIR directory")
        (file,) = files
        if columns.how != "vectors" or columns.rerank:
            name = "how" if columns.how != "vectors" else "rerank"
            raise InputError(f"{name} is for a BEIR directory (corpus.jsonl, queries.jsonl, qrels/); {file} is none")
        pairs = read_trained_pairs(file, columns, model.description.settings)
        vectors_RNH = np.stack([embed_chunks(model, texts, columns.dimensions) for texts in pairs.texts])
        if pairs.scores is not None:
            cosines_N = (vectors_RNH[0] * vectors_RNH[1]).sum(1)
            return pair_scores(pairs.scores.tolist(), cosines_N.tolist(), pair_keys(pairs.texts))
        return ranking_scores(*rank_pairs(vectors_RNH, text_ids(pairs.texts)), k=TOP)

    def score_file(self, predictions: Path, gold: Path, columns: Evaluate) -> Scores:
        """Rankings of documents for each query, against relevance judgements (qrels)."""
        if is_same_file(predictions, gold):
            raise file_given_twice(gold, "relevance judgements are no ranking")
        qrels = read_qrels(gold, columns.encoding)
        ranking = read_ranking(predictions, columns.encoding)
        if qrels.keys().isdisjoint(ranking):
            raise InputError(f"{predictions}: no query is one of {gold}, such as {min(qrels)!r}; check the names")
        return ranking_scores(qrels, ranking)


EMBED = EmbedTask()
