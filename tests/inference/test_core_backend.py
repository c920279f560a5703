"""The backend of the core: its results are those of numpy's backend, for every head; when it is chosen, and what else
it does not do."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from bothways.base.errors import InputError, UsageError
from bothways.cli import main
from bothways.core import library
from bothways.core.core import CoreEncoder
from bothways.core.library import CHOICE, SWITCH, Absence, Core, choose, find_core
from bothways.inference import load as inference_load
from bothways.inference.backends import core as backends_core
from bothways.inference.backends.core import CoreWords, choose_format
from bothways.inference.fingerprint import vector_space
from bothways.inference.jobs.facts import reproduction_facts
from bothways.inference.load import load
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.pack import save_packed
from bothways.model.checkpoint.checkpoint import save
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.weights import INT8_WEIGHTS
from bothways.model.int8 import replace_linears
from bothways.model.int8_tensors import TABLE_INT8
from bothways.model.int8_training import candidates, int8_linear, observe
from bothways.settings import Embed
from bothways.text.batch import Batch

pytestmark = pytest.mark.skipif(isinstance(find_core(), Absence), reason="the core is not compiled here")

LAYOUTS = ("bert", "distilbert", "electra", "roberta", "albert")
SIZES = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 96}
LABELS = ("O", "good", "bad")
TEXTS = ["the rate of the cat", "a", "the dog, the cat and the rate of a dog!", "", "a dog", "the rate of the cat"]
CLOSE = {"rtol": 0, "atol": 1e-5}


@pytest.fixture
def model_directory(make_model, tokenizer, tmp_path):
    """Writes a random model that the core can compute; its directory."""

    def make(family="bert", heads=None, *, labels=(), pooling=None, **changes):
        if family in ("albert", "electra"):
            changes["embedding_size"] = 32
        model = make_model(family, heads, **SIZES, **changes)
        save(Checkpoint(model, tokenizer, labels=labels, pooling=pooling, model_type=family), tmp_path / family)
        return tmp_path / family

    return make


def both(directory):
    """A model by the core, and by numpy."""
    ours = load(directory, dtype="float32")
    assert ours.backend.library == "core"
    return ours, load(directory, backend="numpy")


@pytest.mark.parametrize("family", LAYOUTS)
def test_vectors_and_classes_are_those_of_numpy(model_directory, family):
    ours, expected = both(model_directory(family, {"classes": 3}, labels=LABELS))
    for pooling in ("mean", "cls", "max"):
        vectors = [model.embed(TEXTS, pooling=pooling) for model in (ours, expected)]
        np.testing.assert_allclose(*vectors, rtol=0, atol=1e-6)
    for states, others in zip(ours.hidden_states(TEXTS), expected.hidden_states(TEXTS), strict=True):
        np.testing.assert_allclose(states, others, **CLOSE)
    for pairs in (None, TEXTS[::-1]):
        for one, other in zip(ours.classify(TEXTS, pairs), expected.classify(TEXTS, pairs), strict=True):
            assert one.label == other.label and one.scores == pytest.approx(other.scores, abs=1e-5)


def test_words_and_next_sentences_are_those_of_numpy(model_directory):
    ours, expected = both(model_directory("bert", {"masked_words": 0, "next_sentence": 2}))
    assert ours.is_next(TEXTS, TEXTS[::-1]) == pytest.approx(expected.is_next(TEXTS, TEXTS[::-1]), abs=1e-5)
    text = "the [MASK] of a [MASK] cat"
    for guesses, others in zip(ours.fill(text, top=3), expected.fill(text, top=3), strict=True):
        assert [guess.token for guess in guesses] == [guess.token for guess in others]
        assert [guess.score for guess in guesses] == pytest.approx([guess.score for guess in others], abs=1e-6)


def test_tags_are_those_of_numpy(model_directory):
    ours, expected = both(model_directory("bert", {"tokens": 3}, labels=LABELS))
    for found, others in zip(ours.tag(TEXTS), expected.tag(TEXTS), strict=True):
        assert [(one.label, one.start, one.end) for one in found] == [(one.label, one.start, one.end) for one in others]
        assert [one.score for one in found] == pytest.approx([one.score for one in others], abs=1e-5)


def test_answers_are_those_of_numpy(model_directory):
    models = both(model_directory("bert", {"spans": 2}))
    one, other = (model.answer("the cat", "the rate of the cat is a dog")[0] for model in models)
    assert (one.text, one.start) == (other.text, other.start)
    assert one.score == pytest.approx(other.score, abs=1e-5)


def test_the_packaged_model_is_computed_by_the_core_without_torch():
    code = """
