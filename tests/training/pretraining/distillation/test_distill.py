"""Distillation runs: students of every kind, exact resume, any micro-batches, files that transformers loads."""

import itertools
import multiprocessing
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

from bothways.base.errors import InputError
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.cut import reduce_vocabulary
from bothways.model.checkpoint.contents import Checkpoint, new_model
from bothways.model.states import compute_states
from bothways.settings import Distill
from bothways.text.batch import Batch
from bothways.text.batching import build_in_processes
from bothways.text.corpus.masking import MaskRule
from bothways.text.corpus.sentence_pairs import NO_PAIR
from bothways.text.tokenizer.tokenizer import SPECIAL_TOKENS, Tokenizer
from bothways.text.tokenizer.wordpiece import AddedToken
from bothways.training.distributed import SINGLE_PROCESS
from bothways.training.pretraining import pretrain
from bothways.training.pretraining.distillation import distill
from bothways.training.pretraining.distillation.distill import choose_weights, load_teacher
from bothways.training.pretraining.distillation.objective import WHOLE_TEXTS, Distillation, DistillationTeacher, Weights
from bothways.training.pretraining.distillation.shared_texts import (
    DistillationBatch,
    TeacherIds,
    cut_texts,
    teacher_passages,
    with_teacher_ids,
)
from bothways.training.pretraining.distillation.student import StudentPlan, build_student, plan_student
from bothways.training.pretraining.pretrain import build_steps
from bothways.training.pretraining.text_data import read_data
from bothways.training.run import read_metrics
from tests.soaked import in_soak

PEOPLE = dict(zip("king queen farmer sailor doctor".split(), "castle palace field harbour clinic".split(), strict=True))
ALL = {name: 1.0 for name in ("relations", "hidden_states", "logits", "vectors")}


def builders():
    """The processes that build batches; others may run beside them, such as those that tokenize (joblib)."""
    return [child for child in multiprocessing.active_children() if type(child).__name__ == "ForkProcess"]


def corpus(seed, number):
    """Documents about one person each, whose place follows from who it is."""
    draw = np.random.default_rng(seed)
    texts = []
    for _ in range(number):
        who = draw.choice(list(PEOPLE))
        starts = draw.choice(["Every day", "At night", "In spring", "Long ago"], int(draw.integers(4, 9)))
        texts.append("\n".join(f"{start} the {who} of the {PEOPLE[who]} was very glad." for start in starts))
    return "\n\n".join(texts) + "\n"


@pytest.fixture(scope="module")
def words():
    return Tokenizer.learn([corpus(0, 60)], size=150)


@pytest.fixture(scope="module")
def make_teacher(make_model, words, tmp_path_factory):
    """The directory of a random teacher that makes sentence vectors and fills masks."""

    def make(family="bert", **changes):
        sizes = {"vocab_size": len(words), "pad_token_id": words.pad_id, "hidden_size": 48, "num_attention_heads": 6}
        heads = {"masked_words": 0, **({"next_sentence": 2} if family == "bert" else {})}
        model = make_model(family, heads, **{**sizes, "intermediate_size": 80, **changes})
        directory = tmp_path_factory.mktemp("teacher") / "model"
        checkpoint.save(Checkpoint(model, words, model_type=family, pooling="mean", normalized=True), directory)
        return directory

    return make


@pytest.fixture(scope="module")
def teacher(make_teacher):
    return make_teacher()


@pytest.fixture
def settings(shared_settings, tmp_path):
    """With a token store of the test's own."""
    return replace(shared_settings, token_store=tmp_path / "store")


