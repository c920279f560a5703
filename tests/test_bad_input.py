"""User mistakes: one line on standard error that names them, exit status 1 or 2, nothing overwritten."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from bothways.base.errors import InputError
from bothways.cli import main
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Pretrain

TEXT = "The cat sat on the mat.\nThe dog ran.\n\nA dog sat.\nThe cat ran, and ran.\n"
TABLE = "text,label\na cat,x\na dog,y\n"
LABELS = ("x", "y", "z")


@pytest.fixture(scope="module")
def classifier_directory(make_model, tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("classifier") / "model"
    checkpoint.save(Checkpoint(make_model("bert", {"classes": 3}), tokenizer, labels=LABELS), directory)
    return directory


@pytest.fixture(scope="module")
def filler_directory(make_model, tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("filler") / "model"
    checkpoint.save(Checkpoint(make_model("bert", {"masked_words": 0, "next_sentence": 2}), tokenizer), directory)
    return directory


@pytest.fixture
def classifier(classifier_directory, tmp_path):
    return copied(classifier_directory, tmp_path / "classifier")


@pytest.fixture
def filler(filler_directory, tmp_path):
    return copied(filler_directory, tmp_path / "filler")


def copied(source, target):
    target.mkdir()
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


@pytest.fixture
def refused(capsys):
    """Runs a command; returns its only error line, after checking that standard output is empty."""

    def run(*arguments, status=1):
        verb = " ".join(arguments[:2]) if arguments[0] == "finetune" else arguments[0]
        with pytest.raises(SystemExit) as stopped:
            main.main([*map(str, arguments)])
        output = capsys.readouterr()
        assert stopped.value.code == status, output.err
        assert output.out == ""
        errors = [line for line in output.err.splitlines() if "error:" in line]
        assert errors == output.err.splitlines()[-1:], output.err  # messages of the run before the error may come first
        assert errors[0].startswith(f"bothways {verb}: error: ")
        assert "Traceback" not in output.err and "Errno" not in output.err
        return errors[0]

    return run


@pytest.fixture
def usage(capsys):
    """Runs a command with an impossible flag; returns the message of the flag library on standard error."""

    def run(*arguments):
        with pytest.raises(SystemExit) as stopped:
            main.main([*map(str, arguments)])
        output = capsys.readouterr()
        assert stopped.value.code == 2 and output.out == "" and "Traceback" not in output.err
        return output.err

    return run


def write(file, content):
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def contents(directory):
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def short(corpus, out):
    return (
        "pretrain",
        corpus,
        "-o",
        out,
        "--model",
        "tiny",
        "--steps",
        "1",
        "--vocab-size",
        "120",
        "--max-length",
        "24",
    )


# --- files of text
# --------------------------------------------------------------------------------------------------------


def commands_on(file, filler, classifier, out):
    """A command of every verb that reads a file."""
    commands = [("predict", classifier, file), ("embed", filler, file, "-o", out.with_suffix(".npy"))]
    if file.suffix in (".txt", ".jsonl"):
        commands += [("vocab", file, "-o", out), short(file, out), ("evaluate", filler, file, "--documents", "line")]
    if file.suffix in (".csv", ".jsonl"):
        tuning = ("finetune", "classify", "--model", filler, "-o", out, "--train")
        commands += [("evaluate", classifier, file), (*tuning, file)]
        good = write(file.with_name("good.csv"), TABLE)
        commands += [(*tuning, good, "--dev", file), (*tuning, good, "--dev", good, "--test", file)]
    return commands


@pytest.mark.parametrize("name", ["none.txt", "none.jsonl", "none.csv", "none.parquet"])
def test_a_file_that_is_not_there_is_named(name, filler, classifier, refused, tmp_path):
    for command in commands_on(tmp_path / name, filler, classifier, tmp_path / "out"):
        assert f"{name}: no such file" in refused(*command)
        assert not (tmp_path / "out").exists(), command


@pytest.mark.parametrize("name", ["empty.txt", "empty.jsonl", "empty.csv", "empty.tsv"])
def test_an_empty_file_is_named(name, filler, classifier, refused, tmp_path):
    file = write(tmp_path / name, "")
    for command in commands_on(file, filler, classifier, tmp_path / "out"):
        assert f"{name}: empty" in refused(*command)
        assert not (tmp_path / "out").exists(), command


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("bad.txt", b"line one\nline "),
        ("bad.jsonl", b'{"text": "a", "label": "x"}\n{"text": "'),
        ("bad.csv", b"text,label\na,x\n"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_utf8_is_named_with_the_byte(name, start, filler, classifier, refused, tmp_path):
    file = write(tmp_path / name, start + b"\xe9t\xe9\n")
    line = start.count(b"\n") + 1
    for command in commands_on(file, filler, classifier, tmp_path / "out"):
        assert f"{name}:{line}: not UTF-8 at byte {len(start)} of the file" in refused(*command)
        assert not (tmp_path / "out").exists(), command


@pytest.mark.parametrize(
    ("name", "content", "location", "value"),
    [
        ("bad.jsonl", '{"text": "a", "label": "x"}\n{"text": \n', ": row 1 (line 2): ", "valid JSON"),
        ("list.jsonl", '{"text": "a", "label": "x"}\n["a"]\n', ": row 1 (line 2): ", "found list"),
        ("ragged.csv", "text,label\na,x\nb,y,z\n", ": row 1 (line 3): ", "3 columns"),
        ("short.tsv", "text\tlabel\na\tx\nb\n", ": row 1 (line 3): ", "1 column"),
        (
            "null.jsonl",
            '{"text": "a", "label": "x"}\n{"text": null, "label": "x"}\n',
            ": row 1 (line 2): ",
            "'text' is missing",
        ),
        ("gap.jsonl", '{"text": "a", "label": "x"}\n{"text": "b"}\n', ": row 1 (line 2): ", "'label' is missing"),
        ("header.csv", "text,label\n", ": ", "empty"),
        ("words.md", "text", ": ", "'.md'"),
        ("none", "text", ": ", "'none'"),
        ("fake.parquet", "text", ": ", "Parquet"),
        ("lines.txt", "text\n", ": ", ".txt has no labels"),
    ],
)
def test_a_table_that_cannot_be_read_is_named_with_the_line(
    name, content, location, value, classifier, refused, tmp_path
):
    file = write(tmp_path / name, content)
    error = refused("evaluate", classifier, file)
    assert f"{file}{location}" in error and value in error


def test_a_directory_in_place_of_a_file_is_named(classifier, refused, tmp_path):
    (tmp_path / "folder.csv").mkdir()
    assert "folder.csv: a directory; name files" in refused("evaluate", classifier, tmp_path / "folder.csv")


@pytest.mark.parametrize("missing", ["text", "label"])
def test_a_missing_column_is_named_with_those_there_are(missing, filler, classifier, refused, tmp_path):
    file = write(tmp_path / "table.csv", TABLE.replace(missing, "other"))
    there = TABLE.replace(missing, "other").splitlines()[0].replace(",", ", ")
    expected = f"table.csv: no column '{missing}' (there are: {there})"
    assert expected in refused("evaluate", classifier, file)
    tuning = ("finetune", "classify", "--model", filler, "--train", file, "-o", tmp_path / "out")
    error = refused(*tuning)
    assert expected in error and f"--{missing}-column" in error
    assert not (tmp_path / "out").exists()


def test_a_missing_column_of_a_corpus_is_named(refused, tmp_path):
    file = write(tmp_path / "corpus.jsonl", '{"body": "a"}\n')
    assert "corpus.jsonl: row 0 (line 1): no column 'text' (there are: body)" in refused(
        "vocab", file, "-o", tmp_path / "out"
    )


def test_a_column_some_rows_lack_is_named(classifier, refused, tmp_path):
    rows = [{"text": "a", "pair": "b", "label": "x"}, {"text": "a", "label": "x"}]
    file = write(tmp_path / "pairs.jsonl", "\n".join(map(json.dumps, rows)))
    assert "pairs.jsonl: row 1 (line 2): 'pair' is missing" in refused("evaluate", classifier, file)
    assert "pairs.jsonl: row 1 (line 2): 'pair' is missing" in refused("predict", classifier, file)


# --- labels and classes
# ---------------------------------------------------------------------------------------------------


def test_an_unknown_label_is_reported_with_the_known_ones(classifier, refused, tmp_path):
    file = write(tmp_path / "table.csv", TABLE + "a bird,w\n")
    error = refused("evaluate", classifier, file)
    assert "table.csv: row 2 (line 4): " in error and "'w'" in error and "x, y, z" in error


def test_one_class_only_is_refused(filler, refused, tmp_path):
    file = write(tmp_path / "table.csv", "text,label\n" + "".join(f"a {row},x\n" for row in range(30)))
    error = refused("finetune", "classify", "--model", filler, "--train", file, "-o", tmp_path / "out")
    assert "table.csv: only one class ('x')" in error and not (tmp_path / "out").exists()


def test_too_few_rows_are_refused(filler, refused, tmp_path):
    file = write(tmp_path / "table.csv", TABLE)
    error = refused("finetune", "classify", "--model", filler, "--train", file, "-o", tmp_path / "out")
    assert "2 rows of 2 classes are too few" in error and "--dev" in error and not (tmp_path / "out").exists()


def test_a_text_without_a_mask_is_refused(filler, refused):
    assert "no [MASK] in 'The cat.'" in refused("fill", filler, "The cat.")


def test_the_error_for_a_missing_head_lists_the_existing_ones(filler, classifier, refused, tmp_path):
    for out in ((), ("-o", tmp_path / "p.jsonl")):
        error = refused("predict", filler, write(tmp_path / "a.txt", "a\n"), *out)
        assert "no head for text classes (heads: masked_words, next_sentence)" in error and "rows" not in error
    assert "no head for masked words (heads: classes)" in refused("fill", classifier, "a [MASK]")


def test_a_corpus_of_one_document_is_refused(refused, tmp_path):
    file = write(tmp_path / "corpus.txt", "One.\nTwo.\n")
    assert "one document" in refused(*short(file, tmp_path / "out"))


def test_training_text_of_one_document_has_no_pairs(refused, tmp_path):
    file = write(tmp_path / "corpus.txt", "\n\n".join(["The cat sat on the mat.\n" * 30] * 2))
    assert "at least 2 documents, found 1" in refused(*short(file, tmp_path / "out"), "--pairs", "next")


@pytest.mark.slow
def test_held_out_text_too_short_to_measure_on_is_refused(refused, tmp_path):
    file, new = write(tmp_path / "corpus.txt", TEXT), write(tmp_path / "new.txt", "cat\n")
    error = refused(*short(file, tmp_path / "out"), "--heldout", new)
    assert "too short" in error


# --- vocabularies
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda lines: [line for line in lines if line != "[MASK]"], "lacks [MASK]"),
        (lambda lines: [*lines, lines[7]], "repeats line 8"),
        (lambda lines: [], ": empty;"),
    ],
)
def test_a_vocabulary_that_cannot_be_used_is_named(change, expected, filler, refused, tmp_path):
    (filler / "tokenizer.json").unlink()
    file = filler / "vocab.txt"
    lines = change(file.read_text(encoding="utf-8").splitlines())
    file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    for command in (
        ("fill", filler, "a [MASK]"),
        ("info", filler),
        ("embed", filler, write(tmp_path / "a.txt", "a\n"), "-o", tmp_path / "a.npy"),
        (*short(write(tmp_path / "corpus.txt", TEXT * 9), tmp_path / "out"), "--tokenizer", file),
    ):
        error = refused(*command)
        assert "vocab.txt" in error and expected in error, command
    assert not (tmp_path / "a.npy").exists()
    assert not (tmp_path / "out").exists()


def test_a_vocabulary_too_small_for_its_alphabet_is_refused(refused, tmp_path):
    file = write(tmp_path / "corpus.txt", TEXT)
    refused("vocab", file, "-o", tmp_path / "out", "--size", "3")
    assert not (tmp_path / "out").exists()


# --- checkpoints
# ----------------------------------------------------------------------------------------------------------


def reshape(directory):
    state = load_file(directory / "model.safetensors")
    state["bert.embeddings.word_embeddings.weight"] = state["bert.embeddings.word_embeddings.weight"][:96].clone()
    save_file(state, directory / "model.safetensors", metadata={"format": "pt"})


def set_config(directory, **changes):
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **changes}))


def cut(directory, share):
    weights = (directory / "model.safetensors").read_bytes()
    (directory / "model.safetensors").write_bytes(weights[: int(len(weights) * share)])


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda directory: cut(directory, 0.5), "model.safetensors: broken"),
        (lambda directory: cut(directory, 0), "model.safetensors: broken"),
        (lambda directory: write(directory / "model.safetensors", b"\xff" * 4000), "model.safetensors: broken"),
        (lambda directory: (directory / "model.safetensors").unlink(), "model.safetensors or pytorch_model.bin"),
        (lambda directory: (directory / "config.json").unlink(), "config.json not found"),
        (lambda directory: write(directory / "config.json", '{"model_type": '), "config.json:1: "),
        (lambda directory: set_config(directory, model_type="llama"), "model_type 'llama'"),
        (lambda directory: set_config(directory, hidden_size="24"), "hidden_size '24'"),
        (lambda directory: set_config(directory, num_attention_heads=5), "divisible"),
        (reshape, "word_embeddings.weight is [96, 24]"),
        (lambda directory: set_config(directory, vocab_size=96), "[96, 24]"),
    ],
)
@pytest.mark.parametrize("verb", ["fill", "info", "finetune"])
def test_a_checkpoint_that_cannot_be_used_is_named(verb, spoil, expected, filler, refused, tmp_path):
    spoil(filler)
    before = contents(filler)
    table = write(tmp_path / "table.csv", TABLE)
    command = {
        "fill": ("fill", filler, "a [MASK]"),
        "info": ("info", filler),
        "finetune": (
            "finetune",
            "classify",
            "--model",
            filler,
            "--train",
            table,
            "--dev",
            table,
            "-o",
            tmp_path / "out",
        ),
    }[verb]
    assert expected in refused(*command)
    assert contents(filler) == before and not (tmp_path / "out").exists()


def test_a_checkpoint_that_is_not_there_is_named(refused, tmp_path):
    for command in (("info", tmp_path / "no"), ("fill", tmp_path / "no", "[MASK]"), ("predict", tmp_path / "no", "-")):
        assert f"{tmp_path / 'no'}: no such directory" in refused(*command)


def test_a_missing_tokenizer_is_reported(make_model, refused, tmp_path):
    checkpoint.save(Checkpoint(make_model("bert", {"masked_words": 0})), tmp_path / "model")
    assert "no tokenizer files" in refused("fill", tmp_path / "model", "a [MASK]")


# --- settings
# -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags",
    [
        "--steps 0",
        "--steps -3",
        "--minutes 0",
        "--minutes -1",
        "--max-length 4",
        "--max-length 9000",
        "--seed -1",
        "--evaluate-every 0",
        "--learning-rate -1",
        "--mask-rate 0",
        "--mask-rate 1.5",
        "--warmup -0.5",
        "--warmup 1.5",
        "--dropout 1",
        "--batch-tokens 0",
        "--vocab-size 0",
    ],
)
def test_a_setting_out_of_range_is_named_before_anything_is_written(flags, usage, tmp_path):
    file = write(tmp_path / "corpus.txt", "\n".join([TEXT] * 9))
    name, value = flags.split()
    error = usage("pretrain", file, "-o", tmp_path / "out", "--model", "tiny", name, value)
    assert f"error: {name} ({float(value):g})" in error.replace(".0)", ")")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "flags",
    ["--seeds 0", "--seed -1", "--epochs 0", "--window 5", "--batch-tokens 0", "--learning-rate -1", "--dropout 1",
     "--warmup 2"],
)  # fmt: skip
def test_a_setting_of_fine_tuning_out_of_range_is_named(flags, filler, usage, tmp_path):
    table = write(tmp_path / "table.csv", TABLE)
    name, value = flags.split()
    command = ("finetune", "classify", "--model", filler, "--train", table, "--dev", table, "-o", tmp_path / "out")
    error = usage(*command, name, value)
    assert f"error: {name} ({float(value):g})" in error.replace(".0)", ")")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("verb", ["pretrain", "evaluate"])
def test_the_error_for_an_unsupported_language_lists_the_supported_ones(verb, filler, usage, tmp_path):
    text = write(tmp_path / "text.txt", TEXT)
    command = ("pretrain", text, "-o", tmp_path / "out") if verb == "pretrain" else ("evaluate", filler, text)
    for code in ("klingon", "EN", ""):
        error = " ".join(usage(*command, "--language", code).replace("│", " ").split())
        assert f"language ({code})" in error and ", de, el, en, es," in error
    assert not (tmp_path / "out").exists()


def test_no_words_a_mask_are_refused(filler, usage):
    assert "top (0) must be at least 1" in usage("fill", filler, "a [MASK]", "--top", "0")


def test_no_files_are_refused(filler, usage, tmp_path):
    for command in (("vocab", "-o", tmp_path / "out"), ("pretrain", "-o", tmp_path / "out")):
        assert "corpus is empty; name at least one file" in usage(*command)
    assert "file is empty; name at least one file" in usage("evaluate", filler)
    assert not (tmp_path / "out").exists()


def test_settings_out_of_range_are_refused_in_python_too(tmp_path):
    with pytest.raises(InputError, match=r"mask_rate \(1\.5\) .*0\.01 to 1"):
        Pretrain(corpus=(tmp_path,), out=tmp_path, mask_rate=1.5)


# --- existing output
# --------------------------------------------------------------------------------------------


def commands_that_write(out, filler, tmp_path):
    corpus, table = write(tmp_path / "corpus.txt", TEXT * 9), write(tmp_path / "table.csv", TABLE)
    return {
        "vocab": ("vocab", corpus, "-o", out),
        "pretrain": short(corpus, out),
        "finetune": ("finetune", "classify", "--model", filler, "--train", table, "--dev", table, "-o", out),
        "demo": ("demo", "-o", out),
    }


@pytest.mark.parametrize("verb", ["vocab", "pretrain", "finetune", "demo"])
def test_a_directory_that_holds_something_else_is_left_alone(verb, filler, refused, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    write(out / "thesis.tex", "years of work")
    error = refused(*commands_that_write(out, filler, tmp_path)[verb])
    assert "thesis.tex" in error
    assert contents(out) == {"thesis.tex": b"years of work"}


@pytest.mark.parametrize("verb", ["vocab", "pretrain", "finetune", "demo"])
def test_a_file_in_place_of_a_directory_is_left_alone(verb, filler, refused, tmp_path):
    out = write(tmp_path / "out", "mine")
    assert "out: " in refused(*commands_that_write(out, filler, tmp_path)[verb])
    assert out.read_text() == "mine"


@pytest.mark.parametrize("verb", ["pretrain", "finetune", "demo"])
def test_a_run_is_not_written_over(verb, filler, refused, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    write(out / "bothways.json", '{"verb": "pretrain", "status": "done"}')
    assert "out: already contains a run" in refused(*commands_that_write(out, filler, tmp_path)[verb])
    assert contents(out) == {"bothways.json": b'{"verb": "pretrain", "status": "done"}'}


def test_a_vocabulary_is_not_written_over(filler, refused, tmp_path):
    before = contents(filler)
    assert "filler" in refused("vocab", write(tmp_path / "a.txt", TEXT), "-o", filler)
    assert contents(filler) == before


def test_vectors_are_not_written_over_nor_under_another_name(filler, refused, tmp_path):
    texts, old = write(tmp_path / "a.txt", "a\n"), write(tmp_path / "old.npy", "old")
    assert "old.npy: already exists" in refused("embed", filler, texts, "-o", old)
    assert old.read_text() == "old"
    assert "vectors.bin: vectors are written as .npy" in refused("embed", filler, texts, "-o", tmp_path / "vectors.bin")


def test_vectors_into_a_directory_that_is_not_there_are_refused(filler, refused, tmp_path):
    error = refused("embed", filler, write(tmp_path / "a.txt", "a\n"), "-o", tmp_path / "no" / "a.npy")
    assert f"{tmp_path / 'no'}: no such directory" in error


# --- a full disk
# ----------------------------------------------------------------------------------------------------------

LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
from bothways.cli.main import main
main(sys.argv[2:])
"""


