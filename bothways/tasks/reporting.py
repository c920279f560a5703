"""What a fine-tuning run shows of itself: curves as a picture, and the report page."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from statistics import fmean

from bothways import metrics, page, report
from bothways.model.model import Model
from bothways.page.markup import Unit
from bothways.settings import FineTune
from bothways.tasks.task import Figures, Task, at_work, peak_rate
from bothways.train.optim import depths_of
from bothways.train.state import Run

# All other figures are shares.
NUMBERS = "spearman pearson matthews mean_squared_error mean_absolute_error variance no_answer_threshold".split()
NO_SCORES = ("baseline", "loss", "queries", "rows")
Found = Mapping[int, Mapping[str, Figures]]  # of each seed by split


def draw(
    settings: FineTune, task: Task, run: Run, model: Model, found: Found, *, kept: int, failed: Sequence[int]
) -> None:
    """Write curves.png and report.html. model: that of the seed kept; failed: seeds."""
    rows, own = run.metrics(), found[kept]
    levels = {"baseline": own["dev"]["baseline"]}
    title = f"Fine-tuning, {task.name}"
    report.curves(rows, run.directory / "curves.png", title=title, levels=levels, metric=task.metric)
    unit, window = unit_of(task.metric), min(settings.window, model.config.max_position_embeddings)
    splits = sorted(own, key=lambda split: split != "test")  # the one reported on first
    seeds = [
        page.Seed(seed, {split: found[seed][split][task.metric] for split in splits}, seed in failed, seed == kept)
        for seed in found
    ]
    parts: list[page.Part] = [
        *([page.Seeds(task.metric, seeds, unit)] if len(seeds) > 1 else []),
        page.Curves(rows, task.metric, task.metric, unit),
        *task.parts(splits[0], task.outputs(at_work(model, settings), splits[0]), own),
        page.Lengths("train", task.lengths("train"), window, settings.long == "truncate"),
        page.Rates(rates(model, settings)),
    ]
    whole = page.Page(
        f"{run.directory.name}: {task.name}", f"{settings.model} fine-tuned on {settings.train}",
        [*scores_of(task, found, splits, unit), *others_of(task, own, splits)], parts,
        [*warnings_of(failed, len(seeds)), *few_rows(own, splits[0]), *task.warnings], facts_of(settings, run),
    )  # fmt: skip
    page.write(whole, run.directory / "report.html")


def scores_of(task: Task, found: Found, splits: Sequence[str], unit: Unit) -> Iterator[page.Score]:
    """Mean and spread of the metric over seeds, for each split."""
    for split in splits:
        values = [figures[split][task.metric] for figures in found.values()]
        bounds = [figures[split][f"{task.metric}_interval"] for figures in found.values()]
        low, high = map(fmean, zip(*bounds, strict=True))
        rows = next(figures[split]["rows"] for figures in found.values())
        mean, std = metrics.spread(values)
        yield page.Score(task.metric, split, mean, std, len(values), split == "dev", unit, (low, high), rows)


def others_of(task: Task, figures: Mapping[str, Figures], splits: Sequence[str]) -> Iterator[page.Score]:
    """The other figures of the seed kept."""
    for split in splits:
        for name, value in figures[split].items():
            if name not in (task.metric, *NO_SCORES) and not name.endswith("_interval"):
                bounds = figures[split].get(f"{name}_interval")
                yield page.Score(name, split, value, 0.0, 1, split == "dev", unit_of(name), bounds)


def few_rows(figures: Mapping[str, Figures], split: str) -> list[str]:
    few = metrics.few_rows_line(figures[split]["rows"], "rows", split)
    return [few] if few else []


def unit_of(name: str) -> Unit:
    whole = name.rsplit("_", 1)[0] if name[-1:].isdigit() else name  # spearman_64: of vectors of 64 numbers
    return "number" if whole in NUMBERS else "share"


def warnings_of(failed: Sequence[int], number: int) -> list[str]:
    return [f"{len(failed)} of {number} seeds were no better than a model that learned nothing"] if failed else []


def facts_of(settings: FineTune, run: Run) -> list[tuple[str, str]]:
    """What the run was told beside defaults, when it began, and by which versions it was done."""
    plain = {field.name: field.default for field in fields(settings)}
    usual = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
    told = [(name, str(value)) for name, value in run.made["settings"].items() if value != usual[name]]
    made_with = [(name, str(value)) for part in ("versions", "hardware") for name, value in run.made[part].items()]
    return [*told, ("started", str(run.made["started"])), *made_with]


def rates(model: Model, settings: FineTune) -> list[tuple[str, float, int]]:
    """(name, peak learning rate, parameters) of each part, from the embeddings to the head; 0 is frozen.

    eta_l = eta * layer_decay^(L - l) (Sun 2019, section 5.3).
    """
    depths = depths_of([name for name, _ in model.named_parameters()])
    last, sizes = max(depths.values()), Counter[int]()
    for name, value in model.named_parameters():
        sizes[depths[name]] += value.numel()
    layers = model.config.own_layers
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
