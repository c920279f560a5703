r"""Further training of the packaged English model on a GPU: `python tools/english.py --gpu STEP`.

    python tools/english.py --gpu pack -o PARTS [--start RUN] [--limit TOKENS]       here, with the development data
    python tools/english.py --gpu unpack PARTS --keep DIR                            on the GPU, after each transfer
    python tools/english.py --gpu train --keep DIR -o PIECES [--minutes 9]           on the GPU
    python tools/english.py --gpu join PIECES -o DIR [--start RUN --average 0.7]     here again

The machine with the GPU needs Python, PyTorch, NumPy and safetensors, and PYTHONPATH=. instead of an installation; it
may be at hand for ten minutes at a time, and take files in several transfers.

pack: token stores of the text (uint16 ids; sizes of sentences and documents), teacher and start, in parts of at most 28
MB. unpack: keeps the parts that it finds in a directory that stays, and once all are there restores the same arrays.
train: the recipe of tools/english.py with larger batches; every two minutes and at the end it writes the model in bf16
and packed, in pieces of at most 15 MB, and result.json. join: the pieces as a checkpoint in float32 and packed.
"""

import argparse
import hashlib
import io
import json
import lzma
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

import bothways
from bothways.base.device import choose_device
from bothways.base.errors import InputError
from bothways.base.io import read_json, read_text, write_atomic
from bothways.base.rng import Purpose, generator
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.pack import save_packed
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.formats.packed import PACKED_WEIGHTS
from bothways.model.checkpoint.weights import WEIGHTS, write_weights
from bothways.model.losses import forward_losses
from bothways.settings import Distill
from bothways.text.corpus.sentence_pairs import ranges
from bothways.text.corpus.token_store import TokenStore
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.training.distributed import SINGLE_PROCESS
from bothways.training.pretraining.distillation import distill
from bothways.training.pretraining.pretrain import build_steps
from bothways.training.pretraining.setup import Length, PretrainingSetup, open_text
from bothways.training.pretraining.text_data import PretrainingData, read_data
from bothways.training.run_checkpoints import TrainingState
from bothways.training.step import StepQueue
from bothways.training.trainer import Trainer

PART = 28_000_000  # bytes
PIECE = 15_000_000  # bytes
BLOCK = 8_000_000  # entries of an array that are compressed together
MANIFEST = "manifest.json"
RESULT = "result.json"
EVERY = 120.0  # seconds between results that a run leaves in case it is cut off
RESERVE = 30.0  # seconds of --minutes for start and end
CYCLES = 2  # of kinds of steps, to time them
BARS = {
    "words": "perplexity of masked words of unread Wikipedia: below 30.5",
    "vectors": "STS-B, Spearman: not below 0.8178; SciFact, nDCG@10: not below 0.640",
}


# --- directories in parts


