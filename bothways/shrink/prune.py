"""Pruning: cut a fine-tuned model in steps, and retrain it after each cut, with the original model as teacher.
Shrinking: measure each cut model in int8 too, and keep the fastest or smallest within a stated loss.

`model -importance on texts-> cut -training with teacher-> smaller model -importance-> ... -> the target`
"""

import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import torch

from bothways.base.device import choose_device
from bothways.base.errors import InputError, flag, format_count
from bothways.base.log import logger, muted, working
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.cut import (
    check_can_cut,
    check_word_pieces,
    cut,
    cut_config,
    cut_vocabulary,
    reason_against_cutting,
)
from bothways.model.checkpoint.changes.pack import with_int8
from bothways.model.checkpoint.contents import Checkpoint, check_plain
from bothways.model.config import EncoderConfig
from bothways.model.int8_training import CALIBRATION_EXAMPLES, calibrate, read_examples
from bothways.model.parameters import inference_copy
from bothways.settings.deploy import Prune, Shrink
from bothways.settings.finetune import FineTune
from bothways.shrink import candidates
from bothways.shrink.cutting import Importance, encoder_weights, measure_importance
from bothways.tasks import TASKS, task_from_heads, task_of
from bothways.tasks.training_task import TrainingTask
from bothways.text.batching import spread_evenly
from bothways.text.corpus.documents import Corpus
from bothways.text.tokenizer.fast import BertBackend
from bothways.text.tokenizer.learn import count_words
from bothways.training.distributed import check_single_process
from bothways.training.finetuning import finetune
from bothways.training.run import Run

COLUMNS = "text_column", "pair_column", "label_column", "encoding"
IMPORTANCE_ROWS = 512
WIDTH_STEP = 8  # widths are multiples of it
CUTS = 2  # to the target, if no layers are cut
SHARES = (0.75, 0.5, 0.35, 0.25, 0.15, 0.1)  # to try for --max-drop, if no layers can be cut
BETWEEN = 1 / 3  # epochs after a cut that is not the last, of those after the last
STEPS = "cuts"  # directory of the trainings
CHANGED = 0.1  # predictions that a smaller model changes
UNCHANGED = "as it was"


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
        """A description of the cut: '3 of 6 layers, 512 of 1,536 neurons'."""
        kinds = {"layers": "layers", "heads": "heads", "width": "neurons"}
        pairs = [(getattr(self, field), getattr(before, field), kind) for field, kind in kinds.items()]
        changed = [f"{after:,} of {whole:,} {kind}" for after, whole, kind in pairs if after != whole]
        return ", ".join(changed) or str(self)


# --- targets ----------------------------------------------------------------------------------------------------------


def choose_parts(parts: tuple[str, ...], config: EncoderConfig, model_type: str) -> tuple[str, ...]:
    """The parts to cut, by default layers and neurons. InputError for a part that cannot be cut."""
    for part in parts or ("feed-forward",):
        check_can_cut(config, model_type, part)
    return parts or (("feed-forward",) if reason_against_cutting(config, "layers") else ("layers", "feed-forward"))


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
    structure = Structure(layers, heads, width)
    actual = weights_of(config, structure) / whole
    if actual > share + 0.5 / config.num_hidden_layers:
        raise InputError(
            f"size ({share:g}) cannot be reached by cutting {' and '.join(parts)}: the least is {actual:.2f}; allow "
            f"more with {flag('parts')}"
        )
    return structure


def weights_of(config: EncoderConfig, structure: Structure) -> int:
    return encoder_weights(cut_config(config, structure.layers, structure.heads, structure.width))


def structures_to(start: EncoderConfig, target: Structure, cuts: int | None) -> Iterator[Structure]:
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


def smaller_and_smaller(config: EncoderConfig, parts: Sequence[str]) -> Iterator[Structure]:
    """Structures of fewer and fewer layers, or neurons if these parts have no layers."""
    layers = config.num_hidden_layers
    shares = [count / layers for count in range(layers - 1, 0, -1)] if "layers" in parts else SHARES
    for share in shares:
        yield structure_of_share(config, share, parts)


