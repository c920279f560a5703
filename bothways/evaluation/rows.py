"""Evaluation rows, read as in training: columns, second texts, spelling of labels, and schemes of tags."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from bothways.data.columns import Table
from bothways.data.examples import read_table
from bothways.data.labels import class_indices, label_sets, numeric_labels, respell_labels
from bothways.data.near_duplicates import label_key
from bothways.data.stream import resolve_columns
from bothways.data.tagged_words import Sentence
from bothways.data.tags import OUTSIDE, Scheme, detect_scheme, find_illegal_tag
from bothways.errors import InputError, join_names
from bothways.inference.predictor import Predictor
from bothways.log import logger
from bothways.settings import TextColumns
from bothways.settings.tables_in_memory import MemoryTable, TableSource
from bothways.tasks.evaluators import (
    ClassEvaluator,
    Evaluator,
    LabelSetEvaluator,
    NumberEvaluator,
    TagEvaluator,
    TextRow,
)
from bothways.tasks.tagged_texts import group_sentences, read_sentences


def read_trained_table(
    model: Predictor, file: TableSource, columns: TextColumns, *, need_labels: bool, group: str | None = None
) -> Table:
    """Read a table by the named columns, else by those of the fine-tuning, else by the usual names.

    group: column of groups. None: that of the fine-tuning, if the file has it.

    Labels get the model's spelling if it was fine-tuned with merge_labels. InputError if the table has pairs and the
    model was fine-tuned on single texts, or the reverse."""
    names = resolve_columns(file, columns, model.description.settings, ("text", "pair", "label"))
    table = read_table(
        file,
        text=names["text"],
        pair=names["pair"],
        label=names["label"],
        need_labels=need_labels,
        group=group or model.description.settings.get("group_column"),
        need_group=group is not None,
        encoding=columns.encoding,
    )
    if model.ignores_pairs(names["text"], columns.pair_column):
        table = replace(table, pairs=None)
    model.check_pairs(table.pairs is not None, file)
    if table.labels is not None and model.description.settings.get("merge_labels"):
        spelling = {label_key(label): label for label in model.labels}
        table = respell_labels(table, spelling, several=model.description.multi_label)
    return table


def text_evaluator(model: Predictor, positive: str | None = None) -> Evaluator[TextRow, Any]:
    """The evaluator of a classifier or regression model."""
    if not model.labels:
        return NumberEvaluator()
    return LabelSetEvaluator(model.labels) if model.description.multi_label else ClassEvaluator(positive)


def text_rows(model: Predictor, table: Table) -> list[TextRow]:
    """The rows of a table for `text_evaluator`. InputError for labels that are unknown to the model or not numbers."""
    labels: Sequence[Any] = [None] * len(table)
    if table.labels is not None and not model.labels:
        labels = numeric_labels(table)
    elif table.labels is not None and model.description.multi_label:
        labels = label_sets(table, model.labels)
    elif table.labels is not None:
        class_indices(table, model.labels)  # raises for unknown labels
        labels = table.labels
    pairs: Sequence[str | None] = table.pairs if table.pairs is not None else [None] * len(table)
    return [*map(TextRow, table.texts, pairs, labels, table.units)]


@dataclass(frozen=True)
class TaggedRows:
    """Tagged sentences, as texts that a tagger reads at once, and the evaluator for their scheme."""

    sentences: list[Sentence]
    rows: list[list[Sentence]]
    evaluator: TagEvaluator

    @property
    def num_illegal(self) -> int:
        """Sentences with tags that the scheme does not allow."""
        scheme = self.evaluator.scheme
        return sum(find_illegal_tag(sentence.tags, scheme) is not None for sentence in self.sentences)


def read_tagged_rows(
    model: Predictor,
    files: Iterable[TableSource],
    columns: object,
    requested: Scheme | Literal["auto"] = "auto",
    *,
    min_rows: int = 0,
) -> TaggedRows:
    """The tagged sentences of files. Neighbours are read together if the model was fine-tuned that way.

    columns: has words_column, tags_column and encoding. min_rows: read fewer neighbours together if there would be
    fewer rows. InputError for tags of another kind than the model's.
    """
    trained = model.description.settings
    is_plain = model.description.metadata.get("scheme") == "plain"
    written: Scheme = "plain" if is_plain else "iob2" if requested == "auto" else requested
    by_file = [read_sentences(file, columns, trained, written) for file in files]
    sentences = [*chain.from_iterable(by_file)]
    scheme = detect_scheme([sentence.tags for sentence in sentences]) if requested == "auto" else requested
    if not is_plain:
        check_entity_tags(sentences, scheme, model.labels)
    window = model.window_policy.size if trained.get("context") else 0
    while True:
        rows = [row for file in by_file for row in group_sentences(file, model.tokenizer, window)]
        if len(rows) >= min(min_rows, len(sentences)):
            return TaggedRows(sentences, rows, TagEvaluator(scheme, plain=is_plain or scheme == "plain"))
        window //= 2


def check_entity_tags(sentences: Sequence[Sentence], scheme: Scheme, labels: Sequence[str]) -> None:
    """InputError for tags without a prefix that are not the model's, or if the model knows none of the entity types.

    Single unknown types are allowed: the model misses their entities.
    """
    known = {entity_type(label) for label in labels} | {OUTSIDE}
    tagged = [(sentence.where, tag) for sentence in sentences for tag in sentence.tags if tag != OUTSIDE]
    unknown = [(where, tag) for where, tag in tagged if entity_type(tag) not in known]
    is_plain = scheme == "plain"
    if unknown and (is_plain or len(unknown) == len(tagged)):
        where, tag = unknown[0]
        way_out = "write it with B- and I-" if is_plain else "fix the tags"
        raise InputError(
            f"{where}: tag {tag!r} is not an entity tag of the model, which was trained on {join_names(labels)}; "
            f"{way_out}"
        )


def entity_type(tag: str) -> str:
    """A tag without the prefix of its scheme."""
    return tag[2:] if tag[1:2] == "-" else tag


def selected_on(model: Predictor, files: Iterable[TableSource]) -> dict[str, str]:
    """{"selected_on": split}, with a warning, if the model was trained or selected on one of the files; else {}."""
    for split, use in (("train", "trained on"), ("dev", "selected on")):
        used = model.description.settings.get(split)
        for file in files:
            if _is_same(file, used):
                logger.warning(f"{file}: the model was {use} this file, so the scores say little about other text")
                return {"selected_on": split}
    return {}


def _is_same(file: TableSource, used: Any) -> bool:
    """Whether data is `used`, an entry of bothways.json: a path, or the record of an in-memory table."""
    if isinstance(file, MemoryTable):
        return isinstance(used, dict) and used.get("fingerprint") == file.fingerprint
    return isinstance(used, str) and Path(used).resolve() == Path(file).resolve()
