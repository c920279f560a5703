"""Base of all settings: option types, bounds, validation, and mixins shared by verbs. No torch."""

import codecs
import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass
from inspect import get_annotations
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin

from bothways.errors import InputError
from bothways.pretrained import DEFAULT
from bothways.settings.conversion import convert, declared_types
from bothways.settings.fields import (
    Converted,
    FlagCreatePairsOff,
    Location,
    OptionalLocation,
    Positional,
    arg,
    create_mutex_group,
)
from bothways.settings.tables_in_memory import Table, TableSource

Dtype = Literal["auto", "float32", "bfloat16"]
TrainingDtype = Literal["auto", "float32", "bfloat16", "float16"]
ScheduleName = Literal["linear", "cosine", "one-cycle", "warm-up-stable-decay", "constant"]
Family = Literal[
    "bert",
    "albert",
    "distilbert",
    "electra",
    "roberta",
    "modernbert",
    "longformer",
    "big_bird",
    "deberta",
    "deberta-v2",
]
Size = Literal["tiny", "mini", "small", "medium", "base", "large"]
OnError = Literal["stop", "skip"]
How = Literal["hybrid", "words", "vectors"]
DocumentBreak = Literal["blank", "line", "file"]
TagScheme = Literal["auto", "iob1", "iob2", "bioes", "plain"]
LongTexts = Literal["windows", "error", "truncate"]
VectorPooling = Literal["auto", "mean", "cls", "max"]
LearningRate = Annotated[float | None, arg(aliases=("--lr",))]
Output = Annotated[Location, arg(aliases=("-o",))]
OptionalOutput = Annotated[OptionalLocation, arg(aliases=("-o",))]
Directory = Annotated[Location, arg(metavar="DIR")]
OptionalDirectory = Annotated[OptionalLocation, arg(metavar="DIR")]
Model = Positional[Directory]
# The model of the package if none is named. Command lines put it in front of the other arguments (cli/main.py).
DefaultModel = Positional[Annotated[Location, arg(metavar="[DIR]")]]
# Data: paths; from Python also in-memory tables (settings/tables_in_memory.py).
Data = Annotated[Converted[TableSource, Table], arg(constructor=Path)]
OptionalData = Annotated[Converted[TableSource | None, Table | None], arg(constructor=Path | None)]
DataList = Annotated[Converted[tuple[TableSource, ...], Table | Iterable[Table]], arg(constructor=tuple[Path, ...])]

AccentFlag = Annotated[
    bool, FlagCreatePairsOff, arg(help_behavior_hint=""), create_mutex_group(required=False, title="accents")
]


def accents(strip_accents: AccentFlag = False, keep_accents: AccentFlag = False) -> bool | None:
    """Two flags for one setting; None if neither is given.

    Args:
        strip_accents: Strip accents and vowel signs, as BERT does. [if lower-casing, and they are rare in the text]
        keep_accents: Keep accents and vowel signs. [if they are frequent in the text, or with --no-lowercase]
    """
    return strip_accents if strip_accents or keep_accents else None


Accents = Annotated[bool | None, arg(constructor=accents, name="")]

# Languages with rules in `sentencex`. It silently applies the English rules to all others.
LANGUAGES = (
    "am",
    "ar",
    "bg",
    "bn",
    "ca",
    "da",
    "de",
    "el",
    "en",
    "es",
    "fi",
    "fr",
    "gu",
    "hi",
    "hy",
    "it",
    "ja",
    "kk",
    "kn",
    "ml",
    "mr",
    "my",
    "nl",
    "pa",
    "pl",
    "pt",
    "ru",
    "sk",
    "ta",
    "te",
    "uk",
)

DOMAIN_NAME_CODECS = ("idna", "punycode")  # encode a name, not a file; both fail on some bytes in other ways

