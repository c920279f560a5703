"""The commands evaluate and predict, with every kind of model."""

import io
import json
import random
import sys

import numpy as np
import pytest
import torch

import bothways
from bothways.base.errors import InputError
from bothways.cli import main
from bothways.evaluation import evaluate
from bothways.measure import metrics
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Evaluate

TAGS = ("O", "B-X", "I-X")
CONLL = "the O\ncat B-X\n\na O\ndog B-X\nran I-X\n"
PASSAGE = "The cat sat on a mat."
SQUAD = {
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": PASSAGE,
                    "qas": [{"id": "one", "question": "who", "answers": [{"text": "cat", "answer_start": 4}]}],
                }
            ],
        }
    ]
}


@pytest.fixture(scope="module")
def make(make_model, tokenizer, tmp_path_factory):
    def made(head, size, **facts):
        directory = tmp_path_factory.mktemp(head) / "model"
        checkpoint.save(Checkpoint(make_model("bert", {head: size}), tokenizer, **facts), directory)
        return directory

    return made


@pytest.fixture
def output_of(capsys):
    def run(*arguments):
        main.main([*map(str, arguments)])
        return capsys.readouterr().out

    return run


def test_a_tagger_is_scored_by_the_entities_it_predicts(make, output_of, tmp_path):
    model = make("tokens", 3, labels=TAGS, metadata={"scheme": "iob2"})
    (tmp_path / "gold.txt").write_text(CONLL, encoding="utf-8")
    scores = json.loads(output_of("evaluate", model, tmp_path / "gold.txt", "--json"))["metrics"]
    assert scores["sentences"] == 2 and 0 <= scores["f1"] <= 1 and set(scores["by_type"]) == {"X"}
    lines = output_of("predict", model, write(tmp_path, "the cat\na dog ran\n")).splitlines()
    rows = [json.loads(line)["entities"] for line in lines]
    assert len(rows) == 2
    for text, entities in zip(["the cat", "a dog ran"], rows, strict=True):
        assert all(text[one["start"] : one["end"]] == one["text"] for one in entities)


def write(directory, text):
    (directory / "texts.txt").write_text(text, encoding="utf-8")
    return directory / "texts.txt"


def test_a_model_that_answers_is_scored_as_squad_does_and_predicts_what_evaluate_reads(make, output_of, tmp_path):
    model = make("spans", 2)
    (tmp_path / "gold.json").write_text(json.dumps(SQUAD), encoding="utf-8")
    expected = json.loads(output_of("evaluate", model, tmp_path / "gold.json", "--json"))["metrics"]
    rows = output_of("predict", model, tmp_path / "gold.json")
    row = json.loads(rows)
    assert row["id"] == "one" and row["answer"] == PASSAGE[row["start"] : row["end"]]
    (tmp_path / "predictions.jsonl").write_text(rows, encoding="utf-8")
    scored = json.loads(
        output_of("evaluate", "--predictions", tmp_path / "predictions.jsonl", tmp_path / "gold.json", "--json")
    )
    assert {name: scored["metrics"][name] for name in ("exact_match", "f1")} == {
        name: expected[name] for name in ("exact_match", "f1")
    }
    (tmp_path / "questions.jsonl").write_text(json.dumps({"question": "who", "context": PASSAGE}), encoding="utf-8")
    assert json.loads(output_of("predict", model, tmp_path / "questions.jsonl"))["answer"] == row["answer"]


