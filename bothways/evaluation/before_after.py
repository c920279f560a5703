"""Drop of a model's score after quantization or export, on a user's own texts.

With labels the score is the task's metric, such as accuracy, entity F1 or SQuAD's F1. Without labels it is the
percentage of unchanged predictions (including guesses of masked words), or the mean cosine of vectors. All scores are
percentages, so drops are in percentage points.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from bothways.data.annotations import is_annotation_file
from bothways.data.columns import Table
from bothways.data.datasets import has_named_columns, read_rows
from bothways.data.examples import read_table
from bothways.data.squad import Question, read_squad
from bothways.data.stream import read_questions
from bothways.data.tags import OUTSIDE
from bothways.data.text_files import read_lines
from bothways.errors import InputError, RowLocation, format_count
from bothways.evaluation.rows import read_tagged_rows, read_trained_table, text_evaluator, text_rows
from bothways.inference.masked_words import MASK
from bothways.inference.predictor import Predictor
from bothways.log import logger
from bothways.settings import TextColumns
from bothways.tasks.evaluators import (
    AnswerEvaluator,
    EntityEvaluator,
    Evaluator,
    MaskEvaluator,
    TextRow,
    VectorEvaluator,
)
from bothways.tokenizer.tokenizer import Tokenizer

DEFAULT_MAX_DROP = 0.5  # points
MAX_ROWS = 2000  # that a drop is measured on
JACKKNIFE_GROUPS = 20  # groups of rows; each is left out once
MASK_EVERY = 7  # words: about as many are masked as in BERT's training
MIN_TAGGED_TEXTS = 64  # made of sentences, if there are that many sentences


@dataclass(frozen=True)
class LabelledRows:
    """The rows of a file, their evaluator, and whether they have labels."""

    evaluator: Evaluator[Any, Any]
    rows: Sequence[Any]
    labelled: bool

    def __len__(self) -> int:
        return len(self.rows)


def read_evaluation_rows(model: Predictor, file: Path, columns: TextColumns) -> LabelledRows:
    """The rows of a file for a model's task. InputError if the file cannot be read, or has labels that are unknown to
    the model."""
    match model.task:
        case "answer":
            return read_answer_rows(file, columns)
        case "tag":
            return read_tag_rows(model, file, columns)
        case "fill":
            texts = read_texts(file, columns).texts
            return LabelledRows(MaskEvaluator(), [mask_words(text, model.tokenizer) for text in texts], False)
        case "is_next":
            raise InputError("a model with a next sentence head alone cannot be evaluated here; fine-tune it first")
    table = read_trained_table(model, file, columns, need_labels=columns.label_column is not None)
    if model.task not in ("classify", "regress"):
        return LabelledRows(VectorEvaluator(), [*map(TextRow, table.texts)], False)
    return LabelledRows(text_evaluator(model), text_rows(model, table), table.labels is not None)


def read_texts(file: Path, columns: TextColumns) -> Table:
    return read_table(file, text=columns.text_column, need_labels=False, encoding=columns.encoding)


def mask_words(text: str, tokenizer: Tokenizer) -> str:
    """The text with every seventh word masked, or every seventh token if the text has no spaces."""
    encoding = tokenizer.encode(text)
    word_ids = encoding.word_ids
    has_words = len({*word_ids}) > len(word_ids) / MASK_EVERY
    spans: dict[int, tuple[int, int]] = {}
    for index, (word, (start, end)) in enumerate(zip(word_ids, encoding.offsets, strict=True)):
        if word is not None and start < end:
            unit = word if has_words else index
            spans[unit] = (spans[unit][0] if unit in spans else start, end)
    for start, end in reversed([*spans.values()][::MASK_EVERY]):
        text = f"{text[:start]}{MASK}{text[end:]}"
    return text if spans else MASK


def read_tag_rows(model: Predictor, file: Path, columns: TextColumns) -> LabelledRows:
    if not _is_tagged(file, model.labels, columns.encoding):
        return LabelledRows(EntityEvaluator(), [*map(TextRow, read_texts(file, columns).texts)], False)
    names = SimpleNamespace(words_column=None, tags_column=columns.label_column, encoding=columns.encoding)
    tagged = read_tagged_rows(model, [file], names, min_rows=MIN_TAGGED_TEXTS)
    return LabelledRows(tagged.evaluator, tagged.rows, True)


def _is_tagged(file: Path, labels: Sequence[str], encoding: str | None) -> bool:
    """Whether a file has tags: in named columns a list of words, else lines that end in one of the model's tags."""
    if is_annotation_file(file):
        return True
    if has_named_columns(file):
        rows = read_rows(file, encoding=encoding)
        return bool(rows) and any(isinstance(value, list) for value in rows[0][1].values())
    fields = next((line.split() for _, line in read_lines(file, encoding) if line.strip()), [])
    return len(fields) > 1 and (fields[-1] in (*labels, OUTSIDE) or fields[0] == "-DOCSTART-")


