"""The encoder in numpy: its results are those of torch in float32, and a text's do not depend on the other texts."""

import math
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

import bothways
from bothways.base.errors import InputError
from bothways.base.io import unpacked_directory
from bothways.cli import main
from bothways.inference.backends.forward import NORMAL, gelu
from bothways.inference.backends.numpy import NumpyBackend
from bothways.inference.fingerprint import vector_space
from bothways.inference.load import load
from bothways.model.checkpoint.checkpoint import save
from bothways.model.checkpoint.contents import Checkpoint

LAYOUTS = ("bert", "distilbert", "electra", "roberta", "albert")
HEADS = {"classes": 3, "tokens": 3, "spans": 2}
LABELS = ("O", "good", "bad")
TEXTS = ["the rate of the cat", "a", "the dog, the cat and the rate of a dog!", "", "a dog", "the rate of the cat"]
CLOSE = {"rtol": 0, "atol": 1e-5}


@pytest.fixture
def both(make_model, tokenizer, tmp_path):
    """A random model in both backends, from the same files."""

    def make(family="bert", heads=None, *, labels=(), pooling=None, **changes):
        model = make_model(family, heads, **changes)
        described = {"labels": labels, "pooling": pooling, "model_type": family}
        save(Checkpoint(model=model, tokenizer=tokenizer, **described), tmp_path / family)
        return load(tmp_path / family, backend="numpy"), load(tmp_path / family, dtype="float32", backend="torch")

    return make


@pytest.mark.parametrize("family", LAYOUTS)
@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_vectors_are_those_of_torch(both, family, pooling):
    ours, expected = both(family, pooling=pooling)
    assert isinstance(ours.backend, NumpyBackend) and (ours.dtype, ours.device) == ("float32", "cpu")
    np.testing.assert_allclose(ours.embed(TEXTS), expected.embed(TEXTS), **CLOSE)
    assert ours.embed(TEXTS[0]).shape == expected.embed(TEXTS[0]).shape
    for states, others in zip(ours.hidden_states(TEXTS), expected.hidden_states(TEXTS), strict=True):
        np.testing.assert_allclose(states, others, **CLOSE)


@pytest.mark.parametrize("family", LAYOUTS)
@pytest.mark.parametrize("head", HEADS)
def test_heads_score_as_in_torch(both, family, head):
    ours, expected = both(family, {head: HEADS[head]}, labels=() if head == "spans" else LABELS)
    if head == "classes":
        for one, other in zip(ours.classify(TEXTS), expected.classify(TEXTS), strict=True):
            assert one.label == other.label and one.scores == pytest.approx(other.scores, abs=1e-5)
    elif head == "tokens":
        assert [*map(str, ours.tag(TEXTS))] == [*map(str, expected.tag(TEXTS))] or np.allclose(
            *([one.score for entities in model.tag(TEXTS) for one in entities] for model in (ours, expected)), **CLOSE
        )
    else:
        pairs = ["the cat", "a dog"], ["the rate of the cat is a dog", "the dog"]
        for one, other in zip(ours.answer(*pairs), expected.answer(*pairs), strict=True):
            assert (one[0].text, one[0].start) == (other[0].text, other[0].start)
            assert one[0].score == pytest.approx(other[0].score, abs=1e-5)


@pytest.mark.parametrize("act", ["none", "unit", "distance", "pair"])
def test_linear_heads_on_means(both, act):
    ours, expected = both(heads={"classes": 3}, labels=LABELS, pooling="mean", pooler_act=act)
    pairs = TEXTS[::-1] if act in ("distance", "pair") else None
    for one, other in zip(ours.classify(TEXTS, pairs), expected.classify(TEXTS, pairs), strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-5)


@pytest.mark.parametrize("family", LAYOUTS)
def test_masks_are_filled_as_in_torch(both, family):
    ours, expected = both(family, {"masked_words": 0})
    texts = ["the [MASK] of a [MASK]", "[MASK] dog"]
    for one, other in zip(ours.fill(texts, top=3), expected.fill(texts, top=3), strict=True):
        for guesses, others in zip(one, other, strict=True):
            assert [guess.token for guess in guesses] == [guess.token for guess in others]
            assert [g.score for g in guesses] == pytest.approx([g.score for g in others], abs=1e-6)


