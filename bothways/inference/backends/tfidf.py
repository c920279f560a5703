"""Linear models over TF-IDF features: classes or numbers of whole texts, in float64 on the CPU."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bothways.base.errors import InputError
from bothways.inference.backends.backend import MAX_SCORES, Backend
from bothways.inference.reading import ReadOptions, Rows, check_pairs
from bothways.model.checkpoint.description import Description
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats.tfidf import no_encoder_error, read_tfidf, write_tfidf
from bothways.model.linear.tfidf import Matrix, TfidfModel, project


class TfidfBackend(Backend):
    """A linear model over TF-IDF features. It does not split texts into windows."""

    def __init__(self, model: TfidfModel, description: Description, directory: Path) -> None:
        """directory: named in errors."""
        self.model = model
        self.description = description
        self.directory = directory
        self.heads = {"classes": len(model.bias_C)}
        self.device = "cpu"
        self.dtype = "float64"

    @classmethod
    def open(cls, directory: Directory, *, window: int | None = None, **options: object) -> "TfidfBackend":
        """Read a directory. Number format, device and batches of encoders do not matter."""
        if window:
            raise InputError(f"window ({window}) is for models that read tokens; TF-IDF models read whole texts")
        return cls(*read_tfidf(directory), directory.path)

    def refusal(self) -> InputError:
        return no_encoder_error(self.directory, classifies=self.task == "classify")

    def facts(self) -> dict[str, Any]:
        regression = "logistic" if self.description.labels else "ridge"
        kind = "pairs of texts" if self.description.metadata.get("reads_pairs") else "texts"
        terms = self.model.tfidf
        facts: dict[str, Any] = {
            "model": f"TF-IDF, {regression} regression: {self.task} {kind}, with predict and evaluate",
            "terms": len(terms.words) + len(terms.characters),
        }

        train = self.description.settings.get("train")
        if train:
            facts["trained on"] = train
        return facts

    def save(self, target: Path) -> None:
        write_tfidf(self.model, self.description, target)

    def text_scores(
        self, head: str, texts: Sequence[str], pairs: Sequence[str] | None, options: ReadOptions
    ) -> Iterator[Rows]:
        return (scores_nC for scores_nC, _ in self._scored_features(head, texts, pairs))

    def scored_vectors(
        self, head: str, texts: Sequence[str], pairs: Sequence[str] | None, options: ReadOptions
    ) -> Iterator[tuple[Rows, Rows]]:
        for scores_nC, features_nF in self._scored_features(head, texts, pairs):
            yield scores_nC, project(features_nF).astype(np.float32, copy=False)

    def _scored_features(
        self, head: str, texts: Sequence[str], pairs: Sequence[str] | None
    ) -> Iterator[tuple[Rows, Matrix]]:
        num_outputs = self.heads[head]
        if not texts and not pairs:
            yield np.zeros((0, num_outputs), np.float32), self.model.tfidf.features([], None)
            return
        check_pairs(self.description, pairs is not None, "the call")

        step = max(1, MAX_SCORES // num_outputs)
        for start in range(0, max(1, len(texts)), step):
            part = slice(start, start + step)
            part_pairs = None if pairs is None else pairs[part]
            features_nF = self.model.tfidf.features(texts[part], part_pairs)
            yield self.model.scores(features_nF).astype(np.float32), features_nF
