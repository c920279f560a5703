"""bothways.json: how a model came to be. What prediction and evaluation use of it is checked when it is read."""

from pathlib import Path
from typing import Any

from bothways.errors import InputError
from bothways.tokenizer.files import inner, read_json

WHOLE, NUMBER, TEXT, TRUTH = "a whole number from 0", "a number", "text", "true or false"
TYPES: dict[str, tuple[type, ...]] = {WHOLE: (int,), NUMBER: (int, float), TEXT: (str,), TRUTH: (bool,)}
FACTS = {"reads_pairs": TRUTH, "no_answer_threshold": NUMBER, "scheme": TEXT, "verb": TEXT}
SETTINGS = {
    **dict.fromkeys(("window", "overlap", "longest"), WHOLE),
    **dict.fromkeys(("context", "merge_labels"), TRUTH),
    **dict.fromkeys(("long", "objective", "pairs", "positive", "train", "dev"), TEXT),
    **dict.fromkeys((f"{use}_column" for use in ("text", "pair", "label", "words", "tags", "negative")), TEXT),
}


def read_origin(file: Path) -> dict[str, Any]:
    """Its content; nothing where there is no file. InputError for a fact of another type than is needed."""
    made = read_json(file) if file.exists() else {}
    for facts, kinds in ((made, FACTS), (inner(made, "settings", file), SETTINGS)):
        for name, kind in kinds.items():
            value = facts.get(name)
            if value is not None and (type(value) not in TYPES[kind] or (kind == WHOLE and value < 0)):
                raise InputError(f"{file}: {name} ({value!r:.60}) must be {kind}; mend it, or leave it out")
    return made