# The smallest and largest allowed value of each setting, inclusive, in every verb that has it.
BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("size", "dimensions", "vocab_size", "alphabet", "processes", "workers", "steps"), (1, math.inf)),
    **dict.fromkeys(("batch_tokens", "gradient_accumulation"), (1, math.inf)),
    **dict.fromkeys(("evaluate_every", "seeds", "top", "keep_checkpoints", "heldout_examples"), (1, math.inf)),
    **dict.fromkeys(("batch_size", "patience", "max_answer_tokens", "label_next"), (1, math.inf)),
    **dict.fromkeys(("tolerance", "max_drop"), (0, math.inf)),
    **dict.fromkeys(("max_requests", "queue_tokens", "max_body", "max_texts", "max_text_tokens"), (1, math.inf)),
    **dict.fromkeys(("max_wait", "grace", "context"), (0, math.inf)),
    **dict.fromkeys(("rank", "adapter_size", "added_rows"), (1, 1024)),
    "lora_alpha": (0.001, math.inf),
    "cuts": (1, 100),
    "speed": (1.01, 100),
    "port": (0, 65535),
    "read_timeout": (0.001, math.inf),
    "folds": (2, math.inf),
    "overlap": (0, math.inf),
    **dict.fromkeys(("learning_rate", "muon_learning_rate", "weight_decay"), (0, math.inf)),
    **dict.fromkeys(("checkpoint_every", "extend_vocab", "freeze"), (0, math.inf)),
    "train_windows": (0, math.inf),
    **dict.fromkeys(("max_grad_norm", "initializer_range"), (1e-6, math.inf)),
    **dict.fromkeys(("minutes", "epochs", "evaluations_per_epoch"), (0.001, math.inf)),
    "max_length": (8, 8192),
    "long_length": (8, 8192),
    "long_examples": (0, 1),
    "coverage": (0.01, 0.999),
    "temperature": (0.001, 10),
    "window": (8, math.inf),
    "mask_rate": (0.01, 1),
    "final_mask_rate": (0.01, 1),
    "dropout": (0, 0.9),
    "warmup": (0, 1),
    "beta2": (0, 0.9999),
    "watts": (0, math.inf),
    "decay": (0, 1),
    "layer_decay": (0.01, 1),
    "alpha": (0, 1),
    "seed": (0, 2**63 - 1),
}

NO_BOUNDS: Mapping[str, tuple[float, float]] = {}

T = TypeVar("T", bound=type)


# Not frozen_default: mypy would then give an inherited field of `Converted` the type of its argument.
@dataclass_transform(kw_only_default=True)
def settings(cls: T) -> T:
    """A frozen, keyword-only dataclass. Field order, which is also that of --help: required fields and a model with
    the packaged one as default, then the class's own, then those of the mixins. --help shows no default that is None
    or ()."""
    for name, hint in get_annotations(cls).items():
        if getattr(cls, name, MISSING) is None:
            hint = none_first(hint)
        if getattr(cls, name, MISSING) in (None, ()):
            hint = Annotated[hint, arg(help_behavior_hint="")]
        cls.__annotations__[name] = hint
    settings_class: Any = dataclass(frozen=True, kw_only=True)(cls)
    fields = settings_class.__dataclass_fields__
    required = [name for name, field in fields.items() if field.default is MISSING or field.default == Path(DEFAULT)]
    by_class = [name for base in cls.__mro__ for name in get_annotations(base)]
    settings_class.__dataclass_fields__ = {name: fields[name] for name in dict.fromkeys((*required, *by_class))}
    return cls


def none_first(hint: Any) -> Any:
    """`X | None` as Union[None, X]: tyro then sees that None fits without importing a type checker, which would take
    50 ms of every command."""
    if get_origin(hint) is Annotated:
        inner, *extra = get_args(hint)
        return Annotated[(none_first(inner), *extra)]
    if isinstance(hint, UnionType):
        others = [one for one in get_args(hint) if one is not NoneType]
        return Union[(None, *others)]
    return hint


class Checked:
    """Settings that validate themselves: declared types, bounds, missing files, unknown languages and encodings.

    InputError names the setting and its value. own_bounds: where the bounds of a verb differ from BOUNDS.
    """

    own_bounds = NO_BOUNDS

    def __post_init__(self) -> None:
        self._convert()
        if (encoding := getattr(self, "encoding", None)) is not None:
            check_encoding(encoding)
        for name in ("corpus", "file"):
            if getattr(self, name, None) == () and not getattr(self, "static", False):
                raise InputError(f"{name} is empty; name at least one file")
        for name, (least, most) in {**BOUNDS, **self.own_bounds}.items():
            value = getattr(self, name, None)
            if isinstance(value, int | float) and not (least <= value <= most and value < math.inf):
                wanted = f"at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
                wanted = "finite" if value == math.inf else wanted
                raise InputError(f"{name} ({value}) must be {wanted}")
        if (language := getattr(self, "language", "en")) not in LANGUAGES:
            raise InputError(
                f"language ({language}) has no rules for sentence splitting; choose the closest of "
                f"{', '.join(LANGUAGES)}, or en"
            )

    def _convert(self) -> None:
        for name, declared in declared_types(type(self)).items():
            object.__setattr__(self, name, convert(name, getattr(self, name), declared))


