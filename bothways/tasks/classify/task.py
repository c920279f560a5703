"""The task of classification: a label for each text (or pair), or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bothways.base.errors import InputError, format_count, join_names
from bothways.base.io import is_same_file
from bothways.settings.finetune import Classify
from bothways.settings.predict import Evaluate
from bothways.tasks.arrays import Floats, sigmoid, softmax
from bothways.tasks.class_decoding import Prediction
from bothways.tasks.classify.files import are_numbers, compare_classes, read_predicted_labels
from bothways.tasks.classify.scoring import ClassEvaluator, LabelSetEvaluator
from bothways.tasks.classify.training import Classification
from bothways.tasks.model_use import ENCODE, PIPELINE, ModelUse
from bothways.tasks.regress.scoring import NumberEvaluator
from bothways.tasks.scores import Scores
from bothways.tasks.task import LIST, Item, Route, fact, split_pairs
from bothways.tasks.text_rows import TextEvaluator, TextModelTask, log_notes
from bothways.text.data.columns import Table
from bothways.text.data.examples import read_table
from bothways.text.data.label_cells import list_items, read_labels, spell_labels
from bothways.text.data.labels import class_indices, label_sets, numeric_labels
from bothways.text.data.model_inputs import ModelInput
from bothways.text.data.split_tables import read_tables

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.tasks.task import LoadedModel


def class_scores(
    model: LoadedModel,
    items: Sequence[Item],
    reading: Mapping[str, Any],
    *,
    min_score: float | None = None,
    in_scope: float | None = None,
) -> Sequence[Any]:
    """The outputs of the head for classes, before a softmax or sigmoid, float32 [C] per text (or pair); with a
    threshold the predictions, whose labels may be None."""
    if min_score is not None or in_scope is not None:
        return model.classify(*split_pairs(items), min_score=min_score, in_scope=in_scope, **reading)
    parts = model.backend.text_scores("classes", *split_pairs(items), reading)
    return [*np.concatenate([*parts])]


def scored_labels(model: LoadedModel, scores_C: Floats | Prediction, options: Mapping[str, Any]) -> Any:
    """Labels with their scores, the best first; a regression model has one number. (Text Embeddings Inference.) With a
    threshold the prediction as `predict` writes it: that server's clients do not ask for one, nor know a null label."""
    if isinstance(scores_C, Prediction):
        return scores_C.to_json()
    if not model.labels:
        return [{"label": "score", "score": scores_C[0].item()}]
    if not options["raw_scores"]:
        scores_C = label_probabilities(model, scores_C)
    rows = zip(model.labels, scores_C.tolist(), strict=True)
    return [{"score": score, "label": label} for label, score in sorted(rows, key=lambda row: -row[1])]


def label_probabilities(model: LoadedModel, scores_C: Floats) -> Floats:
    return (sigmoid if model.description.multi_label else softmax)(scores_C)


