"""Description of a model: labels, pooling and metadata. bothways.json is the metadata of a model or run: settings,
versions, results; validated on reading. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.base.errors import InputError
from bothways.base.io import get_object, read_json
from bothways.model.checkpoint.scope import Scope

if TYPE_CHECKING:
    from bothways.model.linear.tfidf import TfidfModel

CONFIG, METADATA_FILE, ADAPTER_CONFIG = "config.json", "bothways.json", "adapter_config.json"
NOT_DELIVERED = "not_delivered"  # key in bothways.json: why the run has no model, and where the trained one is
MULTI_LABEL = "multi_label_classification"
WORDS = "words"  # key in bothways.json: facts about a linear model over TF-IDF that is a part of the model
INTEGER, NUMBER, TEXT, BOOL, OBJECT = "an integer from 0", "a number", "text", "true or false", "a JSON object"
DATA = "text, a JSON object, or a list of them"  # a path, the description of a table in memory, or several tables
TYPES: dict[str, type | tuple[type, ...]] = {
    INTEGER: (),
    NUMBER: float,
    TEXT: str,
    BOOL: bool,
    OBJECT: dict,
    DATA: (str, dict, list),
}
FACTS = {
    **dict.fromkeys(("verb", "task", "scheme", "status", "started", "reason"), TEXT),
    **dict.fromkeys(("process", "versions", "hardware", "hub", WORDS), OBJECT),
    **dict.fromkeys(("no_answer_threshold", "peak_flops", "flops_per_token"), NUMBER),
    **{"reads_pairs": BOOL, "steps": INTEGER},
}
SETTINGS = {
    **dict.fromkeys(("window", "overlap", "longest"), INTEGER),
    **dict.fromkeys(("context",), BOOL),
    **dict.fromkeys(("long", "objective", "pairs", "positive"), TEXT),
    **dict.fromkeys(("train", "dev"), DATA),
    **dict.fromkeys((f"{use}_column" for use in ("text", "pair", "label", "words", "tags", "negative")), TEXT),
}
PROCESS = {"id": INTEGER, **dict.fromkeys(("host", "machine", "began"), TEXT)}


@dataclass(frozen=True, kw_only=True)
class Description:
    """Labels, pooling and metadata of a model.

    labels: names of the classes, in the order of the head's outputs; empty for regression. multi_label: a text may have
    any number of labels. pooling: how sentence vectors are pooled (mean, cls, max); None if the directory does not
    specify it. normalized: whether they are scaled to length 1. metadata: content of bothways.json, which records how
    the model was trained. words: a linear model over TF-IDF whose scores are added to those of the head "classes"; None
    for most models. scope: of a fine-tuned classifier, where its training texts lie; None if it is unknown.
    """

    model_type: str = "bert"
    labels: tuple[str, ...] = ()
    multi_label: bool = False
    pooling: str | None = None
    normalized: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)
    words: "TfidfModel | None" = field(default=None, compare=False, repr=False)
    scope: Scope | None = field(default=None, compare=False, repr=False)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings the model was trained with; empty if unknown."""
        settings: Mapping[str, Any] = self.metadata.get("settings") or {}
        return settings


def problem_type(described: Description, num_outputs: int) -> str:
    """Hugging Face's name of the task of a classification head with this number of outputs."""
    if described.multi_label:
        return MULTI_LABEL
    return "single_label_classification" if described.labels or num_outputs > 1 else "regression"


def read_metadata(file: Path) -> dict[str, Any]:
    """The content of bothways.json; empty if the file does not exist. InputError for missing or mistyped entries."""
    return check_metadata(read_json(file) if file.exists() else {}, file)


def check_metadata(metadata: dict[str, Any], file: Path) -> dict[str, Any]:
    """The content of bothways.json. InputError for missing or mistyped entries."""
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