def replace_file(file: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all."""
    temporary = file.with_name(f".{file.name}")
    temporary.write_bytes(content)
    temporary.replace(file)


class Parts(io.RawIOBase):
    """A file that is written in parts NAME.00, NAME.01, ... of at most `most` bytes."""

    def __init__(self, directory: Path, name: str, most: int) -> None:
        self.directory = directory
        self.name = name
        self.most = most
        self.parts: list[dict[str, Any]] = []
        self.buffer = bytearray()

    def write(self, data: Any) -> int:
        self.buffer += data
        while len(self.buffer) >= self.most:
            self._finish_part()
        return len(data)

    def _finish_part(self) -> None:
        content = bytes(self.buffer[: self.most])
        del self.buffer[: self.most]
        file = self.directory / f"{self.name}.{len(self.parts):02}"
        replace_file(file, content)
        self.parts.append({"name": file.name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})

    def close(self) -> None:
        if self.buffer:
            self._finish_part()
        super().close()


def write_parts(source: Path, directory: Path, name: str, most: int) -> list[dict[str, Any]]:
    """Write the files of a directory as a tar in parts; the name, bytes and SHA-256 of each."""
    directory.mkdir(parents=True, exist_ok=True)
    parts = Parts(directory, name, most)
    with parts, tarfile.open(fileobj=parts, mode="w|") as tar:
        for file in sorted(source.rglob("*")):
            if file.is_file():
                tar.add(file, file.relative_to(source))
    return parts.parts


def check_part(file: Path, part: Mapping[str, Any]) -> None:
    """InputError if the file is not this part."""
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != part["sha256"]:
        raise InputError(
            f"{file}: damaged (SHA-256 {found[:12]}, not {part['sha256'][:12]}, {file.stat().st_size:,} of "
            f"{part['bytes']:,} bytes); bring it again"
        )


def read_parts(directory: Path, parts: Sequence[Mapping[str, Any]], target: Path) -> None:
    """Extract the tar. InputError if a part is missing or damaged."""
    if missing := [part["name"] for part in parts if not (directory / part["name"]).exists()]:
        raise InputError(f"{directory}: {', '.join(missing)} missing, of {len(parts)} parts; bring the rest")
    for part in parts:
        check_part(directory / part["name"], part)
    content = io.BytesIO(b"".join((directory / part["name"]).read_bytes() for part in parts))
    with tarfile.open(fileobj=content) as tar:
        tar.extractall(target, filter="data")


# --- token stores


def smallest(sizes: np.ndarray) -> np.ndarray:
    return sizes.astype(np.uint16 if sizes.max(initial=0) < 1 << 16 else np.uint32)


def write_store(store: TokenStore, directory: Path) -> dict[str, Any]:
    """Write ids and sizes in compressed blocks; dtype and SHA-256 of the store's arrays."""
    directory.mkdir(parents=True)
    arrays = {"ids": store.ids, "sentences": smallest(np.diff(store.sentences))}
    arrays["documents"] = smallest(np.diff(store.documents))
    for name, values in arrays.items():
        for index, first in enumerate(range(0, len(values), BLOCK)):
            block = lzma.compress(np.ascontiguousarray(values[first : first + BLOCK]).data)
            (directory / f"{name}.{index:04}.xz").write_bytes(block)
    return {
        name: {"stored": values.dtype.str, "sha256": sha256(getattr(store, name))} for name, values in arrays.items()
    }


def sha256(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).data).hexdigest()


def restore(directory: Path, arrays: Mapping[str, Any]) -> None:
    """Replace compressed blocks by NAME.npy, the arrays of the store. InputError if they differ from those packed."""
    for name, fact in arrays.items():
        blocks = sorted(directory.glob(f"{name}.*.xz"))
        with ThreadPoolExecutor() as pool:
            content = b"".join(pool.map(lambda file: lzma.decompress(file.read_bytes()), blocks))
        values = np.frombuffer(content, fact["stored"])
        if name != "ids":
            values = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
        if sha256(values) != fact["sha256"]:
            raise InputError(f"{directory / name}: differs from what was packed; pack the text again")
        np.save(directory / f"{name}.npy", values)
        for file in blocks:
            file.unlink()


def read_store(directory: Path) -> TokenStore:
    """The store, memory-mapped."""
    loaded = (np.load(directory / f"{name}.npy", mmap_mode="r") for name in ("ids", "sentences", "documents"))
    return TokenStore(*map(np.asarray, loaded))


def random_part(store: TokenStore, most: int) -> TokenStore:
    """Random documents of about `most` tokens, in their order."""
    order = generator(0, Purpose.ORDER).permutation(store.num_documents)
    sizes_D = np.diff(store.sentences[store.documents])[order]
    kept = np.sort(order[: max(2, int((sizes_D.cumsum() <= most).sum()))])
    starts_D = store.documents[kept]
    ends_D = store.documents[kept + 1]
    sentences = ranges(starts_D, ends_D)
    starts_S = store.sentences[sentences]
    ends_S = store.sentences[sentences + 1]
    bounds = (np.concatenate([[0], np.cumsum(sizes)]) for sizes in (ends_S - starts_S, ends_D - starts_D))
    return TokenStore(store.ids[ranges(starts_S, ends_S)], *bounds)


