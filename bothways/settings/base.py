"""Base of all settings: option types, validation, and mixins shared by verbs. No torch."""

import codecs
import math
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from inspect import get_annotations
from pathlib import Path
from typing import Any, Literal, TypeVar, dataclass_transform

from bothways.base.errors import InputError, flag, must_be
from bothways.pretrained import DEFAULT
from bothways.settings.conversion import convert, declared_types
from bothways.settings.fields import Converted, Mark, argument, mark_of, option
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
LabelTask = Literal["auto", "classify", "regress"]  # what labels are: classes, or numbers
LongTexts = Literal["windows", "error", "truncate"]
VectorPooling = Literal["auto", "mean", "cls", "max"]
# Data: paths; from Python also in-memory tables (settings/tables_in_memory.py).
Data = Converted[TableSource, Table]
OptionalData = Converted[TableSource | None, Table | None]
DataList = Converted[tuple[TableSource, ...], Table | Iterable[Table]]
ColumnOrIndex = Converted[str | None, str | int | None]  # a number: of a column of a CoNLL file

# Languages with rules in `sentencex`. It silently applies the English rules to all others.
LANGUAGES = [
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
]

DOMAIN_NAME_CODECS = ("idna", "punycode")  # encode a name, not a file; both fail on some bytes in other ways

T = TypeVar("T", bound=type)


# Not frozen_default: mypy would then give an inherited field of `Converted` the type of its argument.
@dataclass_transform(kw_only_default=True, field_specifiers=(option, argument))
def settings(cls: T) -> T:
    """A frozen, keyword-only dataclass. Field order, which is also the order of --help: required fields and a model
    with the packaged one as default, then the class's own fields, then the fields of the mixins."""
    settings_class: Any = dataclass(frozen=True, kw_only=True)(cls)
    fields = settings_class.__dataclass_fields__
    required = [name for name, field in fields.items() if field.default is MISSING or field.default == Path(DEFAULT)]
    by_class = [name for base in cls.__mro__ for name in get_annotations(base)]
    settings_class.__dataclass_fields__ = {name: fields[name] for name in dict.fromkeys((*required, *by_class))}
    return cls


class Checked:
    """Settings that validate themselves: declared types, bounds, missing files, unknown languages and encodings."""

    def __post_init__(self) -> None:
        self._convert()
        if (encoding := getattr(self, "encoding", None)) is not None:
            check_encoding(encoding)
        for name in ("corpus", "file"):
            if getattr(self, name, None) == () and not getattr(self, "static", False):
                raise InputError(f"{name} is empty; name at least one file")
        for field in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            check_bounds(field.name, getattr(self, field.name), mark_of(field))
        if (language := getattr(self, "language", "en")) not in LANGUAGES:
            raise InputError(
                f"language ({language}) has no rules for sentence splitting; choose the closest of "
                f"{', '.join(LANGUAGES)}, or en"
            )

    def _convert(self) -> None:
        marks = {field.name: mark_of(field) for field in fields(self)}  # type: ignore[arg-type]  # as above
        for name, declared in declared_types(type(self)).items():
            value = convert(name, getattr(self, name), declared, packages=marks[name].packages)
            object.__setattr__(self, name, value)


def refuse_repeated(name: str, files: Iterable[TableSource]) -> None:
    """InputError if a file is given twice, whose rows would count twice."""
    seen = set[Path]()
    for file in files:
        if not isinstance(file, Path):
            continue
        if (path := file.resolve()) in seen:
            raise InputError(f"{name} ({file}) is given twice, and each of its rows would count twice; give it once")
        seen.add(path)


def check_bounds(name: str, value: Any, mark: Mark) -> None:
    """InputError for a number out of its bounds, and for infinity."""
    if not isinstance(value, int | float) or mark.least == -math.inf:
        return
    if not (mark.least <= value <= mark.most and value < math.inf):
        wanted = f"at least {mark.least:g}" if mark.most == math.inf else f"from {mark.least:g} to {mark.most:g}"
        wanted = "finite" if value == math.inf else wanted
        raise must_be(name, value, wanted, shown=str(value))


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

    encoding: str | None = option("data", default=None)
    """Encoding of text files without a byte-order mark, such as cp1252. [UTF-8]"""


