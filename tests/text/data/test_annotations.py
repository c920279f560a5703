"""Annotated texts: the layouts of spaCy, Prodigy, doccano and Label Studio; borders, overlaps, invalid spans."""

import copy
import json
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothways.base.errors import InputError, RowLocation
from bothways.evaluation.evaluate import gold_kind
from bothways.settings.tables_in_memory import as_source
from bothways.text.data.annotations import Changes, read_annotation, split_words
from bothways.text.data.examples import read_table, read_tagged
from bothways.text.data.tags import join_words, tags_to_spans, word_starts
from bothways.text.rows.annotation_files import LAYOUTS, is_annotation_file
from bothways.text.rows.row_errors import RowErrors
from bothways.text.rows.rows import ANNOTATED, open_rows

TEXT = "Ada Lovelace was in Rome."
SPANS = [(0, 12, "PER"), (20, 24, "LOC")]


@pytest.fixture
def file(tmp_path):
    def write(*rows, name="train.jsonl"):
        content = json.dumps(rows) if name.endswith(".json") else "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / name).write_text(content, encoding="utf-8")
        return tmp_path / name

    return write


def entities_of(sentence):
    """(start, end, label) of the entities, as characters of the text."""
    words, starts = sentence.words, sentence.words.starts
    return [
        (starts[span.first], starts[span.last - 1] + len(words[span.last - 1]), span.label)
        for span in tags_to_spans(sentence.tags, "iob2")
    ]


def objects(**names):
    keys = {"start": "start", "end": "end", "label": "label", **names}
    return [{keys["start"]: start, keys["end"]: end, keys["label"]: label} for start, end, label in SPANS]


def task(*spans, text=TEXT):
    results = [
        {"type": "labels", "from_name": "label", "to_name": "text", "value": {"start": a, "end": b, "labels": [label]}}
        for a, b, label in spans
    ]
    relation = {"type": "relation", "from_id": "a", "to_id": "b"}
    cancelled = {"result": [{"value": {"start": 0, "end": 1, "labels": ["X"]}}], "was_cancelled": True}
    return {"id": 7, "data": {"text": text}, "annotations": [cancelled, {"result": [*results, relation]}]}


@pytest.mark.parametrize(
    "row",
    [
        *({"text": TEXT, key: objects()} for key in ("entities", "ents", "spans", "label", "labels")),
        {"text": TEXT, "entities": SPANS},
        {"id": 3, "text": TEXT, "label": SPANS, "Comments": []},
        {"text": TEXT, "entities": objects(start="start_offset", end="end_offset"), "relations": []},
        {
            "text": TEXT,
            "tokens": [{"text": "Ada", "start": 0, "end": 3, "id": 0}],
            "spans": objects(),
            "answer": "accept",
        },
        {"text": TEXT, "label": [{"start": a, "end": b, "labels": [label]} for a, b, label in SPANS]},
        {
            "row": 0,
            "entities": [{**one, "text": TEXT[one["start"] : one["end"]], "score": 0.9} for one in objects()],
            "text": TEXT,
        },
        task(*SPANS),
        # Of spaCy: Doc.to_json(), with a group of spans, and what version 2 trains on.
        {
            "text": TEXT,
            "ents": objects(),
            "sents": [{"start": 0, "end": 25}],
            "tokens": [{"id": 0, "start": 0, "end": 3, "tag": "NNP"}],
            "spans": {"sc": [{"start": 0, "end": 3, "label": "X", "kb_id": ""}]},
        },
        (TEXT, {"entities": SPANS}),
        (TEXT, {"entities": SPANS, "cats": {"A": 1.0}}),
    ],
)
@pytest.mark.parametrize("name", ["train.jsonl", "train.json", None])
def test_every_layout_gives_the_same_sentence(row, name, file):
    source = file(row, name=name) if name else as_source("train", [row])
    (sentence,) = read_tagged(source)
    assert sentence.words == ("Ada", "Lovelace", "was", "in", "Rome", ".")
    assert sentence.tags == ("B-PER", "I-PER", "O", "O", "B-LOC", "O")
    assert entities_of(sentence) == SPANS and join_words(sentence.words) == TEXT
    assert (sentence.where.row, sentence.where.line) == (
        0,
        1 if name == "train.jsonl" else None,
    ) and sentence.document == 0


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b' [{"text": "a cat", "entities": [[2, 5, "X"]]}]', True),
        (b'\xef\xbb\xbf[["a cat", {"entities": [[2, 5, "X"]]}]]', True),
        (b'[{"paragraphs": [{"sentences": []}]}]', True),
        (b'[{"text": "a cat", "label": "pet"}]', False),
        (b'[{"words": ["a", "cat"], "tags": ["O", "B-X"]}]', False),
        (b"\xef\xbb\xbf{", False),
        (b" [", False),
        (b"", False),
    ],
)
def test_a_json_is_annotated_if_its_first_record_is(content, expected, tmp_path):
    (tmp_path / "t.json").write_bytes(content)
    assert is_annotation_file(tmp_path / "t.json") is expected
    assert not is_annotation_file(tmp_path / "t.jsonl")


