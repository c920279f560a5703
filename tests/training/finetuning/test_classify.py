"""Text classification on synthetic tables: learning, reports, and loading by transformers."""

import json
import re
from dataclasses import replace

import datasets
import numpy as np
import pytest
import torch
import transformers

import bothways
from bothways.base.errors import InputError
from bothways.base.log import messages_to
from bothways.cli import info, main
from bothways.evaluation import evaluate
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes import new_head
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.losses import forward_losses
from bothways.settings import Evaluate
from bothways.tasks import forward
from bothways.tasks.batch_plan import Epoch
from bothways.tasks.classify import scoring
from bothways.tasks.classify.training import Classification, class_targets
from bothways.tasks.text_examples import TextExamples
from bothways.tasks.training_task import text_reader
from bothways.text.data import split_tables as tables
from bothways.text.data.columns import Table
from bothways.text.data.examples import read_table
from bothways.text.data.quality import empty_text_warnings
from bothways.text.data.split_tables import read_tables
from bothways.text.data.splits import overlap_warnings
from bothways.training.finetuning import plan, seeds
from bothways.training.finetuning.finetune import run as run_task
from bothways.training.finetuning.ground import epochs
from bothways.training.finetuning.ground.course import Course
from tests.guides import code_in, guide
from tests.pictures import charts_of, is_standalone
from tests.soaked import in_soak
from tests.token_windows import covered, ids_of, windows_of_sizes
from tests.training.finetuning.gallery import FILLERS, SIGNS
from tests.training.finetuning.gallery import class_rows as rows_of


@pytest.fixture
def run(gallery):
    return gallery.classify


@pytest.fixture(scope="module")
def settings(gallery):
    return gallery.settings("classify")


@pytest.fixture
def start(settings):
    """A random encoder with the heads that pre-training leaves."""
    return settings.model


@pytest.fixture
def result(run):
    return run.result


def test_classes_that_a_word_determines_are_learned(result, run):
    assert result.split == "test" and result.metric == "accuracy"
    assert min(result.scores) > 0.9
    assert result.mean > run.metadata["figures"]["test"]["majority"] and result.failed == 0


def test_two_seeds_have_a_mean_and_a_spread(result, run):
    assert len(result.scores) == 2
    assert result.mean == pytest.approx(sum(result.scores) / 2)
    assert result.std == pytest.approx(abs(result.scores[0] - result.scores[1]) / 2**0.5)
    recorded = run.metadata["result"]
    assert (recorded["n"], recorded["failed"], recorded["selected_on"], recorded["split"]) == (2, 0, "dev", "test")
    assert recorded["scores"]["test"] == result.scores and len(recorded["scores"]["dev"]) == 2


def test_a_run_leaves_its_metrics_by_seed_and_curves(result, run):
    rows = run.metrics
    assert {row["seed"] for row in rows} == {0, 1}
    assert all({"step", "split", "loss", "tokens", "seconds"} <= set(row) for row in rows)
    first = [row["loss"] for row in rows if row["seed"] == 0 and row["split"] == "train"]
    other = [row["loss"] for row in rows if row["seed"] == 1 and row["split"] == "train"]
    assert first != other and np.mean(first[-5:]) < 0.5 * np.mean(first[:5])
    picture = (result.directory / "curves.svg").read_text(encoding="utf-8")
    panel = charts_of(picture)["accuracy, dev"]
    scores = [row["accuracy"] for row in rows if row["split"] == "heldout"]
    assert is_standalone(picture) and len(panel.lines("heldout")) == 2
    assert [value for _, value in panel.dots("heldout")] == pytest.approx(scores, abs=0.005)
    ((_, left), (_, right)) = panel.lines("level")[0]
    assert left == right == pytest.approx(run.metadata["figures"]["dev"]["baseline"], abs=0.005)


def test_a_run_has_the_files_that_the_guide_lists(run, result):
    names = {file.name for file in result.directory.iterdir()}
    assert names == {
        "model", "report.html", "predictions.csv", "label_errors.csv", "curves.svg", "metrics.jsonl", "bothways.json",
    }  # fmt: skip
    listed = {name.rstrip("/") for name in code_in(guide("finetuning").partition("## Data")[0])}
    assert names < listed
    assert {"settings", "versions", "result"} < {*run.metadata}


def test_the_run_and_its_checkpoint_are_evaluated_by_their_names(result, settings):
    of_run = bothways.evaluate(result.directory, settings.test)
    assert of_run == bothways.evaluate(str(result.directory / "model"), str(settings.test))
    assert (of_run["accuracy"], of_run["texts"]) == (result.mean, 61)


def test_the_report_has_the_parts_that_the_guide_lists(run):
    report = re.sub("<wbr/?>", "", run.report)
    for part in ("Scores", "Training", "Confusion matrix", "Reliability", "Worst mistakes", "Likely label errors"):
        assert re.search(rf'<a href="#part\d+">{part}</a>', report), part
    assert "calibration_error_before" in report
    # Without baselines the rows of training are not judged: those of dev and test are.
    assert "No label looks wrong among 106 rows" in report


