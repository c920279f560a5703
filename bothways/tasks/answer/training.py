"""Training of a question answering model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

from bothways.base.errors import InputError
from bothways.settings.finetune import Answer
from bothways.tasks import training_task
from bothways.tasks.answer.examples import AnswerWindows, read_windows, target_rows
from bothways.tasks.answer.files import read_splits
from bothways.tasks.answer.report import AnswerReport
from bothways.tasks.answer.scoring import SpanObjective, SpanScoring
from bothways.tasks.arrays import NO_LABEL
from bothways.tasks.linear_baselines import best_matching_sentence
from bothways.text.data.squad import Question, read_squad
from bothways.text.tokenizer.encoding import Encoding

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint

SAMPLE = 100  # questions on which the tokens of a teacher are compared with the student's


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
    report = cached_property(AnswerReport)
