"""Metadata of a model or run, bothways.json: settings, versions, results; validated on reading."""

from pathlib import Path
from typing import Any

from bothways.errors import InputError
from bothways.io import get_object, read_json

INTEGER, NUMBER, TEXT, BOOL, OBJECT = "an integer from 0", "a number", "text", "true or false", "a JSON object"
DATA = "text or a JSON object"  # a path, or the description of a table in memory
TYPES: dict[str, type | tuple[type, ...]] = {
    INTEGER: (),
    NUMBER: float,
    TEXT: str,
    BOOL: bool,
    OBJECT: dict,
    DATA: (str, dict),
}
FACTS = {
    **dict.fromkeys(("verb", "scheme", "status", "started", "reason"), TEXT),
    **dict.fromkeys(("process", "versions", "hardware", "hub"), OBJECT),
    **dict.fromkeys(("no_answer_threshold", "peak_flops", "flops_per_token"), NUMBER),
    **{"reads_pairs": BOOL, "steps": INTEGER},
}
SETTINGS = {
    **dict.fromkeys(("window", "overlap", "longest"), INTEGER),
    **dict.fromkeys(("context", "merge_labels"), BOOL),
    **dict.fromkeys(("long", "objective", "pairs", "positive", "window_pooling"), TEXT),
    **dict.fromkeys(("train", "dev"), DATA),
    **dict.fromkeys((f"{use}_column" for use in ("text", "pair", "label", "words", "tags", "negative")), TEXT),
}
PROCESS = {"id": INTEGER, **dict.fromkeys(("host", "machine", "began"), TEXT)}


def read_metadata(file: Path) -> dict[str, Any]:
    """The content of bothways.json; empty if the file does not exist. InputError for missing or mistyped entries."""
    metadata = read_json(file) if file.exists() else {}
    settings, process = get_object(metadata, "settings", file), get_object(metadata, "process", file)
    for entries, types in ((metadata, FACTS), (settings, SETTINGS), (process, PROCESS)):
        for name, kind in types.items():
            value = entries.get(name)
            if value is not None and not _has_type(value, kind):
                raise InputError(f"{file}: {name} ({value!r:.60}) must be {kind}; correct or remove it")
    for entries, names in ((metadata if "status" in metadata else {}, ("verb", "settings")), (process, ("host", "id"))):
        if entries and (missing := [name for name in names if entries.get(name) is None]):
            raise InputError(f"{file}: {missing[0]} is missing; start the run again")
    return metadata


def _has_type(value: object, kind: str) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return (kind == INTEGER and 0 <= value < 2**31) or (kind == NUMBER and abs(value) < 2**63)
    return isinstance(value, TYPES[kind])