def test_the_table_of_predictions_has_the_columns_of_the_guide(run, result, settings):
    content = (result.directory / "predictions.csv").read_bytes()
    assert content.startswith(b"\xef\xbb\xbffile,row,line,text,gold,predicted,probability_canine,probability_feline,")
    rows = read_table(settings.test, need_labels=True)
    assert [row["text"] for row in run.predictions] == rows.texts
    assert [row["gold"] for row in run.predictions] == rows.labels
    assert {row["file"] for row in run.predictions} == {str(settings.test)}
    assert [(row["row"], row["line"]) for row in run.predictions] == [(str(n), str(n + 1)) for n in range(61)]


def test_probabilities_beyond_those_that_are_stored_are_empty_but_for_that_of_the_right_class(settings, monkeypatch):
    monkeypatch.setattr(scoring, "NUM_STORED", 1)
    task = Classification.build(settings, checkpoint.load(settings.model), read_tables(settings))
    scores_NC = np.tile(np.array([0.0, 1.0, 3.0], np.float32), (61, 1))
    columns = task.report.columns(task.scoring.predictions("test", scores_NC))
    names = ("canine", "feline", "none")
    for row, gold in enumerate(columns["gold"]):
        filled = {name for name in names if columns[f"probability_{name}"][row] != ""}
        assert filled == {"none", gold} and columns["predicted"][row] == "none"


def test_class_counts_are_logged(run):
    text = run.log
    assert "test: 61 texts, tokens: median" in text and "0 read in windows\n  canine " in text
    assert "seed 0: dev accuracy" in text and "seed 1: dev accuracy" in text
    assert text.count("head 'classes' (3 outputs)") == 1


def test_very_many_classes_are_summarized(settings):
    rows = [f"class {index % 700:03}" for index in range(2100)] + ["class 013"] * 5 + ["class 999"]
    split = {"train": table_of(rows), "dev": table_of(["class 013", "class 999"])}
    task = Classification.build(settings, checkpoint.load(settings.model), split)
    lines = task.report.describe().splitlines()
    assert lines[1] == (
        "  701 classes, the most frequent: class 013 8, class 000 3, class 001 3, class 002 3, class 003 3; "
        "0 with no texts, 1 with 1 text"
    )
    assert "699 with no texts, 2 with 1 text" in lines[3] and max(map(len, lines)) < 300
    with pytest.raises(InputError, match="class 000, class 001, .* 681 more") as raised:
        class_targets(table_of(["class 700"]), task.names, multi_label=False)
    assert len(str(raised.value)) < 400


def test_numbers_as_labels_are_for_regression(settings, tmp_path, table):
    rows = [{"text": "the cat", "label": repr(number / 8)} for number in range(40)]
    changed = replace(settings, train=table(rows, "numbers.csv"), dev=None, test=None, out=tmp_path / "run")
    with pytest.raises(InputError, match=r"40 .*0\.125.* finetune regress"):
        run_task(changed)
    assert not (tmp_path / "run").exists()
    for labels in (["3.5", "4.0", "4.5"] * 9, [f"{number}.0" for number in range(30)], ["a", *map(str, range(30))]):
        tables.refuse_numeric_classes(table_of(labels), settings.train)


@pytest.mark.slow
@pytest.mark.parametrize("good", [0, 2])
def test_the_model_kept_is_that_of_the_seed_best_on_dev(good, settings, tmp_path, monkeypatch):
    train = seeds.train

    def spoiled(plan, model, seed, run, directory):
        if seed == good:
            return train(plan, model, seed, run, directory)
        run.log_metrics(step=1, split="train", loss=1.0, tokens=1, seconds=1.0)
        torch.nn.init.zeros_(model.heads["classes"].output.weight)
        return Course(steps=1, learning_rate=1.0, best_step=1, last_step=1, stopped_at=0, fraction=1.0, seconds=1.0)

    monkeypatch.setattr(seeds, "train", spoiled)
    result = run_task(replace(settings, seeds=3, epochs=8.0, out=tmp_path / "run"))
    scores = evaluate.run(Evaluate(model=result.directory, file=(settings.test,), dtype="float32"))
    assert scores["accuracy"] == result.scores[good] == max(result.scores) > scores["majority"]
    low, high = result.interval
    assert low < result.mean < high and result.rows == 61
    assert result.failed == 2 and result.mean == pytest.approx(sum(result.scores) / 3)
    assert result.std == pytest.approx((result.scores[good] - min(result.scores)) / 3**0.5)


def test_an_evaluation_gives_the_score_of_the_run_with_its_interval(result, run, settings):
    scores = evaluate.run(Evaluate(model=result.directory, file=(settings.test,), dtype="float32"))
    assert scores["accuracy"] in result.scores
    assert scores["texts"] == 61 and scores["accuracy_interval"][0] < scores["accuracy"]
    assert scores["majority"] == run.metadata["figures"]["test"]["majority"]