import sys, bothways
model = bothways.load()
model.embed("a cat")
print(model.backend.library, "torch" in sys.modules, model.backend.computed_by)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"core False core ({find_core().instruction_set}, ")


def test_vectors_of_the_packaged_model_are_those_of_numpy(paragraphs):
    expected = load(backend="numpy").embed(paragraphs[:8])
    np.testing.assert_allclose(load(dtype="float32").embed(paragraphs[:8]), expected, rtol=0, atol=1e-6)
    vectors = load().embed(paragraphs[:8])
    assert (vectors * expected).sum(1).min() > 0.9999


@pytest.mark.parametrize("dtype", ["float32", "auto"])
def test_a_text_has_the_same_bits_alone_and_among_others(paragraphs, dtype):
    model = load(dtype=dtype)
    together = model.embed(paragraphs[:15])
    for row in range(0, 15, 7):
        np.testing.assert_array_equal(model.embed(paragraphs[row]), together[row])
    np.testing.assert_array_equal(model.embed(paragraphs[:15][::-1], batch_tokens=300), together[::-1])


def test_long_texts_are_read_in_windows(paragraphs):
    text = " ".join(paragraphs[:13])
    options = {"window": 64, "overlap": 16}
    ours, expected = load(dtype="float32"), load(backend="numpy")
    for long in ("windows", "truncate"):
        vectors = [model.embed(text, long=long, **options) for model in (ours, expected)]
        np.testing.assert_allclose(*vectors, rtol=0, atol=1e-6)
    assert ours.truncated_texts == 1


def test_all_backends_have_one_vector_space(model_directory, tmp_path):
    directory = model_directory(pooling="mean")
    spaces = {vector_space(load(directory, backend=name)) for name in ("core", "numpy", "torch")}
    assert len(spaces) == 1 and spaces == {vector_space(load(directory, dtype="float32", backend="core"))}
    assert vector_space(load()) == vector_space(load(backend="numpy")) not in spaces


def test_tables_of_words_packed_in_memory_or_in_a_file_have_the_same_rows(model_directory, monkeypatch, tmp_path):
    directory = model_directory(pooling="mean")
    save_packed(checkpoint.load(directory), tmp_path / "packed")
    in_memory = load(directory, dtype="float32")
    monkeypatch.setattr(backends_core, "IN_MEMORY", 0)
    in_file = load(directory, dtype="float32")
    assert isinstance(in_memory.backend.words, CoreWords)
    assert in_memory.backend.words.table_VE is not None and in_file.backend.words.table_VE is None
    np.testing.assert_array_equal(in_memory.embed(TEXTS), in_file.embed(TEXTS))

    packed, by_numpy = both(tmp_path / "packed")
    assert packed.backend.words.packed is not None
    ids = np.array([0, 5, 5, 96])
    np.testing.assert_array_equal(packed.backend.words.rows(ids), by_numpy.backend.words.rows(ids))
    for ids in ([97], [-1]):
        with pytest.raises(InputError, match=f"token 0 has the id {ids[0]}; ids are from 0 to 96"):
            packed.backend.words.rows(np.array(ids))


