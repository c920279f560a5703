"""Pruning: cut a fine-tuned model in steps, and train it after each with the model as it was as teacher.

`model -importance on texts-> cut -training with teacher-> smaller model -importance-> ... -> the target`
"""

import math
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bothways.checkpoint import checkpoint
from bothways.checkpoint.changes.cut import check_can_cut, cut
from bothways.checkpoint.changes.vocabulary import check_word_pieces, cut_vocabulary
from bothways.checkpoint.contents import Checkpoint, check_plain
from bothways.checkpoint.description import METADATA_FILE
from bothways.compression.cutting import Importance, encoder_weights, measure_importance
from bothways.config import EncoderConfig
from bothways.corpus.documents import Corpus
from bothways.device import choose_device, choose_dtype
from bothways.errors import InputError, format_count
from bothways.evaluation.before_after import spread_evenly
from bothways.finetuning import finetune
from bothways.finetuning.deliver import FineTuneResult
from bothways.io import read_json
from bothways.log import logger, muted, working
from bothways.model.model import Model
from bothways.model.prepacked import prepack
from bothways.settings.compress import Prune
from bothways.settings.finetune import FineTune
from bothways.tasks import TASKS, task_from_heads, task_of
from bothways.tasks.training_task import Examples, TrainingTask, inference_copy
from bothways.tokenizer.fast import BertBackend
from bothways.tokenizer.learn import count_words
from bothways.training.run import Run

COLUMNS = "text_column", "pair_column", "label_column", "encoding"
IMPORTANCE_ROWS, SPEED_ROWS, REPEATS = 512, 512, 5
WIDTH_STEP = 8  # widths are multiples of it
CUTS = 2  # to the target, if no layers are cut
SHRINKS = (0.75, 0.5, 0.35, 0.25, 0.15, 0.1)  # shares to try for --max-drop, if no layers can be cut
BETWEEN = 1 / 3  # epochs after a cut that is not the last, of those after the last
POINTS = "cuts"
CHANGED = 0.1  # predictions that a smaller model changes


@dataclass(frozen=True)
class Structure:
    """Sizes of a model: layers, heads and feed-forward neurons of each."""

    layers: int
    heads: int
    width: int

    @staticmethod
    def of(config: EncoderConfig) -> "Structure":
        return Structure(config.num_hidden_layers, config.num_attention_heads, config.intermediate_size)

    def __str__(self) -> str:
        sizes = (self.layers, "layer"), (self.heads, "head"), (self.width, "neuron")
        return ", ".join(format_count(*size) for size in sizes)

    def name(self, before: "Structure") -> str:
        """What has changed: '3 of 6 layers, 512 of 1,536 neurons'."""
        kinds = {"layers": "layers", "heads": "heads", "width": "neurons"}
        pairs = [(getattr(self, field), getattr(before, field), kind) for field, kind in kinds.items()]
        changed = [f"{after:,} of {whole:,} {kind}" for after, whole, kind in pairs if after != whole]
        return ", ".join(changed) or str(self)


@dataclass(frozen=True)
class PrunedPoint:
    """A model on the way: its sizes, weights of its layers relative to the original, all parameters, texts per second
    relative to the original, and its score, that of the original, and the drop between them in points, by split."""

    structure: str
    share: float
    parameters: int
    speed: float
    score: float
    original: float
    drop: float
    dev_drop: float


@dataclass(frozen=True)
class Pruned:
    """The result of a pruning. points: all that were measured; kept: index of the one in `model`. plain: whether other
    libraries read it."""

    directory: Path
    model: Path
    metric: str
    split: str
    points: list[PrunedPoint]
    kept: int
    plain: bool
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "directory": str(self.directory), "model": str(self.model)}

    def as_table(self) -> list[str]:
        """The points, one a line."""
        lines = []
        if self.points:
            first = self.points[0]
            lines.append(f"{'':34} {'weights':>8} {'speed':>6} {self.metric:>9} {'drop':>6}   ({self.split})")
            lines.append(f"{'before':34} {'100 %':>8} {'1.00':>6} {100 * first.original:9.2f}")
        for index, point in enumerate(self.points):
            mark = "  <- kept" if index == self.kept and len(self.points) > 1 else ""
            lines.append(
                f"{point.structure:34} {point.share:8.0%} {point.speed:6.2f} {100 * point.score:9.2f} "
                f"{point.drop:6.2f}{mark}"
            )
        readers = "" if self.plain else "; only Bothways reads it, since heads are missing (export and ONNX excepted)"
        return [*lines, *([self.note] if self.note else []), f"model in {self.directory}{readers}"]


