"""Distillation runs: teacher, student, vocabulary and text, trained with the loop of pre-training."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from bothways.base.errors import InputError, flag
from bothways.base.log import logger
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.cut import check_word_pieces, reduce_vocabulary
from bothways.model.checkpoint.changes.new_head import with_heads
from bothways.model.checkpoint.changes.width import principal_directions
from bothways.model.checkpoint.contents import Checkpoint, check_plain
from bothways.model.checkpoint.weights import write_weights
from bothways.model.parameters import same_random_numbers
from bothways.model.states import plain_encoder
from bothways.settings.pretrain import Distill
from bothways.text.batch import Batch
from bothways.text.corpus.sampler import MixedSampler
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.training.distributed import Processes
from bothways.training.pretraining import text_data
from bothways.training.pretraining.distillation.objective import (
    OF_PASSAGES,
    Distillation,
    DistillationTeacher,
    Weights,
    pool,
)
from bothways.training.pretraining.distillation.shared_texts import TeacherIds, with_teacher_ids
from bothways.training.pretraining.distillation.student import StudentPlan, build_student, plan_student
from bothways.training.pretraining.initial_model import init_bias_from_frequencies
from bothways.training.pretraining.objectives import PretrainingObjective, example_batch
from bothways.training.pretraining.pretrain import train
from bothways.training.pretraining.result import PretrainingResult
from bothways.training.pretraining.setup import PretrainingSetup, common_setup, open_run, open_text
from bothways.training.run import Callbacks, Run

VECTOR_WEIGHT = 10.0  # of text vectors, beside masked words: a distance of 0.1 then counts as one nat
SAMPLE_TOKENS = 32_768  # of text to fit a projection
LONG = 512  # most tokens of a long example
LONG_EXAMPLES = 0.2  # fraction of the steps with long examples
BRIEF = 32  # tokens of a brief one: mostly a single sentence, as people write around a gap
CYCLE = 20  # steps in which kinds of examples take turns
STUDENT, BASIS = "student", "basis.safetensors"


@dataclass(frozen=True)
class DistillationPlan:
    """Plan of a distillation: the teacher, the weights of its losses, and the sizes of the student. positions: longest
    input of both, in tokens."""

    teacher: Checkpoint
    weights: Weights
    student: StudentPlan
    positions: int


def run(
    settings: Distill,
    *,
    callbacks: Callbacks = (),
    data: text_data.PretrainingData | None = None,
    change: Callable[[PretrainingSetup, text_data.PretrainingData], PretrainingSetup] = lambda setup, data: setup,
) -> PretrainingResult | dict[str, Any]:
    """Distill a student. Writes model, checkpoints, metrics, curves and bothways.json to the run directory. With
    `static`, writes static vectors, and returns facts about them.

    data: the text as token stores, instead of the files of the settings. change: called with the complete set-up.
    """
    if settings.static:
        from bothways.training.pretraining.distillation.static_run import run_static  # needs SciPy

        return run_static(settings)
    text = open_text(settings) if data is None else None
    plan = make_plan(settings)
    with open_run("distill", settings, callbacks) as (run, processes, device):
        if text:
            tokenizer = Tokenizer.load(settings.tokenizer) if settings.tokenizer else plan.teacher.need_tokenizer()
            if settings.vocab_size:
                make = partial(make_vocabulary, text, tokenizer, settings.vocab_size)
                tokenizer = text_data.save_tokenizer_once(run.directory / "tokenizer", make, processes)
            data = text_data.read_data(text, tokenizer, new_vocabulary=False)
        assert data is not None
        basis_HS = start_once(settings, plan, data, run, processes)
        setup = build_setup(settings, plan, data, checkpoint.load(run.directory / STUDENT), basis_HS, device)
        return train(change(setup, data), data, run, processes)


def make_plan(settings: Distill) -> DistillationPlan:
    """Read the teacher, and check that the settings fit it (InputError)."""
    teacher = load_teacher(settings)
    weights = choose_weights(settings, teacher)
    student = plan_student(
        teacher.model.config,
        keep_layers=settings.keep_layers,
        num_layers=settings.layers,
        hidden_size=settings.hidden_size,
    )
    models = [teacher, *([checkpoint.load(settings.student)] if settings.student else [])]
    positions = min(loaded.model.config.max_position_embeddings for loaded in models)
    if settings.max_length > positions:
        raise InputError(
            f"max_length ({settings.max_length}) is more than the {positions} positions of teacher and student"
        )
    return DistillationPlan(teacher, weights, student, positions)


def load_teacher(settings: Distill) -> Checkpoint:
    """The teacher, checked: float weights, layers in one sequence, a tokenizer."""
    teacher = checkpoint.load(settings.teacher)
    check_plain(teacher.model)
    plain_encoder(teacher.model)
    tokenizer = teacher.need_tokenizer()
    if settings.vocab_size:
        check_word_pieces(tokenizer, f"vocab_size ({settings.vocab_size})")
        if settings.vocab_size > len(tokenizer):
            raise InputError(f"vocab_size ({settings.vocab_size}) is more than the {len(tokenizer)} of the teacher")
    return teacher


def make_vocabulary(text: text_data.Text, tokenizer: Tokenizer, size: int) -> tuple[Tokenizer, str]:
    reduced = reduce_vocabulary(tokenizer, text_data.count_training_words(text, tokenizer), size)
    return reduced, f"kept the {len(reduced):,} most frequent of the teacher's {len(tokenizer):,} entries"


def choose_weights(settings: Distill, teacher: Checkpoint) -> Weights:
    """The weights of the settings, or defaults for the purpose. InputError if a loss cannot be computed."""
    learns_words, vectors = settings.purpose != "vectors", settings.vectors
    if vectors is None:
        vectors = VECTOR_WEIGHT if settings.purpose != "words" else 0.0
    passage_vectors = vectors if learns_words else 0.0  # passages are read with masks anyway if words are learned
    of_passages = {name: getattr(settings, name) for name in OF_PASSAGES}
    weights = Weights(learns_words, vectors=vectors, passage_vectors=passage_vectors, **of_passages)
    if weights.logits and "masked_words" not in teacher.model.heads:
        raise InputError(f"logits ({weights.logits:g}): {settings.teacher} has no masked-word head; leave them out")
    if not learns_words and not weights.of_passages and not weights.vectors:
        raise InputError(f"vectors (0): nothing is left to learn; leave it out, or use {flag('purpose', 'words')}")
    return weights


def build_sampler(settings: Distill, positions: int, data: text_data.PretrainingData) -> MixedSampler:
    """Steps of short examples, a quarter of them brief, and of long ones.

    positions: longest input of teacher and student.
    """
    short, long = settings.max_length, min(positions, LONG)
    samplers = [
        data.sampler(length, "none", seed=settings.seed + index, batch_tokens=settings.batch_tokens)
        for index, length in enumerate((short, short, long, min(short, BRIEF)))
    ]
    return MixedSampler(samplers, build_cycle(LONG_EXAMPLES if long > short else 0.0))


def build_cycle(long_examples: float) -> list[int]:
    """Kinds of the steps of a cycle: short examples (1 and 0, each in an order of its own) and brief ones (3) in turn,
    and this fraction of long examples (2), evenly spread."""
    counts = [int(round(step * long_examples, 9)) for step in range(CYCLE + 1)]
    are_long = [after > before for before, after in itertools.pairwise(counts)]
    short = itertools.cycle((1, 0, 1, 3))
    return [2 if is_long else next(short) for is_long in are_long]


def build_setup(
    settings: Distill,
    plan: DistillationPlan,
    data: text_data.PretrainingData,
    initial: Checkpoint,
    basis_HS: Tensor,
    device: torch.device,
) -> PretrainingSetup:
    """Everything that training takes. initial: the student; basis_HS: see `initial_student`."""
    taught = DistillationTeacher(
        plan.teacher.model,
        TeacherIds(data.tokenizer, plan.teacher.need_tokenizer()),
        pooling=initial.pooling or "mean",
        basis_HS=basis_HS,
    )
    objective = Distillation(plan.weights, taught, data.store)
    with same_random_numbers():
        module = objective.module(initial.model, settings.seed)
    logger.info(f"losses: {plan.weights.describe()}")
    return PretrainingSetup(
        initial=initial,
        module=module,
        objective=objective,
        sampler=build_sampler(settings, plan.positions, data),
        title=f"Distillation from {settings.teacher.name}",
        recipe={"weights": asdict(plan.weights), "layers": plan.student.layers},
        **common_setup(settings, data, device, lambda _: Distillation(plan.weights, taught, data.unseen)),
    )


def start_once(
    settings: Distill, plan: DistillationPlan, data: text_data.PretrainingData, run: Run, processes: Processes
) -> Tensor:
    """Write the student before training, which a resumed run keeps, to the run directory. Returns the basis."""
    if processes.is_main_process and not (run.directory / BASIS).exists():
        initial, basis_HS = initial_student(settings, plan, data)
        checkpoint.save(initial, run.directory / STUDENT)
        write_weights({"basis": basis_HS}, run.directory / BASIS)
    processes.barrier()
    return load_file(run.directory / BASIS)["basis"]


def sample_batches(sampler: MixedSampler, data: text_data.PretrainingData) -> list[Batch]:
    """The first examples of the run, about SAMPLE_TOKENS tokens."""
    batches, count = list[Batch](), 0
    for step in sampler.steps():
        batches.append(example_batch(data.store, step, step.rows, data.tokenizer))
        count += batches[-1].num_tokens
        if count >= SAMPLE_TOKENS:
            break
    return batches


def initial_student(
    settings: Distill, plan: DistillationPlan, data: text_data.PretrainingData
) -> tuple[Checkpoint, Tensor]:
    """The student before training, and the directions [H, S] of the teacher's vectors that its own will follow."""
    teacher, weights, tokenizer = plan.teacher, plan.weights, data.tokenizer
    ids_V = torch.from_numpy(TeacherIds(tokenizer, teacher.need_tokenizer()).ids_V)
    sample = sample_batches(build_sampler(settings, plan.positions, data), data)
    heads = PretrainingObjective().heads if weights.words else {}
    if settings.student:
        start, basis_HS = checkpoint.load(settings.student), None
        if start.need_tokenizer().vocab != tokenizer.vocab:
            raise InputError(f"the student's vocabulary differs from the teacher's; leave out {flag('student')}")
        initial = with_heads(start, heads, dropout=0.0, seed=settings.seed)
    else:
        initial, basis_HS = build_student(teacher, plan.student, tokenizer, ids_V, heads, sample, seed=settings.seed)
    size, teacher_size = initial.model.config.hidden_size, teacher.model.config.hidden_size
    if basis_HS is None and weights.vectors and size > teacher_size:
        raise InputError(
            f"vectors: the student is wider ({size}) than the teacher ({teacher_size}); use {flag('vectors', 0)}"
        )
    if weights.words and not initial.model.get_parameter("heads.masked_words.bias").any():  # a new head
        init_bias_from_frequencies(initial.model, data.frequencies)
    pooling = (teacher.pooling or "mean") if weights.vectors else None
    initial = replace(initial, pooling=pooling, normalized=teacher.normalized)
    if basis_HS is None:
        basis_HS = vector_directions(teacher, ids_V, sample, min(size, teacher_size))
    return initial, basis_HS


@torch.inference_mode()
def vector_directions(teacher: Checkpoint, ids_V: Tensor, sample: Sequence[Batch], size: int) -> Tensor:
    """The main directions of the teacher's text vectors, [H, size]; all of them if the widths are equal."""
    teacher_size = teacher.model.config.hidden_size
    if size == teacher_size:
        return torch.eye(size)
    batches = [with_teacher_ids(batch, ids_V) for batch in sample]
    vectors = [pool(teacher.model.eval()(batch), batch, teacher.pooling or "mean") for batch in batches]
    return principal_directions([torch.cat(vectors)], size).contiguous()
