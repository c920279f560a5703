"""The task of tagging: the entities of a text, or a label for each word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from bothways.base.errors import InputError, flag, format_count
from bothways.base.io import is_same_file
from bothways.settings.finetune import Tag
from bothways.settings.predict import Evaluate
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks.model_use import PIPELINE, ModelUse
from bothways.tasks.scores import Scores
from bothways.tasks.tag.files import compare_tags, is_tagged, read_splits, read_tagged_rows
from bothways.tasks.tag.scoring import EntityEvaluator
from bothways.tasks.tag.training import Tagging
from bothways.tasks.task import LIST, Item, LabelledRows, Route, Task, fact, file_given_twice, firsts
from bothways.text.data.conll import num_columns
from bothways.text.data.examples import has_tag_columns, read_table, read_tagged
from bothways.text.data.model_inputs import ModelInput
from bothways.text.rows.row_errors import RowErrors
from bothways.text.rows.text_files import file_type

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.tasks.task import LoadedModel

MIN_TAGGED_TEXTS = 64  # made of sentences, if there are that many sentences
COLUMNS_OF_BOTH = 3  # words, gold tags and predicted tags, if one CoNLL file has both


def tag_items(
    model: LoadedModel, items: Sequence[Item], reading: Mapping[str, Any], *, min_score: float | None = None
) -> Sequence[Any]:
    """The entities of each text as JSON. min_score: leave out entities of a lower score."""
    found = model.tag(firsts(items), min_score=min_score, **reading)
    return [[entity.to_json() for entity in entities] for entities in found]


class TagTask(Task):
    """The entities of each text, or a label for each word."""

    name = "tag"
    gold = "tags"
    inputs = "single texts"
    options = frozenset({"min_score"})
    route = "/tag"
    use = ModelUse(
        kind="a tagger of words: entities, or a label for each word",
        tag="token-classification",
        call='model.tag("Anna took the train to Bern.")',
        route="/tag",
        body='{"inputs": "Anna took the train to Bern."}',
        libraries={
            "transformers": PIPELINE.format(
                task="token-classification",
                options=', aggregation_strategy="first"',
                text='"Anna took the train to Bern."',
            )
        },
    )
    routes = (
        Route(
            path="/tag",
            summary="Entities of a text",
            answer=LIST,
            reads="texts",
            compute=tag_items,
            shares=("min_score",),
        ),
    )

    def train(self, settings: Tag, pretrained: Checkpoint, fold: int | None) -> Tagging:
        errors = RowErrors(settings.on_error)
        sentences = read_splits(settings, errors, fold)
        return Tagging.build(settings, pretrained, sentences, errors.notes(len(sentences["train"])))

    def read(
        self, model: LoadedModel, files: Sequence[TableSource], columns: Any, *, need_labels: bool
    ) -> LabelledRows:
        """Sentences are read with their neighbours if the model was fine-tuned that way."""
        if need_labels:
            return read_tagged_rows(model, files, columns, columns.scheme)
        (file,) = files
        if not is_tagged(file, model.labels, columns.encoding):
            table = read_table(file, text=columns.text_column, need_labels=False, encoding=columns.encoding)
            return LabelledRows(EntityEvaluator(), table.texts, labelled=False)
        names = SimpleNamespace(words_column=None, tags_column=columns.label_column, encoding=columns.encoding)
        return read_tagged_rows(model, [file], names, min_rows=MIN_TAGGED_TEXTS)

    def predict_rows(
        self, model: LoadedModel, rows: Sequence[ModelInput], *, min_score: float | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        """The entities of each text; with `min_score` those whose score is not lower."""
        found = tag_items(model, [(row.text, None) for row in rows], options, min_score=min_score)
        return [{"entities": entities} for entities in found]

    def columns(self, model: LoadedModel, top: int | None = None, *, has_sets: bool = False) -> dict[str, Any]:
        return {"entities": [{"label": str, "text": str, "start": int, "end": int, "score": float}]}

    def facts(
        self, model: LoadedModel, texts: Sequence[str], question: str, min_score: float | None = None
    ) -> list[list[dict[str, Any]]]:
        return [
            [fact("entity", one.label, one.text, start=one.start, end=one.end, score=one.score) for one in entities]
            for entities in model.tag(texts, min_score=min_score)
        ]

    def score_file(self, predictions: Path, gold: Path, columns: Evaluate) -> Scores:
        """Tags of the same words, in the last column. If both files are the same CoNLL file, the gold tags are in the
        second-to-last column."""
        tags_column = columns.tags_column
        is_same = is_same_file(predictions, gold)
        is_table = has_tag_columns(gold, None, tags_column, columns.encoding) or file_type(gold) == ".json"

        if is_same and is_table:
            raise file_given_twice(gold, "a table has one column of tags")
        if is_same and tags_column is not None:
            raise InputError(
                f"{gold}: {flag('tags_column')} ({tags_column}) is the same for gold and predictions; leave it out: "
                "gold tags are read from the second-to-last column, predictions from the last"
            )
        if is_same and (number := num_columns(gold, columns.encoding)) < COLUMNS_OF_BOTH:
            found = format_count(number, "column")
            raise file_given_twice(gold, f"it has {found}, and needs three: words, gold tags and predicted tags")

        gold_column = "-2" if is_same else tags_column
        scheme = None if columns.scheme == "auto" else columns.scheme
        named: dict[str, Any] = {
            "words": columns.words_column,
            "scheme": scheme or "iob2",
            "encoding": columns.encoding,
        }

        read = (read_tagged(gold, tags=gold_column, **named), read_tagged(predictions, tags=tags_column, **named))
        return compare_tags(gold, predictions, *read, scheme)


TAG = TagTask()