@pytest.mark.parametrize(
    "content",
    [
        {"classes": ["PER"], "annotations": [[TEXT, {"entities": SPANS}], None]},  # of an annotator for spaCy
        {"text": TEXT, "ents": objects()},  # one document
    ],
)
def test_an_object_may_hold_annotated_texts(content, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert is_annotation_file(path)
    assert [entities_of(one) for one in read_tagged(path)] == [SPANS]


def test_a_json_may_hold_an_annotated_text_a_line(tmp_path):
    path = tmp_path / "t.json"
    rows = [{"text": TEXT, "ents": objects()}, {"text": "a", "ents": []}]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert [(entities_of(one), one.where.line) for one in read_tagged(path)] == [(SPANS, 1), ([], 2)]
    path.write_text(f"{json.dumps(rows[0])}\nx\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"t\.json: row 1 \(line 2\): not readable as JSON"):
        read_tagged(path)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("layout", ["list", "indented list", "lines", "pairs"])
def test_annotated_texts_are_read_in_the_encoding_named(layout, encoding, tmp_path):
    texts = ["Zoë was in Köln.", "Élan"]
    rows = [{"text": text, "entities": [{"start": 0, "end": 3, "label": "PER"}]} for text in texts]
    pairs = [[row["text"], {"entities": [[0, 3, "PER"]]}] for row in rows]
    lines = pairs if layout == "pairs" else rows
    content = "\n".join(json.dumps(row, ensure_ascii=False) for row in lines)
    if "list" in layout:
        content = json.dumps(rows, ensure_ascii=False, indent=2 if layout == "indented list" else None)
    path = tmp_path / ("t.jsonl" if layout == "pairs" else "t.json")
    path.write_bytes(content.encode(encoding))

    assert open_rows(path, encoding).form is ANNOTATED
    assert gold_kind(path, False, encoding) == "tags"
    assert [values["text"] for _, values in open_rows(path, encoding).read()] == texts
    assert [(one.words.text, one.tags[0]) for one in read_tagged(path, encoding=encoding)] == [
        ("Zoë was in Köln.", "B-PER"),
        ("Élan", "B-PER"),
    ]


def test_a_pair_without_entities_and_a_row_of_another_kind_are_told_apart(file):
    path = file(["a", {"entities": []}], ["b"])
    with pytest.raises(InputError, match=r"row 1 \(line 2\): holds list, not an object; .*In Rome"):
        read_tagged(path)


def test_the_documents_of_spacy_2_are_read_with_their_words_and_tags(file):
    tokens = [
        {"orth": "Ada", "ner": "B-PER"},
        {"orth": "King", "ner": "L-PER"},
        {"orth": "in"},
        {"orth": "Rome", "ner": "U-LOC"},
    ]
    paragraphs = [{"raw": "", "sentences": [{"tokens": tokens[:3]}, {"tokens": tokens[3:]}]}]
    sentences = read_tagged(file({"id": 0, "paragraphs": paragraphs}, name="t.json"))
    assert [one.tags for one in sentences] == [("B-PER", "E-PER", "O"), ("S-LOC",)]
    assert [one.words for one in sentences] == [("Ada", "King", "in"), ("Rome",)]


def test_a_json_may_hold_a_list_of_words_with_tags(file):
    (sentence,) = read_tagged(file({"tokens": ["Ada", "left"], "ner_tags": ["B-PER", "O"]}, name="t.json"))
    assert (sentence.words, sentence.tags) == (("Ada", "left"), ("B-PER", "O"))


def test_the_examples_of_the_guide_are_read(tmp_path):
    guide = (
        Path(__file__)
        .parents[3]
        .joinpath("docs/guide/tag.md")
        .read_text(encoding="utf-8")
        .partition("### Annotated texts")[2]
    )
    blocks = re.findall(r"```json\n(.+?)```", guide.partition("## In Python")[0], re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        (tmp_path / "t.jsonl").write_text(block, encoding="utf-8")
        sentences = read_tagged(tmp_path / "t.jsonl")
        assert [entities_of(one) for one in sentences] == [[(11, 15, "LOC")]] * len(block.splitlines())


def test_a_line_says_how_to_convert_the_binary_files_of_spacy(tmp_path):
    path = tmp_path / "train.spacy"
    path.write_bytes(b"\x78\x9c\x00\xff")
    for read in (read_tagged, lambda path: read_table(path, need_labels=True)):
        with pytest.raises(InputError, match=r"train\.spacy: .*doc\.to_json\(\).*DocBin"):
            read(path)


def test_each_text_is_a_document_and_may_have_no_entities(file):
    rows = [{"text": "a cat", "spans": []}, {"text": "Rome", "spans": [[0, 4, "LOC"]]}, {"text": "b", "spans": []}]
    sentences = read_tagged(file(*rows))
    assert [one.document for one in sentences] == [0, 1, 2]
    assert [one.tags for one in sentences] == [("O", "O"), ("B-LOC",), ("O",)]
    assert [one.tags for one in read_tagged(file(rows[0]))] == [("O", "O")]


@pytest.mark.parametrize(
    ("scheme", "tags"),
    [("plain", ["PER", "PER"]), ("bioes", ["B-PER", "E-PER"]), ("iob1", ["I-PER", "I-PER"])],
)
def test_tags_are_written_in_the_scheme(scheme, tags, file):
    (sentence,) = read_tagged(file({"text": TEXT, "entities": SPANS[:1]}), scheme=scheme)
    assert [*sentence.tags[:3]] == [*tags, "O"]


def test_offsets_count_code_points(file):
    text = "\U0001f600\U0001f600 Zoe\u0308 in \u5317\u4eac\u5e02"
    (sentence,) = read_tagged(file({"text": text, "entities": [[3, 7, "PER"], [11, 13, "LOC"]]}))
    assert entities_of(sentence) == [(3, 7, "PER"), (11, 13, "LOC")]
    assert [text[start:end] for start, end, _ in entities_of(sentence)] == ["Zoe\u0308", "\u5317\u4eac"]


def read(row, file):
    errors = RowErrors()
    (sentence,) = read_tagged(file({"text": "a", "spans": []}, row), errors=errors)[1:]
    return entities_of(sentence), errors.remarks


def test_white_space_at_the_borders_is_trimmed_without_a_note(file):
    assert read({"text": " Ada  was", "spans": [[0, 6, "PER"]]}, file) == ([(1, 4, "PER")], [])


def test_a_border_inside_a_word_moves_outward_and_is_counted(file):
    row = {"text": "Romes and U.S.-based", "spans": [[0, 4, "LOC"], [10, 13, "LOC"], [16, 20, "X"]]}
    entities, remarks = read(row, file)
    assert entities == [(0, 5, "LOC"), (10, 13, "LOC"), (15, 20, "X")]
    assert len(remarks) == 1 and ": 2, such as X " in remarks[0].replace("LOC", "X")
    assert "train.jsonl: row 1 (line 2)" in remarks[0]


@pytest.mark.parametrize(
    ("spans", "kept"),
    [
        ([[0, 3, "A"], [0, 12, "B"]], [(0, 12, "B")]),
        ([[4, 15, "A"], [0, 11, "B"]], [(0, 12, "B")]),  # equally long: the earlier one; then its word is whole
        ([[0, 3, "A"], [0, 3, "B"]], [(0, 3, "A")]),
        ([[4, 8, "A"], [8, 12, "B"]], [(4, 12, "A")]),  # they share a word
    ],
)
def test_of_overlapping_entities_the_longest_is_kept(spans, kept, file):
    entities, remarks = read({"text": TEXT, "spans": spans}, file)
    assert entities == kept
    assert [": 1, " in one for one in remarks if "overlap a longer" in one] == [
        True
    ] and "train.jsonl: row 1 (line 2)" in remarks[-1]


def test_an_entity_that_is_listed_twice_counts_once(file):
    assert read({"text": TEXT, "spans": [[0, 3, "A"], [0, 3, "A"]]}, file) == ([(0, 3, "A")], [])


def test_texts_without_words_are_left_out_with_a_note(file):
    errors = RowErrors()
    sentences = read_tagged(file({"text": "a", "spans": []}, {"text": " ", "spans": []}), errors=errors)
    assert len(sentences) == 1 and ": 1, " in errors.remarks[0] and "row 1 (line 2)" in errors.remarks[0]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "a cat", "spans": [[0, 1, "X"], [2, 6, "X"]]}, "spans[1]: characters 2 to 6 "),
        ({"text": "a cat", "spans": [[-1, 1, "X"]]}, "spans[0]: characters -1 to 1 "),
        ({"text": "a cat", "spans": [[3, 3, "X"]]}, "spans[0]: characters 3 to 3 "),
        ({"text": "a cat", "spans": [[0.0, 3, "X"]]}, "spans[0]: 'start' holds 0.0"),
        ({"text": "a cat", "spans": [[0, True, "X"]]}, "spans[0]: 'end' holds True"),
        ({"text": "a cat", "spans": [{"start": 0, "label": "X"}]}, "spans[0]: 'end' is missing"),
        ({"text": "a cat", "spans": [{"start": 0, "end": 3}]}, "spans[0]: 'label' is missing"),
        ({"text": "a cat", "spans": [[0, 3, 5]]}, "spans[0]: 'label' holds 5"),
        ({"text": "a cat", "spans": [[0, 3]]}, "spans[0]: holds [0, 3], not [start, end, label]"),
        ({"text": "a cat", "spans": ["X"]}, "spans[0]: holds 'X'"),
        ({"text": "a cat", "spans": [[1, 2, "X"]]}, "spans[0]: characters 1 to 2 are white space"),
        ({"text": "a cat", "spans": None}, "'spans' holds None"),
        ({"text": 5, "spans": []}, "'text' holds 5"),
        ({"row": 3, "entities": [{"start": 0, "end": 1, "label": "X"}]}, "no 'text' next to 'entities'"),
        ({"text": "a cat"}, "no text with a list of entities (there are: text)"),
        ({"data": {"id": 4}, "annotations": [{"result": []}]}, "no 'text' in data (there are: id)"),
        ({"data": {"text": "a"}, "annotations": [{}]}, "an annotation has no list 'result'"),
    ],
)
def test_an_invalid_row_raises_with_its_line(row, message, file):
    path = file({"text": "a", "spans": [[0, 1, "X"]]}, row)
    with pytest.raises(InputError) as raised:
        read_tagged(path)
    assert str(raised.value).startswith(
        f"{path}: row 1 (line 2){', id 4' * (row.get('id') == 4)}: {message}"
    ) and "\n" not in str(raised.value)
    errors = RowErrors("skip")
    assert len(read_tagged(path, errors=errors)) == 1 and len(errors.notes(1)) == 1


