"""bothways.json: how a model or a run came to be. What is used of it is checked when it is read."""

from pathlib import Path
from typing import Any

from bothways.errors import InputError
from bothways.tokenizer.files import get_object, read_json

WHOLE, NUMBER, TEXT, TRUTH, OBJECT = "a whole number from 0", "a number", "text", "true or false", "a JSON object"
DATA = "text or a JSON object"  # a path, or what a table in memory was
TYPES: dict[str, type | tuple[type, ...]] = {
    WHOLE: (), NUMBER: float, TEXT: str, TRUTH: bool, OBJECT: dict,
    DATA: (str, dict),
}  # fmt: skip
FACTS = {
    **dict.fromkeys(("verb", "scheme", "status", "started", "reason"), TEXT),
    **dict.fromkeys(("process", "versions", "hardware"), OBJECT),
    **dict.fromkeys(("no_answer_threshold", "matrix_peak", "work_of_token"), NUMBER),
    **{"reads_pairs": TRUTH, "steps": WHOLE},
}
SETTINGS = {
    **dict.fromkeys(("window", "overlap", "longest"), WHOLE),
    **dict.fromkeys(("context", "merge_labels"), TRUTH),
    **dict.fromkeys(("long", "objective", "pairs", "positive", "window_pooling"), TEXT),
    **dict.fromkeys(("train", "dev"), DATA),
    **dict.fromkeys((f"{use}_column" for use in ("text", "pair", "label", "words", "tags", "negative")), TEXT),
}
PROCESS = {"id": WHOLE, **dict.fromkeys(("host", "machine", "began"), TEXT)}


def read_metadata(file: Path) -> dict[str, Any]:
    """Its content; nothing where there is no file. InputError for a fact that a run lacks, or of another type than is
    needed."""
    made = read_json(file) if file.exists() else {}
    settings, process = get_object(made, "settings", file), get_object(made, "process", file)
    for facts, kinds in ((made, FACTS), (settings, SETTINGS), (process, PROCESS)):
        for name, kind in kinds.items():
            value = facts.get(name)
            if value is not None and not _is_a(value, kind):
                raise InputError(f"{file}: {name} ({value!r:.60}) must be {kind}; mend it, or leave it out")
    for facts, names in ((made if "status" in made else {}, ("verb", "settings")), (process, ("host", "id"))):
        if facts and (missing := [name for name in names if facts.get(name) is None]):
            raise InputError(f"{file}: lacks {missing[0]}; mend it, or begin the run anew")
    return made


def _is_a(value: object, kind: str) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return (kind == WHOLE and 0 <= value < 2**31) or (kind == NUMBER and abs(value) < 2**63)
    return isinstance(value, TYPES[kind])
