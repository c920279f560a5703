"""Tables with a row for each word: where sentences begin, and lists that a CSV holds as text."""

import json

import pandas
import pytest

from bothways.base.errors import InputError
from bothways.evaluation.check import read as read_checked
from bothways.settings import Check
from bothways.settings.tables_in_memory import as_source
from bothways.text.data.examples import read_tagged
from bothways.text.rows.row_errors import RowErrors
from tests.text.data.test_real_exports import workbook

SENTENCES = [(("Ada", ",", "left"), ("B-PER", "O", "O")), (("Bob", "ran"), ("B-PER", "O"))]


@pytest.fixture
def write(tmp_path):
    def write(name, *lines):
        path = tmp_path / name
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return write


def read(source, **options):
    return [(one.words, one.tags) for one in read_tagged(source, **options)]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "kaggle.csv",
            [
                *("Sentence #,Word,POS,Tag", "Sentence: 1,Ada,NNP,B-PER", ',",",",",O', ",left,VBD,O"),
                *("Sentence: 2,Bob,NNP,B-PER", ",ran,VBD,O"),
            ],
        ),
        (
            "all.csv",
            ["word;sentence_id;tag", "Ada;1;B-PER", ",;1;O", "left;1;O", "Bob;2;B-PER", "ran;2;O"],
        ),
        ("blank.csv", ["token,ner", "Ada,B-PER", '",",O', "left,O", "", "Bob,B-PER", "ran,O"]),
        ("cells.csv", ["token,ner_tag", "Ada,B-PER", '",",O', "left,O", ",", "Bob,B-PER", "ran,O"]),
        ("t.tsv", ["Tokens\tlabel\ttag", "Ada\tx\tB-PER", ",\tx\tO", "left\tx\tO", "", "Bob\tx\tB-PER", "ran\tx\tO"]),
        (
            "t.jsonl",
            [
                json.dumps({"sent_id": number, "token": word, "label": tag})
                for number, (words, tags) in enumerate(SENTENCES)
                for word, tag in zip(words, tags, strict=True)
            ],
        ),
        (
            "lists.csv",
            [
                "tokens,ner_tags",
                "\"['Ada', ',', 'left']\",\"['B-PER', 'O', 'O']\"",
                '"[""Bob"",""ran""]","[""B-PER"",""O""]"',
            ],
        ),
        (
            "texts.csv",
            [
                "Sentence #,Sentence,POS,Tag",
                "1,\"Ada , left\",x,\"['B-PER', 'O', 'O']\"",
                "2,Bob ran,x,\"['B-PER', 'O']\"",
            ],
        ),
        ("spaced.csv", ["text,tags", '"Ada , left",B-PER O O', "Bob ran,B-PER O"]),
    ],
)
def test_each_kind_of_table_gives_the_same_sentences(name, lines, write):
    assert read(write(name, *lines)) == SENTENCES


def test_a_frame_may_number_sentences_at_their_first_word_only():
    frame = pandas.DataFrame(
        {"Sentence #": [1, None, None, 2, None], "Word": [*"abcde"], "Tag": ["O", "B-X", "O", "O", "O"]}
    )
    assert read(as_source("train", frame)) == [(("a", "b", "c"), ("O", "B-X", "O")), (("d", "e"), ("O", "O"))]
    filled = frame.assign(**{"Sentence #": frame["Sentence #"].ffill()})
    assert read(as_source("train", filled)) == read(as_source("train", frame))


def test_a_workbook_may_have_a_row_for_each_word(tmp_path):
    rows = [[word, tag] for words, tags in SENTENCES for word, tag in zip(words, tags, strict=True)]
    file = workbook(tmp_path / "t.xlsx", [["Word", "Tag"], *rows[:3], [], *rows[3:]])
    assert read(file) == SENTENCES
    numbers = [1, None, None, 2, None]
    numbered = [[number, *row] for number, row in zip(numbers, rows, strict=True)]
    assert read(workbook(tmp_path / "n.xlsx", [["Sentence #", "Word", "Tag"], *numbered])) == SENTENCES


def test_columns_go_by_their_names_where_a_csv_names_them(write):
    path = write("t.csv", "Sentence #,Word,POS,Tag", "1,Ada,NNP,B-PER", ",left,VBD,O")
    assert read(path, tags="POS") == [(("Ada", "left"), ("NNP", "VBD"))]
    with pytest.raises(InputError, match=r"no column 'Tags' .*Tag"):
        read(path, tags="Tags")


def test_a_file_without_a_header_is_read_as_conll(write):
    assert read(write("t.tsv", "Ada\tB-PER", "left\tO", "", "Bob\tB-PER")) == [
        (("Ada", "left"), ("B-PER", "O")),
        (("Bob",), ("B-PER",)),
    ]
    assert read(write("t.csv", "Ada B-PER", "left O")) == [(("Ada", "left"), ("B-PER", "O"))]


def test_a_table_in_which_nothing_separates_sentences_is_named(write):
    rows = [f"w{number},O" for number in range(60)]
    errors = RowErrors()
    assert len(read(write("t.csv", "word,tag", *rows), errors=errors)) == 1
    assert "nothing separates" in errors.notes(1)[0]
    with pytest.raises(InputError, match=r"t\.csv: .* its 120 words; add a column 'sentence'"):
        read(write("t.csv", "word,tag", *rows, *rows))


def test_a_word_without_a_tag_leaves_out_its_sentence(write):
    path = write("t.csv", "sentence,word,tag", "1,Ada,B-PER", "1,left,", "2,Bob,B-PER")
    with pytest.raises(InputError, match=r"row 1 \(line 3\): 'tag' is empty"):
        read(path)
    errors = RowErrors("skip")
    assert read(path, errors=errors) == [(("Bob",), ("B-PER",))]
    assert "left out 1 row" in errors.notes(1)[0]


@pytest.mark.parametrize("value", ["['O' 'B-PER']", "[3 0]", "[O, B-PER]"])
def test_a_list_that_cannot_be_read_is_named(value, write):
    path = write("t.csv", "tokens,tags", f"\"['a', 'b']\",\"{value}\"")
    with pytest.raises(InputError, match=r"row 0 \(line 2\): 'tags' .*write JSON"):
        read(path)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("t.conll", ["Ada B-PER"]),
        ("t.txt", ["Ada b-per", "left o"]),
        ("t.csv", ["Sentence #,Word,Tag", "1,Ada,B-PER"]),
        ("t.jsonl", ['{"tokens": ["Ada"], "ner_tags": [1]}']),
    ],
)
def test_a_line_of_check_names_words_with_tags(name, lines, write):
    with pytest.raises(InputError, match=r"holds words with tags, .* finetune tag"):
        read_checked(Check(file=write(name, *lines)))