def test_evaluation_agrees_with_prediction(result, settings):
    rows = rows_of(2, 61)
    predictor = bothways.load(result.directory, dtype="float32")
    predicted = [scores.label for scores in predictor.classify([row["text"] for row in rows])]
    right = sum(label == row["label"] for label, row in zip(predicted, rows, strict=True))
    scores = evaluate.run(Evaluate(model=result.model_directory, file=(settings.test,), dtype="float32"))
    assert scores["accuracy"] == pytest.approx(right / 61)
    twice = evaluate.run(Evaluate(model=result.model_directory, file=(settings.test, settings.dev), dtype="float32"))
    assert twice["texts"] == 106


def test_transformers_loads_the_classifier_and_gives_the_same_scores(result):
    transformers.logging.disable_progress_bar()
    peer, report = transformers.BertForSequenceClassification.from_pretrained(
        result.model_directory, output_loading_info=True
    )
    assert not any(report.values())
    theirs = transformers.AutoTokenizer.from_pretrained(result.model_directory)
    assert [peer.config.id2label[index] for index in range(3)] == ["canine", "feline", "none"]
    texts = [row["text"] for row in rows_of(5, 9)]
    with torch.no_grad():
        logits = peer.eval()(**theirs(texts, padding=True, return_tensors="pt")).logits
    predictions = bothways.load(result.model_directory, dtype="float32").classify(texts)
    for prediction, row in zip(predictions, logits.softmax(-1), strict=True):
        assert [*prediction.scores] == ["canine", "feline", "none"]
        assert [*prediction.scores.values()] == pytest.approx(row.tolist(), abs=1e-5)


def test_info_names_the_labels_and_the_result(result):
    facts = info.describe(result.directory)
    assert facts["run"] == "finetune classify" and facts["labels"] == "canine, feline, none"
    assert facts["result"]["n"] == 2 and facts["figures"]["dev"]["accuracy"] > 0.9
    rows = [json.loads(line) for line in (result.directory / "metrics.jsonl").read_text().splitlines()]
    steps = sum(max(row["step"] for row in rows if row["seed"] == seed) for seed in (0, 1))
    assert facts["trained"].startswith(f"{steps:,} steps, ") and facts["trained"].endswith(" 2 seeds")


def test_empty_texts_are_counted_and_the_first_is_located(settings, table):
    rows = [{"text": "", "label": "none"}, *rows_of(0, 30), {"text": " ", "label": "feline"}]
    path = table(rows, "t.csv")
    (warning,) = empty_text_warnings(read_tables(replace(settings, train=path)))
    assert "2 of 32" in warning and "row 0 (line 2)" in warning


@pytest.mark.slow
def test_unused_splits_of_a_saved_dictionary_are_named_in_a_message_and_evaluate_needs_one(settings, result, tmp_path):
    parts = {
        name: datasets.Dataset.from_list(rows_of(seed, 30))
        for seed, name in enumerate(("train", "validation", "other"))
    }
    saved = tmp_path / "saved"
    datasets.disable_progress_bars()
    datasets.DatasetDict(parts).save_to_disk(saved)
    messages = []
    short = replace(settings, train=saved, dev=None, test=None, epochs=0.1, seeds=1, out=tmp_path / "run")
    with messages_to(messages.append):
        run_task(short)
    (line,) = [line for line in messages if line.startswith(f"{saved}:")]
    assert "split train " in line and "other, validation" in line and str(saved / "other") in line
    messages.clear()
    with messages_to(messages.append):
        run_task(replace(short, dev=saved / "validation", test=saved / "other", out=tmp_path / "again"))
    assert not [line for line in messages if line.startswith(f"{saved}:")]
    with pytest.raises(InputError, match=r"saved/other"):
        evaluate.run(Evaluate(model=result.model_directory, file=(saved,)))
    assert evaluate.run(Evaluate(model=result.model_directory, file=(saved / "validation",)))["texts"] == 30


@pytest.mark.slow
def test_the_same_seed_gives_the_same_model_with_dropout_on(settings, tmp_path, global_seed):
    short = replace(settings, epochs=1.0, seeds=1, dropout=0.1, linear_start=False)
    for name, seed in (("one", 3), ("same", 3), ("other", 4)):
        torch.manual_seed(len(name))
        run_task(replace(short, out=tmp_path / name, seed=seed))
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("one", "same", "other")]
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.slow
def test_a_score_on_dev_is_marked(settings, tmp_path):
    short = replace(settings, test=None, epochs=1.0, seeds=1, out=tmp_path / "run")
    result = run_task(short)
    assert result.split == "dev" and len(result.scores) == 1 and result.std == 0.0


def test_a_run_no_better_than_the_majority_is_counted_as_failed(settings, tmp_path):
    result = run_task(replace(settings, learning_rate=1e-12, epochs=0.1, linear_start=False, out=tmp_path / "run"))
    assert result.failed == 2