def check_encoding(name: str) -> None:
    """InputError if this is not the name of an encoding of text files."""
    try:
        "\n".encode(name)  # fails for codecs that are not text encodings, such as rot13
        is_text_encoding = codecs.lookup(name).name not in DOMAIN_NAME_CODECS
    except (LookupError, TypeError, ValueError):
        is_text_encoding = False
    if not is_text_encoding:
        known = "utf-8, utf-16, cp1252 (Windows), latin-1, mac_roman, gb18030, shift_jis"
        raise InputError(f"encoding ({name}) is not a text encoding; name one such as {known}")


@settings
class Encoded:
    """Text files."""

    encoding: str | None = None
    """Encoding of text files without a byte-order mark, such as cp1252. [UTF-8]"""


@settings
class Device:
    """Device of the computation."""

    device: str = "auto"
    """Device: cpu, cuda, cuda:1 (the second GPU) or mps (Apple). auto: the GPU (cuda) if there is one, else the CPU."""


@settings
class NumberFormat:
    """Number format of the computation."""

    dtype: Dtype = "auto"
    """Number format. auto: bfloat16 where the hardware is faster with it, else float32."""


@settings
class Compute(NumberFormat, Device):
    """Device and number format of the computation."""


@settings
class Printed:
    """Output format of the results."""

    json: bool = False
    """Print one JSON object instead of text."""


@settings
class TextColumns(Encoded):
    """Table columns with texts and labels."""

    text_column: str | None = None
    """Column with the texts, or several separated by commas, which are joined. [text, sentence, ...]"""
    pair_column: str | None = None
    """Column (or columns) with second texts. [pair, sentence2, ... if there is one]"""
    label_column: str | None = None
    """Column with the labels. [label, class, score, ...]"""

    @property
    def columns(self) -> dict[str, str | None]:
        """The named columns, by what they hold."""
        return {"text": self.text_column, "pair": self.pair_column, "label": self.label_column}


@settings
class TagColumns:
    """Table columns with words and tags."""

    words_column: str | None = None
    """Column with lists of words; in CoNLL files, its index from 0. [words or tokens; 0 in CoNLL files]"""
    tags_column: str | None = None
    """Column with lists of tags; in CoNLL files, its index. [tags, ner_tags, ner or labels; -1 in CoNLL files]"""
    scheme: TagScheme = "auto"
    """Tag scheme. auto: detected; plain: one label per word, such as part-of-speech tags."""


@settings
class TextFiles(Encoded):
    """How documents are read from text files and tables."""

    documents: DocumentBreak = "blank"
    """What separates documents in .txt files: a blank line, the end of a line, or the end of the file."""
    text_column: str = "text"
    """Table column with the texts, or several separated by commas; each row is a document."""
    on_error: OnError = "stop"
    """Unreadable rows: stop and report file and line, or skip and count them."""


@settings
class Windows:
    """How long texts are read."""

    window: int | None = None
    """Maximum tokens per window, special tokens included. [as in fine-tuning, else 512]"""
    long: LongTexts | None = None
    """Texts longer than a window: split into windows, raise an error, or truncate. [as in fine-tuning, else windows]"""


@settings
class Optimization(Checked):
    """Optimizer and learning rate."""

    schedule: ScheduleName = "linear"
    """Learning rate schedule after warm-up."""
    weight_decay: float = 0.01
    """Weight decay, applied to matrices only."""
    max_grad_norm: float = 1.0
    """Maximum gradient norm; larger gradients are scaled down to it."""
    gradient_accumulation: int = 1
    """Micro-batches per step, over all processes. More save memory; the gradient is the same, except for dropout."""
    seed: int = 0
    """Random seed."""
