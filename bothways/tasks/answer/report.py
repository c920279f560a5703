"""Question answering in a report: numbers and warnings about the questions, mistakes, and likely label errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from bothways.base.errors import format_count
from bothways.measure import report
from bothways.measure.metrics.answers import answer_scores
from bothways.tasks import training_task
from bothways.tasks.answer.scoring import has_impossible
from bothways.tasks.scores import Predictions
from bothways.tasks.windows import whole_length
from bothways.text.data.near_duplicates import text_key
from bothways.text.data.splits import overlap_warnings
from bothways.text.data.squad import Question

if TYPE_CHECKING:
    from bothways.tasks.answer.training import Answering


@dataclass(frozen=True)
class AnswerReport(training_task.TaskReport):
    label_issue_criterion: ClassVar[str] = "it is as confident in another answer as it is in correct ones on average"
    label_issue_parts: ClassVar[tuple[str, ...]] = ("pair",)
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