def structure_of_speed(source: Checkpoint, sample: candidates.Sample, speed: float, parts: Sequence[str]) -> Structure:
    """The largest sizes that are fast enough, by measuring cut models before any training."""
    steps, fastest = 2 * source.model.config.num_hidden_layers, 1.0
    for step in range(1, steps):
        try:
            structure = structure_of_share(source.model.config, 1 - step / steps, parts)
        except InputError:
            break
        fastest = candidates.relative_speed(
            sample, *(candidate("", one) for one in (source, first_parts(source, structure)))
        )
        if fastest >= speed:
            return structure
    raise InputError(f"speed ({speed:g}) cannot be reached by cutting {' and '.join(parts)}: {fastest:.2f} at most")


def first_parts(source: Checkpoint, structure: Structure) -> Checkpoint:
    """A model of these sizes, whatever it computes."""
    layers = range(structure.layers)
    heads, neurons = [range(structure.heads)] * len(layers), [range(structure.width)] * len(layers)
    return cut(source, layers=layers, heads=heads, neurons=neurons)


# --- candidates -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PruningPlan:
    """Arguments of the sources of `prune` and `shrink`.

    original: the unchanged model. start: the model to cut, perhaps with a smaller vocabulary. task: around the model.
    training: settings of the training after the last cut, in whose directory are all. targets: the structures to cut
    to, one after the other.
    """

    original: Checkpoint
    start: Checkpoint
    task: TrainingTask
    training: FineTune
    targets: Sequence[Structure]
    rule: candidates.Rule
    run: Run | None = None

    def read(self, source: Checkpoint) -> TrainingTask:
        """The task as a fine-tuned model reads it."""
        with muted():
            return task_of(self.training).train(self.training, source, None).read_by(source)

    def cut(self, source: Checkpoint, structure: Structure) -> Checkpoint:
        """Cut a model to these sizes, the least important parts first."""
        before = Structure.of(source.model.config)
        needs = (structure.heads, structure.width) != (before.heads, before.width)
        importance = self.importance(source) if needs else Importance()
        layers = [*range(structure.layers)]
        heads = importance.best_heads(structure.heads, layers) if structure.heads < before.heads else None
        neurons = importance.best_neurons(structure.width, layers) if structure.width < before.width else None
        return cut(source, layers=layers, heads=heads, neurons=neurons)

    def importance(self, source: Checkpoint) -> Importance:
        """Of the parts of a model, measured on labelled training texts."""
        reader, device = self.read(source), choose_device(self.training.device)
        examples = reader.data["train"]
        rows = spread_evenly(range(len(examples.sizes)), IMPORTANCE_ROWS)
        copy = inference_copy(reader.pretrained.model, device, torch.float32)
        for value in copy.parameters():
            value.requires_grad_(True)
        return measure_importance(copy, reader.objective, examples, rows, device)

    def train(self, number: int, source: Checkpoint, **changes: Any) -> Checkpoint:
        """Train a cut model; returns it with its head. changes: of the settings."""
        out = self.training.out / STEPS / str(number)
        if self.run:
            self.run.has_stepped = True  # from here on there is something to resume
        settings = replace(self.training, out=out, resume=out.exists(), **changes)
        result = finetune.run(settings, start=source)
        return checkpoint.load(result.model_directory)


def candidate(name: str, source: Checkpoint) -> candidates.Candidate:
    return candidates.Candidate(name, source, candidates.num_bytes(source.model))


def cuts(plan: PruningPlan, measured: Sequence[candidates.Measured]) -> Iterator[candidates.Candidate]:
    """The unchanged model, and smaller ones until one loses more than the rule allows."""
    yield candidate(UNCHANGED, plan.original)
    source, whole, number_of_cuts = plan.start, Structure.of(plan.original.model.config), len(plan.targets)
    if not plan.targets:
        yield candidate(vocabulary_note(plan.original, source) or "whole vocabulary", source)
    for number, structure in enumerate(plan.targets, 1):
        logger.info(f"cut {number} of {'at most ' * plan.rule.is_limited}{number_of_cuts}: {structure}")
        epochs = plan.training.epochs
        if not plan.rule.is_limited and number < number_of_cuts:
            epochs = 1.0 if epochs is None else epochs * BETWEEN
        source, position = plan.train(number, plan.cut(source, structure), epochs=epochs), len(measured)
        yield candidate(structure.name(whole), source)
        if not plan.rule.allows(measured[position]):
            return


