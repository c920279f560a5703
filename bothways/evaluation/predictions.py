"""Scoring somebody's predictions against a gold file: classes, numbers, tags, answers or search results, as it holds
them.

| gold file                           | predictions, in its order (answers in any)                       |
| table of labels or numbers          | table with a column of PREDICTED, or .txt with one a line        |
| CoNLL columns, or table of words    | the same words, tags in the last column                          |
| SQuAD's JSON, or table of questions | JSON {id: answer}; JSON lines with `id` and `answer`             |
| judgements of search                | TREC's run, or table with query, document and score              |
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from bothways.data.beir import is_qrels_file, read_qrels, read_ranking
from bothways.data.columns import Table, has_text_column
from bothways.data.conll import Sentence
from bothways.data.datasets import has_named_columns, is_dataset, read_rows
from bothways.data.examples import read_table, read_tagged
from bothways.data.files import file_type, read_bytes, read_lines
from bothways.data.glue import detect_format
from bothways.data.labels import label_sets, numeric_labels
from bothways.data.squad import read_squad
from bothways.data.tables import iter_rows
from bothways.data.tags import Scheme, detect_scheme, find_illegal_tag, tags_to_spans
from bothways.errors import InputError
from bothways.evaluation.scores import (
    answer_scores,
    class_scores,
    document_of,
    entity_scores,
    label_set_scores,
    number_scores,
    ranking_scores,
)

LABELS = ("labels", "label", "score")
PREDICTED = ("prediction", "predicted", *LABELS)  # the first of them that a table has


def score(
    predictions: Path,
    gold: Path,
    *,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    words_column: str | None = None,
    tags_column: str | None = None,
    scheme: Scheme | None = None,
    multi_label: bool = False,
    positive: str | None = None,
    on_error: Literal["stop", "skip"] = "stop",
    encoding: str | None = None,
) -> dict[str, Any]:
    """The metrics by name, of the kind that the gold file asks for. InputError where the two files do not fit.

    on_error: what a gold answer that does not stand where it says does: stop, or leave its question out, counted.

    The columns are the gold file's; those of words and tags are both files', and so is the encoding, where they have no
    byte-order mark. scheme: found out by looking (`detect`); where it is given, the files hold tags, whatever their
    names. multi_label: a text may have several labels, though no list says so. positive: the class of `f1`. One CoNLL
    file as both has gold in the last column but one.
    """
    labelled = bool(text_column or pair_column or label_column or multi_label or positive)
    kind = "tags" if scheme or words_column or tags_column else _kind(gold, labelled, encoding)
    if kind == "answers":
        return _answers(predictions, gold, on_error, encoding)
    if on_error == "skip":
        raise InputError("on_error skip is for gold answers; every row of these files counts, mend it")
    if kind == "ranking":
        return _ranking(predictions, gold, encoding)
    if kind == "tags":
        if predictions == gold and tags_column is not None:
            way = (
                "divide the file"
                if has_named_columns(gold)
                else "leave it out: gold is the last but one, they the last"
            )
            raise InputError(f"{gold}: --tags-column ({tags_column}) names one column for gold and predictions; {way}")
        gold_column = "-2" if predictions == gold and tags_column is None else tags_column
        right = read_tagged(gold, words=words_column, tags=gold_column, encoding=encoding)
        predicted_tags = read_tagged(predictions, words=words_column, tags=tags_column, encoding=encoding)
        return _tags(gold, predictions, right, predicted_tags, scheme)
    table = read_table(
        gold, text=text_column, pair=pair_column, label=label_column, need_labels=True, encoding=encoding
    )
    column, predicted = _labels(predictions, encoding)
    if len(predicted) != len(table):
        number = f"{len(predicted)} predictions, but {gold} has {len(table)} rows"
        raise InputError(f"{predictions}: {number}; give one for each, in order")
    found = replace(table, labels=[label for _, label in predicted], where=[where for where, _ in predicted])
    if column == "score" or _are_numbers(table, found):
        return number_scores(numeric_labels(table), numeric_labels(found))
    if multi_label or column == "labels" or any(label.startswith("[") for label in table.labels or []):
        return _label_sets(table, found)
    return _classes(predictions, table, found, positive)


def _kind(gold: Path, labelled: bool, encoding: str | None) -> Literal["labels", "tags", "answers", "ranking"]:
    """What the file holds, by its first row; or by its name, where columns have none. labelled: something that only
    labels have was told, so that query, document and label are no qrels."""
    if not labelled and not detect_format(gold, encoding) and is_qrels_file(gold, encoding):
        return "ranking"
    if has_named_columns(gold):
        _, row = next(iter(read_rows(gold) if is_dataset(gold) else iter_rows(gold, encoding=encoding)), ("", {}))
        if {"question", "context", "answers"} <= row.keys():
            return "answers"
        return "tags" if isinstance(row.get("words", row.get("tokens")), list) else "labels"
    if file_type(gold) == ".json":
        return "answers"
    return "labels" if file_type(gold) in (".csv", ".tsv") or detect_format(gold, encoding) else "tags"


def _labels(path: Path, encoding: str | None) -> tuple[str, list[tuple[str, str]]]:
    """(name of the column, ('file:line', label) of each row); a list of labels stands as JSON."""
    if file_type(path) == ".txt":
        return "label", [(f"{path}:{number}", line) for number, line in read_lines(path, encoding)]
    found = read_rows(path, encoding=encoding)
    there = dict.fromkeys(name for _, row in found for name in row)
    by_name = {name.strip().lower(): name for name in there}
    usual = next((name for name in PREDICTED if name in by_name), None)
    if usual is None:
        there_are = f"(there are: {', '.join(there) or 'none'})"
        raise InputError(f"{path}: no column of predictions {there_are}; name it {' or '.join(PREDICTED)}")
    column = by_name[usual]
    if (
        usual in LABELS and has_text_column([*there]) and "scores" not in there
    ):  # which `predict --keep-columns text` writes
        raise InputError(
            f"{path}: {column!r} beside texts may be what is right, not what is predicted; name the column of "
            f"predictions {PREDICTED[0]!r}"
        )
    for where, row in found:
        if row.get(column) is None:
            raise InputError(f"{where}: {column!r} is missing; give a prediction for each row")
    values = [(where, row[column]) for where, row in found]
    return usual, [(where, json.dumps(value) if isinstance(value, list) else str(value)) for where, value in values]


def _are_numbers(*tables: Table) -> bool:
    """Whether all labels are numbers and one has a fraction, so that they are no names of classes."""
    try:
        return any(not number.is_integer() for table in tables for number in numeric_labels(table))
    except InputError:
        return False


def _label_sets(gold: Table, predicted: Table) -> dict[str, Any]:
    right, found = label_sets(gold), label_sets(predicted)
    return label_set_scores(right, found, sorted(frozenset().union(*right, *found)))


def _classes(path: Path, gold: Table, predicted: Table, positive: str | None) -> dict[str, Any]:
    right, found = gold.labels or [], predicted.labels or []
    if set(right).isdisjoint(found):
        raise InputError(
            f"{path}: predicts {min(found)!r} and the like, but the gold labels are {_some(right)}; give names as there"
        )
    if positive is not None and positive not in right:
        raise InputError(f"positive ({positive!r}) is no gold label; these are {_some(right)}")
    return class_scores(right, found, positive)


def _some(labels: Sequence[str], most: int = 9) -> str:
    names = sorted(set(labels))
    return ", ".join(map(repr, names[:most])) + (f", ... ({len(names)} in all)" if len(names) > most else "")


def _tags(
    gold: Path, predictions: Path, right: Sequence[Sentence], found: Sequence[Sentence], scheme: Scheme | None
) -> dict[str, Any]:
    """Entity scores; how many sentences there are, and how many of gold and predictions are illegal in their scheme."""
    if len(right) != len(found):
        raise InputError(
            f"{predictions}: {len(found)} sentences, but {gold} has {len(right)}; give the same words, in order"
        )
    for one, other in zip(right, found, strict=True):
        if one.words != other.words:
            words = f"{_beginning(other)} is not {_beginning(one)} of {one.where}"
            raise InputError(f"{other.where}: {words}; give the same words, in order")
    scheme = scheme or detect_scheme([sentence.tags for sentence in right])
    for sentence in (*right, *found):
        _check(sentence, scheme)
    of_predictions = scheme if scheme == "plain" else detect_scheme([sentence.tags for sentence in found])
    return {
        **entity_scores(
            [one.tags for one in right], [other.tags for other in found], scheme, [*map(document_of, right)]
        ),
        "scheme": scheme,
        "illegal_gold": sum(find_illegal_tag(one.tags, scheme) is not None for one in right),
        "illegal_predicted": sum(find_illegal_tag(other.tags, of_predictions) is not None for other in found),
    }


def _beginning(sentence: Sentence, most: int = 5) -> str:
    shown = " ".join(sentence.words[:most])
    return f"{shown!r}{' ...' if len(sentence) > most else ''} ({len(sentence)} words)"


def _check(sentence: Sentence, scheme: Scheme) -> None:
    try:
        tags_to_spans(sentence.tags, scheme)
    except InputError as error:
        raise InputError(f"{sentence.where}: {error}") from None


def _answers(predictions: Path, gold: Path, on_error: Literal["stop", "skip"], encoding: str | None) -> dict[str, Any]:
    skipped: Counter[str] = Counter()
    questions = read_squad(gold, on_error=on_error, skipped=skipped, encoding=encoding)
    answers = {question.id: [text for text, _ in question.answers] for question in questions}
    predicted = _predicted_answers(predictions, encoding)
    if answers.keys().isdisjoint(predicted):
        raise InputError(f"{predictions}: no id is one of {gold}, such as {min(answers)!r}; give an answer an id")
    passages = {question.id: question.context for question in questions}
    return {**answer_scores(answers, predicted, passages), **told_of(skipped)}


def told_of(skipped: Counter[str]) -> dict[str, int]:
    """How many were left out, if any."""
    return {"skipped": skipped.total()} if skipped else {}


def _ranking(predictions: Path, gold: Path, encoding: str | None) -> dict[str, Any]:
    qrels, ranking = read_qrels(gold, encoding), read_ranking(predictions, encoding)
    if qrels.keys().isdisjoint(ranking):
        raise InputError(f"{predictions}: no query is one of {gold}, such as {min(qrels)!r}; check the names")
    return ranking_scores(qrels, ranking)


def _predicted_answers(path: Path, encoding: str | None) -> dict[str, str]:
    """{id: answer} of SQuAD's form of predictions, or of JSON lines."""
    if file_type(path) != ".json":
        given = [(where, row.get("id"), row.get("answer")) for where, row in iter_rows(path, encoding=encoding)]
    else:
        given = [(f"{path}: {id!r}", id, answer) for id, answer in _json_object(path).items()]
    found = {}
    for where, id, answer in given:
        id = str(id) if type(id) is int else id
        if id in found:
            raise InputError(f"{where}: {id!r} is answered above already; keep one answer")
        if not (isinstance(id, str) and isinstance(answer, str)):
            raise InputError(f"{where}: expected an id and an answer as text, found {id!r} and {answer!r}; mend it")
        found[id] = answer
    return found


def _json_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_bytes(path))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}); SQuAD's predictions are one object, id to answer") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: holds {type(found).__name__}; SQuAD's predictions are one object, id to answer")
    return found
