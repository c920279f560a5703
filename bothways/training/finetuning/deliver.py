"""Output of a fine-tuning run: the model, the report, and the result in bothways.json; and a run that is done, opened
by its directory."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from html import escape
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from bothways.base.errors import InputError, MissingFile, format_count
from bothways.base.paths import local_place
from bothways.measure.report.chart import Picture
from bothways.measure.report.result_tables import TEXTS, as_table, read_columns
from bothways.measure.report.training_curves import draw_curves
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.description import CONFIG, METADATA_FILE, NOT_DELIVERED, read_metadata
from bothways.settings.fields import AnyPath
from bothways.tasks import TASKS
from bothways.training import results
from bothways.training.finetuning.all_rows import SCORED, LastTraining
from bothways.training.finetuning.card import card_of
from bothways.training.finetuning.compare_runs import compare_runs
from bothways.training.finetuning.gain import TRAINED, save_trained
from bothways.training.finetuning.plan import Plan
from bothways.training.finetuning.refusal import write_refusal
from bothways.training.finetuning.report import metric_unit, write_report
from bothways.training.finetuning.run_models import RunModel
from bothways.training.finetuning.run_scores import MODEL, RunScores, differences
from bothways.training.finetuning.seeds import SEEDS, seed_directory
from bothways.training.finetuning.summary import WIDE, result_json, result_lines
from bothways.training.pretraining.result import PretrainingResult
from bothways.training.run import Run
from bothways.training.run_lock import read_metrics

if TYPE_CHECKING:
    from bothways.inference.predictor import Predictor

ENCODER_FACTS = (
    "mean",
    "std",
    "n",
    "failed",
    "interval",
    "scores",
    "pooled",
)  # if a baseline is delivered
METRIC_COLUMNS = ("model", "split", "metric", "value", "low", "high")
NUMBER_COLUMNS = ("gold", "predicted", "label", "suggested")  # of a task of numbers


@dataclass(frozen=True, repr=False)
class FineTuneResult(results.RunResult):
    """Result of a run: mean and standard deviation of the metric on `split`, over seeds or folds, for the kind of model
    that is in `model_directory`; and the run as an object: its `model`, `predictions`, `label_errors`, `metrics`.

    failed: number of seeds or folds no better than the trivial baseline. interval: 95 % interval (bounds averaged over
    seeds). rows: number of rows in the split. pooled: in cross-validation, the metric of all rows together, to which
    the interval belongs. baselines: the metric of simple models on the same rows; verdict: whether fine-tuning beats
    the best of them. frozen: whether the encoder of the saved model is the pre-trained one, since training it was not
    better on dev. dtype: the number format in which the encoder was scored; "" if unknown. delivered: name of the
    model if it is no encoder: one that was asked for, or a baseline, since the 95 % interval of its lead on dev is
    above 0; then the encoder is beside it, and `encoder` has its mean, std, interval and scores. teacher: the teacher's
    own metric by split, if there is a teacher. readers: a line on which libraries read the model, if transformers does
    not read all of it.
    measured: what the score is where a table has few rows: "out-of-fold, 80 rows, 30 folds, frozen vectors and TF-IDF".
    With too few for that, mean and std are nan, and the verdict is the reason. not_delivered: why the model before
    training is in `model`, or of a reranker none, for tasks that deliver a trained one only if it is clearly better on
    dev, and where the trained one is; "" if that is delivered. scored: the model that has the score, if another one
    is in `model`, which was trained on all rows afterwards; "" if the delivered model has the score.
    """

    task: str
    metric: str
    split: str
    mean: float
    std: float
    failed: int
    scores: list[float]
    interval: tuple[float, float] | None
    rows: int | None
    pooled: float | None = None
    baselines: dict[str, float] = field(default_factory=dict)
    verdict: str = ""
    frozen: bool = False
    dtype: str = ""
    delivered: str = ""
    encoder: dict[str, Any] = field(default_factory=dict)
    teacher: dict[str, float] = field(default_factory=dict)
    readers: str = ""
    measured: str = ""
    not_delivered: str = ""
    scored: str = ""

    def __repr__(self) -> str:
        """The score with its interval, which comes first if it is wide, the verdict and the directory; the attributes
        have the rest."""
        name = f"{'out-of-fold' if self.measured else self.split} {self.metric}"
        score = f"{name} {self.mean:.4f}" if self.scores else "no score"
        if self.interval:
            low, high = self.interval
            bounds = f"{low:.4f} to {high:.4f}"
            if high - low > WIDE:
                score = (
                    f"{name} {bounds} (95 % interval, {format_count(self.rows or 0, 'row')}), measured {self.mean:.4f}"
                )
            else:
                score += f" (95 % interval {bounds})"
        verdict = self.not_delivered or self.verdict
        verdict = f"; {verdict.partition(';')[0]}" if verdict else ""
        return f"{type(self).__name__}({self.task}: {score}{verdict}; {self.directory})"

    def to_json(self) -> dict[str, Any]:
        return result_json(self)

    def lines(self) -> Iterator[str]:
        return result_lines(self)

    def load(self, **options: Any) -> "Predictor":
        """The saved model. options: the options of `bothways.load`."""
        from bothways.inference.load import load

        return load(self.model_directory, **options)

    @property
    def predictions(self) -> Any:
        """The prediction for each row of the reported split, or with folds for every row, as a table: the row from 0,
        the texts, gold, predicted, a probability per class, and the other columns of your table."""
        return self._table(results.PREDICTIONS, "rows that are texts")

    @property
    def label_errors(self) -> Any:
        """Rows whose label may be wrong, the most suspicious first, as a table: the row from 0, the texts, label,
        suggested, their probabilities, whether the error is likely, why, and the other columns of your table."""
        return self._table(results.LABEL_ERRORS, "labels of texts, words and numbers")

    @property
    def reported(self) -> dict[str, float]:
        return {self.metric: self.mean}

    @property
    def metrics(self) -> Any:
        """The scores as a table: model, split, metric, value, and low and high, the ends of the 95 % interval."""
        stored = read_metadata(self.directory / METADATA_FILE)
        figures = stored.get("figures", {})
        intervals = stored["result"].get("baseline_intervals", {})
        scores = [("this model", self.mean, self.interval)]
        scores += [(name, score, intervals.get(name)) for name, score in self.baselines.items()]
        rows = [(name, self.split, self.metric, score, *(ends or (None, None))) for name, score, ends in scores]
        for split, values in figures.items():
            for name, value in results.numbers_of(values).items():
                if (split, name) != (self.split, self.metric) and name not in ("baseline", "best_step"):
                    rows.append(("this model", split, name, value, *values.get(f"{name}_interval", (None, None))))
        return as_table(dict(zip(METRIC_COLUMNS, map(list, zip(*rows, strict=True)), strict=True)))

    def compare(self, other: results.RunResult | AnyPath) -> results.RunComparison:
        """This run beside another, which may be given by its directory: the scores on the rows that both predict, with
        the intervals of the differences."""
        return compare_runs(self, results.opened(other))

    def _table(self, name: str, kind: str) -> Any:
        if not (file := self.directory / name).exists():
            raise MissingFile(f"{file}: this run has no such table; it is for {kind}")
        is_number = TASKS[self.task].labelled is False
        texts = [one for one in TEXTS if not (is_number and one in NUMBER_COLUMNS)]
        kinds = read_metadata(self.directory / METADATA_FILE).get("column_kinds", {})
        return as_table(read_columns(file, texts, kinds.get(name)))

    def plot(self, file: str | Path | None = None) -> Picture:
        """Loss, metric and learning rate over steps as a picture, which is also written to `file` (.svg)."""
        figures = read_metadata(self.directory / METADATA_FILE).get("figures", {})
        levels = {"baseline": figures["dev"]["baseline"]} if "dev" in figures else {}
        rows = read_metrics(self.directory)
        unit = metric_unit(self.metric)
        title = f"Fine-tuning, {self.task}"

        if not rows:
            raise InputError(f"{self.directory}: no curves, since nothing was trained: the encoder stayed as it is")
        return draw_curves(rows, title=title, levels=levels, metric=self.metric, unit=unit).write(file)

    def _repr_html_(self) -> str:
        """The scores as a table, in notebooks."""
        interval = "{:.4f} to {:.4f}".format(*self.interval) if self.interval else ""
        rows = [("this model", self.mean, interval)]
        rows += [("fine-tuned encoder", self.encoder["mean"], "")] if self.encoder else []
        rows += [(name, score, "") for name, score in self.baselines.items()]
        body = "".join(
            f"<tr><td>{escape(name)}</td><td>{score:.4f}</td><td>{interval}</td></tr>" for name, score, interval in rows
        )
        score = f"{escape(self.metric)} {escape(self.measured) or f'on {self.split}'}"
        head = f"<tr><th>{escape(self.task)}</th><th>{score}</th><th>95 %</th></tr>"
        report = self.directory / "report.html"
        return f"<table>{head}{body}</table><p>{escape(self.verdict)}</p><p>{escape(str(report))}</p>"


def deliver(
    plan: Plan,
    scores: RunScores,
    run: Run,
    *,
    trained: Plan | None = None,
    last: LastTraining | None = None,
) -> FineTuneResult:
    """Write the models, the report and the predictions; at the end the result, which marks the run as done.

    plan: of the run.
    scores: of its models, one of which is delivered.
    run: whose directory gets the files.
    trained: the plan of a training whose model is not delivered, if that is another one.
    last: the training on all rows, whose model is delivered instead of the selected one.
    """
    seed = scores.model.scores.kept
    facts = scores.model.inference_facts(plan)
    own_result = model_result(plan, scores)
    reason = save_trained(
        trained or plan,
        run,
        {**run.origin, **facts},
        seed=seed,
        seed_directory=seed_directory(run.directory, seed),
        delivered="linear models of all rows" if trained else "",
    )
    if reason:
        own_result["not_delivered"] = reason
    if last:
        own_result["scored"] = last.describe(run.directory, scores.model.calibration)

    run_result = own_result
    if scores.rival:
        beside = rival_result(plan, scores, scores.rival, own_result, run)
        metadata = {**run.origin, "result": beside, **facts}
        scores.rival.write(plan, scores.directory_of(scores.rival, run.directory), metadata)
        run_result = beside if scores.delivers_rival else own_result

    folds = scores.delivered.scores.folds
    if folds:
        folds.write_predictions(run.directory)

    scores = scores.calibrated()
    write_report(plan, run, scores, run_result)

    metadata = {**run.origin, "result": own_result, **facts}
    write_model(plan, scores, run, metadata, last)
    if scores.refused:
        run_result = run_result | {NOT_DELIVERED: scores.refused}
        write_refusal(run.directory / MODEL, scores.refused, run.directory / TRAINED)
    if scores.delivered is scores.model and (line := scores.model.unread):
        run_result = run_result | {"readers": line}

    figures = {} if plan.unscored else scores.delivered.scores.by_split
    run.update_metadata(result=run_result, figures=figures)
    return read_result(run, plan.task.name)


def write_model(
    plan: Plan, scores: RunScores, run: Run, metadata: Mapping[str, Any], last: LastTraining | None
) -> None:
    """Write the model that the run has trained, and the model of a last training.

    plan: of the run.
    scores: of its models.
    run: whose directory gets the models.
    metadata: of the model.
    last: the training on all rows, if there was one; its model has the place of the other one, which is kept.
    """
    directory = run.directory / TRAINED if scores.refused else scores.directory_of(scores.model, run.directory)
    if not last:
        scores.model.write(plan, directory, metadata)
        return

    scored = scores.model.write(plan, run.directory / SCORED, metadata)
    assert isinstance(scored, Checkpoint)
    finished = last.finished(plan, scored)
    checkpoint.save(finished, directory, card=card_of(finished, of_all_rows=True))


def model_result(plan: Plan, scores: RunScores) -> dict[str, Any]:
    """The `result` of bothways.json for the model that the run has trained."""
    model = scores.model
    result = model.scores.summary | model.facts(plan)
    if model.shown_name:
        result["delivered"] = model.shown_name
    if plan.unscored:
        result |= {"mean": None, "std": None, "interval": None, "failed": 0, "verdict": plan.unscored}
    elif plan.measured:
        result["measured"] = plan.measured
    if scores.baselines:
        result |= comparison_json(scores, model)
        result["verdict"] = scores.model_verdict
    return result


def rival_result(
    plan: Plan, scores: RunScores, rival: RunModel, own_result: Mapping[str, Any], run: Run
) -> dict[str, Any]:
    """The `result` of bothways.json for a baseline that is saved.

    plan: of the run.
    scores: of its models.
    rival: the baseline.
    own_result: the `result` of the model that the run has trained.
    run: with the directories of the models.
    """
    result = rival.scores.summary | rival.facts(plan) | comparison_json(scores, rival)
    if "measured" in own_result:
        result["measured"] = own_result["measured"]
    if rival is not scores.delivered:
        return result

    directory = scores.directory_of(scores.model, run.directory)
    return result | {
        "delivered": rival.shown_name,
        "encoder": {name: own_result[name] for name in ENCODER_FACTS if name in own_result},
        "verdict": scores.verdict,
        "readers": f"{rival.unread}; the {scores.model.name} is in {directory}",
    }


def comparison_json(scores: RunScores, model: RunModel) -> dict[str, Any]:
    """The scores of the baselines, and their differences to the scores of a model."""
    baselines = scores.baselines
    return {
        "baselines": {baseline.model: baseline.value for baseline in baselines},
        "baseline_intervals": {baseline.model: baseline.interval for baseline in baselines if baseline.interval},
        "differences": differences(model.scores, baselines),
    }


def read_result(run: Run, task: str) -> FineTuneResult:
    """The result of a run that is done, whose seeds need not stay."""
    rmtree(run.directory / SEEDS, ignore_errors=True)
    return result_of(run.directory, run.metadata["result"], task)


def result_of(directory: Path, result: Mapping[str, Any], task: str) -> FineTuneResult:
    """The result of a run in a directory. result: as bothways.json has it."""
    known = {each.name for each in fields(FineTuneResult)}
    # Runs of older versions lack some of the facts, which then have their defaults.
    facts = {name: value for name, value in result.items() if name in known}
    facts["interval"] = result["interval"] and tuple(result["interval"])

    if result["mean"] is None:
        facts |= {"mean": math.nan, "std": math.nan, "scores": []}
    else:
        facts["scores"] = result["scores"][result["split"]]
    return FineTuneResult(directory, directory / MODEL, task, **facts)


def open_run(directory: AnyPath) -> results.RunResult:
    """The result of a run of `finetune`, `pretrain` or `distill` as `bothways.finetune` and `bothways.train` return it:
    with its model, its tables and its report. InputError if the directory has no run, or one that is not done."""
    path = local_place(directory)
    metadata = read_metadata(path / METADATA_FILE)
    if metadata.get("verb") and (path / CONFIG).exists():
        run = path.parent
        way_out = f"open the run, {run}, or" if read_metadata(run / METADATA_FILE).get("verb") else "open its run, or"
        raise InputError(f"{path}: a model, not a run; {way_out} load the model with bothways.load")
    if not metadata.get("verb") or not path.exists():
        raise MissingFile(f"{path}: not a run; name the directory that was its output")

    verb, _, task = metadata["verb"].partition(" ")
    if verb == "finetune" and "result" in metadata:
        return result_of(path, metadata["result"], task)

    if "heldout" in metadata:
        return PretrainingResult(
            directory=path,
            model_directory=path / "model",
            figures=metadata["heldout"],
            cost=metadata.get("cost", {}),
        )

    raise InputError(f"{path}: a run of {verb} that is not done, or has no scores; name one of finetune or pretrain")
