"""A classifier with the interface of scikit-learn, for its pipelines, searches and cross-validation."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from bothways.errors import InputError
from bothways.inference.load import load
from bothways.inference.predictor import Predictor
from bothways.log import muted
from bothways.pretrained import DEFAULT
from bothways.settings.fields import AnyPath
from bothways.settings.finetune import Classify
from bothways.settings.tables_in_memory import as_source
from bothways.training.finetuning import finetune
from bothways.training.finetuning.compare import MODEL

Files = Mapping[str, bytes]  # contents by path, relative to the directory of a model


class TextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Fine-tune on texts and labels: `TextClassifier().fit(texts, labels).predict_proba(texts)`.

    All rows are for training, except for a tenth that selects the weights where there are enough to train the encoder;
    no row is held out for a score and no baseline is fitted: that is for cross-validation. out: the directory of the
    run, with all its files; None: only the model is kept, in memory. The other parameters are those of
    bothways.settings.Classify. After fit: classes_, the sorted labels.
    """

    def __init__(
        self,
        model: AnyPath = DEFAULT,
        *,
        epochs: float | None = None,
        minutes: float | None = None,
        learning_rate: float | None = None,
        class_weights: str = "none",
        window: int = 256,
        seed: int = 0,
        device: str = "auto",
        dtype: str = "auto",
        out: AnyPath | None = None,
    ) -> None:
        self.model = model
        self.epochs = epochs
        self.minutes = minutes
        self.learning_rate = learning_rate
        self.class_weights = class_weights
        self.window = window
        self.seed = seed
        self.device = device
        self.dtype = dtype
        self.out = out

    def fit(self, X: Iterable[str], y: Iterable[Any]) -> Self:
        """Fine-tune on texts X and a label for each."""
        texts, labels = read_texts(X), np.asarray([*y])
        check_consistent_length(texts, labels)
        check_classification_targets(labels)
        classes, indices = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise InputError(f"y has one class ({classes[0]!r}); a classifier needs at least two")
        rows = [{"text": text, "label": str(label)} for text, label in zip(texts, indices, strict=True)]
        options = {name: value for name, value in self.get_params().items() if name != "out"}
        with TemporaryDirectory() as folder, muted():
            settings = Classify(
                **options,
                train=as_source("X", rows),
                test=as_source("X", [rows[0]]),  # no row is held out; the score is not used
                out=Path(folder, "run") if self.out is None else self.out,
                baselines=False,
            )
            directory = finetune.run(settings).directory / MODEL
            files = [file for file in sorted(directory.rglob("*")) if file.is_file()]
            self.files_: Files = {str(file.relative_to(directory)): file.read_bytes() for file in files}
        self.classes_ = classes
        self.__dict__.pop("_predictor", None)
        return self

    def predict_proba(self, X: Iterable[str]) -> np.ndarray:
        """The probability of each class for each text, float64 [texts, classes], in the order of classes_."""
        check_is_fitted(self)
        names = [str(index) for index in range(len(self.classes_))]
        predictions = self._loaded().classify(read_texts(X))
        scores = [[prediction.scores[name] for name in names] for prediction in predictions]
        probabilities_NC = np.array(scores, np.float64).reshape(-1, len(names))
        return probabilities_NC / probabilities_NC.sum(1, keepdims=True)

    def predict(self, X: Iterable[str]) -> np.ndarray:
        """The most probable class of each text."""
        probabilities_NC = self.predict_proba(X)
        best: np.ndarray = self.classes_[probabilities_NC.argmax(1)]
        return best

    def _loaded(self) -> Predictor:
        """The model, loaded once in each process."""
        if "_predictor" not in self.__dict__:
            with TemporaryDirectory() as folder:
                for name, content in self.files_.items():
                    Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
                    Path(folder, name).write_bytes(content)
                self._predictor = load(folder, device=self.device, dtype=self.dtype)
        return self._predictor

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_predictor"}


def read_texts(texts: Any) -> list[str]:
    """A list of texts, from any sequence or column of them, or a table of one column. InputError for anything else."""
    values = np.asarray(texts, dtype=object)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or not all(isinstance(text, str) for text in values):
        raise InputError("X must be texts: a list, an array or a column of strings")
    return [*values.tolist()]
