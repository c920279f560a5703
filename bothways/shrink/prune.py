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
from bothways.base.log import logger, muted
from bothways.base.progress import working
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.cut import check_word_pieces, cut, cut_vocabulary
from bothways.model.checkpoint.changes.pack import with_int8
from bothways.model.checkpoint.contents import Checkpoint, check_plain
from bothways.model.int8_training import CALIBRATION_EXAMPLES, calibrate, read_examples
from bothways.model.parameters import inference_copy
from bothways.settings.deploy import Prune, Shrink
from bothways.settings.finetune import FineTune
from bothways.shrink import measuring
from bothways.shrink.candidates import Choice, Rule, choose, compare
from bothways.shrink.card import card_of
from bothways.shrink.cutting import Importance, measure_importance
from bothways.shrink.measuring import Candidate, Measured, Sample, TaskSplit
from bothways.shrink.structures import (
    Structure,
    choose_parts,
    smaller_and_smaller,
    structure_of_share,
    structures_to,
)
from bothways.tasks import TASKS, task_from_heads, task_of
from bothways.tasks.training_task import TrainingTask
from bothways.text.batching import spread_evenly
from bothways.text.corpus.documents import Corpus
from bothways.text.tokenizer.fast import BertBackend
from bothways.text.tokenizer.learn import count_words
from bothways.training.distributed import check_single_process
from bothways.training.finetuning import finetune
from bothways.training.run import Run

COLUMNS = (
    "text_column",
    "pair_column",
    "label_column",
    "encoding",
)
# Settings of `prune` that its trainings take over.
SHARED = (
    "model",
    "dev",
    "test",
    "out",
    "alpha",
    "epochs",
    "seed",
    "device",
    "dtype",
    "resume",
)
# Settings of the model's own training that go on.
RECORDED = (
    "window",
    "long",
    "metric",
)
IMPORTANCE_ROWS = 512
BETWEEN = 1 / 3  # epochs after a cut that is not the last, as a share of the epochs after the last
STEPS = "cuts"  # directory of the trainings
CHANGED = 0.1  # predictions that a smaller model changes
UNCHANGED = "as it was"


@working("prune")
def run(settings: Prune) -> Choice:
    """Prune, train, measure and write. InputError if the target cannot be reached."""
    return keep_best("prune", settings, plan(settings))


@working("shrink")
def shrink(settings: Shrink) -> Choice:
    """Measure the forms of a model, and write the best and a picture."""
    pruning = plan(settings.pruning)
    rule = Rule(settings.max_drop, settings.best)
    return keep_best("shrink", settings, replace(pruning, start=pruning.original, rule=rule))


# --- the plan ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PruningPlan:
    """The plan of `prune` and `shrink`.

    original: the unchanged model.
    start: the model to cut, perhaps with a smaller vocabulary.
    task: around the model.
    training: settings of the training after the last cut, in whose directory are all.
    targets: the structures to cut to, one after the other.
    rule: which candidate is kept.
    run: that is open, if one is.
    """

    original: Checkpoint
    start: Checkpoint
    task: TrainingTask
    training: FineTune
    targets: Sequence[Structure]
    rule: Rule
    run: Run | None = None

    def read(self, source: Checkpoint) -> TrainingTask:
        """The task as a fine-tuned model reads it."""
        with muted():
            return task_of(self.training).train(self.training, source, None).read_by(source)

    def cut(self, source: Checkpoint, structure: Structure) -> Checkpoint:
        """Cut a model to these sizes, the least important parts first."""
        before = Structure.of(source.model.config)
        is_narrower = (structure.heads, structure.width) != (before.heads, before.width)
        importance = self.importance(source) if is_narrower else Importance()

        # From the top: other choices lost more in three layers of MiniLM (docs/LOG.md, "Which layers stay").
        layers = [*range(structure.layers)]
        heads = importance.best_heads(structure.heads, layers) if structure.heads < before.heads else None
        neurons = importance.best_neurons(structure.width, layers) if structure.width < before.width else None
        return cut(source, layers=layers, heads=heads, neurons=neurons)

    def importance(self, source: Checkpoint) -> Importance:
        """The importance of the parts of a model, measured on labelled training texts."""
        reader = self.read(source)
        device = choose_device(self.training.device)
        examples = reader.data["train"]
        rows = spread_evenly(range(len(examples.sizes)), IMPORTANCE_ROWS)

        copy = inference_copy(reader.pretrained.model, device, torch.float32)
        for parameter in copy.parameters():
            parameter.requires_grad_(True)
        return measure_importance(copy, reader.objective, examples, rows, device=device)

    def train(self, number: int, source: Checkpoint, **changes: Any) -> Checkpoint:
        """Train a cut model; returns it with its head. changes: of the settings."""
        out = self.training.out / STEPS / str(number)
        if self.run:
            self.run.has_stepped = True  # from here on there is something to resume
        settings = replace(self.training, out=out, resume=out.exists(), **changes)
        result = finetune.run(settings, start=source)
        return checkpoint.load(result.model_directory)


