"""Score a file of predictions against a gold file, for every task and for search results.

| gold file                           | predictions, in its order (answers in any)                       |
| table of labels or numbers          | table with a column named in PREDICTED, or .txt, one per line    |
| CoNLL columns, or table of words    | the same words, tags in the last column                          |
| texts with labelled characters      | the same texts with labelled characters                          |
| SQuAD's JSON, or table of questions | JSON {id: answer}; JSON lines with `id` and `answer`             |
| relevance judgements (qrels)        | TREC run, or table with query, document and score                |
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from bothways.data.annotations import has_annotations, is_annotation_file
from bothways.data.beir import is_qrels_file, read_qrels, read_ranking
from bothways.data.columns import Table, has_text_column
from bothways.data.datasets import has_named_columns, is_dataset, read_rows
from bothways.data.examples import read_table, read_tagged
from bothways.data.glue import detect_format
from bothways.data.labels import label_sets, numeric_labels
from bothways.data.squad import read_squad
from bothways.data.tables import iter_rows
from bothways.data.tags import Scheme, Sentence, detect_scheme, find_illegal_tag, tags_to_spans
from bothways.data.text_files import file_type, read_bytes, read_lines
from bothways.errors import InputError, RowLocation, format_count
from bothways.tasks.answer import AnswerEvaluator
from bothways.tasks.classify import ClassEvaluator, LabelSetEvaluator
from bothways.tasks.embed import ranking_scores
from bothways.tasks.regress import NumberEvaluator
from bothways.tasks.scores import PROBABILITY, Scores, count_skipped
from bothways.tasks.tag import tag_scores
from bothways.tasks.tag_examples import documents_of

LABELS = ("labels", "label", "score")
PREDICTED = ("prediction", "predicted", *LABELS)  # column names; the first that a table has counts


def score_file(
    predictions: Path,
    gold: Path,
    *,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    group_column: str | None = None,
    words_column: str | None = None,
    tags_column: str | None = None,
    scheme: Scheme | None = None,
    multi_label: bool = False,
    positive: str | None = None,
    on_error: Literal["stop", "skip"] = "stop",
    encoding: str | None = None,
) -> Scores:
    """Score a file of predictions by the metrics of the gold file's task. InputError if the two files do not match.

    Column names refer to the gold file; the columns of words and tags, and the encoding, apply to both files. scheme:
    detected by default; if given, both files are read as tags, whatever their names. multi_label: a text may have
    several labels, even if none is a list. positive: the class that `f1` is computed for. on_error: a question whose
    answer is not at its offset stops the evaluation, or is skipped and counted. If both files are the same CoNLL file,
    the gold tags are in the second-to-last column.
    """
    labelled = bool(text_column or pair_column or label_column or group_column or multi_label or positive)
    kind = "tags" if scheme or words_column or tags_column else _kind(gold, labelled, encoding)
    if kind == "answers":
        return _answers(predictions, gold, on_error, encoding)
    if on_error == "skip":
        raise InputError("on_error skip is for gold answers; every row of these files counts, so fix the broken ones")
    if kind == "ranking":
        return _ranking(predictions, gold, encoding)
    if kind == "tags":
        if predictions == gold and tags_column is not None:
            fix = "split the file"
            if not has_named_columns(gold):
                fix = "leave it out: gold tags are read from the second-to-last column, predictions from the last"
            raise InputError(f"{gold}: --tags-column ({tags_column}) is the same for gold and predictions; {fix}")
        gold_column = "-2" if predictions == gold and tags_column is None else tags_column
        written = scheme or "iob2"
        gold_tags = read_tagged(gold, words=words_column, tags=gold_column, scheme=written, encoding=encoding)
        predicted_tags = read_tagged(
            predictions, words=words_column, tags=tags_column, scheme=written, encoding=encoding
        )
        return _tags(gold, predictions, gold_tags, predicted_tags, scheme)
    table = read_table(
        gold,
        text=text_column,
        pair=pair_column,
        label=label_column,
        group=group_column,
        need_labels=True,
        encoding=encoding,
    )
    column, predicted = _labels(predictions, encoding)
    if len(predicted) != len(table):
        counts = f"{format_count(len(predicted), 'prediction')}, but {gold} has {format_count(len(table), 'row')}"
        raise InputError(f"{predictions}: {counts}; give one prediction per row, in order")
    answered = replace(table, labels=[label for _, label in predicted], where=[where for where, _ in predicted])
    if column == "score" or _are_numbers(table, answered):
        return NumberEvaluator().compare(numeric_labels(table), numeric_labels(answered), table.units)
    if multi_label or column == "labels" or any(label.startswith("[") for label in table.labels or []):
        return _label_sets(table, answered)
    return _classes(predictions, table, answered, positive)


def _kind(gold: Path, labelled: bool, encoding: str | None) -> Literal["labels", "tags", "answers", "ranking"]:
    """The kind of data in a file, by its first row, or by its name if columns have no names.

    labelled: an option for labels was given, so columns query, document and label are not qrels.
    """
    if not labelled and not detect_format(gold, encoding) and is_qrels_file(gold, encoding):
        return "ranking"
    if has_named_columns(gold):
        _, row = next(iter(read_rows(gold) if is_dataset(gold) else iter_rows(gold, encoding=encoding)), ("", {}))
        if {"question", "context", "answers"} <= row.keys():
            return "answers"
        is_tagged = isinstance(row.get("words", row.get("tokens")), list) or has_annotations(row)
        return "tags" if is_tagged else "labels"
    if file_type(gold) == ".json":
        return "tags" if is_annotation_file(gold) else "answers"
    return "labels" if file_type(gold) in (".csv", ".tsv") or detect_format(gold, encoding) else "tags"


def _labels(path: Path, encoding: str | None) -> tuple[str, list[tuple[RowLocation, str]]]:
    """(name of the column, (location, label) of each row); a list of labels becomes JSON."""
    if file_type(path) == ".txt":
        lines = enumerate(read_lines(path, encoding))
        return "label", [(RowLocation(path, row, number), line) for row, (number, line) in lines]
    rows = read_rows(path, encoding=encoding)
    columns = dict.fromkeys(name for _, row in rows for name in row)
    by_name = {name.strip().lower(): name for name in columns}
    usual = next((name for name in PREDICTED if name in by_name), None)
    if usual is None:
        available = f"(there are: {', '.join(columns) or 'none'})"
        raise InputError(f"{path}: no column of predictions {available}; name it {' or '.join(PREDICTED)}")
    column = by_name[usual]
    # `predict --keep-columns text` writes probabilities too.
    has_scores = any(name == "scores" or name.startswith(PROBABILITY) for name in columns)
    if usual in LABELS and has_text_column([*columns]) and not has_scores:
        raise InputError(
            f"{path}: {column!r} next to texts may hold gold labels, not predictions; name the column of predictions "
            f"{PREDICTED[0]!r}"
        )
    for where, row in rows:
        if row.get(column) is None:
            raise InputError(f"{where}: {column!r} is missing; give a prediction for each row")
    values = [(where, row[column]) for where, row in rows]
    return usual, [(where, json.dumps(value) if isinstance(value, list) else str(value)) for where, value in values]


def _are_numbers(*tables: Table) -> bool:
    """Whether all labels are numbers, some with a fraction, so that they cannot be names of classes."""
    try:
        return any(not number.is_integer() for table in tables for number in numeric_labels(table))
    except InputError:
        return False


def _label_sets(gold: Table, predicted: Table) -> Scores:
    gold_sets, predicted_sets = label_sets(gold), label_sets(predicted)
    names = sorted(frozenset().union(*gold_sets, *predicted_sets))
    return LabelSetEvaluator(names).compare(gold_sets, predicted_sets, gold.units)


def _classes(path: Path, gold: Table, predicted: Table, positive: str | None) -> Scores:
    gold_labels, predicted_labels = gold.labels or [], predicted.labels or []
    if set(gold_labels).isdisjoint(predicted_labels):
        raise InputError(
            f"{path}: no prediction is one of the gold labels ({_shorten(gold_labels)}), the first is "
            f"{min(predicted_labels)!r}; use the same names"
        )
    if positive is not None and positive not in gold_labels:
        raise InputError(f"positive ({positive!r}) is not among the gold labels: {_shorten(gold_labels)}")
    return ClassEvaluator(positive).compare(gold_labels, predicted_labels, gold.units)


def _shorten(labels: Sequence[str], limit: int = 9) -> str:
    names = sorted(set(labels))
    return ", ".join(map(repr, names[:limit])) + (f", ... ({len(names)} in all)" if len(names) > limit else "")


def _tags(
    gold_path: Path, path: Path, gold: Sequence[Sentence], predicted: Sequence[Sentence], scheme: Scheme | None
) -> Scores:
    """Entity scores, and how many sentences of gold and predictions break the rules of their scheme."""
    if len(gold) != len(predicted):
        raise InputError(
            f"{path}: {format_count(len(predicted), 'sentence')}, but {gold_path} has {len(gold)}; give the same "
            "words, in order"
        )
    for one, other in zip(gold, predicted, strict=True):
        if one.words != other.words:
            words = f"{_beginning(other)} is not {_beginning(one)} of {one.where}"
            raise InputError(f"{other.where}: {words}; give the same words, in order")
    scheme = scheme or detect_scheme([sentence.tags for sentence in gold])
    for sentence in (*gold, *predicted):
        _check(sentence, scheme)
    predicted_scheme = scheme if scheme == "plain" else detect_scheme([sentence.tags for sentence in predicted])
    gold_tags, predicted_tags = ([sentence.tags for sentence in sentences] for sentences in (gold, predicted))
    scores = tag_scores(gold_tags, predicted_tags, scheme, documents_of(gold))
    details = {
        "scheme": scheme,
        "illegal_gold": sum(find_illegal_tag(tags, scheme) is not None for tags in gold_tags),
        "illegal_predicted": sum(find_illegal_tag(tags, predicted_scheme) is not None for tags in predicted_tags),
    }
    return replace(scores, counts={**scores.counts, **details})


def _beginning(sentence: Sentence, limit: int = 5) -> str:
    words = " ".join(sentence.words[:limit])
    return f"{words!r}{' ...' if len(sentence) > limit else ''} ({format_count(len(sentence), 'word')})"


def _check(sentence: Sentence, scheme: Scheme) -> None:
    try:
        tags_to_spans(sentence.tags, scheme)
    except InputError as error:
        raise InputError(f"{sentence.where}: {error}") from None


def _answers(predictions: Path, gold: Path, on_error: Literal["stop", "skip"], encoding: str | None) -> Scores:
    skipped: Counter[str] = Counter()
    questions = read_squad(gold, on_error=on_error, skipped=skipped, encoding=encoding)
    answers = {question.id: [text for text, _ in question.answers] for question in questions}
    predicted = _read_answers(predictions, encoding)
    if answers.keys().isdisjoint(predicted):
        raise InputError(f"{predictions}: no id is one of {gold}, such as {min(answers)!r}; give the id of each answer")
    passages = {question.id: question.context for question in questions}
    scores = AnswerEvaluator().compare(answers, predicted, passages)
    return replace(scores, counts=count_skipped(skipped))


def _ranking(predictions: Path, gold: Path, encoding: str | None) -> Scores:
    qrels, ranking = read_qrels(gold, encoding), read_ranking(predictions, encoding)
    if qrels.keys().isdisjoint(ranking):
        raise InputError(f"{predictions}: no query is one of {gold}, such as {min(qrels)!r}; check the names")
    return ranking_scores(qrels, ranking)


def _read_answers(path: Path, encoding: str | None) -> dict[str, str]:
    """{id: answer} of predictions in SQuAD's format, or in JSON lines."""
    rows: list[tuple[str, Any, Any]]
    if file_type(path) != ".json":
        rows = [(where, row.get("id"), row.get("answer")) for where, row in iter_rows(path, encoding=encoding)]
    else:
        rows = [(f"{path}: {id!r}", id, answer) for id, answer in _json_object(path).items()]
    answers = {}
    for where, id, answer in rows:
        id = str(id) if type(id) is int else id
        if id in answers:
            raise InputError(f"{where}: {id!r} already has an answer above; keep one answer")
        if not (isinstance(id, str) and isinstance(answer, str)):
            raise InputError(f"{where}: expected an id and an answer as text, found {id!r} and {answer!r}")
        answers[id] = answer
    return answers


def _json_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_bytes(path))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}); SQuAD's predictions are one object, id to answer") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds {type(content).__name__}; SQuAD's predictions are one object, id to answer")
    return content
