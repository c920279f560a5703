"""GLUE (Wang 2018) and SICK (Marelli 2014): task, metric and published files of each set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class GlueTask:
    """The kind of task, the metric GLUE reports (F1 of class "1"), and for each split the names of its file."""

    kind: Literal["classify", "regress"]
    metric: Literal["accuracy", "f1", "matthews", "spearman"]
    files: Mapping[str, Sequence[str]] = field(
        default_factory=lambda: {name: (f"{name}.tsv",) for name in ("train", "dev", "test")}
    )


TASKS: Mapping[str, GlueTask] = {
    "CoLA": GlueTask("classify", "matthews"),
    "SST-2": GlueTask("classify", "accuracy"),
    "MRPC": GlueTask(
        "classify",
        "f1",
        {  # no dev set is published, and the test set has labels
            "train": ("train.tsv", "msr_paraphrase_train.txt"),
            "dev": ("dev.tsv", "msr_paraphrase_test.txt"),
        },
    ),
    "STS-B": GlueTask(
        "regress",
        "spearman",
        {
            "train": ("train.tsv", "sts-train.csv"),
            "dev": ("dev.tsv", "sts-dev.csv"),
            "test": ("test.tsv", "sts-test.csv"),
        },
    ),
    "QNLI": GlueTask("classify", "accuracy"),
    "RTE": GlueTask("classify", "accuracy"),
    "WNLI": GlueTask("classify", "accuracy"),
    "SICK": GlueTask(
        "classify",
        "accuracy",
        {"train": ("SICK_train.txt",), "dev": ("SICK_trial.txt",), "test": ("SICK_test_annotated.txt",)},
    ),
}


def find_files(folder: Path, task: GlueTask) -> dict[str, Path]:
    """The files of a task that exist, by split."""
    files = {}
    for split, names in task.files.items():
        if existing := [folder / name for name in names if (folder / name).is_file()]:
            files[split] = existing[0]
    return files
