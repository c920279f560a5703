"""Fixtures of the tests that need a GPU. BOTHWAYS_GPU_TESTS=cpu runs them on the CPU, to check the tests themselves."""

import os
import warnings

import pytest

# cuBLAS reads it once in a process; without it, deterministic kernels are refused (test_training.py).
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.fixture(scope="session")
def gpu():
    """The device that is tested: the GPU; the CPU with BOTHWAYS_GPU_TESTS=cpu."""
    import torch

    if os.environ.get("BOTHWAYS_GPU_TESTS") == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda")
    with warnings.catch_warnings():  # the first backward pass of a process warns that it starts cuBLAS
        warnings.simplefilter("ignore")
        x = torch.ones(8, 8, device=device, requires_grad=True)
        (x @ x).sum().backward()
    return device


@pytest.fixture
def needs_cuda(gpu):
    """needs_cuda(reason) skips the rest of a test on a CPU."""

    def check(reason):
        if gpu.type != "cuda":
            pytest.skip(f"needs CUDA: {reason}")

    return check


@pytest.fixture(autouse=True)
def exact_float32(gpu):
    """Products and convolutions in float32 without TF32, which has 10 bits of precision."""
    import torch

    owners = torch.backends.cuda.matmul, torch.backends.cudnn
    with warnings.catch_warnings():  # some versions of torch call these names old
        warnings.simplefilter("ignore")
        before = [owner.allow_tf32 for owner in owners]
        for owner in owners:
            owner.allow_tf32 = False
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for owner, value in zip(owners, before, strict=True):
            owner.allow_tf32 = value


@pytest.fixture
def deterministic(gpu):
    """Only deterministic kernels; also restores what `Pretrain(deterministic=True)` sets."""
    import torch

    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def checkpoint_of(make_model, tokenizer, tmp_path):
    """Save a small random model: checkpoint_of(family, heads, **fields of Checkpoint) -> directory."""
    from bothways.model.checkpoint import checkpoint
    from bothways.model.checkpoint.contents import Checkpoint

    def make(family="bert", heads=None, *, changes=None, **fields):
        directory = tmp_path / f"model-{len([*tmp_path.iterdir()])}"
        model = make_model(family, {"masked_words": 0} if heads is None else heads, **(changes or {}))
        checkpoint.save(Checkpoint(model, tokenizer, model_type=family, **fields), directory)
        return directory

    return make
