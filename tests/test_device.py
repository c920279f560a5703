"""The device of each verb, and retained memory of a training process."""

import subprocess
import sys

import pytest
import torch

from bothways import settings
from bothways.base import device
from bothways.base.device import available_devices, choose_device, describe_hardware
from bothways.base.errors import UsageError
from bothways.cli.verbs import VERBS
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.description import METADATA_FILE, read_metadata
from bothways.training.finetuning import plan
from bothways.training.finetuning.finetune import run as run_task

HOLES = """
import torch
from bothways.base.device import release_memory, retain_freed_memory
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
retain_freed_memory()
blocks, long_lived = [], []
for index in range(100):
    blocks.append(torch.ones(500_000 + index))
    long_lived.append(bytearray(3000))
before = resident()
del blocks
freed = resident()
release_memory()
print(before - freed, freed - resident())
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="malloc_trim is glibc's")
def test_freed_memory_between_long_lived_blocks_is_released():
    run = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    automatic, released = map(float, run.stdout.split())
    assert automatic < 20 and released > 150, (automatic, released)  # MB, of 200


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def test_auto_is_the_gpu_if_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == torch.device("cuda")


@pytest.mark.parametrize("name", ["cpu", "cuda", "cuda:0", "cuda:1"])
def test_an_available_device_is_used(name, two_gpus):
    assert choose_device(name) == torch.device(name)
    assert name in available_devices()


@pytest.mark.parametrize("name", ["cuda:2", "gpu", "meta", "", "cuda:-1"])
def test_the_error_lists_the_devices_of_this_machine(name, two_gpus, monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UsageError) as error:
        choose_device(name)
    assert repr(name) in str(error.value)
    assert str(error.value).endswith(" auto, cpu, cuda, cuda:0, cuda:1")


TOO_OLD = "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver"


@pytest.mark.parametrize(
    ("build", "visible", "reason"),
    [
        (None, "0", "built without CUDA"),
        ("13.0", "", "CUDA_VISIBLE_DEVICES is ''"),
        ("13.0", "0", "driver on your system"),
    ],
)
def test_the_error_has_the_reason_why_there_is_no_gpu(build, visible, reason, monkeypatch):
    def init():
        raise RuntimeError(TOO_OLD)

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.setattr(torch.version, "cuda", build)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(UsageError, match=rf"device 'cuda' is not available \(.*{reason}.*\); choose one of auto, cpu"):
        choose_device("cuda")


def test_the_hardware_of_a_run_is_that_of_its_device(two_gpus, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    assert describe_hardware(torch.device("cuda:1"))["device"] == "GPU 1"
    assert describe_hardware(torch.device("cpu"))["device"] == "cpu"


def test_every_verb_that_computes_has_a_device():
    without = {name for name, verb in VERBS.items() if "device" not in verb.settings_class.__dataclass_fields__}
    # int8 models and ONNX files are measured on the CPU, which they are for.
    assert without == {"vocab", "quantize", "merge", "pack", "unpack", "export", "push", "info", "cache"}
    assert all(
        verb.settings_class.__dataclass_fields__["device"].default == "auto"
        for name, verb in VERBS.items() if name not in without
    )  # fmt: skip


def test_fine_tuning_uses_only_the_device_of_its_settings(make_model, tokenizer, tmp_path, monkeypatch):
    checkpoint.save(Checkpoint(make_model("bert"), tokenizer), tmp_path / "model")
    table = [{"text": f"{'cat dog'.split()[row % 2]} {row}", "label": "xy"[row % 2]} for row in range(60)]
    names = set()
    for module in (plan, device):
        monkeypatch.setattr(module, "choose_device", lambda name: (names.add(name), choose_device(name))[1])
    result = run_task(
        settings.Classify(
            model=tmp_path / "model", train=table, out=tmp_path / "run", epochs=1, device="cpu", baselines=False
        )
    )
    assert names == {"cpu"}
    assert read_metadata(result.directory / METADATA_FILE)["hardware"]["device"] == "cpu"