class ClassifyTask(TextModelTask):
    """A label for each text (or pair), or several."""

    name = "classify"
    gold = "labels"
    evaluate_options = ("min_score", "in_scope")
    evaluate_data = "texts with labels"
    options = frozenset({"top", "coverage", "min_score", "in_scope"})
    route = "/predict"
    use = ModelUse(
        kind="a text classifier",
        tag="text-classification",
        call='model.classify("The train was late.")',
        route="/predict",
        body='{"inputs": "The train was late."}',
        libraries={
            "transformers": PIPELINE.format(
                task="text-classification", options=", top_k=None", text='"The train was late.", truncation=True'
            )
        },
        scored=f"""{ENCODE.format(texts='["The train was late."]')}  # for each label, before the softmax""",
    )
    pair_use = ModelUse(
        kind="a classifier of pairs of texts",
        tag="text-classification",
        call='model.classify("The train was late.", "The train was on time.")',
        route="/predict",
        body='{"inputs": [["The train was late.", "The train was on time."]]}',
        libraries={
            "transformers": PIPELINE.format(
                task="text-classification",
                options=", top_k=None",
                text='{"text": "The train was late.", "text_pair": "The train was on time."}',
            )
        },
    )
    routes = (
        Route(
            path="/predict",
            summary="Labels of a text (or pair) with their scores, the best first",
            answer=LIST,
            reads="sequences",
            compute=class_scores,
            shares=("min_score", "in_scope"),
            flags=("raw_scores",),
            shape=scored_labels,
        ),
    )

    def train(self, settings: Classify, pretrained: Checkpoint, fold: int | None) -> Classification:
        return Classification.build(settings, pretrained, read_tables(settings, fold))

    def evaluator(
        self, model: LoadedModel, positive: str | None, thresholds: Mapping[str, Any] | None = None
    ) -> TextEvaluator[Any]:
        """positive: by default the positive label of fine-tuning, else the last of two labels.

        InputError if the model does not have the positive label.
        """
        if positive is not None and positive not in model.labels:
            raise InputError(
                f"positive ({positive!r}) is not a label of the model ({join_names(model.labels)}); name one"
            )
        if model.description.multi_label:
            return LabelSetEvaluator(model.labels, thresholds or {})
        default = model.labels[-1] if len(model.labels) == 2 else None
        return ClassEvaluator(positive or model.description.settings.get("positive") or default, thresholds or {})

    def labels(self, model: LoadedModel, table: Table) -> Sequence[Any]:
        if model.description.multi_label:
            return label_sets(table, model.labels)
        class_indices(table, model.labels)  # raises for unknown labels
        return table.labels or []

    def readable(self, model: LoadedModel, table: Table) -> Table:
        return read_labels(table, several=model.description.multi_label, names=model.labels)

    def predict_rows(self, model: LoadedModel, rows: Sequence[ModelInput], **options: Any) -> list[dict[str, Any]]:
        """The most probable label (None for a refused text), its score and the scores of all labels (or the `top`
        best); for multi-label models also the labels above the threshold, and with coverage the prediction set."""
        return [prediction.to_json() for prediction in model.classify(*split_pairs(rows), **options)]

    def columns(self, model: LoadedModel, top: int | None = None, *, has_sets: bool = False) -> dict[str, Any]:
        labels = {"labels": [str]} if model.description.multi_label or has_sets else {}
        scores = (str, float) if top else dict.fromkeys(model.labels, float)
        return {"label": str, **labels, "score": float, "scores": scores}

    def scores_per_row(self, model: LoadedModel, top: int | None) -> int:
        return len(model.labels) if top is None else 1

    def facts(
        self, model: LoadedModel, texts: Sequence[str], question: str, min_score: float | None = None
    ) -> list[list[dict[str, Any]]]:
        found = model.classify(texts, min_score=min_score)
        return [
            [fact("label", one.label, "", start=0, end=0, score=one.score)] if one.label is not None else []
            for one in found
        ]

    def score_file(self, predictions: Path, gold: Path, columns: Evaluate) -> Scores:
        """Labels, sets of labels or numbers of a table, row by row."""
        table = read_table(
            gold,
            text=columns.text_column,
            pair=columns.pair_column,
            label=columns.label_column,
            group=columns.group_column,
            need_labels=True,
            encoding=columns.encoding,
        )

        same = table if is_same_file(predictions, gold) else None
        column, predicted = read_predicted_labels(predictions, columns.encoding, same)
        if len(predicted) != len(table):
            counts = f"{format_count(len(predicted), 'prediction')}, but {gold} has {format_count(len(table), 'row')}"
            raise InputError(f"{predictions}: {counts}; give one prediction per row, in order")

        refused = {where for where, label in predicted if label is None}
        answered = replace(
            table, labels=[label or "" for _, label in predicted], where=[where for where, _ in predicted]
        )

        if columns.task == "regress" or (
            columns.task == "auto" and (column == "score" or (not refused and are_numbers(table, answered)))
        ):
            if refused:
                raise InputError(f"{min(refused)}: {column!r} is missing; give a number for each row")
            return NumberEvaluator().compare(numeric_labels(table), numeric_labels(answered), table.units)

        has_lists = any(list_items(label) is not None for label in table.labels or [])
        several = columns.multi_label or column == "labels" or has_lists

        row_by_location = {where: row for row, where in enumerate(table.where)}
        table = read_labels(table, several=several)
        log_notes(gold, table)

        answered = answered.take([row_by_location[where] for where in table.where])
        is_refused = [where in refused for where in answered.where]
        answered = spell_labels(answered, several=several, names={*(table.labels or [])})

        if several:
            gold_sets = label_sets(table)
            predicted_sets = label_sets(answered)
            names = sorted(frozenset().union(*gold_sets, *predicted_sets))
            return LabelSetEvaluator(names).compare(gold_sets, predicted_sets, table.units)

        labels = [None if refuses else name for name, refuses in zip(answered.labels or [], is_refused, strict=True)]
        return compare_classes(predictions, table, labels, columns.positive)


CLASSIFY = ClassifyTask()
