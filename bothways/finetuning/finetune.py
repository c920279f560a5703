"""What all fine-tuning shares (Devlin 2018, section 4): one training a seed, the weights kept that were best on dev,
every seed measured alike, their mean and spread (Dodge 2020; Mosbach 2021 on how few examples need more steps)."""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from safetensors.torch import load_file
from torch import Tensor

from bothways import metrics
from bothways.batch import Batch
from bothways.batching import batch_fingerprint, chunked, divide_evenly, epoch_order, token_batches
from bothways.checkpoint import checkpoint
from bothways.checkpoint.weights import WEIGHTS, write_weights
from bothways.data.datasets import unread_splits_warning
from bothways.device import STEPS_BEFORE_CAP, cap_retained_memory, choose_device, choose_dtype, retain_freed_memory
from bothways.errors import InputError
from bothways.finetuning import baselines
from bothways.finetuning.baselines import BASELINES
from bothways.finetuning.cross_validation import FOLDS, cross_validate
from bothways.finetuning.report import draw, rate_lines, rates
from bothways.finetuning.task import Examples, Figures, Task, at_work, peak_rate, with_bounds
from bothways.io import reserve_space, write_atomic
from bothways.log import logger, muted
from bothways.model.model import Model
from bothways.settings import FineTune
from bothways.training.loop import fit
from bothways.training.optimizer import layer_depths
from bothways.training.options import TrainingOptions
from bothways.training.progress import TrainingProgress
from bothways.training.run import MetricsCallback, Run
from bothways.training.run_checkpoints import FOLDER, Checkpoints

EPOCHS, LEAST_STEPS, MOST_EPOCHS = 3.0, 300, 20.0  # where none are asked for
BATCH_TOKENS = 2048  # likewise; more where so few examples would have a noisy gradient (Task.least_examples)
SEEDS, MODEL = "seeds", "model"
ROOM_BESIDE = 2**18  # bytes for a seed's figures and the header of its weights
NAMED_BY = 256  # examples at most whose tokens and labels name them all, and numbers of a tensor


@dataclass(frozen=True)
class Result:
    """Scores over seeds: mean and standard deviation of the metric on `split`, and how many were no better than a model
    that learned nothing.

    interval: where other rows would put the mean, with 95 % probability (each seed's bounds, averaged); None in runs
    of before. rows: how many rows the metric is of. pooled: in cross-validation the metric of the rows of all folds
    together, which the interval is of; None without. baselines: the metric of simple models on the same rows;
    verdict: whether this one is better than the best of them. frozen: whether the encoder of the model that is kept is
    that of the start, since no training of it did better on dev.
    """

    directory: Path
    model: Path
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


def fine_tuned(
    settings: FineTune, task_of: Callable[[int | None], Task], progress: MetricsCallback | None = None
) -> Result:
    """A whole run, in its directory. task_of: the task, or the one that trains on all folds but one, its test."""
    if (world := os.environ.get("WORLD_SIZE") or "1") != "1":
        raise InputError(f"fine-tuning is done by one process, not by {world} (WORLD_SIZE); start it without torchrun")
    task = task_of(None)
    verb = f"finetune {task.name}"
    with Run(settings.out, verb, settings, resume=settings.resume, progress=progress) as run:
        return over_seeds(settings, task, run, task_of)