# --- tables, classes, long texts, pairs
# -----------------------------------------------------------------------------------


def table_of(labels):
    numbers = range(len(labels))
    return Table([f"text {n}" for n in numbers], [f"pair {n}" for n in numbers], labels, [f"f:{n}" for n in numbers])


def test_without_files_of_their_own_dev_and_test_are_a_tenth_of_each_class(settings):
    alone = tables.read_tables(replace(settings, dev=None, test=None))
    assert {name: len(table) for name, table in alone.items()} == {"train": 192, "dev": 24, "test": 24}
    whole = tables.read_tables(settings)
    assert sorted(text for table in alone.values() for text in table.texts) == sorted(whole["train"].texts)
    beside_test = tables.read_tables(replace(settings, dev=None))
    assert len(beside_test["dev"]) in (23, 24, 25) and beside_test["test"] == whole["test"]
    for table in (alone["dev"], beside_test["dev"]):
        shares = [table.labels.count(label) - whole["train"].labels.count(label) / 10 for label in SIGNS]
        assert max(map(abs, shares)) < 1
    assert tables.read_tables(replace(settings, dev=None, test=None, seed=1))["dev"].texts != alone["dev"].texts


def test_texts_that_splits_share_are_counted():
    tables = {"train": table_of(["a"] * 5), "dev": table_of(["b"] * 3), "test": table_of(["a"])}
    (warning,) = overlap_warnings({name: table.keys for name, table in tables.items()})
    assert re.findall(r"(\d of \d) .*? of (\w+) .*? in (\w+)", warning) == [
        ("3 of 3", "dev", "train"),
        ("1 of 1", "test", "train"),
        ("1 of 1", "test", "dev"),
    ]
    other = Table(["text 0"], ["another"], ["a"], ["f:0"])
    assert overlap_warnings({"train": table_of(["a"] * 5).keys, "dev": other.keys}) == []


def test_pairs_in_one_split_alone_are_refused():
    with pytest.raises(InputError, match="train .*pairs.*dev .*--pair-column"):
        tables.check_pairs({"train": table_of(["a"]), "dev": Table(["a"], None, ["a"], ["f:1"])})


def texts_of(words, labels, predictor, settings):
    table = Table(words, None, None, ["f"] * len(words))
    policy = text_reader(settings.windows, predictor.checkpoint)[1]
    return TextExamples.encode(table, np.array(labels), predictor.tokenizer, policy)


def test_long_texts_are_read_in_windows_and_nothing_of_them_is_lost(start, settings):
    predictor = bothways.load(start, dtype="float32")
    examples = texts_of([" ".join(["cat"] * 150), "dog"], [0, 1], predictor, replace(settings, window=40))
    assert (examples.windows.num_windows > 1).tolist() == [True, False]
    assert examples.windows.lengths.max() == 40
    assert covered(examples.windows, 0) == set(range(150))
    assert examples.describe().endswith("1 read in windows")


def test_long_texts_are_refused_or_truncated_with_a_message_on_request(start, settings, caplog):
    predictor = bothways.load(start, dtype="float32")
    long = [" ".join(["cat"] * 150), "dog"]
    with pytest.raises(InputError, match="1 of 2 texts .*40 tokens"):
        texts_of(long, [0, 1], predictor, replace(settings, window=40, long="error"))
    cut = texts_of(long, [0, 1], predictor, replace(settings, window=40, long="truncate"))
    assert cut.sizes == [40, 3] and "cut 1 of 2 texts to 40 tokens" in caplog.text


def test_a_long_first_text_of_a_pair_has_a_larger_window_or_is_refused_with_its_line(
    make_model, tokenizer, settings, tmp_path
):
    model = make_model("bert", {"masked_words": 0}, num_hidden_layers=1, max_position_embeddings=128)
    checkpoint.save(Checkpoint(model, tokenizer), tmp_path / "model")
    predictor = bothways.load(tmp_path / "model", dtype="float32")

    def read(first, **options):
        pair = Table([" ".join(["cat"] * first), "cat"], [" ".join(["dog"] * 99), "dog"], None, ["f:1", "f:2"])
        changed = replace(settings, **{"window": 48, **options})
        policy = text_reader(changed.windows, predictor.checkpoint)[1]
        return TextExamples.encode(pair, np.array([0, 1]), predictor.tokenizer, policy)

    examples = read(61)
    long, (short,) = ids_of(examples.windows)
    assert max(map(len, long)) == 128 and len(short) == 5
    assert all(window[:63] == long[0][:63] for window in long)
    assert covered(examples.windows, 0) == set(range(99))
    for window in (48, 512):
        with pytest.raises(InputError, match="f:1: .* 62 of the 128 "):
            read(62, window=window)
    assert read(62, long="truncate").windows.lengths.tolist() == [128, 5]
    assert read(124, long="truncate").windows.lengths.tolist() == [128, 5]
    with pytest.raises(InputError, match="f:1: .* 125 of the 128 .* leaves 0 "):
        read(125, long="truncate")


