"""The files of a model as they are published: those that libraries read, without paths, hosts, times and hardware."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError
from bothways.base.io import read_json, to_json
from bothways.model.checkpoint.card_file import CARD
from bothways.model.checkpoint.description import ADAPTER_CONFIG, METADATA_FILE, WORDS
from bothways.model.checkpoint.hub import FILES
from bothways.pretrained import NAMES

# Beside the files that are downloaded: vocabularies of sentence-transformers, a card, adapters, the head of
# statements, graphs.
SENT = (
    *FILES,
    "[0-9]_*/*.txt",
    CARD,
    ADAPTER_CONFIG,
    "adapter_model.safetensors",
    "adapter.safetensors",
    "statements.safetensors",
    "*.onnx",
    "onnx/*.onnx",
)
# Entries of bothways.json that inference or a card reads, and that have neither paths nor names of machines.
KEPT = (
    "format",
    "verb",
    "task",
    "scheme",
    "hub",
    "versions",
    "adapter",
    WORDS,
)
KEPT_SETTINGS = (
    "window",
    "overlap",
    "longest",
    "context",
    "long",
    "max_answer_tokens",
    "objective",
    "pairs",
    "positive",
    "pooling",
    "text_column",
    "pair_column",
    "label_column",
    "words_column",
    "tags_column",
    "negative_column",
)
KEPT_RESULTS = (
    "metric",
    "split",
    "selected_on",
    "measured",
    "dtype",
)
LEFT_OUT = (
    "hardware",
    "process",
    "seconds",
    "settings",
    "result",
)
NAMES_OF_SOURCES = (  # keys by which libraries note the directory that a file was read from
    "_name_or_path",
    "name_or_path",
)


@dataclass(frozen=True)
class PublishedFile:
    """A file that is sent.

    name: in the repository.
    content: a path whose bytes are sent, or the bytes.
    """

    name: str
    content: Path | bytes

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size


def files_of(directory: Path) -> tuple[list[PublishedFile], list[str]]:
    """The files of a model to send, and the names of the others; the card is as it is in the directory."""
    sent = []
    left_out = []
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if not path.is_file():
            continue
        if any(fnmatch(name, pattern) for pattern in SENT):
            sent.append(PublishedFile(name, published_content(path, name)))
        else:
            left_out.append(name)
    return sent, left_out


def published_content(path: Path, name: str) -> Path | bytes:
    """The bytes of a JSON file without what is not published; of any other file its path."""
    if path.name == METADATA_FILE:
        return (to_json(published_metadata(read_json(path)), 2) + "\n").encode()
    if name == ADAPTER_CONFIG:
        check_base(path)
    if name.endswith(".json") and any(f'"{key}"' in path.read_text(encoding="utf-8") for key in NAMES_OF_SOURCES):
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and any(key in content for key in NAMES_OF_SOURCES):
            kept = {key: value for key, value in content.items() if key not in NAMES_OF_SOURCES}
            return (to_json(kept, 2) + "\n").encode()
    return path


def check_base(file: Path) -> None:
    """InputError if an adapter belongs to a model that is a directory of this machine."""
    base = str(read_json(file).get("base_model_name_or_path", ""))
    if Path(base).is_absolute() or Path(base).exists():
        raise InputError(
            f"{file.parent}: an adapter of a model that is on this machine only; make one model of the two, which can "
            "be published: bothways merge ADAPTER -o DIR"
        )


def published_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of bothways.json that are published: what inference reads, scores, and other numbers.

    >>> published_metadata({"verb": "pretrain", "process": {"host": "mine", "id": 7}, "steps": 3})
    {'verb': 'pretrain', 'steps': 3}
    """
    published = {}
    for name, value in metadata.items():
        if name in KEPT:
            published[name] = value
        elif name not in LEFT_OUT and (numbers := numbers_of(value)) is not None:
            published[name] = numbers

    settings = metadata.get("settings") or {}
    kept = {name: settings[name] for name in KEPT_SETTINGS if settings.get(name) is not None}
    if settings.get("model") in NAMES:
        kept["model"] = settings["model"]
    if kept:
        published["settings"] = kept

    result = metadata.get("result") or {}
    scores = {name: result[name] for name in KEPT_RESULTS if name in result} | (numbers_of(result) or {})
    if scores:
        published["result"] = scores
    return published


def numbers_of(value: Any) -> Any:
    """A value with only its numbers, truth values, and lists and objects of them; None if there are none."""
    if isinstance(value, Mapping):
        pairs = ((name, numbers_of(inner)) for name, inner in value.items())
        return {name: inner for name, inner in pairs if inner is not None} or None
    if isinstance(value, list | tuple):
        numbers = [*map(numbers_of, value)]
        return numbers if numbers and None not in numbers else None
    return value if isinstance(value, bool | int | float) else None
