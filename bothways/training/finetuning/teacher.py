"""Task distillation (Hinton 2015): a teacher's outputs for the training examples, computed once per run.

The student's loss is alpha * (distance to the teacher's outputs) + (1 - alpha) * (loss of the labels) for each example;
examples without a label have only the first term.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bothways.base.log import logger
from bothways.model.checkpoint.contents import Checkpoint
from bothways.tasks.training_task import Examples, TrainingTask
from bothways.text.batch import Batch
from bothways.training.finetuning.baselines import BaselineScore


@dataclass(frozen=True)
class SoftLabelledExamples:
    """Examples with the teacher's output for each. ragged: outputs have a row per token and are concatenated."""

    examples: Examples
    soft_labels: Sequence[Tensor]
    ragged: bool

    @property
    def sizes(self) -> Sequence[int]:
        return self.examples.sizes

    def batch(self, rows: Sequence[int]) -> Batch:
        join = torch.cat if self.ragged else torch.stack
        return replace(self.examples.batch(rows), soft_labels=join([self.soft_labels[row] for row in rows]))


@dataclass(frozen=True)
class TeacherOutputs:
    """A teacher's outputs for the training examples.

    task: the student's task; its training examples include those without labels. soft_labels: the teacher's output for
    each of them; empty if it has no weight. scores: the teacher's own metric by split, for reference.
    """

    task: TrainingTask
    soft_labels: Sequence[Tensor]
    scores: Mapping[str, BaselineScore]

    def training_examples(self, seed: int, epoch: int) -> Examples:
        """The examples of one epoch."""
        examples = self.task.training_examples(seed, epoch)
        return (
            SoftLabelledExamples(examples, self.soft_labels, self.task.scoring.ragged_outputs)
            if self.soft_labels
            else examples
        )


@dataclass(frozen=True)
class Teacher:
    """A teacher of a task. student: the task with the texts that only the teacher labels; reader: that task as the
    teacher reads it. name: of the teacher, for messages. has_weight: whether its outputs are part of the loss."""

    student: TrainingTask
    reader: TrainingTask
    name: object
    has_weight: bool

    @staticmethod
    def of(task: TrainingTask, model: Checkpoint) -> "Teacher":
        """InputError if the model cannot teach this task."""
        student = task.with_unlabelled() if task.settings.unlabelled else task
        return Teacher(
            student=student,
            reader=student.read_by(model),
            name=task.settings.teacher,
            has_weight=task.settings.is_distilled,
        )

    @property
    def checkpoint(self) -> Checkpoint:
        return self.reader.pretrained

    def teach(self) -> TeacherOutputs:
        """Compute its outputs for the training examples, and its scores on dev and test."""
        student = self.student
        reader = self.reader
        model = student.inference_copy(self.checkpoint.model)
        soft_labels: Sequence[Tensor] = []
        if self.has_weight:
            logger.info(f"teacher {self.name}: reading {len(student.data['train'].sizes):,} training examples")
            soft_labels = student.soft_labels(reader, reader.scoring.outputs(model, "train"))
        splits = [split for split in student.data if split != "train"]
        scores = {split: score_teacher(reader, split, reader.scoring.outputs(model, split)) for split in splits}
        values = ", ".join(f"{split} {student.metric} {score.value:.4f}" for split, score in scores.items())
        logger.info(f"teacher: {values}")
        return TeacherOutputs(student, soft_labels, scores)


def score_teacher(reader: TrainingTask, split: str, outputs: object) -> BaselineScore:
    scores = reader.scoring.score_predictions(reader.scoring.predictions(split, outputs))
    return BaselineScore("teacher", scores[reader.metric], tuple(scores[f"{reader.metric}_interval"]))
