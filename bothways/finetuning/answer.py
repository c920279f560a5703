"""Fine-tuning a model that finds answers in passages (Devlin 2018, sections 4.2 and 4.3): where one starts and where it
ends; [CLS] where a window does not hold it. Of SQuAD 2.0, the threshold for "no answer" is tuned on dev."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from statistics import fmean
from typing import Any, ClassVar

import torch
from torch import Tensor

from bothways import report
from bothways.batch import Batch
from bothways.checkpoint import checkpoint, new_head
from bothways.checkpoint.checkpoint import Checkpoint
from bothways.data.near_duplicates import text_key
from bothways.data.split_tables import divide_rows
from bothways.data.splits import overlap_warning, parts_for
from bothways.data.squad import Question, read_squad
from bothways.errors import InputError
from bothways.evaluation.evaluators import AnswerEvaluator
from bothways.evaluation.scores import Predictions
from bothways.finetuning.finetune import Result, fine_tuned
from bothways.finetuning.simple_models import sentence_answer
from bothways.finetuning.task import Baseline, Figures, Task, length_line, outputs
from bothways.inference import answer_decoding
from bothways.inference.windows import WindowPolicy, whole_length
from bothways.metrics.answers import answer_scores, best_threshold
from bothways.model.model import Model
from bothways.settings import Answer
from bothways.tokenizer.tokenizer import Encoding
from bothways.training.losses import Loss, classification_loss
from bothways.training.run import MetricsCallback

SCORES = ("exact_match", "f1", "HasAns_f1", "NoAns_f1")


@dataclass(frozen=True)
class Windows:
    """Windows of questions and passages, each an example of its own, with the rows of the answer [2] in each."""

    windows: list[Encoding]
    rows: list[tuple[int, int]]

    @cached_property
    def sizes(self) -> list[int]:
        return [*map(len, self.windows)]

    def batch(self, rows: Sequence[int]) -> Batch:
        """labels [N, 2]: the rows of first and last token, counted within each window."""
        return replace(
            Batch.from_encodings([self.windows[row] for row in rows]),
            labels=torch.tensor([self.rows[row] for row in rows]),
        )


@dataclass(frozen=True)
class Answering(Task):
    """Questions about passages, and the slices that answer them."""

    name: ClassVar[str] = "answer"
    constant: ClassVar[str] = "no answer"
    doubted: ClassVar[str] = "it is as sure of an answer elsewhere as it usually is of right ones"
    step_0: ClassVar[str] = ""  # of single tokens' states a linear layer finds hardly any answer
    settings: Answer
    start: Checkpoint
    questions: Mapping[str, list[Question]]
    windows: Mapping[str, list[list[Encoding]]]  # of each question
    data: Mapping[str, Windows]
    skipped: Counter[str]
    # Of the model measured last on dev, for what is measured of it next.
    threshold: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def of(settings: Answer, start: Checkpoint, fold: int | None = None) -> "Answering":
        skipped: Counter[str] = Counter()
        questions = dict(read_splits(settings, skipped, fold))
        policy = WindowPolicy(
            settings.window,
            settings.overlap,
            settings.long,
            max_length=start.model.config.max_position_embeddings,
        )
        windows, data = {}, {}
        for split, asked in questions.items():
            pairs = answer_decoding.encode_pairs(
                start.need_tokenizer(), [one.question for one in asked], [one.context for one in asked]
            )
            where = [one.where for one in asked]
            fitted = policy.split(pairs, where)
            read = []
            for own, one in zip(fitted, asked, strict=True):
                try:
                    read.append((one, own, targets(own, one)))
                except InputError:
                    if settings.on_error == "stop":
                        raise
                    skipped["answers of which nothing is read"] += 1
            if not read:
                raise InputError(f"{asked[0].where}: nothing is read of any answer of {split}; mend them")
            questions[split], windows[split] = [one for one, _, _ in read], [own for _, own, _ in read]
            rows = [*chain.from_iterable(row for _, _, row in read)]
            data[split] = Windows([*chain.from_iterable(windows[split])], rows)
        return Answering(settings, start, questions, windows, data, skipped)

    @property
    def metric(self) -> str:
        return self.settings.metric

    @property
    def has_impossible(self) -> bool:
        """Whether the model learns when there is no answer."""
        return any(one.impossible for one in self.questions["train"])

    def begin(self, seed: int) -> Checkpoint:
        return new_head.with_head(self.start, "spans", (), seed=seed, num_outputs=2, dropout=self.settings.dropout)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"spans": len(batch)}

    def losses(self, model: Model, batch: Batch) -> dict[str, Loss]:
        """Where an answer starts and where it ends, each against all rows of its window, averaged."""
        assert batch.labels is not None
        scores_T2 = model.token_scores("spans", model(batch))
        return {"spans": span_loss(scores_T2, batch.labels, batch.lengths.tolist())}

    def outputs(self, model: Model, split: str) -> list[Tensor]:
        """Start and end scores of every row of each window, [S, 2]."""
        return outputs(model, self.data[split], span_scores)

    def evaluate(self, split: str, outputs: Sequence[Tensor]) -> Figures:
        """Mean loss; exact match and F1 in 0..1, at the threshold that does best on dev."""
        lengths, labels = self.data[split].sizes, torch.tensor(self.data[split].rows)
        total, number = span_loss(torch.cat([*outputs]), labels, lengths)
        readings = self.read(split, outputs)
        gold = {one.id: [text for text, _ in one.answers] for one in self.questions[split]}
        if split == "dev" and self.has_impossible:
            spans = {id: reading.answers()[0].text for id, reading in readings.items()}
            margins = {id: reading.margin for id, reading in readings.items()}
            self.threshold["no_answer"] = best_threshold(gold, spans, margins, self.settings.metric).value
        threshold = self.threshold.get("no_answer")
        given = {id: reading.answers(threshold=threshold)[0].text for id, reading in readings.items()}
        scores = answer_scores(gold, given)
        told = {name: scores[name] / 100 for name in SCORES if name in scores}
        silent = sum(one.impossible for one in self.questions[split]) / len(gold)
        extra = {} if threshold is None else {"no_answer_threshold": threshold}
        return {"loss": float(total) / number, **told, **extra, "baseline": silent}

    def read(self, split: str, scores: Sequence[Tensor]) -> dict[str, answer_decoding.Candidates]:
        """What is found for each question, from the scores of its windows."""
        rows = iter(scores)
        return {
            one.id: answer_decoding.find_candidates(
                windows, [next(rows).numpy() for _ in windows], max_answer_tokens=self.settings.max_answer_tokens
            )
            for one, windows in zip(self.questions[split], self.windows[split], strict=True)
        }

    def num_rows(self, split: str) -> int:
        return len(self.questions[split])

    def predictions(self, split: str, outputs: Sequence[Tensor]) -> Predictions:
        """At the threshold of the model measured last on dev. groups: the first question about the same passage;
        details: how sure the answer is, and its characters."""
        readings, asked = self.read(split, outputs), self.questions[split]
        best = [readings[one.id].answers(threshold=self.threshold.get("no_answer"))[0] for one in asked]
        details = [[one.score, one.start, one.end] for one in best]
        return replace(self.compared(split, [one.text for one in best]), details=details)

    def compared(self, split: str, answers: list[str]) -> Predictions:
        """Answers beside those that are right, without details."""
        asked = self.questions[split]
        first: dict[str, str] = {}
        groups = [first.setdefault(one.context, one.where) for one in asked]
        gold = [[text for text, _ in one.answers] for one in asked]
        return Predictions([one.where for one in asked], gold, answers, groups, [None] * len(asked))

    def baselines(self, split: str) -> Iterator[Baseline]:
        answers = [sentence_answer(one) for one in self.questions[split]]
        yield Baseline("sentence with most words of the question", self.compared(split, answers))

    def scores(self, found: Predictions) -> dict[str, Any]:
        """In 0..1."""
        gold, predicted, passages = (
            dict(zip(found.where, column, strict=True)) for column in (found.gold, found.predicted, found.groups)
        )
        percent = AnswerEvaluator().compare(gold, predicted, passages)
        return {
            name: [bound / 100 for bound in value] if name.endswith("_interval") else value / 100
            for name, value in percent.items() if name.removesuffix("_interval") in SCORES
        }  # fmt: skip

    @cached_property
    def question_at(self) -> dict[str, Question]:
        """Each question by the place where it stands."""
        return {one.where: one for asked in self.questions.values() for one in asked}

    def parts(self, found: Predictions) -> list[report.Section]:
        mistakes = []
        for where, answer, (_, start, end) in zip(found.where, found.predicted, found.details, strict=True):
            one, scores = self.question_at[where], self.score(where, answer)
            if scores["exact_match"] < 100:
                gold = [report.Span(start, start + len(text)) for text, start in one.answers]
                given = report.Span(start, end) if answer else None
                mistakes.append(report.AnswerMistake(one.question, one.context, gold, given, scores["f1"] / 100))
        return [report.AnswerMistakes(mistakes, len(found.where))]

    def score(self, where: str, answer: str) -> dict[str, float]:
        """exact_match and f1 of one answer, in percent."""
        own = {where: [text for text, _ in self.question_at[where].answers]}
        return answer_scores(own, {where: answer}, "2.0" if self.has_impossible else "1.1")

    def doubts(self, found: Predictions) -> list[report.LabelIssue]:
        """Answers that share no word with the gold ones, and of which the model is as sure as it usually is of right
        ones."""
        scores = [self.score(*row) for row in zip(found.where, found.predicted, strict=True)]
        sure = [details[0] for details in found.details]
        right = [one for one, score in zip(sure, scores, strict=True) if score["exact_match"] == 100]
        if not right:
            return []
        rows = [row for row, score in enumerate(scores) if score["f1"] == 0 and sure[row] >= fmean(right)]
        doubts = []
        for row in sorted(rows, key=lambda row: -sure[row]):
            one = self.question_at[found.where[row]]
            gold = " / ".join(dict.fromkeys(found.gold[row])) or "no answer"
            answer = found.predicted[row] or "no answer"
            doubts.append(report.LabelIssue(one.where, one.question, gold, answer, None, sure[row], one.context))
        return doubts

    @property
    def warnings(self) -> list[str]:
        """What was left out, and passages that splits share."""
        left_out = ", ".join(f"{number:,} {why}" for why, number in self.skipped.items())
        passages = {one.context for asked in self.questions.values() for one in asked}
        keys = {passage: text_key(passage) for passage in passages}
        shared = overlap_warning(
            {
                split: [(text_key(one.question), keys[one.context]) for one in asked]
                for split, asked in self.questions.items()
            }
        )
        return [*([f"left out: {left_out}"] if left_out else []), *([shared] if shared else [])]

    def facts(self, figures: Mapping[str, Figures]) -> dict[str, float]:
        name = "no_answer_threshold"
        return {name: figures["dev"][name]} if name in figures["dev"] else {}

    def lengths(self, split: str) -> Sequence[int]:
        return [*map(whole_length, self.windows[split])]

    def describe(self) -> str:
        found = []
        for split, asked in self.questions.items():
            impossible = sum(one.impossible for one in asked)
            passages = len({one.context for one in asked})
            windowed = sum(len(windows) > 1 for windows in self.windows[split])
            found.append(
                f"{split}: {len(asked):,} questions about {passages:,} passages, {impossible:,} without an answer; "
                f"with their passages {length_line(self.lengths(split))}; "
                f"{windowed:,} read in windows"
            )
        return "\n".join([*found, *self.warnings])


def run(settings: Answer, *, progress: MetricsCallback | None = None) -> Result:
    """Fine-tune as told; keeps the best or median seed by dev, reports on test if there is one, else on dev (and says
    so)."""
    start = checkpoint.load(settings.model)
    new_head.check_head_supported(start, "spans", settings.model)
    return fine_tuned(settings, lambda fold: Answering.of(settings, start, fold), progress)


def read_splits(settings: Answer, skipped: Counter[str], fold: int | None = None) -> dict[str, list[Question]]:
    """Questions by split. What is split off a file is whole passages, so that none is in two splits. fold: in
    cross-validation the one that is test."""
    given = {"train": settings.train, "dev": settings.dev, "test": settings.test}
    found = {
        split: read_squad(path, on_error=settings.on_error, skipped=skipped, encoding=settings.encoding)
        for split, path in given.items()
        if path
    }
    if "dev" in found:
        return found
    whole = found["train"]
    keys = {passage: text_key(passage) for passage in {one.context for one in whole}}
    groups = [keys[one.context] for one in whole]
    rows = divide_rows(settings, groups, parts_for(found), fold, of="passages")
    return {**found, **{split: [whole[row] for row in own] for split, own in rows.items()}}


def targets(windows: Sequence[Encoding], question: Question) -> list[tuple[int, int]]:
    """The rows of the first answer in each window."""
    if not question.answers:
        return answer_decoding.answer_rows(windows, None)
    text, start = question.answers[0]
    try:
        return answer_decoding.answer_rows(windows, (start, start + len(text)))
    except InputError as error:
        raise InputError(f"{question.where}: {error}") from None


def span_loss(scores_T2: Tensor, rows_N2: Tensor, lengths: Sequence[int]) -> Loss:
    """Cross-entropy of the first and of the last token over the rows of each window, averaged."""
    total = scores_T2.new_zeros((), dtype=torch.float32)
    for scores_S2, rows_2 in zip(scores_T2.split(list(lengths)), rows_N2, strict=True):
        total = total + classification_loss(scores_S2.T, rows_2)[0] / 2
    return total, len(rows_N2)


def span_scores(model: Model, batch: Batch) -> Sequence[Tensor]:
    """Start and end scores of every row of each window, [S, 2]."""
    return model.token_scores("spans", model(batch)).split(batch.lengths.tolist())