def test_windows_of_a_text_are_averaged_in_training_as_in_prediction(result, settings):
    predictor = bothways.load(result.model_directory, dtype="float32")
    words = [row["text"] for row in rows_of(3, 5, words=(90, 170))] + ["the cat"]
    window = predictor.module.config.max_position_embeddings
    examples = texts_of(words, [0] * 6, predictor, replace(settings, window=window))
    assert (examples.windows.num_windows > 1).sum() == 5
    with torch.no_grad():
        shares_NC = forward.text_scores(predictor.module, examples.batch([4, 5, 0, 2, 1, 3])).softmax(-1)
    expected = [[*one.scores.values()] for one in predictor.classify(words, window=window, overlap=window // 4)]
    assert shares_NC.numpy() == pytest.approx(np.array(expected)[[4, 5, 0, 2, 1, 3]], abs=1e-5)


def test_hundreds_of_windows_are_averaged_exactly_in_bf16(start):
    model = new_head.with_head(checkpoint.load(start), "classes", ("a", "b"), seed=0).model.eval().bfloat16()
    table = TextExamples(windows_of_sizes([[3] * 600, [3]]), np.array([0, 1]), ["1", "2"])
    with torch.no_grad():
        many, one = forward.text_scores(model, table.batch([0, 1]))
    assert torch.equal(many, one)


@pytest.mark.slow
def test_a_run_on_long_texts_learns(settings, tmp_path, table):
    train = table(rows_of(0, 150, words=(30, 60), signs=9), "train.csv")
    short = replace(settings, train=train, dev=None, test=None, window=32, seeds=1, out=tmp_path / "run")
    assert run_task(short).mean > 0.9
    assert (plan.make_plan(short).task.data["train"].windows.num_windows > 1).sum() == 120


@pytest.mark.slow
def test_pairs_are_distinguished_by_their_second_text(settings, tmp_path, table):
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(200):
        first, second = rng.choice(["cat", "dog"], 2)
        filler = " ".join(rng.choice(FILLERS, 5))  # so that texts differ
        rows.append({"text": f"the {first} {filler}", "pair": f"a {second} sat", "label": second})
    train = table(rows, "train.csv")
    changed = replace(settings, train=train, dev=None, test=None, seeds=1, linear_start=False, out=tmp_path / "run")
    result = run_task(changed)
    assert result.mean > 0.9
    model = bothways.load(result.model_directory, dtype="float32")
    assert [one.label for one in model.classify(["the dog", "the cat"], ["a cat sat", "a dog sat"])] == ["cat", "dog"]


@pytest.mark.slow
def test_evaluate_uses_the_fine_tuned_metric_and_label(settings, tmp_path, capsys, table):
    """Its columns and the class its F1 is of, until another is named; columns only where the file has them."""
    rows = [row for row in rows_of(0, 240) if row["label"] != "none"]
    odd = [{"words": "the", "other": row["text"], "kind": row["label"]} for row in rows]
    changed = replace(
        settings, train=table(odd, "odd.csv"), dev=None, test=None, text_column="words", epochs=2.0,
        pair_column="other", label_column="kind", metric="f1", positive="canine", seeds=1, out=tmp_path / "run",
    )  # fmt: skip
    model = run_task(changed).model_directory
    evaluation = Evaluate(model=model, file=(changed.train,), dtype="float32")
    named = {"text_column": "words", "pair_column": "other", "label_column": "kind", "positive": "canine"}
    assert evaluate.run(evaluation) == evaluate.run(replace(evaluation, **named))
    assert evaluate.run(evaluation)["f1"] != evaluate.run(replace(evaluation, positive="feline"))["f1"]
    with pytest.raises(InputError, match=r"positive \('bogus'\) .*\(canine, feline\)"):
        evaluate.run(replace(evaluation, positive="bogus"))
    rows = [{"text": row["words"], "pair": row["other"], "label": row["kind"]} for row in odd]
    usual = table(rows, "usual.csv")
    scores = evaluate.run(replace(evaluation, file=(usual,)))
    assert {**scores, "selected_on": "train"} == evaluate.run(evaluation)
    for file in (evaluation.file[0], usual):
        main.main(["predict", str(model), str(file), "--dtype", "float32"])
    first, second = np.array_split(capsys.readouterr().out.splitlines(), 2)
    assert [*first] == [*second]


@pytest.mark.slow
def test_pairs_are_measured_in_the_windows_they_were_learned_in(settings, make_model, tokenizer, tmp_path, table):
    """A first text that leaves little of a window has a larger one, in `evaluate` and `predict` too."""
    rows = [{"text": "the " * 40 + row["text"], "pair": row["text"], "label": row["label"]} for row in rows_of(0, 60)]
    model = make_model("bert", {"masked_words": 0}, num_hidden_layers=1, max_position_embeddings=160)
    checkpoint.save(Checkpoint(model, tokenizer), tmp_path / "start")
    changed = replace(
        settings, model=tmp_path / "start", train=table(rows, "long.csv"), dev=None, test=None, window=32,
        seeds=1, epochs=1.0, out=tmp_path / "run",
    )  # fmt: skip
    result = run_task(changed)
    predictor = bothways.load(result.model_directory, dtype="float32")
    policy, whole = (
        text_reader(changed.windows, predictor.checkpoint)[1],
        read_table(changed.train, need_labels=True),
    )
    seen = TextExamples.encode(whole, np.zeros(60), predictor.tokenizer, policy)
    pairs = [[row[name] for row in rows] for name in ("text", "pair")]
    windows = predictor.split(predictor.tokenizer.encode_many(*pairs))
    assert [[one.ids for one in parts] for parts in windows] == ids_of(seen.windows)
    assert "accuracy" in evaluate.run(Evaluate(model=result.model_directory, file=(changed.train,)))


@pytest.mark.slow
def test_the_report_shows_text_lengths_and_windows(settings, tmp_path, table):
    """Of texts, not of their windows; and of what the model reads, not of a wider window in the settings."""
    rows = [{**row, "text": row["text"] + " the" * 60} for row in rows_of(0, 60)]
    train = table(rows, "long.csv")
    for long, treatment in (("truncate", "are truncated"), ("windows", "are split")):
        changed = replace(settings, train=train, dev=None, test=None, seeds=1, epochs=0.2, window=256, long=long)
        result = run_task(replace(changed, out=tmp_path / long))
        page = (result.directory / "report.html").read_text(encoding="utf-8")
        assert f"48 (100.0%) are longer than 64 tokens and {treatment}" in page and "longest 7" in page


def test_labels_that_are_none_are_refused(settings, tmp_path):
    wrong = {
        "nan.jsonl": ('{"text": "a cat", "label": NaN}', r"nan\.jsonl: row \d+ \(line 4\): 'label' is missing"),
        "list.jsonl": ('{"text": "a cat", "label": ["x"]}', r"list\.jsonl: row \d+ \(line 4\): .*--multi-label"),
        "half.jsonl": (
            r'{"text": "a cat", "label": "y\ud83d"}',
            r"half\.jsonl: row \d+ \(line 4\): 'label' .*surrogate",
        ),
    }
    for name, (line, message) in wrong.items():
        (tmp_path / name).write_text('{"text": "a dog", "label": "x"}\n' * 3 + line, encoding="utf-8")
        with pytest.raises(InputError, match=message):
            run_task(replace(settings, train=tmp_path / name, out=tmp_path / "run"))
    (tmp_path / "twice.csv").write_text("text,label,label\na,b,c\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"twice\.csv:1: two columns .*'label'"):
        run_task(replace(settings, train=tmp_path / "twice.csv", out=tmp_path / "run"))
    with pytest.raises(InputError, match=r"epochs \(inf\)"):
        replace(settings, epochs=float("inf"))


def test_columns_are_read_by_the_names_in_the_settings(settings, tmp_path, table):
    rows = [{"id": index, "body": row["text"], "kind": row["label"]} for index, row in enumerate(rows_of(0, 60))]
    train = table(rows, "train.csv")
    changed = replace(settings, train=train, dev=None, test=None, text_column="body", label_column="kind")
    assert sum(map(len, tables.read_tables(changed).values())) == 60
    with pytest.raises(InputError, match=r"'text' .*id, body, kind.*--text-column"):
        tables.read_tables(replace(changed, text_column="text"))


def test_a_single_class_and_labels_that_only_dev_has_are_errors(settings, tmp_path, table):
    one = table([{"text": "a", "label": "x"}] * 30, "one.csv")
    with pytest.raises(InputError, match=r"one\.csv: .*'x'"):
        run_task(replace(settings, train=one, out=tmp_path / "run"))
    dev = table([{"text": "a", "label": "none"}, {"text": "b", "label": "bovine"}], "dev.csv")
    with pytest.raises(InputError, match=r"dev\.csv: row \d+ \(line 3\): .*'bovine' .*canine, feline, none"):
        run_task(replace(settings, dev=dev, out=tmp_path / "run2"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [
        "albert", "modernbert", "longformer", "deberta-v2",
        *in_soak("distilbert", "electra", "roberta", "big_bird", "deberta"),
    ],
)  # fmt: skip
def test_every_family_learns_and_transformers_gives_its_scores(
    family, make_model, tokenizer, settings, tmp_path, global_seed
):
    sizes = {"num_hidden_layers": 1, "num_layer_groups": 1} if family == "albert" else {"num_hidden_layers": 1}
    model = make_model(family, {"masked_words": 0}, **sizes)
    checkpoint.save(Checkpoint(model, tokenizer, model_type=family), tmp_path / "start")
    changed = replace(settings, model=tmp_path / "start", out=tmp_path / "run", seeds=1, epochs=5.0)
    result = run_task(changed)
    assert result.mean > 0.6  # the commonest class: 0.47
    texts = [row["text"] for row in rows_of(3, 7)]
    ours = bothways.load(result.model_directory, dtype="float32", device="cpu").classify(texts)
    peer, loading = transformers.AutoModelForSequenceClassification.from_pretrained(
        result.model_directory, output_loading_info=True
    )
    unread = {"bert.pooler.weight", "bert.pooler.bias"} if family == "big_bird" else set()  # beside the classes' own
    assert not any({*names} - unread for kind, names in loading.items() if kind != "error_msgs")
    for text, prediction in zip(texts, ours, strict=True):
        ids = torch.tensor([tokenizer.encode(text).ids])
        with torch.no_grad():
            shares = peer.eval()(input_ids=ids).logits[0].softmax(-1)
        scores = {peer.config.id2label[index]: share for index, share in enumerate(shares.tolist())}
        assert prediction.scores == pytest.approx(scores, abs=1e-5)


# --- several labels, classes that weigh, other metrics
# -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def several(settings, tmp_path_factory, table):
    """Texts with a label for each of two words that may stand in them."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(260):
        words, labels = rng.choice(FILLERS, int(rng.integers(4, 9))).tolist(), []
        for label in ("feline", "canine"):
            if rng.random() < 0.4:
                words.insert(int(rng.integers(len(words) + 1)), SIGNS[label])
                labels.append(label)
        rows.append({"text": " ".join(words), "label": "|".join(labels)})
    directory = tmp_path_factory.mktemp("several")
    train = table(rows, "train.csv")
    changed = replace(settings, train=train, dev=None, test=None, multi_label=True, seeds=1, out=directory / "run")
    return run_task(changed)


def test_several_labels_at_once_are_learned(several):
    assert several.metric == "f1_micro" and several.mean > 0.9 and several.failed == 0
    config = json.loads((several.model_directory / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"


def test_prediction_gives_each_label_a_separate_probability(several):
    both, none = bothways.load(several.model_directory, dtype="float32").classify(
        ["the cat ran on a dog", "the mat ran"]
    )
    assert both.labels == ("canine", "feline") and min(both.scores.values()) > 0.5
    assert none.labels == () and max(none.scores.values()) < 0.5 and none.label in none.scores


def test_balanced_weights_are_inverse_to_class_counts(settings, tmp_path, table):
    rows = [row for row in rows_of(0, 400) if row["label"] != "none"]
    rare = [row for row in rows if row["label"] == "canine"][:12]
    train = table([row for row in rows if row["label"] == "feline"] + rare, "train.csv")
    changed = replace(settings, train=train, dev=None, test=None, class_weights="balanced")
    task = Classification.build(changed, checkpoint.load(changed.model), tables.read_tables(changed))
    counts = np.bincount(task.data["train"].targets)
    weights = task.objective.weights_C
    assert weights[0] / weights[1] == pytest.approx(counts[1] / counts[0])
    assert weights @ counts == pytest.approx(counts.sum())


@pytest.mark.parametrize("several", [False, True])
def test_the_loss_weighs_classes_by_how_rare_they_are(several, settings, tmp_path, table):
    rows = rows_of(0, 60)
    if several:
        rows = [{**row, "label": row["label"] if index % 3 else "canine|feline"} for index, row in enumerate(rows)]
    options = {"train": table(rows, "t.csv"), "dev": None, "test": None, "multi_label": several}
    task = Classification.build(
        replace(settings, **options, class_weights="balanced"), checkpoint.load(settings.model),
        tables.read_tables(replace(settings, **options)),
    )  # fmt: skip
    model, targets = task.initial_checkpoint(0).model.eval().requires_grad_(False), task.data["train"].targets
    batch = task.data["train"].batch(range(20))
    scores_NC, gold = forward.text_scores(model, batch), torch.from_numpy(targets[:20])
    loss, count = forward_losses(task.objective)(model, batch)["classes"]
    if several:
        rare_C = torch.from_numpy((len(targets) - targets.sum(0)) / targets.sum(0)).float()
        plain = torch.nn.functional.binary_cross_entropy_with_logits
        expected = plain(scores_NC, gold.float(), pos_weight=rare_C, reduction="sum")
        even = plain(scores_NC, gold.float(), reduction="sum")
    else:
        rare_C = torch.from_numpy(len(targets) / (3 * np.bincount(targets))).float()
        expected = torch.nn.functional.cross_entropy(scores_NC, gold, weight=rare_C, reduction="sum")
        even = torch.nn.functional.cross_entropy(scores_NC, gold, reduction="sum")
    assert float(loss) == pytest.approx(float(expected), rel=1e-5) and count == batch.labels.numel()
    assert float(loss) != pytest.approx(float(even), rel=1e-2)


def test_the_page_agrees_with_evaluate(result, settings, several):
    """Confusions, labels and mistakes of the weights kept, and of several labels each by itself."""
    task = Classification.build(settings, checkpoint.load(settings.model), tables.read_tables(settings))
    model = bothways.load(result.model_directory, dtype="float32")
    confusion, labels, _, refusals, mistakes = task.report.sections(
        task.scoring.predictions("test", task.scoring.outputs(model.module, "test"))
    )
    gold, predicted = task.tables["test"].labels, [one.label for one in model.classify(task.tables["test"].texts)]
    for row, label in enumerate(confusion.labels):
        for column, other in enumerate(confusion.labels):
            pairs = zip(gold, predicted, strict=True)
            assert confusion.counts.get((row, column), 0) == sum(pair == (label, other) for pair in pairs)
    assert sum(confusion.counts.values()) == 61
    wrong = [(text, a, b) for text, a, b in zip(task.tables["test"].texts, gold, predicted, strict=True) if a != b]
    assert [(case.text, case.gold, case.predicted) for case in mistakes.cases] == wrong
    measured = {"model": result.model_directory, "file": (settings.test,), "dtype": "float32"}
    scores = evaluate.run(Evaluate(**measured))
    assert sum(one.f1 for one in labels.scores) / 3 == pytest.approx(scores["f1_macro"])
    answered = evaluate.run(Evaluate(**measured, min_score=0.9))
    assert refusals.by_score[0.9] == pytest.approx((answered["answered"], answered["accuracy"]))
    assert [one.support for one in labels.scores] == [gold.count(label) for label in confusion.labels]
    for run, headings in (
        (result, ("Confusion matrix", "Worst mistakes", "reliab", "None of these")),
        (several, ("Labels",)),
    ):
        page = (run.directory / "report.html").read_text(encoding="utf-8")
        assert [heading for heading in headings if heading.lower() not in page.lower()] == []


def test_predicting_no_label_is_the_baseline_if_most_texts_have_none(settings, tmp_path, table):
    rows = [{"text": f"the cat {index}", "label": "feline" if index % 5 == 0 else ""} for index in range(50)]
    changed = replace(settings, train=table(rows, "t.csv"), dev=None, test=None, multi_label=True, metric="accuracy")
    task = Classification.build(changed, checkpoint.load(changed.model), tables.read_tables(changed))
    gold = task.data["train"].targets
    assert task.scoring.trivial_metrics(gold)["accuracy"] == pytest.approx(1 - gold.mean()) and gold.mean() < 0.5


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "changes", "steps"), [(30, {}, 60), (4000, {}, 1200), (30, {"epochs": 2.0}, 6)])
def test_few_examples_are_read_more_often_unless_epochs_are_named(rows, changes, steps, settings, tmp_path, table):
    """Three steps an epoch: 20 epochs. 4,000 rows: 400 steps an epoch, and three of them."""
    changed = replace(settings, **{"epochs": None, "batch_size": 10, **changes})
    requested = changed.epochs, Classification.min_steps
    assert epochs.num_steps(*requested, Epoch(rows // 10, rows, 10 * rows)) == steps
    assert epochs.num_epochs(*requested, Epoch(30, 300, 6000)) == (5 if not changes else 2)
    assert epochs.num_epochs(*requested, Epoch(15, 240, 30_000)) == (5 if not changes else 2)  # long
    if not changes and rows == 30:
        files = {"train": table(rows_of(0, rows), "t.csv"), "dev": settings.dev, "test": None}
        run_task(replace(changed, **files, seeds=1, out=tmp_path / "run"))
        assert json.loads((tmp_path / "run" / "bothways.json").read_text())["steps_per_epoch"] == 3
        rows_read = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
        assert max(row["step"] for row in rows_read) == steps


def test_a_score_on_data_of_the_training_is_marked_with_a_warning(result, settings, caplog):
    for split, selected_on in (("train", "train"), ("dev", "dev"), ("test", None)):
        caplog.clear()
        file = getattr(settings, split)
        scores = evaluate.run(Evaluate(model=result.model_directory, file=(file,), dtype="float32"))
        assert scores.get("selected_on") == selected_on
        warned = any("this file" in record.message for record in caplog.records)
        assert warned == (selected_on is not None)


@pytest.mark.slow
def test_f1_is_of_two_classes_and_of_the_one_named(settings, tmp_path, table):
    with pytest.raises(InputError, match=r"metric \(f1\) .* 3; use f1_macro"):
        run_task(replace(settings, metric="f1", out=tmp_path / "run"))
    two = table([row for row in rows_of(0, 240) if row["label"] != "none"], "two.csv")
    changed = replace(settings, train=two, dev=None, test=None, metric="f1", seeds=1)
    assert run_task(replace(changed, positive="canine", out=tmp_path / "one")).mean > 0.9
    with pytest.raises(InputError, match=r"positive \('cat'\) .*two\.csv: canine, feline"):
        run_task(replace(changed, positive="cat", out=tmp_path / "run"))