def test_next_sentences_and_numbers(both):
    ours, expected = both(heads={"masked_words": 0, "next_sentence": 2})
    assert ours.is_next(TEXTS, TEXTS[::-1]) == pytest.approx(expected.is_next(TEXTS, TEXTS[::-1]), abs=1e-6)
    ours, expected = both("electra", {"classes": 1})
    assert ours.regress(TEXTS) == pytest.approx(expected.regress(TEXTS), abs=1e-5)


def test_a_text_has_the_same_vector_alone_and_among_others(paragraphs):
    check_company(paragraphs[:20])


def check_company(texts):
    model = load(backend="numpy")
    together, states = model.embed(texts), model.hidden_states(texts[:30])
    for row in range(0, len(texts), 9):
        np.testing.assert_allclose(model.embed(texts[row]), together[row], rtol=0, atol=1e-6)
    for text, expected in zip(texts[:30:5], states[::5], strict=True):
        np.testing.assert_allclose(model.hidden_states(text), expected, **CLOSE)


def test_long_texts_are_read_in_windows(paragraphs):
    text = " ".join(paragraphs[:13])
    options = {"window": 64, "overlap": 16}
    ours, expected = load(backend="numpy"), load(backend="torch", dtype="float32")
    for long in ("windows", "truncate"):
        vectors = [model.embed(text, long=long, **options) for model in (ours, expected)]
        np.testing.assert_allclose(*vectors, rtol=0, atol=1e-6)
    assert ours.truncated_texts == 1


def test_both_backends_have_one_vector_space(both):
    ours, expected = both(pooling="mean")
    assert vector_space(ours) == vector_space(expected) != vector_space(load(backend="numpy"))
    assert vector_space(load(backend="numpy")) == vector_space(load(backend="torch"))


def test_threads_and_pickles_share_a_model(paragraphs):
    check_threads(paragraphs[:5])


def check_threads(texts):
    model = load(backend="numpy")
    expected = model.embed(texts)
    copy = pickle.loads(pickle.dumps(model))
    with ThreadPoolExecutor(4) as pool:
        for vectors in pool.map(lambda one: one.embed(texts), [model, copy] * 4):
            np.testing.assert_array_equal(vectors, expected)


def unpacked():
    """The files of weights in float32 in the cache of this test."""
    return [*unpacked_directory().glob("*.safetensors")]


def test_packed_weights_are_unpacked_once_for_all_copies_of_a_model(packaged_copy):
    vector = load(packaged_copy, backend="numpy").embed("the cat")
    (cache,) = unpacked()
    written = cache.stat().st_mtime_ns
    assert (load(backend="numpy").embed("the cat") == vector).all()
    assert unpacked() == [cache] and cache.stat().st_mtime_ns == written
    cache.write_bytes(cache.read_bytes()[:1000])  # cut off
    assert (load(packaged_copy, backend="numpy").embed("the cat") == vector).all()
    assert cache.stat().st_size > 1000


def listing(folder):
    return {file: file.stat().st_mtime_ns for file in folder.rglob("*") if "__pycache__" not in file.parts}


def test_a_use_of_the_packaged_models_writes_nothing_into_the_package(tmp_path):
    package = Path(bothways.__file__).parent
    before = listing(package)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("The cat sat on the mat.\n")
    for backend in ("numpy", "torch"):
        model = load(backend=backend)
        model.embed(["the cat", "a dog"])
        model.fill("The cat [MASK] on the mat.")
    load("bothways-en-static").embed("the cat")
    rows = tmp_path / "rows.csv"
    rows.write_text("text\nthe cat\n")
    for name in ("bothways-en", "bothways-en-static"):
        main.main(["embed", name, str(rows), "--out", str(tmp_path / f"{name}.npy")])
    main.main(["search", "Where is the cat?", str(tmp_path / "notes")])
    assert listing(package) == before and unpacked()


