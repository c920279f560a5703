"""Every task of a Predictor on a GPU beside a CPU; models that are on a GPU are saved, cut, quantized and exported."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

import bothways
from benchmarks.speed import measure
from benchmarks.speed.options import Options
from benchmarks.speed.result import as_json
from bothways.cli.commands import merge
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.cut import cut
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Classify, Export, Merge, Prune, Quantize
from bothways.shrink import prune, quantize
from bothways.shrink.export import export
from tests.gpu.oracle import HALVES, batch_of, copy_to, cosines, hidden_states

pytestmark = pytest.mark.gpu

TEXTS = [
    "The capital of France is Paris.",
    "An otter slid down the muddy bank into the water.",
    "Why?",
    "Interest rates rose again, and the bank lent less.",
    "A kitten lay on the rug beside the fire.",
    "She opened the door and walked into the room.",
]
QUERIES = ["Which city is the seat of the French government?", "a young cat", "money lent by banks"]
WORDS = ["the cat sat on the mat", "a dog ran", "the dogs sat on a mat and the cat ran", "b", "cats and dogs and cats"]
TAGS = ("O", "B-X", "I-X", "B-Y", "I-Y")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def packaged(gpu):
    """The packaged model in float32 on the GPU and on the CPU."""
    return [bothways.load("bothways-en", dtype="float32", device=str(device)) for device in (gpu, CPU)]


@pytest.fixture
def both(gpu, make_model, tokenizer):
    """A small random model with a head, on the GPU and on the CPU: both(heads, **fields of Checkpoint)."""

    def make(heads, dtype="float32", **fields):
        loaded = [Checkpoint(make_model("bert", heads, pooler=True), tokenizer, **fields) for _ in range(2)]
        return [Predictor(one, dtype=dtype, device=str(device)) for one, device in zip(loaded, (gpu, CPU), strict=True)]

    return make


@pytest.fixture(scope="module")
def rows():
    animals = ["dog", "cat"]
    return [{"text": f"{WORDS[row % 3]} {animals[row % 2]} {row}", "label": animals[row % 2]} for row in range(60)]


@pytest.fixture(scope="module")
def classifier(gpu, rows, make_model, tokenizer, tmp_path_factory):
    """The directory of a small classifier that was fine-tuned on the GPU."""
    folder = tmp_path_factory.mktemp("classifier")
    checkpoint.save(Checkpoint(make_model("bert", {"masked_words": 0}), tokenizer), folder / "start")
    settings = Classify(
        model=folder / "start", train=rows[:40], dev=rows[40:50], test=rows[50:], out=folder / "run", epochs=8.0,
        evaluations_per_epoch=0.25, batch_tokens=256, learning_rate=1e-2, baselines=False, linear_start=False,
        dtype="float32", device=str(gpu),
    )  # fmt: skip
    return bothways.train(settings).model_directory


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_vectors_and_search_results_are_those_of_a_cpu(packaged):
    (there, queries), (here, expected_queries) = ((one.embed(TEXTS), one.embed(QUERIES)) for one in packaged)
    np.testing.assert_allclose(there, here, rtol=0, atol=1e-3)
    assert there.dtype == np.float32 and np.linalg.norm(there, axis=1) == pytest.approx(1, abs=1e-5)
    order, expected = (np.argsort(-one @ two.T) for one, two in ((queries, there), (expected_queries, here)))
    assert order.tolist() == expected.tolist()
    assert order[:2, 0].tolist() == [0, 4]


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_every_pooling_is_that_of_a_cpu(pooling, packaged):
    there, here = (one.embed(TEXTS, pooling=pooling) for one in packaged)
    np.testing.assert_allclose(there, here, rtol=0, atol=1e-3)


def test_hidden_states_are_those_of_a_cpu(packaged):
    for there, here in zip(*(one.hidden_states(TEXTS) for one in packaged), strict=True):
        np.testing.assert_allclose(there, here, rtol=0, atol=1e-3)


def test_masks_are_filled_as_on_a_cpu(packaged):
    texts = ["The capital of France is [MASK].", "She opened the [MASK] and walked into the [MASK]."]
    there, here = ([guess for masks in one.fill(texts, top=5) for mask in masks for guess in mask] for one in packaged)
    assert [guess.token for guess in there] == [guess.token for guess in here] and len(there) == 15
    assert [guess.score for guess in there] == pytest.approx([guess.score for guess in here], abs=1e-3)


def test_the_next_sentence_is_predicted_as_on_a_cpu(packaged):
    there, here = (one.is_next(TEXTS, TEXTS[1:] + TEXTS[:1]) for one in packaged)
    np.testing.assert_allclose(there, here, rtol=0, atol=1e-3)


def test_classes_are_those_of_a_cpu(classifier, gpu, rows):
    texts = [row["text"] for row in rows]
    there, here = (
        bothways.load(classifier, dtype="float32", device=str(device)).classify(texts) for device in (gpu, CPU)
    )
    assert [one.label for one in there] == [one.label for one in here] and len({one.label for one in here}) == 2
    for one, other in zip(there, here, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-3)


def test_numbers_are_those_of_a_cpu(both):
    there, here = (one.regress(WORDS) for one in both({"classes": 1}))
    np.testing.assert_allclose(there, here, rtol=0, atol=1e-3)


def test_entities_are_those_of_a_cpu(both):
    there, here = ([entity for text in one.tag(WORDS) for entity in text] for one in both({"tokens": 5}, labels=TAGS))
    assert [(one.label, one.text, one.start) for one in there] == [(one.label, one.text, one.start) for one in here]
    assert [one.score for one in there] == pytest.approx([one.score for one in here], abs=1e-3) and len(here) > 2


def test_answers_are_those_of_a_cpu(both):
    passages = [f"{text} and a dog sat on the mat" for text in WORDS]
    there, here = (
        [answer for answers in one.answer(["the cat"] * len(passages), passages) for answer in answers]
        for one in both({"spans": 2})
    )
    assert [one.text for one in there] == [one.text for one in here] and any(one.text for one in here)
    assert [one.score for one in there] == pytest.approx([one.score for one in here], abs=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_texts_beyond_512_tokens_are_read_in_windows_as_on_a_cpu(dtype, gpu, needs_cuda, packaged):
    if dtype == "float16":
        needs_cuda("a CPU is slow in float16")
    long = [" ".join([*TEXTS, *QUERIES] * number) for number in (9, 1)]
    there = bothways.load("bothways-en", dtype=dtype, device=str(gpu))
    windows = there.split(there.tokenizer.encode_many(long))
    assert len(windows[0]) > 1 and len(windows[1]) == 1
    expected = torch.from_numpy(packaged[1].embed(long))
    assert float(cosines(torch.from_numpy(there.embed(long)), expected).min()) > 0.9999


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_size_of_batches_does_not_matter(dtype, both):
    there, here = both({}, dtype, pooling="mean")
    texts = [f"{text} {' '.join(WORDS[: number % 4])} {number}" for number, text in enumerate(WORDS * 8)]
    expected = torch.from_numpy(here.embed(texts))
    for batch_tokens in (16, 100, 4096):
        there.encoder.runner.batch_tokens = batch_tokens
        actual = torch.from_numpy(there.embed(texts))
        least = 1 - 1e-6 if dtype == "float32" else 0.999
        assert float(cosines(actual, expected).min()) > least


def test_benchmarks_run_without_peers(gpu, checkpoint_of, monkeypatch):
    monkeypatch.setattr(measure, "SECONDS", 0.001)
    directory = checkpoint_of(heads={}, pooling="mean")
    options = {"lengths": (23, 37), "batches": (1, 3), "repeats": 2, "peers": False, "dtype": "float32"}
    report = as_json(measure.run(Options(model=directory, device=str(gpu), **options)))
    assert report["device"] == str(gpu)
    assert len(report["timings"]) == 4 and all(one["tokens_per_second"] > 0 for one in report["timings"])


# --- models that are on a GPU -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_model_on_a_gpu_is_saved_with_its_exact_weights(dtype, gpu, checkpoint_of, tmp_path):
    directory = checkpoint_of(heads={"classes": 3}, labels=("a", "b", "c"))
    bothways.load(directory, dtype=dtype, device=str(gpu)).save(tmp_path / "saved")
    expected = checkpoint.load(directory).model.state_dict()
    for name, value in checkpoint.load(tmp_path / "saved").model.state_dict().items():
        assert value.device == CPU and torch.equal(value, expected[name]), name


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_a_model_on_a_gpu_is_cut_as_on_a_cpu(family, gpu, make_model, tokenizer):
    heads = [[0, 2], [1, 2], [0, 1]]
    results = []
    for device in (gpu, CPU):
        whole = Checkpoint(copy_to(make_model(family), device), tokenizer, model_type=family)
        layers = range(whole.model.config.num_hidden_layers)
        small = cut(whole, layers=layers, heads=[heads[layer % 3] for layer in layers])
        results.append(hidden_states(small.model, batch_of((20, 5, 40))))
    assert float((results[0] - results[1]).abs().max()) < 1e-4


@pytest.mark.slow
def test_pruning_on_a_gpu_writes_a_smaller_model_that_is_read_on_a_cpu(gpu, classifier, rows, tmp_path):
    settings = Prune(
        model=classifier, texts=rows[:40], dev=rows[40:50], test=rows[50:], out=tmp_path / "small", size=0.5,
        epochs=0.1, dtype="float32", device=str(gpu), cuts=1,
    )  # fmt: skip
    prune.run(settings)
    texts = [row["text"] for row in rows]
    there, here = (
        bothways.load(tmp_path / "small", dtype="float32", device=str(device)).classify(texts) for device in (gpu, CPU)
    )
    for one, other in zip(there, here, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-3)
    small, whole = (bothways.load(path, device="cpu").module.parameters() for path in (tmp_path / "small", classifier))
    assert sum(value.numel() for value in small) < sum(value.numel() for value in whole)


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_an_int8_model_computes_on_a_gpu_what_it_does_on_a_cpu(dtype, gpu, classifier, rows, tmp_path):
    """A GPU takes the plain form, with the same integers: only the last bits of what is between the layers differ."""
    (tmp_path / "texts.txt").write_text("\n".join(row["text"] for row in rows), encoding="utf-8")
    settings = Quantize(model=classifier, texts=tmp_path / "texts.txt", out=tmp_path / "int8", max_drop=100.0)
    quantize.run(settings)
    name = str(dtype).removeprefix("torch.")
    there = bothways.load(tmp_path / "int8", dtype=name, device=str(gpu))
    here = bothways.load(tmp_path / "int8", dtype="float32", device="cpu")
    assert any(value.dtype is torch.int8 and value.device.type == gpu.type for value in there.module.buffers())
    texts = [row["text"] for row in rows]
    for one, other in zip(there.classify(texts), here.classify(texts), strict=True):
        assert one.scores == pytest.approx(other.scores, abs=0.01 if dtype is torch.float32 else 0.05)


@pytest.mark.slow
def test_a_merged_adapter_that_was_trained_on_a_gpu_gives_what_it_gave(gpu, classifier, rows, tmp_path):
    settings = Classify(
        model=classifier, train=rows[:40], dev=rows[40:50], test=rows[50:], out=tmp_path / "run", epochs=1.0,
        batch_tokens=256, baselines=False, linear_start=False, dtype="float32", device=str(gpu), adapter="lora",
    )  # fmt: skip
    run = bothways.train(settings)
    merge(Merge(adapter=run.directory, out=tmp_path / "merged"))
    texts = [row["text"] for row in rows]
    expected = bothways.load(run.model_directory, dtype="float32", device="cpu").classify(texts)
    actual = bothways.load(tmp_path / "merged", dtype="float32", device=str(gpu)).classify(texts)
    for one, other in zip(actual, expected, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(
    not all(map(find_spec, ("onnx", "onnxscript", "onnxruntime"))), reason="needs the packages of the extra onnx"
)
def test_a_model_that_was_saved_from_a_gpu_is_exported(gpu, needs_cuda, checkpoint_of, tmp_path):
    needs_cuda("on a CPU tests/export does it")
    classifier = checkpoint_of(heads={"classes": 2}, labels=("a", "b"), changes={"num_hidden_layers": 1})
    bothways.load(classifier, dtype="float32", device=str(gpu)).save(tmp_path / "saved")
    export.run(Export(model=tmp_path / "saved", out=tmp_path / "onnx"))  # which compares the scores
    assert (tmp_path / "onnx" / "model.onnx").stat().st_size > 10_000