# --- targets ----------------------------------------------------------------------------------------------------------


def choose_parts(settings: Prune, config: EncoderConfig, model_type: str) -> tuple[str, ...]:
    """What is cut. InputError for a part that the model cannot lose."""
    for part in settings.parts:
        check_can_cut(config, model_type, part)
    if settings.parts:
        return settings.parts
    check_can_cut(config, model_type, "feed-forward")
    try:
        check_can_cut(config, model_type, "layers")
    except InputError:
        return ("feed-forward",)
    return "layers", "feed-forward"


def structure_of_share(config: EncoderConfig, share: float, parts: Sequence[str]) -> Structure:
    """The sizes with this share of the layers' weights: layers go first, since they give the most speed; the rest is
    taken from heads and neurons. InputError if these parts do not have so much."""
    layers, whole = config.num_hidden_layers, encoder_weights(config)
    if "layers" in parts:
        layers = max(1, math.ceil(share * layers - 1e-6))
    rest = share * config.num_hidden_layers / layers
    heads, width = config.num_attention_heads, config.intermediate_size
    if rest < 1 - 1e-6 and {"heads", "feed-forward"} & {*parts}:
        target = share * whole
        for step in range(1, 1001):
            kept = 1 - step / 1000
            if "heads" in parts:
                heads = max(1, round(kept * config.num_attention_heads))
            if "feed-forward" in parts:
                width = max(WIDTH_STEP, round(kept * config.intermediate_size / WIDTH_STEP) * WIDTH_STEP)
            if weights_of(config, Structure(layers, heads, width)) <= target:
                break
    found = Structure(layers, heads, width)
    actual = weights_of(config, found) / whole
    if actual > share + 0.5 / config.num_hidden_layers:
        raise InputError(
            f"size ({share:g}) cannot be reached by cutting {' and '.join(parts)}: the least is {actual:.2f}; allow "
            "more with --parts"
        )
    return found


def weights_of(config: EncoderConfig, structure: Structure) -> int:
    return encoder_weights(sized(config, structure))


def sized(config: EncoderConfig, structure: Structure) -> EncoderConfig:
    changes: dict[str, int] = {"intermediate_size": structure.width}
    if structure.layers < config.num_hidden_layers:
        changes["num_hidden_layers"] = structure.layers
    if structure.heads < config.num_attention_heads:
        changes |= {"num_attention_heads": structure.heads, "attention_head_size": config.head_size}
    return config.replace(**changes)


def structures_to(
    start: EncoderConfig, target: Structure, parts: Sequence[str], cuts: int | None
) -> Iterator[Structure]:
    """The structures on the way to the target."""
    first = Structure.of(start)
    count = cuts or (first.layers - target.layers if target.layers < first.layers else CUTS)
    for step in range(1, count + 1):
        done = step / count

        def between(before: int, after: int, multiple: int = 1, done: float = done) -> int:
            value = before + (after - before) * done
            return after if done == 1 else max(after, round(value / multiple) * multiple)

        yield Structure(
            between(first.layers, target.layers),
            between(first.heads, target.heads),
            between(first.width, target.width, WIDTH_STEP),
        )


def structure_of_speed(source: Checkpoint, examples: Examples, settings: Prune, parts: Sequence[str]) -> Structure:
    """The largest sizes that are fast enough, by measuring cut models before any training."""
    config, assumed = source.model.config, settings.speed or 1.0
    steps = 2 * config.num_hidden_layers
    fastest = 1.0
    for step in range(1, steps):
        try:
            structure = structure_of_share(config, 1 - step / steps, parts)
        except InputError:
            break
        fastest = measure_speed(source.model, first_parts(source, structure).model, examples, settings)
        if fastest >= assumed:
            return structure
    raise InputError(f"speed ({assumed:g}) cannot be reached by cutting {' and '.join(parts)}: {fastest:.2f} at most")