def without_cache(place, tmp_path, monkeypatch):
    """A cache directory that cannot be made, cannot be written, or is a file; a user without a home."""
    if place == "no home":
        monkeypatch.delenv("BOTHWAYS_CACHE")
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
        return
    (tmp_path / "file").write_text("mine")
    (tmp_path / "read-only").mkdir()
    folder = {"a file": tmp_path / "file", "missing": Path("/proc/nothing"), "read-only": tmp_path / "read-only"}[place]
    monkeypatch.setenv("BOTHWAYS_CACHE", str(folder))
    if place == "read-only":
        real = Path.mkdir

        def mkdir(path, *arguments, **options):  # root may write anywhere
            if path.is_relative_to(folder):
                raise PermissionError(13, "Permission denied", str(path))
            real(path, *arguments, **options)

        monkeypatch.setattr(Path, "mkdir", mkdir)


@pytest.mark.parametrize("place", ["a file", "missing", "read-only", "no home"])
def test_a_model_computes_without_a_cache_directory(place, packaged_copy, tmp_path, monkeypatch):
    without_cache(place, tmp_path, monkeypatch)
    before = listing(packaged_copy)
    assert load(packaged_copy, backend="numpy").embed("the cat").shape == (384,)
    assert listing(packaged_copy) == before


