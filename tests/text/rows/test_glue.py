"""GLUE's published files: no header, nine columns, a byte-order mark, quotes as text."""

import gzip
import re

import pytest

from bothways.base.errors import InputError
from bothways.text.data.examples import read_table
from bothways.text.data.labels import numeric_labels
from bothways.text.rows.glue import FORMATS, detect_format

COLA = 'gj04\t1\t\tThe "cat" sat.\ngj04\t0\t*\tCat the sat.\n'
STSB = (
    "main-captions\tMSRvid\t2012test\t0001\t5.000\tA plane.\tAn air plane.\n"
    'main-news\theadlines\t2015\t0002\t0.2\tHe said "no.\tHe ran.\tsource, one\tsource two\n'
)
MRPC = '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tHe said "yes.\tYes, he said.\n0\t9\t10\ta\tb\n'
SICK = (
    "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\r\n"
    "1\tA dog runs\tA cat runs\t3.3\tNEUTRAL\r\n2\tNo dog\tA dog\t3.6\tCONTRADICTION\r\n"
)
QQP = "360472\t364011\t490273\tWhat is it?\tWhat's it?\t1\n1\t2\t3\tWho?\tWhere?\t0\n"
ODD = {  # file: what is in it, texts, pairs, labels, the first line with a row
    "CoLA/train.tsv": (COLA, ['The "cat" sat.', "Cat the sat."], None, ["1", "0"], 1),
    "STS-B/sts-dev.csv": (STSB, ["A plane.", 'He said "no.'], ["An air plane.", "He ran."], ["5.000", "0.2"], 1),
    "MRPC/msr_paraphrase_train.txt": (MRPC, ['He said "yes.', "a"], ["Yes, he said.", "b"], ["1", "0"], 2),
    "SICK/SICK_trial.txt": (
        SICK, ["A dog runs", "No dog"], ["A cat runs", "A dog"], ["NEUTRAL", "CONTRADICTION"], 2,
    ),
    "QQP/part.tsv": (QQP, ["What is it?", "Who?"], ["What's it?", "Where?"], ["1", "0"], 1),
}  # fmt: skip


def written(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.tsv").write_text(content, encoding="utf-8")
    return folder


def read_files(folder):
    """The tables in a directory by name, read as `--train` names them, without a word on their columns."""
    return {path.stem: read_table(path, need_labels=path.stem != "test") for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("packed", [False, True])
def test_an_odd_file_is_known_by_its_look_wherever_it_lies(name, packed, tmp_path):
    content, texts, pairs, labels, line = ODD[name]
    path = tmp_path / ("elsewhere" + name[-4:] + ".gz" * packed)
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    table = read_table(path, need_labels=True)
    assert (table.texts, table.pairs, table.labels) == (texts, pairs, labels)
    assert [(where.file, where.row, where.line) for where in table.where] == [
        (str(path), 0, line), (str(path), 1, line + 1)
    ]  # fmt: skip
    assert read_table(path, need_labels=False) == table


def test_every_file_format_is_recognized():
    first = {name: content.lstrip("\ufeff").splitlines()[0].split("\t") for name, (content, *_) in ODD.items()}
    for look in FORMATS:
        assert [name.split("/")[0] for name, values in first.items() if look.fits(values)] == [look.task]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.tsv", "sentence\tlabel\na\t1\n"),
        ("t.tsv", "id\tlabel\tmark\tsentence\n7\t1\t\ta\n"),
        ("t.tsv", "a\tb\tc\td\t6.5\tf\tg\n"),
        ("t.tsv", "a\tb\tc\td\t²\tf\tg\n"),
        ("t.tsv", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\ta\tb\t0\n"),
        ("t.csv", "gj04,1,,The cat sat.\n"),
        ("t.jsonl", COLA),
        ("t.tsv", ""),
    ],
)
def test_other_files_are_not_detected_as_glue(name, content, tmp_path):
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert detect_format(tmp_path / name) is None


def test_an_odd_files_columns_can_be_named(tmp_path):
    (tmp_path / "t.txt").write_text(SICK)
    table = read_table(tmp_path / "t.txt", label="relatedness_score", need_labels=True)
    assert numeric_labels(table) == [3.3, 3.6] and table.pairs == ["A cat runs", "A dog"]
    table = read_table(tmp_path / "t.txt", text="sentence_B", need_labels=False)
    assert (table.texts, table.pairs) == (["A cat runs", "A dog"], None)
    with pytest.raises(InputError, match=r"'score' .*: pair_ID, .*--label-column"):
        read_table(tmp_path / "t.txt", label="score", need_labels=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (COLA + "gj04\t1\tThe mat.\n", r": row 2 \(line 3\): 3 .*CoLA.* 4"),
        (STSB + "a\tb\tc\td\t1.0\te\tf\tg\n", r": row 2 \(line 3\): 8 .*STS-B.* 7 or 9"),
        (MRPC + "1\n", r": row 2 \(line 4\): 1 .*MRPC.* 5"),
    ],
)
def test_a_row_with_a_wrong_number_of_columns_raises(content, message, tmp_path):
    path = tmp_path / "t.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}{message}"):
        read_table(path, need_labels=True)


