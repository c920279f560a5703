"""Labelled data at full size: every count that is stated for the published sets, read from their files as they are."""

import os
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.glue import TASKS, find_files
from bothways.text.data.examples import read_table, read_tagged
from bothways.text.data.labels import numeric_labels
from bothways.text.data.squad import read_squad
from bothways.text.data.tags import tags_to_spans

DATA = Path(os.environ.get("BOTHWAYS_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
GLUE = {
    "SST-2": {"train": 67_349, "dev": 872},
    "CoLA": {"train": 8_551, "dev": 1_043, "test": 1_063},
    "MRPC": {"train": 4_076, "dev": 1_725},
    "STS-B": {"train": 5_749, "dev": 1_500, "test": 1_379},
    "RTE": {"train": 2_490, "dev": 277, "test": 3_000},
    "WNLI": {"train": 635, "dev": 71, "test": 146},
    "QNLI": {"dev": 5_463, "test": 5_463},
    "SICK": {"train": 4_500, "dev": 500, "test": 4_927},
}
WITHOUT_LABELS = [("CoLA", "test"), ("RTE", "test"), ("WNLI", "test"), ("QNLI", "test")]
CLASSES = {"RTE": 2, "WNLI": 2, "QNLI": 2, "SICK": 3, "SST-2": 2, "CoLA": 2, "MRPC": 2}


def read_splits(task):
    """The tables of a task by split, read as `--train` names them, without a word on their columns."""
    files = find_files(data_file(f"glue/{task}"), TASKS[task])
    return {split: read_table(path, need_labels=(task, split) not in WITHOUT_LABELS) for split, path in files.items()}


def data_file(name):
    if not (DATA / name).exists():
        pytest.skip(f"{DATA / name} is not there; set BOTHWAYS_DATA to the directory of the data sets (docs/DATA.md)")
    return DATA / name


@pytest.mark.parametrize("task", GLUE)
def test_every_row_of_glue_is_read(task):
    splits = read_splits(task)
    assert {split: len(table) for split, table in splits.items()} == GLUE[task]
    for split, table in splits.items():
        assert (table.labels is None) == ((task, split) in WITHOUT_LABELS)
        assert (table.pairs is None) == (task in ("CoLA", "SST-2"))
        assert all(table.texts) and all(table.pairs or ["a"])
        if table.labels is not None and TASKS[task].kind == "regress":
            assert (
                set(map(float, range(6))) < set(numeric_labels(table))
                and 0 <= min(numeric_labels(table)) <= max(numeric_labels(table)) <= 5
            )
        elif table.labels is not None:
            assert len(set(table.labels)) == CLASSES[task]


def test_sick_has_numbers_too():
    table = read_table(data_file("glue/SICK/SICK_test_annotated.txt"), label="relatedness_score", need_labels=True)
    assert (
        numeric_labels(table)[:2] == [3.3, 3.7] and 1 <= min(numeric_labels(table)) <= max(numeric_labels(table)) <= 5
    )


def test_quotes_of_mrpc_are_text():
    train = read_splits("MRPC")["train"]
    assert sum('"' in text for text in train.texts) > 500
    assert Counter(train.labels) == {"1": 2753, "0": 1323}


def test_the_part_of_qqp_is_read():
    table = read_table(data_file("glue/QQP-subset/qqp_labelled_23k.tsv"), need_labels=True)
    assert len(table) == 23_496 and set(table.labels) == {"0", "1"} and table.pairs is not None


@pytest.mark.parametrize(
    ("name", "num_sentences", "num_entities", "num_documents"),
    [
        ("conll2003/eng.train", 14_041, 23_499, 946),
        ("conll2003/eng.testa", 3_250, 5_942, 216),
        ("conll2003/eng.testb", 3_453, 5_648, 231),
        ("scientific/ncbi-disease/train.txt", 5_424, 5_134, None),
        ("scientific/ncbi-disease/dev.txt", 923, 787, None),
        ("scientific/ncbi-disease/test.txt", 940, 960, None),
        ("scientific/scierc/train.txt", 1_861, None, 350),
        ("scientific/scierc/dev.txt", 275, None, 50),
        ("scientific/scierc/test.txt", 551, None, 100),
    ],
)
def test_every_sentence_entity_and_document_is_read(name, num_sentences, num_entities, num_documents):
    found = read_tagged(data_file(name))
    assert len(found) == num_sentences
    if num_entities is not None:
        assert sum(len(tags_to_spans(one.tags, "iob1")) for one in found) == num_entities
    documents = {one.document for one in found}
    assert documents == ({None} if num_documents is None else set(range(num_documents)))


@pytest.mark.parametrize(
    ("name", "num_questions", "num_impossible"),
    [("train-v1.1", 87_599, 0), ("dev-v1.1", 10_570, 0), ("dev-v2.0", 11_873, 5_945)],
)
def test_every_question_of_squad_is_read_and_every_answer_is_a_slice(name, num_questions, num_impossible):
    found = read_squad(data_file(f"squad/{name}.json"))
    assert len(found) == num_questions and sum(one.impossible for one in found) == num_impossible
    for one in found:
        assert all(one.context[start : start + len(text)] == text for text, start in one.answers)
    assert len({id(one.context) for one in found}) == len({one.context for one in found})


def test_imdb_is_read():
    for split in ("train", "test"):
        table = read_table(data_file(f"imdb/{split}.parquet"), need_labels=True)
        assert Counter(table.labels) == {"pos": 12_500, "neg": 12_500}
