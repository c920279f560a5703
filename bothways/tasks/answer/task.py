"""The task of question answering: the passage's words that answer a question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.base.errors import InputError
from bothways.base.io import is_same_file
from bothways.settings.finetune import Answer
from bothways.settings.predict import Evaluate
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks.answer.files import read_answer_rows, read_labelled_questions, read_predicted_answers
from bothways.tasks.answer.scoring import AnswerEvaluator
from bothways.tasks.answer.training import Answering
from bothways.tasks.model_use import ModelUse
from bothways.tasks.scores import Scores, count_skipped
from bothways.tasks.task import (
    MOST_RESULTS,
    OBJECT,
    Item,
    LabelledRows,
    Route,
    Task,
    fact,
    file_given_twice,
    split_pairs,
)
from bothways.text.data.model_inputs import ModelInput
from bothways.text.data.squad import read_squad

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.tasks.task import LoadedModel


def answer_items(
    model: LoadedModel,
    items: Sequence[Item],
    reading: Mapping[str, Any],
    *,
    top: int | None = None,
    min_score: float | None = None,
) -> Sequence[Any]:
    """The `top` best answers to each question as JSON, the best first; "" if none has the least score."""
    questions, passages = split_pairs(items)
    answers = model.answer(questions, passages or [], top=top or 1, min_score=min_score, **reading)
    return [[answer.to_json() for answer in best] for best in answers]


# transformers 5 has no pipeline for it.
SPANS = """\
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("MODEL")
model = AutoModelForQuestionAnswering.from_pretrained("MODEL")
tokens = tokenizer("When does the train leave?", "The train to Bern leaves at noon.", return_tensors="pt")
scores = model(**tokens)
first, last = int(scores.start_logits.argmax()), int(scores.end_logits.argmax())
print(tokenizer.decode(tokens["input_ids"][0, first : last + 1]))"""


class AnswerTask(Task):
    """The passage's words that answer a question."""

    name = "answer"
    gold = "answers"
    inputs = "questions"
    options = frozenset({"top", "min_score"})
    route = "/answer"
    use = ModelUse(
        kind="a reader: it finds the answer to a question in a passage",
        tag="question-answering",
        call='model.answer("When does the train leave?", "The train to Bern leaves at noon.")',
        route="/answer",
        body='{"inputs": {"question": "When does the train leave?", "context": "The train to Bern leaves at noon."}}',
        libraries={"transformers": SPANS},
    )
    routes = (
        Route(
            path="/answer",
            summary="The answer to a question in its context",
            answer=OBJECT,
            reads="questions",
            compute=answer_items,
            options={"top": (None, 1, MOST_RESULTS)},
            shares=("min_score",),
            shape=lambda model, answers, options: answers if options["top"] else answers[0],
        ),
    )

    def train(self, settings: Answer, pretrained: Checkpoint, fold: int | None) -> Answering:
        return Answering.build(settings, pretrained, fold)

    def read(
        self, model: LoadedModel, files: Sequence[TableSource], columns: Any, *, need_labels: bool
    ) -> LabelledRows:
        if need_labels:
            return read_labelled_questions(files, columns)
        (file,) = files
        return read_answer_rows(file, columns)

    def predict_rows(
        self,
        model: LoadedModel,
        rows: Sequence[ModelInput],
        *,
        top: int = 1,
        min_score: float | None = None,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """The best answer to each question, "" below `min_score`; with top > 1 also the list of the best answers."""
        items = [(row.text, row.pair or "") for row in rows]
        by_question = answer_items(model, items, options, top=top, min_score=min_score)
        return [
            {"id": row.id, **best[0], **({"answers": best} if top > 1 else {})}
            for row, best in zip(rows, by_question, strict=True)
        ]

    def columns(self, model: LoadedModel, top: int | None = None, *, has_sets: bool = False) -> dict[str, Any]:
        answer = {"answer": str, "start": int, "end": int, "score": float}
        return {"id": str, **answer, **({"answers": [answer]} if (top or 1) > 1 else {})}

    def facts(
        self, model: LoadedModel, texts: Sequence[str], question: str, min_score: float | None = None
    ) -> list[list[dict[str, Any]]]:
        return [
            [
                fact("answer", question, one.text, start=one.start, end=one.end, score=one.score)
                for one in best
                if one.text
            ]
            for best in model.answer([question] * len(texts), texts, min_score=min_score)
        ]

    def score_file(self, predictions: Path, gold: Path, columns: Evaluate) -> Scores:
        """Answers by the id of the question: {id: answer}, or JSON lines with `id` and `answer`."""
        if is_same_file(predictions, gold):
            raise file_given_twice(gold, "a file of questions has gold answers only")
        skipped: Counter[str] = Counter()
        questions = read_squad(gold, on_error=columns.on_error, skipped=skipped, encoding=columns.encoding)
        answers = {question.id: [text for text, _ in question.answers] for question in questions}
        predicted = read_predicted_answers(predictions, columns.encoding)
        if answers.keys().isdisjoint(predicted):
            raise InputError(
                f"{predictions}: no id is one of {gold}, such as {min(answers)!r}; give the id of each answer"
            )
        passages = {question.id: question.context for question in questions}
        scores = AnswerEvaluator().compare(answers, predicted, passages)
        return replace(scores, counts=count_skipped(skipped))


ANSWER = AnswerTask()