def over_seeds(settings: FineTune, task: Task, run: Run, task_of: Callable[[int | None], Task] | None = None) -> Result:
    """One training a seed; the best or the median model by dev is kept. Scores are of test if there is one, else of
    dev, and say so; in cross-validation those of the folds, which are trained before."""
    if len(task.data["train"].sizes) < 2:
        way = "; read its sentences one by one (--no-context), or add some" if getattr(settings, "context", 0) else ""
        raise InputError(f"{settings.train}: one training example; at least two are needed to learn from{way}")
    refuse_others(settings, task, run)
    if "result" in run.metadata:
        logger.info(f"{run.directory}: its run is done")
        return result_of(run, task.name)
    logger.info(task.describe())
    split = "test" if "test" in task.data else "dev"
    if not settings.folds and (few := metrics.few_rows_warning(task.num_rows(split), "rows", split)):
        logger.info(few)
    if stays_frozen(settings, task):
        logger.info(frozen_line(task))
    elif line := epochs_line(settings, steps_per_epoch(settings, task)):
        logger.info(line)
    if line := unread_splits_warning(settings.train, settings.dev, settings.test):
        logger.info(line)
    validated, simple = None, []
    if settings.folds and task_of:
        train = partial(fitted, settings, run=run)
        place = run.directory / SEEDS
        validated = cross_validate(
            task, task_of, train, place, seed=settings.seed, folds=settings.folds, baselines=settings.baselines
        )
        logger.info("the model that is kept: trained on all folds, but for a tenth that it is chosen by")
    elif settings.baselines:
        with run.timed("baselines"):
            simple = baselines.scores(task, split, run.directory / SEEDS / BASELINES)
    seeds = range(settings.seed, settings.seed + settings.seeds)
    figures: dict[int, dict[str, Figures]] = {}
    for seed in seeds:
        with nullcontext() if seed == settings.seed else muted():
            begun = task.begin(seed)
        if seed == settings.seed and settings.layer_decay < 1:
            logger.info(rate_lines(rates(begun.model, settings)))
        elif seed == settings.seed and settings.learning_rate is None:
            config = begun.model.config
            peak = peak_rate(settings, config)
            logger.info(f"peak learning rate {peak:.1e}, for a width of {config.hidden_size} (--learning-rate)")
        figures[seed] = trained(settings, task, begun.model, seed, run)
        found = ", ".join(f"{name} {task.metric} {score[task.metric]:.4f}" for name, score in figures[seed].items())
        logger.info(f"seed {seed}: {found}")
    kept = choose({seed: figures[seed]["dev"][task.metric] for seed in seeds}, settings.keep_seed)
    begun.model.load_state_dict(load_file(_place(run, kept) / WEIGHTS))
    scores = [figures[seed][split][task.metric] for seed in seeds]
    mean, std = metrics.mean_and_std(scores)
    failed = [seed for seed in seeds if figures[seed][split][task.metric] <= figures[seed][split]["baseline"]]
    by_split = {name: [figures[seed][name][task.metric] for seed in seeds] for name in figures[kept]}
    bounds = [figures[seed][split][f"{task.metric}_interval"] for seed in seeds]
    result = {
        "interval": [*map(fmean, zip(*bounds, strict=True))], "rows": figures[kept][split]["rows"],
        "metric": task.metric, "split": split, "selected_on": "dev", "mean": mean, "std": std, "n": settings.seeds,
        "failed": len(failed), "scores": by_split, "kept": kept,
        "frozen": figures[kept]["dev"]["best_step"] == 0,
    }  # fmt: skip
    if validated:
        result |= validated.result(task.metric) | {"scores": {FOLDS: validated.values(task.metric), **by_split}}
        validated.write(run.directory)
    beside = None
    if settings.baselines:
        constants = validated.values("baseline") if validated else [figures[kept][split]["baseline"]]
        constant = baselines.Score(task.constant, fmean(constants), None)
        simple = [constant, *(baselines.means(validated.baselines) if validated else simple)]
        result["baselines"] = {one.name: one.value for one in simple}
        result["baseline_intervals"] = {one.name: one.interval for one in simple if one.interval}
        facts = {**run.origin, "result": result, **task.facts(figures[kept])}
        with run.timed("baselines"):
            saved = baselines.keep(task, result, run.directory / baselines.SAVED, replace(begun, metadata=facts))
        result["verdict"] = baselines.verdict(result, saved)
        beside = baselines.Beside(simple, result["verdict"])
    draw(
        settings, task, run, begun.model, figures, kept=kept, failed=failed, validated=validated, beside=beside,
    )  # fmt: skip
    task.finished(begun.model)
    facts = task.facts(figures[kept])
    checkpoint.save(replace(begun, metadata={**run.origin, "result": result, **facts}), run.directory / MODEL)
    run.update_metadata(result=result, figures=figures[kept])  # last, for with it the run is done
    shutil.rmtree(run.directory / SEEDS)
    return result_of(run, task.name)


