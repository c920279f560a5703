"""Data sets for fine-tuning benchmarks: settings without model and output directory, and the metric.

Rows for selection and for reporting are separate. GLUE: the run selects on a tenth of the training file and reports
on the published dev set, or on the published test set for MRPC, which has no dev set. "STS-B, test" selects on the
published dev set and reports on the test set. All other sets have their own test set. Every random choice has a
fixed seed. Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from xml.etree import ElementTree

import numpy as np

from benchmarks.glue import TASKS, find_files
from bothways.settings import Answer, Classify, FineTune, Regress, Tag
from bothways.settings.tables_in_memory import as_source
from bothways.text.data.columns import Table
from bothways.text.data.examples import read_table
from bothways.text.data.splits import split

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
AUTHORS, PASSAGES, TEST_PASSAGES = 20, 100, 30  # passages per author
PASSAGE_WORDS = 100, 200
SHOTS, FEW_TEST_ROWS = 8, 1000
Rows = list[dict[str, str]]


@dataclass(frozen=True)
class DataSet:
    """settings: the settings class of the command; arguments: train, dev, test, columns and metric."""

    settings: type[FineTune]
    arguments: Mapping[str, Any]


def glue(name: str) -> DataSet:
    task, files = TASKS[name], find_files(DATA / "glue" / name, TASKS[name])
    settings = Regress if task.kind == "regress" else Classify
    return DataSet(settings, {"train": files["train"], "test": files["dev"], "metric": task.metric})


def with_dev(name: str) -> DataSet:
    """Selected on the published dev set, reported on the published test set."""
    files = find_files(DATA / "glue" / name, TASKS[name])
    data = glue(name)
    return DataSet(data.settings, {**data.arguments, "dev": files["dev"], "test": files["test"]})


def sst2_first(number: int) -> DataSet:
    """The first rows of SST-2's training file, in the order of the file."""
    data = glue("SST-2")
    return DataSet(Classify, {**data.arguments, "train": rows_of(data.arguments, "train")[:number]})


def imdb() -> DataSet:
    train, test = (read_table(DATA / f"imdb/{name}.parquet", label="label", need_labels=True) for name in SPLITS)
    return DataSet(
        Classify, {"train": sample_rows(as_rows(train), 1200, seed=0), "test": sample_rows(as_rows(test), 2000, seed=1)}
    )


def first_rows(name: str, train: int, test: int) -> DataSet:
    """A random part of another set."""
    data = SETS[name]()
    parts = (("train", train, 0), ("test", test, 1))
    rows = {split: sample_rows(rows_of(data.arguments, split), most, seed=seed) for split, most, seed in parts}
    metric = {key: value for key, value in data.arguments.items() if key == "metric"}
    return DataSet(data.settings, {**rows, **metric})


def acl_arc() -> DataSet:
    """Citations by purpose, six classes."""
    files = {name: DATA / f"scientific/acl-arc/{name}.txt" for name in ("train", "dev", "test")}
    lines = {name: file.read_text(encoding="utf-8").splitlines() for name, file in files.items()}
    rows = {name: [json.loads(line) for line in split_lines] for name, split_lines in lines.items()}
    tables = {
        name: [{"text": row["text"], "label": row["label"]} for row in split_rows] for name, split_rows in rows.items()
    }
    return DataSet(Classify, {**tables, "metric": "f1_macro"})


def hyperpartisan() -> DataSet:
    """Titles and texts of 645 news articles; a fifth of each class is the test set."""
    folder = DATA / "long-documents/hyperpartisan"
    articles = ElementTree.parse(folder / "articles-training-byarticle-20181122.xml").getroot()
    labels = ElementTree.parse(folder / "ground-truth-training-byarticle-20181122.xml").getroot()
    label_by_id = {one.attrib["id"]: one.attrib["hyperpartisan"] for one in labels}
    rows = [
        {
            "text": " ".join([one.attrib.get("title", ""), *" ".join(one.itertext()).split()]),
            "label": label_by_id[one.attrib["id"]],
        }
        for one in articles
    ]
    parts = split(len(rows), [row["label"] for row in rows], seed=0, parts={"train": 4, "test": 1}, source=folder)
    return DataSet(Classify, {name: [rows[row] for row in part] for name, part in parts.items()})


def authors() -> DataSet:
    """Passages of novels by author; each author's last book (by year) is the test set, so no book is in both."""
    import pyarrow.parquet as pq

    books = pq.read_table(DATA / "novels-100-en/novels.parquet").to_pylist()
    by_author: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for book in sorted(books, key=lambda one: (one["year"], one["title"])):
        by_author[book["author"]].append(book)
    several = sorted(name for name, own in by_author.items() if len(own) > 1)
    tables: dict[str, Rows] = {"train": [], "test": []}
    for author in several[:AUTHORS]:
        *train, test = ([*passages(book["text"])] for book in by_author[author])
        for name, texts, number in (("train", chain(*train), PASSAGES), ("test", test, TEST_PASSAGES)):
            tables[name] += sample_rows([{"text": text, "label": author} for text in texts], number, seed=0)
    return DataSet(Classify, tables)


