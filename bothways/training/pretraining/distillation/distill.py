"""Distillation runs: teacher, student, vocabulary and text, trained with the loop of pre-training.

Letters: V entries of the student's vocabulary, H hidden size of the teacher, S of the student.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch
from safetensors.torch import load_file
from torch import Tensor

from bothways.base.errors import InputError, flag
from bothways.base.log import logger
from bothways.base.results import Facts
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
from bothways.text.corpus.sentence_pairs import PairTask
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.training.distributed import Processes
from bothways.training.pretraining import text_data
from bothways.training.pretraining.distillation.objective import (
    Distillation,
    DistillationTeacher,
    Weights,
    encode_texts,
)
from bothways.training.pretraining.distillation.shared_texts import TeacherIds, with_teacher_ids
from bothways.training.pretraining.distillation.student import StudentPlan, build_student, plan_student
from bothways.training.pretraining.initial_model import init_bias_from_frequencies
from bothways.training.pretraining.objectives import PretrainingObjective, example_batch
from bothways.training.pretraining.pretrain import train
from bothways.training.pretraining.result import PretrainingResult
from bothways.training.pretraining.setup import PretrainingSetup, common_setup, open_run, open_text
from bothways.training.run import Callbacks, Run

VECTOR_WEIGHT = 10.0  # of the loss of text vectors, beside masked words: a distance of 0.1 then counts as one nat
SAMPLE_TOKENS = 32_768  # of text, to fit a projection
LONG = 512  # most tokens of a long example
LONG_EXAMPLES = 0.2  # fraction of the steps with long examples
BRIEF = 32  # most tokens of a brief example: mostly a single sentence, as people write around a gap
CYCLE = 20  # steps after which the kinds of examples repeat
# Names in the run directory: the student before training, and the basis of its text vectors.
STUDENT = "student"
BASIS = "basis.safetensors"


@dataclass(frozen=True)
class DistillationPlan:
    """Plan of a distillation.

    teacher: the model to learn from.
    weights: of the losses.
    student: layers and sizes of the student.
    positions: longest input of teacher and student, in tokens.
    """

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
) -> PretrainingResult | Facts:
    """Distill a student. Writes model, checkpoints, metrics, curves and bothways.json to the run directory. With
    `static`, writes static vectors, and returns facts about them.

    settings: of the run.
    callbacks: called with each row of metrics.
    data: the text as token stores, instead of the files of the settings.
    change: called with the complete set-up; returns the set-up that is trained.
    """
    if settings.static:
        from bothways.training.pretraining.distillation.static_run import run_static  # needs SciPy

        return run_static(settings)

    # Before the run directory exists, so that a mistyped path, or a setting that does not fit, leaves nothing behind.
    text = open_text(settings) if data is None else None
    plan = make_plan(settings)

    with open_run("distill", settings, callbacks) as (run, processes, device):
        if text:
            tokenizer = prepare_tokenizer(settings, plan, text, run=run, processes=processes)
            data = text_data.read_data(text, tokenizer, new_vocabulary=False)
        assert data is not None

        # The student is always read from the run directory: a resumed run goes on with the student that it has.
        basis_HS = start_once(settings, plan, data, run=run, processes=processes)
        initial = checkpoint.load(run.directory / STUDENT)
        setup = build_setup(
            settings,
            plan,
            data,
            initial=initial,
            basis_HS=basis_HS,
            device=device,
        )
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

    positions = teacher.model.config.max_position_embeddings
    if settings.student:
        start = checkpoint.load(settings.student)
        positions = min(positions, start.model.config.max_position_embeddings)
    if settings.max_length > positions:
        raise InputError(
            f"max_length ({settings.max_length}) is more than the {positions} positions of teacher and student"
        )
    return DistillationPlan(
        teacher=teacher,
        weights=weights,
        student=student,
        positions=positions,
    )


def load_teacher(settings: Distill) -> Checkpoint:
    """The teacher, checked: float weights, layers in one sequence, a tokenizer that fits `vocab_size`."""
    teacher = checkpoint.load(settings.teacher)
    check_plain(teacher.model)
    plain_encoder(teacher.model)  # raises for a model of two stacks
    tokenizer = teacher.need_tokenizer()

    if settings.vocab_size:
        check_word_pieces(tokenizer, f"vocab_size ({settings.vocab_size})")
        if settings.vocab_size > len(tokenizer):
            raise InputError(f"vocab_size ({settings.vocab_size}) is more than the {len(tokenizer)} of the teacher")
    return teacher


def choose_weights(settings: Distill, teacher: Checkpoint) -> Weights:
    """The weights of the settings, or defaults for the purpose. InputError if a loss cannot be computed."""
    learns_words = settings.purpose != "vectors"
    vectors = settings.vectors
    if vectors is None:
        vectors = 0.0 if settings.purpose == "words" else VECTOR_WEIGHT

    weights = Weights(
        words=learns_words,
        relations=settings.relations,
        hidden_states=settings.hidden_states,
        logits=settings.logits,
        vectors=vectors,
        # If words are learned, the student reads masked passages anyway; their vectors cost it no further pass.
        passage_vectors=vectors if learns_words else 0.0,
    )

    if weights.logits and "masked_words" not in teacher.model.heads:
        raise InputError(f"logits ({weights.logits:g}): {settings.teacher} has no masked-word head; leave them out")
    if not learns_words and not weights.of_passages and not weights.vectors:
        raise InputError(f"vectors (0): nothing is left to learn; leave it out, or use {flag('purpose', 'words')}")
    return weights


def prepare_tokenizer(
    settings: Distill,
    plan: DistillationPlan,
    text: text_data.Text,
    *,
    run: Run,
    processes: Processes,
) -> Tokenizer:
    """The student's tokenizer: named by the settings, else the teacher's; with `vocab_size`, a reduced vocabulary.

    settings: of the run.
    plan: has the teacher.
    text: whose words are counted to reduce the vocabulary.
    run: whose directory a reduced vocabulary is saved in.
    processes: of which the main process reduces it.
    """
    tokenizer = Tokenizer.load(settings.tokenizer) if settings.tokenizer else plan.teacher.need_tokenizer()
    if not settings.vocab_size:
        return tokenizer

    make = partial(make_vocabulary, text, tokenizer, settings.vocab_size)
    return text_data.save_tokenizer_once(run.directory / "tokenizer", make, processes)


def make_vocabulary(text: text_data.Text, tokenizer: Tokenizer, size: int) -> tuple[Tokenizer, str]:
    """The most frequent entries of a vocabulary, and a message about them."""
    counts = text_data.count_training_words(text, tokenizer)
    reduced = reduce_vocabulary(tokenizer, counts, size)
    return reduced, f"kept the {len(reduced):,} most frequent of the teacher's {len(tokenizer):,} entries"


def start_once(
    settings: Distill,
    plan: DistillationPlan,
    data: text_data.PretrainingData,
    *,
    run: Run,
    processes: Processes,
) -> Tensor:
    """Make the student before training and write it to the run directory, unless it is there. Returns its basis.

    settings: of the run.
    plan: how the student is made.
    data: the text.
    run: whose directory the student is written to.
    processes: of which the main process makes the student.
    """
    if processes.is_main_process and not (run.directory / BASIS).exists():
        initial, basis_HS = initial_student(settings, plan, data)
        checkpoint.save(initial, run.directory / STUDENT)
        # Written last: a run that was killed before this line makes its student again.
        write_weights({"basis": basis_HS}, run.directory / BASIS)

    processes.barrier()
    return load_file(run.directory / BASIS)["basis"]


def initial_student(
    settings: Distill, plan: DistillationPlan, data: text_data.PretrainingData
) -> tuple[Checkpoint, Tensor]:
    """The student before training, and its basis: the directions [H, S] of the teacher's text vectors that the
    student's text vectors will follow.

    settings: of the run.
    plan: how the student is made.
    data: the text.

    InputError if the student of the settings does not fit the teacher.
    """
    teacher = plan.teacher
    weights = plan.weights
    tokenizer = data.tokenizer
    ids_V = torch.from_numpy(TeacherIds(tokenizer, teacher.need_tokenizer()).ids_V)
    sample = sample_batches(build_sampler(settings, plan.positions, data), data)
    heads = PretrainingObjective().heads if weights.words else {}

    # A projected student has a basis from here; for any other student it is found at the end.
    basis_HS: Tensor | None = None
    if settings.student:
        start = checkpoint.load(settings.student)
        if start.need_tokenizer().vocab != tokenizer.vocab:
            raise InputError(f"the student's vocabulary differs from the teacher's; leave out {flag('student')}")
        initial = with_heads(start, heads, dropout=0.0, seed=settings.seed)
    else:
        initial, basis_HS = build_student(
            teacher,
            plan.student,
            tokenizer,
            ids_V=ids_V,
            heads=heads,
            sample=sample,
            seed=settings.seed,
        )

    size = initial.model.config.hidden_size
    teacher_size = teacher.model.config.hidden_size
    if basis_HS is None and weights.vectors and size > teacher_size:
        raise InputError(
            f"vectors: the student is wider ({size}) than the teacher ({teacher_size}); use {flag('vectors', 0)}"
        )

    # A new head of masked words has no bias yet.
    if weights.words and not initial.model.get_parameter("heads.masked_words.bias").any():
        init_bias_from_frequencies(initial.model, data.frequencies)

    pooling = (teacher.pooling or "mean") if weights.vectors else None
    initial = replace(initial, pooling=pooling, normalized=teacher.normalized)
    if basis_HS is None:
        basis_HS = vector_directions(teacher, ids_V, sample, min(size, teacher_size))
    return initial, basis_HS


def sample_batches(sampler: MixedSampler, data: text_data.PretrainingData) -> list[Batch]:
    """The first examples of the run, about SAMPLE_TOKENS tokens."""
    batches: list[Batch] = []
    count = 0
    for step in sampler.steps():
        batches.append(example_batch(data.store, step, step.rows, data.tokenizer))
        count += batches[-1].num_tokens
        if count >= SAMPLE_TOKENS:
            break
    return batches


@torch.inference_mode()
def vector_directions(teacher: Checkpoint, ids_V: Tensor, sample: Sequence[Batch], size: int) -> Tensor:
    """The main directions of the teacher's text vectors, [H, size]; all of them if the widths are equal.

    teacher: the model that makes the text vectors.
    ids_V: the teacher's ids of the student's vocabulary.
    sample: batches of the student's ids.
    size: number of directions.
    """
    teacher_size = teacher.model.config.hidden_size
    if size == teacher_size:
        return torch.eye(size)

    model = teacher.model.eval()
    vectors = []
    for batch in sample:
        batch = with_teacher_ids(batch, ids_V)
        vectors.append(encode_texts(model, batch, teacher.pooling or "mean"))
    return principal_directions([torch.cat(vectors)], size).contiguous()


def build_setup(
    settings: Distill,
    plan: DistillationPlan,
    data: text_data.PretrainingData,
    initial: Checkpoint,
    basis_HS: Tensor,
    device: torch.device,
) -> PretrainingSetup:
    """Everything that training takes.

    settings: of the run.
    plan: teacher and weights.
    data: the text.
    initial: the student before training.
    basis_HS: see `initial_student`.
    device: where the training computes.
    """
    teacher = DistillationTeacher(
        plan.teacher.model,
        TeacherIds(data.tokenizer, plan.teacher.need_tokenizer()),
        pooling=initial.pooling or "mean",
        basis_HS=basis_HS,
    )
    objective = Distillation(plan.weights, teacher, data.store)
    with same_random_numbers():
        module = objective.module(initial.model, settings.seed)
    logger.info(f"losses: {plan.weights.describe()}")

    def build_heldout(pairs: PairTask) -> Distillation:
        # Distillation has no sentence pairs.
        return Distillation(plan.weights, teacher, data.unseen)

    return PretrainingSetup(
        initial=initial,
        module=module,
        objective=objective,
        sampler=build_sampler(settings, plan.positions, data),
        title=f"Distillation from {settings.teacher.name}",
        recipe={"weights": asdict(plan.weights), "layers": plan.student.layers},
        **common_setup(settings, data, device, build_heldout),
    )


def build_sampler(settings: Distill, positions: int, data: text_data.PretrainingData) -> MixedSampler:
    """Steps of short examples, a quarter of them brief, and of long examples.

    settings: of the run.
    positions: longest input of teacher and student, in tokens.
    data: the text.
    """
    short = settings.max_length
    long = min(positions, LONG)
    brief = min(short, BRIEF)
    # By kind, as `build_cycle` numbers the kinds.
    lengths = (short, short, long, brief)
    samplers = [
        data.sampler(length, "none", seed=settings.seed + index, batch_tokens=settings.batch_tokens)
        for index, length in enumerate(lengths)
    ]

    long_examples = LONG_EXAMPLES if long > short else 0.0
    return MixedSampler(samplers, build_cycle(long_examples))


def build_cycle(long_examples: float) -> list[int]:
    """The kind of each step of a cycle.

    0 and 1: short examples, each kind in an order of its own.
    2: long examples, evenly spread.
    3: brief examples.

    long_examples: the fraction of the steps with long examples.

    >>> build_cycle(0.2)
    [1, 0, 1, 3, 2, 1, 0, 1, 3, 2, 1, 0, 1, 3, 2, 1, 0, 1, 3, 2]
    """
    # How many long examples there are before each step. Rounded: an inexact product may be just below a whole number.
    num_long = [int(round(step * long_examples, 9)) for step in range(CYCLE + 1)]
    are_long = [after > before for before, after in itertools.pairwise(num_long)]
    others = itertools.cycle((1, 0, 1, 3))
    return [2 if is_long else next(others) for is_long in are_long]
