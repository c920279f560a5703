"""tools/english.py --gpu: packing text and models, restoring them elsewhere, training there, joining what it leaves."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.text.corpus.documents import Corpus
from bothways.text.corpus.token_store import build_in_memory
from bothways.text.tokenizer.tokenizer import Tokenizer
from tools import english_gpu

ROOT = Path(__file__).parents[2]
# What the machine with the GPU lacks: everything but torch, NumPy and safetensors.
MISSING = "pyarrow scipy sklearn rich sentencex Stemmer".split()


def text(seed, number):
    draw = np.random.default_rng(seed)
    words = "king queen farmer sailor castle palace field harbour".split()
    documents = [
        "\n".join(" ".join(draw.choice(words, 9)) + "." for _ in range(int(draw.integers(4, 9)))) for _ in range(number)
    ]
    return "\n\n".join(documents) + "\n"


@pytest.fixture(scope="module")
def packed(make_model, tmp_path_factory, monkeypatch_module):
    """The directory of the parts of a small corpus and two small models, with the files they are made of."""
    folder = tmp_path_factory.mktemp("gpu")
    monkeypatch_module.setattr(english_gpu, "PART", 50_000)
    monkeypatch_module.setattr(english_gpu, "BLOCK", 1000)
    (folder / "train.txt").write_text(text(0, 60), encoding="utf-8")
    (folder / "new.txt").write_text(text(1, 12), encoding="utf-8")
    words = Tokenizer.learn([text(0, 60)], size=150)
    heads = {"masked_words": 0, "next_sentence": 2}
    sizes = {"vocab_size": len(words), "pad_token_id": words.pad_id, "max_position_embeddings": 128}
    for name, seed in (("teacher", 0), ("start", 1)):
        model = make_model("bert", heads, seed=seed, **sizes)
        checkpoint.save(Checkpoint(model, words, pooling="mean", normalized=True), folder / name)
    corpus = ["--corpus", folder / "train.txt", "--heldout", folder / "new.txt"]
    step("pack", "-o", folder / "parts", *corpus, "--teacher", folder / "teacher", "--start", folder / "start")
    return folder


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def step(*arguments):
    english_gpu.main([*map(str, arguments)])


def bring(packed, parts, target):
    """Copy the manifest and these parts, as a transfer does."""
    target.mkdir(exist_ok=True)
    for name in ("manifest.json", *parts):
        (target / name).write_bytes((packed / "parts" / name).read_bytes())
    return target


def names(packed):
    return sorted(file.name for file in (packed / "parts").glob("part.*"))


def test_text_comes_out_as_it_was_packed_whatever_the_transfers_and_missing_parts_are_printed(packed, tmp_path, capsys):
    first, *rest = names(packed)
    assert len(rest) > 1
    step("unpack", bring(packed, [first], tmp_path / "a"), "--keep", tmp_path / "keep")
    assert f"1 of {len(rest) + 1} parts; missing: {', '.join(rest)}" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="not complete; bring the missing parts"):
        step("train", "--keep", tmp_path / "keep", "-o", tmp_path / "out")
    step("unpack", bring(packed, rest, tmp_path / "b"), "--keep", tmp_path / "keep")
    assert "complete" in capsys.readouterr().out
    for name, file in (("train", "train.txt"), ("heldout", "new.txt")):
        tokenizer = Tokenizer.load(packed / "teacher")
        store, restored = build_in_memory(Corpus((packed / file,)).documents(), tokenizer), tmp_path / "keep" / name
        assert english_gpu.read_store(restored).fingerprint == store.fingerprint
    halved = {value.dtype for value in load_file(tmp_path / "keep/teacher/model.safetensors").values()}
    assert halved == {torch.float16}
    student = checkpoint.load(tmp_path / "keep/student").model.state_dict()
    for name, value in checkpoint.load(packed / "start").model.state_dict().items():
        torch.testing.assert_close(student[name], value, rtol=1e-3, atol=1e-4)


def test_a_damaged_or_foreign_part_is_named_in_one_line(packed, tmp_path):
    target = bring(packed, names(packed), tmp_path / "parts")
    damaged = target / names(packed)[1]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    with pytest.raises(SystemExit, match=rf"{damaged.name}: damaged \(SHA-256 \w{{12}}, not .*; bring it again$"):
        step("unpack", target, "--keep", tmp_path / "keep")
    (target / "manifest.json").write_text("{}", encoding="utf-8")
    with pytest.raises(SystemExit, match="has parts of another pack; name a new directory$"):
        step("unpack", target, "--keep", tmp_path / "keep")


def test_a_run_without_other_packages_leaves_a_model_to_go_on_from_and_prints_the_bar_it_must_pass(
    packed, tmp_path, capsys
):
    program = f"""
import sys
sys.modules |= dict.fromkeys({MISSING})  # importing one of them fails
import torch
torch.set_num_threads(1)
from tools import english, english_gpu
english_gpu.PIECE, english_gpu.EVERY = 20_000, 0
for arguments in (
    ["unpack", sys.argv[1], "--keep", "keep"],
    ["train", *"--keep keep -o pieces --steps 4 --batch-tokens 256 --device cpu".split()],
):
    sys.argv[1:] = ["--gpu", *arguments]
    english.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(packed / "parts")],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "pieces/result.json").read_text(encoding="utf-8"))
    assert result["steps"] == 4 and result["tokens"] > 500 and result["perplexity"] > 1
    assert {"masked_lm", "vectors", "passage_vectors"} < result["losses"].keys()
    assert all(len(pieces) > 1 for pieces in result["pieces"].values())
    english_gpu.read_parts(tmp_path / "pieces", result["pieces"]["weights"], tmp_path / "weights")
    assert {value.dtype for value in load_file(tmp_path / "weights/model.safetensors").values()} == {torch.bfloat16}
    start = packed / "start"
    step("join", tmp_path / "pieces", "-o", tmp_path / "joined", "--start", start, "--average", 0.5)
    assert "perplexity of masked words of unread Wikipedia: below 30.5" in capsys.readouterr().out
    step("join", tmp_path / "pieces", "-o", tmp_path / "last", "--start", start)
    first, half, last = (
        checkpoint.load(path).model.state_dict() for path in (start, tmp_path / "joined/model", tmp_path / "last/model")
    )
    for name, value in half.items():
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, (first[name] + last[name]) / 2)
    assert any((first[name] - last[name]).abs().max() > 1e-4 for name in first)
    checkpoint.load(tmp_path / "joined/bothways-en")
    (tmp_path / "pieces" / result["pieces"]["weights"][1]["name"]).unlink()
    with pytest.raises(SystemExit, match=r"weights.01 missing, of \d+ parts; bring the rest$"):
        step("join", tmp_path / "pieces", "-o", tmp_path / "again")