def first_parts(source: Checkpoint, structure: Structure) -> Checkpoint:
    """A model of these sizes, whatever it computes."""
    layers = range(structure.layers)
    heads, neurons = [range(structure.heads)] * len(layers), [range(structure.width)] * len(layers)
    return cut(source, layers=layers, heads=heads, neurons=neurons)


def measure_speed(original: Model, smaller: Model, examples: Examples, settings: Prune) -> float:
    """Texts per second of a model relative to another, in turn on the same texts."""
    device = choose_device(settings.device)
    models = [inference_copy(model, device, choose_dtype(settings.dtype, device)) for model in (original, smaller)]
    rows = spread_evenly(range(len(examples.sizes)), SPEED_ROWS)
    order = sorted(rows, key=examples.sizes.__getitem__)
    batches = [examples.batch(order[start : start + 32]).to(device) for start in range(0, len(order), 32)]
    encoders = [prepack(model) for model in models]
    seconds: list[list[float]] = [[], []]
    with torch.inference_mode():
        for _ in range(REPEATS):
            for encode, times in zip(encoders, seconds, strict=True):
                start_time = time.perf_counter()
                for batch in batches:
                    encode(batch)
                times.append(time.perf_counter() - start_time)
    return median(seconds[0]) / median(seconds[1])


# --- the run ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pruner:
    """A pruning in progress. original: the model as it was; build: a task around a model, from the settings of a
    training."""

    settings: Prune
    original: Checkpoint
    task_settings: FineTune
    run: Run

    def build(self, settings: FineTune, pretrained: Checkpoint) -> TrainingTask:
        return task_of(settings).train(settings, pretrained, None)

    def importance(self, source: Checkpoint) -> Importance:
        """Of the parts of a model, measured on labelled training texts."""
        with muted():
            reader = self.build(self.task_settings, source).read_by(source)
        examples = reader.data["train"]
        rows = spread_evenly(range(len(examples.sizes)), IMPORTANCE_ROWS)
        copy = inference_copy(reader.pretrained.model, choose_device(self.settings.device), torch.float32)
        for value in copy.parameters():
            value.requires_grad_(True)
        return measure_importance(copy, reader.objective, examples, rows, choose_device(self.settings.device))

    def cut(self, source: Checkpoint, structure: Structure) -> Checkpoint:
        """Cut a model to these sizes, the least important parts first."""
        config = source.model.config
        before = Structure.of(config)
        by_layer = self.settings.drop_layers == "importance" and structure.layers < before.layers
        needs = by_layer or (structure.heads, structure.width) != (before.heads, before.width)
        importance = self.importance(source) if needs else Importance()
        layers = [*range(structure.layers)]
        if by_layer:
            ranked = sorted(range(before.layers), key=lambda layer: -importance.layers[layer])
            layers = sorted(ranked[: structure.layers])
        heads = importance.best_heads(structure.heads, layers) if structure.heads < before.heads else None
        neurons = importance.best_neurons(structure.width, layers) if structure.width < before.width else None
        return cut(source, layers=layers, heads=heads, neurons=neurons)

    def train(self, number: int, source: Checkpoint, *, is_last: bool) -> tuple[FineTuneResult, Checkpoint]:
        """Train a cut model; returns the result, and the model with its head."""
        settings, out = self.task_settings, self.settings.out / POINTS / str(number)
        epochs = self.settings.epochs
        if not is_last:
            epochs = 1.0 if epochs is None else epochs * BETWEEN
        settings = replace(settings, out=out, resume=out.exists(), epochs=epochs)
        self.run.has_stepped = True  # from here on there is something to resume
        result = finetune.run(settings, start=source)
        return result, checkpoint.load(result.model)

    def point(self, result: FineTuneResult, model: Checkpoint, structure: str, examples: Examples) -> PrunedPoint:
        scores = read_json(result.directory / METADATA_FILE)["result"]["scores"]
        original = result.teacher[result.split]
        dev_drop = 100 * (result.teacher.get("dev", original) - scores["dev"][0])
        return PrunedPoint(
            structure,
            share=encoder_weights(model.model.config) / encoder_weights(self.original.model.config),
            parameters=sum(value.numel() for value in model.model.parameters()),
            speed=measure_speed(self.original.model, model.model, examples, self.settings),
            score=result.mean,
            original=original,
            drop=100 * (original - result.mean),
            dev_drop=dev_drop,
        )


