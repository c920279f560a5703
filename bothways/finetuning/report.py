"""What a fine-tuning run shows of itself: curves as a picture, and the report page."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean

from bothways import metrics
from bothways import report as page
from bothways.evaluation.scores import Predictions
from bothways.finetuning.baselines import Beside
from bothways.finetuning.cross_validation import FOLDS, Validated
from bothways.finetuning.task import Figures, Task, at_work, peak_rate
from bothways.log import logger
from bothways.model.model import Model
from bothways.report import plot
from bothways.report.markup import Unit
from bothways.settings import FineTune
from bothways.training.optimizer import layer_depths
from bothways.training.run import Run

# All other figures are shares.
NUMBERS = "spearman pearson matthews mean_squared_error mean_absolute_error variance no_answer_threshold".split()
NO_SCORES = ("baseline", "best_step", "loss", "queries", "rows")
Found = Mapping[int, Mapping[str, Figures]]  # of each seed by split


def draw(
    settings: FineTune, task: Task, run: Run, model: Model, found: Found, *, kept: int, failed: Sequence[int],
    validated: Validated | None = None, beside: Beside | None = None,
) -> None:  # fmt: skip
    """Write curves.png and report.html. model: that of the seed kept; failed: seeds. validated: what the page is of in
    cross-validation. beside: simple models."""
    rows, own = run.metrics(), found[kept]
    levels = {"baseline": own["dev"]["baseline"]}
    title = f"Fine-tuning, {task.name}"
    plot.save_curves(rows, run.directory / "curves.png", title=title, levels=levels, metric=task.metric)
    unit, window = unit_of(task.metric), min(settings.window, model.config.max_position_embeddings)
    if validated:
        told = told_of_folds(task, validated)
    else:
        told = told_of_seeds(task, at_work(model, settings), found, kept=kept, failed=failed)
    doubts = page.LabelIssues(task.doubts(told.unseen), len(told.unseen.where), told.note, task.doubted)
    if doubts.are_credible:
        first = doubts.cases[0]
        logger.info(
            f"{len(doubts.cases):,} labels may be wrong, such as {first.label!r} (likelier {first.suggested!r}) at "
            f"{first.where}; report.html lists them"
        )
    parts: list[page.Section] = [
        *([told.trainings] if len(told.trainings.seeds) > 1 else []),
        *([compared(task, told.scores[0], beside)] if beside else []),
        page.TrainingCurves(rows, task.metric, task.metric, unit),
        *task.parts(told.predictions),
        *([doubts] if task.doubted else []),
        page.TokenLengths("train", task.lengths("train"), window, settings.long == "truncate"),
        page.LearningRates(rates(model, settings)),
    ]
    whole = page.Page(
        f"{run.directory.name}: {task.name}", f"{settings.model} fine-tuned on {settings.train}", told.scores, parts,
        [*(beside.warnings if beside else []), *told.warnings, *task.warnings], facts_of(settings, run),
    )  # fmt: skip
    page.write(whole, run.directory / "report.html")


def compared(task: Task, score: page.ScoreSummary, beside: Beside) -> page.BaselineComparison:
    """The score reported first beside those of simple models."""
    fine_tuned = page.ModelScore("fine-tuned", score.mean, None if score.over == "folds" else score.interval)
    models = [fine_tuned, *(page.ModelScore(one.name, one.value, one.interval) for one in beside.scores)]
    return page.BaselineComparison(task.metric, models, beside.verdict, unit_of(task.metric))


@dataclass(frozen=True)
class Told:
    """What the page shows of a run's trainings. predictions: of which rows mistakes are shown. unseen: all that a model
    said of rows it was not trained on; note: which rows are not among them."""

    scores: list[page.ScoreSummary]
    trainings: page.SeedTable
    predictions: Predictions
    unseen: Predictions
    note: str
    warnings: list[str]


def told_of_seeds(task: Task, model: Model, found: Found, *, kept: int, failed: Sequence[int]) -> Told:
    """model: that of the seed kept."""
    own, unit = found[kept], unit_of(task.metric)
    splits = sorted(own, key=lambda split: split != "test")  # the one reported on first
    by_split = predictions_of(task, model, own)
    unseen, note = Predictions.joined(by_split.values()), "with --folds 5 all are looked at"
    if kept in failed:
        unseen, note = Predictions.joined([]), "the model learned nothing, so it cannot tell"
    seeds = [
        page.SeedScores(
            seed, {split: found[seed][split][task.metric] for split in splits}, seed in failed, seed == kept
        )
        for seed in found
    ]
    return Told(
        [*scores_of(task, found, splits, unit), *others_of(task, own, splits)],
        page.SeedTable(task.metric, seeds, unit),
        by_split[splits[0]], unseen, note, [*warnings_of(failed, len(seeds), "seeds"), *few_rows(own, splits[0])],
    )  # fmt: skip


def told_of_folds(task: Task, validated: Validated) -> Told:
    number, failed = len(validated.figures), validated.failed
    folds = enumerate(validated.values(task.metric))
    seeds = [page.SeedScores(fold + 1, {FOLDS: score}, fold in failed) for fold, score in folds]
    unseen = Predictions.joined(one for fold, one in enumerate(validated.predictions) if fold not in failed)
    names = ", ".join(str(fold + 1) for fold in failed)
    note = f"left out: fold{'s' * (len(failed) > 1)} {names}, whose model learned nothing" if failed else ""
    return Told(
        [*fold_scores(task, validated)], page.FoldTable(task.metric, seeds, unit_of(task.metric)), validated.joined,
        unseen, note, warnings_of(failed, number, "folds"),
    )  # fmt: skip


def predictions_of(task: Task, model: Model, splits: Iterable[str]) -> dict[str, Predictions]:
    """Of dev first, on which a task may have to choose a threshold."""
    found = {}
    for split in splits:
        outputs = task.outputs(model, split)
        task.evaluate(split, outputs)
        found[split] = task.predictions(split, outputs)
    return found


def fold_scores(task: Task, validated: Validated) -> Iterator[page.ScoreSummary]:
    """Mean and spread of each score over folds, and the interval of all rows together; the metric first."""
    rows = len(validated.joined.where)
    bounded = [name for name in validated.figures[0] if f"{name}_interval" in validated.scores]
    for name in sorted(bounded, key=lambda name: name != task.metric):
        values, unit = validated.values(name), unit_of(name)
        mean, std = metrics.mean_and_std(values)
        low, high = validated.scores[f"{name}_interval"]
        pooled = validated.scores[name]
        yield page.ScoreSummary(name, FOLDS, mean, std, len(values), False, unit, (low, high), rows, "folds", pooled)


def scores_of(task: Task, found: Found, splits: Sequence[str], unit: Unit) -> Iterator[page.ScoreSummary]:
    """Mean and spread of the metric over seeds, for each split."""
    for split in splits:
        values = [figures[split][task.metric] for figures in found.values()]
        bounds = [figures[split][f"{task.metric}_interval"] for figures in found.values()]
        low, high = map(fmean, zip(*bounds, strict=True))
        rows = next(figures[split]["rows"] for figures in found.values())
        mean, std = metrics.mean_and_std(values)
        yield page.ScoreSummary(task.metric, split, mean, std, len(values), split == "dev", unit, (low, high), rows)


def others_of(task: Task, figures: Mapping[str, Figures], splits: Sequence[str]) -> Iterator[page.ScoreSummary]:
    """The other figures of the seed kept."""
    for split in splits:
        for name, value in figures[split].items():
            if name not in (task.metric, *NO_SCORES) and not name.endswith("_interval"):
                bounds = figures[split].get(f"{name}_interval")
                yield page.ScoreSummary(name, split, value, 0.0, 1, split == "dev", unit_of(name), bounds)


def few_rows(figures: Mapping[str, Figures], split: str) -> list[str]:
    few = metrics.few_rows_warning(figures[split]["rows"], "rows", split)
    return [few] if few else []


def unit_of(name: str) -> Unit:
    whole = name.rsplit("_", 1)[0] if name[-1:].isdigit() else name  # spearman_64: of vectors of 64 numbers
    return "number" if whole in NUMBERS else "share"


def warnings_of(failed: Sequence[int], number: int, of: str) -> list[str]:
    return [f"{len(failed)} of {number} {of} were no better than a model that learned nothing"] if failed else []


def facts_of(settings: FineTune, run: Run) -> list[tuple[str, str]]:
    """What the run was told beside defaults, when it began, and by which versions it was done."""
    plain = {field.name: field.default for field in fields(settings)}
    usual = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
    told = [(name, str(value)) for name, value in run.metadata["settings"].items() if value != usual[name]]
    made_with = [(name, str(value)) for part in ("versions", "hardware") for name, value in run.metadata[part].items()]
    return [*told, ("started", str(run.metadata["started"])), *made_with]


def rates(model: Model, settings: FineTune) -> list[tuple[str, float, int]]:
    """(name, peak learning rate, parameters) of each part, from the embeddings to the head; 0 is frozen.

    eta_l = eta * layer_decay^(L - l) (Sun 2019, section 5.3).
    """
    depths = layer_depths([name for name, _ in model.named_parameters()])
    last, sizes = max(depths.values()), Counter[int]()
    for name, value in model.named_parameters():
        sizes[depths[name]] += value.numel()
    layers = model.config.num_unique_layers
    names = ["embeddings", *(f"layer {number}" for number in range(1, layers + 1)), "head"][: last + 1]
    peak = peak_rate(settings, model.config)
    peaks = [peak * settings.layer_decay ** (last - place) for place in range(last + 1)]
    return [
        (name, 0.0 if place < settings.freeze else peaks[place], sizes[place])
        for place, name in enumerate(names) if sizes[place]
    ]  # fmt: skip


def rate_lines(found: Sequence[tuple[str, float, int]]) -> str:
    rows = [f"  {name:12} {f'{rate:.2e}' if rate else 'frozen'}" for name, rate, _ in found]
    return "\n".join(["peak learning rates", *rows])
