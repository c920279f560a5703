"""`check` names wrong labels, conflicts, duplicates, empty and odd rows of a table, without training."""

import csv
import json
import random
from datetime import datetime

import numpy as np
import pandas
import pytest

import bothways
from bothways.base.errors import RowLocation
from bothways.cli.demo import read_sample
from bothways.cli.main import main
from bothways.evaluation import check
from bothways.evaluation.check import nearest_cosines, odd_rows
from bothways.text.data.columns import Table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def messages():
    return [{"message": row["text"], "kind": row["label"]} for row in read_sample("support.jsonl")]


def checked(rows, **options):
    return bothways.check(rows, dtype="float32", device="cpu", **{"text_column": "message", **options})


def of_kind(result, kind):
    table = result.table
    return table[table.kind == kind]


def test_most_planted_errors_are_among_the_first_forty(messages):
    rng = random.Random(0)
    rows, names = rng.sample(messages, 400), sorted({row["kind"] for row in messages})
    wrong = {*rng.sample(range(400), 24)}
    planted = [
        {**row, "kind": rng.choice([name for name in names if name != row["kind"]])} if number in wrong else row
        for number, row in enumerate(rows)
    ]
    errors = checked(planted, label_column="kind").label_errors
    assert len({*errors.row[:40]} & wrong) >= 17
    right = [rows[row]["kind"] == name for row, name in zip(errors.row[:10], errors.suggested[:10], strict=True)]
    assert sum(right) >= 5
    assert errors.label_probability.is_monotonic_increasing


def test_a_result_prints_as_a_line_whatever_the_size_of_the_table(messages):
    result = checked([*messages[:30], messages[0]], label_column="kind")
    line = repr(result)
    assert line.startswith("CheckResult(") and ": 31 rows; label " in line and "\n" not in line and len(line) < 200
    assert all(f"{kind} {count}" in line for kind, count in result.counts.items()) and "duplicate 1" in line


@pytest.mark.parametrize("rare", ["returns", "Account", "a new kind"])
def test_a_label_that_one_row_has_makes_no_others_wrong(messages, rare):
    by_kind = {}
    for row in messages:
        by_kind.setdefault(row["kind"], []).append(row)
    rows = by_kind["account"][:36] + by_kind["billing"][:36] + by_kind["defect"][:36]
    # One row of a fourth kind, or a typo in one label.
    rows.append(by_kind["returns"][0] if rare == "returns" else {**by_kind["account"][40], "kind": rare})
    errors = checked(rows, label_column="kind").label_errors
    assert {*errors.row[errors.is_likely]} <= {108}