# --- the four steps


def pack(options: argparse.Namespace) -> None:
    from tools.english import packaged_teacher, text_files

    began = time.perf_counter()
    teacher = options.teacher or packaged_teacher()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        training, heldout = (options.corpus, options.heldout) if options.corpus else ((), ())
        if not training:
            training, heldout = text_files(options.data, work / "novels.parquet")
        settings = Distill(teacher=teacher, corpus=training, heldout=heldout, out=work / "run")
        loaded = checkpoint.load(teacher)
        data = read_data(open_text(settings), loaded.need_tokenizer(), new_vocabulary=False)
        store = random_part(data.store, options.limit) if options.limit else data.store
        print(f"{store.num_tokens:,} tokens, {time.perf_counter() - began:.0f} s; now compressing them", flush=True)
        arrays = {
            name: write_store(part, work / "all" / name) for name, part in (("train", store), ("heldout", data.unseen))
        }
        save_half(loaded, work / "all/teacher", torch.float16)
        if (options.start / PACKED_WEIGHTS).exists():  # as it is: smaller than two bytes a weight
            shutil.copytree(options.start, work / "all/student")
        else:
            save_half(checkpoint.load(options.start), work / "all/student", torch.float16)
        parts = write_parts(work / "all", options.out, "part", PART)
    manifest = {"parts": parts, "arrays": arrays, "facts": data.facts, "start": str(options.start)}
    write_atomic(options.out / MANIFEST, json.dumps(manifest, indent=1))
    size = sum(part["bytes"] for part in parts)
    print(f"{options.out}: {size / 1e6:.1f} MB in {len(parts)} parts, {time.perf_counter() - began:.0f} s in all")
    print(f"bring {MANIFEST} and the parts, in as many transfers as it takes; after each: --gpu unpack")


def save_half(source: Checkpoint, directory: Path, dtype: torch.dtype) -> None:
    """Write a checkpoint with weights of two bytes; `checkpoint.save` alone writes float32."""
    checkpoint.save(source, directory)
    halved = {name: value.to(dtype) for name, value in load_file(directory / WEIGHTS).items()}
    write_weights(halved, directory / WEIGHTS)


def unpack(options: argparse.Namespace) -> None:
    keep = options.keep
    keep.mkdir(parents=True, exist_ok=True)

    if (options.parts / MANIFEST).exists():
        brought = read_text(options.parts / MANIFEST)
        if (keep / MANIFEST).exists() and read_text(keep / MANIFEST) != brought:
            raise InputError(f"{keep}: has parts of another pack; name a new directory")
        write_atomic(keep / MANIFEST, brought)

    manifest = read_json(keep / MANIFEST)
    if (keep / "done").exists():
        print(f"{keep}: complete")
        return

    parts = manifest["parts"]
    for part in parts:
        file = options.parts / part["name"]
        if file.exists():
            check_part(file, part)
            replace_file(keep / part["name"], file.read_bytes())

    if missing := [part["name"] for part in parts if not (keep / part["name"]).exists()]:
        print(f"{keep}: {len(parts) - len(missing)} of {len(parts)} parts; missing: {', '.join(missing)}")
        return

    read_parts(keep, parts, keep)
    for name, arrays in manifest["arrays"].items():
        restore(keep / name, arrays)
    for part in parts:
        (keep / part["name"]).unlink()
    (keep / "done").touch()
    print(f"{keep}: complete, {read_store(keep / 'train').num_tokens:,} tokens")