def plan(settings: Prune) -> PruningPlan:
    """The model, the settings of the trainings, the task around the model, and the structures to cut to.

    InputError for a model that has not been fine-tuned, or cannot lose what is to be cut.
    """
    check_single_process("pruning")
    loaded = checkpoint.load(settings.model)
    check_plain(loaded.model)
    task_name = task_from_heads(loaded.model.num_outputs, loaded)
    if not TASKS[task_name].is_trained:
        raise InputError(
            f"{settings.model}: a model for {task_name} cannot be pruned here; name a fine-tuned one, or make a "
            "smaller pre-trained one: bothways distill MODEL TEXT --layers 3"
        )
    parts = choose_parts(settings.parts, loaded.model.config, loaded.model_type)

    training = training_settings(settings, task_name, loaded)
    task = TASKS[task_name].load().train(training, loaded, None)
    warn_of_known_rows(training, loaded)
    if settings.max_drop is not None:
        warn_of_few_rows(task, settings.max_drop)
    targets = choose_targets(settings, loaded, task, parts)

    start = loaded
    if settings.vocabulary_from:
        texts = Corpus((*settings.vocabulary_from, settings.texts), column=settings.text_column or "text")
        start = shrink_vocabulary(loaded, texts)

    return PruningPlan(
        original=task.read_by(loaded).pretrained,
        start=start,
        task=task,
        training=training,
        targets=targets,
        rule=Rule(math.inf if settings.max_drop is None else settings.max_drop),
    )


def training_settings(settings: Prune, task_name: str, loaded: Checkpoint) -> FineTune:
    """The settings of the trainings after the cuts, with the whole model as teacher."""
    kind = TASKS[task_name].settings_class
    return kind(
        train=settings.texts,
        teacher=settings.model,
        baselines=False,
        **{name: getattr(settings, name) for name in SHARED},
        **recorded_options(kind, loaded, {name: getattr(settings, name) for name in COLUMNS}),
    )


def recorded_options(kind: type[FineTune], loaded: Checkpoint, columns: dict[str, Any]) -> dict[str, Any]:
    """Settings of the model's own training that go on.

    kind: class of the settings.
    loaded: the model.
    columns: by name, as they are named now; the model's own column stands for a column without a name.
    """
    options = {name: value or loaded.settings.get(name) for name, value in columns.items()}
    options |= {name: loaded.settings.get(name) for name in RECORDED}
    options["multi_label"] = loaded.multi_label
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in options.items() if name in names and value}


def is_scored_on_known_rows(training: FineTune, loaded: Checkpoint) -> bool:
    """Whether the model has been trained on the rows that are split off for the score."""
    recorded = loaded.settings
    is_same = str(recorded.get("train")) == str(training.train)
    is_split_as_now = not recorded.get("dev") and not recorded.get("test") and recorded.get("seed", 0) == training.seed
    return is_same and not training.test and not is_split_as_now


def warn_of_known_rows(training: FineTune, loaded: Checkpoint) -> None:
    if is_scored_on_known_rows(training, loaded):
        logger.warning(
            f"{training.train}: the model was trained on these rows, so its own score on a part of them is too high; "
            f"name other labelled rows with {flag('test')}"
        )


