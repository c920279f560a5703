"""The columns of the results: which columns of the input are copied, and what a prediction adds to them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bothways.base.errors import flag, id_column, no_such_column
from bothways.inference.jobs.source import JobSource
from bothways.inference.jobs.writers import Columns
from bothways.inference.predictor import Predictor
from bothways.settings.predict import Predict
from bothways.tasks import TASKS
from bothways.tasks.scores import probability_column
from bothways.text.rows.column_names import rename_columns

SHOWN_SCORES = 5  # labels of a row of a .csv or .tsv: in 77 columns, label and score are not found
PLAIN_TYPE = re.compile("u?int(8|16|32|64)|float|double|bool")  # of a copied column in an Arrow schema
WORD_COLUMNS = {"word": str, "start": int, "end": int, "effect": float, "text": int}  # of an explanation


@dataclass(frozen=True)
class PredictionColumns:
    """The columns of the result rows: the line of each, columns of the input, and the prediction.

    source: of the input.
    is_numbered: whether result rows have row numbers, and with them lines, if the source has any.
    name_by_input_column: the columns of the input that are copied, and their names in the result: input_NAME if NAME is
        taken.
    predicted: the types of the columns of predictions.
    """

    source: JobSource
    is_numbered: bool
    name_by_input_column: Mapping[str, str]
    predicted: Columns

    @property
    def has_lines(self) -> bool:
        return self.is_numbered and self.source.has_lines

    def types(self) -> Columns:
        """The type of each column. Copied numbers of a Parquet or Arrow file keep their types; other copied columns
        are text, or JSON."""
        types = self.source.types() if self.name_by_input_column else {}
        plain = {name: kind for name, kind in types.items() if PLAIN_TYPE.fullmatch(str(kind))}
        copied = {output_name: plain.get(name, str) for name, output_name in self.name_by_input_column.items()}
        return {**({"line": int} if self.has_lines else {}), **copied, **self.predicted}


def prediction_columns(settings: Predict, model: Predictor, source: JobSource, top: int | None) -> PredictionColumns:
    """The columns of a result. top: see `num_scores`."""
    predicted = _predicted_columns(settings, model, top)
    is_numbered = settings.out is not None or settings.on_error == "skip"
    columns = PredictionColumns(source, is_numbered, {}, predicted)
    names = _names_to_keep(settings, source, predicted)
    if not names:
        return columns

    # A copied column gives way to one of ours.
    taken = {*predicted, *(["line"] if columns.has_lines else [])}
    if is_text_table(settings):
        taken |= {*map(probability_column, score_labels(predicted))}
    return replace(columns, name_by_input_column=rename_columns(names, taken))


def num_scores(settings: Predict, model: Predictor) -> int | None:
    """How many labels (or answers) a row has scores of, the best first; None: all labels, or one answer.

    In a .csv or .tsv that is SHOWN_SCORES for more labels, unless the settings say otherwise.
    """
    if settings.top == "all":
        return None
    if (
        settings.top is None
        and is_text_table(settings)
        and TASKS[model.task].head == "classes"
        and len(model.labels) > SHOWN_SCORES
    ):
        return SHOWN_SCORES
    return settings.top


def is_text_table(settings: Predict) -> bool:
    """Whether the output is a table in text, of a column for each score."""
    return settings.out is not None and settings.out.suffix in (".csv", ".tsv")


def score_labels(columns: Columns) -> list[str]:
    """The labels of the column `scores`, if all rows have the same ones."""
    return [*kind] if isinstance(kind := columns.get("scores"), dict) else []


def _predicted_columns(settings: Predict, model: Predictor, top: int | None) -> Columns:
    """The types of the columns of predictions."""
    columns = TASKS[model.task].load().columns(model, top, has_sets=settings.coverage is not None)
    if settings.explain:
        columns = columns | {"words": [WORD_COLUMNS]}
    if settings.in_scope is None:
        return columns

    scores = {"scores": columns["scores"]} if "scores" in columns else {}
    return {name: kind for name, kind in columns.items() if name not in scores} | {"is_like_training": bool} | scores


def _names_to_keep(settings: Predict, source: JobSource, predicted: Columns) -> Sequence[str]:
    """The columns of the input that are copied. Unless they are named, the one that identifies a row, if there is
    one."""
    wanted = settings.keep_columns
    if wanted is None and "id" in predicted and not source.literal:
        return []

    available = source.names(of_all_rows=wanted is not None)
    if wanted is None:
        names = [*filter(None, [id_column((*available,))])]
    elif wanted in ("all", *available):
        names = available if wanted == "all" else [wanted]
    else:
        names = [name.strip() for name in wanted.split(",")]

    if missing := [name for name in names if name not in available]:
        place = source.name if source.literal else source.file
        raise no_such_column(place, missing[0], available, f"name others with {flag('keep_columns')}")
    return [name for name in names if name != "id" or "id" not in predicted]  # which is the id of the question