def open_data(keep: Path) -> PretrainingData:
    """The unpacked text. InputError if parts are missing."""
    if not (keep / "done").exists():
        raise InputError(f"{keep}: not complete; bring the missing parts, and run --gpu unpack")
    store = read_store(keep / "train")
    unseen = read_store(keep / "heldout")
    documents = np.arange(store.num_documents)
    heldout = np.arange(unseen.num_documents)

    return PretrainingData(
        tokenizer=Tokenizer.load(keep / "teacher"),
        store=store,
        training=documents,
        unseen=unseen,
        heldout=heldout,
        facts=read_json(keep / MANIFEST)["facts"],
    )


def train(options: argparse.Namespace) -> None:
    began = time.monotonic()
    device = choose_device(options.device)
    data = open_data(options.keep)
    run = Path(tempfile.mkdtemp(prefix="run-", dir=options.keep))
    settings = Distill(
        teacher=options.keep / "teacher", student=options.keep / "student", corpus=(options.keep / MANIFEST,),
        out=run, learning_rate=options.learning_rate, mask_rate=options.mask_rate, seed=options.seed,
        steps=options.steps, batch_tokens=options.batch_tokens or (65_536 if device.type == "cuda" else 4096),
        evaluate_every=400, checkpoint_every=0, device=options.device,
    )  # fmt: skip
    rows: dict[str, list[Mapping[str, Any]]] = {"train": [], "heldout": []}
    setups: list[PretrainingSetup] = []
    written = began

    def change(setup: PretrainingSetup, data: PretrainingData) -> PretrainingSetup:
        if options.builders is not None:
            setup = replace(setup, builders=options.builders)
        if not options.steps:
            left = max(1.0, 60 * options.minutes - RESERVE - (time.monotonic() - began))
            setup = replace(setup, length=Length(steps_in(left, setup, data), None))
        setups.append(setup)
        return setup

    def record(row: Mapping[str, Any]) -> None:
        nonlocal written
        rows[row["split"]].append(row)
        if time.monotonic() - written > EVERY:
            write_result(setups[0].initial, options.out, facts())
            written = time.monotonic()

    def facts() -> dict[str, Any]:
        last = rows["train"][-1]
        heldout = rows["heldout"]
        return {
            "steps": last["step"], "planned": last["steps"], "tokens": last["tokens"], "seconds": last["seconds"],
            "tokens_per_second": last["tokens"] / last["seconds"], "device": str(device), "losses": last,
            "perplexity": heldout[-1]["perplexity"] if heldout else None, "heldout": heldout,
            "options": {name: str(value) for name, value in vars(options).items()},
        }  # fmt: skip

    distill.run(settings, callbacks=record, data=data, change=change)
    write_result(setups[0].initial, options.out, facts())
    print(json.dumps({name: value for name, value in facts().items() if name != "heldout"}, indent=1))


def steps_in(seconds: float, setup: PretrainingSetup, data: PretrainingData) -> int:
    """The number of steps that fit, by timing whole cycles of kinds of steps after one to warm up, or on slow machines
    as many steps as an eighth of the time has."""
    losses = forward_losses(setup.objective)
    counts = setup.objective.counts
    trainer = Trainer(
        module=deepcopy(setup.module),
        losses=losses,
        counts=counts,
        options=setup.options,
        processes=SINGLE_PROCESS,
    )

    times: list[float] = []
    state = TrainingState()
    queue = StepQueue(trainer, state.scale)
    with closing(build_steps(setup, data, setup.options, SINGLE_PROCESS)(0)) as batches:
        while len(times) < (1 + CYCLES) * distill.CYCLE and sum(times) < seconds / 8:
            began = time.monotonic()
            queue.add(state, next(batches))
            if queue.is_full:
                queue.read(state)
                times.append(time.monotonic() - began)

    timed = times[distill.CYCLE :] or times[1:] or times
    each = sum(timed) / len(timed)
    steps = max(1, int((seconds - sum(times)) / each))
    print(f"{each * 1000:.0f} ms a step: {steps:,} steps", flush=True)
    return steps