# --- int8 -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def int8_directory(make_model, tokenizer, tmp_path):
    """Writes a random model some of whose layers are int8; its directory and that of the float model."""

    def make(family="bert", heads=None, *, left_out=(), labels=(), pooling=None, **changes):
        model = make_model(family, heads, **(SIZES | changes))
        batch = Batch.from_encodings(tokenizer.encode_many([text for text in TEXTS if text]))
        with torch.no_grad():
            forms = candidates(model, observe(model, lambda: model(batch)))
        layers = {name: one.linear for name, one in forms.items() if not any(part in name for part in left_out)}
        for name, form in (("float", model), ("int8", replace_linears(model, layers))):
            loaded = Checkpoint(form, tokenizer, labels=labels, pooling=pooling, model_type=family)
            save(loaded, tmp_path / name)
        return tmp_path / "int8", tmp_path / "float"

    return make


LEFT_OUT = [(), ("feed_forward.output",), ("feed_forward.inner",), ("attention",), ("layers.1",)]


@pytest.mark.parametrize("left_out", LEFT_OUT)
def test_vectors_and_classes_of_int8_models_are_near_those_of_torch(int8_directory, left_out):
    directory, exact = int8_directory(heads={"classes": 3}, labels=LABELS, left_out=left_out)
    ours, by_torch, exact = load(directory), load(directory, backend="torch"), load(exact, backend="numpy")
    assert (ours.backend.library, by_torch.backend.library) == ("core", "torch")
    vectors, others, without = (model.embed(TEXTS) for model in (ours, by_torch, exact))
    assert (vectors * others).sum(1).min() > 0.999
    assert 0.99 < (vectors * without).sum(1).mean() < 0.999999
    for pairs in (None, TEXTS[::-1]):
        for one, other in zip(ours.classify(TEXTS, pairs), by_torch.classify(TEXTS, pairs), strict=True):
            assert one.scores == pytest.approx(other.scores, abs=0.02)


@pytest.mark.parametrize("family", ["roberta", "distilbert", "albert", "electra"])
def test_int8_models_of_other_families_and_with_cut_heads(int8_directory, family):
    changes = {"num_attention_heads": 1, "attention_head_size": 32} if family == "roberta" else {}
    changes |= {"embedding_size": 32} if family in ("albert", "electra") else {}
    directory, _ = int8_directory(family, {"classes": 3}, labels=LABELS, **changes)
    ours, by_torch = load(directory), load(directory, backend="torch")
    assert ours.backend.library == "core"
    assert (ours.embed(TEXTS) * by_torch.embed(TEXTS)).sum(1).min() > 0.999
    for one, other in zip(ours.classify(TEXTS), by_torch.classify(TEXTS), strict=True):
        assert one.scores == pytest.approx(other.scores, abs=0.02)


def test_torch_computes_an_int8_model_whose_heads_were_cut_to_another_size(int8_directory):
    directory, _ = int8_directory(num_attention_heads=1, attention_head_size=16)
    reason = "the core does not: the size of all heads is 16, not a multiple of 32"
    assert load(directory).backend.why_chosen == reason


def test_words_of_an_int8_model_are_near_those_of_torch(int8_directory):
    directory, _ = int8_directory(heads={"masked_words": 0})
    text = "the [MASK] of a [MASK] cat"
    for guesses, others in zip(
        *(load(directory, backend=name).fill(text, top=3) for name in ("core", "torch")), strict=True
    ):
        assert guesses[0].token == others[0].token
        assert guesses[0].score == pytest.approx(others[0].score, abs=0.01)


