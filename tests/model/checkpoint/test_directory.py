"""A checkpoint is read once, by few files of the package, and without torch until its modules are made."""

import json
import math
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bothways
from bothways.base import io
from bothways.core.library import Core, find_core
from bothways.model.adapters.install import install
from bothways.model.adapters.spec import AdapterSpec
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes import new_head
from bothways.model.checkpoint.changes.pack import save_packed
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.description import Description
from bothways.model.checkpoint.formats import FORMATS
from bothways.model.checkpoint.formats.tfidf import write_tfidf
from bothways.model.families import FAMILIES
from bothways.model.int8 import Int8Linear, replace_linears
from bothways.model.linear.static_vectors import StaticVectors, VectorTable, write_static
from bothways.model.linear.tfidf import Tfidf, TfidfModel

PACKAGE = Path(bothways.__file__).parent
MOST_FILES = 25
MOST_MODULES = {"plain": 100, "packaged": 81}  # computed by torch and by the core
READ_WITHOUT_TORCH = """
import json, sys
for name in ("torch", "scipy", "pyarrow"):
    sys.modules[name] = None
import bothways.model.config
from bothways.model.adapters.files import AdapterFiles
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats import FORMATS
from bothways.model.checkpoint.formats.tfidf import read_tfidf
from bothways.model.checkpoint.model_files import ModelFiles
from bothways.model.families import FAMILIES
assert len([*FAMILIES.values()]) > 10
[*FORMATS.values()]
for path in sys.argv[1:]:
    directory = Directory(path)
    if directory.format == "bothways-tfidf":
        model, described = read_tfidf(directory)
        print(json.dumps([directory.format, described.labels, {}, float(model.weight_CF.sum())]))
    elif directory.is_adapter:
        files = AdapterFiles.open(directory)
        arrays = files.own_tensors() or files.peft_tensors(FAMILIES["bert"])[0]
        print(json.dumps([directory.format, [], {}, sum(float(array.sum()) for array in arrays.values())]))
    else:
        files = ModelFiles.read(directory)
        total = sum(float(array.sum(dtype="float64")) for array in files.arrays.values())
        print(json.dumps([directory.format, files.description.labels, files.outputs, total]))
"""


@pytest.fixture
def plain(make_model, tokenizer, tmp_path):
    """A directory with config.json, model.safetensors and vocab.txt."""
    checkpoint.save(Checkpoint(make_model("bert"), tokenizer), tmp_path / "plain")
    for file in (tmp_path / "plain").iterdir():
        if file.name not in ("config.json", "model.safetensors", "vocab.txt"):
            file.unlink()
    return tmp_path / "plain"


def test_few_files_of_the_package_run_to_load_bert(plain):
    checkpoint.load(plain)
    files = set()

    def note(frame, event, argument):
        file = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in file.parents and frame.f_code.co_name != "<module>":
            files.add(file.relative_to(PACKAGE).as_posix())

    sys.setprofile(note)
    try:
        checkpoint.load(plain)
    finally:
        sys.setprofile(None)
    assert len(files) <= MOST_FILES, sorted(files)


def test_loading_imports_little_of_the_package(plain):
    code = """
import sys, bothways
bothways.load(sys.argv[1])
print(*(name.removeprefix("bothways.") for name in sys.modules if name.startswith("bothways.")))
"""
    bert, packaged = (
        subprocess.run([sys.executable, "-c", code, place], capture_output=True, text=True, check=True).stdout.split()
        for place in (plain, "bothways-en")
    )
    assert len(bert) <= MOST_MODULES["plain"], bert
    # Without a core, torch computes the packaged model too.
    has_core = isinstance(find_core(), Core)
    assert len(packaged) <= MOST_MODULES["packaged" if has_core else "plain"], packaged
    others = [f"model.checkpoint.formats.{name}" for name in ("int8", "mean_layer", "tfidf")]
    assert not [name for name in bert if name.startswith(("model.linear", "model.adapters", *others))]