@pytest.fixture(scope="module")
def shared_settings(teacher, tmp_path_factory):
    folder = tmp_path_factory.mktemp("distill")
    (folder / "train.txt").write_text(corpus(0, 60), encoding="utf-8")
    (folder / "new.txt").write_text(corpus(1, 12), encoding="utf-8")
    return Distill(
        teacher=teacher, corpus=(folder / "train.txt",), heldout=(folder / "new.txt",), out=folder / "run",
        layers=2, hidden_size=32, vocab_size=60, steps=8, batch_tokens=256, max_length=32, evaluate_every=4,
        checkpoint_every=4, heldout_examples=16, token_store=folder / "store", processes=1, seed=7, dtype="float32",
    )  # fmt: skip


@pytest.fixture(scope="module")
def result(shared_settings):
    return distill.run(shared_settings)


# --- what a run leaves ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_makes_a_smaller_bert_that_fills_embeds_and_loads_elsewhere(result):
    made = checkpoint.load(result.model_directory)
    config = made.model.config
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (2, 32, 4)
    assert config.vocab_size == len(made.tokenizer) == 60 and made.pooling == "mean" and made.normalized
    peer, loading_info = transformers.AutoModelForMaskedLM.from_pretrained(
        result.model_directory, output_loading_info=True
    )
    assert type(peer).__name__ == "BertForMaskedLM" and not any(loading_info.values())
    predictor = Predictor(made, dtype="float32", device="cpu")
    ids = made.tokenizer.encode("The king of the castle.", "Every day.").ids
    with torch.no_grad():
        theirs = peer.bert(torch.tensor([ids]), token_type_ids=torch.tensor([[0] * 8 + [1] * (len(ids) - 8)]))
    encoding = made.tokenizer.encode("The king of the castle.", "Every day.")
    batch = Batch.from_arrays(np.array(ids), np.array([0] * 8 + [1] * (len(ids) - 8)), np.array([len(ids)]))
    with torch.no_grad():
        ours = made.model.eval()(batch)
    assert encoding.ids == ids
    torch.testing.assert_close(ours, theirs.last_hidden_state[0], rtol=0, atol=1e-5)
    assert len(predictor.fill("the [MASK] of the castle", top=3)[0]) == 3
    lengths = np.linalg.norm(predictor.embed(["the king", "the queen of the palace"]), axis=1)
    assert lengths == pytest.approx([1, 1], abs=1e-5)


@pytest.mark.slow
def test_its_losses_and_the_cosine_of_its_vectors_are_recorded(result):
    rows = read_metrics(result.directory)
    heldout = [row for row in rows if row["split"] == "heldout"]
    assert {"masked_lm", "vectors", "vector_cosine", "perplexity"} | {
        "passage_vectors",
        "passage_cosine",
    } <= heldout[0].keys()
    assert heldout[-1]["vector_cosine"] > heldout[0]["vector_cosine"] > 0.4  # of an untrained student's
    assert result.figures["vector_cosine"] == pytest.approx(1 - result.figures["vectors"] / distill.VECTOR_WEIGHT)


@pytest.mark.slow
def test_a_run_resumes_bit_for_bit(result, settings, tmp_path):
    shutil.copytree(result.directory, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "model")
    for name in ("step-8", "step-000008", "8"):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / name, ignore_errors=True)
    resumed = distill.run(replace(settings, out=tmp_path / "run", resume=True))
    rows, again = (read_metrics(run.directory) for run in (result, resumed))
    timeless = [[{**row, "seconds": 0} for row in measured] for measured in (rows, again)]
    assert timeless[0] == timeless[1]
    assert (resumed.model_directory / "model.safetensors").read_bytes() == (
        result.model_directory / "model.safetensors"
    ).read_bytes()


@pytest.mark.soak
@pytest.mark.slow
def test_micro_batches_change_no_loss(settings, tmp_path):
    for parts in (1, 3):
        distill.run(replace(settings, out=tmp_path / str(parts), steps=3, gradient_accumulation=parts, **ALL))
    one, three = ([row["loss"] for row in read_metrics(tmp_path / str(parts))] for parts in (1, 3))
    assert one == pytest.approx(three, rel=1e-5)


