"""Columns that do not exist: the one that was probably meant is suggested, wherever a column is named."""

import pytest

from bothways.base.errors import InputError, nearest_name
from bothways.text.data.examples import read_table
from bothways.text.data.model_inputs import read_texts
from bothways.text.rows.rows import open_rows

COLUMNS = ["id", "Text", "Mood of customer", "Mood of customer (old)", "Überschrift"]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("Mood", "Mood of customer"), ("mood OF", "Mood of customer"), ("mood  of customer ", "Mood of customer"),
        ("text", "Text"), ("Txet", "Text"), ("überschrift", "Überschrift"), ("Ueberschrift", "Überschrift"),
        ("customer satisfaction in general", None), ("", None), ("zzz", None),
    ],
)  # fmt: skip
def test_the_nearest_name_has_the_same_letters_or_the_same_beginning(name, nearest):
    assert nearest_name(name, COLUMNS) == nearest


@pytest.mark.parametrize("role", ["text", "pair", "label", "group"])
def test_each_column_of_a_table_that_is_misnamed_gets_a_suggestion(role, tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("id,text,Mood of customer\n1,a cat,good\n")
    with pytest.raises(InputError, match=r"'Mood' .*: id, text, Mood .*'Mood of customer'\?$"):
        read_table(file, **{role: "Mood"}, need_labels=False)
    with pytest.raises(InputError, match=r"'xyz' .*: id, text, .*--[a-z]+-column"):
        read_table(file, **{role: "xyz"}, need_labels=False)


def test_columns_of_streams_and_rows_are_suggested_too(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("id,review text,label\n1,a cat,good\n")
    for read in (lambda: [*read_texts(str(file), text="Review")], lambda: [*open_rows(file, column="review").read()]):
        with pytest.raises(InputError, match=r" 'review text'\?"):
            read()
