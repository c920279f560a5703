"""Thousands of broken checkpoints: errors have one line, never a traceback.

`soak/test_fuzz_checkpoints.py` runs the same with 150 times as many.
"""

import json
import shutil
import struct
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from bothways.base.errors import InputError
from bothways.cli import main
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.int8 import replace_linears
from bothways.model.int8_training import candidates, observe
from bothways.text.batch import Batch
from tests.fuzz import mutated_bytes, mutated_json, refusals

PARTS = {"model-1.safetensors": ("embeddings",), "model-2.safetensors": ("encoder.layer", "pooler", "classifier")}
SENTENCES = {"config_sentence_transformers.json": {"prompts": {"query": "q: "}, "default_prompt_name": "query"}}
SETTINGS = {
    "window": 32,
    "overlap": 8,
    "long": "windows",
    "text_column": "text",
    "max_answer_tokens": 30,
    "train": "t.csv",
}
ORIGIN = {"verb": "finetune classify", "settings": SETTINGS, "reads_pairs": False, "result": {"mean": 0.5}}
FILES = {  # file -> how many of 100 cases
    "config.json": 40,
    "bothways.json": 15,
    "modules.json": 8,
    "1_Pooling/config.json": 7,
    "config_sentence_transformers.json": 5,
    "sentence_bert_config.json": 5,
    "model.safetensors.index.json": 10,
    "header": 8,
    "int8 config": 1,
    "int8 header": 1,
}
WEIGHTS = {"header": "model.safetensors", "int8 header": "int8.safetensors"}


def make_checkpoint(make_model, tokenizer, directory, family="bert"):
    """A classifier with all the files that are read."""
    model = make_model(family, {"classes": 3}, **({"num_hidden_layers": 1} if family == "bert" else {}))
    held = Checkpoint(model, tokenizer, model_type=family, labels=("x", "y", "z"), pooling="mean", metadata=ORIGIN)
    checkpoint.save(held, directory)
    for name, content in SENTENCES.items():
        (directory / name).write_text(json.dumps(content))


def in_parts(directory):
    """The same with its weights in two files and an index."""
    whole = directory / "model.safetensors"
    state = load_file(whole)
    whole.unlink()
    part_of = {name: next(part for part, starts in PARTS.items() if any(s in name for s in starts)) for name in state}
    for part in PARTS:
        save_file({name: value for name, value in state.items() if part_of[name] == part}, directory / part)
    index = {"metadata": {"total_size": 1}, "weight_map": part_of}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def in_int8(directory):
    """The same with int8 layers."""
    held = checkpoint.load(directory)
    batch = Batch.from_encodings([held.tokenizer.encode("the cat sat on the mat")])
    layers = candidates(held.model, observe(held.model, lambda: held.model(batch)))
    model = replace_linears(held.model, {name: one.linear for name, one in layers.items()})
    checkpoint.save(replace(held, model=model), directory)


def check(number, name, whole, directory, seed=0):
    """How many of so many checkpoints with a broken file of this name are refused."""
    shutil.copytree(whole, directory)
    if "index" in name:
        in_parts(directory)
    if "int8" in name:
        in_int8(directory)
    file = directory / {**WEIGHTS, "int8 config": "config.json"}.get(name, name)
    content = file.read_bytes()
    header = struct.unpack("<Q", content[:8])[0] if name in WEIGHTS else 0

    def make(random):
        if not header:
            return mutated_json(json.loads(content), random)
        if random.random() < 0.25:
            return mutated_bytes(content[: 8 + header], random) + content[8 + header :]
        text = mutated_json(json.loads(content[8 : 8 + header]), random)
        length = len(text) + (random.choice((-1, 1, 2**40, 2**63)) if random.random() < 0.1 else 0)
        return struct.pack("<Q", length) + text + content[8 + header :]

    def use(case):
        file.write_bytes(case)
        predictor = Predictor(checkpoint.load(directory), device="cpu", dtype="float32")
        torch.manual_seed(0)
        predictor.classify(["the cat sat on the mat " * 9])

    return refusals(number, make, use, seed=seed)


@pytest.fixture(scope="module")
def whole(make_model, tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole") / "model"
    make_checkpoint(make_model, tokenizer, directory)
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_broken_file_is_one_line(name, whole, tmp_path, global_seed):
    number = 7 * FILES[name]
    assert number / 20 < check(number, name, whole, tmp_path / "m")


RUN = {
    "verb": "pretrain", "settings": {"steps": 3, "out": "run"}, "status": "running", "steps": 3, "peak_flops": 1e12,
    "process": {"host": "a", "machine": "b", "id": 7, "began": "12"}, "versions": {"torch": "2"},
    "flops_per_token": 1e6, "started": "2026-11-23", "result": {"mean": 0.5}, "figures": {"dev": {"accuracy": 0.5}},
}  # fmt: skip


def test_a_broken_origin_of_a_run_is_one_line(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 3, "tokens": 90, "seconds": 2.0, "loss": 1.0}\n')

    def use(case):
        (tmp_path / "bothways.json").write_bytes(case)
        main.main(["info", str(tmp_path)])

    def is_read(case):
        try:
            use(case)
        except SystemExit as end:
            assert end.code == 1
            raise InputError("one line") from None

    assert 20 < refusals(200, lambda random: mutated_json(RUN, random), is_read) < 200
