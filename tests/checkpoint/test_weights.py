"""Weight files: read tensor by tensor, without keeping them in memory, in any number format."""

import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import bothways
from bothways.checkpoint import checkpoint, weights
from bothways.checkpoint.contents import Checkpoint
from bothways.checkpoint.weights import open_safetensors
from bothways.errors import InputError


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"a.gamma": torch.arange(7.0), "b": torch.ones(3, 5)}, path)
    return path


def test_tensors_are_read_by_name_and_old_names_are_modern(file):
    tensors = open_safetensors(file)
    assert dict(tensors).keys() == {"a.weight", "b"} and len(tensors) == 2 and "a.gamma" not in tensors
    assert torch.equal(tensors["a.weight"], torch.arange(7.0))


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc lists mapped files on Linux only")
def test_little_of_a_file_is_in_memory_beside_what_is_made_of_it(tmp_path, monkeypatch):
    file, rows = tmp_path / "large.safetensors", 2**20  # 4 MiB a tensor
    save_file({f"t{index}": torch.full((rows,), float(index)) for index in range(12)}, file)
    monkeypatch.setattr(weights, "MAX_MAPPED_BYTES", 2 * 4 * rows)
    tensors, most = open_safetensors(file), 0
    for index in range(12):
        assert tensors[f"t{index}"].sum() == index * rows
        parts = re.findall(rf"{file}\n.*?\nRss: *(\d+) kB", Path("/proc/self/smaps").read_text(), re.DOTALL)
        most = max(most, sum(map(int, parts)))
    assert 4 * 1024 <= most <= 13 * 1024  # three tensors and the header
    del tensors
    assert str(file) not in Path("/proc/self/maps").read_text()


def test_a_file_cut_short_is_refused_when_it_is_opened(file):
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(InputError, match="broken"):
        open_safetensors(file)


MAP = "heads.classes.output."  # to classes: stays float32, as `model.moving` has it


def test_a_model_loaded_in_bf16_is_the_float32_one_rounded(make_model, tokenizer, tmp_path):
    checkpoint.save(Checkpoint(make_model("bert", {"classes": 3}), tokenizer, labels=("a", "b", "c")), tmp_path / "m")
    exact, half = (checkpoint.load(tmp_path / "m", dtype=dtype).model for dtype in (torch.float32, torch.bfloat16))
    for name, value in exact.state_dict().items():
        assert value.dtype == torch.float32
        expected = value if name.startswith(MAP) else value.bfloat16()
        assert half.state_dict()[name].dtype is expected.dtype and torch.equal(half.state_dict()[name], expected), name


def test_a_bf16_model_is_saved_with_its_stored_weights(make_model, tokenizer, tmp_path):
    checkpoint.save(Checkpoint(make_model("bert", {"classes": 3}), tokenizer, labels=("a", "b", "c")), tmp_path / "m")
    model = bothways.load(tmp_path / "m", dtype="bfloat16")
    for name, value in model.module.named_parameters():
        assert value.dtype is (torch.float32 if name.startswith(MAP) else torch.bfloat16), name
    model.save(tmp_path / "again")
    first, second = (checkpoint.load(tmp_path / name).model.state_dict() for name in ("m", "again"))
    assert all(torch.equal(value, second[name]) for name, value in first.items())