def passages(book: str) -> Iterator[str]:
    """Consecutive lines of 100 to 200 words in total.

    The first and last fiftieth of the book are skipped: they contain titles and names of authors.
    """
    fewest, most = PASSAGE_WORDS
    edge, words = len(book) // 50, []
    for line in book[edge:-edge].splitlines():
        words += line.split()
        if len(words) >= fewest:
            yield " ".join(words[:most])
            words = []


def conll() -> DataSet:
    files = {"train": "train", "dev": "testa", "test": "testb"}
    return DataSet(Tag, {name: DATA / "conll2003" / f"eng.{file}" for name, file in files.items()})


def conll_first(number: int) -> DataSet:
    """The first sentences of the training file; a tenth of them selects."""
    files = conll().arguments
    sentences = files["train"].read_text(encoding="utf-8").split("\n\n")
    part = Path(mkdtemp()) / "train.conll"
    part.write_text("\n\n".join(sentences[:number]) + "\n", encoding="utf-8")
    return DataSet(Tag, {"train": part, "test": files["test"]})


def entities(folder: str) -> DataSet:
    return DataSet(Tag, {name: DATA / "scientific" / folder / f"{name}.txt" for name in ("train", "dev", "test")})


def squad() -> DataSet:
    return DataSet(Answer, {"train": DATA / "squad/train-v1.1.json", "test": DATA / "squad/dev-v1.1.json"})


def few(name: str, draw: int) -> DataSet:
    """SHOTS training examples per class and at most FEW_TEST_ROWS test examples, the same in every draw."""
    data = SETS[name]()
    train, test = (rows_of(data.arguments, split) for split in SPLITS)
    by_label: dict[str, Rows] = defaultdict(list)
    for row in train:
        by_label[row["label"]].append(row)
    chosen = [row for _, class_rows in sorted(by_label.items()) for row in sample_rows(class_rows, SHOTS, seed=draw)]
    metric = {key: value for key, value in data.arguments.items() if key == "metric"}
    return DataSet(Classify, {"train": chosen, "test": sample_rows(test, FEW_TEST_ROWS, seed=0), **metric})


def rows_of(arguments: Mapping[str, Any], split: str) -> Rows:
    """A split's rows with the columns text, pair (if there is one) and label."""
    return as_rows(read_table(as_source(split, arguments[split]), need_labels=True))


def as_rows(table: Table) -> Rows:
    assert table.labels is not None
    rows = [{"text": text, "label": label} for text, label in zip(table.texts, table.labels, strict=True)]
    return [{**row, "pair": pair} for row, pair in zip(rows, table.pairs, strict=True)] if table.pairs else rows


def sample_rows(rows: Sequence[dict[str, str]], most: int, *, seed: int) -> Rows:
    return [rows[row] for row in np.random.default_rng(seed).permutation(len(rows))[:most]]


SPLITS = "train", "test"
# The slowest sets come last.
SETS: dict[str, Callable[[], DataSet]] = {
    "SST-2, 64 rows": partial(sst2_first, 64),
    "SST-2, 500 rows": partial(sst2_first, 500),
    "RTE": partial(glue, "RTE"),
    "MRPC": partial(glue, "MRPC"),
    "ACL-ARC": acl_arc,
    "CoLA": partial(glue, "CoLA"),
    "SICK": partial(with_dev, "SICK"),
    "STS-B": partial(glue, "STS-B"),
    "STS-B, test": partial(with_dev, "STS-B"),
    "SciERC": partial(entities, "scierc"),
    "NCBI-disease": partial(entities, "ncbi-disease"),
    "Hyperpartisan": hyperpartisan,
    "authors": authors,
    "CoNLL-2003": conll,
    "IMDb, 300 rows": partial(first_rows, "IMDb", 300, 400),
    "Hyperpartisan, 300 rows": partial(first_rows, "Hyperpartisan", 300, 400),
    "CoNLL-2003, 1,000 sentences": partial(conll_first, 1000),
    "SST-2": partial(glue, "SST-2"),
    "IMDb": imdb,
    "SQuAD 1.1": squad,
}
OPTIONAL = {"SQuAD 1.1"}  # run only if named with --only
FEW = ("SST-2", "IMDb", "SICK", "ACL-ARC", "Hyperpartisan")
