"""Interface of a task: trains a model, reads labelled rows, scores predictions, writes rows, answers requests.

Each task is one object of a subclass here, at the end of its `task.py`; TASKS names it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar

from bothways.base.errors import InputError
from bothways.settings.predict import Evaluate
from bothways.tasks.model_use import ModelUse
from bothways.tasks.scores import Scores

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.model.checkpoint.description import Description
    from bothways.settings.tables_in_memory import TableSource
    from bothways.tasks.tag.decoding import Tagset
    from bothways.tasks.training_task import TrainingTask
    from bothways.tasks.windows import WindowPolicy
    from bothways.text.data.model_inputs import ModelInput
    from bothways.text.tokenizer.tokenizer import Tokenizer

Row = TypeVar("Row")
Prediction = TypeVar("Prediction")
Item = tuple[str, str | None]  # a text and perhaps its pair
Schema = Mapping[str, Any]  # of JSON
# A row of input: a text or a pair, as the model reads them; a text; a question and its passage.
InputKind = Literal["texts", "single texts", "questions"]


def file_given_twice(file: Path, reason: str) -> InputError:
    """The error for a file that is given as the gold and as the predictions, if it cannot be both."""
    return InputError(
        f"{file}: is given as gold and as predictions, but {reason}; give the predictions in a file of their own"
    )


class LoadedModel(Protocol):
    """What a task asks of a loaded model, which is a Predictor (inference/predictor.py), above the tasks."""

    @property
    def description(self) -> Description: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def tagset(self) -> Tagset: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def window_policy(self) -> WindowPolicy: ...
    @property
    def backend(self) -> Any: ...

    @property
    def answer(self) -> Callable[..., Any]: ...
    @property
    def classify(self) -> Callable[..., Any]: ...
    @property
    def decide(self) -> Callable[..., Any]: ...
    @property
    def embed(self) -> Callable[..., Any]: ...
    @property
    def fill(self) -> Callable[..., Any]: ...
    @property
    def is_next(self) -> Callable[..., Any]: ...
    @property
    def regress(self) -> Callable[..., Any]: ...
    @property
    def rerank(self) -> Callable[..., Any]: ...
    @property
    def tag(self) -> Callable[..., Any]: ...
    @property
    def tag_words(self) -> Callable[..., Any]: ...

    def ignores_pairs(self, text_column: str | None, pair_column: str | None) -> bool: ...
    def check_pairs(self, has_pairs: bool, source: object) -> None: ...


# --- predictions and their scores -------------------------------------------------------------------------------------


class Evaluator(ABC, Generic[Row, Prediction]):
    """Predictions for rows of one task, and their scores. Rows without labels are scored by how many predictions equal
    the predictions of another model, the reference. agreement: the name of that percentage."""

    agreement: ClassVar[str] = "same label"

    @abstractmethod
    def predict(self, model: LoadedModel, rows: Sequence[Row]) -> list[Prediction]:
        """One prediction per row."""

    def score(
        self,
        rows: Sequence[Row],
        predictions: Sequence[Prediction],
        reference: Sequence[Prediction] | None = None,
        *,
        intervals: bool = False,
    ) -> Scores:
        """Scores against the labels of the rows, or for rows without labels against the predictions `reference`.

        intervals: add 95 % intervals, which take longer to compute than the scores.
        """
        compared = self.columns(rows, predictions)
        if compared is None:
            return self.agree(predictions, reference)
        return self.compare(*compared, intervals=intervals)

    def columns(self, rows: Sequence[Row], predictions: Sequence[Prediction]) -> tuple[Any, Any, Any] | None:
        """Labels, predictions and units, as `compare` reads them; None for rows without labels."""
        return None

    def compare(self, gold: Any, predictions: Any, units: Any = None, *, intervals: bool = True) -> Scores:
        """The scores of predictions from any source.

        gold, predictions: as `columns` returns them.
        units: rows of a unit are not independent of each other; None: all rows are.
        intervals: with 95 % intervals.
        """
        raise NotImplementedError

    def agree(self, predictions: Sequence[Any], reference: Sequence[Any] | None) -> Scores:
        """The percentage of predictions that equal the predictions of the reference."""
        assert reference is not None
        share = 100 * sum(map(eq, predictions, reference)) / len(reference)
        return Scores(self.agreement, {self.agreement: share}, maximum=100)


@dataclass(frozen=True)
class LabelledRows:
    """The rows of files, their evaluator, whether they have labels, and counts that are reported with the scores."""

    evaluator: Evaluator[Any, Any]
    rows: Sequence[Any]
    labelled: bool
    counts: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)


# --- routes of the server ---------------------------------------------------------------------------------------------

LIST: Schema = {"type": "array"}
OBJECT: Schema = {"type": "object"}
MOST_RESULTS = 1000
OPTIONS = {  # of `predict`, by what they are for
    "top": "labels and answers",
    "coverage": "labels",
    "min_score": "labels, entities and answers",
    "in_scope": "labels",
}


def firsts(items: Sequence[Item]) -> list[str]:
    return [text for text, _ in items]


def split_pairs(rows: Sequence[tuple[Any, ...]]) -> tuple[list[str], list[str] | None]:
    """The first texts of items or rows, and the second texts; None if there are none. Rows do not mix pairs and single
    texts."""
    texts = [row[0] for row in rows]
    pairs = [row[1] for row in rows if row[1] is not None]
    return texts, pairs or None


@dataclass(frozen=True)
class Route:
    """A route of the server: POST `path` with a text, or texts, as `inputs`.

    summary, answer: for its description.
    reads: the form of `inputs`; "sequences" are texts or pairs.
    compute: a function of a module, (model, items, reading options, the options) -> a value per item.
    options: integers of the body that `compute` takes, as (default, least, most).
    shares: numbers from 0 to 1 of the body that `compute` takes, None if they are not given.
    flags: fields of the body that only `shape` reads.
    shape: the JSON of an item, from the model, that value, and the options and flags of the request (None: not given).
    """

    path: str
    summary: str
    answer: Schema
    reads: Literal["texts", "pairs", "sequences", "questions"]
    compute: Callable[..., Sequence[Any]]
    options: Mapping[str, tuple[int | None, int, int]] = field(default_factory=dict)
    shares: Sequence[str] = ()
    flags: Sequence[str] = ()
    shape: Callable[[LoadedModel, Any, Mapping[str, Any]], Any] = lambda model, result, options: result


# --- tasks ------------------------------------------------------------------------------------------------------------


class Task(ABC):
    """A task. Attributes are for `predict` and for messages.

    name: as in TASKS.
    inputs: the name of a row.
    options: of `predict`, besides the options of reading (OPTIONS).
    route: of the server, "" if it has none.
    routes: the routes that this task adds.
    gold: content of the gold files that `score_file` reads ("labels", "tags", "answers", "ranking"); "": none.
    evaluate_options: the options that only the `evaluate` of this task reads, for `evaluate_data`.
    use, pair_use: how a model of the task is used, and one that reads pairs; None: its card has no examples.
    skips_rows: whether it can skip unreadable rows.
    """

    name: ClassVar[str]
    inputs: ClassVar[InputKind] = "texts"
    options: ClassVar[frozenset[str]] = frozenset()
    route: ClassVar[str] = ""
    routes: ClassVar[Sequence[Route]] = ()
    gold: ClassVar[str] = ""
    evaluate_options: ClassVar[Sequence[str]] = ()
    evaluate_data: ClassVar[str] = ""
    use: ClassVar[ModelUse | None] = None
    pair_use: ClassVar[ModelUse | None] = None
    skips_rows: ClassVar[bool] = False

    def train(self, settings: Any, pretrained: Checkpoint, fold: int | None) -> TrainingTask:
        """The task of a fine-tuning run. fold: in cross-validation the fold whose rows are the test split."""
        raise InputError(f"a model learns to {self.name} in pre-training; there is no fine-tuning for it")

    @abstractmethod
    def read(
        self, model: LoadedModel, files: Sequence[TableSource], columns: Any, *, need_labels: bool
    ) -> LabelledRows:
        """The rows of files for a model of this task.

        model: of this task.
        files: to be read one after another.
        columns: settings with the names of columns.
        need_labels: whether rows without labels are an error.

        InputError if a file cannot be read, lacks labels that are needed, or has some that are unknown to the model.
        """

    def evaluate(self, model: LoadedModel, files: Sequence[TableSource], columns: Any) -> Scores:
        """Scores on files, by default with labels. columns: settings of `evaluate`, with the names of columns and the
        options that only this task reads."""
        table = self.read(model, files, columns, need_labels=True)
        predictions = table.evaluator.predict(model, table.rows)
        scores = table.evaluator.score(table.rows, predictions, intervals=True)
        return replace(scores, counts={**scores.counts, **table.counts})

    def predict_rows(self, model: LoadedModel, rows: Sequence[ModelInput], **options: Any) -> list[dict[str, Any]]:
        """The predictions for rows of a file, as written by `predict`. options: of reading, and of the task."""
        model.classify([])  # InputError, which names the heads of the model
        raise NotImplementedError

    def columns(self, model: LoadedModel, top: int | None = None, *, has_sets: bool = False) -> dict[str, Any]:
        """The type of each column of `predict_rows`: str, int or float; [type] for a list; types by name for an object
        with these fields; (str, type) for an object with any fields."""
        return {}

    def scores_per_row(self, model: LoadedModel, top: int | None) -> int:
        """The number of scores in a row of `predict_rows`."""
        return 1

    def score_file(self, predictions: Path, gold: Path, columns: Evaluate) -> Scores:
        """The scores of a file of predictions against a gold file.

        predictions, gold: the files.
        columns: settings with names of the gold file's columns; the columns of words and tags, and the encoding, are of
        both files.

        InputError if the files do not match.
        """
        raise InputError(f"there are no files of predictions to {self.name}")

    def facts(
        self, model: LoadedModel, texts: Sequence[str], question: str, min_score: float | None = None
    ) -> list[list[dict[str, Any]]]:
        """The rows of `extract` for each text, without its place in a file. question: for a model that answers.
        min_score: leave out rows of a lower score."""
        raise InputError(f"a model to {self.name} extracts nothing")


def fact(kind: str, name: str, text: str, start: int, end: int, score: float) -> dict[str, Any]:
    """A row of `extract`: characters [start, end) of a text with a kind and a name."""
    return {
        "kind": kind,
        "name": name,
        "text": text,
        "start": start,
        "end": end,
        "score": round(score, 4),
    }
