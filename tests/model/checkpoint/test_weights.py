"""Weight files: read tensor by tensor, without keeping them in memory, in any number format."""

import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import bothways
from bothways.base.errors import InputError
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.weights import open_safetensors


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"a.gamma": torch.arange(7.0), "b": torch.ones(3, 5)}, path)
    return path


def test_tensors_are_read_by_name_and_old_names_are_modern(file):
    tensors = open_safetensors(file)
    assert dict(tensors).keys() == {"a.weight", "b"} and len(tensors) == 2 and "a.gamma" not in tensors
    assert (tensors["a.weight"] == np.arange(7.0)).all() and tensors["b"].shape == (3, 5)


def test_one_tensor_of_a_file_is_in_memory_beside_what_is_made_of_it(tmp_path):
    file, rows = tmp_path / "large.safetensors", 2**20  # 4 MiB a tensor
    save_file({f"t{index}": torch.full((rows,), float(index)) for index in range(12)}, file)
    tensors = open_safetensors(file)
    tracemalloc.start()
    try:
        for index in range(12):
            assert tensors[f"t{index}"].sum() == index * rows
        assert 4 * rows <= tracemalloc.get_traced_memory()[1] < 5 * rows
    finally:
        tracemalloc.stop()
    if sys.platform.startswith("linux"):
        assert str(file) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8, torch.uint8, torch.bool, torch.float64])
def test_numbers_are_read_exactly(dtype, tmp_path):
    stored = torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)  # every one that there is
    stored = stored if dtype is torch.bfloat16 else torch.arange(-300.0, 300.0).mul(0.37).to(dtype).reshape(2, -1)
    save_file({"x": stored, "none": stored[:0].clone(), "one": stored.flatten()[7].clone()}, tmp_path / "x")
    tensors = open_safetensors(tmp_path / "x")
    exact = stored.float() if dtype is torch.bfloat16 else stored
    for name, value in {"x": exact, "none": exact[:0], "one": exact.flatten()[7]}.items():
        assert tensors[name].shape == value.shape and tensors[name].tobytes() == value.numpy().tobytes(), name
    assert tensors["x"].dtype == exact.numpy().dtype


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
