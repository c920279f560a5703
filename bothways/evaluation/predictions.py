"""Files of predictions and their gold files, for every task and for search results.

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


def gold_kind(gold: Path, labelled: bool, encoding: str | None) -> Literal["labels", "tags", "answers", "ranking"]:
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