def with_files_of_at_most(size, *arguments):
    command = [sys.executable, "-c", LIMITED, str(size), *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=Path(main.__file__).parents[2])
    assert run.returncode == 1, run.stderr
    assert run.stdout == "" and "Traceback" not in run.stderr
    *messages, error = run.stderr.splitlines()
    assert not any("error" in line for line in messages)
    return error


@pytest.mark.slow
def test_a_disk_too_full_for_vectors_leaves_no_half_file(filler, tmp_path):
    texts = write(tmp_path / "a.txt", "a cat\n" * 50)
    before = contents(tmp_path)
    error = with_files_of_at_most(2000, "embed", filler, texts, "-o", tmp_path / "a.npy")
    assert error.startswith("bothways embed: error: ")
    assert contents(tmp_path) == before


@pytest.mark.slow
def test_a_full_disk_is_a_one_line_error_and_keeps_intact_files(tmp_path):
    corpus = write(tmp_path / "corpus.txt", "\n\n".join(["The cat sat on the mat.\n" * 30] * 3))
    error = with_files_of_at_most(200_000, *short(corpus, tmp_path / "out"))
    assert error.startswith("bothways pretrain: error: state.safetensors could not be written")
    assert not (tmp_path / "out" / "model").exists()
    assert json.loads((tmp_path / "out" / "bothways.json").read_text())["steps"] == 1
    assert not [name for name in contents(tmp_path / "out") if name.startswith(".")]


