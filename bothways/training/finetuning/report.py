"""Learning curves, report page and table of predictions of a fine-tuning run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from statistics import fmean
from typing import Any

from bothways.base.errors import flag
from bothways.base.log import logger
from bothways.base.progress import working
from bothways.measure import metrics
from bothways.measure import report as page
from bothways.measure.report.markup import Unit, format_number
from bothways.measure.report.training_curves import draw_curves
from bothways.settings.finetune import FineTune
from bothways.tasks.scores import Predictions
from bothways.tasks.training_task import Metrics, TrainingTask
from bothways.training.finetuning.explained import with_words
from bothways.training.finetuning.ground.budget import LABEL_CHECK
from bothways.training.finetuning.ground.score import Score
from bothways.training.finetuning.model_scores import FOLDS, CrossValidation, ModelScores
from bothways.training.finetuning.plan import Plan
from bothways.training.finetuning.run_models import RunModel
from bothways.training.finetuning.run_scores import RunScores
from bothways.training.results import LABEL_ERRORS, PREDICTIONS, REPORT
from bothways.training.run import Run

# Metrics that are not percentages.
NUMBERS = (
    "spearman",
    "pearson",
    "matthews",
    "mean_squared_error",
    "mean_absolute_error",
    "variance",
    "no_answer_threshold",
)
NOT_SHOWN = ("baseline", "best_step", "loss", "queries", "rows")
MetricsBySeed = Mapping[int, Mapping[str, Metrics]]  # metrics by split, by seed


def write_report(plan: Plan, run: Run, scores: RunScores, result: Mapping[str, Any]) -> None:
    """Write curves.svg, report.html and predictions.csv.

    The scores are the scores of the model that is delivered; with folds, the page shows the cross-validation.

    plan: of the run.
    run: whose directory gets the files.
    scores: of its models.
    result: the result of the run.
    """
    task = plan.task
    rows = run.metrics()
    shown = scores.delivered.scores

    if rows:
        curves = draw_curves(
            rows,
            title=f"Fine-tuning, {task.name}",
            levels={"baseline": shown.trivial},
            metric=task.metric,
            unit=metric_unit(task.metric),
        )
        curves.write(run.directory / "curves.svg")

    content = content_of(plan, scores.delivered)
    doubtful, num_examined = check_labels(plan, content.unseen)
    is_complete = num_examined == sum(map(task.report.num_rows, task.data))
    issues = page.LabelIssues(
        cases=[case for case in doubtful if case.is_likely],
        num_examined=num_examined,
        note="" if is_complete else content.note,
        criterion=task.report.label_issue_criterion,
    )
    log_label_issues(issues)

    columns = task.report.columns(content.predictions) if content.predictions.where else {}
    sections = page_sections(plan, scores, content=content, issues=issues, rows=rows, result=result)
    rows_of = "every row, by the model of the other folds" if shown.folds else f"each row of {result['split']}"
    report = page.Page(
        title=f"{run.directory.name}: {task.name}",
        subtitle=scores.delivered.describe(plan),
        scores=[] if plan.unscored else content.scores,
        sections=sections,
        warnings=page_warnings(plan, scores, content, result),
        facts=[*teacher_facts(task, scores.model.teacher), *run_facts(plan.settings, run)],
        files=[
            *([(PREDICTIONS, f"the prediction for {rows_of}, as a table")] if columns else []),
            *(
                [(LABEL_ERRORS, "rows for which another label is more probable, as a table")]
                if issues.criterion
                else []
            ),
        ],
    )
    page.write(report, run.directory / REPORT)
    write_tables(task, run, content.predictions, columns=columns, doubtful=doubtful)


def page_sections(
    plan: Plan,
    scores: RunScores,
    *,
    content: "Content",
    issues: page.LabelIssues,
    rows: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any],
) -> list[page.Section]:
    """The sections of the report page.

    plan: of the run.
    scores: of its models.
    content: what differs between seeds and folds.
    issues: likely label errors.
    rows: of the metrics of the run.
    result: of the run.
    """
    task = plan.task
    sections: list[page.Section] = []

    if len(content.table.seeds) > 1:
        sections.append(content.table)
    if scores.baselines:
        sections.append(compare(task, content.scores[0], scores, result))
    if rows:
        unit = metric_unit(task.metric)
        sections.append(page.TrainingCurves(rows=rows, metric=task.metric, name=task.metric, unit=unit))
    if content.predictions.where:
        mistaken = task.report.sections(content.predictions)
        sections += with_words(mistaken, partial(scores.delivered.predictor, plan))
    if issues.criterion:
        sections.append(issues)

    window = scores.model.window(plan)
    if window is not None:
        sizes = task.report.lengths("train")
        sections.append(page.TokenLengths(split="train", sizes=sizes, window=window, truncated=plan.truncates))
    return sections


def page_warnings(plan: Plan, scores: RunScores, content: "Content", result: Mapping[str, Any]) -> list[str]:
    """The warnings at the top of the report page: what is not delivered first."""
    about_rows = plan.task.report.warnings
    if plan.unscored:
        return [plan.unscored, *about_rows]

    refused = filter(None, [scores.refused, result.get("not_delivered"), result.get("scored")])
    compared = scores.warnings if scores.baselines else []
    return [*dict.fromkeys(refused), *compared, *content.warnings, *about_rows]


def write_tables(
    task: TrainingTask,
    run: Run,
    predictions: Predictions,
    *,
    columns: Mapping[str, list[Any]],
    doubtful: Sequence[page.LabelIssue],
) -> None:
    """Write predictions.csv and the likely label errors, for tasks that have them.

    columns: of predictions.csv; empty: none.
    doubtful: rows for which another label is more probable.
    """
    kinds = dict[str, dict[str, str]]()
    if columns:
        other = task.report.other_columns(predictions.where, columns)
        kinds[PREDICTIONS] = page.column_kinds(other)
        page.write_predictions({**columns, **other}, run.directory / PREDICTIONS)

    if task.report.label_issue_criterion:
        parts = ["pair"] if "pair" in columns else task.report.label_issue_parts
        table = page.issue_columns(doubtful, among=predictions.where, parts=parts)
        other = task.report.other_columns([case.where for case in doubtful], table)
        kinds[LABEL_ERRORS] = page.column_kinds(other)
        page.write_predictions(table | other, run.directory / LABEL_ERRORS)

    if any(kinds.values()):
        run.update_metadata(column_kinds=kinds)


def check_labels(plan: Plan, unseen: Predictions) -> tuple[list[page.LabelIssue], int]:
    """Rows whose label may be wrong, the most suspicious first, and the number of rows that were examined. unseen:
    predictions of the model for rows that it was not trained on; linear models on frozen vectors of the other folds
    examine the others."""
    by_model = plan.task.report.label_issues(unseen)
    issues = [replace(case, source="this model") for case in by_model]
    examined = {*unseen.where}
    is_complete = len(examined) == sum(map(plan.task.report.num_rows, plan.task.data))
    if plan.compares and not is_complete and LABEL_CHECK not in plan.budget.left_out:
        with working("label errors"):
            if plan.few and plan.few.folds:
                rest: Predictions | None = plan.few.predictions(plan.few.scored(plan.few.chosen))
            else:
                rest = plan.task.out_of_fold()
        if rest:
            others = [case for case in plan.task.report.label_issues(rest) if case.where not in examined]
            issues += [replace(case, source="frozen vectors of the other folds") for case in others]
            examined |= {*rest.where}
    return sorted(issues, key=lambda case: case.order), len(examined)


def log_label_issues(issues: page.LabelIssues) -> None:
    if issues.are_credible:
        first = issues.cases[0]
        logger.info(
            f"{len(issues.cases):,} labels may be wrong, such as {first.label!r} (suggested: {first.suggested!r}) at "
            f"{first.where}; see report.html"
        )


def compare(
    task: TrainingTask, score: page.ScoreSummary, scores: RunScores, result: Mapping[str, Any]
) -> page.BaselineComparison:
    """The main score, beside the scores of the trained model if it is not delivered, of the teacher on the same split,
    and of the baselines.

    task: whose metric is the score.
    score: of the delivered model.
    scores: of the models of the run.
    result: of the run.
    """
    is_interval_pooled = score.pooled is not None
    delivered = scores.delivered
    name = delivered.shown_name or (task.initial_model if result.get("not_delivered") else "fine-tuned")
    models = [page.ModelScore(name, score.mean, None if is_interval_pooled else score.interval)]

    if delivered is not scores.model:
        other = scores.model
        interval = None if is_interval_pooled else other.scores.summary["interval"]
        models.append(page.ModelScore(f"{other.name} (not delivered)", other.scores.mean, interval))

    teacher = scores.model.teacher
    others = [*([teacher[score.split]] if score.split in teacher else []), *scores.baselines]
    models += [
        page.ModelScore(other.model, other.value, other.interval) for other in others if other.model != delivered.name
    ]

    return page.BaselineComparison(
        metric=task.metric,
        models=models,
        verdict=scores.verdict,
        unit=metric_unit(task.metric),
    )


@dataclass(frozen=True)
class Content:
    """The part of the page that differs between seeds and folds.

    predictions: rows whose mistakes are shown. unseen: all rows that a model was not trained on; note: the excluded
    ones.
    """

    scores: list[page.ScoreSummary]
    table: page.SeedTable
    predictions: Predictions
    unseen: Predictions
    note: str
    warnings: list[str]


def content_of(plan: Plan, model: RunModel) -> "Content":
    """The part of the page about the scores of a model. model: that is delivered."""
    task = plan.task
    if model.scores.folds:
        return folds_content(task, model.scores.folds)

    if plan.stays_frozen and plan.unscored:
        nothing = Predictions.joined([])
        return Content(
            scores=[],
            table=page.SeedTable(task.metric, [], metric_unit(task.metric)),
            predictions=nothing,
            unseen=nothing,
            note="",
            warnings=[],
        )

    return seeds_content(plan, model.predictions(plan), model.scores)


def seeds_content(plan: Plan, by_split: Mapping[str, Predictions], model: ModelScores) -> Content:
    """by_split: predictions of the model."""
    task = plan.task
    values = model.by_split
    unit = metric_unit(task.metric)
    failed = model.failed
    kept = model.kept

    splits = sorted(values, key=lambda split: split != "test")  # the reported one first
    unseen = Predictions.joined(by_split.values())
    note = f"{flag('folds', 5)} examines all rows"
    if kept in failed:
        unseen = Predictions.joined([])
        note = "the model is no better than the trivial baseline"
    seeds = [
        page.SeedScores(
            number=seed,
            scores={split: scores[split][task.metric] for split in splits},
            failed=seed in failed,
            kept=seed == model.kept,
        )
        for seed, scores in model.metrics_by_seed.items()
    ]
    warning = metrics.few_rows_warning(values[splits[0]]["rows"], "rows", splits[0])
    scores = [*main_scores(task, model.metrics_by_seed, splits, unit), *other_scores(task, values, splits)]
    warnings = [*failed_warnings(failed, len(seeds), "seeds"), *([warning] if warning else [])]
    return Content(
        scores=scores,
        table=page.SeedTable(task.metric, seeds, unit),
        predictions=by_split[splits[0]],
        unseen=unseen,
        note=note,
        warnings=warnings,
    )


def folds_content(task: TrainingTask, folds: CrossValidation) -> Content:
    failed = folds.failed(task.metric)

    rows = [
        page.SeedScores(fold + 1, {FOLDS: score}, fold in failed)
        for fold, score in enumerate(folds.values(task.metric))
        if not folds.is_pooled
    ]

    unseen = Predictions.joined(rows for fold, rows in enumerate(folds.predictions) if fold not in failed)
    names = ", ".join(str(fold + 1) for fold in failed)
    note = f"without fold{'s' * (len(failed) > 1)} {names}, no better than the trivial baseline" if failed else ""

    table = page.FoldTable(task.metric, rows, metric_unit(task.metric))
    warnings = failed_warnings(failed, len(folds.metrics), "folds")
    return Content(
        scores=[*fold_scores(task, folds)],
        table=table,
        predictions=folds.all_predictions,
        unseen=unseen,
        note=note,
        warnings=warnings,
    )


def fold_scores(task: TrainingTask, folds: CrossValidation) -> Iterator[page.ScoreSummary]:
    """Mean and spread of each score over folds with the interval of all rows together; the metric comes first."""
    num_rows = len(folds.all_predictions.where)
    names = [name for name in folds.metrics[0] if f"{name}_interval" in folds.scores]
    for name in sorted(names, key=lambda name: name != task.metric):
        values = folds.values(name)
        unit = metric_unit(name)
        pooled = folds.scores[name]
        if folds.is_pooled:
            interval = tuple(folds.scores[f"{name}_interval"])
            yield page.ScoreSummary(
                metric=name,
                split="out-of-fold",
                mean=pooled,
                std=0.0,
                n=1,
                selected=False,
                unit=unit,
                interval=interval,
                rows=num_rows,
                over="folds",
            )
            continue
        mean, std = metrics.mean_and_std(values)
        low, high = folds.scores[f"{name}_interval"]
        yield page.ScoreSummary(
            metric=name,
            split=FOLDS,
            mean=mean,
            std=std,
            n=len(values),
            selected=False,
            unit=unit,
            interval=(low, high),
            rows=num_rows,
            over="folds",
            pooled=pooled,
        )


def main_scores(
    task: TrainingTask, metrics_by_seed: MetricsBySeed, splits: Sequence[str], unit: Unit
) -> Iterator[page.ScoreSummary]:
    """Mean and spread of the metric over seeds, for each split."""
    for split in splits:
        by_seed = [by_split[split] for by_split in metrics_by_seed.values()]
        values = [scores[task.metric] for scores in by_seed]
        intervals = [scores[f"{task.metric}_interval"] for scores in by_seed]
        low, high = map(fmean, zip(*intervals, strict=True))
        mean, std = metrics.mean_and_std(values)
        yield page.ScoreSummary(
            metric=task.metric,
            split=split,
            mean=mean,
            std=std,
            n=len(values),
            selected=split == "dev",
            unit=unit,
            interval=(low, high),
            rows=by_seed[0]["rows"],
        )


def other_scores(
    task: TrainingTask, metrics_by_split: Mapping[str, Metrics], splits: Sequence[str]
) -> Iterator[page.ScoreSummary]:
    """All other metrics of the kept seed."""
    for split in splits:
        for name, value in metrics_by_split[split].items():
            if name not in (task.metric, *NOT_SHOWN) and not name.endswith("_interval"):
                interval = metrics_by_split[split].get(f"{name}_interval")
                yield page.ScoreSummary(
                    metric=name,
                    split=split,
                    mean=value,
                    std=0.0,
                    n=1,
                    selected=split == "dev",
                    unit=metric_unit(name),
                    interval=interval,
                )


def metric_unit(name: str) -> Unit:
    base = name.rsplit("_", 1)[0] if name[-1:].isdigit() else name  # spearman_64: Matryoshka, 64 dimensions
    return "number" if base in NUMBERS else "share"


def failed_warnings(failed: Sequence[int], num_trainings: int, kind: str) -> list[str]:
    return [f"{len(failed)} of {num_trainings} {kind} are no better than the trivial baseline"] if failed else []


def teacher_facts(task: TrainingTask, teacher: Mapping[str, Score]) -> list[tuple[str, str]]:
    """The teacher's own score on each split."""
    unit = metric_unit(task.metric)
    return [(f"teacher, {split} {task.metric}", format_number(score.value, unit)) for split, score in teacher.items()]


def run_facts(settings: FineTune, run: Run) -> list[tuple[str, str]]:
    """Settings other than the defaults, start time, versions and hardware."""
    values = {one.name: one.default for one in fields(settings)}
    defaults = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    changed = [(name, str(value)) for name, value in run.metadata["settings"].items() if value != defaults[name]]
    system = [(name, str(value)) for part in ("versions", "hardware") for name, value in run.metadata[part].items()]
    return [*changed, ("started", str(run.metadata["started"])), *system]