def test_an_int8_model_keeps_its_vector_space_and_its_files_and_what_computes_it_is_printed(
    int8_directory, tmp_path, capsys
):
    directory, exact = int8_directory(pooling="mean", pooler=True, left_out=("layers.1.attention",))
    model, by_torch = load(directory), load(directory, backend="torch")
    assert vector_space(model) == vector_space(by_torch) == vector_space(load(directory, dtype="float32"))
    assert vector_space(model) != vector_space(load(exact))

    vectors = model.embed(TEXTS)
    np.testing.assert_array_equal(model.embed(TEXTS[2]), vectors[2])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).embed(TEXTS), vectors)
    model.save(tmp_path / "again")
    assert (tmp_path / "again" / INT8_WEIGHTS).read_bytes() == (directory / INT8_WEIGHTS).read_bytes()

    main.main(["info", str(directory)])
    lines = capsys.readouterr().out.splitlines()
    instruction_set = find_core().instruction_set
    facts = {line[:13].strip(): line[13:].strip() for line in lines}
    assert facts["backend"] == f"core ({instruction_set}, {model.dtype}, int8)"
    assert facts["number format"] == "int8, in most linear layers"


def test_the_word_table_of_an_int8_model_stays_in_int8(int8_directory):
    directory, _ = int8_directory(pooling="mean")
    words = load(directory).backend.words
    assert words.table_VE is None and words.packed.integers_VE.dtype == np.int8
    by_torch = load(directory, backend="torch", dtype="float32")
    expected = by_torch.module.encoder.embeddings.words.weight.detach().numpy()
    np.testing.assert_array_equal(words.rows(np.arange(len(expected))), expected)
    np.testing.assert_array_equal(np.concatenate([*words.pieces()]), expected)


class Watched:
    """A linear layer of numpy's backend that keeps the least and the greatest input of each column."""

    def __init__(self, linear):
        self.linear = linear
        self.weight_HO, self.bias_O = linear
        self.low_I, self.high_I = np.zeros((2, len(linear.weight_HO)), np.float32)

    def __call__(self, x_TI):
        self.low_I = np.minimum(self.low_I, x_TI.min(0))
        self.high_I = np.maximum(self.high_I, x_TI.max(0))
        return self.linear(x_TI)

    def in_int8(self):
        plain = torch.nn.utils.skip_init(torch.nn.Linear, *self.weight_HO.shape)
        plain.weight.data = torch.from_numpy(self.weight_HO.T.copy())
        plain.bias.data = torch.from_numpy(self.bias_O.copy())
        made = int8_linear(plain, torch.from_numpy(self.low_I), torch.from_numpy(self.high_I), 0.5)
        return {name: value.numpy() for name, value in made.named_buffers()}


def test_vectors_of_the_packaged_model_in_int8_are_near_those_in_float32(paragraphs):
    by_numpy = load(backend="numpy")
    # Its feed_forward.output, whose inputs have one step for all columns, would cost a hundredth of the cosine.
    fields = {
        "attention.qkv": "qkv",
        "attention.output": "attention_output",
        "feed_forward.inner": "inner",
    }
    layers = by_numpy.backend.bert.layers
    layers[:] = [
        layer._replace(**{field: Watched(getattr(layer, field)) for field in fields.values()}) for layer in layers
    ]
    expected = by_numpy.embed(paragraphs[:20])

    model = load()
    plain = model.backend.encoder_in_c
    names = [f"layers.{index}.{name}" for index in range(len(layers)) for name in fields]
    ours = CoreEncoder(plain.core, plain.layout, plain.dtype, names)
    for name in plain.shapes:
        if name.rsplit(".", 1)[0] not in names:
            ours.put(name, 0, plain.get(name))
    for index, layer in enumerate(layers):
        for name, field in fields.items():
            ours.put_int8(f"layers.{index}.{name}", **getattr(layer, field).in_int8())
    model.backend.encoder_in_c = ours
    cosines = (model.embed(paragraphs[:20]) * expected).sum(1)
    assert 0.997 < cosines.min() < 0.99999


