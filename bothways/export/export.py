"""`bothways export`: a model as an ONNX file, which gets its name when its scores are ours (tasks/parity.py).

Beside it stand the tokenizer's files and config.json, so that transformers' AutoTokenizer and ONNX Runtime need nothing
else, and bothways.json with the report of the comparison.
"""

import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bothways.checkpoint import checkpoint
from bothways.checkpoint.checkpoint import CONFIG, Checkpoint, check_target
from bothways.checkpoint.sentence_transformers import MODULES, TRANSFORMER
from bothways.checkpoint.weights import WEIGHTS
from bothways.errors import InputError, MissingFile
from bothways.export import graph, int8, parity
from bothways.export.graph import Vectors
from bothways.inference.pooling import pooling_name
from bothways.io import atomic_directory, write_json
from bothways.log import logger
from bothways.model.int8 import is_int8
from bothways.model.pooler import reads_apart
from bothways.settings import Export
from bothways.tokenizer.files import read_json

GRAPH = "model.onnx"
PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def run(settings: Export, write_line: Callable[[str], None] = logger.info) -> dict[str, Any]:
    """Write the directory; what bothways.json says of it. write_line is called with each line of the tables.

    InputError where a score differs by more than the tolerance: nothing stands there then. Where int8 loses too much,
    the float32 file stays.
    """
    check(settings)
    source = checkpoint.find(settings.model)
    held = checkpoint.load(source)
    if is_int8(held.model):
        raise InputError(f"{source}: an int8 model; export the one it was made from (--int8 writes an int8 ONNX)")
    if reads_apart(held.model.config):
        raise InputError(f"{source}: compares pairs whose texts are read apart, which the exported graph cannot do")
    if held.model.config.direction != "both":
        direction = held.model.config.direction
        raise InputError(f"{source}: looks one way ({direction}); export is for models that look both ways")
    heads = set(held.model.num_outputs)
    if settings.int8 and ("replaced_tokens" in heads or ("masked_words" in heads and held.pooling)):
        raise InputError(f"{source}: what int8 loses of its scores is measured by nothing here; leave out --int8")
    vectors = vectors_of(held)
    with atomic_directory(settings.out, marker=GRAPH) as beside:
        graph.write(held.model, vectors, beside / GRAPH)
        report = parity.compare(parity.session(beside / GRAPH), held, vectors, tolerance=settings.tolerance)
        report.check(settings.model)
        made = facts(held, vectors, report)
        write_files(replace(held, pooling=None, metadata={**held.metadata, "onnx": made}), beside)
    for line in (*report.as_table(), f"{megabytes(settings.out / GRAPH)} in {settings.out / GRAPH}"):
        write_line(line)
    if settings.texts is None:
        return made
    lost = int8.write(held, settings.out / GRAPH, settings)
    write_line(f"{lost}: {megabytes(settings.out / int8.NAME)} in {settings.out / int8.NAME}")
    return {**made, "int8": asdict(lost)}


def check(settings: Export) -> None:
    """InputError where what was asked for cannot be done, before any work."""
    if absent := [name for name in PACKAGES if find_spec(name) is None]:
        raise InputError(f'export needs {", ".join(absent)}; install them: pip install "bothways[onnx]"')
    if settings.int8 != (settings.texts is not None):
        raise InputError("--int8 is measured on your texts; give both --int8 and --with FILE, or neither")
    if settings.texts and not settings.texts.exists():
        raise MissingFile(f"{settings.texts}: no such file; name texts on which int8 is measured")
    check_target(settings.out, holds=GRAPH)
    if (settings.out / GRAPH).exists():
        raise InputError(f"{settings.out}: holds an exported model already; name a new directory, or delete that one")


def vectors_of(held: Checkpoint) -> Vectors:
    """What modules.json and 1_Pooling say; without them a mean of length 1, as `bothways embed` gives."""
    return Vectors(pooling_name("auto", held.pooling), normalize=held.normalized)


def facts(held: Checkpoint, vectors: Vectors, report: parity.Report) -> dict[str, Any]:
    """What bothways.json tells of the file."""
    pooled = {} if held.model.num_outputs else {"pooling": vectors.pooling, "normalize": vectors.normalize}
    return {
        "opset": graph.OPSET,
        "inputs": graph.input_names(held.model),
        **pooled,
        "versions": {name: version(name) for name in ("torch", *PACKAGES)},
        "parity": report.as_json(),
    }


def write_files(held: Checkpoint, directory: Path) -> None:
    """All of a checkpoint but its weights, which the graph holds."""
    with tempfile.TemporaryDirectory(dir=directory) as whole:
        saved = Path(whole, "checkpoint")
        checkpoint.save(held, saved)
        if (saved / TRANSFORMER).exists():  # a family's config for what is no longer in several parts
            config = read_json(saved / TRANSFORMER / CONFIG) | read_json(saved / CONFIG)
            family = read_json(saved / TRANSFORMER / CONFIG)["model_type"]
            write_json(saved / CONFIG, {**config, "model_type": family})
        for file in saved.iterdir():
            if file.is_file() and file.name not in (WEIGHTS, MODULES):
                file.rename(directory / file.name)


def megabytes(file: Path) -> str:
    beside = file.with_name(f"{file.name}.data")
    return f"{sum(one.stat().st_size for one in (file, beside) if one.exists()) / 1e6:,.1f} MB"