def test_a_disk_too_full_to_save_again_leaves_the_old_checkpoint(classifier, capsys, monkeypatch):
    loaded = checkpoint.load(classifier)
    before = contents(classifier)

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(OSError, match=r"could not be written"):
        checkpoint.save(replace(loaded, labels=("u", "v", "w")), classifier)
    assert contents(classifier) == before


# --- in a process of its own
# ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_program_prints_one_line_and_exits_with_1(filler, tmp_path):
    command = [sys.executable, "-m", "bothways", "embed", str(filler), str(tmp_path / "no.txt"), "-o", "a.npy"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith(f"bothways embed: error: {tmp_path / 'no.txt'}: no such file")
    assert run.stderr.count("\n") == 1 and run.stderr.endswith("\n")


@pytest.mark.slow
def test_standard_input_that_is_not_utf8_is_named_with_its_line(classifier):
    command = [sys.executable, "-m", "bothways", "predict", str(classifier), "-"]
    run = subprocess.run(command, input=b"a cat\nsome \xff\n", capture_output=True)
    assert (run.returncode, run.stdout) == (1, b"")
    error = run.stderr.decode()
    assert error.startswith("bothways predict: error: line 2 of standard input: ") and "UTF-8 at byte 5" in error
    assert error.count("\n") == 1


def test_vectors_are_written_whole(filler, tmp_path, capsys):
    main.main(["embed", str(filler), str(write(tmp_path / "a.txt", "a\nb\n")), "-o", str(tmp_path / "a.npy")])
    assert np.load(tmp_path / "a.npy").shape == (2, 24)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.npy", "a.txt", "filler"]