def warn_of_few_rows(task: TrainingTask, max_drop: float) -> None:
    """A warning if dev is too small for the drop that is allowed: of a difference between two models, a tenth of whose
    predictions differ, the 95 % interval is about 1.96 sqrt(0.1 / rows)."""
    rows = task.report.num_rows("dev")
    doubt = 196 * math.sqrt(CHANGED / rows)
    if doubt > max_drop:
        logger.warning(
            f"dev has {format_count(rows, 'row')}, where a drop is known to about +- {doubt:.1f} points, more than the "
            f"{max_drop:g} allowed; give more with {flag('dev')}, and look at the drop on other rows ({flag('test')})"
        )


def choose_targets(
    settings: Prune, loaded: Checkpoint, task: TrainingTask, parts: Sequence[str]
) -> Sequence[Structure]:
    """The structures to cut to: for a loss as many as there are, else the way to the size or the speed."""
    config = loaded.model.config
    if settings.max_drop is not None:
        return [*smaller_and_smaller(config, parts)]
    if settings.size is not None:
        target = structure_of_share(config, settings.size, parts)
    elif settings.speed is not None:
        sample = TaskSplit(task, "dev", lambda source: task)
        target = structure_of_speed(loaded, sample, settings.speed, parts)
    else:
        return []
    return [*structures_to(config, target, settings.cuts)]


def structure_of_speed(source: Checkpoint, sample: Sample, speed: float, parts: Sequence[str]) -> Structure:
    """The largest sizes that are fast enough, by measuring cut models before any training.

    source: the whole model.
    sample: texts to measure on.
    speed: relative to the whole model.
    parts: that may be cut.

    InputError if no sizes are fast enough.
    """
    steps = 2 * source.model.config.num_hidden_layers
    fastest = 1.0
    for step in range(1, steps):
        try:
            structure = structure_of_share(source.model.config, 1 - step / steps, parts)
        except InputError:
            break
        smaller = first_parts(source, structure)
        fastest = measuring.relative_speed(sample, candidate("", source), candidate("", smaller))
        if fastest >= speed:
            return structure
    raise InputError(f"speed ({speed:g}) cannot be reached by cutting {' and '.join(parts)}: {fastest:.2f} at most")


def first_parts(source: Checkpoint, structure: Structure) -> Checkpoint:
    """A model of these sizes, whatever it computes."""
    return cut(
        source,
        layers=range(structure.layers),
        heads=[range(structure.heads)] * structure.layers,
        neurons=[range(structure.width)] * structure.layers,
    )


def shrink_vocabulary(loaded: Checkpoint, texts: Corpus) -> Checkpoint:
    """A model with only the entries that these texts need."""
    tokenizer = loaded.need_tokenizer()
    check_word_pieces(tokenizer, "vocabulary_from")
    assert isinstance(tokenizer.backend, BertBackend)
    smaller = cut_vocabulary(loaded, count_words(texts.documents(), tokenizer.backend.splitter))
    logger.info(vocabulary_note(loaded, smaller))
    return smaller


# --- the run ----------------------------------------------------------------------------------------------------------


def keep_best(verb: str, settings: Any, plan: PruningPlan) -> Choice:
    """Measure all candidates of a verb, and write the best and a picture.

    verb: a key of SOURCES.
    settings: to record.
    plan: for the sources.

    InputError if candidates must be smaller, and the first loses too much.
    """
    training = plan.training
    with Run(training.out, verb, settings, resume=training.resume, device=choose_device(training.device)) as opened:
        dev = TaskSplit(plan.task, "dev", plan.read)
        reported = replace(dev, split="test") if "test" in plan.task.data else dev
        measured, best = compare(verb, replace(plan, run=opened), (dev, reported), plan.rule)
        kept = choose(measured, plan.rule)
        check_cuts(plan, measured, kept)

        choice = Choice(
            directory=training.out,
            model=training.out / "model",
            split=reported.split,
            rows=plan.task.report.num_rows(reported.split),
            rule=plan.rule,
            measured=measured,
            kept=kept,
            notes=notes(plan, best),
        )
        record = {"from": str(training.model), **choice.record}
        is_known = is_scored_on_known_rows(training, plan.original)
        kept_model = replace(best.checkpoint, metadata={**best.checkpoint.metadata, "verb": verb, verb: record})
        checkpoint.save(kept_model, choice.model, card=card_of(choice, kept_model, is_known))

        report = training.out / STEPS / str(kept) / "report.html"
        if report.exists() and plan.rule.best == "last":
            shutil.copy(report, training.out / "report.html")
        shutil.rmtree(training.out / STEPS, ignore_errors=True)
        choice = replace(choice, picture=choice.draw(training.out / f"{verb}.svg"))
        opened.update_metadata(result=choice.to_json())
    return choice