@pytest.mark.slow
@pytest.mark.soak
def test_two_processes_have_the_losses_of_one(settings, in_processes, tmp_path):
    alone = distill.run(replace(settings, out=tmp_path / "alone", steps=3))
    together = {"teacher": str(settings.teacher), "out": str(tmp_path / "two"), "steps": 3}
    together |= {name: [str(path) for path in getattr(settings, name)] for name in ("corpus", "heldout")}
    together |= {"token_store": str(settings.token_store)}
    for name in ("layers", "hidden_size", "vocab_size", "batch_tokens", "max_length", "heldout_examples", "seed"):
        together[name] = getattr(settings, name)
    together |= {"dtype": "float32", "device": "cpu", "evaluate_every": 4}
    assert in_processes({"kind": "Distill", "settings": together, "world": 2}) == [0, 0]
    one, two = ([row["loss"] for row in read_metrics(run)] for run in (alone.directory, tmp_path / "two"))
    assert one == pytest.approx(two, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["modernbert", *in_soak("deberta-v2", "roberta")])
def test_teacher_and_student_may_be_of_other_families_widths_and_head_counts(family, make_teacher, settings, tmp_path):
    sizes = {"hidden_size": 30, "num_attention_heads": 5, "num_hidden_layers": 7, "intermediate_size": 44}
    own = {"layers": None, "hidden_size": None, "vocab_size": None}
    changed = replace(
        settings, teacher=make_teacher(family, **sizes), student=settings.teacher, out=tmp_path / "run", steps=4,
        vectors=0.0, **own, **{name: 1.0 for name in ALL if name != "vectors"},
    )  # fmt: skip
    figures = distill.run(changed).figures
    for name in ALL:
        assert name == "vectors" or figures[name] > 0


@pytest.mark.slow
def test_a_student_for_vectors_keeps_layers_and_has_no_heads(settings, tmp_path):
    changed = replace(
        settings, out=tmp_path / "run", purpose="vectors", keep_layers=(0, 2), layers=None, hidden_size=None,
        vocab_size=None, steps=4,
    )  # fmt: skip
    result = distill.run(changed)
    made = checkpoint.load(result.model_directory)
    assert made.model.config.num_hidden_layers == 2 and not made.model.heads and made.pooling == "mean"
    assert "perplexity" not in result.figures and result.figures["vector_cosine"] > 0.5


# --- students -------------------------------------------------------------------------------------------------------


def example(tokenizer, texts):
    ids = [tokenizer.encode(text).ids for text in texts]
    joined = np.concatenate(ids)
    return Batch.from_arrays(joined, np.zeros_like(joined), np.array([*map(len, ids)]))


SENTENCES = [line for line in corpus(5, 40).splitlines() if line]


def test_the_student_that_is_the_teacher_loses_nothing(teacher, words, make_teacher, global_seed):
    held = checkpoint.load(teacher)
    ids = TeacherIds(words, words)
    taught = DistillationTeacher(checkpoint.load(teacher).model, ids, pooling="mean", basis_HS=None)
    names = {name: 1.0 for name in ALL if name != "vectors"}
    objective = Distillation(Weights(words=False, **names), taught, None)
    module = objective.module(held.model.eval(), 0)
    batch = example(words, SENTENCES[:9])
    positions = torch.tensor([2, 5, 30])
    masked = replace(batch, masked_positions=positions, masked_labels=batch.input_ids[positions])
    batch = DistillationBatch(**vars(masked))
    with torch.no_grad():
        losses = objective.losses(module, batch, objective.forward(module, batch))
    assert losses.keys() == names.keys()
    for name, (value, count) in losses.items():
        assert value.item() / count == pytest.approx(0, abs=1e-6), name


