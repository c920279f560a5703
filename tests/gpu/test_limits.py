"""Too little memory on a GPU, and devices that are not there."""

import os
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch

import bothways
from bothways.base.device import choose_device
from bothways.base.errors import InputError, UsageError
from bothways.base.log import messages_to
from bothways.inference.runner import BatchRunner
from bothways.model.encoder import Encoder
from bothways.text.token_windows import TokenWindows
from bothways.training.distributed import process_group
from bothways.training.loop import fit
from bothways.training.schedule import TrainingOptions
from tests.gpu.oracle import LOSSES, OBJECTIVE, PRETRAINING_HEADS, batch_of, with_labels

pytestmark = pytest.mark.gpu

SENTENCE = "The committee met on Tuesday to discuss the budget of the coming year, and nobody had read the draft. "


@pytest.fixture
def small_memory(gpu, monkeypatch):
    """small_memory(tokens, megabytes): a context with memory for a batch of so many tokens on a CPU, where the encoder
    refuses larger ones, or of so many megabytes beside what is allocated on a GPU."""

    @contextmanager
    def limit(tokens, megabytes):
        if gpu.type == "cpu":
            with monkeypatch.context() as patch:
                forward = Encoder.forward

                def refuse(self, batch, *arguments):
                    if batch.num_tokens > tokens:
                        raise torch.OutOfMemoryError("no room")
                    return forward(self, batch, *arguments)

                patch.setattr(Encoder, "forward", refuse)
                yield
            return
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + megabytes * 2**20) / total)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
            torch.cuda.empty_cache()

    return limit


def states(hidden_TH, batch):
    return [part.float().cpu() for part in hidden_TH.split(batch.lengths.tolist())]


