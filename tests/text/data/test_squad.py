"""SQuAD's JSON and Hugging Face's rows: the same questions, answers at their offsets, errors with ids."""

import gzip
import json
import lzma
import re
from collections import Counter

import datasets
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothways.base.errors import InputError, MissingFile
from bothways.text.data.squad import read_squad

PASSAGE = "Das Café, \U0001f408 and the cat: the cat sat."
OTHER = "A dog ran."
SKIP = "--on-error skip"


def question(name, *answers, **more):
    answer_nodes = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": f"What is {name}?", "answers": answer_nodes, **more}


QUESTIONS = [
    (PASSAGE, question("q0", ("Café", 4), ("the cat", 16))),
    (PASSAGE, question("q1", ("\U0001f408", 10), is_impossible=False)),
    (PASSAGE, question("q2", is_impossible=True)),
    (OTHER, question("q3", ("A dog ran.", 0))),
]


def squad(questions):
    """SQuAD's JSON: an article a passage."""
    passages = {passage: [node for other, node in questions if other == passage] for passage, _ in questions}
    paragraphs = [{"context": passage, "qas": nodes} for passage, nodes in passages.items()]
    return {"version": "v2.0", "data": [{"title": "t", "paragraphs": [one]} for one in paragraphs]}


def flat(questions):
    """Hugging Face's rows: no is_impossible, lists within answers."""
    return [
        {"id": node["id"], "title": "t", "context": passage, "question": node["question"], "answers": {
            "text": [one["text"] for one in node["answers"]],
            "answer_start": [one["answer_start"] for one in node["answers"]],
        }}
        for passage, node in questions
    ]  # fmt: skip


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def write(path, kind, questions=QUESTIONS):
    rows, content = flat(questions), json.dumps(squad(questions)).encode()
    if kind == "saved":
        datasets.disable_progress_bars()
        datasets.Dataset.from_list(rows).save_to_disk(path / "saved")
        return path / "saved"
    file = path / f"t.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
        return file
    written = {
        "json": content,
        "json.gz": gzip.compress(content),
        "json.xz": lzma.compress(content),
        "jsonl": lines(rows),
        "jsonl.gz": gzip.compress(lines(rows)),
    }
    file.write_bytes(written[kind])
    return file


@pytest.mark.parametrize("kind", ["json", "json.gz", "json.xz", "jsonl", "jsonl.gz", "parquet", "saved"])
def test_questions_are_the_same_from_every_kind_of_file(kind, tmp_path):
    path = write(tmp_path, kind)
    questions = read_squad(path)
    assert [one.id for one in questions] == ["q0", "q1", "q2", "q3"]
    assert questions[0].question == "What is q0?" and questions[0].context == PASSAGE
    answers = [(("Café", 4), ("the cat", 16)), (("\U0001f408", 10),), (), (("A dog ran.", 0),)]
    assert [one.answers for one in questions] == answers
    assert [one.impossible for one in questions] == [False, False, True, False]
    for one in questions:
        assert all(one.context[start : start + len(text)] == text for text, start in one.answers)
        assert one.where.startswith(str(path)) and one.where.endswith(f", id {one.id}")


@pytest.mark.parametrize("kind", ["json", "jsonl", "parquet"])
def test_questions_about_one_passage_share_one_string(kind, tmp_path):
    questions = read_squad(write(tmp_path, kind))
    assert questions[0].context is questions[1].context is questions[2].context is not questions[3].context


def test_errors_name_the_location_of_a_question(tmp_path):
    assert (
        read_squad(write(tmp_path, "json"))[3].where
        == f"{tmp_path}/t.json: row 3 (data[1].paragraphs[0].qas[0]), id q3"
    )
    assert read_squad(write(tmp_path, "jsonl"))[3].where == f"{tmp_path}/t.jsonl: row 3 (line 4), id q3"


def test_ids_that_are_numbers_are_their_digits_and_a_list_of_answers_may_stand_in_a_row(tmp_path):
    (tmp_path / "t.jsonl").write_bytes(lines([{**question("a", ("A", 0)), "id": 7, "context": OTHER}]))
    (only,) = read_squad(tmp_path / "t.jsonl")
    assert (only.id, only.answers) == ("7", (("A", 0),))