def test_kept_layers_are_the_teachers(teacher, words):
    held = checkpoint.load(teacher)
    plan = plan_student(held.model.config, keep_layers=(0, 2), num_layers=None, hidden_size=None)
    student, basis = build_student(held, plan, words, torch.arange(len(words)), {"masked_words": 0}, [], seed=0)
    batch = example(words, SENTENCES[:5])
    with torch.no_grad():
        states, taught = compute_states(student.model.eval(), batch), compute_states(held.model.eval(), batch)
    assert basis is None and len(states.layers) == 3
    torch.testing.assert_close(states.layers[1], taught.layers[1], rtol=0, atol=0)
    torch.testing.assert_close(
        states.layers[2], held.model.encoder.layers[2](taught.layers[1], held.model.encoder.build_context(batch))
    )
    torch.testing.assert_close(student.model.word_scores(states.last_TH), held.model.word_scores(states.last_TH))


def test_a_projected_student_has_the_teachers_states_in_fewer_dimensions(teacher, words):
    """Fitted on some sentences, measured on others, beside random weights."""
    held = checkpoint.load(teacher)
    sample, unseen = example(words, SENTENCES[:120]), example(words, SENTENCES[120:])
    rows = torch.arange(len(words))

    plan = StudentPlan((0, 1, 2), 32, 64)
    student, basis_HS = build_student(held, plan, words, rows, {}, [sample], seed=0)
    projected, random = student.model.eval(), new_model(plan.config(held.model.config, words), {}, 0).eval()
    torch.testing.assert_close(basis_HS.T @ basis_HS, torch.eye(32), rtol=0, atol=1e-5)

    def explained(student):
        with torch.no_grad():
            taught = compute_states(held.model.eval(), unseen).last_TH @ basis_HS
            errors = compute_states(student, unseen).last_TH - taught
        return 1 - float(errors.square().sum() / (taught - taught.mean(0)).square().sum())

    assert explained(projected) > 0.7 and explained(random) < 0.3


def test_only_berts_with_norm_after_are_projected(make_teacher):
    config = checkpoint.load(make_teacher("modernbert")).model.config
    with pytest.raises(InputError, match="--student"):
        plan_student(config, keep_layers=(), num_layers=2, hidden_size=32)


# --- vocabulary and texts ---------------------------------------------------------------------------------------------


def test_a_reduced_vocabulary_keeps_letters_and_the_states_of_kept_texts(teacher, words):
    counts = {"king": 50, "castle": 40, "the": 90, "of": 60, "glad": 1}
    letters = {token for token in words.tokens if len(token.removeprefix("##")) == 1 and token[-1].isalnum()}
    small = reduce_vocabulary(words, counts, len(letters) + 5 + 4)
    assert {*small.tokens} == {*letters, *SPECIAL_TOKENS, "king", "castle", "the", "of"}
    ids = TeacherIds(small, words)
    assert [words.tokens[index] for index in ids.ids_V] == small.tokens
    text = "the king of the castle"
    batch = with_teacher_ids(example(small, [text]), torch.from_numpy(ids.ids_V))
    assert batch.input_ids.tolist() == words.encode(text).ids  # so that hidden states are the same too


def test_a_reduced_cased_vocabulary_keeps_capitals():
    tokens = [*SPECIAL_TOKENS, *"QUIZcat", *(f"##{letter}" for letter in "QUIZcat"), "cat", "QUIZ"]
    cased = Tokenizer({token: index for index, token in enumerate(tokens)}, lowercase=False)
    assert reduce_vocabulary(cased, {"cat": 9, "QUIZ": 1}, len(tokens) - 1).tokens == tokens[:-1]


@pytest.mark.parametrize("size", [84, None])
def test_a_reduced_vocabulary_keeps_added_tokens(words, size):
    added = AddedToken("castle"), AddedToken("[E1]", special=True)
    marked = Tokenizer({**words.vocab, "[E1]": len(words)}, added=added)
    small = reduce_vocabulary(marked, {"king": 5}, size)
    assert [small.tokens[index] for index in small.ids("castle[E1]")] == ["castle", "[E1]"]