def read_answer_rows(file: Path, columns: TextColumns) -> LabelledRows:
    rows = read_rows(file, encoding=columns.encoding) if has_named_columns(file) else []
    if rows and "answers" not in rows[0][1]:
        questions = []
        for row, question in enumerate(
            read_questions(
                str(file), question=columns.text_column, context=columns.pair_column, encoding=columns.encoding
            )
        ):
            if isinstance(question, InputError):
                raise question
            where = RowLocation(file, row, question.line)
            questions.append(Question("", question.text, question.pair or "", (), False, where))
        return LabelledRows(AnswerEvaluator(labelled=False), questions, False)
    skipped: Counter[str] = Counter()
    labelled = read_squad(file, on_error="skip", skipped=skipped, encoding=columns.encoding)
    if skipped:
        logger.warning(
            f"{file}: skipped {format_count(skipped.total(), 'question')} that cannot be read (finetune answer "
            "names the first)"
        )
    return LabelledRows(AnswerEvaluator(), labelled, True)


@dataclass(frozen=True)
class Drop:
    """The drop of a model's primary score, in points, and its standard error."""

    metric: str
    points: float
    standard_error: float

    def is_within(self, max_drop: float) -> bool:
        """Whether the upper end of the interval is within the allowed drop (in points); 100 allows every drop."""
        return self.interval[1] <= max_drop or self.points <= max_drop >= 100  # false for NaN

    def check(self, max_drop: float, texts: int, change: str, way_out: str) -> None:
        """InputError unless the upper end of the interval, measured on so many texts, is within the allowed drop (in
        points). change: what loses them, for the message. way_out: what else can be done."""
        high = self.interval[1]
        if self.is_within(max_drop):
            return
        reason = f"{change} {self}, measured on {format_count(texts, 'text')}; {max_drop:g} are allowed"
        if self.points < max_drop:
            needed = math.ceil(texts * (1.96 * self.standard_error / (max_drop - self.points)) ** 2)
            more = f"about {needed:,} texts to measure on would tell" if needed <= MAX_ROWS else "no sample can tell"
            reason += f", and it may lose more: {more}"
        allowance = f"{math.ceil(10 * high) / 10:g}" if math.isfinite(high) else "more"
        raise InputError(f"{reason}; {way_out}, or allow {allowance} with --max-drop")

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the drop."""
        return self.points - 1.96 * self.standard_error, self.points + 1.96 * self.standard_error

    @property
    def is_gain(self) -> bool:
        """Whether the score rises by at least 0.01 points, as printed."""
        return round(self.points, 2) < 0

    def __str__(self) -> str:
        """'loses 0.40 points of accuracy (95 % interval 0.20 to 0.60)', or 'gains ...' with the gain's interval."""
        low, high = self.interval
        verb, points = "loses", self.points
        if self.is_gain:
            verb, points, low, high = "gains", -points, -high, -low
        return f"{verb} {points:z.2f} points of {self.metric} (95 % interval {low:z.2f} to {high:z.2f})"


def measure_drop(
    evaluator: Evaluator[Any, Any], rows: Sequence[Any], predictions: Sequence[Any], reference: Sequence[Any]
) -> Drop:
    """The drop from the unchanged model's predictions (`reference`) to those of the changed model.

    The standard error is a jackknife estimate over 20 groups of rows (Efron 1982). If no prediction has changed, it is
    computed as if one had.
    """

    def drop(indices: Sequence[int]) -> tuple[str, float]:
        some_rows, after, before = ([column[index] for index in indices] for column in (rows, predictions, reference))
        (metric, score), *_ = evaluator.score(some_rows, before, before).percentages.items()
        return metric, score - evaluator.score(some_rows, after, before).percentages[metric]

    count, groups = len(rows), min(JACKKNIFE_GROUPS, len(rows))
    metric, points = drop(range(count))
    drops = np.array([drop([row for row in range(count) if row % groups != group])[1] for group in range(groups)])
    error = float(np.sqrt((groups - 1) * drops.var()))
    return Drop(metric, points, 100 / count if error == 0 else error)


def spread_evenly(rows: range, limit: int) -> Sequence[int]:
    """At most `limit` of the rows, evenly spread."""
    return [rows[index * len(rows) // limit] for index in range(limit)] if len(rows) > limit else rows