def test_tensors_of_an_int8_model_that_do_not_fit_are_named(int8_directory):
    directory, _ = int8_directory(heads={"classes": 3}, labels=LABELS)
    file = directory / INT8_WEIGHTS
    tensors = load_file(file)
    layer = "encoder.layers.1.attention.qkv"
    scale = tensors[f"{layer}.weight_scale"]
    table = tensors[TABLE_INT8]
    faults = {
        r"missing: .*qkv\.weight_scale": {f"{layer}.weight_scale": None},
        "no part of the model: other": {"other": scale},
        "no layers of the encoder: encoder.layers.7.attention.qkv": {
            "encoder.layers.7.attention.qkv.weight_int8": table
        },
        "no layers of the encoder: pooler.dense": {"pooler.dense.weight_int8": table},
        r"qkv\.weight_scale is \[5\], not \[192\]": {f"{layer}.weight_scale": scale[:5]},
        "table_int8 has the number format I16, not I8": {TABLE_INT8: table.astype(np.int16)},
        "has the number format F64": {f"{layer}.weight_scale": scale.astype(np.float64)},
        r"input_zero \(256\) must be from 0 to 255": {f"{layer}.input_zero": np.array(256)},
    }
    for message, changes in faults.items():
        changed = {name: value for name, value in {**tensors, **changes}.items() if value is not None}
        save_file(changed, file)
        with pytest.raises(InputError, match=rf"does not fit config\.json .*{message}.*; quantize the model again"):
            load(directory, backend="core")
    save_file(tensors | {f"{layer}.bias": np.full(192, np.nan, np.float32)}, file)
    with pytest.raises(InputError, match="NaN or infinite values in"):
        load(directory, backend="core")


# --- what needs torch, other processes --------------------------------------------------------------------------------


def test_torch_loads_the_model_when_it_is_needed_and_computes_from_then_on(model_directory, tmp_path):
    directory = model_directory(pooling="mean")
    model = load(directory, dtype="float32")
    vectors = model.embed(TEXTS)
    attention = model.attention("the cat")
    assert attention.weights.shape[0] == 3
    model.save(tmp_path / "copy")
    assert model.backend.library == "core"
    np.testing.assert_array_equal(load(tmp_path / "copy", dtype="float32").embed(TEXTS), vectors)

    module = model.module
    assert (model.backend.library, model.dtype) == ("torch", "float32")
    np.testing.assert_allclose(model.embed(TEXTS), vectors, **CLOSE)
    module.encoder.layers[0].feed_forward.inner.weight.data.mul_(2)
    assert abs(model.embed(TEXTS) - vectors).max() > 1e-3


def test_files_that_have_changed_are_not_loaded_by_torch(model_directory, make_model, tokenizer):
    directory = model_directory(pooling="mean")
    model, other = load(directory), load(directory)
    vectors = model.embed(TEXTS)
    save(Checkpoint(make_model("bert", **SIZES), tokenizer, pooling="mean"), directory)
    with pytest.raises(InputError, match="the files have changed or gone since the model was loaded, and torch needs"):
        model.module  # noqa: B018
    shutil.rmtree(directory)
    with pytest.raises(InputError, match="load the model with backend='torch' before they change"):
        other.checkpoint  # noqa: B018
    np.testing.assert_array_equal(model.embed(TEXTS), vectors)


def test_batches_are_small_enough_for_all_threads(model_directory, monkeypatch):
    model = load(model_directory(pooling="mean"))
    backend = model.backend
    tokens = []
    compute = backend.states

    def states(ids_T, segments_T, lengths_N, rows_R, threads):
        tokens.append((len(ids_T), threads))
        return compute(ids_T, segments_T, lengths_N, rows_R, threads)

    monkeypatch.setattr(backend, "states", states)
    for name in ("numpy", "core"):
        monkeypatch.setattr(f"bothways.inference.backends.{name}.num_threads", lambda: 4)
    words = np.random.default_rng(0).choice(["the", "cat", "dog", "rate"], (500, 9))
    texts = [" ".join(row) for row in words]  # some 5,000 tokens
    vectors = model.embed(texts)
    assert len(tokens) >= 12 and {threads for _, threads in tokens} == {1}
    tokens.clear()
    alone = model.embed(texts[3])
    assert tokens[0][1] == 1
    tokens.clear()
    model.embed("the cat " * 25)
    assert len(tokens) == 1 and tokens[0][0] > 32 and tokens[0][1] == 4
    np.testing.assert_array_equal(alone, vectors[3])