def test_the_teacher_reads_texts_in_its_own_pieces(words):
    small = reduce_vocabulary(words, {"king": 5, "the": 9, ".": 7}, 85)
    ids = TeacherIds(small, words)
    for text in ("the doctor of the clinic was very glad.", "king", "harbour harbour"):
        assert ids.own(np.array(small.ids(text))).tolist() == words.ids(text)
    assert len(small.ids("harbour")) > len(words.ids("harbour"))


def test_entries_that_the_teacher_lacks_are_refused(words):
    other = Tokenizer({**words.vocab, "zebra": len(words)})
    with pytest.raises(InputError, match=r"\b1 entries .*teacher.*'zebra'"):
        TeacherIds(other, words)


def test_texts_are_cut_at_sentences_and_do_not_depend_on_the_micro_batch(settings, teacher, words, tmp_path):
    held, weights = load_teacher(settings), choose_weights(settings, checkpoint.load(teacher))
    text = distill.open_text(settings)
    data = read_data(text, words, new_vocabulary=False)
    sampler = data.sampler(32, "next", seed=7, batch_tokens=256)
    step = next(sampler.steps())
    rows = [*step.rows]
    whole = cut_texts(data.store, step, rows, seed=7, fraction=WHOLE_TEXTS)
    parts = [cut_texts(data.store, step, part, seed=7, fraction=WHOLE_TEXTS) for part in (rows[:3], rows[3:])]
    assert sorted(map(tuple, whole.tolist())) == sorted(map(tuple, np.concatenate(parts).tolist()))
    every = cut_texts(data.store, step, rows, seed=7, fraction=1.0)
    assert 0.1 < len(whole) / len(every) < 0.45 and (np.diff(every) >= 3).all()
    starts = {*data.store.sentences.tolist()}
    passages = {start for row in rows for start in step.examples.ranges[row].reshape(2, 2)[:, 0].tolist()}
    assert all(start in starts | passages for start, _ in every.tolist())
    rule = MaskRule.from_tokenizer(words, 0.3, "tokens")
    taught = DistillationTeacher(held.model, TeacherIds(words, words), pooling="mean", basis_HS=None)
    objective = Distillation(weights, taught, data.store)
    masked = objective.mask(distill.example_batch(data.store, step, rows, words), step, rows, rule, seed=7)
    read = {tuple(text.tolist()) for text in masked.texts.input_ids.split(masked.texts.lengths.tolist())}
    assert read == {(words.cls_id, *data.store.ids[a:b].tolist(), words.sep_id) for a, b in whole.tolist()}