FAULTS = [
    (question("bad", ("cat", 3)), "'cat' is not at character 3 .*' Ca'.* 20;"),
    (question("bad", ("dog", 3)), "'dog' is not at character 3 .*' Ca'.* nowhere"),
    (question("bad", ("Das", -4)), "'Das' is not at character -4 .*'Das'.* 0;"),
    (question("bad", ("sat.", 99)), r"'sat\.' is not at character 99 .*''.* 33;"),
    (question("bad", ("", 3)), "an answer is empty"),
    (question("bad", is_impossible=False), "has no answer, .*is_impossible is false"),
    (question("bad", ("Das", 0), is_impossible=True), "has an answer, .*is_impossible is true"),
    (question("bad", is_impossible="no"), "'is_impossible' .*str"),
    (question("bad", ("Das", "0")), r"answers\[0\]: 'answer_start' .*str"),
    (question("bad", ("Das", True)), r"answers\[0\]: 'answer_start' .*bool"),
    (question("bad", (None, 0)), r"answers\[0\]: 'text' .*NoneType"),
    ({**question("bad"), "answers": {"text": ["Das"], "answer_start": []}}, "1 text but 0 answer_start"),
    ({**question("bad"), "answers": {"text": ["Das"]}}, "answers: no key 'answer_start' .*: text"),
    ({**question("bad"), "answers": "Das"}, "'answers' .*str"),
    ({**question("bad"), "answers": ["Das"]}, r"answers\[0\]: .*'text'.* str"),
    ({"id": "bad", "answers": []}, "no key 'question' .*: id, answers"),
]


@pytest.mark.parametrize(("node", "message"), FAULTS)
def test_an_invalid_question_raises_with_file_and_id_or_is_counted(node, message, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(squad([*QUESTIONS[:3], (PASSAGE, node), QUESTIONS[3]])))
    where = f"{path}: row 3 (data[0].paragraphs[0].qas[3]), id bad"
    with pytest.raises(InputError, match=f"^{re.escape(where)}[,:] .*{message}.*{SKIP}$"):
        read_squad(path)
    skipped = Counter()
    assert [one.id for one in read_squad(path, on_error="skip", skipped=skipped)] == ["q0", "q1", "q2", "q3"]
    assert skipped == {str(path): 1}
    assert len(read_squad(path, on_error="skip")) == 4


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"id": "a", "question": "?", "answers": []},
            r": row 1 \(line 2\), id a: no key 'context' .*: id, question, answers",
        ),
        ({"id": None, "question": "?"}, r": row 1 \(line 2\): 'id' .*NoneType"),
        (flat(QUESTIONS)[0], r": row 1 \(line 2\), id q0: .*t\.jsonl: row \d+ \(line 1\), id q0"),
    ],
)
def test_an_invalid_row_raises_with_its_line(row, message, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(lines([flat(QUESTIONS)[0], row]))
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}{message}.*{SKIP}$"):
        read_squad(path)
    assert len(read_squad(path, on_error="skip")) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], ": .*'data'.* list"),
        ({"date": []}, ": no key 'data' .*: date"),
        ({"data": {}}, ": 'data' .*dict"),
        ({"data": [{"title": "t"}]}, r": data\[0\]: no key 'paragraphs' .*: title"),
        ({"data": [{"paragraphs": [{}]}]}, r": data\[0\]\.paragraphs\[0\]: no key 'qas' .*: none"),
        ({"data": []}, ": no readable question"),
    ],
)
def test_errors_above_the_questions_always_raise(content, message, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(content))
    for on_error in ("stop", "skip"):
        with pytest.raises(InputError, match=f"^{re.escape(str(path))}{message}"):
            read_squad(path, on_error=on_error)


def test_a_file_of_which_no_question_is_left_is_named(tmp_path):
    path = write(tmp_path, "json", [(OTHER, question("a", ("cat", 0)))])
    with pytest.raises(InputError, match="no readable question"):
        read_squad(path, on_error="skip")


def test_invalid_broken_or_missing_json_is_named(tmp_path):
    for content in (b'{"data": [', b"id,question\n", b"", b"\xff\xfe\xff", b"[" * 200_000):
        (tmp_path / "t.json").write_bytes(content)
        with pytest.raises(InputError, match=r"t\.json: .*readable as JSON"):
            read_squad(tmp_path / "t.json")
    path = write(tmp_path, "json.gz")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match=r"t\.json\.gz: .*corrupt"):
        read_squad(path)
    with pytest.raises(MissingFile, match=r"none\.json"):
        read_squad(tmp_path / "none.json")


def test_a_byte_order_mark_is_left_out(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps(squad(QUESTIONS)), encoding="utf-8-sig")
    assert len(read_squad(tmp_path / "t.json")) == 4


@settings(max_examples=40, deadline=None)
@given(passage=st.text(st.characters(exclude_categories=["Cs"]), min_size=1), data=st.data())
def test_any_slice_is_an_answer_and_moved_by_one_only_if_it_stands_there_too(passage, data, tmp_path_factory):
    start = data.draw(st.integers(0, len(passage) - 1))
    answer = passage[start : data.draw(st.integers(start + 1, len(passage)))]
    path = tmp_path_factory.mktemp("a") / "t.json"
    path.write_text(json.dumps(squad([(passage, question("a", (answer, start)))])))
    assert read_squad(path)[0].answers == ((answer, start),)
    path.write_text(json.dumps(squad([(passage, question("a", (answer, start + 1)))])))
    if passage[start + 1 : start + 1 + len(answer)] == answer:
        assert read_squad(path)[0].answers == ((answer, start + 1),)
    else:
        with pytest.raises(InputError, match=f"not at character {start + 1} "):
            read_squad(path)