def result_of(run: Run, task: str) -> Result:
    """What a run that is done came to."""
    found = run.metadata["result"]
    given = {name: found[name] for name in ("metric", "split", "mean", "std", "failed")}
    interval = tuple(found["interval"]) if "interval" in found else None
    scores = found["scores"][found["split"]]
    return Result(
        run.directory,
        run.directory / MODEL,
        task,
        **given,
        scores=scores,
        interval=interval,
        rows=found.get("rows"),
        baselines=found.get("baselines", {}),
        verdict=found.get("verdict", ""),
        pooled=found.get("pooled"),
        frozen=found.get("frozen", False),
    )


def refuse_others(settings: FineTune, task: Task, run: Run) -> None:
    """InputError where a run goes on with examples or with a model that are not those it began with."""
    read = {split: _fingerprint(examples) for split, examples in task.data.items()}
    begun = run.metadata.get("examples", read)
    if strange := [split for split in read if read[split] != begun.get(split)]:
        raise InputError(
            f"{run.directory}: its run began with other examples of {strange[0]}; give the same files, or name a new "
            "directory"
        )
    weights = digest(task.start.model)
    if run.metadata.get("start", weights) != weights:
        raise InputError(
            f"{run.directory}: {settings.model} holds other weights than when the run began; put those back, or name a "
            "new directory"
        )
    run.update_metadata(examples=read, start=weights, rows={split: task.num_rows(split) for split in read})


def trained(settings: FineTune, task: Task, model: Model, seed: int, run: Run) -> dict[str, Figures]:
    """The figures of one seed, whose weights are kept beside them until the run's end; a run that goes on finds those
    of seeds that were done. OSError before the training if the disk has no room for what it comes to."""
    figures = _place(run, seed) / "scores.json"
    if not figures.exists():
        figures.parent.mkdir(parents=True, exist_ok=True)
        room = figures.with_name("room")
        reserve_space(room, sum(value.nbytes for value in model.state_dict().values()) + ROOM_BESIDE)
        found = train_one(settings, task, model, seed, run)
        room.unlink()
        write_weights(model.state_dict(), figures.with_name(WEIGHTS))
        write_atomic(figures, json.dumps(found))
        shutil.rmtree(figures.with_name(FOLDER), ignore_errors=True)
    read: dict[str, Figures] = json.loads(figures.read_text(encoding="utf-8"))
    return read


def train_one(settings: FineTune, task: Task, model: Model, seed: int, run: Run) -> dict[str, Figures]:
    """One training from one seed, which leaves the model as it was when best on dev; its figures by split."""
    copy, best_step = fitted(settings, task, model, seed, run)
    found = {"dev": with_bounds(task, "dev", task.outputs(copy, "dev"))}
    if stays_frozen(settings, task):
        with run.timed("linear_start"):
            task.fit_head(model, on=("train", "dev"))
        copy = at_work(model, settings)
    elif best_step == 0:
        logger.info(f"seed {seed}: {task.step_0} was best on dev; kept")
    if "test" in task.data:
        found["test"] = with_bounds(task, "test", task.outputs(copy, "test"))
    return {split: {**figures, "best_step": best_step} for split, figures in found.items()}


