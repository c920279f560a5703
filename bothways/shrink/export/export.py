"""ONNX export: write the graph, and keep it only if its scores equal the model's (parity.py).

The directory also gets the tokenizer's files and config.json, which is all that transformers' AutoTokenizer and ONNX
Runtime need, and bothways.json with the report of the comparison.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError, MissingFile, flag
from bothways.base.io import atomic_directory, check_target, read_json, write_json
from bothways.base.log import logger
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint, check_plain
from bothways.model.checkpoint.description import CONFIG
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats.linear import LinearFormat
from bothways.model.checkpoint.sentence_transformers import MODULES, TRANSFORMER
from bothways.model.checkpoint.weights import WEIGHTS
from bothways.model.config import encodes_separately
from bothways.model.int8 import is_int8
from bothways.settings.deploy import Export
from bothways.shrink.export import graph, int8, parity
from bothways.shrink.export.graph import Vectors
from bothways.tasks.pooling import pooling_name

GRAPH = "model.onnx"
PACKAGES = (
    "onnx",
    "onnxscript",
    "onnxruntime",
)


def run(settings: Export, write_line: Callable[[str], None] = logger.info) -> dict[str, Any]:
    """Export to a directory; returns its entry in bothways.json. write_line is called with each line of the tables.

    InputError if a score differs by more than the tolerance (then nothing is written), or if the int8 score drops too
    much (then the float32 file is kept).
    """
    check(settings)
    source = Directory(settings.model).path
    loaded = checkpoint.load(source)
    check_model(source, loaded, with_int8=settings.int8)
    if loaded.words:
        logger.warning(f"{source}: the graph leaves out the model's TF-IDF part, so it scores texts otherwise")

    vectors = vector_pooling(loaded)
    with atomic_directory(settings.out, marker=GRAPH) as directory:
        graph.write(loaded.model, vectors, directory / GRAPH)
        report = parity.compare(parity.session(directory / GRAPH), loaded, vectors, tolerance=settings.tolerance)
        report.check(settings.model)
        entry = describe(loaded, vectors, report)
        write_files(replace(loaded, pooling=None, metadata={**loaded.metadata, "onnx": entry}), directory)
    for line in report.lines():
        write_line(line)
    write_line(f"{megabytes(settings.out / GRAPH)} in {settings.out / GRAPH}")

    if settings.texts is None:
        return entry
    choice = int8.write(loaded, settings.out / GRAPH, settings.texts, columns=settings, max_drop=settings.max_drop)
    for line in choice.lines():
        write_line(line)
    return {**entry, "int8": choice.to_json()}


def check(settings: Export) -> None:
    """InputError if the settings cannot be met, before any work."""
    absent = [name for name in PACKAGES if find_spec(name) is None]
    if absent:
        raise InputError(f'export needs {", ".join(absent)}; install them: pip install "bothways[onnx]"')

    if settings.int8 != (settings.texts is not None):
        raise InputError(
            f"{flag('int8')} is measured on your texts; give both {flag('int8')} and {flag('texts')}, or neither"
        )
    if settings.texts and not settings.texts.exists():
        raise MissingFile(f"{settings.texts}: no such file; name a file of texts to measure int8 on")

    check_target(settings.out, holds=GRAPH)
    if (settings.out / GRAPH).exists():
        raise InputError(f"{settings.out}: already contains an exported model; name another, or delete that one")


def check_model(source: Path, loaded: Checkpoint, *, with_int8: bool) -> None:
    """InputError if a model cannot be exported. source: its directory. with_int8: an int8 file is to be written too."""
    if is_int8(loaded.model):
        raise InputError(
            f"{source}: an int8 model; export the one it was made from ({flag('int8', True)} writes an int8 ONNX)"
        )
    check_plain(loaded.model)

    config = loaded.model.config
    if encodes_separately(config):
        raise InputError(f"{source}: encodes the texts of a pair separately, which the exported graph cannot do")
    if config.direction != "both":
        raise InputError(
            f"{source}: a one-directional model ({config.direction}); only bidirectional models can be exported"
        )

    heads = set(loaded.model.num_outputs)
    is_unmeasured = "replaced_tokens" in heads or ("masked_words" in heads and loaded.pooling)
    if with_int8 and is_unmeasured:
        raise InputError(f"{source}: no metric is available for these heads to measure int8; leave out {flag('int8')}")


def vector_pooling(loaded: Checkpoint) -> Vectors | None:
    """The pooling of modules.json and 1_Pooling. Without them a normalized mean, as in `bothways embed`, for a model
    without a head, and none for a model that has one."""
    if loaded.pooling is None and loaded.model.num_outputs:
        return None
    return Vectors(pooling_name("auto", loaded.pooling), normalize=loaded.normalized)


def describe(loaded: Checkpoint, vectors: Vectors | None, report: parity.Report) -> dict[str, Any]:
    """The entry of the file in bothways.json."""
    pooling: dict[str, Any] = {}
    if vectors is not None:
        pooling = {"pooling": vectors.pooling, "normalize": vectors.normalize}
    return {
        "opset": graph.OPSET,
        "inputs": graph.input_names(loaded.model),
        **pooling,
        "versions": {name: version(name) for name in ("torch", *PACKAGES)},
        "parity": report.to_json(),
    }


def write_files(loaded: Checkpoint, directory: Path) -> None:
    """Write the checkpoint without its weights, which the graph contains."""
    with tempfile.TemporaryDirectory(dir=directory) as temporary:
        saved = Path(temporary, "checkpoint")
        linear = LinearFormat()
        checkpoint.save(loaded, saved, linear if linear.holds(loaded) else None)

        if (saved / TRANSFORMER).exists():  # sentence-transformers' parts: one config of the family replaces them
            config = read_json(saved / TRANSFORMER / CONFIG) | read_json(saved / CONFIG)
            family = read_json(saved / TRANSFORMER / CONFIG)["model_type"]
            write_json(saved / CONFIG, {**config, "model_type": family})

        for file in saved.iterdir():
            if file.is_file() and file.name not in (WEIGHTS, MODULES):
                file.rename(directory / file.name)


def megabytes(file: Path) -> str:
    """The size of a graph with the file of its weights, if it has one."""
    weights = file.with_name(f"{file.name}.data")
    num_bytes = sum(part.stat().st_size for part in (file, weights) if part.exists())
    return f"{num_bytes / 1e6:,.1f} MB"