@working("prune")
def run(settings: Prune) -> Pruned:
    """Prune, train, measure and write. InputError if the target cannot be reached."""
    loaded, task_settings, task, targets = prepare(settings)
    with Run(settings.out, "prune", settings, resume=settings.resume, device=choose_device(settings.device)) as opened:
        pruner = Pruner(settings, loaded, task_settings, opened)
        smaller = shrink_vocabulary(settings, loaded) if settings.vocabulary_from else loaded
        result = follow(pruner, smaller, targets, task)
        opened.update_metadata(result={**result.as_json(), "kept": result.kept})
    return result


def prepare(settings: Prune) -> tuple[Checkpoint, FineTune, TrainingTask, list[Structure]]:
    """The model, the settings of the trainings, the task around the model, and the structures to cut to.

    InputError for a model that has not been fine-tuned, or cannot lose what is to be cut."""
    loaded = checkpoint.load(settings.model)
    check_plain(loaded.model)
    name = task_from_heads(loaded.model.num_outputs, loaded)
    if not TASKS[name].is_trained:
        raise InputError(
            f"{settings.model}: a model for {name} cannot be pruned here; name a fine-tuned one, or make a smaller "
            "pre-trained one: bothways distill MODEL TEXT --layers 3"
        )
    parts = choose_parts(settings, loaded.model.config, loaded.model_type)
    task_settings = settings_of_task(settings, loaded, TASKS[name].settings_class)
    task = TASKS[name].load().train(task_settings, loaded, None)
    warn_of_known_rows(settings, loaded)
    warn_of_few_rows(settings, task)
    return loaded, task_settings, task, list(plan(settings, loaded, task, parts))


def settings_of_task(settings: Prune, loaded: Checkpoint, kind: type[FineTune]) -> FineTune:
    """The settings of the trainings between cuts. Columns that are not named are those of the model's own training."""
    known = {field.name for field in fields(kind)}
    columns = {name: getattr(settings, name) or loaded.settings.get(name) for name in COLUMNS}
    options: dict[str, Any] = {name: value for name, value in columns.items() if name in known and value}
    options |= {name: loaded.settings[name] for name in ("window", "long", "metric") if loaded.settings.get(name)}
    if "multi_label" in known:
        options["multi_label"] = loaded.multi_label
    return kind(
        model=settings.model,
        train=settings.texts,
        dev=settings.dev,
        test=settings.test,
        out=settings.out,
        teacher=settings.model,
        alpha=settings.alpha,
        seed=settings.seed,
        device=settings.device,
        dtype=settings.dtype,
        baselines=False,
        **{name: value for name, value in options.items() if name in known},
    )


def warn_of_known_rows(settings: Prune, loaded: Checkpoint) -> None:
    """A warning if the model has been trained on the rows that are split off for the score."""
    recorded = loaded.settings
    same = str(recorded.get("train")) == str(settings.texts)
    split_as_now = not recorded.get("dev") and not recorded.get("test") and recorded.get("seed", 0) == settings.seed
    if same and not settings.test and not split_as_now:
        logger.warning(
            f"{settings.texts}: the model was trained on these rows, so its own score on a part of them is too high; "
            "name other labelled rows with --test"
        )


def warn_of_few_rows(settings: Prune, task: TrainingTask) -> None:
    """A warning if dev is too small for the drop that is allowed: of a difference between two models, a tenth of whose
    predictions differ, the 95 % interval is about 1.96 sqrt(0.1 / rows)."""
    rows = task.summary.num_rows("dev")
    doubt = 196 * math.sqrt(CHANGED / rows)
    if settings.max_drop is not None and doubt > settings.max_drop:
        logger.warning(
            f"dev has {format_count(rows, 'row')}, where a drop is known to about +- {doubt:.1f} points, more than the "
            f"{settings.max_drop:g} allowed; give more with --dev, and look at the drop on other rows (--test)"
        )


