"""bothways.load: a Predictor from a checkpoint, a run or a saved TF-IDF model; backends by format of a directory."""

import platform
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

from bothways.base.device import has_gpu
from bothways.base.errors import InputError, needs_package
from bothways.base.io import Files
from bothways.base.registry import Registry
from bothways.inference.backends.backend import Backend
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint.directory import STATIC, Directory, locate, read_unchanged
from bothways.model.checkpoint.formats import FORMATS
from bothways.model.families import FAMILIES
from bothways.pretrained import DEFAULT

Opener = Callable[..., Backend]  # (directory, dtype=, device=, window=, batch_tokens=)
BACKENDS = Registry[Opener](
    "backend",
    "bothways.backends",
    {
        "bothways-tfidf": "bothways.inference.backends.tfidf:TfidfBackend.open",
        STATIC: "bothways.inference.backends.static:StaticBackend.open",
        "torch": "bothways.inference.backends.encoder:EncoderBackend.open",
        "core": "bothways.inference.backends.core:CoreBackend.open",
        "numpy": "bothways.inference.backends.numpy:NumpyBackend.open",
    },
)
ARM = ("aarch64", "arm64")
Library = Literal["auto", "core", "torch", "numpy"]


def open_backend(path: str | PathLike[str], backend: Library = "auto", **options: Any) -> Backend:
    """The model in a directory. backend: for encoders. options: dtype, device, window and batch_tokens, as in
    `bothways.load`."""
    check_library(backend)
    path = locate(path)
    if path.is_file():
        return BACKENDS[STATIC](Files(path), **options)

    def opened(directory: Directory) -> Backend:
        if has_own_backend(directory.format):
            return BACKENDS[directory.format](directory, **options)
        if backend != "auto":
            return BACKENDS[backend](directory, **options)
        return open_fastest(directory, **options)

    return read_unchanged(path, opened)


def check_library(backend: Library) -> None:
    """InputError for an unknown name."""
    if backend not in get_args(Library):
        raise InputError(f"backend {backend!r:.40} is not supported; choose one of {', '.join(get_args(Library))}")


def open_fastest(directory: Directory, dtype: str = "auto", device: str = "auto", **options: Any) -> Backend:
    """An encoder by the core where it can, else by torch where that is installed, else by numpy."""
    from bothways.inference.backends.core import CoreBackend, NotByCore

    has_torch = find_spec("torch") is not None
    try:
        if device == "auto" and has_gpu():
            raise NotByCore("it computes on a CPU")
        if has_torch and platform.machine().lower() in ARM:
            raise NotByCore("nobody has measured it beside torch on ARM yet")
        return CoreBackend.open(directory, dtype=dtype, device=device, **options)
    except NotByCore as refusal:
        reason = refusal.reason

    # Not in the handler: an error of this library would be shown as one that followed from the refusal.
    library = "torch" if has_torch else "numpy"
    backend = BACKENDS[library](directory, dtype=dtype, device=device, **options)
    backend.why_chosen = f"the core does not: {reason}"
    return backend


def has_own_backend(name: str) -> bool:
    """Whether a format or a family has a backend of its own. Other packages are not asked for one of ours."""
    if name in FORMATS.entries or name in FAMILIES.entries:
        return name in BACKENDS.entries
    return name in BACKENDS


def load(
    path: str | PathLike[str] = DEFAULT,
    dtype: str = "auto",
    device: str = "auto",
    *,
    backend: Library = "auto",
    window: int | None = None,
    batch_tokens: int | None = None,
    adapter: str | PathLike[str] | Mapping[str, str | PathLike[str]] | None = None,
) -> Predictor:
    """Load a Predictor from a checkpoint directory in the Hugging Face layout, a run, an adapter, or a saved TF-IDF
    model.

    Without a path, it is bothways-en, the English model that comes with the package.

    A path that does not exist may be the name of a model on the Hugging Face hub, such as
    sentence-transformers/all-MiniLM-L6-v2 or bert-base-uncased, with @REVISION behind it for another version than
    `main`. It is read from the Hugging Face cache, or downloaded into it (extra `hub`).

    dtype: "float32" is exact; "auto" is bf16 where the hardware is faster with it, else float32.
    device: "auto" is a GPU if there is one.
    backend: the library that computes encoders. "core" is C for models of BERT's layout on a CPU (core/), "numpy" the
    same in numpy and float32; "torch" computes all. "auto" is the core where it can compute the model, else torch where
    it is installed, else numpy.
    window: maximum tokens of a window, special tokens included; the default is the window of fine-tuning, else 512.
    batch_tokens: maximum tokens per batch; None: by the core and numpy 1,024, by torch 4,096, on a GPU 65,536.
    adapter: the directory of an adapter, or several by name. One is merged into the weights of the model. Several share
    the weights, and `model.adapter(name)` is the model with one of them. Without this argument, `path` may be the
    directory of an adapter, which names its model.

    TF-IDF models compute in float64 on the CPU and do not split texts.

    InputError if there is no such model, or if it does not support an option.

        model = bothways.load("runs/topics")
        model.classify("The cat sat on the mat.")
    """
    if not isinstance(path, str | PathLike):
        raise InputError(f"the model ({path!r:.80}) must be a path or a name; leave it out for {DEFAULT}")
    options: dict[str, Any] = {
        "dtype": dtype,
        "device": device,
        "window": window,
        "batch_tokens": batch_tokens,
    }
    if adapter is None:
        return Predictor(open_backend(path, backend, **options))

    if isinstance(adapter, Mapping):
        directories = {name: Path(directory) for name, directory in adapter.items()}
        library: Library = "torch" if backend == "auto" else backend
        return Predictor.with_adapters(open_backend(path, library, **options), directories)

    check_library(backend)
    if backend in ("core", "numpy") or not find_spec("torch"):
        raise needs_package(f"{adapter}: an adapter", "torch", "train")
    return Predictor(open_with_adapter(path, Path(adapter), **options))


def open_with_adapter(path: str | PathLike[str], adapter: Path, **options: Any) -> Backend:
    """The model in a directory with an adapter, merged into its weights, by torch."""
    from bothways.inference.adapters import merging

    read = merging(adapter)
    return read_unchanged(path, lambda directory: BACKENDS["torch"](directory, read=read, **options))