def cuts_and_int8(plan: PruningPlan, measured: Sequence[candidates.Measured]) -> Iterator[candidates.Candidate]:
    """The unchanged model and smaller ones, each in float and in int8, until one loses too much; last, the smallest
    that does not, trained for int8, if int8 alone loses too much."""
    untrained: candidates.Candidate | None = None
    for one in cuts(plan, measured):
        yield one
        if not plan.rule.allows(measured[-1]):
            break
        name = "all layers" if one.name == UNCHANGED else one.name
        yield candidate(f"{name}, int8", in_int8(plan, one.checkpoint))
        untrained = None if plan.rule.allows(measured[-1]) else replace(one, name=name)
    if untrained:
        trained = plan.train(len(plan.targets) + 1, untrained.checkpoint, quantize="int8")
        yield candidate(f"{untrained.name}, trained for int8", trained)


def in_int8(plan: PruningPlan, source: Checkpoint) -> Checkpoint:
    """All layers in int8, calibrated on training texts."""
    model, examples = source.model.float().eval(), plan.task.data["train"]
    rows = spread_evenly(range(len(examples.sizes)), CALIBRATION_EXAMPLES)
    layers = calibrate(model, partial(read_examples, model, plan.task.objective.forward, examples, rows))
    return with_int8(source, {name: one.linear for name, one in layers.items()})


def vocabulary_note(before: Checkpoint, after: Checkpoint) -> str:
    sizes = [one.model.config.vocab_size for one in (after, before)]
    return f"vocabulary: {sizes[0]:,} of {sizes[1]:,} entries" if sizes[0] < sizes[1] else ""


# --- the run ----------------------------------------------------------------------------------------------------------


@working("prune")
def run(settings: Prune) -> candidates.Choice:
    """Prune, train, measure and write. InputError if the target cannot be reached."""
    return keep_best("prune", settings, plan(settings))


@working("shrink")
def shrink(settings: Shrink) -> candidates.Choice:
    """Measure the forms of a model, and write the best and a picture."""
    pruning = plan(settings.pruning)
    rule = candidates.Rule(settings.max_drop, settings.best)
    return keep_best("shrink", settings, replace(pruning, start=pruning.original, rule=rule))


def keep_best(verb: str, settings: Any, plan: PruningPlan) -> candidates.Choice:
    """Measure all candidates of a verb, and write the best and a picture. settings: to record.

    InputError if candidates must be smaller, and the first loses too much."""
    training, rule, out = plan.training, plan.rule, plan.training.out
    with Run(out, verb, settings, resume=training.resume, device=choose_device(training.device)) as opened:
        dev = candidates.TaskSplit(plan.task, "dev", plan.read)
        split = "test" if "test" in plan.task.data else "dev"
        reported = replace(dev, split=split) if split != "dev" else dev
        measured, best = candidates.compare(verb, replace(plan, run=opened), (dev, reported), rule)
        kept = candidates.choose(measured, rule)
        if rule.best == "last" and kept == 0:
            raise InputError(
                f"the first cut loses {measured[1].dev_drop.points:.2f} points of {plan.task.metric} on dev, more than "
                f"max_drop ({rule.max_drop:g}); nothing was written besides {out / STEPS}; allow more, or give more "
                "texts"
            )
        is_plain = best.checkpoint.model.config.attention_head_size is None
        readers = "" if is_plain else "only Bothways reads it, since heads are missing (export and ONNX excepted)"
        notes = tuple(note for note in (vocabulary_note(plan.original, best.checkpoint), readers) if note)
        rows = plan.task.summary.num_rows(split)
        choice = candidates.Choice(out, out / "model", split, rows, rule, measured, kept, notes)
        record = {"verb": verb, verb: {"from": str(training.model), **choice.record}}
        metadata = {**best.checkpoint.metadata, **record}
        checkpoint.save(replace(best.checkpoint, metadata=metadata), choice.model)
        if (report := out / STEPS / str(kept) / "report.html").exists() and rule.best == "last":
            shutil.copy(report, out / "report.html")
        shutil.rmtree(out / STEPS, ignore_errors=True)
        choice = replace(choice, picture=choice.draw(out / f"{verb}.svg"))
        opened.update_metadata(result=choice.as_json())
    return choice