def test_a_full_disk_leaves_no_file(packaged_copy, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert load(packaged_copy, backend="numpy").embed("the cat").shape == (384,)
    assert not [*unpacked_directory().iterdir()]


@pytest.fixture
def packaged_copy(tmp_path):
    from shutil import copytree, ignore_patterns

    from bothways.model.checkpoint.directory import locate
    from bothways.pretrained import DEFAULT

    return copytree(locate(DEFAULT), tmp_path / "packaged", ignore=ignore_patterns(".float32-*"))


def test_normal_distribution_is_within_1e_7():
    x = np.linspace(-7, 7, 20_001)
    expected = np.array([(1 + math.erf(value / 2**0.5)) / 2 for value in x])
    probability = 1 / (1 + np.exp(-x * np.polyval(NORMAL[::-1], x**2)))
    assert abs(2 * probability - 2 * expected).max() < 1e-7  # of erf
    single = x.astype(np.float32)
    with np.errstate(over="ignore"):
        assert abs(gelu(single.copy()) - x * expected).max() < 1e-6  # as x is rounded, too
        assert gelu(np.float32([-1e4, -50, 50, 1e4])).tolist() == [0, 0, 50, 1e4]


@pytest.mark.parametrize("family", ["modernbert", "deberta", "longformer", "big_bird"])
def test_other_families_name_the_extra(make_model, tokenizer, tmp_path, family):
    save(Checkpoint(model=make_model(family), tokenizer=tokenizer, model_type=family), tmp_path / family)
    with pytest.raises(InputError, match=r"bothways\[train\]"):
        load(tmp_path / family, backend="numpy")


def test_what_needs_torch_names_the_extra(tmp_path):
    model = load(backend="numpy")
    uses = [
        lambda: load(backend="numpy", dtype="bfloat16"),
        lambda: load(backend="numpy", device="cuda"),
        lambda: model.save(tmp_path / "copy"),
        lambda: model.attention("the cat"),
    ]
    for use in uses:
        with pytest.raises(InputError, match=r"bothways\[train\]"):
            use()
    with pytest.raises(InputError, match="choose one of auto, core, torch, numpy"):
        load(backend="onnx")
    with pytest.raises(InputError, match="torch"):
        model.module  # noqa: B018


TABLE, DENSE = "embeddings.word_embeddings.weight", "encoder.layer.0.output.dense.weight"
BIAS, NORM = "encoder.layer.0.output.dense.bias", "embeddings.LayerNorm.weight"


def changed(stored, name, value):
    return {**stored, name: value(stored[name])}


def without(stored, part):
    return {name: value for name, value in stored.items() if part not in name}


def large(value):
    """float64 numbers, of which one is beyond the range of float32."""
    wide = value.astype(np.float64)
    wide.flat[::7] = 1e300
    return wide


HOSTILE = {
    **{f"NaN in {name}": (name, lambda value: value * np.float32("nan")) for name in (TABLE, DENSE, BIAS, NORM)},
    **{f"infinite {name}": (name, lambda value: value - np.float32("inf")) for name in (TABLE, DENSE)},
    **{f"float64 beyond float32 in {name}": (name, large) for name in (TABLE, DENSE, BIAS, NORM)},
    "float16 infinite": (DENSE, lambda value: (value * np.float32(0) + 1e5).astype(np.float16)),
    **{f"whole numbers in {name}": (name, lambda value: value.astype(np.int32)) for name in (TABLE, DENSE)},
    **{f"truth values in {name}": (name, lambda value: value > 0) for name in (TABLE, BIAS)},
    "a row less in the table": (TABLE, lambda value: value[:-1]),
    "a row more in the table": (TABLE, lambda value: np.concatenate([value, value[:1]])),
    "transposed": (DENSE, lambda value: np.ascontiguousarray(value.T)),
    "flat": (DENSE, lambda value: value.ravel()),
    "another axis": (BIAS, lambda value: value[None]),
    "a number for a row": (BIAS, lambda value: value[:1]),
}


@pytest.mark.parametrize("case", [*HOSTILE, "missing"])
@pytest.mark.parametrize("backend", ["torch", "numpy"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # what the case is about
def test_hostile_weights_are_refused_by_either_backend(case, backend, both, tmp_path):
    from safetensors.numpy import load_file, save_file

    both(pooling="mean")
    file = tmp_path / "bert" / "model.safetensors"
    stored = load_file(file)
    save_file(without(stored, "layer.0.output") if case == "missing" else changed(stored, *HOSTILE[case]), file)
    with pytest.raises(InputError, match=r"NaN or infinite|config\.json|missing parameters"):
        bothways.load(tmp_path / "bert", backend=backend, dtype="float32").embed("abcdefghijklmnopqrstuvwxyz")


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_number_formats_are_read_alike(dtype, both, tmp_path):
    from safetensors.numpy import load_file, save_file

    both(pooling="mean")
    file = tmp_path / "bert" / "model.safetensors"
    save_file({name: value.astype(dtype) for name, value in load_file(file).items()}, file)
    vectors = [
        bothways.load(tmp_path / "bert", backend=backend, dtype="float32").embed("the cat")
        for backend in ("torch", "numpy")
    ]
    np.testing.assert_allclose(*vectors, atol=1e-5)


def other_shapes(stored):
    name = next(name for name, value in stored.items() if value.ndim == 2)
    return {**stored, name: stored[name].T.copy()}


def other_values(stored):
    name = max(stored)
    return {**stored, name: stored[name] + 1}


@pytest.mark.parametrize(
    "change",
    [other_shapes, other_values, lambda stored: {name: value.astype("f8") for name, value in stored.items()},
     lambda stored: {name: stored[name] for name in sorted(stored)[1:]},
     lambda stored: {**stored, "x": stored[max(stored)]}],
)  # fmt: skip
def test_unpacked_weights_that_are_not_those_of_the_model_are_written_again(change, tmp_path, packaged_copy):
    from safetensors.numpy import load_file, save_file

    vector = load(packaged_copy, backend="numpy").embed("the cat")
    (cache,) = unpacked()
    stored = load_file(cache)
    with safe_open(cache, framework="numpy") as opened:
        metadata = opened.metadata()
    save_file(change(stored), cache, metadata)
    assert (load(packaged_copy, backend="numpy").embed("the cat") == vector).all()
    again = load_file(cache)
    assert again.keys() == stored.keys() and all(np.array_equal(again[name], stored[name]) for name in stored)


def test_temporary_files_of_processes_that_were_killed_are_removed(packaged_copy):
    unpacked_directory().mkdir(parents=True)
    old, new = (unpacked_directory() / f".{number}-1-1.tmp" for number in (1, 2))
    for file in (old, new):
        file.write_bytes(b"half")
    os.utime(old, (0, 0))
    load(packaged_copy, backend="numpy")
    assert not old.exists() and new.exists()
