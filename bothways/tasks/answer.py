"""Extractive question answering on SQuAD 1.1 and 2.0 (Devlin 2018, sections 4.2 and 4.3).

The head scores each token as start and end of the answer. A window without the answer points at [CLS]. For SQuAD 2.0,
the threshold for "no answer" is tuned on dev.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from bothways.base.errors import InputError, RowError, RowLocation, format_count
from bothways.base.io import is_same_file
from bothways.base.log import logger
from bothways.measure import metrics, report
from bothways.measure.metrics import Intervals
from bothways.measure.metrics.answers import answer_scores, best_threshold
from bothways.settings.base import TextColumns
from bothways.settings.finetune import Answer
from bothways.settings.predict import Evaluate
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks import answer_decoding, training_task
from bothways.tasks.arrays import NO_LABEL, Floats
from bothways.tasks.linear_baselines import best_matching_sentence
from bothways.tasks.scores import Predictions, Scores, count_skipped
from bothways.tasks.task import (
    MOST_RESULTS,
    OBJECT,
    Evaluator,
    Item,
    LabelledRows,
    Route,
    Task,
    fact,
    file_given_twice,
    split_pairs,
)
from bothways.tasks.windows import WindowPolicy, whole_length
from bothways.text.batch import Batch
from bothways.text.data.model_inputs import ModelInput, read_questions
from bothways.text.data.near_duplicates import text_key
from bothways.text.data.split_tables import divide_rows
from bothways.text.data.splits import overlap_warnings, parts_for
from bothways.text.data.squad import Question, read_squad
from bothways.text.rows.rows import form_of, open_rows, read_rows
from bothways.text.rows.text_files import file_type, read_bytes
from bothways.text.tokenizer.tokenizer import Encoding, Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.model.losses import Loss
    from bothways.model.model import Model
    from bothways.tasks.task import LoadedModel

SAMPLE = 100  # questions on which the tokens of a teacher are compared with the student's
METRICS = ("exact_match", "f1", "HasAns_f1", "NoAns_f1")


@dataclass(frozen=True)
class AnswerWindows:
    """Windows of questions and passages, each an example of its own, with the first and last row of its answer."""

    windows: list[Encoding]
    rows: list[tuple[int, int]]

    @cached_property
    def sizes(self) -> list[int]:
        return [*map(len, self.windows)]

    def batch(self, rows: Sequence[int]) -> Batch:
        """labels [N, 2]: rows of the first and last token, within each window."""
        import torch

        return replace(
            Batch.from_encodings([self.windows[row] for row in rows]),
            labels=torch.tensor([self.rows[row] for row in rows]),
        )


@dataclass(frozen=True)
class SpanObjective(training_task.LabelObjective):
    """Cross-entropy of the first and of the last token of the answer in each window."""

    target = "spans"

    def forward(self, module: Any, batch: Batch) -> Tensor:
        """Start and end scores of all tokens, [T, 2]."""
        scores_T2: Tensor = module.token_scores("spans", module(batch))
        return scores_T2

    def label_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        from bothways.tasks.losses import span_loss

        assert batch.labels is not None
        return span_loss(outputs, batch.labels, batch.lengths.tolist())

    def teacher_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        from bothways.tasks.losses import span_distance

        assert batch.soft_labels is not None
        return span_distance(outputs, batch.soft_labels, batch.lengths.tolist(), training_task.TEACHER_TEMPERATURE)


@dataclass(frozen=True)
class AnswerEvaluator(Evaluator[Question, str]):
    """Extractive question answering: exact match and F1 as SQuAD scores them, in percent. labelled: whether the
    questions have gold answers."""

    agreement: ClassVar[str] = "same answer"
    labelled: bool = True

    def predict(self, model: LoadedModel, rows: Sequence[Question]) -> list[str]:
        answers = model.answer([row.question for row in rows], [row.context for row in rows])
        return [best.text for best, *_ in answers]

    def columns(self, rows: Sequence[Question], predictions: Sequence[str]) -> tuple[Any, Any, Any] | None:
        if not self.labelled:
            return None
        gold = {row.id: [text for text, _ in row.answers] for row in rows}
        by_id = {row.id: answer for row, answer in zip(rows, predictions, strict=True)}
        return gold, by_id, {row.id: row.context for row in rows}

    def compare(self, gold: Any, predictions: Any, units: Any = None, *, intervals: bool = True) -> Scores:
        """Gold answers, predicted answers, and as units the passages, by the id of the question."""
        bounds = metrics.answer_intervals(gold, predictions, units) if intervals else None
        scores = metrics.answer_scores(gold, predictions)
        return Scores.with_intervals("f1", scores, bounds, secondary="exact_match", maximum=100)


@dataclass(frozen=True)
class SpanScoring(training_task.Scoring):
    """Start and end scores of all rows of each window, [S, 2]."""

    trivial_baseline: ClassVar[str] = "no answer"
    ragged_outputs: ClassVar[bool] = True
    task: Answering

    @property
    def metric(self) -> Literal["exact_match", "f1"]:
        return self.task.settings.metric

    def forward(self, model: Model, batch: Batch) -> Iterable[Tensor]:
        """Start and end scores of all rows of each window, [S, 2]."""
        return self.task.objective.forward(model, batch).split(batch.lengths.tolist())

    def compute_metrics(self, split: str, outputs: Sequence[Floats]) -> training_task.Metrics:
        """Exact match and F1 in 0..1, at the threshold that is best on dev."""
        import torch

        from bothways.tasks.losses import span_loss

        labels_N2 = torch.tensor(self.task.data[split].rows)
        total, count = span_loss(torch.from_numpy(np.concatenate([*outputs])), labels_N2, self.task.data[split].sizes)
        candidates = self.find_candidates(split, outputs)
        gold = {question.id: [text for text, _ in question.answers] for question in self.task.questions[split]}
        if split == "dev" and has_impossible(self.task.questions):
            texts = {id: spans.answers()[0].text for id, spans in candidates.items()}
            margins = {id: spans.margin for id, spans in candidates.items()}
            self.task.thresholds["no_answer"] = best_threshold(gold, texts, margins, self.metric).value
        threshold = self.task.thresholds.get("no_answer")
        predicted = {id: spans.answers(threshold=threshold)[0].text for id, spans in candidates.items()}
        percentages = answer_scores(gold, predicted)
        values = {name: percentages[name] / 100 for name in METRICS if name in percentages}
        if threshold is not None:
            values["no_answer_threshold"] = threshold
        num_impossible = sum(question.impossible for question in self.task.questions[split])
        return {"loss": float(total) / count, **values, "baseline": num_impossible / len(gold)}

    def find_candidates(self, split: str, outputs: Sequence[Floats]) -> dict[str, answer_decoding.Candidates]:
        """Candidate answers of each question, by its id."""
        rows = iter(outputs)
        return {
            question.id: answer_decoding.find_candidates(
                windows, [next(rows) for _ in windows], max_answer_tokens=self.task.settings.max_answer_tokens
            )
            for question, windows in zip(self.task.questions[split], self.task.windows[split], strict=True)
        }

    def predictions(self, split: str, outputs: Sequence[Floats]) -> Predictions:
        """Predictions at the threshold that was tuned last. details: score, start and end of the answer."""
        candidates = self.find_candidates(split, outputs)
        questions = self.task.questions[split]
        threshold = self.task.thresholds.get("no_answer")
        best = [candidates[question.id].answers(threshold=threshold)[0] for question in questions]
        details = [[answer.score, answer.start, answer.end] for answer in best]
        return replace(self.build_predictions(split, [answer.text for answer in best]), details=details)

    def build_predictions(self, split: str, answers: list[str]) -> Predictions:
        """Predicted and gold answers, without details. groups: the first question about each passage."""
        questions = self.task.questions[split]
        first_by_passage: dict[str, str] = {}
        groups = [first_by_passage.setdefault(question.context, question.where) for question in questions]
        gold = [[text for text, _ in question.answers] for question in questions]
        return Predictions(
            where=[question.where for question in questions],
            gold=gold,
            predicted=answers,
            groups=groups,
            details=[None] * len(gold),
        )

    def score_predictions(self, predictions: Predictions) -> Scores:
        """Scores in 0..1."""
        gold = dict(zip(predictions.where, predictions.gold, strict=True))
        predicted = dict(zip(predictions.where, predictions.predicted, strict=True))
        passages = dict(zip(predictions.where, predictions.groups, strict=True))

        percentages = AnswerEvaluator().compare(gold, predicted, passages)
        intervals = percentages.intervals
        assert intervals is not None
        names = [name for name in METRICS if name in percentages.by_name]
        bounds = {name: (intervals[name][0] / 100, intervals[name][1] / 100) for name in names if name in intervals}
        resamples = {name: intervals.resamples[name] / 100 for name in bounds}
        values = {name: percentages.by_name[name] / 100 for name in names}
        return Scores.with_intervals("f1", values, Intervals(bounds, resamples, intervals.num_units))


@dataclass(frozen=True)
class AnswerView(training_task.ReportView):
    label_issue_criterion: ClassVar[str] = "it is as confident in another answer as it is in correct ones on average"
    label_issue_parts: ClassVar[tuple[str, ...]] = ("pair",)
    task: Answering

    @cached_property
    def question_by_location(self) -> dict[str, Question]:
        """Questions by location."""
        return {question.where: question for questions in self.task.questions.values() for question in questions}

    def texts(self, where: Sequence[str]) -> Mapping[str, list[Any]]:
        return {"text": [self.question_by_location[one].question for one in where]}

    def sections(self, predictions: Predictions) -> list[report.Section]:
        mistakes = []
        for where, answer, (_, start, end) in zip(
            predictions.where,
            predictions.predicted,
            predictions.details,
            strict=True,
        ):
            question = self.question_by_location[where]
            values = self.score_answer(where, answer)
            if values["exact_match"] < 100:
                gold = [report.Highlight(start, start + len(text)) for text, start in question.answers]
                predicted = report.Highlight(start, end) if answer else None
                mistakes.append(
                    report.AnswerMistake(
                        question=question.question,
                        passage=question.context,
                        gold=gold,
                        predicted=predicted,
                        f1=values["f1"] / 100,
                        where=where,
                    )
                )
        return [report.AnswerMistakes(mistakes, len(predictions.where))]

    def score_answer(self, where: str, answer: str) -> dict[str, float]:
        """exact_match and f1 of one answer, in percent."""
        gold = {where: [text for text, _ in self.question_by_location[where].answers]}
        return answer_scores(gold, {where: answer}, "2.0" if has_impossible(self.task.questions) else "1.1")

    def label_issues(self, predictions: Predictions) -> list[report.LabelIssue]:
        """Answers that share no word with the gold ones, with a score above the mean score of correct answers."""

        values = [self.score_answer(*row) for row in zip(predictions.where, predictions.predicted, strict=True)]
        confidences = [details[0] for details in predictions.details]
        correct = [score for score, row in zip(confidences, values, strict=True) if row["exact_match"] == 100]
        if not correct:
            return []

        rows = [row for row, value in enumerate(values) if value["f1"] == 0 and confidences[row] >= fmean(correct)]
        issues = []

        for row in sorted(rows, key=lambda row: -confidences[row]):
            question = self.question_by_location[predictions.where[row]]
            gold = " / ".join(dict.fromkeys(predictions.gold[row])) or "no answer"
            answer = predictions.predicted[row] or "no answer"
            issues.append(
                report.LabelIssue(
                    where=question.where,
                    text=question.question,
                    label=gold,
                    suggested=answer,
                    label_probability=None,
                    suggested_probability=confidences[row],
                    pair=question.context,
                )
            )

        return issues


@dataclass(frozen=True)
class QuestionSummary(training_task.Summary):
    task: Answering

    def num_rows(self, split: str) -> int:
        return len(self.task.questions[split])

    @property
    def warnings(self) -> list[str]:
        """Questions that were left out, and overlap of splits."""
        skipped = ", ".join(f"{count:,} {reason}" for reason, count in self.task.skipped.items())
        passages = {question.context for questions in self.task.questions.values() for question in questions}
        key_by_passage = {passage: text_key(passage) for passage in passages}
        keys = {
            split: [(text_key(question.question), key_by_passage[question.context]) for question in questions]
            for split, questions in self.task.questions.items()
        }
        return [*([f"left out: {skipped}"] if skipped else []), *overlap_warnings(keys)]

    def lengths(self, split: str) -> Sequence[int]:
        return [*map(whole_length, self.task.windows[split])]

    def lines(self) -> Iterator[str]:
        for split, questions in self.task.questions.items():
            num_impossible = sum(question.impossible for question in questions)
            num_passages = len({question.context for question in questions})
            num_long = sum(len(windows) > 1 for windows in self.task.windows[split])
            yield (
                f"{split}: {format_count(len(questions), 'question')} about "
                f"{format_count(num_passages, 'passage')}, {num_impossible:,} without an answer; with "
                f"their passages {training_task.describe_lengths(self.lengths(split))}; {num_long:,} read in windows"
            )


@dataclass(frozen=True)
class Answering(training_task.TrainingTask):
    """Questions about passages, and the spans that answer them.

    windows: the windows of each question. skipped: counts of questions that were left out, by reason. thresholds:
    "no_answer", tuned whenever dev is evaluated and used for the splits that are evaluated afterwards.
    """

    name: ClassVar[str] = "answer"
    initial_model: ClassVar[str] = ""  # a linear layer on frozen token states finds hardly any answers
    settings: Answer
    pretrained: Checkpoint
    questions: Mapping[str, list[Question]]
    windows: Mapping[str, list[list[Encoding]]]
    data: Mapping[str, AnswerWindows]
    skipped: Counter[str]
    thresholds: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def build(settings: Answer, pretrained: Checkpoint, fold: int | None = None) -> Answering:
        skipped: Counter[str] = Counter()
        questions: dict[str, list[Question]] = {}
        windows: dict[str, list[list[Encoding]]] = {}
        data = {}

        for split, loaded in read_splits(settings, skipped, fold).items():
            windows_by_question = read_windows(loaded, *training_task.text_reader(settings.windows, pretrained))
            questions[split] = []
            windows[split] = []
            rows = list[tuple[int, int]]()

            for question, question_windows in zip(loaded, windows_by_question, strict=True):
                try:
                    rows += target_rows(question_windows, question)
                except InputError:
                    if settings.on_error == "stop":
                        raise
                    skipped["answers without any token"] += 1
                else:
                    questions[split].append(question)
                    windows[split].append(question_windows)

            if not questions[split]:
                raise InputError(f"{loaded[0].where}: no answer of {split} has a token that the model reads")
            data[split] = AnswerWindows([*chain.from_iterable(windows[split])], rows)

        return Answering(
            settings=settings,
            pretrained=pretrained,
            questions=questions,
            windows=windows,
            data=data,
            skipped=skipped,
        )

    def initial_checkpoint(self, seed: int) -> Checkpoint:
        from bothways.model.checkpoint.changes import new_head

        return new_head.with_head(self.pretrained, "spans", (), seed=seed, num_outputs=2, dropout=self.settings.dropout)

    @property
    def objective(self) -> SpanObjective:
        return SpanObjective()

    def read_by(self, teacher: Checkpoint) -> Answering:
        """InputError for a teacher that reads other windows: start and end scores belong to tokens."""
        training_task.check_task(teacher, self.name, self.settings.teacher)

        models = (self.pretrained, teacher)
        sample = self.questions["train"][:SAMPLE]
        sizes = {training_task.text_reader(self.settings.windows, model)[1].read_size for model in models}
        same = len(sizes) == 1 and teacher.need_tokenizer().vocab == self.pretrained.need_tokenizer().vocab
        if same:
            first = read_windows(sample, *training_task.text_reader(self.settings.windows, self.pretrained))
            second = read_windows(sample, *training_task.text_reader(self.settings.windows, teacher))
            same = all(window.ids == read.ids for window, read in zip(chain(*first), chain(*second), strict=True))

        if not same:
            raise InputError(
                f"{self.settings.teacher}: reads other tokens or windows than {self.settings.model}; answers need a "
                "teacher with the same tokenizer and the same longest input"
            )

        threshold = teacher.metadata.get("no_answer_threshold")
        thresholds = {} if threshold is None else {"no_answer": threshold}
        return replace(self, pretrained=teacher, thresholds=thresholds)

    def with_unlabelled(self) -> Answering:
        """Questions whose answers, if there are any, are not read."""
        settings = self.settings
        added = [
            replace(question, answers=(), impossible=False)
            for source in settings.unlabelled
            for question in read_squad(source, on_error=settings.on_error, encoding=settings.encoding)
        ]

        windows = read_windows(added, *training_task.text_reader(settings.windows, self.pretrained))
        train = self.data["train"]
        no_rows = (NO_LABEL, NO_LABEL)
        flat = [*chain.from_iterable(windows)]
        examples = AnswerWindows(train.windows + flat, train.rows + [no_rows] * len(flat))

        return replace(
            self,
            questions={**self.questions, "train": self.questions["train"] + added},
            windows={**self.windows, "train": self.windows["train"] + windows},
            data={**self.data, "train": examples},
        )

    def baselines(self, split: str, *, words: bool = True) -> Iterator[training_task.Baseline]:
        answers = [best_matching_sentence(question) for question in self.questions[split]]
        yield training_task.Baseline(
            "sentence that shares most words with the question", self.scoring.build_predictions(split, answers)
        )

    def metadata(self, metrics_by_split: Mapping[str, training_task.Metrics]) -> dict[str, float]:
        name = "no_answer_threshold"
        return {name: metrics_by_split["dev"][name]} if name in metrics_by_split["dev"] else {}

    scoring = cached_property(SpanScoring)
    view = cached_property(AnswerView)
    summary = cached_property(QuestionSummary)


def has_impossible(questions: Mapping[str, list[Question]]) -> bool:
    """Whether some training questions have no answer."""
    return any(question.impossible for question in questions["train"])


def read_splits(settings: Answer, skipped: Counter[str], fold: int | None = None) -> dict[str, list[Question]]:
    """Questions by split. A file is split by whole passages.

    skipped: counts questions that are left out. fold: the test fold in cross-validation.
    """
    splits = {
        split: read_squad(source, on_error=settings.on_error, skipped=skipped, encoding=settings.encoding)
        for split, source in settings.sources.items()
    }
    if "dev" in splits:
        return splits
    questions = splits["train"]
    keys = {passage: text_key(passage) for passage in {question.context for question in questions}}
    groups = [keys[question.context] for question in questions]
    rows_by_split = divide_rows(settings, groups, parts_for(splits), fold, of="passages")
    return {**splits, **{split: [questions[row] for row in rows] for split, rows in rows_by_split.items()}}


def read_windows(questions: Sequence[Question], tokenizer: Tokenizer, policy: WindowPolicy) -> list[list[Encoding]]:
    """The windows of each question with its passage."""
    encodings = answer_decoding.encode_pairs(
        tokenizer, [question.question for question in questions], [question.context for question in questions]
    )
    names = [question.where for question in questions]
    return policy.split(encodings, names)


def target_rows(windows: Sequence[Encoding], question: Question) -> list[tuple[int, int]]:
    """First and last row of the first answer in each window. InputError if the answer has no token."""
    if not question.answers:
        return answer_decoding.answer_rows(windows, None)
    text, start = question.answers[0]
    try:
        return answer_decoding.answer_rows(windows, (start, start + len(text)))
    except InputError as error:
        raise InputError(f"{question.where}: {error}") from None


# --- with a model -----------------------------------------------------------------------------------------------------


def answer_items(
    model: LoadedModel,
    items: Sequence[Item],
    reading: Mapping[str, Any],
    *,
    top: int | None = None,
    min_score: float | None = None,
) -> Sequence[Any]:
    """The `top` best answers to each question as JSON, the best first; "" if none has the least score."""
    questions, passages = split_pairs(items)
    answers = model.answer(questions, passages or [], top=top or 1, min_score=min_score, **reading)
    return [[answer.to_json() for answer in best] for best in answers]


class AnswerTask(Task):
    """The passage's words that answer a question."""

    name = "answer"
    gold = "answers"
    inputs = "questions"
    options = frozenset({"top", "min_score"})
    route = "/answer"
    routes = (
        Route(
            path="/answer",
            summary="The answer to a question in its context",
            answer=OBJECT,
            reads="questions",
            compute=answer_items,
            options={"top": (None, 1, MOST_RESULTS)},
            shares=("min_score",),
            shape=lambda model, answers, options: answers if options["top"] else answers[0],
        ),
    )

    def train(self, settings: Answer, pretrained: Checkpoint, fold: int | None) -> Answering:
        return Answering.build(settings, pretrained, fold)

    def read(
        self, model: LoadedModel, files: Sequence[TableSource], columns: Any, *, need_labels: bool
    ) -> LabelledRows:
        if need_labels:
            return read_labelled_questions(files, columns)
        (file,) = files
        return read_answer_rows(file, columns)

    def predict_rows(
        self,
        model: LoadedModel,
        rows: Sequence[ModelInput],
        *,
        top: int = 1,
        min_score: float | None = None,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """The best answer to each question, "" below `min_score`; with top > 1 also the list of the best answers."""
        items = [(row.text, row.pair or "") for row in rows]
        by_question = answer_items(model, items, options, top=top, min_score=min_score)
        return [
            {"id": row.id, **best[0], **({"answers": best} if top > 1 else {})}
            for row, best in zip(rows, by_question, strict=True)
        ]

    def columns(self, model: LoadedModel, top: int | None = None, *, has_sets: bool = False) -> dict[str, Any]:
        answer = {"answer": str, "start": int, "end": int, "score": float}
        return {"id": str, **answer, **({"answers": [answer]} if (top or 1) > 1 else {})}

    def facts(
        self, model: LoadedModel, texts: Sequence[str], question: str, min_score: float | None = None
    ) -> list[list[dict[str, Any]]]:
        return [
            [
                fact("answer", question, one.text, start=one.start, end=one.end, score=one.score)
                for one in best
                if one.text
            ]
            for best in model.answer([question] * len(texts), texts, min_score=min_score)
        ]

    def score_file(self, predictions: Path, gold: Path, columns: Evaluate) -> Scores:
        """Answers by the id of the question: {id: answer}, or JSON lines with `id` and `answer`."""
        if is_same_file(predictions, gold):
            raise file_given_twice(gold, "a file of questions has gold answers only")
        skipped: Counter[str] = Counter()
        questions = read_squad(gold, on_error=columns.on_error, skipped=skipped, encoding=columns.encoding)
        answers = {question.id: [text for text, _ in question.answers] for question in questions}
        predicted = read_predicted_answers(predictions, columns.encoding)
        if answers.keys().isdisjoint(predicted):
            raise InputError(
                f"{predictions}: no id is one of {gold}, such as {min(answers)!r}; give the id of each answer"
            )
        passages = {question.id: question.context for question in questions}
        scores = AnswerEvaluator().compare(answers, predicted, passages)
        return replace(scores, counts=count_skipped(skipped))


def read_predicted_answers(path: Path, encoding: str | None) -> dict[str, str]:
    """{id: answer} of predictions in SQuAD's format, or in JSON lines."""
    rows: list[tuple[str, Any, Any]]
    if file_type(path) != ".json":
        rows = [(where, row.get("id"), row.get("answer")) for where, row in open_rows(path, encoding).read()]
    else:
        rows = [(f"{path}: {id!r}", id, answer) for id, answer in read_json_object(path).items()]
    answers = {}
    for where, id, answer in rows:
        id = str(id) if type(id) is int else id
        if id in answers:
            raise RowError(where, f"{id!r} already has an answer above; keep one answer")
        if not (isinstance(id, str) and isinstance(answer, str)):
            raise RowError(where, f"expected an id and an answer as text, found {id!r} and {answer!r}")
        answers[id] = answer
    return answers


def read_json_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_bytes(path))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}); SQuAD's predictions are one object, id to answer") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds {type(content).__name__}; SQuAD's predictions are one object, id to answer")
    return content