def test_each_kind_of_remark_names_its_row(messages, tmp_path):
    rows = messages[:60] + messages[-60:]
    rows += [
        {"message": rows[3]["message"].upper() + "!", "kind": rows[3]["kind"]},
        {"message": rows[4]["message"], "kind": "praise"},
        {"message": " ", "kind": "praise"},
        {"message": "The lid is broken, it w\ufffds like that.", "kind": "Praise"},
    ]
    rows = [{**row, "customer": f"{number:03}"} for number, row in enumerate(rows)]
    with (tmp_path / "rows.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    result = checked(tmp_path / "rows.csv", label_column="kind", out=tmp_path / "checked")
    assert [*of_kind(result, "duplicate").row] == [120, 121]
    assert {*of_kind(result, "conflict").row} == {4, 121}
    assert [*of_kind(result, "empty").row] == [122]
    odd = of_kind(result, "odd")
    assert 123 in {*odd.row} and len(odd) < 8
    assert [*of_kind(result, "empty").customer] == ["122"] and any("'Praise' (1)" in note for note in result.notes)
    page = (tmp_path / "checked" / "check.html").read_text(encoding="utf-8")
    assert "Texts with several labels" in page and "damaged characters" in page
    written = (tmp_path / "checked" / "check.csv").read_text(encoding="utf-8-sig").splitlines()
    assert len(written) == 1 + len(result.remarks) and written[0].startswith("kind,file,row,line,text,label,suggested")


def test_a_text_far_from_all_others_is_odd():
    rng = np.random.default_rng(0)
    vectors = np.ones((60, 8)) + 0.2 * rng.normal(size=(60, 8))
    vectors[41] = [1, -1] * 4
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    table = Table([f"text {row}" for row in range(60)], None, None, [RowLocation("a.csv", row) for row in range(60)])
    assert [remark.where.row for remark in odd_rows(table, vectors)] == [41]
    expected = np.sort(vectors @ vectors.T)[:, -2]
    assert nearest_cosines(vectors) == pytest.approx(expected)


def test_numbers_and_sets_of_labels_are_judged(messages):
    numbers = [{"message": row["message"], "label": 0.5 * (number % 12)} for number, row in enumerate(messages[:90])]
    numbers[7]["label"] = 90.0
    assert checked(numbers).label_errors.row[0] == 7
    sets = [{"message": row["message"], "label": [row["kind"], "x"]} for row in messages[::5]]
    sets[9]["label"] = [sets[9]["label"][0]]
    errors = checked(sets, multi_label=True).label_errors
    assert (errors.row[0], errors.suggested[0]) == (9, "x")


def test_labels_of_a_few_rows_are_not_judged(messages):
    result = checked(messages[:9], label_column="kind")
    assert not len(result.label_errors) and any("9 rows are too few" in note for note in result.notes)


@pytest.fixture
def unlabelled(messages, tmp_path):
    """A file of ten texts, the last of which is the third again."""
    texts = [*(row["message"] for row in messages[:9]), messages[2]["message"]]
    (tmp_path / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    return tmp_path / "texts.txt"


def test_the_number_of_each_kind_of_remark_is_printed(unlabelled, capsys):
    main(["check", str(unlabelled)])
    assert "duplicate: 1\n" in capsys.readouterr().out


def test_a_table_without_labels_is_checked_for_the_rest(unlabelled, capsys):
    main(["check", str(unlabelled), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["examined"], found["label"], found["duplicate"]) == (10, 0, 0, 1)
    assert [remark["row"] for remark in found["remarks"] if remark["kind"] == "duplicate"] == [9]
    with pytest.raises(SystemExit):
        main(["check", str(unlabelled), "--label-column", "kind"])


@pytest.fixture
def mail(messages):
    """Twelve messages with columns that are named as those of a result."""
    return [
        {
            "message": row["message"],
            "mood": ("good", "bad")[number % 2],
            "row": f"seat {number}",
            "file": "letters.pdf",
            "gold": number / 2,
            "when": datetime(2026, 11, 28, number),
        }
        for number, row in enumerate(messages[:12])
    ]


@pytest.mark.parametrize("form", ["list", "frame", "csv", "jsonl"])
def test_without_suspects_the_tables_have_their_columns(form, mail, tmp_path, monkeypatch):
    monkeypatch.setattr(check, "doubtful_labels", lambda *_: [])
    source = table_in(form, mail, tmp_path)
    errors = checked(source, label_column="mood").label_errors
    assert not len(errors) and len(pandas.DataFrame(mail).iloc[errors.row]) == 0
    assert {"input_row", "input_file", "gold", "when"} < {*errors.columns} and "mood" not in errors.columns
    assert ("line" in errors.columns) == (form in ("csv", "jsonl"))


@pytest.mark.parametrize("form", ["list", "frame", "csv", "jsonl"])
def test_columns_of_the_user_with_names_of_ours_are_kept(form, mail, tmp_path):
    mail.append({**mail[3], "row": "seat 99"})
    duplicates = of_kind(checked(table_in(form, mail, tmp_path), label_column="mood"), "duplicate")
    one = duplicates.iloc[0]
    assert (one.row, one.input_row, one.input_file, str(one.gold)) == (12, "seat 99", "letters.pdf", "1.5")
    assert str(one.when) == "2026-11-28 03:00:00"


@pytest.mark.parametrize("form", ["list", "frame", "csv", "jsonl"])
def test_rows_without_a_text_or_label_are_counted(form, mail, tmp_path):
    for number, name in ((1, "mood"), (2, "mood"), (5, "message")):
        mail[number][name] = None
    mail[7]["mood"] = " "
    result = checked(table_in(form, mail, tmp_path), label_column="mood")
    assert (result.num_rows, result.num_examined, result.counts["empty"]) == (12, 8, 4)
    empty = of_kind(result, "empty")
    assert [*empty.row] == [1, 2, 5, 7] and empty.text.iloc[0] == mail[1]["message"]
    assert [*empty.label] == ["", "", "bad", " "]
    assert not any("''" in note for note in result.notes)


def table_in(form, rows, folder):
    """Rows as a source of `check`: in memory or in a file, where None is an empty cell or null."""
    if form == "list":
        return rows
    frame = pandas.DataFrame(rows)
    if form == "frame":
        return frame
    file = folder / f"rows.{form}"
    if form == "csv":
        frame.to_csv(file, index=False)
    else:
        file.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows), encoding="utf-8")
    return file