def fitted(
    settings: FineTune, task: Task, model: Model, seed: int, run: Run, fold: int | None = None
) -> tuple[Model, int]:
    """The training itself, of a fold if that is named. The model is left as it was when best on dev; a copy of it as it
    predicts, and the step at which it was best."""
    device = choose_device("auto")
    if device.type == "cpu":
        retain_freed_memory()
    an_epoch = steps_per_epoch(settings, task, seed)

    def steps(first: int) -> Iterator[Sequence[Batch]]:
        for examples, rows in islice(all_steps(settings, task, seed), first, None):
            yield [examples.batch(part) for part in parts_of_step(settings, task, rows, examples.sizes)]

    options = TrainingOptions(
        steps=0 if stays_frozen(settings, task) else num_steps(settings, an_epoch),
        learning_rate=peak_rate(settings, model.config),
        schedule=settings.schedule, warmup=settings.warmup, weight_decay=settings.weight_decay,
        layer_decay=settings.layer_decay, max_grad_norm=settings.max_grad_norm,
        evaluate_every=max(1, round(an_epoch / settings.evaluations_per_epoch)), best_by=task.metric,
        evaluate_first=settings.linear_start and task.step_0 != "",
        checkpoint_every=settings.checkpoint_every, patience=settings.patience, seed=seed, device=device,
        dtype=choose_dtype(settings.dtype, device),
    )  # fmt: skip
    frozen = freeze(model, settings.freeze)
    place = _place(run, seed)
    checkpoints = Checkpoints(place, keep=1, order={"examples": _fingerprint(task.data["train"])}, at_end=False)
    start = checkpoints.load_latest(options.dtype) if (place / FOLDER).exists() else None
    run.truncate_metrics(start.progress.step if start else -1, seed)
    run.update_metadata(steps=options.steps, steps_per_epoch=an_epoch)
    if options.evaluate_first and start is None:
        with run.timed("linear_start"):
            task.fit_head(model)
    named = {"seed": seed} if fold is None else {"seed": seed, "fold": fold}
    training = f"seed {seed}" if fold is None else f"fold {fold + 1}"
    with TrainingProgress(f"fine-tuning, {training}", options.steps) as bar:

        def record(row: dict[str, Any]) -> None:
            run.log_metrics(**row, **named)
            if row["step"] == (start.progress.step if start else 0) + STEPS_BEFORE_CAP and device.type == "cpu":
                cap_retained_memory()
            bar.show(row)

        evaluate = lambda: task.measure(model, "dev")  # noqa: E731
        progress = fit(
            model, task.losses, task.counts, steps, options, evaluate=evaluate, record=record, checkpoints=checkpoints,
            start=start, fingerprint=batch_fingerprint,
        )  # fmt: skip
    model.load_state_dict(frozen, strict=False)  # as they were, not as bf16 has them
    return at_work(model, settings), progress.best_step


def steps_per_epoch(settings: FineTune, task: Task, seed: int = 0) -> int:
    return len(list(step_rows(settings, task, seed, 0, task.examples(seed, 0).sizes)))


def stays_frozen(settings: FineTune, task: Task) -> bool:
    """Whether the encoder is left as it is: of few examples dev would be too small to tell if training it helps."""
    given = settings.epochs is not None or settings.dev is not None or not settings.linear_start
    return not given and sum(task.num_rows(split) for split in ("train", "dev")) < task.few


def frozen_line(task: Task) -> str:
    rows = sum(task.num_rows(split) for split in ("train", "dev"))
    return (
        f"{rows} examples are too few to tell whether training the encoder helps: it stays as it is, and its linear "
        "head is fitted to all of them (dev is scored by one that has not seen it); --epochs 10 trains the encoder too"
    )


def passes(settings: FineTune, an_epoch: int) -> float:
    """The epochs asked for, else three, of few examples more: they need steps, not epochs (Mosbach 2021, section 6)."""
    return min(MOST_EPOCHS, max(EPOCHS, LEAST_STEPS / an_epoch)) if settings.epochs is None else settings.epochs


