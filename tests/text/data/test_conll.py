"""CoNLL files: sentences, documents, comments, and errors in lines."""

import gzip
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothways.base.errors import InputError
from bothways.text.data.conll import read_conll

CONLL_2003 = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

Peter NNP I-NP I-PER

-DOCSTART- -X- O O

# NN O O
1 CD O O
"""
CONLL_U = """# newdoc id = one
# text = They buy and sell books all day long .
1\tThey\tthey\tPRON\tPRP\t_\t2\tnsubj\t_\t_
2-3\tbuydon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tbuy\tbuy\tVERB\tVBP\t_\t0\troot\t_\t_
3\tin New York\tin\tADV\tRB\t_\t2\tadvmod\t_\t_
3.1\tbuy\tbuy\tVERB\tVBP\t_\t_\t_\t0:exroot\t_

# text = No
1\tNo\tno\tINTJ\tUH\t_\t0\troot\t_\t_
"""


@pytest.fixture
def read(tmp_path):
    def call(content, **columns):
        (tmp_path / "t.txt").write_bytes(content.encode())
        return read_conll(tmp_path / "t.txt", **columns)

    return call


@pytest.fixture
def refused(read):
    """The message, behind the file's name."""

    def call(content, **columns):
        with pytest.raises(InputError) as raised:
            read(content, **columns)
        return str(raised.value).rpartition("t.txt")[2]

    return call


def texts(sentences):
    return [" ".join(f"{word}/{tag}" for word, tag in zip(one.words, one.tags, strict=True)) for one in sentences]


def test_blank_lines_separate_sentences_and_documents_are_numbered(read):
    sentences = read(CONLL_2003)
    assert texts(sentences) == ["EU/I-ORG rejects/O", "Peter/I-PER", "#/O 1/O"]
    assert [one.document for one in sentences] == [0, 0, 1]
    assert [(one.where.row, one.where.line) for one in sentences] == [(0, 3), (1, 6), (2, 10)]
    assert [len(one) for one in sentences] == [2, 1, 2]


def test_sentences_before_the_first_docstart_are_a_document(read):
    assert [one.document for one in read("a O\n\nb O\n\n-DOCSTART-\n-DOCSTART-\n\nc O\n-DOCSTART- -X-\nd O\n")] == [
        *(0, 0, 1, 2)
    ]
    assert [one.document for one in read("a O\n\nb O\n")] == [None, None]


def test_columns_go_by_their_numbers(read):
    assert texts(read(CONLL_2003, tags=1)) == ["EU/NNP rejects/VBZ", "Peter/NNP", "#/NN 1/CD"]
    assert texts(read("1\tA\tO\tx\n2\tcat\tB-X\ty\n", words=1, tags=-2)) == ["A/O cat/B-X"]


@pytest.mark.parametrize("between", [" ", "\t", "   "])
def test_ends_of_lines_and_spaces_do_not_matter(between, read):
    content = f"\ufeff\n\na{between}O\r\n{between.strip(' ')}\r\n \n\nb{between}B-X"
    assert texts(read(content)) == ["a/O", "b/B-X"]


def test_other_white_space_is_part_of_a_word(read):
    assert [one.words for one in read("a\u00a0b O\n\nc\u3000 O\n")] == [("a\u00a0b",), ("c\u3000",)]
    assert [one.words for one in read("New York\tB-X\n\u2028\tO\n")] == [("New York", "\u2028")]


def test_a_compressed_file_is_read_like_a_plain_one(read, tmp_path):
    (tmp_path / "t.conll.gz").write_bytes(gzip.compress(CONLL_2003.encode()))
    assert texts(read_conll(tmp_path / "t.conll.gz")) == texts(read(CONLL_2003))


def test_conll_u_is_read_without_comments_ranges_and_empty_nodes(read):
    assert texts(read(CONLL_U, words=1, tags=3)) == ["They/PRON buy/VERB in New York/ADV", "No/INTJ"]