def read_labelled_questions(files: Sequence[TableSource], columns: Any) -> LabelledRows:
    """Questions with gold answers of all files. columns: has names of columns, on_error and encoding."""
    named = {columns.text_column: "question", columns.pair_column: "context", columns.label_column: "answers"}
    if other := [column for column, usual in named.items() if column not in (None, usual)]:
        raise InputError(
            f"column {other[0]!r}: answers are evaluated by columns named question, context and answers; rename yours"
        )
    skipped: Counter[str] = Counter()
    questions = [
        question
        for file in files
        for question in read_squad(file, on_error=columns.on_error, skipped=skipped, encoding=columns.encoding)
    ]
    for id, count in Counter(question.id for question in questions).items():
        if count > 1:
            raise InputError(f"question {id!r} is in two of the files; evaluate each file by itself, or keep one")
    return LabelledRows(evaluator=AnswerEvaluator(), rows=questions, labelled=True, counts=count_skipped(skipped))


def read_answer_rows(file: TableSource, columns: TextColumns) -> LabelledRows:
    rows = read_rows(file, encoding=columns.encoding) if form_of(file, columns.encoding).has_names else []
    if rows and "answers" not in rows[0][1]:
        questions = []
        for row, question in enumerate(
            read_questions(
                str(file),
                question=columns.text_column,
                context=columns.pair_column,
                encoding=columns.encoding,
            )
        ):
            if isinstance(question, InputError):
                raise question

            where = RowLocation(file, row, question.line)
            questions.append(
                Question(
                    id="",
                    question=question.text,
                    context=question.pair or "",
                    answers=(),
                    impossible=False,
                    where=where,
                )
            )

        return LabelledRows(AnswerEvaluator(labelled=False), questions, labelled=False)

    skipped: Counter[str] = Counter()
    labelled = read_squad(file, on_error="skip", skipped=skipped, encoding=columns.encoding)
    if skipped:
        logger.warning(
            f"{file}: skipped {format_count(skipped.total(), 'question')} that cannot be read (finetune answer "
            "names the first)"
        )
    return LabelledRows(AnswerEvaluator(), labelled, labelled=True)


ANSWER = AnswerTask()
