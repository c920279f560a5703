"""Doubtful training tables: repeated texts, contradicting labels, similar labels."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from bothways.api import train
from bothways.base.errors import InputError
from bothways.base.log import messages_to
from bothways.evaluation import evaluate
from bothways.inference.jobs import verbs
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Classify, Embed, Evaluate, Predict, Regress, Tag, TrainEmbed
from bothways.tasks.classify.training import Classification
from bothways.text.data.examples import read_table
from bothways.text.data.labels import numeric_labels
from bothways.text.data.near_duplicates import label_key, text_key
from bothways.text.data.quality import table_warnings
from bothways.text.data.split_tables import read_tables
from bothways.training.finetuning.finetune import run as run_task
from tests.soaked import in_soak

RUNS = {"classify": run_task, "regress": run_task, "tag": run_task, "embed": run_task}


def write(file, rows):
    with file.open("w", encoding="utf-8", newline="") as opened:
        out = csv.writer(opened)
        out.writerows([("text", "label"), *rows])
    return file


def warnings_of(settings, tables):
    """The warnings of a classification of these tables, which needs no model."""
    return Classification(settings, None, (), tables, {}).find_warnings()


@pytest.fixture
def settings(tmp_path):
    return Classify(model=tmp_path / "start", train=tmp_path / "t.csv", out=tmp_path / "run")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("The cat sat.", "  the CAT\tsat!! ", True),
        ("\ufb01ne \uff21\uff22", "FINE ab", True),  # a ligature, wide letters
        ("Straße", "STRASSE", True),
        ("फल", "फूल", False),  # vowel signs are not punctuation
        ("?!", "...", False),
        ("a+b", "a b", False),
        ("3.5", "35", False),
        ("-5", "5", False),
        ("it is \u22125 (outside)", "It is -5 outside", True),
        ("from 3-5, covid-19", "from 3 5 covid 19", True),
        ("good :)", "good :(", False),
        ("Good:-)", "good :)", True),
        ("^_^ well", "well", False),
        ("see http://a.b (note):", "see http a b note", True),
        ("at 8:30, ratio 2:3", "at 8 30 ratio 2 3", True),
    ],
)
def test_texts_are_near_equal_but_for_case_blanks_and_punctuation(one, other, same):
    assert (text_key(one) == text_key(other)) is same


def test_rows_of_a_group_or_near_duplicates_are_one_unit(settings):
    write(settings.train, [("Good!", "a"), ("bad", "b"), ("good", "a"), ("good :(", "b")])
    table = read_table(settings.train, need_labels=True)
    assert [where.row for where in table.units] == [0, 1, 0, 3]
    assert replace(table, groups=["x", "x", "y", "x"]).units == [table.where[row] for row in (0, 0, 2, 0)]


def test_groups_of_a_test_file_are_read_where_it_has_them(settings):
    files = {}
    for name, header in (("train", "text,label,author"), ("test", "text,label,author"), ("plain", "text,label")):
        lines = [f"text {row} {name},{'ab'[row % 2]},author {row // 4}" for row in range(40)]
        rows = [line if "author" in header else line.rpartition(",")[0] for line in lines]
        files[name] = settings.train.with_name(f"{name}.csv")
        files[name].write_text("\n".join([header, *rows]), encoding="utf-8")
    for name, num_units in (("test", 10), ("plain", 40)):
        tables = read_tables(replace(settings, train=files["train"], test=files[name], group_column="author"))
        assert len({*tables["test"].units}) == num_units


def test_labels_are_equal_apart_from_case_and_blanks_only():
    assert label_key(" Sport  news") == label_key("sport news") != label_key("sport, news")


def test_near_duplicates_are_never_in_two_splits(settings):
    texts = [f"text number {n // 3}" for n in range(150)]
    changed = [text.upper() if n % 3 == 1 else f" {text} !" if n % 3 else text for n, text in enumerate(texts)]
    write(settings.train, [(text, "ab"[n // 3 % 2]) for n, text in enumerate(changed)])
    for seed in range(5):
        tables = read_tables(replace(settings, seed=seed))
        keys = [{text_key(text) for text in table.texts} for table in tables.values()]
        assert len(set.union(*keys)) == sum(map(len, keys)) == 50
        assert [len(table) for table in tables.values()] == [120, 15, 15]
        assert warnings_of(settings, tables) == []


def grouped(settings, **changes):
    """240 rows of 40 authors, six of each; every author writes of both classes, and a class stands three times."""
    rows = [(f"text {row}", "ab"[row % 2], f"author {row // 6}") for row in range(240)]
    with settings.train.open("w", encoding="utf-8", newline="") as opened:
        csv.writer(opened).writerows([("text", "label", "author"), *rows])
    return {text: author for text, _, author in rows}, replace(settings, group_column="author", **changes)


@pytest.mark.parametrize("folds", [None, 4])
def test_rows_of_one_group_stay_on_one_side_of_every_split_and_fold(folds, settings):
    author_of, options = grouped(settings, folds=folds)
    tested = []
    for fold in range(folds or 3):
        tables = read_tables(options if folds else replace(options, seed=fold), fold if folds else None)
        authors = {split: {author_of[text] for text in table.texts} for split, table in tables.items()}
        assert [*authors] == ["train", "dev", "test"]
        assert sum(map(len, authors.values())) == len(set.union(*authors.values())) == 40
        for table in tables.values():
            assert table.labels.count("a") == table.labels.count("b") == len(table) // 2
        numbers = ", ".join(f"{len(own)} in {split}" for split, own in authors.items())
        assert any(numbers in line for line in warnings_of(options, tables))
        tested.append(authors["test"])
    if folds:
        assert sum(map(len, tested)) == len(set.union(*tested)) == 40
    else:
        assert [*map(len, tested)] == [4, 4, 4] and len(set.union(*tested)) > 4


def test_a_split_that_lacks_classes_because_groups_are_few_is_named(settings):
    with settings.train.open("w", encoding="utf-8", newline="") as opened:
        rows = [(f"text {row}", "abc"[row // 20 % 3], f"book {row // 20}") for row in range(240)]
        csv.writer(opened).writerows([("text", "label", "book"), *rows])
    tables = read_tables(replace(settings, group_column="book"))
    assert len(tables["dev"]) == len(tables["test"]) == 20
    assert any("dev has 1 of 3 classes" in line for line in tables["train"].notes)


@pytest.mark.parametrize(
    ("groups", "folds", "reason"),
    [
        (1, None, "'author' has 1 group, and .* so dev would have no row"),
        (2, None, "'author' has 2 groups, and .* so dev would have no row"),
        (1, 5, "'author' has 1 group, and .* so dev would have no row"),
        (3, 5, "'author' has 3 groups, and .* so there are no 5 folds"),
    ],
)
def test_a_message_asks_for_groups_where_they_are_too_few(settings, groups, folds, reason):
    with settings.train.open("w", encoding="utf-8", newline="") as opened:
        rows = [(f"text {row}", "abc"[row % 3], f"author {row % groups}") for row in range(60)]
        csv.writer(opened).writerows([("text", "label", "author"), *rows])
    fold = 0 if folds and groups > 1 else None
    way_out = "add groups, name another column with --group-column, or leave it out"
    with pytest.raises(InputError, match=rf"t\.csv: {reason}; {way_out}$"):
        read_tables(replace(settings, group_column="author", folds=folds), fold)


def test_groups_are_read_from_the_training_table_alone_and_its_rows_must_have_one(settings, tmp_path):
    author_of, options = grouped(settings)
    test = write(tmp_path / "test.csv", [("a text", "a"), ("another", "b")])
    tables = read_tables(replace(options, test=test))
    assert len(tables["test"]) == 2 and len({author_of[text] for text in tables["dev"].texts}) == 4
    with pytest.raises(InputError, match=r"'book' .*: text, label, author.*--group-column"):
        read_tables(replace(options, group_column="book"))
    settings.train.write_text("text,label,author\none,a,x\ntwo,b,\n", encoding="utf-8")
    with pytest.raises(InputError, match="author"):
        read_tables(options)
    with pytest.raises(InputError, match="group_column .*--dev"):
        replace(options, dev=test)


def test_contradicting_labels_of_one_text_are_counted_and_listed_over_all_splits(settings, tmp_path):
    rows = [(f"text {n}", "ab"[n % 2]) for n in range(40)]
    write(settings.train, [*rows, ("TEXT 1.", "a"), ("text 2", "a"), ("text 3!", "c"), ("text 3", "c")])
    test = write(tmp_path / "test.csv", [("text 4", "b"), ("new", "a")])
    options = replace(settings, test=test)
    warnings = warnings_of(options, read_tables(options))
    (line,) = [line for line in warnings if "different labels" in line]
    assert line.startswith("3 texts with different labels")
    assert f"'b' at {settings.train}: row 1 (line 3) but 'a' at {settings.train}: row 40 (line 42)" in line
    assert f"'a' at {settings.train}: row 4 (line 6) but 'b' at {test}: row 0 (line 2)" in line and "text 2" not in line


def test_contradictions_of_several_labels_and_of_numbers_compare_values(settings):
    rows = [(f"text {n}", "a;b") for n in range(30)]
    write(settings.train, [*rows, ("text 1", "b;a"), ("text 2", "a")])
    several = replace(settings, multi_label=True)
    (line,) = warnings_of(several, read_tables(several))
    assert line.startswith("1 text with different labels") and "'a', 'b' at" in line
    rows = [(f"text {n}", n) for n in range(30)]
    write(settings.train, [*rows, ("text 1", "1.0"), ("text 2", 2.5)])
    numbers = Regress(model=settings.model, train=settings.train, out=settings.out)
    (line,) = table_warnings(read_tables(numbers), numeric_labels)
    assert line.startswith("1 text with different labels") and "2 at" in line and "2.5 at" in line


ALIKE = [*["sport"] * 20, *["sport "] * 6, *["SPORT"] * 3, *["art"] * 20, "once"]


def test_similar_labels_are_reported(settings):
    write(settings.train, [(f"text {n}", label) for n, label in enumerate(ALIKE)])
    spaces, alike, once, missing = warnings_of(settings, read_tables(settings))
    assert missing.startswith("test has rows of ") and "'once'" in missing
    assert "spaces around 6 labels" in spaces and "'sport '" in spaces
    assert "'sport' (26), 'SPORT' (3)" in alike and "one spelling" in alike
    assert f"'once' at {settings.train}: row 49 (line 51)" in once


# --- exports, from reading to using -----------------------------------------------------------------------------------


@pytest.fixture
def start(settings, make_model, tokenizer):
    checkpoint.save(Checkpoint(make_model(), tokenizer), settings.model)


@pytest.mark.slow
@pytest.mark.usefixtures("start")
def test_columns_read_together_are_remembered_by_evaluate_predict_and_embed(settings, tmp_path):
    rows = [{"title": f"cat {n}", "body": "a dog sat", "kind": "ab"[n % 2]} for n in range(30)]
    settings.train.with_suffix(".jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    options = replace(
        settings, train=settings.train.with_suffix(".jsonl"), text_column="title,body", label_column="kind",
        epochs=0.1, dtype="float32",
    )  # fmt: skip
    assert read_tables(options)["train"].texts[0].endswith("\na dog sat")
    model = run_task(options).model_directory
    metrics = evaluate.run(Evaluate(model=model, file=(options.train,), dtype="float32"))
    assert metrics == evaluate.run(
        Evaluate(model=model, file=(options.train,), text_column="title,body", label_column="kind", dtype="float32")
    )
    joined = tmp_path / "joined.txt"
    joined.write_text("\n".join(f"{row['title']} {row['body']}" for row in rows), encoding="utf-8")
    scores, vectors = [], []
    for file in (options.train, joined):
        out = tmp_path / f"{file.stem}-out.jsonl"
        verbs.predict(Predict(model=model, file=str(file), out=out, dtype="float32"))
        scores.append([json.loads(line)["score"] for line in out.read_text().splitlines()])
        out = tmp_path / f"{file.stem}-out.npy"
        verbs.embed(Embed(model=model, file=str(file), out=out, dtype="float32"))
        vectors.append(np.load(out))
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-5)  # white space is white space to BERT
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("start")
@pytest.mark.parametrize("kind", ["classify", "tag", *in_soak("regress", "embed")])
def test_every_task_skips_bad_rows_on_request_and_names_them_in_a_message(kind, settings, tmp_path):
    good = {
        "classify": [f"caf\xe9 {n},,{'ab'[n % 2]}" for n in range(30)],
        "regress": [f"caf\xe9 {n},,{n}" for n in range(30)],
        "embed": [f"caf\xe9 {n},a dog {n}," for n in range(30)],
        "tag": [f"caf\xe9{n} O\ncat B-X\n" for n in range(30)],
    }[kind]
    columns = {"embed": "text,pair,x", "tag": ""}.get(kind, "text,y,label")
    lines = [*([columns] if columns else []), *good[:3], "broken", *([""] if kind == "tag" else []), *good[3:]]
    file = settings.train.with_suffix(".conll" if kind == "tag" else ".csv")
    file.write_bytes("\n".join(lines).encode("cp1252"))
    makes = {"classify": Classify, "regress": Regress, "tag": Tag, "embed": TrainEmbed}
    options = makes[kind](
        model=settings.model, train=file, out=settings.out, encoding="cp1252", on_error="skip", epochs=0.1,
        dtype="float32", **({"context": False} if kind == "tag" else {}),
    )  # fmt: skip
    with pytest.raises(InputError, match=r"(:|line )\d+\)?: .*--on-error skip"):
        train(replace(options, on_error="stop"))
    messages = []
    with messages_to(messages.append):
        result = RUNS[kind](options)
    place = f"{file}: line 10" if kind == "tag" else f"{file}: row 3 (line 5)"
    assert "left out 1 row: 1 column" in messages[0] and f"({place})" in messages[0]
    assert place in (result.directory / "report.html").read_text(encoding="utf-8")
