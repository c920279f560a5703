"""SQuAD 1.1 (Rajpurkar 2016) and 2.0 (Rajpurkar 2018): questions, passages and answers.

Read from the original JSON, or from a table with one question per row, as in Hugging Face datasets.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

from bothways.base.errors import FileLocation, InputError, RowError, RowLocation, flag
from bothways.settings.tables_in_memory import MemoryTable, TableList, TableSource
from bothways.text.rows.rows import open_rows, read_rows
from bothways.text.rows.text_files import JSON, file_type, read_bytes

SHOWN = 60  # characters of a text shown in a message
NAMES: Mapping[type, str] = {str: "text", int: "a number", list: "a list", dict: "an object", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its passage (context), and the annotated answers: (text, index of the first character).

    Each answer is a slice of the passage: context[start : start + len(text)] == text. Only impossible questions have no
    answers. Questions about the same passage share one string.
    """

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...]
    impossible: bool
    where: RowLocation


def read_squad(
    path: TableSource,
    *,
    on_error: Literal["stop", "skip"] = "stop",
    skipped: Counter[str] | None = None,
    encoding: str | None = None,
) -> list[Question]:
    """The questions of a SQuAD JSON file, or of a .jsonl, .parquet, dataset (text/rows/datasets.py) or MemoryTable.

    Tables have columns id, question, context and answers: {text: [...], answer_start: [...]}. A question without
    answers is impossible; InputError if its is_impossible disagrees.
    on_error: stop at an invalid question (an answer not at its offset, a missing key, a duplicate id), or skip it and
    count it by file in `skipped`. encoding: of a .jsonl without a byte-order mark; None means UTF-8. InputError names
    file and id.
    """
    question_by_id: dict[str, Question] = {}
    contexts: dict[str, str] = {}
    for where, node, passage in question_nodes(path, encoding):
        try:
            question = _question(where, node, passage, contexts)
            if question.id in question_by_id:
                raise InputError(
                    f"{question.where}: duplicate of {question_by_id[question.id].where}; give each question its own id"
                )
            question_by_id[question.id] = question
        except InputError as error:
            if on_error == "stop":
                raise InputError(f"{error}, or skip such questions with {flag('on_error', 'skip')}") from None
            if skipped is not None:
                skipped[str(path)] += 1
    if not question_by_id:
        raise InputError(f"{path}: no readable question; give SQuAD's JSON, or a table with one question per row")
    return list(question_by_id.values())


def question_nodes(path: TableSource, encoding: str | None = None) -> Iterator[tuple[RowLocation, Any, Any]]:
    """(location, JSON object of the question, JSON object of its passage) for every question."""
    if isinstance(path, TableList):
        for source in path.parts:
            yield from question_nodes(source, encoding)
        return
    if _has_a_question_a_row(path, encoding):
        for where, row in read_rows(path, encoding=encoding):
            yield where, row, row
        return

    assert isinstance(path, Path)  # tables in memory have names
    numbers = count()
    for article_index, article in enumerate(_get(f"{path}", _json(path), "data", list)):
        for paragraph_index, paragraph in enumerate(
            _get(f"{path}: data[{article_index}]", article, "paragraphs", list)
        ):
            part = f"data[{article_index}].paragraphs[{paragraph_index}]"
            for index, question in enumerate(_get(f"{path}: {part}", paragraph, "qas", list)):
                where = RowLocation(path, next(numbers), part=f"{part}.qas[{index}]")
                yield where.with_id(question) if isinstance(question, Mapping) else where, question, paragraph


def _has_a_question_a_row(path: TableSource, encoding: str | None) -> bool:
    """Whether a source is a table, rather than SQuAD's JSON: a .json is one if its first row has a question."""
    rows = open_rows(path, encoding)
    if not rows.form.has_names or isinstance(path, MemoryTable) or file_type(path) != JSON:
        return rows.form.has_names
    _, first = next(rows.read(lambda error: None), (None, {}))
    return "question" in first


def _json(path: Path) -> Any:
    content = read_bytes(path)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        expected = "SQuAD's .json, or a .jsonl or .parquet with one question per row"
        raise InputError(f"{path}: not readable as JSON ({error}); give {expected}") from None


# --- one question -----------------------------------------------------------------------------------------------------


def _question(where: RowLocation, node: Any, passage: Any, contexts: dict[str, str]) -> Question:
    question_id = str(_get(where, node, "id", str, int))
    text = _get(where, node, "question", str)
    context = _get(where, passage, "context", str)
    answers = tuple(_answers(where, node))

    for answer, start in answers:
        _check_answer(where, context, answer, start)

    impossible = not answers
    if node.get("is_impossible") is not None:
        impossible = _get(where, node, "is_impossible", bool)

    if impossible == bool(answers):
        has = "has an answer" if answers else "has no answer"
        raise RowError(where, f"{has}, but is_impossible is {str(impossible).lower()}; fix one of them")

    return Question(
        id=question_id,
        question=text,
        context=contexts.setdefault(context, context),
        answers=answers,
        impossible=impossible,
        where=where,
    )


def _answers(where: FileLocation, node: Any) -> Iterator[tuple[str, int]]:
    """(text, index of the first character) from a list of objects or an object of lists."""
    answers = _get(where, node, "answers", list, dict)
    if isinstance(answers, dict):
        texts = _get(where.inside("answers"), answers, "text", list)
        starts = _get(where.inside("answers"), answers, "answer_start", list)
        if len(texts) != len(starts):
            raise RowError(where, f"answers has {len(texts)} text but {len(starts)} answer_start; fix them")
        answers = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    for index, answer in enumerate(answers):
        location = where.inside(f"answers[{index}]")
        yield _get(location, answer, "text", str), _get(location, answer, "answer_start", int)


def _check_answer(where: str, context: str, answer: str, start: int) -> None:
    if not answer:
        raise RowError(where, "an answer is empty; give its text, or an empty list for no answer")
    actual = context[max(start, 0) : max(start, 0) + len(answer)]
    if start >= 0 and actual == answer:
        return
    index = context.find(answer)
    hint = f"the answer is at {index}" if index >= 0 else "the answer is nowhere in the context"
    raise RowError(
        where,
        f"answer {answer[:SHOWN]!r} is not at character {start} of its context, where {actual[:SHOWN]!r} is; "
        f"{hint}; fix answer_start",
    )


def _get(where: str, node: Any, key: str, *types: type) -> Any:
    """The value of a key in a JSON object. InputError if `node` is not an object or the key is missing or mistyped."""
    if not isinstance(node, Mapping):
        raise RowError(where, f"expected an object with {key!r}, found {type(node).__name__}; fix it")
    if key not in node:
        raise RowError(where, f"no key {key!r} (there are: {', '.join(node) or 'none'}); add it")
    value = node[key]
    if type(value) not in types:
        expected = " or ".join(NAMES[kind] for kind in types)
        raise RowError(where, f"{key!r} holds {type(value).__name__}, not {expected}; fix it")
    return value
