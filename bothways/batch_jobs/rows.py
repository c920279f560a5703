"""What each kind of model says of a row, as a dictionary, and of what types that is."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal, Protocol

from bothways.batch_jobs.writers import Row
from bothways.data.stream import ModelInput
from bothways.inference.answer_decoding import Answer
from bothways.inference.predictor import Predictor
from bothways.inference.windows import Long

Kind = Literal["answers", "entities", "number", "labels"]


class Say(Protocol):
    def __call__(self, model: Predictor, given: Sequence[ModelInput], long: Long | None) -> list[Row]: ...


def kind_of(model: Predictor) -> Kind:
    if "spans" in model.module.num_outputs:
        return "answers"
    if "tokens" in model.module.num_outputs:
        return "entities"
    return "number" if "classes" in model.module.num_outputs and not model.labels else "labels"


def labels(model: Predictor, given: Sequence[ModelInput], long: Long | None, top: int | None = None) -> list[Row]:
    """The likeliest label, its score and all scores, or the `top` best; where a text may have several labels, those
    too."""
    found = model.classify([one.text for one in given], _pairs(given), long=long, top=top)
    if not model.checkpoint.multi_label:
        return [{"label": one.label, "score": one.score, "scores": one.scores} for one in found]
    return [{"label": one.label, "labels": list(one.labels), "score": one.score, "scores": one.scores} for one in found]


def number(model: Predictor, given: Sequence[ModelInput], long: Long | None) -> list[Row]:
    """The number of a regression model."""
    return [{"score": score} for score in model.score([one.text for one in given], _pairs(given), long=long).tolist()]


def entities(model: Predictor, given: Sequence[ModelInput], long: Long | None) -> list[Row]:
    found = model.tag([one.text for one in given], long=long)
    return [{"entities": [asdict(entity) for entity in entities]} for entities in found]


def answers(model: Predictor, given: Sequence[ModelInput], long: Long | None, top: int = 1) -> list[Row]:
    """The best answer to each question; where more are asked for, all of them too."""
    found = model.answers([one.text for one in given], [one.pair or "" for one in given], top, long)
    rows = [[_answer(answer) for answer in best] for best in found]
    return [
        {"id": one.id, **best[0], **({"answers": best} if top > 1 else {})}
        for one, best in zip(given, rows, strict=True)
    ]


def _answer(answer: Answer) -> Row:
    return {"answer": answer.text, "start": answer.start, "end": answer.end, "score": answer.score}


SAY: dict[Kind, Say] = {"answers": answers, "entities": entities, "number": number, "labels": labels}


def columns(model: Predictor, top: int | None = None) -> Any:
    """The types of what is said, a pyarrow.Schema."""
    import pyarrow

    text, place, share = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
    if kind_of(model) == "number":
        return pyarrow.schema({"score": share})
    if kind_of(model) == "answers":
        answer = {"answer": text, "start": place, "end": place, "score": share}
        several = {"answers": pyarrow.list_(pyarrow.struct(answer))} if (top or 1) > 1 else {}
        return pyarrow.schema({"id": text, **answer, **several})
    if kind_of(model) == "entities":
        entity = {"label": text, "text": text, "start": place, "end": place, "score": share}
        return pyarrow.schema({"entities": pyarrow.list_(pyarrow.struct(entity))})
    labels = {"labels": pyarrow.list_(text)} if model.checkpoint.multi_label else {}
    scores = pyarrow.map_(text, share) if top else pyarrow.struct(dict.fromkeys(model.labels, share))
    return pyarrow.schema({"label": text, **labels, "score": share, "scores": scores})


def _pairs(given: Sequence[ModelInput]) -> list[str] | None:
    return [one.pair for one in given if one.pair is not None] or None