def test_the_teacher_reads_passages_whole_and_in_its_own_pieces(settings, teacher, words):
    """Of a pair, both texts with their segments; masks are only in the student's input."""
    held = load_teacher(settings)
    small = reduce_vocabulary(words, {"king": 5, "the": 9, ".": 7}, 85)
    for vocabulary in (words, small):
        ids = TeacherIds(vocabulary, words)
        pairs = [("the doctor of the clinic", "was glad."), ("the king", "harbour harbour")]
        encoded = [vocabulary.encode(*pair) for pair in pairs]
        rows = (np.concatenate([getattr(one, name) for one in encoded]) for name in ("ids", "segment_ids"))
        read = teacher_passages(Batch.from_arrays(*rows, np.array([len(one.ids) for one in encoded])), ids, 64)
        expected = [words.encode(*pair) for pair in pairs]
        assert read.input_ids.tolist() == [index for one in expected for index in one.ids]
        assert read.segment_ids.tolist() == [index for one in expected for index in one.segment_ids]
        assert read.lengths.tolist() == [len(one.ids) for one in expected]
        first = (np.array(encoded[0].ids), np.array(encoded[0].segment_ids), np.array([len(encoded[0].ids)]))
        short = teacher_passages(Batch.from_arrays(*first), ids, 6)
        assert short.input_ids.tolist() == [*expected[0].ids[:5], words.sep_id] and len(short.segment_ids) == 6
    text = distill.open_text(settings)
    data = read_data(text, words, new_vocabulary=False)
    step = next(distill.build_sampler(replace(settings, vocab_size=None), 64, data).steps())
    taught = DistillationTeacher(held.model, TeacherIds(words, words), pooling="mean", basis_HS=None)
    objective = Distillation(Weights(words=True, passage_vectors=3.0), taught, data.store)
    clean = distill.example_batch(data.store, step, step.rows, words)
    masked = objective.mask(clean, step, step.rows, MaskRule.from_tokenizer(words, 0.3, "tokens"), seed=7)
    assert masked.teacher_passages.input_ids.tolist() == clean.input_ids.tolist() != masked.input_ids.tolist()
    module = objective.module(held.model, 0)
    with torch.no_grad():
        losses = objective.losses(module, masked, objective.forward(module, masked))
        plain = held.model.eval()
        mean = [
            torch.stack([part.mean(0) for part in plain(batch).split(batch.lengths.tolist())])
            for batch in (masked, clean)
        ]
    value, count = losses["passage_vectors"]
    distances = 1 - torch.cosine_similarity(*mean)
    assert count == len(clean) == objective.counts(masked)["passage_vectors"] and distances.min() > 1e-6
    assert value.item() == pytest.approx(3 * distances.sum().item(), rel=1e-4)
    figures = objective.figures({"passage_vectors": value.item() / count})
    assert figures == {"passage_cosine": pytest.approx(1 - distances.mean().item(), rel=1e-4)}


@pytest.mark.parametrize(("fraction", "long"), [(0.0, 0), (0.2, 4), (0.25, 5), (0.33, 6), (1.0, 20)])
def test_kinds_of_examples_take_turns(fraction, long):
    cycle = distill.build_cycle(fraction)
    assert cycle.count(2) == long and abs(cycle.count(0) + cycle.count(3) - cycle.count(1)) <= 1
    assert abs(cycle.count(0) - cycle.count(3)) <= 1
    short = [kind for kind in cycle if kind != 2]
    assert all(before != after for before, after in itertools.pairwise(short))
    gaps = np.diff([place for place, kind in enumerate(cycle) if kind == 2])
    assert not len(gaps) or gaps.max() - gaps.min() <= 1


def test_steps_have_their_lengths(settings, words, monkeypatch):
    data = read_data(distill.open_text(settings), words, new_vocabulary=False)
    monkeypatch.setattr(distill, "BRIEF", 9)
    monkeypatch.setattr(distill, "LONG", 48)
    changed = replace(settings, max_length=16, vocab_size=None)
    kinds = {0: [], 1: [], 2: [], 3: []}
    for kind, step in zip(distill.build_cycle(0.2), distill.build_sampler(changed, 64, data).steps(), strict=False):
        examples = step.examples
        kinds[kind] += [(examples.sizes[row], examples.labels[row]) for row in step.rows]
    assert max(size for size, _ in kinds[0] + kinds[1]) <= 16 < max(size for size, _ in kinds[2]) <= 48
    assert max(size for size, _ in kinds[3]) <= 9 < max(size for size, _ in kinds[0])
    assert {label for kind in kinds.values() for _, label in kind} == {NO_PAIR}


