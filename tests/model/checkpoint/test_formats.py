"""A format of checkpoints is one class and one entry in FORMATS: a toy format is saved, loaded and handed to others."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from benchmarks.speed.measure import files_for_others
from benchmarks.speed.workload import task_method
from bothways.base.errors import InputError
from bothways.cli.main import main
from bothways.inference.load import load
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats import FORMATS, HUGGING_FACE, format_of
from bothways.model.checkpoint.formats.format import StoredModel
from bothways.model.checkpoint.formats.hugging_face import LayoutFormat, hf_state_dict
from bothways.model.checkpoint.model_files import detect
from bothways.model.checkpoint.weights import WEIGHTS, write_weights
from bothways.model.families import FAMILIES


class SignFormat(LayoutFormat):
    """Weights as their signs times their mean magnitude, for models with 40 positions."""

    model_type = "test-signs"

    def open(self, directory: Directory) -> StoredModel:
        def read(plan):
            stored = load_file(directory.path / "signs.safetensors")
            return {name: value.astype(np.float32) for name, value in stored.items()}

        return StoredModel({**directory.config, "model_type": directory.config["family"]}, read)

    def holds(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.model.config.max_position_embeddings == 40

    def write(self, checkpoint: Checkpoint, directory: Path, hf_config: dict[str, Any]) -> dict[str, Any]:
        tensors = hf_state_dict(checkpoint.model, FAMILIES[checkpoint.model_type], "bert.")
        signs = {name: (value.sign() * value.abs().mean()).half() for name, value in tensors.items()}
        write_weights(signs, directory / "signs.safetensors")
        return {**hf_config, "family": hf_config["model_type"], "model_type": self.model_type}


@pytest.fixture
def held(make_model, tokenizer):
    model = make_model("bert", {"masked_words": 0}, max_position_embeddings=40)
    return Checkpoint(model, tokenizer, pooling="mean", metadata={"verb": "pretrain"})


def test_a_format_is_one_entry(held, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(FORMATS.entries, SignFormat.model_type, SignFormat)
    assert format_of(held).model_type == "test-signs"
    checkpoint.save(held, tmp_path / "model")
    assert (tmp_path / "model/signs.safetensors").exists() and not (tmp_path / "model" / WEIGHTS).exists()
    loaded = checkpoint.load(tmp_path / "model")
    assert (loaded.pooling, loaded.model_type, loaded.metadata["verb"]) == ("mean", "bert", "pretrain")
    for name, value in held.model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name].sign(), value.sign()), name
    predictor = load(tmp_path / "model", dtype="float32", device="cpu")
    assert predictor.embed("the cat sat").shape == (24,)
    assert len(predictor.fill("the [MASK] sat")[0]) == 5
    main(["info", str(tmp_path / "model"), "--json"])
    assert json.loads(capsys.readouterr().out)["model"].startswith("bert, 3 layers")


def test_other_libraries_get_files_that_they_can_read(held, monkeypatch, tmp_path):
    monkeypatch.setitem(FORMATS.entries, SignFormat.model_type, SignFormat)
    checkpoint.save(held, tmp_path / "model")
    predictor = load(tmp_path / "model", dtype="float32", device="cpu")
    source, is_encoder = files_for_others(tmp_path / "model", tmp_path / "others", task_method(predictor))
    assert source == tmp_path / "others" and not is_encoder and (source / WEIGHTS).exists()


def test_without_its_entry_a_format_is_unknown(held, monkeypatch, tmp_path):
    with monkeypatch.context() as patched:
        patched.setitem(FORMATS.entries, SignFormat.model_type, SignFormat)
        checkpoint.save(held, tmp_path / "model")
    with pytest.raises(InputError, match="'test-signs' is not supported"):
        checkpoint.load(tmp_path / "model")
    checkpoint.save(held, tmp_path / "plain")
    assert (tmp_path / "plain" / WEIGHTS).exists()


def test_the_first_format_that_holds_a_model_saves_it(held, tmp_path):
    assert format_of(held) is HUGGING_FACE
    for name in (*FORMATS, "bert", None):
        (tmp_path / "config.json").write_text("{}" if name is None else json.dumps({"model_type": name}))
        kind = type(detect(Directory(tmp_path)))
        assert kind is (FORMATS[name] if name in FORMATS else type(HUGGING_FACE)), name
        assert kind.model_type == (name if name in FORMATS else "")