@pytest.mark.parametrize("row", [{"text": "a cat", "label": "X"}, {"document": "a", "marks": []}])
def test_an_unknown_layout_lists_the_layouts(row, file):
    with pytest.raises(InputError) as raised:
        read_tagged(file(row))
    assert all(layout in str(raised.value) for layout in LAYOUTS) and "\n" not in str(raised.value)
    for content in ("[]", "5", "[5]", "[", "{}", '{"text": "a"}\n{"text": "b"}'):
        path = file(name="t.json")
        path.write_text(content, encoding="utf-8")
        with pytest.raises(InputError, match=r"t\.json: "):
            read_tagged(path)


# --- what annotators refused, and what lies elsewhere -----------------------------------------------------------------


@pytest.mark.parametrize("answer", ["reject", "ignore"])
@pytest.mark.parametrize("name", ["train.jsonl", "train.json", None])
def test_rows_that_prodigy_rejects_or_ignores_are_left_out_and_counted(answer, name, file):
    rows = [{"text": TEXT, "spans": objects(), "answer": one} for one in ("accept", answer, answer)]
    errors = RowErrors()
    sentences = read_tagged(file(*rows, name=name) if name else as_source("train", rows), errors=errors)
    assert len(sentences) == 1 and len(errors.remarks) == 1 and ": 2, such as " in errors.remarks[0]


