"""Files of questions with their answers, and of predicted answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError, RowError, RowLocation, format_count
from bothways.base.log import logger
from bothways.settings.base import TextColumns
from bothways.settings.finetune import Answer
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks.answer.scoring import AnswerEvaluator
from bothways.tasks.scores import count_skipped
from bothways.tasks.task import LabelledRows
from bothways.text.data.model_inputs import read_questions
from bothways.text.data.near_duplicates import text_key
from bothways.text.data.split_tables import divide_rows
from bothways.text.data.splits import parts_for
from bothways.text.data.squad import Question, read_squad
from bothways.text.rows.rows import form_of, open_rows, read_rows
from bothways.text.rows.text_files import file_type, read_bytes


def read_splits(settings: Answer, skipped: Counter[str], fold: int | None = None) -> dict[str, list[Question]]:
    """Questions by split. A file is split by whole passages.

    skipped: counts questions that are left out. fold: the test fold in cross-validation.
    """
    splits = {
        split: read_squad(source, on_error=settings.on_error, skipped=skipped, encoding=settings.encoding)
        for split, source in settings.sources.items()
    }
    if "dev" in splits:
        return splits
    questions = splits["train"]
    keys = {passage: text_key(passage) for passage in {question.context for question in questions}}
    groups = [keys[question.context] for question in questions]
    rows_by_split = divide_rows(settings, groups, parts_for(splits), fold, of="passages")
    return {**splits, **{split: [questions[row] for row in rows] for split, rows in rows_by_split.items()}}


def read_predicted_answers(path: Path, encoding: str | None) -> dict[str, str]:
    """{id: answer} of predictions in SQuAD's format, or in JSON lines."""
    rows: list[tuple[str, Any, Any]]
    if file_type(path) != ".json":
        rows = [(where, row.get("id"), row.get("answer")) for where, row in open_rows(path, encoding).read()]
    else:
        rows = [(f"{path}: {id!r}", id, answer) for id, answer in read_json_object(path).items()]
    answers = {}
    for where, id, answer in rows:
        id = str(id) if type(id) is int else id
        if id in answers:
            raise RowError(where, f"{id!r} already has an answer above; keep one answer")
        if not (isinstance(id, str) and isinstance(answer, str)):
            raise RowError(where, f"expected an id and an answer as text, found {id!r} and {answer!r}")
        answers[id] = answer
    return answers


def read_json_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_bytes(path))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}); SQuAD's predictions are one object, id to answer") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds {type(content).__name__}; SQuAD's predictions are one object, id to answer")
    return content


def read_labelled_questions(files: Sequence[TableSource], columns: Any) -> LabelledRows:
    """Questions with gold answers of all files. columns: has names of columns, on_error and encoding."""
    named = {columns.text_column: "question", columns.pair_column: "context", columns.label_column: "answers"}
    if other := [column for column, usual in named.items() if column not in (None, usual)]:
        raise InputError(
            f"column {other[0]!r}: answers are evaluated by columns named question, context and answers; rename yours"
        )
    skipped: Counter[str] = Counter()
    questions = [
        question
        for file in files
        for question in read_squad(file, on_error=columns.on_error, skipped=skipped, encoding=columns.encoding)
    ]
    for id, count in Counter(question.id for question in questions).items():
        if count > 1:
            raise InputError(f"question {id!r} is in two of the files; evaluate each file by itself, or keep one")
    return LabelledRows(evaluator=AnswerEvaluator(), rows=questions, labelled=True, counts=count_skipped(skipped))


def read_answer_rows(file: TableSource, columns: TextColumns) -> LabelledRows:
    rows = read_rows(file, encoding=columns.encoding) if form_of(file, columns.encoding).has_names else []
    if rows and "answers" not in rows[0][1]:
        questions = []
        for row, question in enumerate(
            read_questions(
                str(file),
                question=columns.text_column,
                context=columns.pair_column,
                encoding=columns.encoding,
            )
        ):
            if isinstance(question, InputError):
                raise question

            where = RowLocation(file, row, question.line)
            questions.append(
                Question(
                    id="",
                    question=question.text,
                    context=question.pair or "",
                    answers=(),
                    impossible=False,
                    where=where,
                )
            )

        return LabelledRows(AnswerEvaluator(labelled=False), questions, labelled=False)

    skipped: Counter[str] = Counter()
    labelled = read_squad(file, on_error="skip", skipped=skipped, encoding=columns.encoding)
    if skipped:
        logger.warning(
            f"{file}: skipped {format_count(skipped.total(), 'question')} that cannot be read (finetune answer "
            "names the first)"
        )
    return LabelledRows(AnswerEvaluator(), labelled, labelled=True)