def test_a_row_that_is_not_text_and_a_file_without_rows_are_named(tmp_path):
    (tmp_path / "t.tsv").write_bytes(COLA.encode() + b"gj04\t1\t\t\xff\n")
    with pytest.raises(InputError, match=r"t\.tsv:3: .*UTF-8 .*byte 53 "):
        read_table(tmp_path / "t.tsv", need_labels=True)
    (tmp_path / "t.txt").write_text(MRPC.splitlines()[0] + "\n\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"t\.txt: empty"):
        read_table(tmp_path / "t.txt", need_labels=True)


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_the_splits_of_a_task_are_read_from_its_directory(tmp_path):
    written(tmp_path / "CoLA", train=COLA, dev=COLA.splitlines()[0], test="index\tsentence\n0\tA cat.\n")
    splits = read_files(tmp_path / "CoLA")
    assert {name: len(table) for name, table in splits.items()} == {"train": 2, "dev": 1, "test": 1}
    assert splits["train"].labels == ["1", "0"] and splits["test"].labels is None


@pytest.mark.parametrize(
    ("task", "header", "row", "read"),
    [
        ("SST-2", "sentence\tlabel", "a cat \t1", ("a cat ", None, "1")),
        ("QNLI", "index\tquestion\tsentence\tlabel", "0\tq\ts\tentailment", ("q", "s", "entailment")),
        ("RTE", "index\tsentence1\tsentence2\tlabel", '0\t"a\tb\tnot_entailment', ('"a', "b", "not_entailment")),
        ("WNLI", "index\tsentence1\tsentence2\tlabel", "0\ta\tb\t0", ("a", "b", "0")),
        ("QQP", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "1\t2\t3\ta\tb\t0", ("a", "b", "0")),
        ("STS-B", "index\tgenre\tsentence1\tsentence2\tscore", "1\tnews\ta\tb\t2.5", ("a", "b", "2.5")),
        ("MRPC", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "1\t2\t3\ta\tb", ("a", "b", "1")),
    ],
)
def test_the_benchmarks_own_division_has_headers(task, header, row, read, tmp_path):
    written(tmp_path, train=f"{header}\n{row}\n", dev=f"{header}\n{row}\n")
    splits = read_files(tmp_path)
    assert {*splits} == {"train", "dev"}
    for table in splits.values():
        text, pair, label = read
        assert (table.texts, table.pairs, table.labels) == ([text], None if pair is None else [pair], [label])


def test_mnli_has_two_dev_sets_and_labels_of_five_people(tmp_path):
    header = "index\tsentence1\tsentence2\tlabel1\tlabel2\tgold_label\n"
    written(tmp_path, dev_matched=header + "0\ta\tb\tneutral\tentailment\tentailment\n")
    written(tmp_path, dev_mismatched=header + "0\tc\td\tneutral\tentailment\tneutral\n")
    splits = read_files(tmp_path)
    assert {name: table.labels for name, table in splits.items()} == {
        "dev_matched": ["entailment"],
        "dev_mismatched": ["neutral"],
    }


def test_sets_as_they_were_published_before_the_benchmark_are_read(tmp_path):
    for folder, name, content in [("MRPC", "msr_paraphrase_test.txt", MRPC), ("STS-B", "sts-test.csv", STSB)]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(content, encoding="utf-8")
    assert read_files(tmp_path / "MRPC")["msr_paraphrase_test"].labels == ["1", "0"]
    assert numeric_labels(read_files(tmp_path / "STS-B")["sts-test"]) == [5, 0.2]


def test_a_dev_set_without_labels_is_refused(tmp_path):
    written(tmp_path, dev="index\tsentence\n0\ta\n")
    with pytest.raises(InputError, match=r"dev\.tsv: .*'label'"):
        read_files(tmp_path)