def test_words_with_tags_that_are_rejected_are_left_out(file):
    rows = [{"tokens": ["Rome"], "tags": ["B-LOC"], "answer": one} for one in ("reject", "accept", None, [])]
    assert len(read_tagged(file(*rows))) == 3


@pytest.mark.parametrize(
    ("answers", "label", "labels"),
    [
        (["accept", "reject", "ignore"], None, ["A"]),
        (["accept", "reject", "yes"], None, ["A", "A", "A"]),  # a column of something else
        (["accept", "reject", "accept"], "answer", ["accept", "reject", "accept"]),
    ],
)
def test_texts_whose_label_is_rejected_are_left_out_unless_the_answer_is_the_label(answers, label, labels, file):
    path = file(*({"text": TEXT, "label": "A", "answer": one} for one in answers))
    table = read_table(path, label=label, need_labels=True)
    assert table.labels == labels and len(table.notes) == (len(labels) < 3)
    assert len(read_table(path, need_labels=False)) == 3


def test_a_file_of_refused_rows_only_is_an_error(file):
    with pytest.raises(InputError, match=r"train\.jsonl: .*: 1; "):
        read_tagged(file({"text": TEXT, "spans": objects(), "answer": "ignore"}))


@pytest.mark.parametrize("annotations", [[], [{"result": [], "was_cancelled": True}]])
def test_tasks_without_an_annotation_are_not_texts_without_entities(annotations, file):
    errors = RowErrors()
    (sentence,) = read_tagged(file(task(*SPANS), {"data": {"text": "a"}, "annotations": annotations}), errors=errors)
    assert sentence.words.text == TEXT and ": 1, such as " in errors.remarks[0]


