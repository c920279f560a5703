"""Score a file of predictions against a gold file, for every task and for search results.

| gold file                           | predictions, in its order (answers in any)                       |
| table of labels or numbers          | table with a column named in PREDICTED, or .txt, one per line    |
| CoNLL columns, or table of words    | the same words, tags in the last column                          |
| texts with labelled characters      | the same texts with labelled characters                          |
| SQuAD's JSON, or table of questions | JSON {id: answer}; JSON lines with `id` and `answer`             |
| relevance judgements (qrels)        | TREC run, or table with query, document and score                |
"""

from pathlib import Path
from typing import Literal

from bothways.data.annotations import has_annotations, is_annotation_file
from bothways.data.beir import is_qrels_file
from bothways.data.datasets import has_named_columns, is_dataset, read_rows
from bothways.data.glue import detect_format
from bothways.data.tables import iter_rows
from bothways.data.text_files import file_type
from bothways.errors import InputError
from bothways.settings.predict import Evaluate
from bothways.tasks import TASKS
from bothways.tasks.scores import Scores


def score_file(settings: Evaluate) -> Scores:
    """The scores of `predictions` by the metrics of the gold file's task, `model`. InputError if the two files do not
    match. If a scheme or a column of words or tags is named, both files are read as tags, whatever their names."""
    columns = (settings.text_column, settings.pair_column, settings.label_column, settings.group_column)
    labelled = any(column is not None for column in columns) or bool(settings.multi_label or settings.positive)
    is_tagged = settings.scheme != "auto" or settings.words_column or settings.tags_column
    kind = "tags" if is_tagged else _kind(settings.model, labelled, settings.encoding)
    if settings.on_error == "skip" and kind != "answers":
        raise InputError("on_error skip is for gold answers; every row of these files counts, so fix the broken ones")
    assert settings.predictions is not None
    task = next(task for entry in TASKS.values() if (task := entry.load()).gold == kind)
    return task.score_file(settings.predictions, settings.model, settings)


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
