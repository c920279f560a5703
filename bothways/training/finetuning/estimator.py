"""A classifier with the interface of scikit-learn, for its pipelines, searches and cross-validation."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from bothways.base.errors import InputError, format_count
from bothways.base.log import muted
from bothways.inference.load import load
from bothways.inference.predictor import Predictor
from bothways.pretrained import DEFAULT
from bothways.settings.fields import AnyPath
from bothways.settings.finetune import Classify
from bothways.settings.tables_in_memory import as_source
from bothways.text.data.splits import TooFewRows
from bothways.training.finetuning import finetune
from bothways.training.finetuning.run_scores import MODEL

Files = Mapping[str, bytes]  # contents by path, relative to the directory of a model


class TextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Fine-tune on texts and labels: `TextClassifier().fit(texts, labels).predict_proba(texts)`.

    All rows are for training, except for a tenth that selects the weights where there are enough to train the encoder;
    no row is held out for a score and no baseline is fitted: that is for cross-validation. out: the directory of the
    run, with all its files; None: only the model is kept, in memory. The other parameters are fields of
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

    def __sklearn_tags__(self) -> Any:
        """X is a column of strings."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags

    def fit(self, X: Iterable[str], y: Iterable[Any]) -> Self:
        """Fine-tune on texts X and a label for each."""
        texts = read_texts(X)
        labels = read_labels(y)
        check_consistent_length(texts, labels)
        check_classification_targets(labels)

        classes, indices = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise InputError(f"y has one class ({classes[0]!r}); a classifier needs at least two classes")

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
            try:
                directory = finetune.run(settings).directory / MODEL
            except TooFewRows:
                raise InputError(
                    f"Found array with {len(texts)} sample(s) of {len(classes)} classes, too few to select weights on "
                    "some of each; three of each class are enough"
                ) from None
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

    def predict(self, X: Iterable[str], *, min_score: float | None = None, in_scope: float | None = None) -> np.ndarray:
        """The most probable class of each text; with one of the options an array of objects, None for refused texts.

        min_score, in_scope: thresholds, as in Predictor.classify.
        """
        probabilities_NC = self.predict_proba(X)
        best: np.ndarray = self.classes_[probabilities_NC.argmax(1)]
        if min_score is None and in_scope is None:
            return best
        answered = self._loaded().classify(read_texts(X), min_score=min_score, in_scope=in_scope)
        best = best.astype(object)
        best[[one.label is None for one in answered]] = None
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
    if not values.size:
        raise InputError("Found array with 0 sample(s) (X has no text) while a minimum of 1 is required.")
    if values.ndim != 1 or not all(isinstance(text, str) for text in values):
        raise InputError("X must be texts: a list, an array or a column of strings")
    return [*values.tolist()]


def read_labels(labels: Any) -> np.ndarray:
    """An array of labels, all strings or all numbers, from any sequence or column of them. InputError in the words of
    scikit-learn for a missing one."""
    if labels is None:
        raise InputError("This TextClassifier estimator requires y to be passed, but the target y is None.")

    if _is_matrix(labels):
        raise InputError(
            "y should be a 1d array, got several labels for a text (an indicator matrix or lists); TextClassifier "
            "learns one: bothways.finetune(rows, multi_label=True) learns several"
        )

    values = column_or_1d(np.asarray(labels if hasattr(labels, "__len__") else [*labels], dtype=object), warn=True)
    if missing := [row for row, value in enumerate(values) if _is_missing(value)]:
        count = format_count(len(missing), "label is", "labels are")
        raise InputError(f"Input y contains NaN: {count} missing, the first in row {missing[0]}; drop such rows")

    kinds = {isinstance(value, str) for value in values}
    if len(kinds) > 1:
        names = sorted({type(value).__name__ for value in values})
        raise InputError(f"y must be uniformly strings or numbers. Got {names}")

    return np.asarray(values.tolist())


def _is_matrix(labels: Any) -> bool:
    """Whether labels are a sparse matrix, or have more or fewer than one value for some text."""
    if hasattr(labels, "toarray"):
        return True
    shape = getattr(labels, "shape", None)
    if shape is not None and len(shape) == 2:
        return bool(shape[1] != 1)
    rows = labels if isinstance(labels, list | tuple) else ()
    return any(isinstance(row, list | tuple | set | frozenset | np.ndarray) and len(row) != 1 for row in rows)


def _is_missing(value: Any) -> bool:
    """None, NaN, or what pandas has for a missing value."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # pandas.NA has no truth; an array is no label
        return True