def test_regions_of_other_types_are_counted_by_type(file):
    row = task(*SPANS)
    row["annotations"][1]["result"] += [{"type": one, "value": {}} for one in ("choices", "choices", "hypertextlabels")]
    errors = RowErrors()
    assert len(read_tagged(file(row), errors=errors)) == 1
    assert [one.partition(": ")[2] for one in errors.remarks] == ["1 relation, 2 choices, 1 hypertextlabels"]


EMOJI = "\U0001f600 Zoe was\nin \U0001f3d9 Rome"  # of 1 unit more at Zoe, of 2 at Rome


@pytest.mark.parametrize(
    ("text", "spans", "expected", "is_converted"),
    [
        (EMOJI, [[3, 6, "Zoe"], [17, 21, "Rome"]], ["Zoe", "Rome"], True),
        (EMOJI, [[2, 5, "Zoe"], [15, 19, "Rome"]], ["Zoe", "Rome"], False),
        (EMOJI, [[3, 6, "Zoe"], [17, 21, None]], ["Zoe", "Rome"], True),  # by the texts of the others
        (EMOJI, [[7, 13, "was\\nin"]], ["was\nin"], True),  # a line feed as two characters
        ("\U0001f600\U0001f600", [[2, 4, "\U0001f600"]], ["\U0001f600"], True),
        (" Rome ", [[0, 6, "Rome"]], ["Rome"], False),
    ],
)
def test_offsets_that_count_utf_16_units_are_converted_where_the_texts_of_spans_say_so(
    text, spans, expected, is_converted
):
    values = [{"start": start, "end": end, "label": "X", "text": own} for start, end, own in spans]
    changes = Changes()
    found, placed = read_annotation(RowLocation("here", 0), {"text": text, "spans": values}, changes)
    assert [found[span.start : span.end] for span in placed] == expected
    assert changes.converted == ["here: row 0"] * is_converted


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        (TEXT, [[0, 3, "Ada"], [20, 24, "rome"]]),
        (EMOJI, [[2, 5, "Zoe"], [17, 21, "Rome"]]),  # one counts characters, one units
        (EMOJI, [[0, 1, "\U0001f600"], [1, 6, "oe"]]),  # half a character
    ],
)
def test_a_span_whose_text_is_elsewhere_is_an_error_with_row_and_span(text, spans, file):
    row = {"text": text, "spans": [{"start": a, "end": b, "label": "X", "text": own} for a, b, own in spans]}
    with pytest.raises(InputError, match=r"train\.jsonl: row \d+ \(line 2\): spans\[1\]: "):
        read_tagged(file({"text": "a", "spans": []}, row))


@settings(max_examples=60, deadline=None)
@given(st.text("ab \u0301\u4e00.\U0001f600\x00\n-", max_size=23))
def test_words_are_slices_of_their_text(text):
    words = split_words(text)
    assert [text[start : start + len(word)] for start, word in zip(words.starts, words, strict=True)] == [*words]
    assert "".join(words.text.split()).replace("\x00", "") == "".join(words).replace("\x00", "")
    for one in (copy.deepcopy(words), pickle.loads(pickle.dumps(words))):
        assert (one, one.text, one.starts) == (words, text, words.starts)


def test_words_without_a_text_are_joined_by_spaces():
    assert word_starts(("ab", "c", "def")) == (0, 3, 5) and join_words(("ab", "c", "def")) == "ab c def"
    assert word_starts(()) == () and join_words(()) == ""