def test_a_pickle_computes_the_same(model_directory):
    model = load(model_directory(pooling="mean"))
    copy = pickle.loads(pickle.dumps(model))
    assert copy.backend.library == "core"
    np.testing.assert_array_equal(copy.embed(TEXTS), model.embed(TEXTS))


def test_a_pickle_for_another_instruction_set_is_an_error(model_directory, monkeypatch):
    content = pickle.dumps(load(model_directory()))
    other = Core(find_core().library, "avx2")
    if other.instruction_set == find_core().instruction_set:
        pytest.skip("the processor has no other instruction set")
    monkeypatch.setattr(library, "find_core", lambda: other)
    with pytest.raises(InputError, match="packed for .* cannot be computed for avx2; load it here"):
        pickle.loads(content)
    monkeypatch.setattr(library, "find_core", lambda: Absence("it is off"))
    with pytest.raises(InputError, match="a model of the core cannot be computed here: it is off"):
        pickle.loads(content)


FORKED = """
import os, sys
import numpy as np
import bothways
model = bothways.load(sys.argv[1], dtype="float32")
texts = ["the cat " * 30, "a dog"]
expected = model.embed(texts)
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(model.embed(texts), expected) else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert np.array_equal(model.embed(texts), expected)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_computes_after_its_parent_has(model_directory):
    environment = {**os.environ, "OMP_NUM_THREADS": "4"}
    subprocess.run([sys.executable, "-c", FORKED, model_directory(pooling="mean")], check=True, env=environment)


LITTLE_ROOM = """
import resource, sys
import numpy as np
from tests.core.encoders import SMALL, make_batch, make_encoder, make_words
from bothways.core.library import find_core
encoder, words, batch = make_encoder(find_core()), make_words(SMALL), make_batch([100, 30])
expected = encoder(words, *batch, threads=8)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 20_000_000, used + 20_000_000))
for threads in (2, 8, 64):
    assert np.array_equal(encoder(words, *batch, threads=threads), expected)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_threads_that_cannot_be_started_are_not_missed(request):
    """Each thread takes 8 MB of addresses for its stack, and the limit leaves 20."""
    root = request.config.rootpath
    subprocess.run([sys.executable, "-c", LITTLE_ROOM], check=True, env={**os.environ, "PYTHONPATH": str(root)})


# --- the choice -------------------------------------------------------------------------------------------------------


def test_the_reason_is_named_where_the_core_does_not_compute(make_model, tokenizer, tmp_path):
    for family, reason in (
        ("bert", "the hidden size is 24, not a multiple of 32"),
        ("modernbert", "it does not have BERT's layout"),
    ):
        save(Checkpoint(make_model(family), tokenizer, model_type=family), tmp_path / family)
        backend = load(tmp_path / family).backend
        assert backend.library == "torch" and backend.why_chosen == f"the core does not: {reason}"
        assert backend.computed_by.startswith("torch (cpu, ") and backend.computed_by.endswith(reason)
        with pytest.raises(
            InputError, match=f"backend 'core' does not compute the model: {reason}; another backend may"
        ):
            load(tmp_path / family, backend="core")


def test_devices_and_formats_that_the_core_does_not_have(model_directory, monkeypatch):
    directory = model_directory()
    with pytest.raises(InputError, match="it computes in .*float32.* on this processor, not in 'float16'"):
        load(directory, backend="core", dtype="float16")
    with pytest.raises(InputError, match="it computes on a CPU, not on the device 'cuda'"):
        load(directory, backend="core", device="cuda")
    assert "the core does not: it computes in " in load(directory, dtype="float16").backend.why_chosen

    monkeypatch.setattr(inference_load, "has_gpu", lambda: True)
    assert "the core does not: it computes on a CPU" in load(directory).backend.why_chosen
    assert load(directory, device="cpu").backend.library == "core"

    monkeypatch.undo()
    monkeypatch.setattr(inference_load.platform, "machine", lambda: "aarch64")
    assert "the core does not: nobody has measured it beside torch on ARM" in load(directory).backend.why_chosen
    assert load(directory, backend="core").backend.library == "core"


