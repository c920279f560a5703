"""Tags in other spellings are read as B-X, I-X and O; tags without a scheme are named."""

import json

import pytest

from bothways.base.errors import InputError
from bothways.text.data.conll import looks_tagged
from bothways.text.data.examples import read_tagged
from bothways.text.data.tag_spellings import find_spelling
from bothways.text.data.tags import detect_scheme, plain_remark
from bothways.text.rows.row_errors import RowErrors

WORDS = ["Ada", "L.", "King", "in", "Rome"]
IOB2 = ("B-PER", "I-PER", "I-PER", "O", "B-LOC")
BIOES = ("B-PER", "I-PER", "E-PER", "O", "S-LOC")
UNNAMED = tuple(tag if tag == "O" else f"{tag[:2]}ENTITY" for tag in IOB2)


@pytest.fixture
def write(tmp_path):
    def write(content, name="t.conll"):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return path

    return write


def conll(tags):
    return "".join(f"{word} {tag}\n" for word, tag in zip(WORDS, tags, strict=True))


SPELLINGS = {
    "b-PER i-PER i-PER O b-LOC": IOB2,
    "b-PER i-PER i-PER o b-LOC": IOB2,
    "B_PER I_PER I_PER O B_LOC": IOB2,
    "B:PER I:PER I:PER O B:LOC": IOB2,
    "PER-B PER-I PER-I O LOC-B": IOB2,
    "PER_B PER_I PER_I - LOC_B": IOB2,
    "B-PER I-PER I-PER _ B-LOC": IOB2,
    "B-PER I-PER I-PER 0 B-LOC": IOB2,
    "B I I O B": UNNAMED,
    "(PER* * *) * (LOC*)": IOB2,
    "(PER* * *) * (LOC)": IOB2,
    "B-PER I-PER L-PER O U-LOC": BIOES,
    "B-PER M-PER E-PER O S-LOC": BIOES,
    "B-PER M-PER E-PER O W-LOC": BIOES,
    "PER_B PER_I PER_L O LOC_U": BIOES,
}


@pytest.mark.parametrize("written", SPELLINGS)
def test_each_spelling_gives_the_same_tags(written, write):
    errors = RowErrors()
    (sentence,) = read_tagged(write(conll(written.split())), errors=errors)
    assert sentence.tags == SPELLINGS[written]
    assert len(errors.notes(1)) == 1


@pytest.mark.parametrize("written", ["b-PER i-PER i-PER O b-LOC", "(PER* * *) * (LOC)", "B I I O B"])
def test_the_scheme_plain_keeps_every_spelling(written, write):
    row = json.dumps({"words": WORDS, "tags": written.split()})
    for path in (write(conll(written.split())), write(row, "t.jsonl")):
        errors = RowErrors()
        (sentence,) = read_tagged(path, scheme="plain", errors=errors)
        assert sentence.tags == (*written.split(),) and errors.notes(1) == ()


@pytest.mark.parametrize(
    "written",
    [
        "I-PER I-PER I-PER O I-LOC",  # IOB1
        "B-PER I-PER E-PER O S-LOC",
        "NNP NNP NNP IN NNP",
        "PER PER PER O LOC",
        "1 2 2 0 5",
        "NN-TL NN-S FW IN NP",  # Brown
        "(0 - 0) - (12)",  # coreference
        "B-PER X-PER I-PER O B-LOC",  # X is a slip
        "B-PER M-PER I-PER O B-LOC",
    ],
)
def test_other_tags_stay_as_they_are(written, write):
    errors = RowErrors()
    (sentence,) = read_tagged(write(conll(written.split())), errors=errors)
    assert sentence.tags == (*written.split(),) and errors.notes(1) == ()


def test_letters_alone_are_tags_only_beside_each_other_or_an_o():
    assert find_spelling({"B", "M", "E", "S"}) and find_spelling({"B", "O"})
    assert find_spelling({"B"}) is find_spelling({"S", "O"}) is find_spelling({"B", "N", "O"}) is None


@pytest.mark.parametrize("tags", ["(A* * * * *", "* *) * * *", "(A* (B* *) *) *"])
def test_a_bracket_without_a_partner_is_named_and_can_be_skipped(tags, write):
    path = write(f"{conll(tags.split())}\n{conll(['*'] * 5)}")
    with pytest.raises(InputError, match=r"t\.conll: row 0 \(line 1\): .*\("):
        read_tagged(path)
    errors = RowErrors("skip")
    assert [one.tags for one in read_tagged(path, errors=errors)] == [("O",) * 5]
    assert "left out 1 row" in errors.notes(1)[-1]


CONLL_2012 = """#begin document (bc/a); part 000
bc/a 0 0 Ada NNP (TOP* - - - A (PERSON* (ARG0* (3
bc/a 0 1 King NNP * - - - A *) *) 3)
bc/a 0 2 left VBD *) leave 01 1 A * (V*) -

bc/a 0 0 Rome NNP (TOP*) - - - A (GPE) -

#end document
#begin document (bc/b); part 000
bc/b 0 0 slept VBD (TOP*) sleep 01 1 B * (V*) (V*) -

#end document
"""


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, [("B-PERSON", "I-PERSON", "O"), ("B-GPE",), ("O",)]),
        ({"words": "3", "tags": "10"}, [("B-PERSON", "I-PERSON", "O"), ("B-GPE",), ("O",)]),
        ({"words": "3", "tags": "4"}, [("NNP", "NNP", "VBD"), ("NNP",), ("VBD",)]),
    ],
)
def test_conll_2012_is_read_with_a_column_for_each_predicate(columns, expected, write):
    sentences = read_tagged(write(CONLL_2012), **columns)
    assert [one.tags for one in sentences] == expected
    assert [" ".join(one.words) for one in sentences] == ["Ada King left", "Rome", "slept"]
    assert [one.document for one in sentences] == [0, 0, 1]


@pytest.mark.parametrize("tag", ["b-PER", "PER_B", "(PER)"])
def test_a_text_file_of_tagged_words_is_recognized_in_every_spelling(tag, write):
    outside = "*" if "(" in tag else "O"
    assert looks_tagged(write(f"Ada {tag}\nleft {outside}\n", "t.txt"))
    assert not looks_tagged(write(f"Ada {tag}\nleft London\n", "t.txt"))


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (["NN", "VB"], "no tag has a prefix such as B- or I- ('NN', 'VB')"),
        (["O", "PER", "LOC", "ORG", "X"], "no tag has a prefix such as B- or I- ('LOC', 'ORG', 'PER', ...)"),
        (["0", "3", "7"], "tags are numbers without names ('0', '3', '7')"),
    ],
)
def test_a_line_names_what_tags_without_a_scheme_are_taken_for(tags, message):
    assert detect_scheme([tags]) == "plain"
    remark = plain_remark([tags])
    assert remark.startswith(message) and "accuracy of single tags" in remark and "write" in remark