def plan(settings: Prune, loaded: Checkpoint, task: TrainingTask, parts: Sequence[str]) -> Iterator[Structure]:
    """The structures to cut to, one after the other; none for a cut of the vocabulary alone."""
    config = loaded.model.config
    if settings.max_drop is not None:
        layers = config.num_hidden_layers
        shares = [count / layers for count in range(layers - 1, 0, -1)] if "layers" in parts else SHRINKS
        for share in shares:
            yield structure_of_share(config, share, parts)
    elif settings.size is not None:
        yield from structures_to(config, structure_of_share(config, settings.size, parts), parts, settings.cuts)
    elif settings.speed is not None:
        target = structure_of_speed(loaded, task.data["dev"], settings, parts)
        yield from structures_to(config, target, parts, settings.cuts)


def shrink_vocabulary(settings: Prune, loaded: Checkpoint) -> Checkpoint:
    tokenizer = loaded.need_tokenizer()
    check_word_pieces(tokenizer, "vocabulary_from")
    assert isinstance(tokenizer.backend, BertBackend)
    corpus = Corpus((*settings.vocabulary_from, settings.texts), column=settings.text_column or "text")
    smaller = cut_vocabulary(loaded, count_words(corpus.documents(), tokenizer.backend.splitter))
    logger.info(f"vocabulary: {smaller.model.config.vocab_size:,} of {len(tokenizer):,} entries")
    return smaller


def follow(pruner: Pruner, smaller: Checkpoint, targets: Sequence[Structure], task: TrainingTask) -> Pruned:
    """Cut and train from structure to structure, and write the last one, or with --max-drop the last one within it."""
    settings, current, points = pruner.settings, smaller, list[PrunedPoint]()
    kept, best = -1, smaller
    metric, split = task.metric, "test" if "test" in task.data else "dev"
    for number, structure in enumerate(targets):
        logger.info(f"cut {number + 1} of {len(targets)}: {structure}")
        is_last = settings.max_drop is not None or number + 1 == len(targets)
        result, current = pruner.train(number, pruner.cut(current, structure), is_last=is_last)
        name = structure.name(Structure.of(pruner.original.model.config))
        points.append(pruner.point(result, current, name, task.data["dev"]))
        logger.info(pruned_line(points[-1], metric))
        if settings.max_drop is not None and points[-1].dev_drop > settings.max_drop:
            break
        kept, best = number, current
    if targets and kept < 0:
        raise InputError(
            f"the first cut loses {points[0].dev_drop:.2f} points of {metric} on dev, more than max_drop "
            f"({settings.max_drop:g}); nothing was written besides {settings.out / POINTS}; allow more, or give more "
            "texts"
        )
    before, after = (one.model.config.vocab_size for one in (pruner.original, best))
    note = f"vocabulary: {after:,} of {before:,} entries" if after < before else ""
    return save(pruner, best, points, kept, metric, split, note)


def pruned_line(point: PrunedPoint, metric: str) -> str:
    return (
        f"{point.structure}: {100 * point.score:.2f} {metric} ({point.drop:+.2f} lost), {point.share:.0%} of the "
        f"weights, {point.speed:.2f} times as fast"
    )


def save(
    pruner: Pruner, best: Checkpoint, points: list[PrunedPoint], kept: int, metric: str, split: str, note: str
) -> Pruned:
    out = pruner.settings.out
    record = {"from": str(pruner.settings.model), "points": [*map(asdict, points)], "kept": kept}
    metadata = {**best.metadata, "verb": "prune", "prune": record}
    checkpoint.save(replace(best, metadata=metadata), out / "model")
    if points and (report := out / POINTS / str(kept) / "report.html").exists():
        shutil.copy(report, out / "report.html")
    shutil.rmtree(out / POINTS, ignore_errors=True)
    plain = best.model.config.attention_head_size is None
    return Pruned(out, out / "model", metric, split, points, kept, plain, note)