def test_other_comments_ahead_of_a_sentence_are_left_out(read):
    assert texts(read("#\thttp://site [2005]\n1\tA\tO\tO\n\n#\n1\tB\tO\tO\n", words=1)) == ["A/O", "B/O"]
    assert texts(read("# id 5-9\tdomain=en\na _ _ O\n\n# id 6\nb _ _ B-X\n")) == ["a/O", "b/B-X"]


def test_a_hash_with_as_many_columns_is_a_word(read):
    assert texts(read("a O\n\n# O\n# B-X\n#P O\n")) == ["a/O", "#/O #/B-X #P/O"]


def test_numbers_in_place_of_words_are_noticed(refused, read):
    assert "--words-column 1" in refused(CONLL_U)
    assert texts(read("1 CD\n2 CD\n\n7 CD\n")) == ["1/CD 2/CD", "7/CD"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a X O\nb O\n", ":2: 2 .* line 1 has 3.* spaces"),
        ("\na\tO\nb O\n", ":3: 1 .* line 2 has 2.* tabs"),
        ("a O\n# no comment here\n", ":2: 4 .* line 1 has 2.* spaces"),
        ("a b O\nNew York city O\n", ":2: 4 .* line 1 has 3.* spaces"),
        ("a O\n\u00a0\nb O\n", ":2: 1 .* line 1 has 2.* spaces"),
        ("a\tO\nb\t\n", ":2: .* empty"),
        ("a\tO\n\tO\n", ":2: .* empty"),
        ("a\nb\n", ":1: .* 1;.*--words-column.*--tags-column"),
        ("", ": no sentence"),
        ("\n# a\n-DOCSTART- O\n\n", ": no sentence"),
    ],
)
def test_an_invalid_line_raises_with_its_number(content, message, refused):
    assert re.match(message, refused(content))


def test_columns_that_do_not_exist_raise(refused):
    assert re.match(r":1: .* 3 .*--words-column", refused("a X O\n", words=3))
    assert re.match(r":1: .* -4 .*--tags-column", refused("a X O\n", tags=-4))
    assert re.match(r":1: .* 3;.*--words-column.*--tags-column", refused("a X O\n", words=1, tags=-2))


def test_a_line_that_is_not_text_is_named(tmp_path):
    for content, number in ((b"a O\nb\xff O\n", 2), (b"\n\xff O\n", 2)):
        (tmp_path / "t.txt").write_bytes(content)
        with pytest.raises(InputError, match=rf"t\.txt:{number}: .*UTF-8"):
            read_conll(tmp_path / "t.txt")


WORD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" \t\r\n\ufeff"), min_size=1).filter(
    lambda word: not word.startswith("-DOCSTART-")
)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    documents=st.lists(st.lists(st.lists(st.tuples(WORD, WORD), min_size=1), min_size=1), min_size=1),
    between=st.sampled_from(["\t", " "]),
)
def test_what_is_written_comes_back(documents, between, tmp_path_factory):
    path = tmp_path_factory.mktemp("written") / "t.conll"
    lines = ["first" + between + "O\n"]  # determines the separator of all lines
    for sentences in documents:
        lines.append("-DOCSTART-\n\n")
        lines += ["".join(f"{word}{between}{tag}\n" for word, tag in one) + "\n" for one in sentences]
    path.write_bytes("".join(lines).encode())
    read_back = read_conll(path)[1:]
    expected = [(number, tuple(one)) for number, sentences in enumerate(documents, 1) for one in sentences]
    assert [(one.document, tuple(zip(one.words, one.tags, strict=True))) for one in read_back] == expected


def test_among_ten_columns_numbers_are_words_where_words_stand_first(read):
    row = " _ _ _ _ _ _ _ _ O\n"
    assert texts(read(f"won{row}3-4{row}at{row}1.5{row}")) == ["won/O 3-4/O at/O 1.5/O"]
    assert texts(read("2.5 O\n")) == ["2.5/O"]