def write_result(trained: Checkpoint, directory: Path, facts: Mapping[str, Any]) -> None:
    """Write a model in bf16 and packed, in pieces, and last result.json."""
    model = deepcopy(trained.model).to("cpu", torch.float32)
    whole = replace(trained, model=model)
    with tempfile.TemporaryDirectory() as folder:
        save_half(whole, Path(folder, "weights"), torch.bfloat16)
        save_packed(whole, Path(folder, "packed"))
        pieces = {name: write_parts(Path(folder, name), directory, name, PIECE) for name in ("weights", "packed")}
    write_atomic(directory / RESULT, json.dumps({**facts, "pieces": pieces}, indent=1))


def join(options: argparse.Namespace) -> None:
    from tools.english import average_weights

    result = read_json(options.pieces / RESULT)
    with tempfile.TemporaryDirectory() as folder:
        read_parts(options.pieces, result["pieces"]["weights"], Path(folder))
        trained = checkpoint.load(folder)
    if options.average < 1:
        average_weights(trained, checkpoint.load(options.start), options.average)
    model = options.out / "model"
    packed = options.out / "bothways-en"
    checkpoint.save(trained, model)
    save_packed(trained, packed)
    print(
        f"{result['steps']:,} of {result['planned']:,} steps, {result['tokens']:,} tokens, held-out perplexity "
        f"{result['perplexity']:.2f} before averaging\n{model}: to train further with --start, or for bothways pack\n"
        f"{packed}: packed; measure it:"
    )
    for part, bar in BARS.items():
        print(f"  python -m benchmarks.english {packed} -o {options.out / 'scores'} --parts {part}    # {bar}")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/english.py --gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    steps = parser.add_subparsers(dest="step", required=True)
    add = {name: steps.add_parser(name).add_argument for name in ("pack", "unpack", "train", "join")}
    start = Path(bothways.__file__).parent / "pretrained/bothways-en"

    for name in ("pack", "join"):
        add[name]("--start", type=Path, default=start, help="checkpoint to train further; default: the packaged model")
        add[name]("-o", "--out", type=Path, required=True)

    add["pack"]("--data", type=Path, default=Path(os.environ.get("BOTHWAYS_DATA", "../shared/data")))
    add["pack"]("--teacher", type=Path)
    add["pack"]("--corpus", type=Path, nargs="+", help="training text, instead of that of --data")
    add["pack"]("--heldout", type=Path, nargs="+", help="held-out text, instead of that of --data")
    add["pack"]("--limit", type=int, help="tokens of training text, in random documents")

    add["unpack"]("parts", type=Path, help="directory with the parts of this transfer")
    add["unpack"]("--keep", type=Path, required=True, help="directory that stays between transfers")

    add["train"]("--keep", type=Path, required=True)
    add["train"]("-o", "--out", type=Path, required=True, help="directory for the pieces and result.json")
    add["train"]("--minutes", type=float, default=9, help="for everything, from start to end")
    add["train"]("--steps", type=int, help="instead of --minutes")
    add["train"]("--batch-tokens", type=int, help="default: 65536 on CUDA, 4096 on the CPU")
    add["train"]("--learning-rate", type=float, default=8e-4)
    add["train"]("--mask-rate", type=float, default=0.25)
    add["train"]("--seed", type=int, default=38)
    add["train"]("--device", default="auto")
    add["train"]("--builders", type=int, help="processes that build batches for a GPU; 0: a thread")

    add["join"]("pieces", type=Path, help="directory with the pieces and result.json")
    add["join"]("--average", type=float, default=1.0, help="share of the new weights, beside those of --start")

    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> None:
    options = parse(arguments)
    step: Callable[[argparse.Namespace], None] = {"pack": pack, "unpack": unpack, "train": train, "join": join}[
        options.step
    ]
    try:
        step(options)
    except InputError as error:
        raise SystemExit(str(error)) from None
