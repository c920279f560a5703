"""Description of a model: labels, pooling and metadata. bothways.json is the metadata of a model or run: settings,
versions, results; validated on reading. No torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.base.errors import InputError
from bothways.base.io import get_object, read_json
from bothways.model.checkpoint.scope import Scope

if TYPE_CHECKING:
    from bothways.model.linear.tfidf import TfidfModel
    from bothways.model.statement_head import StatementHead

CONFIG = "config.json"
METADATA_FILE = "bothways.json"
ADAPTER_CONFIG = "adapter_config.json"
NOT_DELIVERED = "not_delivered"  # key in bothways.json: why the run has no model, and where the trained one is
MULTI_LABEL = "multi_label_classification"
DECIDE = "decide"  # key in bothways.json: the options that a model decides among by itself
WORDS = "words"  # key in bothways.json: facts about a linear model over TF-IDF that is a part of the model


@dataclass(frozen=True, kw_only=True)
class Description:
    """Labels, pooling and metadata of a model.

    model_type: the family, by Hugging Face's name.
    labels: names of the classes, in the order of the head's outputs; empty for regression.
    multi_label: whether a text may have any number of labels.
    pooling: how sentence vectors are pooled (mean, cls, max); None if the directory does not specify it.
    normalized: whether sentence vectors are scaled to length 1.
    metadata: content of bothways.json, which records how the model was trained.
    words: a linear model over TF-IDF whose scores are added to the scores of the head "classes"; None for most models.
    scope: of a fine-tuned classifier, where its training texts lie; None if it is unknown.
    statements: the head and the adapter that say how far statements hold for a text; None for most models.
    """

    model_type: str = "bert"
    labels: tuple[str, ...] = ()
    multi_label: bool = False
    pooling: str | None = None
    normalized: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)
    words: "TfidfModel | None" = field(default=None, compare=False, repr=False)
    scope: Scope | None = field(default=None, compare=False, repr=False)
    statements: "StatementHead | None" = field(default=None, compare=False, repr=False)

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


# --- bothways.json ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EntryType:
    """The values that an entry of bothways.json may have.

    name: as messages call them.
    """

    name: str
    accepts: Callable[[object], bool]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _is_number(value: object) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 2**63
    return isinstance(value, float)


COUNT = EntryType("an integer from 0", _is_count)
NUMBER = EntryType("a number", _is_number)
TEXT = EntryType("text", lambda value: isinstance(value, str))
BOOL = EntryType("true or false", lambda value: isinstance(value, bool))
OBJECT = EntryType("a JSON object", lambda value: isinstance(value, dict))
# A path, the description of a table in memory, or several tables.
DATA = EntryType("text, a JSON object, or a list of them", lambda value: isinstance(value, str | dict | list))

# Entries that the package reads. Others are kept as they are, so that a file of a later version is read too.
ENTRIES = {
    "verb": TEXT,
    "task": TEXT,
    "scheme": TEXT,
    "status": TEXT,
    "started": TEXT,
    "reason": TEXT,
    "process": OBJECT,
    "versions": OBJECT,
    "hardware": OBJECT,
    "hub": OBJECT,
    WORDS: OBJECT,
    DECIDE: OBJECT,
    "no_answer_threshold": NUMBER,
    "peak_flops": NUMBER,
    "flops_per_token": NUMBER,
    "reads_pairs": BOOL,
    "steps": COUNT,
}
SETTINGS = {
    "window": COUNT,
    "overlap": COUNT,
    "longest": COUNT,
    "context": BOOL,
    "long": TEXT,
    "objective": TEXT,
    "pairs": TEXT,
    "positive": TEXT,
    "train": DATA,
    "dev": DATA,
    "text_column": TEXT,
    "pair_column": TEXT,
    "label_column": TEXT,
    "words_column": TEXT,
    "tags_column": TEXT,
    "negative_column": TEXT,
}
PROCESS = {
    "id": COUNT,
    "host": TEXT,
    "machine": TEXT,
    "began": TEXT,
}


def read_metadata(file: Path) -> dict[str, Any]:
    """The content of bothways.json; empty if the file does not exist. InputError for missing or mistyped entries."""
    return check_metadata(read_json(file) if file.exists() else {}, file)


def check_metadata(metadata: dict[str, Any], file: Path) -> dict[str, Any]:
    """The content of bothways.json. InputError for missing or mistyped entries."""
    settings = get_object(metadata, "settings", file)
    process = get_object(metadata, "process", file)
    _check_types(metadata, ENTRIES, file)
    _check_types(settings, SETTINGS, file)
    _check_types(process, PROCESS, file)

    # Only a run has a status, and only a run that has begun names its process.
    if "status" in metadata:
        _check_present(metadata, ("verb", "settings"), file)
    if process:
        _check_present(process, ("host", "id"), file)
    return metadata


def _check_types(entries: Mapping[str, Any], types: Mapping[str, EntryType], file: Path) -> None:
    for name, kind in types.items():
        value = entries.get(name)
        if value is not None and not kind.accepts(value):
            raise InputError(f"{file}: {name} ({value!r:.60}) must be {kind.name}; correct or remove it")


def _check_present(entries: Mapping[str, Any], names: Sequence[str], file: Path) -> None:
    for name in names:
        if entries.get(name) is None:
            raise InputError(f"{file}: {name} is missing; start the run again")