@settings
class Device:
    """Device of the computation."""

    device: str = option("machine", default="auto")
    """Device: cpu, cuda, cuda:1 (the second GPU) or mps (Apple). auto: the GPU (cuda) if there is one, else the CPU."""


@settings
class NumberFormat:
    """Number format of the computation."""

    dtype: Dtype = option("machine", default="auto")
    """Number format. auto: bfloat16 where the hardware is faster with it, else float32."""


@settings
class Compute(NumberFormat, Device):
    """Device and number format of the computation."""


@settings
class Printed:
    """Output format of the results."""

    json: bool = option("output", default=False)
    """Print one JSON object instead of text."""


@settings
class AskedFor:
    """Options that are named when one asks."""

    options: str | None = option("task", default=None, first=True, metavar="A,B,C|FILE.json")
    """Options to decide among, separated by commas; or a .json file with their names and a description of each, or a
    list of descriptions of which one holds."""
    question: str | None = option("task", default=None)
    """With --options: a question that is read before each option, such as "What is this message about?"."""
    none: bool | None = option("task", default=None)
    """Whether no option may fit. [yes]"""


def check_asked(asked: AskedFor) -> None:
    """InputError for a question without options."""
    for name in ("question", "none"):
        value = getattr(asked, name)
        if asked.options is None and value is not None:
            raise InputError(f"{name} ({value!r:.60}) belongs to {flag('options')}; name the options, or leave it out")


@settings
class TextColumns(Encoded):
    """Table columns with texts and labels."""

    text_column: str | None = option("data", default=None, first=True)
    """Column with the texts, or several separated by commas, which are joined. [text, sentence, ...]"""
    pair_column: str | None = option("data", default=None)
    """Column (or columns) with second texts. [pair, sentence2, ... if there is one]"""
    label_column: str | None = option("data", default=None, first=True)
    """Column with the labels, or columns of 0 and 1 separated by commas, one for each label. [label, class, ...]"""

    @property
    def columns(self) -> dict[str, str | None]:
        """The named columns, by what they hold."""
        return {"text": self.text_column, "pair": self.pair_column, "label": self.label_column}


@settings
class TagColumns:
    """Table columns with words and tags."""

    words_column: ColumnOrIndex = option("data", default=None, first=True)
    """Column with lists of words; in CoNLL files, its index from 0. [words or tokens; 0 in CoNLL files]"""
    tags_column: ColumnOrIndex = option("data", default=None, first=True)
    """Column with lists of tags; in CoNLL files, its index. [tags, ner_tags, ner or labels; -1 in CoNLL files]"""
    scheme: TagScheme = option("data", default="auto")
    """Tag scheme. auto: detected; plain: one label per word, such as part-of-speech tags."""


@settings
class TextFiles(Encoded):
    """How documents are read from text files and tables."""

    documents: DocumentBreak = option("data", default="blank")
    """What separates documents in .txt files: a blank line, the end of a line, or the end of the file."""
    text_column: str = option("data", default="text", first=True)
    """Table column with the texts, or several separated by commas; each row is a document."""
    on_error: OnError = option("data", default="stop")
    """Unreadable rows: stop and report file and line, or skip and count them."""


@settings
class Windows:
    """How long texts are read."""

    window: int | None = option("model", default=None, least=8, first=True)
    """Maximum tokens per window, special tokens included. [as in fine-tuning, else 512]"""
    long: LongTexts | None = option("model", default=None)
    """Texts longer than a window: split into windows, raise an error, or truncate. [as in fine-tuning, else windows]"""


@settings
class Optimization(Checked):
    """Optimizer and learning rate."""

    gradient_accumulation: int = option("training", default=1, least=1)
    """Micro-batches per step, over all processes. More save memory; the gradient is the same, except for dropout."""
    seed: int = option("training", default=0, least=0, most=2**63 - 1)
    """Random seed."""
