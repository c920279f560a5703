"""Questions about passages with their answers, as SQuAD 1.1 (Rajpurkar 2016) and 2.0 (Rajpurkar 2018) give them: their
JSON, or a table with a question a row, as Hugging Face keeps them."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bothways.data.datasets import has_named_columns, read_rows
from bothways.data.files import read_bytes
from bothways.errors import InputError
from bothways.tables_in_memory import MemoryTable, TableSource

SHOWN = 60  # characters of a text in a message
NAMES: Mapping[type, str] = {str: "text", int: "a number", list: "a list", dict: "an object", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the passage to find its answer in, and the answers that people gave: (text, first character).

    Each answer is a slice of the passage: context[start : start + len(text)] == text. Impossible questions, and no
    others, have none. Questions about one passage share one string. `where` says file, place and id.
    """

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...]
    impossible: bool
    where: str


def read_squad(
    path: TableSource,
    *,
    on_error: Literal["stop", "skip"] = "stop",
    skipped: Counter[str] | None = None,
    encoding: str | None = None,
) -> list[Question]:
    """The questions of SQuAD's JSON, packed or not, or of a .jsonl, .parquet, dataset (data/datasets.py) or MemoryTable
    with columns id, question, context and answers: {text: [...], answer_start: [...]}.

    A question without answers is impossible, unless its is_impossible says otherwise.
    on_error: what is wrong with a question (an answer that is not at its offset, a missing key, an id that stood
    before) stops the reading, or leaves the question out, counted by file in `skipped`. encoding: of a .jsonl without a
    byte-order mark; None: UTF-8. InputError names file and id.
    """
    found: dict[str, Question] = {}
    contexts: dict[str, str] = {}
    for where, node, passage in question_nodes(path, encoding):
        try:
            question = _question(where, node, passage, contexts)
            if question.id in found:
                raise InputError(f"{question.where}: stands at {found[question.id].where} too; give each its own id")
            found[question.id] = question
        except InputError as wrong:
            if on_error == "stop":
                raise InputError(f"{wrong}, or leave such questions out with --on-error skip") from None
            if skipped is not None:
                skipped[str(path)] += 1
    if not found:
        raise InputError(f"{path}: no question that can be read; give SQuAD's JSON, or a table with a question a row")
    return list(found.values())


def question_nodes(path: TableSource, encoding: str | None = None) -> Iterator[tuple[str, Any, Any]]:
    """(where, what holds a question, what holds its passage)."""
    if isinstance(path, MemoryTable) or has_named_columns(path):
        for where, row in read_rows(path, encoding=encoding):
            yield where, row, row
        return
    for number, article in enumerate(_get(f"{path}", _json(path), "data", list)):
        for place, paragraph in enumerate(_get(f"{path}: data[{number}]", article, "paragraphs", list)):
            where = f"{path}: data[{number}].paragraphs[{place}]"
            for index, question in enumerate(_get(where, paragraph, "qas", list)):
                yield f"{where}.qas[{index}]", question, paragraph


def _json(path: Path) -> Any:
    content = read_bytes(path)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        ways = "SQuAD's .json, or a .jsonl or .parquet with a question a row"
        raise InputError(f"{path}: not JSON that can be read ({error}); give {ways}") from None


# --- one question -----------------------------------------------------------------------------------------------------


def _question(where: str, node: Any, passage: Any, contexts: dict[str, str]) -> Question:
    name = str(_get(where, node, "id", str, int))
    where = f"{where}, id {name}"
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
        raise InputError(f"{where}: {has}, but is_impossible is {str(impossible).lower()}; mend one of them")
    return Question(name, text, contexts.setdefault(context, context), answers, impossible, where)


def _answers(where: str, node: Any) -> Iterator[tuple[str, int]]:
    """(text, first character) of a list of objects, or of an object of lists."""
    given = _get(where, node, "answers", list, dict)
    if isinstance(given, dict):
        texts = _get(f"{where}: answers", given, "text", list)
        starts = _get(f"{where}: answers", given, "answer_start", list)
        if len(texts) != len(starts):
            raise InputError(f"{where}: answers has {len(texts)} text but {len(starts)} answer_start; mend them")
        given = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    for index, answer in enumerate(given):
        place = f"{where}: answers[{index}]"
        yield _get(place, answer, "text", str), _get(place, answer, "answer_start", int)


def _check_answer(where: str, context: str, answer: str, start: int) -> None:
    if not answer:
        raise InputError(f"{where}: an answer is empty; give its text, or no answer where there is none")
    stands = context[max(start, 0) : max(start, 0) + len(answer)]
    if start >= 0 and stands == answer:
        return
    elsewhere = context.find(answer)
    there = f"the answer stands at {elsewhere}" if elsewhere >= 0 else "the answer is nowhere in the context"
    raise InputError(
        f"{where}: answer {answer[:SHOWN]!r} is not at character {start} of its context, where {stands[:SHOWN]!r} is; "
        f"{there}; mend answer_start"
    )


def _get(where: str, node: Any, key: str, *kinds: type) -> Any:
    """What an object of JSON holds under a key. InputError where it is none, lacks the key or holds another kind."""
    if not isinstance(node, Mapping):
        raise InputError(f"{where}: expected an object with {key!r}, found {type(node).__name__}; mend it")
    if key not in node:
        raise InputError(f"{where}: no key {key!r} (there are: {', '.join(node) or 'none'}); add it")
    value = node[key]
    if type(value) not in kinds:
        expected = " or ".join(NAMES[kind] for kind in kinds)
        raise InputError(f"{where}: {key!r} holds {type(value).__name__}, not {expected}; mend it")
    return value
