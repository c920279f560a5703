"""Rows of results by task: predictions as dictionaries, and the types of their columns."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Protocol, Unpack

from bothways.batch_jobs.writers import ResultRow
from bothways.data.stream import ModelInput
from bothways.inference.predictor import Predictor
from bothways.inference.reading import ReadOptions
from bothways.tasks import TaskName
from bothways.tasks.answer_decoding import Answer


class PredictRows(Protocol):
    def __call__(
        self, model: Predictor, rows: Sequence[ModelInput], **options: Unpack[ReadOptions]
    ) -> list[ResultRow]: ...


def predict_labels(
    model: Predictor,
    rows: Sequence[ModelInput],
    *,
    top: int | None = None,
    coverage: float | None = None,
    **options: Unpack[ReadOptions],
) -> list[ResultRow]:
    """The most probable label, its score and the scores of all labels (or the `top` best); for multi-label models also
    the labels above the threshold, and with coverage the prediction set."""
    predictions = model.classify([row.text for row in rows], pairs_of(rows), top=top, coverage=coverage, **options)
    if not model.description.multi_label and coverage is None:
        return [{"label": one.label, "score": one.score, "scores": one.scores} for one in predictions]
    return [
        {"label": one.label, "labels": list(one.labels), "score": one.score, "scores": one.scores}
        for one in predictions
    ]


def predict_numbers(model: Predictor, rows: Sequence[ModelInput], **options: Unpack[ReadOptions]) -> list[ResultRow]:
    """The number of a regression model."""
    numbers = model.regress([row.text for row in rows], pairs_of(rows), **options)
    return [{"score": number} for number in numbers.tolist()]


def predict_entities(model: Predictor, rows: Sequence[ModelInput], **options: Unpack[ReadOptions]) -> list[ResultRow]:
    entities = model.tag([row.text for row in rows], **options)
    return [{"entities": [asdict(entity) for entity in of_text]} for of_text in entities]


def predict_answers(
    model: Predictor, rows: Sequence[ModelInput], *, top: int = 1, **options: Unpack[ReadOptions]
) -> list[ResultRow]:
    """The best answer to each question; with top > 1 also the list of the best answers."""
    answers = model.answer([row.text for row in rows], [row.pair or "" for row in rows], top=top, **options)
    columns = [[_answer_columns(answer) for answer in of_question] for of_question in answers]
    return [
        {"id": row.id, **best[0], **({"answers": best} if top > 1 else {})}
        for row, best in zip(rows, columns, strict=True)
    ]


def _answer_columns(answer: Answer) -> ResultRow:
    return {"answer": answer.text, "start": answer.start, "end": answer.end, "score": answer.score}


PREDICT_ROWS: dict[TaskName, PredictRows] = {
    "answer": predict_answers,
    "classify": predict_labels,
    "regress": predict_numbers,
    "tag": predict_entities,
}


def result_columns(model: Predictor, top: int | None = None, *, has_sets: bool = False) -> Any:
    """The types of the results' columns, a pyarrow.Schema."""
    import pyarrow

    text, integer, number = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
    if model.task == "regress":
        return pyarrow.schema({"score": number})
    if model.task == "answer":
        answer = {"answer": text, "start": integer, "end": integer, "score": number}
        answers = {"answers": pyarrow.list_(pyarrow.struct(answer))} if (top or 1) > 1 else {}
        return pyarrow.schema({"id": text, **answer, **answers})
    if model.task == "tag":
        entity = {"label": text, "text": text, "start": integer, "end": integer, "score": number}
        return pyarrow.schema({"entities": pyarrow.list_(pyarrow.struct(entity))})
    labels = {"labels": pyarrow.list_(text)} if model.description.multi_label or has_sets else {}
    scores = pyarrow.map_(text, number) if top else pyarrow.struct(dict.fromkeys(model.labels, number))
    return pyarrow.schema({"label": text, **labels, "score": number, "scores": scores})


def score_labels(columns: Any) -> list[str]:
    """The labels of the column `scores`, if all rows have the same ones."""
    import pyarrow

    if "scores" not in columns.names or not pyarrow.types.is_struct(kind := columns.field("scores").type):
        return []
    return [kind.field(index).name for index in range(kind.num_fields)]


def pairs_of(rows: Sequence[ModelInput]) -> list[str] | None:
    """The second texts; None if the rows have none."""
    return [row.pair for row in rows if row.pair is not None] or None