def plan(settings: Prune) -> PruningPlan:
    """The model, the settings of the trainings, the task around the model, and the structures to cut to.

    InputError for a model that has not been fine-tuned, or cannot lose what is to be cut."""
    check_single_process("pruning")
    loaded = checkpoint.load(settings.model)
    check_plain(loaded.model)
    name, config = task_from_heads(loaded.model.num_outputs, loaded), loaded.model.config
    if not TASKS[name].is_trained:
        raise InputError(
            f"{settings.model}: a model for {name} cannot be pruned here; name a fine-tuned one, or make a smaller "
            "pre-trained one: bothways distill MODEL TEXT --layers 3"
        )
    parts = choose_parts(settings.parts, config, loaded.model_type)
    shared = ("model", "dev", "test", "out", "alpha", "epochs", "seed", "device", "dtype", "resume")
    training = TASKS[name].settings_class(
        train=settings.texts,
        teacher=settings.model,
        baselines=False,
        **{name: getattr(settings, name) for name in shared},
        **recorded_options(TASKS[name].settings_class, loaded, {name: getattr(settings, name) for name in COLUMNS}),
    )
    task = TASKS[name].load().train(training, loaded, None)
    warn_of_known_rows(training, loaded)
    targets, limit = list[Structure](), math.inf
    if settings.max_drop is not None:
        warn_of_few_rows(task, limit := settings.max_drop)
        targets = [*smaller_and_smaller(config, parts)]
    elif settings.size is not None:
        targets = [*structures_to(config, structure_of_share(config, settings.size, parts), settings.cuts)]
    elif settings.speed is not None:
        sample = candidates.TaskSplit(task, "dev", lambda source: task)
        targets = [*structures_to(config, structure_of_speed(loaded, sample, settings.speed, parts), settings.cuts)]
    start = loaded
    if settings.vocabulary_from:
        texts = Corpus((*settings.vocabulary_from, settings.texts), column=settings.text_column or "text")
        start = shrink_vocabulary(loaded, texts)
    return PruningPlan(task.read_by(loaded).pretrained, start, task, training, targets, candidates.Rule(limit))


def recorded_options(kind: type[FineTune], loaded: Checkpoint, columns: dict[str, Any]) -> dict[str, Any]:
    """Settings of the model's own training that go on; of its columns those that are not named now."""
    options = {name: value or loaded.settings.get(name) for name, value in columns.items()}
    options |= {name: loaded.settings.get(name) for name in ("window", "long", "metric")}
    options |= {"multi_label": loaded.multi_label}
    known = {field.name for field in fields(kind)}
    return {name: value for name, value in options.items() if name in known and value}


def warn_of_known_rows(training: FineTune, loaded: Checkpoint) -> None:
    """A warning if the model has been trained on the rows that are split off for the score."""
    recorded = loaded.settings
    same = str(recorded.get("train")) == str(training.train)
    split_as_now = not recorded.get("dev") and not recorded.get("test") and recorded.get("seed", 0) == training.seed
    if same and not training.test and not split_as_now:
        logger.warning(
            f"{training.train}: the model was trained on these rows, so its own score on a part of them is too high; "
            f"name other labelled rows with {flag('test')}"
        )


def warn_of_few_rows(task: TrainingTask, max_drop: float) -> None:
    """A warning if dev is too small for the drop that is allowed: of a difference between two models, a tenth of whose
    predictions differ, the 95 % interval is about 1.96 sqrt(0.1 / rows)."""
    rows = task.summary.num_rows("dev")
    doubt = 196 * math.sqrt(CHANGED / rows)
    if doubt > max_drop:
        logger.warning(
            f"dev has {format_count(rows, 'row')}, where a drop is known to about +- {doubt:.1f} points, more than the "
            f"{max_drop:g} allowed; give more with {flag('dev')}, and look at the drop on other rows ({flag('test')})"
        )


def shrink_vocabulary(loaded: Checkpoint, texts: Corpus) -> Checkpoint:
    """A model with only the entries that these texts need."""
    tokenizer = loaded.need_tokenizer()
    check_word_pieces(tokenizer, "vocabulary_from")
    assert isinstance(tokenizer.backend, BertBackend)
    smaller = cut_vocabulary(loaded, count_words(texts.documents(), tokenizer.backend.splitter))
    logger.info(vocabulary_note(loaded, smaller))
    return smaller
