"""Tables of a run, with and without pandas."""

import sys

import pandas
import pytest

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