def test_processes_build_the_same_batches_also_when_a_run_is_resumed(settings, words, teacher):
    """With the texts and passages of the teacher, in micro-batches, as those that this process builds itself."""
    held, data = load_teacher(settings), read_data(distill.open_text(settings), words, new_vocabulary=False)
    taught = DistillationTeacher(held.model, TeacherIds(words, words), pooling="mean", basis_HS=None)
    made = SimpleNamespace(
        objective=Distillation(choose_weights(settings, held), taught, data.store),
        rule=MaskRule.from_tokenizer(words, 0.3, "tokens"), gradient_accumulation=2, candidates=None,
    )  # fmt: skip

    def batches(device, builders, first):
        made.sampler, made.builders = distill.build_sampler(replace(settings, vocab_size=None), 64, data), builders
        options = SimpleNamespace(steps=20, seed=7, device=torch.device(device))
        steps = itertools.islice(build_steps(made, data, options, SINGLE_PROCESS)(first), 12 - first)
        found = [[values(batch) for batch in step] for step in steps]
        return found, made.sampler.counts

    def values(batch):
        parts = batch, batch.texts, batch.teacher_texts, batch.teacher_passages
        return [
            value.tolist() for part in parts if part for value in vars(part).values() if isinstance(value, torch.Tensor)
        ]

    expected, counts = batches("cpu", 2, 0)
    assert len({str(step) for step in expected}) == 12 and {len(step) for step in expected} == {2}
    for builders in (0, 1, 2, 3):
        assert batches("meta", builders, 0)[0] == expected
        found, resumed = batches("meta", builders, 5)
        assert found == expected[5:] and all(map(list.__eq__, resumed, counts))


def test_training_with_processes_is_the_same_and_ends_them_after_an_error(settings, tmp_path, monkeypatch):
    settings = replace(settings, steps=4, evaluate_every=4)
    runs = [distill.run(replace(settings, out=tmp_path / "alone"))]

    def ahead(tasks, build, *_):
        return lambda first: build_in_processes(build, tasks(first), 2)

    monkeypatch.setattr(pretrain, "built_ahead", ahead)
    runs.append(distill.run(replace(settings, out=tmp_path / "processes")))
    assert len({tuple(row["loss"] for row in read_metrics(run.directory)) for run in runs}) == 1

    def fail(row):
        assert len(builders()) == 2
        raise InputError("no more")

    with pytest.raises(InputError, match="no more") as _caught:  # its frames are kept
        distill.run(replace(settings, out=tmp_path / "failed"), callbacks=fail)
    assert not builders()


def test_a_new_head_for_words_starts_at_the_identity(make_teacher, make_model, words, tmp_path):
    model = make_model("bert", {}, vocab_size=len(words), pad_token_id=words.pad_id, hidden_size=24)
    held = Checkpoint(model, words, pooling="mean")
    plan = plan_student(model.config, keep_layers=(), num_layers=None, hidden_size=None)
    student, _ = build_student(held, plan, words, torch.arange(len(words)), {"masked_words": 0}, [], seed=0)
    head = student.model.heads["masked_words"]
    assert torch.equal(head.transform.weight, torch.eye(24)) and not head.transform.bias.any()


# --- user mistakes ----------------------------------------------------------------------------------------------------

MISTAKES = {
    "layers (9) is more than the 3": {"layers": 9},
    "keep_layers (5): the teacher has layers 0 to 2": {"keep_layers": (0, 5), "layers": None},
    "ascending order": {"keep_layers": (2, 0), "layers": None},
    "head size 8, at most 48": {"hidden_size": 36},
    "vocab_size (9999) is more than the": {"vocab_size": 9999},
    "vocab_size (20) must be at least": {"vocab_size": 20},
    "max_length (100) is more than the 64 positions": {"max_length": 100},
    "nothing is left to learn": {"purpose": "vectors", "vectors": 0.0},
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_is_named_in_one_line(message, settings, tmp_path):
    with pytest.raises(InputError) as refused:
        distill.run(replace(settings, out=tmp_path / "run", **MISTAKES[message]))
    assert message in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("layers (2) differs from the 3 of keep_layers", {"keep_layers": (0, 1, 2)}),
        ("has its own sizes", {"student": "somewhere"}),
        ("exclude each other", {"tokenizer": "somewhere"}),
    ],
)
def test_settings_that_exclude_each_other_are_refused(message, options, settings):
    with pytest.raises(InputError) as refused:
        replace(settings, **options)
    assert message in str(refused.value)
