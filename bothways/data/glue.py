"""The files of GLUE (Wang 2018) as they are published, some of which only their look tells from others.

They are separated by tabs, whatever their names end in, and a quote is a character. CoLA, STS-B and QQP may have no
header, STS-B's rows seven columns or nine, and MRPC (with a byte-order mark) and SICK stand in a .txt. SICK (Marelli
2014) is no task of GLUE; it can stand in for MNLI.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bothways.data.columns import LabelCheck, Table, build_table
from bothways.data.files import decoded_lines, file_type
from bothways.data.tables import RowErrorHandler, TableRow, iter_rows, raise_error
from bothways.errors import InputError
from bothways.tables_in_memory import MemoryTable, TableSource

GlueSplit = Literal["train", "dev", "dev_mismatched", "test"]
Values = Sequence[str]  # of a line


@dataclass(frozen=True)
class GlueTask:
    """What is learned, the score that GLUE reports (F1 is of class "1"), and the files by split; of several names one.

    label: the column of the labels, by the header or by the look.
    """

    kind: Literal["classify", "regress"]
    metric: Literal["accuracy", "f1", "matthews", "spearman"]
    label: str
    train: Sequence[str] = ("train.tsv",)
    dev: Sequence[str] = ("dev.tsv",)
    dev_mismatched: Sequence[str] = ()
    test: Sequence[str] = ("test.tsv",)

    @property
    def files(self) -> dict[GlueSplit, Sequence[str]]:
        return {"train": self.train, "dev": self.dev, "dev_mismatched": self.dev_mismatched, "test": self.test}


TASKS: Mapping[str, GlueTask] = {
    "CoLA": GlueTask("classify", "matthews", "label"),
    "SST-2": GlueTask("classify", "accuracy", "label"),
    "MRPC": GlueTask(
        "classify", "f1", "Quality", ("train.tsv", "msr_paraphrase_train.txt"),
        dev=("dev.tsv", "msr_paraphrase_test.txt"),  # as published there is no dev set, and the test set has labels
    ),
    "STS-B": GlueTask(
        "regress", "spearman", "score", ("train.tsv", "sts-train.csv"), ("dev.tsv", "sts-dev.csv"),
        test=("test.tsv", "sts-test.csv"),
    ),
    "QQP": GlueTask("classify", "f1", "is_duplicate"),
    "MNLI": GlueTask(
        "classify", "accuracy", "gold_label", dev=("dev_matched.tsv",), dev_mismatched=("dev_mismatched.tsv",),
        test=("test_matched.tsv",),
    ),
    "QNLI": GlueTask("classify", "accuracy", "label"),
    "RTE": GlueTask("classify", "accuracy", "label"),
    "WNLI": GlueTask("classify", "accuracy", "label"),
    "SICK": GlueTask(
        "classify", "accuracy", "entailment_judgment", ("SICK_train.txt",), ("SICK_trial.txt",),
        test=("SICK_test_annotated.txt",),
    ),
}  # fmt: skip


def read_glue(directory: Path, task: str) -> dict[GlueSplit, Table]:
    """The splits of a task that are there, in the order train, dev, test; a test set may be without labels.

    directory: the task's own, or the one in which it stands under the task's name.
    """
    if task not in TASKS:
        raise InputError(f"task {task!r} is unknown; expected one of {', '.join(TASKS)}")
    folder = directory / task if (directory / task).is_dir() else directory
    found: dict[GlueSplit, Table] = {}
    for split, names in TASKS[task].files.items():
        if files := [folder / name for name in names if (folder / name).is_file()]:
            found[split] = _read(files[0], TASKS[task].label, need_labels=split != "test")
    if not found:
        names = [name for names in TASKS[task].files.values() for name in names]
        raise InputError(f"{folder}: holds no file of {task} ({', '.join(names)}); name the directory where they are")
    return found


def _read(path: Path, label: str, *, need_labels: bool) -> Table:
    table = glue_table(path, need_labels=need_labels)
    if table is not None:
        return table
    found = list(iter_rows(path))
    labelled = need_labels or any(label in row for _, row in found[:1])
    return build_table(path, found, label=label if labelled else None, need_labels=need_labels, broken=raise_error)


# --- files known by their look ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileFormat:
    """A file's columns, of which the last ones may be absent, and whether a first line is such a file's."""

    task: str
    columns: Values
    fits: Callable[[Values], bool]
    text: str
    pair: str | None
    fewest: int  # columns of a row


def _cola(values: Values) -> bool:
    return len(values) == 4 and values[1] in ("0", "1")


def _stsb(values: Values) -> bool:
    return len(values) in (7, 9) and values[4].replace(".", "", 1).isdecimal() and float(values[4]) <= 5


def _qqp(values: Values) -> bool:
    return len(values) == 6 and all(value.isdecimal() for value in values[:3]) and values[5] in ("0", "1")


_STSB = ("genre", "file", "year", "number", "score", "sentence1", "sentence2", "source1", "source2")
_MRPC = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
_SICK = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
FORMATS = (
    FileFormat("CoLA", ("source", "label", "mark", "sentence"), _cola, "sentence", None, 4),
    FileFormat("STS-B", _STSB, _stsb, "sentence1", "sentence2", 7),
    FileFormat(
        "QQP", ("id", "qid1", "qid2", "question1", "question2", "is_duplicate"), _qqp, "question1", "question2", 6
    ),
    FileFormat("MRPC", _MRPC, lambda values: tuple(values) == _MRPC, "#1 String", "#2 String", 5),
    FileFormat("SICK", _SICK, lambda values: tuple(values) == _SICK, "sentence_A", "sentence_B", 5),
)


def glue_table(
    path: TableSource,
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    group: str | None = None,
    need_labels: bool = True,
    broken: RowErrorHandler = raise_error,
    check: LabelCheck | None = None,
    encoding: str | None = None,
) -> Table | None:
    """The table in a file that looks like one of GLUE's odd ones, None for another. The columns may be named too:
    SICK's relatedness_score in place of its entailment_judgment, say; where there is no header by GLUE's own names.
    """
    if isinstance(path, MemoryTable) or (look := detect_format(path, encoding)) is None:
        return None
    if text is None:
        text, pair = look.text, pair or look.pair
    label = label or TASKS[look.task].label
    found = list(format_rows(path, look, broken=broken, encoding=encoding))
    columns = {"text": text, "pair": pair, "label": label, "group": group}
    return build_table(path, found, **columns, need_labels=need_labels, broken=broken, check=check)


def detect_format(path: Path, encoding: str | None = None) -> FileFormat | None:
    """How the file looks by its first line, if that is one of LOOKS."""
    if file_type(path) not in (".tsv", ".csv", ".txt") or not path.is_file():
        return None
    for line in decoded_lines(path, encoding):
        values = line.text.split("\t")
        return next((look for look in FORMATS if look.fits(values)), None)
    return None


def format_rows(
    path: Path, look: FileFormat, *, broken: RowErrorHandler = raise_error, encoding: str | None = None
) -> Iterator[tuple[str, TableRow]]:
    """('file:line', columns by name) of a file that looks so; what is wrong with a row is told to `broken`."""
    for line in decoded_lines(path, encoding):
        values = line.text.split("\t")
        if line.wrong:
            broken(line.wrong)
            continue
        if not line.text or tuple(values) == look.columns:  # the header, where there is one
            continue
        if len(values) not in (look.fewest, len(look.columns)):
            expected = " or ".join(map(str, sorted({look.fewest, len(look.columns)})))
            wrong = f"{len(values)} columns where {look.task} has {expected}; mend the line"
            broken(InputError(f"{path}:{line.number}: {wrong}"))
            continue
        yield f"{path}:{line.number}", dict(zip(look.columns, values, strict=False))
