"""Any text gets a result for each row, or the command prints a one-line error."""

import json

import numpy as np
import pyarrow.parquet
import pytest

from bothways.cli import main
from bothways.inference.jobs.journal import side_file
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from tests.soaked import in_soak

LABELS = ("O", "B-LOC", "I-LOC")
LONGEST = "a line of five megabytes"
STRANGE = {
    "empty": "",
    "spaces": " \t  \u00a0\u3000 ",
    "control characters": "a\x00\x01\x07 c\x1b[31mat\x7f\x85\u200b\u202e",
    "half a surrogate pair": "a c\ud800at and m\udfffat sat o\ud83dn d\ude00og",
    "a word of a million characters": "a" * 1_000_000,
    LONGEST: ("cat" * 200 + " ") * 8_322,
    "no letter": "\U0001f408\U0010ffff\ufffe\ufdd0" * 9,
}


@pytest.fixture(scope="module")
def models(make_model, tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("models")
    for kind, heads, labels in (
        ("vectors", {}, ()), ("entities", {"tokens": 3}, LABELS), ("labels", {"classes": 3}, LABELS)
    ):  # fmt: skip
        checkpoint.save(Checkpoint(make_model("bert", heads), tokenizer, labels=labels), directory / kind)
    return directory


def run(*arguments):
    main.main([*map(str, arguments), "--dtype", "float32"])


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(name for name in STRANGE if name != LONGEST), *in_soak(LONGEST)])
def test_a_strange_text_between_others_has_a_result_in_every_format(name, models, tmp_path, capsys):
    texts = ["the cat sat", STRANGE[name], "a dog ran"]
    file = tmp_path / "t.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    run("embed", models / "vectors", file, "-o", tmp_path / "v.npy")
    vectors = np.load(tmp_path / "v.npy")
    assert vectors.shape == (3, 24) and np.isfinite(vectors).all()
    for kind in ("entities", "labels"):
        capsys.readouterr()
        run("predict", models / kind, file)
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        run("predict", models / kind, file, "-o", tmp_path / f"{kind}.jsonl")
        run("predict", models / kind, file, "-o", tmp_path / f"{kind}.parquet")
        written = [json.loads(line) for line in (tmp_path / f"{kind}.jsonl").read_text().splitlines()]
        table = pyarrow.parquet.read_table(tmp_path / f"{kind}.parquet").to_pylist()
        assert [row.pop("row") for row in written] == [row.pop("row") for row in table] == [0, 1, 2]
        assert [row.pop("line") for row in written] == [row.pop("line") for row in table] == [1, 2, 3]
        assert rows == written
        for row, other, text in zip(rows, table, texts, strict=True):
            if kind == "labels":
                assert row == other and row["label"] in LABELS
                continue
            assert [entity["text"] for entity in row["entities"]] == [
                text[entity["start"] : entity["end"]] for entity in row["entities"]
            ]
            assert len(json.dumps(row)) == len(json.dumps(other))  # U+FFFD for half a pair, all else the same


@pytest.mark.parametrize("name", [name for name in STRANGE if name != "half a surrogate pair"])
def test_a_strange_line_between_others_is_one_text(name, models, tmp_path):
    lines = ["the cat sat", STRANGE[name], "a dog ran"]
    (tmp_path / "t.txt").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    for ending in ("txt", "jsonl"):
        run("embed", models / "vectors", tmp_path / f"t.{ending}", "-o", tmp_path / f"{ending}.npy")
    assert np.array_equal(np.load(tmp_path / "txt.npy"), np.load(tmp_path / "jsonl.npy"))
    assert len(np.load(tmp_path / "txt.npy")) == 3


@pytest.mark.parametrize(
    ("name", "content", "detail"),
    [
        ("fake.parquet", "text", "fake.parquet: "),
        ("cut.jsonl.gz", "text", "cut.jsonl.gz:1: the file is corrupt"),
        ("empty.txt", "", "empty.txt: empty"),
        ("empty.csv", "", "empty.csv: empty"),
        ("table.csv", "body,more\na,b\n", "table.csv: no column 'text' (there are: body, more)"),
        ("words.md", "text", "'.md'"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_and_leaves_nothing(name, content, detail, models, tmp_path, capsys):
    (tmp_path / name).write_text(content)
    for verb, kind, out in (("embed", "vectors", "v.npy"), ("predict", "labels", "p.parquet")):
        with pytest.raises(SystemExit):
            run(verb, models / kind, tmp_path / name, "-o", tmp_path / out, "--on-error", "skip")
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and error.startswith(f"bothways {verb}: error: ") and detail in error
    assert [place.name for place in tmp_path.iterdir()] == [name]


def test_bytes_that_are_not_utf8_are_an_error_of_one_line_or_set_aside(models, tmp_path, capsys):
    file, out = tmp_path / "t.txt", tmp_path / "v.npy"
    file.write_bytes(b"the cat\n" * 20 + b"a \xf0\x9f\x90 dog\n" + b"sat\n" * 20)
    with pytest.raises(SystemExit):
        run("embed", models / "vectors", file, "-o", out)
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"{file}:21: not UTF-8 at byte 162 of the file" in error
    run("embed", models / "vectors", file, "-o", out, "--on-error", "skip")
    assert len(np.load(out)) == 40 and json.loads(side_file(out).read_text())["row"] == 20