def test_every_command_that_reads_texts_takes_a_window(make, output_of, tmp_path):
    text, exact = "cat dog " * 60, ("--dtype", "float32")
    model = make("classes", 1, metadata={"settings": {"window": 24}})
    long = write(tmp_path, text + "\n")
    (tmp_path / "gold.csv").write_text(f"text,score\n{text},0.5\ncat,1\n", encoding="utf-8")
    cat, errors = bothways.load(model, dtype="float32"), []
    for flags, window in (((), 24), (("--window", 48), 48)):
        (row,) = output_of("predict", model, long, *exact, *flags).splitlines()
        (score,) = cat.regress([text], window=window, overlap=window // 4)
        assert json.loads(row)["score"] == pytest.approx(score, abs=1e-7)
        output_of("embed", model, long, "-o", tmp_path / f"{window}.npy", *exact, *flags)
        expected = cat.embed([text], window=window, overlap=window // 4)
        assert np.load(tmp_path / f"{window}.npy") == pytest.approx(expected, abs=1e-6)
        errors.append(
            json.loads(output_of("evaluate", model, tmp_path / "gold.csv", "--json", *exact, *flags))["metrics"]
        )
        scores = cat.regress([text, "cat"], window=window, overlap=window // 4)
        assert errors[-1]["mean_squared_error"] == pytest.approx(((scores - [0.5, 1]) ** 2).mean(), rel=1e-4)
    assert errors[0]["mean_squared_error"] != errors[1]["mean_squared_error"]
    filler, gap = make("masked_words", 0), "cat [MASK]" + " dog" * 99
    (filled,) = json.loads(output_of("fill", filler, gap, "--window", 24, "--json", *exact))
    (expected,) = bothways.load(filler, dtype="float32").fill(gap, window=24)
    assert filled[0]["score"] == pytest.approx(expected[0].score, abs=1e-6)


def test_skipped_rows_are_counted_and_labelled_rows_are_never_skipped(make, output_of, tmp_path):
    rows = ['{"text": "the cat sat on the mat. a dog ran."}'] * 9
    (tmp_path / "text.jsonl").write_text("\n".join([*rows, "{", *rows, "["]), encoding="utf-8")
    filler = make("masked_words", 0)
    scores = json.loads(output_of("evaluate", filler, tmp_path / "text.jsonl", "--json", "--on-error", "skip"))[
        "metrics"
    ]
    assert scores["skipped"] == 2
    for options in ({"model": make("classes", 1)}, {"model": make("tokens", 3, labels=("O", "B-X", "I-X"))}):
        with pytest.raises(InputError, match="on_error skip .* plain text"):
            evaluate.run(Evaluate(**options, file=(tmp_path / "text.jsonl",), on_error="skip"))


DATA = {
    "pairs.csv": "sentence1,sentence2,score\nthe cat,a cat,4\na dog,the mat,1\non a mat,a mat,5\nran,sat,2\n",
    "faq.csv": "question,answer\nthe cat,a cat\na dog,the mat\non a mat,a mat\n",
    "labels.jsonl": '{"text": "the cat", "label": "a"}\n{"text": "a dog", "label": "b"}\n',
    "tags.txt": CONLL,
    "words.jsonl": '{"words": ["the", "cat"], "tags": ["O", "B-X"]}\n',
    "classes.jsonl": '{"text": "the cat", "labels": []}\n{"text": "a dog", "labels": ["a", "b"]}\n',
    "doccano.jsonl": '{"text": "the cat", "label": [[4, 7, "X"]]}\n',
    "tasks.jsonl": '{"data": {"text": "the cat"}, "annotations": [{"result": []}]}\n',
    "spans.json": '[{"text": "the cat", "entities": [[4, 7, "X"]]}]',
    "squad.json": json.dumps(SQUAD),
    "squad.jsonl": json.dumps({"id": "1", "question": "who", "context": PASSAGE, "answers": {"text": []}}),
    "text.txt": "the cat sat on a mat and a dog ran\n\n" * 20,
    "text.jsonl": '{"text": "the cat sat on a mat and a dog ran"}\n' * 20,
    "rated.csv": "title,rating\nthe cat sat on a mat and a dog ran,1\n" + "the cat sat on a mat,2\n" * 20,
}
BEIR = {
    "corpus.jsonl": '{"_id": "1", "text": "the cat"}\n{"_id": "2", "text": "a dog"}\n{"_id": "3", "text": "a mat"}\n',
    "queries.jsonl": '{"_id": "q", "text": "dog"}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq\t2\t1\n",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    (directory / "beir" / "qrels").mkdir(parents=True)
    for name, content in {**DATA, **{f"beir/{name}": content for name, content in BEIR.items()}}.items():
        (directory / name).write_text(content, encoding="utf-8")
    return directory


@pytest.mark.parametrize(
    ("name", "options", "metric"),
    [
        ("beir", {}, "ndcg@10"),
        ("beir", {"how": "hybrid"}, "ndcg@10"),
        ("pairs.csv", {}, "spearman"),
        ("faq.csv", {}, "ndcg@10"),
        ("faq.csv", {"text_column": "answer"}, "perplexity"),
        ("labels.jsonl", {"text_column": "text"}, "perplexity"),
        ("labels.jsonl", {"max_length": 64}, "perplexity"),
        ("rated.csv", {"text_column": "title"}, "perplexity"),
        ("text.txt", {}, "perplexity"),
        ("text.jsonl", {}, "perplexity"),
    ],
)
@pytest.mark.parametrize("pooling", [None, "mean"])
def test_the_data_and_the_options_decide_what_a_pretrained_model_is_scored_by(
    name, options, metric, pooling, make, data
):
    model = make("masked_words", 0, pooling=pooling)
    assert evaluate.run(Evaluate(model=model, file=(data / name,), dtype="float32", **options)).primary == metric


@pytest.mark.parametrize(
    ("name", "options", "way"),
    [
        ("labels.jsonl", {}, "finetune classify"),
        ("classes.jsonl", {}, "finetune classify"),
        ("labels.jsonl", {"text_column": "text", "label_column": "label"}, "finetune classify"),
        *(
            (name, {}, "finetune tag")
            for name in ("tags.txt", "words.jsonl", "spans.json", "doccano.jsonl", "tasks.jsonl")
        ),
        *((name, {}, "finetune answer") for name in ("squad.json", "squad.jsonl")),
        ("text.txt", {"how": "hybrid"}, "how is for a BEIR directory"),
        ("pairs.csv", {"dimensions": 4, "max_length": 64}, "max_length is for masked words"),
        ("beir", {"documents": "line"}, "documents is for masked words"),
        ("pairs.csv", {"on_error": "skip"}, "on_error skip"),
        ("labels.jsonl", {"text_column": "text", "label_column": "lable"}, "no column 'lable'"),
        ("text.txt", {"label_column": "label"}, "no column 'label'"),
    ],
)
def test_data_that_a_pretrained_model_cannot_be_scored_by_are_an_error_that_names_the_way(
    name, options, way, make, data
):
    with pytest.raises(InputError, match=way):
        evaluate.run(Evaluate(model=make("masked_words", 0), file=(data / name,), dtype="float32", **options))


def test_a_fine_tuned_model_is_not_scored_by_data_and_options_of_another_task(make, data):
    model = make("classes", 2, labels=("a", "b"))
    for name, options, way in [
        ("beir", {}, "embedding model"),
        ("beir", {"how": "hybrid"}, "embedding model"),
        ("squad.json", {}, "questions"),
        ("labels.jsonl", {"how": "words"}, "how is for"),
        ("labels.jsonl", {"dimensions": 4}, "dimensions is for"),
        ("labels.jsonl", {"max_length": 64}, "max_length is for"),
    ]:
        with pytest.raises(InputError, match=way):
            evaluate.run(Evaluate(model=model, file=(data / name,), **options))
    assert evaluate.run(Evaluate(model=model, file=(data / "beir",), how="words"))["ndcg@10"] == 1


def test_data_of_several_kinds_are_evaluated_one_kind_at_a_time(make, data):
    with pytest.raises(InputError, match="one kind at a time"):
        evaluate.run(Evaluate(model=make("masked_words", 0), file=(data / "text.txt", data / "pairs.csv")))


@pytest.mark.parametrize("kind", ["entities", "vectors"])
def test_rows_of_two_texts_need_the_name_of_a_column(kind, make, tmp_path, output_of):
    model = make("tokens", 3, labels=("O", "B-X", "I-X")) if kind == "entities" else make("classes", 1)
    (tmp_path / "faq.csv").write_text("question,answer\nthe cat,a dog\n", encoding="utf-8")
    arguments = ("predict",) if kind == "entities" else ("embed", "-o", tmp_path / "v.npy")
    command = [str(part) for part in (arguments[0], model, tmp_path / "faq.csv", *arguments[1:])]
    with pytest.raises(SystemExit) as left:
        main.main(command)
    assert left.value.code == 1 and not (tmp_path / "v.npy").exists()
    output_of(*command, "--text-column", "answer")


def test_a_regression_model_is_scored_by_correlation(make, output_of, tmp_path):
    model = make("classes", 1)
    (tmp_path / "gold.csv").write_text("text,score\nthe cat,1.5\na dog ran,2\non and on,0\n", encoding="utf-8")
    scores = json.loads(output_of("evaluate", model, tmp_path / "gold.csv", "--json"))["metrics"]
    assert -1 <= scores["spearman"] <= 1 and scores["texts"] == 3
    (tmp_path / "rows.jsonl").write_text(output_of("predict", model, tmp_path / "gold.csv"), encoding="utf-8")
    again = json.loads(output_of("evaluate", "--predictions", tmp_path / "rows.jsonl", tmp_path / "gold.csv", "--json"))
    assert again["metrics"]["pearson"] == pytest.approx(scores["pearson"])


def test_long_texts_are_truncated_as_in_fine_tuning(make, output_of, tmp_path):
    metadata = {"settings": {"long": "truncate", "window": 8}}
    rows = [" ".join(random.Random(row).choices(["the", "cat", "a", "dog", "ran"], k=40)) for row in range(30)]
    (tmp_path / "gold.csv").write_text("text,score\n" + "".join(f"{text},{row}\n" for row, text in enumerate(rows)))
    model = make("classes", 1, metadata=metadata)
    predictor = bothways.load(model, dtype="float32")
    cut, whole = (predictor.regress(rows, long=long).tolist() for long in ("truncate", "windows"))
    command = (model, tmp_path / "gold.csv", "--dtype", "float32")
    measured = json.loads(output_of("evaluate", *command, "--json"))["metrics"]
    expected = [metrics.regression([*range(30)], scores)["mean_squared_error"] for scores in (cut, whole)]
    assert measured["mean_squared_error"] == pytest.approx(expected[0]) != pytest.approx(expected[1])
    for flags, scores in (([], cut), (["--long", "windows"], whole)):
        predicted = [json.loads(line)["score"] for line in output_of("predict", *command, *flags).splitlines()]
        assert predicted == pytest.approx(scores, abs=1e-5)


@pytest.mark.parametrize("paired", [True, False])
def test_models_of_pairs_read_pairs_and_models_of_single_texts_read_single_texts(paired, make, output_of, tmp_path):
    model = make("classes", 1, metadata={"reads_pairs": paired})
    (tmp_path / "one.csv").write_text("text,score\nthe cat,1.5\na dog ran,2\n", encoding="utf-8")
    (tmp_path / "two.csv").write_text("text,pair,score\nthe cat,a,1.5\na dog ran,b,2\n", encoding="utf-8")
    right, wrong = ("two.csv", "one.csv") if paired else ("one.csv", "two.csv")
    way = "--pair-column" if paired else "--text-column"
    for verb in ("evaluate", "predict"):
        output_of(verb, model, tmp_path / right)
        with pytest.raises(SystemExit) as refused:
            output_of(verb, model, tmp_path / wrong)
        assert refused.value.code == 1
    with pytest.raises(InputError, match=way):
        evaluate.run(Evaluate(model=model, file=(tmp_path / wrong,)))
    if not paired:
        for verb in ("evaluate", "predict"):
            alone, with_more = (
                output_of(verb, model, tmp_path / name, "--text-column", "text") for name in (right, wrong)
            )
            assert with_more.replace(wrong, right) == alone


def test_several_labels_are_scored_as_sets(make, output_of, tmp_path):
    model = make("classes", 3, labels=("x", "y", "z"), multi_label=True)
    (tmp_path / "gold.jsonl").write_text(
        '{"text": "the cat", "label": ["x", "z"]}\n{"text": "a dog", "label": []}\n', encoding="utf-8"
    )
    scores = json.loads(output_of("evaluate", model, tmp_path / "gold.jsonl", "--json"))["metrics"]
    assert scores["texts"] == 2 and 0 <= scores["f1_micro"] <= 1
    first = json.loads(output_of("predict", model, tmp_path / "gold.jsonl").splitlines()[0])
    assert set(first["labels"]) == {name for name, score in first["scores"].items() if score > 0.5}


def test_predictions_of_other_programs_are_scored_against_one_file(tmp_path, output_of):
    (tmp_path / "gold.csv").write_text("text,label\na,x\nb,y\nc,x\n", encoding="utf-8")
    (tmp_path / "predictions.txt").write_text("x\ny\ny\n", encoding="utf-8")
    result = json.loads(
        output_of("evaluate", "--predictions", tmp_path / "predictions.txt", tmp_path / "gold.csv", "--json")
    )
    assert result["metrics"]["accuracy"] == pytest.approx(2 / 3)
    with pytest.raises(InputError, match="gold.csv.* other.csv"):
        Evaluate(model=tmp_path / "gold.csv", file=("other.csv",), predictions=tmp_path / "predictions.txt")


def test_without_a_file_nothing_is_measured(tmp_path):
    with pytest.raises(InputError, match="file is empty"):
        Evaluate(model=tmp_path)


def test_a_model_of_next_sentences_alone_has_no_measure(make_model, tokenizer, tmp_path):
    checkpoint.save(Checkpoint(make_model("bert", {"next_sentence": 2}), tokenizer), tmp_path / "model")
    with pytest.raises(InputError, match="heads: next_sentence"):
        evaluate.run(Evaluate(model=tmp_path / "model", file=(tmp_path / "x.csv",)))


def test_a_message_says_that_questions_need_their_passages(make, tmp_path, monkeypatch, capsys):
    model = make("spans", 2)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"who\n")))
    with pytest.raises(SystemExit):
        main.main(["predict", str(model)])
    assert "question and context" in capsys.readouterr().err
    (tmp_path / "questions.csv").write_text("question,text\nwho,cat\n", encoding="utf-8")
    with pytest.raises(SystemExit):
        main.main(["predict", str(model), str(tmp_path / "questions.csv")])
    assert "questions.csv: row 0 (line 2): no 'context' (there are: question, text)" in capsys.readouterr().err


def test_entities_of_a_text_do_not_depend_on_the_other_texts(make):
    import bothways

    model = bothways.load(make("tokens", 3, labels=TAGS, metadata={"scheme": "iob2"}), dtype="float32")
    texts = ["the cat sat", "a dog", "on the mat and the cat ran"]
    together = model.tag(texts)
    for text, entities in zip(texts, together, strict=True):
        alone = model.tag([text])[0]
        assert [(one.label, one.start, one.end) for one in alone] == [
            (one.label, one.start, one.end) for one in entities
        ]
        assert torch.allclose(
            torch.tensor([one.score for one in alone]), torch.tensor([one.score for one in entities]), atol=1e-5
        )


@pytest.mark.parametrize("number", [99, 100])
def test_a_warning_calls_fewer_than_100_rows_too_few(make, tmp_path, caplog, number):
    model = make("classes", 2, labels=("cat", "dog"))
    rows = "".join(f"a cat and {row},{'cat dog'.split()[row % 2]}\n" for row in range(number))
    (tmp_path / "gold.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    scores = evaluate.run(Evaluate(model=model, file=(tmp_path / "gold.csv",)))
    assert scores["texts"] == number and ("--folds 5" in caplog.text) == (number < 100)
    for name in ("accuracy", "f1", "f1_macro", "matthews"):
        low, high = scores[f"{name}_interval"]
        assert low <= scores[name] <= high and high - low > 0.1


def test_groups_and_near_duplicates_are_units_of_the_intervals(make, tmp_path):
    """By the column that is named, or that the model was fine-tuned with, where the file has it."""
    lines = [
        f"the {'cat' if row % 3 else 'dog'} {row // 25},{'cat dog'.split()[row % 2]},{row // 25}" for row in range(300)
    ]
    file, plain = tmp_path / "gold.csv", tmp_path / "plain.csv"
    file.write_text("\n".join(["text,label,author", *lines]), encoding="utf-8")
    plain.write_text("\n".join(["text,label", *(line.rpartition(",")[0] for line in lines)]), encoding="utf-8")
    model = make("classes", 2, labels=("cat", "dog"))
    trained = make("classes", 2, labels=("cat", "dog"), metadata={"settings": {"group_column": "author"}})
    num_units = {
        name: evaluate.run(Evaluate(**options)).intervals.num_units
        for name, options in {
            "named": {"model": model, "file": (file,), "group_column": "author"},
            "of training": {"model": trained, "file": (file,)},
            "missing": {"model": trained, "file": (plain,)},
            "duplicates": {"model": model, "file": (file,)},
        }.items()
    }
    assert num_units == {"named": 12, "of training": 12, "missing": 24, "duplicates": 24}
    with pytest.raises(InputError, match="no column 'author'"):
        evaluate.run(Evaluate(model=model, file=(plain,), group_column="author"))