def num_steps(settings: FineTune, an_epoch: int) -> int:
    return max(1, math.ceil(passes(settings, an_epoch) * an_epoch))


def epochs_line(settings: FineTune, an_epoch: int) -> str:
    """How long the training is, where that is not three epochs; a warning where it is far too short for the data."""
    steps, usual = num_steps(settings, an_epoch), replace(settings, epochs=None)
    most, epochs = num_steps(usual, an_epoch), passes(usual, an_epoch)
    if settings.epochs is None:
        return f"{epochs:.3g} epochs of {an_epoch:,} steps, for so few examples (--epochs)" if epochs > EPOCHS else ""
    line = f"{settings.epochs:g} epochs are {steps:,} steps; without --epochs there are {most:,} ({epochs:.3g} epochs)"
    if steps < LEAST_STEPS and 2 * steps <= most:
        return f"warning: {line}; so few steps often leave a model that has learned little"
    return line if steps != most else ""


def all_steps(settings: FineTune, task: Task, seed: int) -> Iterator[tuple[Examples, list[int]]]:
    """The rows of each step, and the examples they are of, without end."""
    for epoch in count():
        examples = task.examples(seed, epoch)
        for rows in step_rows(settings, task, seed, epoch, examples.sizes):
            yield examples, rows


def step_rows(settings: FineTune, task: Task, seed: int, epoch: int, sizes: Sequence[int]) -> Iterator[list[int]]:
    """The rows of each step of one pass. sizes: tokens of each example in it."""
    order = epoch_order(len(sizes), seed=seed, epoch=epoch).tolist()
    if settings.batch_size:
        return chunked(order, settings.batch_size)
    return token_batches(order, sizes, settings.batch_tokens or max(BATCH_TOKENS, task.least_examples * fmean(sizes)))


def parts_of_step(settings: FineTune, task: Task, rows: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """A step's rows as micro-batches: as many as asked for, or more where those would hold too many tokens. sizes: as
    for step_rows."""
    for part in divide_evenly(rows, sizes, settings.gradient_accumulation):
        yield from token_batches(part, sizes, task.at_once)


def freeze(model: Model, parts: int) -> dict[str, Tensor]:
    """Leave so many parts, counted from the embeddings, out of training; their parameters, to be put back exactly."""
    depths = layer_depths([name for name, _ in model.named_parameters()])
    if parts > (most := model.config.num_unique_layers):
        raise InputError(f"freeze ({parts}) leaves no layer to train; at most {most} parts can be frozen")
    frozen = {name: value for name, value in model.named_parameters() if depths[name] < parts}
    for value in frozen.values():
        value.requires_grad_(False)
    return {name: value.detach().clone() for name, value in frozen.items()}


def choose(scores: Mapping[int, float], kept: str) -> int:
    """The seed whose score is highest, or in the middle (the lower of two)."""
    ranked = sorted(scores, key=lambda seed: (scores[seed], -seed))
    return ranked[-1] if kept == "best" else ranked[(len(ranked) - 1) // 2]


def _fingerprint(examples: Examples) -> str:
    """Names the training examples: the sizes of all, tokens and labels of some that are spread over them."""
    sizes = hashlib.sha256(np.array(examples.sizes).tobytes()).hexdigest()[:16]
    number = len(examples.sizes)
    return f"{sizes} {batch_fingerprint(examples.batch(range(0, number, -(-number // NAMED_BY))))}"


def digest(model: Model) -> str:
    """Names a model by some of the numbers of each of its tensors."""
    found = hashlib.sha256()
    for name, value in model.state_dict().items():
        flat = value.detach().flatten()
        found.update(name.encode() + flat[:: -(-len(flat) // NAMED_BY) or 1].float().cpu().numpy().tobytes())
    return found.hexdigest()[:16]


def _place(run: Run, seed: int) -> Path:
    """Where a seed's training is kept until all are done."""
    return run.directory / SEEDS / str(seed)