@pytest.mark.parametrize("kind", ["bert", "sentences", "adapter"])
def test_each_json_file_is_read_once(kind, plain, make_model, tokenizer, tmp_path, monkeypatch):
    place = plain
    if kind == "sentences":
        settings = Checkpoint(make_model("bert"), tokenizer, pooling="mean", metadata={"verb": "train"})
        checkpoint.save(settings, place := tmp_path / "sentences")
    if kind == "adapter":
        place = save_adapter(plain, "lora", tmp_path / "adapter")
    read, opened = io.read_bytes, Counter()

    def counted(file):
        opened[file] += 1
        return read(file)

    monkeypatch.setattr(io, "read_bytes", counted)
    bothways.load(place, dtype="float32", device="cpu")
    assert opened[place / ("adapter_config.json" if kind == "adapter" else "config.json")] == 1
    assert set(opened.values()) == {1}, opened


def save_adapter(base, kind, target):
    loaded = checkpoint.load(base)
    install(loaded.model, AdapterSpec(kind, rank=2, base=str(base)), FAMILIES["bert"])
    checkpoint.save(loaded, target)
    return target


def save_all_formats(make_model, tokenizer, plain, folder):
    """A directory of each format, and the checkpoints by format."""
    words = Checkpoint(make_model("bert", {"masked_words": 0}), tokenizer)
    mean, distance = (
        new_head.with_head(words, "classes", ("n", "y"), seed=0, pooling=kind) for kind in ("mean", "distance")
    )
    pruned = make_model("bert", {"classes": 3}, num_attention_heads=2, attention_head_size=12)
    name, size = "encoder.layers.0.attention.output", words.model.config.hidden_size
    rows_VH = np.random.default_rng(0).normal(size=(len(tokenizer), 12)).astype(np.float32)
    write_static(StaticVectors(tokenizer, VectorTable(rows_VH)), folder / "model2vec")
    static = checkpoint.load(folder / "model2vec", static=True)

    made = {
        "bothways-mean-layer": mean,
        "bothways-static": new_head.with_head(static, "classes", ("n", "y"), seed=0),
        "bothways-linear": distance,
        "bothways-pruned": Checkpoint(pruned, tokenizer, labels=("a", "b", "c")),
        "bothways-int8": replace(words, model=replace_linears(words.model, {name: Int8Linear(size, size)})),
    }
    for name, one in made.items():
        checkpoint.save(one, folder / name)
    save_packed(words, folder / "bothways-packed")
    model = TfidfModel(Tfidf({"a": 0}, {"b": 1}, np.ones(2)), np.ones((3, 2)), np.ones(3), 1.0)
    write_tfidf(model, Description(labels=("a", "b", "c")), folder / "bothways-tfidf")
    save_adapter(plain, "lora", folder / "bothways-adapter")
    shutil.copytree(folder / "bothways-adapter", folder / "peft")
    (folder / "peft/bothways.json").unlink()
    shutil.copytree(plain, folder / "bert")
    return made


def test_every_format_is_read_without_torch(plain, make_model, tokenizer, tmp_path):
    made = save_all_formats(make_model, tokenizer, plain, tmp_path)
    kinds = ["bert", *(name for name in FORMATS if name != "model2vec")]
    code = [sys.executable, "-c", READ_WITHOUT_TORCH, "bothways-en", *(tmp_path / kind for kind in kinds)]
    lines = subprocess.run(code, capture_output=True, text=True, check=True).stdout.splitlines()
    packaged, *read = map(json.loads, lines)
    assert packaged[0] == "bothways-packed" and packaged[2] == {"masked_words": 0, "next_sentence": 2}
    assert [kind for kind, *_ in read[1:]] == kinds[1:]
    for kind, labels, outputs, total in read:
        if kind in made:
            assert (tuple(labels), outputs) == (made[kind].labels, made[kind].model.num_outputs), kind
        assert math.isfinite(total) and total != 0, kind