def test_the_environment_turns_the_core_off_and_chooses_instruction_sets(monkeypatch):
    def found(**variables):
        for name in (SWITCH, CHOICE):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return find_core.__wrapped__()

    assert found(BOTHWAYS_CORE="0") == Absence("BOTHWAYS_CORE is 0")
    assert found(BOTHWAYS_CORE="1").instruction_set == find_core().instruction_set
    for name in library.available_sets(find_core().library):
        assert found(BOTHWAYS_CORE_ISA=name).instruction_set == name
    with pytest.raises(UsageError, match="BOTHWAYS_CORE_ISA is 'sse9'; this processor and library have (.*avx2|neon)"):
        found(BOTHWAYS_CORE_ISA="sse9")


def test_a_library_that_is_missing_broken_or_untested_is_not_used(monkeypatch, tmp_path):
    ours = find_core().library
    monkeypatch.setattr(library, "TESTED", {})
    assert "it has not been tested on" in choose(ours, "").reason
    monkeypatch.undo()
    monkeypatch.setattr(library, "available_sets", lambda library: [])
    assert "the processor has none of the instruction sets" in choose(ours, "").reason
    monkeypatch.undo()

    monkeypatch.setattr(library, "FOLDER", tmp_path)
    assert find_core.__wrapped__().reason.startswith("it is not compiled; install a wheel of the platform")
    (tmp_path / library.library_name(tmp_path, library.SUFFIX)).write_bytes(b"no library")
    assert find_core.__wrapped__().reason.startswith("its library cannot be loaded (")


def test_a_job_records_what_computes(model_directory):
    """A job goes on only with equal facts."""
    settings = Embed(model=str(model_directory(pooling="mean")), file="-", out=Path("x.npy"))
    by_core, by_numpy = (
        reproduction_facts(settings, load(settings.model, dtype="float32", backend=name)) for name in ("core", "numpy")
    )
    assert by_core.pop("core").startswith(f"{find_core().instruction_set} libcore-")
    assert by_core == by_numpy


def test_auto_is_the_fastest_format_of_the_processor():
    core = find_core()
    assert choose_format(core, "auto") == core.formats[-1] == load().dtype
    assert choose_format(core, "fp32") == "float32"


def test_what_computes_is_printed_by_info(model_directory, capsys, monkeypatch):
    directory = model_directory()
    main.main(["info", str(directory)])
    line = f"backend      core ({find_core().instruction_set}, {load(directory).dtype})"
    assert line in capsys.readouterr().out.splitlines()
    monkeypatch.setattr(backends_core, "find_core", lambda: Absence("BOTHWAYS_CORE is 0"))
    main.main(["info", str(directory), "--json"])
    computed_by = json.loads(capsys.readouterr().out)["backend"]
    assert computed_by.startswith("torch (cpu, ") and computed_by.endswith("; the core does not: BOTHWAYS_CORE is 0")


def test_without_the_core_and_torch_numpy_computes(model_directory):
    code = """
import sys
sys.modules["torch"] = None
import importlib.util, bothways
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else found(name, *rest)
import bothways.inference.load
bothways.inference.load.find_spec = importlib.util.find_spec
print(bothways.load(sys.argv[1]).backend.computed_by)
"""
    environment = {**os.environ, SWITCH: "0"}
    done = subprocess.run(
        [sys.executable, "-c", code, model_directory()], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout == "numpy (cpu, float32); the core does not: BOTHWAYS_CORE is 0\n"
