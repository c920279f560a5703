"""Tables of a run, with and without pandas."""

import sys
from datetime import date, datetime

import pandas
import pytest

from bothways.measure.report.mistakes import issue_columns
from bothways.measure.report.page import column_kinds, write_predictions
from bothways.measure.report.result_tables import RowList, as_table, read_columns

COLUMNS = {"row": [3, 0], "text": ["a, b", "12"], "customer": ["007", "011"], "score": [0.5, None]}


@pytest.fixture
def without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)


def test_a_table_is_a_data_frame(tmp_path):
    table = as_table(COLUMNS)
    assert isinstance(table, pandas.DataFrame) and [*table.columns] == [*COLUMNS]
    table.to_csv(tmp_path / "a.csv", index=False)
    assert read_columns(tmp_path / "a.csv") == COLUMNS


def test_without_pandas_a_table_is_a_list_of_rows(without_pandas, tmp_path):
    table = as_table(COLUMNS)
    assert isinstance(table, RowList) and len(table) == 2
    assert table[1].text == "12" and table[1]["customer"] == "011"
    with pytest.raises(AttributeError):
        _ = table[0].price
    table.to_csv(tmp_path / "a.csv")
    assert read_columns(tmp_path / "a.csv") == COLUMNS


def test_only_columns_that_lose_nothing_become_numbers(tmp_path):
    (tmp_path / "a.csv").write_text("label,whole,real,code,empty\n1,3,0.25,1e3,\n0,,1.5,2,\n", encoding="utf-8")
    assert read_columns(tmp_path / "a.csv") == {
        "label": ["1", "0"],
        "whole": [3, None],
        "real": [0.25, 1.5],
        "code": ["1e3", "2"],
        "empty": ["", ""],
    }


def test_times_dates_and_truth_values_come_back_from_the_file(tmp_path):
    columns = {
        "is_likely": [True, False, True],
        "when": [datetime(2026, 11, 28, 9, 30), None, datetime(2026, 1, 2, 3, 4, 5, 600)],
        "day": [date(2026, 11, 28), date(2025, 2, 1), None],
        "vip": [None, False, True],
        "said": ["2026-11-28", "True", ""],  # texts stay texts
        "count": [1, 2, 3],
    }
    write_predictions(columns, tmp_path / "a.csv")
    kinds = column_kinds(columns)
    assert kinds == {"is_likely": "bool", "when": "time", "day": "date", "vip": "bool"}
    assert read_columns(tmp_path / "a.csv", kinds=kinds) == columns
    assert as_table(read_columns(tmp_path / "a.csv", kinds=kinds)).when.dtype.kind == "M"


def test_is_likely_is_no_text_without_noted_kinds(tmp_path):
    (tmp_path / "a.csv").write_text("is_likely,other\nFalse,True\nTrue,False\n", encoding="utf-8")
    assert read_columns(tmp_path / "a.csv") == {"is_likely": [False, True], "other": ["True", "False"]}


def test_values_that_are_not_of_the_noted_kind_stay_texts(tmp_path):
    # 1,234 ns is more than Python's times hold; somebody wrote "no" into the file.
    (tmp_path / "a.csv").write_text("when,vip\n2026-11-28 09:30:00.000001234,no\n", encoding="utf-8")
    expected = {"when": ["2026-11-28 09:30:00.000001234"], "vip": ["no"]}
    assert read_columns(tmp_path / "a.csv", kinds={"when": "time", "vip": "bool"}) == expected


@pytest.mark.parametrize("parts", [[], ["pair"], ["span"]])
def test_a_table_without_rows_selects_no_rows(parts, tmp_path):
    columns = issue_columns([], parts=parts)
    write_predictions(columns, tmp_path / "a.csv")
    frame = pandas.DataFrame({"text": ["a", "b"]})
    for table in (as_table(columns), as_table(read_columns(tmp_path / "a.csv"))):
        assert [*table.columns] == [*columns] and {"file", "row", "is_likely"} <= {*columns}
        assert len(frame.iloc[table.row]) == 0 and len(table[table.is_likely]) == 0
    assert ("start" in columns) == ("span" in parts) and ("pair" in columns) == ("pair" in parts)


def test_without_pandas_a_table_without_rows_has_its_columns(without_pandas, tmp_path):
    table = as_table(issue_columns([]))
    assert [*table] == [] and "suggested" in table.columns
    table.to_csv(tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text(encoding="utf-8-sig").startswith("file,row,text,label,suggested,")