def test_a_batch_that_does_not_fit_in_memory_is_halved_with_a_message_and_gives_the_same(gpu, small_memory):
    model = bothways.load("bothways-en", dtype="float32", device=str(gpu))
    number = 24 if gpu.type == "cpu" else 3000
    windows, _ = TokenWindows.encode(model.tokenizer, [f"{SENTENCE * (1 + row % 3)} {row}" for row in range(number)])
    tokens = int(windows.lengths.sum())
    options = {"device": gpu, "dtype": torch.float32}
    expected = BatchRunner(model.module, batch_tokens=512, **options).run(windows, states)
    runner, lines = BatchRunner(model.module, batch_tokens=tokens, **options), []
    with small_memory(tokens // 3, 200), messages_to(lines.append):
        actual = runner.run(windows, states)
        assert runner.run(windows.take(range(8)), states)[0].shape == expected[0].shape  # memory was freed
    assert len(lines) >= 1 and all(f"out of memory on {gpu}" in line for line in lines)
    assert runner.batch_tokens <= tokens // 2
    assert max(float((one - other).abs().max()) for one, other in zip(actual, expected, strict=True)) < 1e-3


def test_a_window_that_does_not_fit_in_memory_is_an_error(gpu, small_memory, make_model, tokenizer):
    """Attention over a single text of many tokens."""
    length = 60 if gpu.type == "cpu" else 60_000
    model = make_model("bert", max_position_embeddings=length).to(gpu)
    encoding = tokenizer.encode("the cat " * ((length - 2) // 2))
    runner = BatchRunner(model, device=gpu, dtype=torch.float32, batch_tokens=length)
    with small_memory(20, 16), pytest.raises(InputError, match=rf"out of memory on {gpu} with a single window of"):
        runner.run(TokenWindows.from_encodings([encoding]), states)


def test_training_that_does_not_fit_in_memory_names_the_option(gpu, small_memory, make_model):
    lengths = [60] * (4 if gpu.type == "cpu" else 4000)
    batch = with_labels(batch_of(lengths))

    def steps(first):
        while True:
            yield [with_labels(batch_of((30,))), batch]

    options = TrainingOptions(steps=3, learning_rate=1e-3, device=gpu)
    model = make_model("bert", PRETRAINING_HEADS)
    message = rf"out of memory on {gpu} at step 1, .* {batch.num_tokens:,} tokens; lower --batch-tokens"
    with small_memory(100, 64), pytest.raises(InputError, match=message) as error:
        fit(model, LOSSES, OBJECTIVE.counts, steps, options, evaluate=dict, record=print)
    assert "--gradient-accumulation" in str(error.value)


# --- devices ----------------------------------------------------------------------------------------------------------


def command(*arguments, **environment):
    """`python -m bothways` in a process of its own: exit status and the lines of its errors."""
    done = subprocess.run(
        [sys.executable, "-m", "bothways", *map(str, arguments)], env={**os.environ, **environment},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    return done.returncode, done.stderr.strip().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "environment"),
    [("cuda", {"CUDA_VISIBLE_DEVICES": ""}), ("cuda:9", {})],
    ids=["no visible GPU", "no such GPU"],
)
def test_a_device_that_is_not_there_is_one_line_and_exit_status_2(device, environment, gpu, needs_cuda, tmp_path):
    if not environment:
        needs_cuda("without it the reason is that of the other case")
    (tmp_path / "texts.txt").write_text("the cat\na dog\n", encoding="utf-8")
    code, lines = command("embed", tmp_path / "texts.txt", "-o", tmp_path / "a.npy", "--device", device, **environment)
    assert code == 2 and not (tmp_path / "a.npy").exists()
    problem = [line for line in lines if "device" in line]
    assert len(problem) == 1 and f"'{device}' is not available" in problem[0] and "auto, cpu" in problem[0]
    assert not any("Traceback" in line for line in lines)
    if torch.version.cuda is None:
        assert "built without CUDA" in problem[0]
    elif environment:
        assert "CUDA_VISIBLE_DEVICES is ''" in problem[0]
    else:
        assert "cuda:0" in problem[0]


def test_a_driver_that_is_too_old_is_the_reason_of_the_error(gpu, monkeypatch):
    """torch then has a build for CUDA, sees no GPU, and refuses to start CUDA."""

    def init():
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040). Please update it at URL")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.setattr(torch.version, "cuda", torch.version.cuda or "13.0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(UsageError) as error:
        choose_device("cuda")
    assert "(The NVIDIA driver on your system is too old (found version 11040))" in str(error.value)
    assert "\n" not in str(error.value)


def test_devices_of_this_machine_are_chosen(gpu, needs_cuda):
    needs_cuda("names of GPUs")
    assert choose_device("auto") == choose_device("cuda") == gpu
    assert choose_device("cuda:0") == torch.device("cuda:0")
    with pytest.raises(UsageError, match=rf"'cuda:{torch.cuda.device_count()}' is not available; choose one of auto"):
        choose_device(f"cuda:{torch.cuda.device_count()}")


def test_a_process_without_a_gpu_is_refused(gpu, monkeypatch):
    """Two processes on a machine with one GPU."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name, value in PROCESS.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=r"process 1 has no GPU; start 1 processes \(--nproc-per-node\)"):
        process_group(torch.device("cuda")).__enter__()
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(UsageError, match="device 'cuda:3' is not that of process 0"):
        process_group(torch.device("cuda:3")).__enter__()


PROCESS = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.mark.slow
def test_the_command_of_a_process_without_a_gpu_is_refused(gpu, needs_cuda, tmp_path):
    needs_cuda("without a GPU the device itself is refused")
    (tmp_path / "texts.txt").write_text("the cat\n\na dog\n" * 50, encoding="utf-8")
    number = str(torch.cuda.device_count())
    code, lines = command(
        "pretrain",
        tmp_path / "texts.txt",
        "-o",
        tmp_path / "run",
        "--device",
        "cuda",
        **{**PROCESS, "LOCAL_RANK": number},
    )
    assert code == 2 and not (tmp_path / "run").exists()
    assert sum(f"process {number} has no GPU" in line for line in lines) == 1
    assert not any("Traceback" in line for line in lines)
