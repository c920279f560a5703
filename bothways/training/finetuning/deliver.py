"""Output of a fine-tuning run: the model, the report, and the result in bothways.json; and a run that is done, opened
by its directory."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from html import escape
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from bothways.base.errors import InputError, MissingFile, format_count
from bothways.base.paths import local_place
from bothways.base.progress import working
from bothways.measure.report.chart import Picture
from bothways.measure.report.result_tables import TEXTS, as_table, read_columns
from bothways.measure.report.training_curves import draw_curves
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.checkpoint import unread_warning
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.description import CONFIG, METADATA_FILE, NOT_DELIVERED, WORDS, read_metadata
from bothways.model.checkpoint.formats.format import ONLY_BOTHWAYS
from bothways.model.checkpoint.formats.tfidf import ENCODER, write_tfidf
from bothways.model.transforms import DivideScores, finalize_all
from bothways.settings.fields import AnyPath
from bothways.tasks import TASK, TASKS, task_from_heads
from bothways.tasks.class_decoding import CALIBRATION
from bothways.training import results
from bothways.training.finetuning.all_rows import SCORED, LastTraining
from bothways.training.finetuning.compare import MODEL, SAVED, Comparison, SavedTfidf
from bothways.training.finetuning.compare_runs import compare_runs
from bothways.training.finetuning.gain import TRAINED, save_trained
from bothways.training.finetuning.plan import Plan
from bothways.training.finetuning.refusal import write_refusal
from bothways.training.finetuning.report import metric_unit, write_report
from bothways.training.finetuning.seeds import SEEDS, seed_directory
from bothways.training.finetuning.select import ModelScores, Selection
from bothways.training.finetuning.summary import WIDE, result_json, result_lines
from bothways.training.pretraining.result import PretrainingResult
from bothways.training.run import Run
from bothways.training.run_lock import read_metrics

if TYPE_CHECKING:
    from bothways.inference.predictor import Predictor

ENCODER_FACTS = ("mean", "std", "n", "failed", "interval", "scores", "pooled")  # beside the result of TF-IDF
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
    baseline that is in `model` instead, since the 95 % interval of its lead on dev is above 0; the encoder is beside
    it, and `encoder` has its mean, std, interval and scores. teacher: the teacher's own metric by split, if there is a
    teacher. readers: a line on which libraries read the model, if transformers does not read all of it.
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
    selection: Selection,
    comparison: Comparison,
    run: Run,
    *,
    trained: Plan | None = None,
    last: LastTraining | None = None,
) -> FineTuneResult:
    """Write the model, the TF-IDF model if it is saved, the report and the predictions; at the end the result, which
    marks the run as done.

    trained: the plan of a training whose model is not delivered, if that is another one.
    last: the training on all rows, whose model is delivered instead of the selected one.
    """
    encoder = selection.scores
    tfidf = comparison.tfidf
    model = selection.model
    facts = facts_for_inference(plan, encoder, model)
    delivered = comparison.delivered(encoder)

    run_result = result = encoder_result(plan, selection, comparison)
    seed = selection.kept.seed
    seed_files = seed_directory(run.directory, seed)
    reason = save_trained(
        trained or plan,
        run,
        {**run.origin, **facts},
        seed=seed,
        seed_directory=seed_files,
        delivered="linear models of all rows" if trained else "",
    )
    if reason:
        run_result = result = result | {"not_delivered": reason}
    if last:
        run_result = result = result | {"scored": last.describe(run.directory, selection.calibration)}
    if tfidf:
        run_result = tfidf_result(tfidf, comparison, result, run.directory / ENCODER)
        described = replace(model, metadata={**run.origin, "result": run_result, **facts})
        write_tfidf(tfidf.model, described, run.directory / (MODEL if tfidf.lead else SAVED))
        run_result = run_result if tfidf.lead else result
    if delivered.folds:
        delivered.folds.write_predictions(run.directory)
    if selection.calibration:
        temperature = selection.calibration["temperature"]
        DivideScores(temperature).finalize(model.model)
        if model.words:
            model = replace(model, words=model.words.scaled(1 / temperature, 0.0))
    write_report(plan, run, selection, comparison, run_result)
    with working("texts like the training texts"):
        is_trained = not encoder.frozen
        scope = plan.task.scope(plan.inference_copy(model.model), is_trained=is_trained)
    stored = finalize_all(plan.transforms, model.model)
    metadata = {**run.origin, "result": result, **facts, **stored, **facts_of_parts(model, selection)}
    saved = replace(model, metadata=metadata, scope=scope)
    place = MODEL if delivered is encoder else ENCODER
    if last:
        checkpoint.save(saved, run.directory / SCORED)
        saved = last.finished(plan, saved)
    if comparison.refused:
        place = TRAINED
        run_result = run_result | {NOT_DELIVERED: comparison.refused}
        write_refusal(run.directory / MODEL, comparison.refused, run.directory / TRAINED)
    checkpoint.save(saved, run.directory / place)
    if delivered is encoder and (line := unread_warning(saved)):
        run_result = run_result | {"readers": line}
    run.update_metadata(result=run_result, figures={} if plan.unscored else delivered.by_split)
    return read_result(run, plan.task.name)


def facts_for_inference(plan: Plan, scores: ModelScores, model: Checkpoint) -> dict[str, Any]:
    """Metadata that inference needs besides weights and labels."""
    task = plan.task
    facts = plan.task.metadata(scores.by_split)
    return facts if task_from_heads(model.model.num_outputs, model) == task.name else {**facts, TASK: task.name}


def facts_of_parts(model: Checkpoint, selection: Selection) -> dict[str, Any]:
    """Metadata of the TF-IDF part of a model, and its calibration, if there are any."""
    facts = dict[str, Any]()
    if model.words:
        facts[WORDS] = {"strength": model.words.strength}
    if selection.calibration:
        facts[CALIBRATION] = selection.calibration
    return facts


def encoder_result(plan: Plan, selection: Selection, comparison: Comparison) -> dict[str, Any]:
    """The `result` of bothways.json for the fine-tuned encoder."""
    summary = selection.scores.summary
    facts: dict[str, Any] = {"dtype": str(plan.options.dtype).removeprefix("torch.")}
    if plan.unscored:
        summary = summary | {"mean": None, "std": None, "interval": None, "failed": 0}
        facts["verdict"] = plan.unscored
    elif plan.measured:
        facts["measured"] = plan.measured
    if selection.kept.teacher:
        facts["teacher"] = {split: teacher.value for split, teacher in selection.kept.teacher.items()}
    if comparison.baselines:
        facts |= comparison_json(comparison, selection.scores) | {"verdict": comparison.encoder_verdict}
    return summary | facts


def tfidf_result(tfidf: SavedTfidf, comparison: Comparison, encoder: dict[str, Any], directory: Path) -> dict[str, Any]:
    """The `result` of bothways.json for the TF-IDF model.

    encoder: the `result` of the encoder, which is beside it in `directory`.
    """
    result = tfidf.scores.summary | comparison_json(comparison, tfidf.scores)
    if "measured" in encoder:
        result["measured"] = encoder["measured"]
    if not tfidf.lead:
        return result
    return result | {
        "delivered": tfidf.name,
        "encoder": {name: encoder[name] for name in ENCODER_FACTS if name in encoder},
        "verdict": comparison.verdict,
        "readers": f"{ONLY_BOTHWAYS.format(tfidf.name)}; the fine-tuned encoder is in {directory}",
    }


def comparison_json(comparison: Comparison, scores: ModelScores) -> dict[str, Any]:
    """The baselines' scores, and their differences to the scores of a model."""
    baselines = comparison.baselines
    return {
        "baselines": {baseline.model: baseline.value for baseline in baselines},
        "baseline_intervals": {baseline.model: baseline.interval for baseline in baselines if baseline.interval},
        "differences": comparison.differences(scores),
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