def check_cuts(plan: PruningPlan, measured: Sequence[Measured], kept: int) -> None:
    """InputError if a cut model is to be kept, and none may be."""
    if plan.rule.best == "last" and kept == 0:
        raise InputError(
            f"the first cut loses {measured[1].dev_drop.points:.2f} points of {plan.task.metric} on dev, more than "
            f"max_drop ({plan.rule.max_drop:g}); nothing was written besides {plan.training.out / STEPS}; allow more, "
            "or give more texts"
        )


def notes(plan: PruningPlan, best: Candidate) -> tuple[str, ...]:
    """Lines for the user about the model that is kept."""
    lines = []
    vocabulary = vocabulary_note(plan.original, best.checkpoint)
    if vocabulary:
        lines.append(vocabulary)
    if best.checkpoint.model.config.attention_head_size is not None:
        lines.append("only Bothways reads it, since heads are missing (export and ONNX excepted)")
    return tuple(lines)


def vocabulary_note(before: Checkpoint, after: Checkpoint) -> str:
    whole = before.model.config.vocab_size
    size = after.model.config.vocab_size
    return f"vocabulary: {size:,} of {whole:,} entries" if size < whole else ""


# --- candidates -------------------------------------------------------------------------------------------------------


def candidate(name: str, source: Checkpoint) -> Candidate:
    return Candidate(name, source, measuring.num_bytes(source.model))


def cuts(plan: PruningPlan, measured: Sequence[Measured]) -> Iterator[Candidate]:
    """The unchanged model, and smaller ones until one loses more than the rule allows."""
    yield candidate(UNCHANGED, plan.original)
    source = plan.start
    if not plan.targets:
        yield candidate(vocabulary_note(plan.original, source) or "whole vocabulary", source)

    whole = Structure.of(plan.original.model.config)
    num_cuts = len(plan.targets)
    at_most = "at most " if plan.rule.is_limited else ""
    for number, structure in enumerate(plan.targets, 1):
        logger.info(f"cut {number} of {at_most}{num_cuts}: {structure}")
        epochs = plan.training.epochs
        if not plan.rule.is_limited and number < num_cuts:
            epochs = 1.0 if epochs is None else epochs * BETWEEN

        source = plan.train(number, plan.cut(source, structure), epochs=epochs)
        position = len(measured)
        yield candidate(structure.name(whole), source)
        # `cuts_and_int8` measures the int8 form too, before it asks for the next cut.
        if not plan.rule.allows(measured[position]):
            return


def cuts_and_int8(plan: PruningPlan, measured: Sequence[Measured]) -> Iterator[Candidate]:
    """The unchanged model and smaller ones, each in float and in int8, until one loses too much; last, the smallest
    that does not, trained for int8, if int8 alone loses too much."""
    untrained: Candidate | None = None
    for form in cuts(plan, measured):
        yield form
        if not plan.rule.allows(measured[-1]):
            break

        name = "all layers" if form.name == UNCHANGED else form.name
        yield candidate(f"{name}, int8", in_int8(plan, form.checkpoint))
        untrained = None if plan.rule.allows(measured[-1]) else replace(form, name=name)

    if untrained:
        trained = plan.train(len(plan.targets) + 1, untrained.checkpoint, quantize="int8")
        yield candidate(f"{untrained.name}, trained for int8", trained)


def in_int8(plan: PruningPlan, source: Checkpoint) -> Checkpoint:
    """All layers in int8, calibrated on training texts."""
    model = source.model.float().eval()
    examples = plan.task.data["train"]
    rows = spread_evenly(range(len(examples.sizes)), CALIBRATION_EXAMPLES)
    read = partial(read_examples, model, plan.task.objective.forward, examples, rows)
    layers = calibrate(model, read)
    return with_int8(source, {name: layer.linear for name, layer in layers.items()})
