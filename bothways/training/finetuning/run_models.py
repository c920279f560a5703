"""The models of a run: each has a name, scores, and a way to write itself.

A run compares its models and delivers one (run_scores.py) without knowing of what kind they are. A new kind of model
is one more class here.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from bothways.base.progress import working
from bothways.inference.backends.tfidf import TfidfBackend
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.checkpoint import unread_warning
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.description import DECIDE, WORDS, Description
from bothways.model.checkpoint.formats.format import ONLY_BOTHWAYS
from bothways.model.checkpoint.formats.tfidf import ENCODER, write_tfidf
from bothways.model.linear.tfidf import TfidfModel
from bothways.model.model import Model
from bothways.model.transforms import DivideScores, finalize_all
from bothways.tasks import TASK, task_from_heads
from bothways.tasks.class_decoding import CALIBRATION, Calibration
from bothways.tasks.decide.option_set import stored_options
from bothways.tasks.scores import Predictions
from bothways.tasks.training_task import TrainingTask
from bothways.tasks.windows import Long, window_of
from bothways.training.finetuning.card import TFIDF, ModelCard, card_of, task_of_run
from bothways.training.finetuning.ground.score import Score
from bothways.training.finetuning.model_scores import ModelScores
from bothways.training.finetuning.plan import Plan
from bothways.training.finetuning.seeds import SeedResult


class RunModel(ABC):
    """A model of a run, with its scores.

    place: the directory of the run that has it, if another model is delivered.
    name: in tables and verdicts.
    calibration: as bothways.json has it; None for a model that is not calibrated.
    """

    place: ClassVar[str]
    name: str
    scores: ModelScores
    calibration: Mapping[str, Any] | None

    @property
    def shown_name(self) -> str:
        """The name of a delivered model in results; "" for an encoder, which needs none there."""
        return ""

    @property
    @abstractmethod
    def description(self) -> Description:
        """Its labels."""

    @property
    @abstractmethod
    def num_outputs(self) -> Mapping[str, int]:
        """The number of outputs of each head."""

    @property
    @abstractmethod
    def unread(self) -> str | None:
        """A line about what other libraries do not read; None if they read all of it."""

    @property
    def teacher(self) -> Mapping[str, Score]:
        """The scores of its teacher by split; empty without one."""
        return {}

    @abstractmethod
    def describe(self, plan: Plan) -> str:
        """The model and its training rows, in words."""

    @abstractmethod
    def kind(self, plan: Plan) -> str:
        """How it was made, as verdicts say it."""

    @abstractmethod
    def window(self, plan: Plan) -> int | None:
        """The number of tokens that it reads at once; None if it reads no tokens."""

    @abstractmethod
    def predictions(self, plan: Plan) -> Mapping[str, Predictions]:
        """Its predictions by split."""

    @abstractmethod
    def predictor(self, plan: Plan) -> Predictor:
        """The model as it predicts, with weights of its own."""

    @abstractmethod
    def facts(self, plan: Plan) -> dict[str, Any]:
        """Its entries in the `result` of bothways.json beside scores."""

    def inference_facts(self, plan: Plan) -> dict[str, Any]:
        """Metadata that inference needs besides weights and labels."""
        task = plan.task
        facts: dict[str, Any] = task.metadata(self.scores.by_split)
        if task_from_heads(self.num_outputs, self.description) == task.name:
            return facts
        return {**facts, TASK: task.name}

    @abstractmethod
    def calibrated(self) -> "RunModel":
        """The model with its calibration in its weights."""

    @abstractmethod
    def write(self, plan: Plan, directory: Path, metadata: Mapping[str, Any]) -> Description:
        """Write the model, with this metadata and its own, into a directory. Returns what was written."""


@dataclass(frozen=True)
class RunEncoder(RunModel):
    """An encoder with its head.

    kept: the result of the seed that it is from; None if only its head was fitted.
    """

    place: ClassVar[str] = ENCODER
    checkpoint: Checkpoint
    scores: ModelScores
    calibration: Mapping[str, Any] | None = None
    kept: SeedResult | None = None
    name: str = "fine-tuned encoder"

    @property
    def description(self) -> Description:
        return self.checkpoint

    @property
    def num_outputs(self) -> Mapping[str, int]:
        return self.checkpoint.model.num_outputs

    @property
    def unread(self) -> str | None:
        return unread_warning(self.checkpoint)

    @property
    def teacher(self) -> Mapping[str, Score]:
        return self.kept.teacher if self.kept else {}

    def describe(self, plan: Plan) -> str:
        train = plan.sources["train"]
        model = plan.sources["model"]
        if plan.stays_frozen:
            return f"{model}, frozen, with linear models fitted to {train}"
        return f"{model} fine-tuned on {train}"

    def kind(self, plan: Plan) -> str:
        if self.scores.frozen and plan.task.needs_gain:
            return plan.task.initial_model
        return "frozen, with a linear head" if self.scores.frozen or plan.measured else "fine-tuned"

    def window(self, plan: Plan) -> int:
        config = self.checkpoint.model.config
        long: Long = "truncate" if plan.truncates else "windows"
        return min(window_of(config, plan.window, long), config.max_position_embeddings)

    def predictions(self, plan: Plan) -> Mapping[str, Predictions]:
        if self.scores.predictions:
            return self.scores.predictions
        model = plan.inference_copy(self.checkpoint.model)
        return predict_splits(plan.task, model, self.scores.by_split, self.calibration)

    def predictor(self, plan: Plan) -> Predictor:
        metadata = {**self.checkpoint.metadata, **self.inference_facts(plan)}
        copied = replace(self.checkpoint, model=plan.inference_copy(self.checkpoint.model), metadata=metadata)
        settings = plan.task.settings
        return Predictor(copied, dtype=settings.dtype, device=settings.device, window=self.window(plan))

    def facts(self, plan: Plan) -> dict[str, Any]:
        facts: dict[str, Any] = {"dtype": str(plan.options.dtype).removeprefix("torch.")}
        if self.teacher:
            facts["teacher"] = {split: teacher.value for split, teacher in self.teacher.items()}
        return facts

    def calibrated(self) -> "RunEncoder":
        """The model itself, whose weights change in place."""
        if not self.calibration:
            return self
        temperature = self.calibration["temperature"]
        model = self.checkpoint
        DivideScores(temperature).finalize(model.model)
        if model.words is not None:
            model = replace(model, words=model.words.scaled(1 / temperature, 0.0))
        if (options := stored_options(model)) is not None:
            model = replace(model, metadata={DECIDE: options.scaled(1 / temperature).to_json()})
        return replace(self, checkpoint=model)

    def write(self, plan: Plan, directory: Path, metadata: Mapping[str, Any]) -> Checkpoint:
        model = self.checkpoint.model
        with working("texts like the training texts"):
            scope = plan.task.scope(plan.inference_copy(model), is_trained=not self.scores.frozen)

        facts = dict[str, Any](finalize_all(plan.transforms, model))
        if self.checkpoint.words:
            facts[WORDS] = {"strength": self.checkpoint.words.strength}
        if self.calibration:
            facts[CALIBRATION] = self.calibration

        saved = replace(self.checkpoint, metadata={**self.checkpoint.metadata, **metadata, **facts}, scope=scope)
        checkpoint.save(saved, directory, card=card_of(saved))
        return saved


@dataclass(frozen=True)
class RunTfidf(RunModel):
    """A linear model over TF-IDF, whose scores stay as they are fitted. described: its labels."""

    place: ClassVar[str] = "tfidf"
    name: str
    model: TfidfModel
    scores: ModelScores
    described: Description
    calibration: Mapping[str, Any] | None = None

    @property
    def shown_name(self) -> str:
        return self.name

    @property
    def description(self) -> Description:
        return self.described

    @property
    def num_outputs(self) -> Mapping[str, int]:
        return {"classes": len(self.model.bias_C)}

    @property
    def unread(self) -> str:
        return ONLY_BOTHWAYS.format(self.name)

    def describe(self, plan: Plan) -> str:
        return f"{self.name} fitted to {plan.sources['train']}"

    def kind(self, plan: Plan) -> str:
        return self.name

    def window(self, plan: Plan) -> None:
        return None

    def predictions(self, plan: Plan) -> Mapping[str, Predictions]:
        return self.scores.predictions or {}

    def predictor(self, plan: Plan) -> Predictor:
        described = replace(self.described, metadata=self.inference_facts(plan))
        return Predictor(TfidfBackend(self.model, described, plan.settings.out))

    def facts(self, plan: Plan) -> dict[str, Any]:
        return {}

    def calibrated(self) -> "RunTfidf":
        return self

    def write(self, plan: Plan, directory: Path, metadata: Mapping[str, Any]) -> Description:
        saved = replace(self.described, metadata=metadata)
        card = ModelCard(
            task=task_of_run(metadata),
            form=TFIDF,
            labels=saved.labels,
            multi_label=saved.multi_label,
            metadata=metadata,
        )
        write_tfidf(self.model, saved, directory, card=card.text())
        return saved


def predict_splits(
    task: TrainingTask, model: Model, splits: Iterable[str], calibration: Mapping[str, Any] | None
) -> dict[str, Predictions]:
    """Predictions of an encoder by split.

    task: with the rows.
    model: that predicts.
    splits: dev first, on which a task may tune a threshold.
    calibration: by which the model is calibrated already, as bothways.json has it.
    """
    predictions = {}
    for split in splits:
        scoring = task.scoring
        if split == "test" and calibration:
            scoring = scoring.decided_by(replace(Calibration.from_json(calibration), temperature=1.0))
        outputs = scoring.outputs(model, split)
        scoring.compute_metrics(split, outputs)
        predictions[split] = scoring.predictions(split, outputs)
    return predictions
