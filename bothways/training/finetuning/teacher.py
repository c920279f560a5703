"""Task distillation (Hinton 2015): a teacher's outputs for the training examples, computed once per run.

The student's loss is alpha * (distance to the teacher's outputs) + (1 - alpha) * (loss of the labels) for each example;
examples without a label have only the first term. alpha is a setting of fine-tuning; the loss is in
`tasks/training_task.py` (`Distilled`), and only the outputs are computed here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bothways.base.log import logger
from bothways.model.checkpoint.contents import Checkpoint
from bothways.tasks.batch_plan import Examples
from bothways.tasks.training_task import TrainingTask
from bothways.text.batch import Batch
from bothways.training.finetuning.ground.score import Score


@dataclass(frozen=True)
class SoftLabelledExamples:
    """Examples with the teacher's output for each.

    examples: the examples of one epoch.
    soft_labels: the teacher's output for each example.
    ragged: outputs have a row per token, so that those of a batch are concatenated, not stacked.
    """

    examples: Examples
    soft_labels: Sequence[Tensor]
    ragged: bool

    @property
    def sizes(self) -> Sequence[int]:
        return self.examples.sizes

    def batch(self, rows: Sequence[int]) -> Batch:
        outputs = [self.soft_labels[row] for row in rows]
        join = torch.cat if self.ragged else torch.stack
        return replace(self.examples.batch(rows), soft_labels=join(outputs))


@dataclass(frozen=True)
class TeacherOutputs:
    """A teacher's outputs for the training examples.

    task: the student's task, whose training examples include the examples without labels.
    soft_labels: the teacher's output for each training example; empty if the outputs have no weight in the loss.
    scores: the teacher's own metric by split, for reference.
    """

    task: TrainingTask
    soft_labels: Sequence[Tensor]
    scores: Mapping[str, Score]

    def training_examples(self, seed: int, epoch: int) -> Examples:
        """The examples of one epoch."""
        examples = self.task.training_examples(seed, epoch)
        if not self.soft_labels:
            return examples
        return SoftLabelledExamples(examples, self.soft_labels, self.task.scoring.ragged_outputs)


@dataclass(frozen=True)
class Teacher:
    """A teacher of a task.

    student: the task as the student reads it, with the texts that only the teacher labels.
    reader: the same task as the teacher reads it, with its own tokenizer and head.
    name: of the teacher, for messages.
    has_weight: whether the teacher's outputs are part of the loss; if not, only its scores are computed.
    """

    student: TrainingTask
    reader: TrainingTask
    name: object
    has_weight: bool

    @staticmethod
    def of(task: TrainingTask, model: Checkpoint) -> "Teacher":
        """The teacher of a task. InputError if the model cannot teach this task."""
        student = task.with_unlabelled() if task.settings.unlabelled else task
        return Teacher(
            student=student,
            reader=student.read_by(model),
            name=task.settings.teacher,
            has_weight=task.settings.is_distilled,
        )

    @property
    def checkpoint(self) -> Checkpoint:
        """The teacher's model, as the reader has adapted it."""
        return self.reader.pretrained

    def teach(self) -> TeacherOutputs:
        """Compute the teacher's outputs for the training examples, and its scores on dev and test."""
        student = self.student
        reader = self.reader
        model = student.inference_copy(self.checkpoint.model)

        soft_labels: Sequence[Tensor] = []
        if self.has_weight:
            logger.info(f"teacher {self.name}: reading {len(student.data['train'].sizes):,} training examples")
            outputs = reader.scoring.outputs(model, "train")
            soft_labels = student.soft_labels(reader, outputs)

        scores = {}
        for split in student.data:
            if split != "train":
                outputs = reader.scoring.outputs(model, split)
                scores[split] = score_teacher(reader, split, outputs)

        values = ", ".join(f"{split} {student.metric} {score.value:.4f}" for split, score in scores.items())
        logger.info(f"teacher: {values}")

        return TeacherOutputs(student, soft_labels, scores)


def score_teacher(reader: TrainingTask, split: str, outputs: object) -> Score:
    """The teacher's metric on a split with its interval, from its outputs for the rows of the split."""
    predictions = reader.scoring.predictions(split, outputs)
    scores = reader.scoring.score_predictions(predictions)
    low, high = scores[f"{reader.metric}_interval"]
    return Score("teacher", scores[reader.metric], (low, high))
