"""The command line: only results on standard output, valid JSON, order, exit status."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import bothways
from bothways.base.results import Facts, JsonValues, format_value
from bothways.cli import commands, main
from bothways.cli.info import InfoFacts
from bothways.cli.output import print_result
from bothways.cli.verbs import VERBS
from bothways.inference.jobs import rows_to_label, verbs
from bothways.inference.jobs.journal import Journal
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings.predict import Embed, Predict
from bothways.tasks.scores import Scores

TEXTS = ["the cat sat", "", "a dog ran and ran", "on the mat", "a", "the dog sat on a cat " * 30, "b"]


@pytest.fixture(scope="module")
def classifier(make_model, tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("classifier") / "model"
    checkpoint.save(Checkpoint(make_model("bert", {"classes": 3}), tokenizer, labels=("x", "é", "z")), directory)
    return directory


@pytest.fixture(scope="module")
def filler(make_model, tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("filler") / "model"
    checkpoint.save(Checkpoint(make_model("bert", {"masked_words": 0, "next_sentence": 2}), tokenizer), directory)
    return directory


@pytest.fixture(scope="module")
def reader(make_model, tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("reader") / "model"
    checkpoint.save(Checkpoint(make_model("bert", {"spans": 2}), tokenizer), directory)
    return directory


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "texts.txt").write_text("".join(text + "\n" for text in TEXTS), encoding="utf-8")
    return tmp_path / "texts.txt"


@pytest.fixture
def output_of(capsys):
    """Runs the command in this process and returns its standard output."""

    def run(*arguments):
        main.main([*map(str, arguments)])
        return capsys.readouterr().out

    return run


def run(*arguments, text=None):
    return subprocess.run(
        [sys.executable, "-m", "bothways", *map(str, arguments)], input=text, capture_output=True, text=True
    )


# --- usage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [[], ["finetune"], ["pretend"], ["finetune", "classy"], ["fill"], ["fill", "m", "t", "--top", "x"],
                  ["info", "m", "--no-such-flag"], ["pretrain", "t", "-o", "r", "--model", "huge"], ["vocab", "t"]],
)  # fmt: skip
def test_wrong_usage_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main.main(arguments)
    assert stopped.value.code == 2


DEVICE_COMMANDS = (
    "pretrain TEXTS -o OUT", "finetune classify --model MODEL --train TABLE -o OUT", "predict MODEL TEXTS",
    "embed MODEL TEXTS -o OUT.npy", "evaluate MODEL TABLE", "fill MODEL a", "demo -o OUT",
)  # fmt: skip


def test_a_result_prints_itself(capsys):
    result = SimpleNamespace(to_json=lambda: {"score": 1.5}, lines=lambda: ["score 1.5", "of 3 rows"])
    for as_json, expected in ((False, "score 1.5\nof 3 rows\n"), (True, '{"score": 1.5}\n')):
        print_result(result, as_json=as_json)
        assert capsys.readouterr().out == expected


def test_a_result_may_be_lines_of_json_and_styled_lines_and_end_the_command(capsys, monkeypatch):
    result = SimpleNamespace(
        to_json=lambda: JsonValues([{"a": 1}, [2]]), lines=lambda: [[("a\n", "1"), ("b", "")], "c"], exit_status=1
    )
    assert print_result(result, as_json=True) == 1 and capsys.readouterr().out == '{"a": 1}\n[2]\n'
    assert print_result(result, as_json=False) == 1 and capsys.readouterr().out == "a\\nb\nc\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_result(result, as_json=False)
    assert capsys.readouterr().out == "\x1b[1ma\\n\x1b[0mb\nc\n"


@pytest.mark.parametrize("as_json", [False, True])
def test_rows_are_printed_as_json_block_by_block(as_json, capsys):
    print_result(iter([[{"a": 1}, {"a": 2}], [{"a": 3}]]), as_json=as_json)
    assert capsys.readouterr().out == '{"a": 1}\n{"a": 2}\n{"a": 3}\n'


def test_a_verb_that_has_printed_and_another_process_than_the_first_print_no_result(capsys, monkeypatch):
    print_result(None, as_json=True)
    monkeypatch.setenv("RANK", "1")
    print_result(Facts(score=1.5), as_json=True)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("command", DEVICE_COMMANDS)
def test_a_missing_device_is_one_line_and_exits_with_2(command, classifier, texts, tmp_path, capsys):
    (tmp_path / "t.csv").write_text("text,label\n" + "a cat,x\nthe dog,z\n" * 20)
    values = {"MODEL": classifier, "TEXTS": texts, "TABLE": tmp_path / "t.csv", "OUT": tmp_path / "out"}
    for name, value in values.items():
        command = command.replace(name, str(value))
    with pytest.raises(SystemExit) as stopped:
        main.main([*command.split(), "--device", "cuda:99"])
    assert stopped.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert "'cuda:99'" in printed.err and "auto, cpu" in printed.err
    assert not [*tmp_path.glob("out*")]


def test_a_wrong_verb_is_named_in_one_line_with_those_there_are(capsys):
    with pytest.raises(SystemExit):
        main.main(["pretend", "--fast"])
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert "'pretend'" in printed.err and all(verb in printed.err for verb in VERBS)


def test_help_names_every_verb(capsys):
    tuning = [verb for verb in VERBS if verb.startswith("finetune")]
    tasks = ("classify", "regress", "tag", "answer", "embed", "rerank", "decide")
    assert tuning == [f"finetune {task}" for task in tasks]
    for arguments, listed in ((["--help"], [*VERBS]), (["finetune", "--help"], tuning)):
        with pytest.raises(SystemExit) as stopped:
            main.main(arguments)
        assert stopped.value.code == 0
        shown = capsys.readouterr().out
        assert [line[2:].split("  ")[0].strip() for line in shown.splitlines() if line.startswith("  ")] == listed


def test_every_verb_has_a_function_and_a_line_of_help():
    for name, verb in VERBS.items():
        assert callable(verb.load(name)), name
        assert len(verb.help) < 90 and verb.help[0].islower() and not verb.help.endswith("."), name


def test_the_printed_version_is_the_packages(output_of):
    assert output_of("--version") == f"bothways {bothways.__version__}\n"


# --- verbs ------------------------------------------------------------------------------------------------------------


def test_predictions_are_an_object_a_line_in_input_order(classifier, texts, output_of):
    rows = [json.loads(line) for line in output_of("predict", classifier, texts, "--dtype", "float32").splitlines()]
    expected = bothways.load(classifier, dtype="float32").classify(TEXTS)
    assert [row["label"] for row in rows] == [result.label for result in expected]
    for row, result in zip(rows, expected, strict=True):
        assert row["scores"] == pytest.approx(result.scores, abs=1e-6) and row["score"] == max(row["scores"].values())


@pytest.mark.slow
def test_predictions_keep_input_order_over_blocks(classifier, tmp_path, output_of):
    numbers = np.random.default_rng(0).integers(0, 5, 9000).tolist()
    (tmp_path / "many.txt").write_text("".join(TEXTS[(0, 2, 3, 4, 6)[number]] + "\n" for number in numbers))
    rows = [
        json.loads(line)["scores"]["x"] for line in output_of("predict", classifier, tmp_path / "many.txt").splitlines()
    ]
    assert len(rows) == 9000
    means = [np.mean([score for score, number in zip(rows, numbers, strict=True) if number == one]) for one in range(5)]
    assert len({round(mean, 4) for mean in means}) == 5
    assert all(score == pytest.approx(means[number], abs=2e-3) for score, number in zip(rows, numbers, strict=True))


@pytest.mark.slow
def test_standard_input_is_read_a_text_a_line(classifier, texts, output_of):
    from_file = output_of("predict", classifier, texts, "--dtype", "float32")
    from_pipe = run("predict", classifier, "-", "--dtype", "float32", text=texts.read_text())
    assert (from_pipe.returncode, from_pipe.stderr) == (0, "")
    rows, piped = ([json.loads(line) for line in out.splitlines()] for out in (from_file, from_pipe.stdout))
    assert len(rows) == len(piped) == len(TEXTS)
    for row, one in zip(rows, piped, strict=True):  # a slow pipe is read in several blocks, which may move last digits
        assert one["label"] == row["label"] and one["scores"] == pytest.approx(row["scores"], abs=1e-5)


def test_no_lines_on_standard_input_give_no_predictions(classifier, output_of, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert output_of("predict", classifier) == ""


def test_labels_are_printed_as_they_are(classifier, texts, output_of):
    assert '"é"' in output_of("predict", classifier, texts)


def test_pairs_of_a_table_are_read_together(classifier, tmp_path, output_of):
    (tmp_path / "pairs.jsonl").write_text('{"text": "the cat", "pair": "a dog"}\n{"text": "a", "pair": "b"}\n')
    rows = [
        json.loads(line)
        for line in output_of("predict", classifier, tmp_path / "pairs.jsonl", "--dtype", "float32").splitlines()
    ]
    expected = bothways.load(classifier, dtype="float32").classify(["the cat", "a"], ["a dog", "b"])
    assert [row["scores"] for row in rows] == [pytest.approx(prediction.scores, abs=1e-6) for prediction in expected]


def test_a_regression_model_prints_scores(make_model, tokenizer, texts, tmp_path, output_of):
    checkpoint.save(Checkpoint(make_model("bert", {"classes": 1}), tokenizer), tmp_path / "model")
    rows = [
        json.loads(line) for line in output_of("predict", tmp_path / "model", texts, "--dtype", "float32").splitlines()
    ]
    expected = bothways.load(tmp_path / "model", dtype="float32").regress(TEXTS)
    assert [row["score"] for row in rows] == pytest.approx(expected.tolist(), abs=1e-6)


def test_a_message_names_the_line_of_a_long_text_that_is_refused_on_request(classifier, texts, capsys):
    with pytest.raises(SystemExit) as stopped:
        main.main(["predict", str(classifier), str(texts), "--long", "error"])
    error = capsys.readouterr().err
    assert stopped.value.code == 1 and "row 5 (line 6): " in error and "64 tokens" in error


def test_fills_are_printed_as_a_table_or_json(filler, output_of):
    text = "the [MASK] sat on the [MASK]"
    masks = json.loads(output_of("fill", filler, text, "--json", "--top", "3", "--dtype", "float32"))
    expected = bothways.load(filler, dtype="float32").fill(text, top=3)
    assert [[fill["token"] for fill in mask] for mask in masks] == [[fill.token for fill in mask] for mask in expected]
    assert masks[0][0]["text"] == expected[0][0].text and len(masks) == 2
    lines = output_of("fill", filler, text, "--top", "3", "--dtype", "float32").splitlines()
    assert [line for line in lines if line.startswith("mask")] == ["mask 1", "mask 2"]
    assert len(lines) == 8 and lines[1].split()[1] == expected[0][0].token
    assert len(output_of("fill", filler, "the [MASK]").splitlines()) == 5


def test_vectors_are_written_in_input_order(filler, texts, tmp_path, output_of):
    out = tmp_path / "vectors.npy"
    summary = json.loads(
        output_of("embed", filler, texts, "-o", out, "--json", "--dtype", "float32", "--pooling", "cls")
    )
    assert summary == {"vectors": 7, "size": 24, "file": str(out)}
    vectors = np.load(out)
    assert vectors.dtype == np.float32
    expected = bothways.load(filler, dtype="float32").embed(TEXTS, pooling="cls")
    assert np.abs(vectors - expected).max() < 1e-6
    output_of("embed", filler, texts, "-o", tmp_path / "raw.npy", "--no-normalize", "--dtype", "float32")
    raw = bothways.load(filler, dtype="float32").embed(TEXTS, normalize=False)
    assert np.abs(np.load(tmp_path / "raw.npy") - raw).max() < 1e-5


def test_evaluation_prints_metrics(classifier, filler, tmp_path, output_of):
    (tmp_path / "t.csv").write_text("text,label\nthe cat,x\na dog,é\nb,z\n", encoding="utf-8")
    metrics = json.loads(output_of("evaluate", classifier, tmp_path / "t.csv", "--json"))["metrics"]
    scores = ["accuracy", "f1_macro", "f1_micro", "matthews"]
    assert set(metrics) == {*scores, *(f"{name}_interval" for name in scores), "majority", "texts"}
    assert metrics["texts"] == 3
    table = {line.split()[0]: line for line in output_of("evaluate", classifier, tmp_path / "t.csv").splitlines()}
    assert {*table} == {*scores, "majority", "texts", "computed"}
    low, high = metrics["accuracy_interval"]
    assert f"{low:.4f}".rstrip("0") in table["accuracy"] and f"{high:.4f}".rstrip("0") in table["accuracy"]
    (tmp_path / "t.txt").write_text("The cat sat on the mat. The dog ran and ran.\n\n" * 5)
    words = json.loads(output_of("evaluate", filler, tmp_path / "t.txt", "--json", "--max-length", "32"))["metrics"]
    assert words["perplexity"] == pytest.approx(np.exp(words["masked_lm"]))
    shown = output_of("evaluate", filler, tmp_path / "t.txt", "--max-length", "32", "--dtype", "float32")
    assert shown.splitlines()[-1].split() == ["computed", "in", "float32"] and "skipped" not in shown


def test_a_file_is_printed_with_the_number_of_its_results_and_of_skipped_rows(capsys, monkeypatch):
    monkeypatch.setattr(rows_to_label, "write_rows_to_label", lambda settings: Journal({}, results=1200))
    monkeypatch.setattr(verbs, "embed", lambda settings: (Journal({}, results=1200), 24))
    settings = Predict(model="m", file="t.csv", out="p.csv")
    for skipped in (0, 2):
        journal = Journal({}, results=1200 - skipped, set_aside=skipped)
        monkeypatch.setattr(verbs, "predict", partial(lambda journal, settings: journal, journal))
        print_result(commands.predict(settings), as_json=False)
    print_result(commands.predict(replace(settings, label_next=6)), as_json=False)
    print_result(commands.embed(Embed(model="m", file="t.csv", out="p.npy")), as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "1,200 predictions in p.csv",
        "1,198 predictions in p.csv; 2 rows skipped, listed in p.csv.skipped.jsonl",
        "6 rows to label in p.csv",
        "1,200 vectors of size 24 in p.npy",
    ]


def test_scores_are_printed_with_their_intervals_and_tables_beside_them_and_no_empty_counts():
    scores = {"next_sentence": 0.6, "next_sentence_accuracy": 0.75, "next_sentence_accuracy_interval": [0.7, 0.8]}
    by_type = {"LOC": {"f1": 0.5, "support": 3}, "PER": {"f1": 0.0, "support": 12}}
    values = {**scores, "f1": 0.0, "by_type": by_type}
    result = Scores("f1", values, {"illegal_gold": 0}, dtype="bfloat16")
    assert [line.split() for line in result.lines()] == [
        ["next_sentence", "0.6"],
        ["next_sentence_accuracy", "0.75", "(95", "%", "interval", "0.7", "to", "0.8)"],
        ["f1", "0"],
        ["by_type", "f1", "support"],
        ["LOC", "0.5", "3"],
        ["PER", "0", "12"],
        ["computed", "in", "bfloat16"],
    ]


def test_info_prints_the_settings_that_are_not_defaults():
    settings = {"corpus": ["a.txt"], "steps": 1000, "seed": 7, "batch_tokens": 4096, "documents": "blank"}
    shown = "\n".join(InfoFacts(run="pretrain", settings=settings).lines())
    assert "corpus a.txt" in shown and "steps 1,000" in shown
    assert "batch_tokens" not in shown and "documents" not in shown


def test_info_is_printed_as_a_table_or_json(classifier, output_of):
    facts = json.loads(output_of("info", classifier, "--json"))
    assert facts["labels"] == "x, é, z" and facts["heads"] == "classes"
    assert [line.split()[0] for line in output_of("info", classifier).splitlines()] == [*facts]


def test_a_vocabulary_is_learned_and_its_size_printed(tmp_path, output_of):
    (tmp_path / "t.txt").write_text("the cat sat on the mat and the cat ran\n" * 5)
    summary = json.loads(output_of("vocab", tmp_path / "t.txt", "-o", tmp_path / "v", "--size", "40", "--json"))
    learned = bothways.Tokenizer.load(tmp_path / "v")
    assert summary == {"entries": len(learned), "directory": str(tmp_path / "v")} and len(learned) <= 40
    printed = output_of("vocab", tmp_path / "t.txt", "-o", tmp_path / "w", "--size", "40")
    assert printed == f"{len(learned)} entries in {tmp_path / 'w'}\n"


@pytest.mark.slow
def test_the_whole_workflow_by_commands(tmp_path, output_of):
    words = ["the cat sat", "a dog ran", "the mat", "on and on"]
    text = "\n\n".join("\n".join(f"{words[(i + j) % 4]} {words[(i * j) % 4]}." for j in range(9)) for i in range(30))
    (tmp_path / "text.txt").write_text(text)
    table = "text,label\n" + "".join(f"{words[i % 2]} {i},{'xy'[i % 2]}\n" for i in range(60))
    (tmp_path / "t.csv").write_text(table)
    small = ("--model", "tiny", "--steps", "4", "--vocab-size", "90", "--max-length", "32", "--batch-tokens", "256")
    made = run("pretrain", tmp_path / "text.txt", "-o", tmp_path / "run", *small, "--json")
    assert made.returncode == 0, made.stderr
    summary = json.loads(made.stdout)
    assert summary["model"] == str(tmp_path / "run" / "model") and summary["heldout"]["perplexity"] > 1
    assert 26 < len(bothways.Tokenizer.load(tmp_path / "run" / "model")) <= 90 and "\x1b" not in made.stderr
    tuning = ("finetune", "classify", "--model", tmp_path / "run", "--train", tmp_path / "t.csv", "-o", tmp_path / "c")
    result = json.loads(output_of(*tuning, "--json"))
    named = ["task", "metric", "mean", "std", "n", "failed", "scores", "measured", "split", "model", "interval"]
    named += ["rows", "pooled", "baselines", "verdict", "frozen", "dtype", "readers"]
    assert list(result) == named and result["interval"][0] < result["mean"] + 1e-9 and result["rows"] == 60
    assert result["n"] == 1 and result["scores"] == [result["mean"]] and result["split"] == "folds"
    (tmp_path / "new.txt").write_text("a dog ran\n")
    assert json.loads(output_of("predict", tmp_path / "c", tmp_path / "new.txt"))["label"] in "xy"


@pytest.mark.slow
def test_a_score_on_dev_is_printed_as_selected_on(make_model, tokenizer, tmp_path, output_of):
    checkpoint.save(Checkpoint(make_model("bert", {"masked_words": 0}), tokenizer), tmp_path / "m")
    (tmp_path / "t.csv").write_text("text,label\n" + "".join(f"a cat {n},x\nthe dog {n},y\n" for n in range(10)))
    tuning = ("finetune", "classify", "--model", tmp_path / "m", "--train", tmp_path / "t.csv", "--epochs", "0.1")
    prose = output_of(*tuning, "-o", tmp_path / "a", "--dev", tmp_path / "t.csv")
    assert "\ndev accuracy" in f"\n{prose}" and "one seed" in prose and "selected on this set" in prose
    prose = output_of(*tuning, "-o", tmp_path / "b", "--test", tmp_path / "t.csv", "--seeds", "2")
    assert "\ntest accuracy" in f"\n{prose}" and "over 2 seeds" in prose and "selected on" not in prose


# --- a run stopped, and several processes -----------------------------------------------------------------------------


def pretraining(directory, *more):
    text = "\n\n".join(f"The cat sat on the mat {number} times. Then it ran away.\nSo it goes." for number in range(60))
    (directory / "text.txt").write_text(text, encoding="utf-8")
    arguments = ["pretrain", str(directory / "text.txt"), "--model", "tiny", "--vocab-size", "90", "--max-length", "32"]
    return [*arguments, "--batch-tokens", "256", "--token-store", str(directory / "store"), *more]


def rows_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
def test_a_stopped_run_saves_prints_a_line_and_resumes(tmp_path):
    command = [sys.executable, "-m", "bothways", *pretraining(tmp_path, "-o", str(tmp_path / "run"))]
    run = subprocess.Popen([*command, "--steps", "100000"], stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "run" / "metrics.jsonl"
    while run.poll() is None and not (metrics.exists() and len(metrics.read_bytes()) > 2000):
        time.sleep(0.02)
    run.send_signal(signal.SIGTERM)
    errors = run.communicate()[1]
    assert run.returncode == 130 and "Traceback" not in errors
    step = rows_of(tmp_path / "run")[-1]["step"]
    *_, last = errors.splitlines()
    assert last.startswith("bothways pretrain: stopped ") and f" {step:,};" in last and last.endswith(" --resume")
    assert json.loads((tmp_path / "run" / "bothways.json").read_text())["status"] == "stopped"


@pytest.mark.parametrize("world", [1, 2])
def test_one_of_several_processes_leaves_before_python_is_taken_down(world):
    code = "import atexit, bothways.cli.main as cli; atexit.register(print, 'taken down'); cli.entry()"
    command = [sys.executable, "-c", code, "no-such-verb"]
    ended = subprocess.run(command, env={**os.environ, "WORLD_SIZE": str(world)}, capture_output=True, text=True)
    assert ended.returncode == 2 and "'no-such-verb'" in ended.stderr
    assert ("taken down" in ended.stdout) == (world == 1)


@pytest.mark.slow
@pytest.mark.soak
def test_torchrun_starts_a_run_in_two_processes_that_has_the_losses_of_one(tmp_path):
    flags = ["--steps", "4", "--dropout", "0", "--dtype", "float32"]
    alone = pretraining(tmp_path, "-o", str(tmp_path / "alone"), *flags)
    main.main(alone)
    together = pretraining(tmp_path, "-o", str(tmp_path / "together"), *flags, "--json")
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "bothways",
    ]
    ended = subprocess.run([*launcher, *together], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["heldout"]["perplexity"] > 1  # of one process: two objects are no JSON
    runs = [rows_of(tmp_path / name) for name in ("alone", "together")]
    for one, two in zip(*runs, strict=True):
        assert one["loss"] == pytest.approx(two["loss"], abs=1e-5) and one["tokens"] == two["tokens"]


def test_half_a_character_on_the_command_line_is_read(filler, output_of):
    text = "caf\udce9 the [MASK]"
    assert "caf\\udce9" in output_of("fill", filler, text)
    (first, *_), *_ = json.loads(output_of("fill", filler, text, "--json"))
    assert first["text"].startswith("caf\udce9 the ")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(2e-5, "2e-05"), (1.4e-4, "0.00014"), (0.0, "0"), (0.12345, "0.1235"), (3.0, "3")],
)
def test_small_numbers_keep_their_digits(value, shown):
    assert format_value(value) == shown


@pytest.mark.slow
def test_a_message_names_an_option_that_a_head_ignores(filler, reader, tmp_path, output_of, capsys):
    (tmp_path / "t.txt").write_text("The cat sat.\n\nThe dog ran.\n")
    for model, option, error in ((filler, ("--window", "32"), "window (32)"),
                                 (reader, ("--pair-column", "body"), "column 'body'")):  # fmt: skip
        with pytest.raises(SystemExit) as stopped:
            output_of("evaluate", model, tmp_path / "t.txt", *option)
        assert stopped.value.code == 1 and error in capsys.readouterr().err
    row = {"id": "1", "question": "who", "context": "a cat", "answers": {"text": ["cat"], "answer_start": [2]}}
    (tmp_path / "t.jsonl").write_text(json.dumps(row))
    named = ("--text-column", "question", "--pair-column", "context", "--json")
    assert "exact_match" in json.loads(output_of("evaluate", reader, tmp_path / "t.jsonl", *named))["metrics"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["serve", "m", "--host", "0.0.0.0"], "serve: error: --host (0.0.0.0) is open to other machines; set "),
        (["predict", "m", "--pair", "b"], "predict: error: --pair ('b') is the second text of --text; give both, "),
        (
            ["finetune", "classify", "--train", "t.csv", "-o", "r", "--folds", "3", "--seeds", "2"],
            "finetune classify: error: --folds (3) and --seeds (2) exclude each other",
        ),
        (["predict", "m", "f.txt", "--text", "a"], "predict: error: file (f.txt) and --text ('a') exclude each other"),
        (["fill", "m", "a [MASK]", "--top", "0"], "fill: error: --top (0) must be at least 1"),
    ],
)
def test_a_message_begins_with_the_option_as_it_is_written(words, message, capsys, monkeypatch):
    monkeypatch.delenv("BOTHWAYS_API_KEY", raising=False)
    with pytest.raises(SystemExit):
        main.main(words)
    assert message in capsys.readouterr().err
