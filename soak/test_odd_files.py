"""The odd files of tests/text/rows through the verbs themselves: the same rows, numbers and labels in all."""

import csv
import json

import numpy as np
import pytest

from bothways.cli.main import main
from tests.text.rows.test_odd_files import BROKEN_ROWS, READABLE, REFUSED


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A classifier of the labels a and b."""
    folder = tmp_path_factory.mktemp("classifier")
    (folder / "train.csv").write_text(
        "text,label\n" + "".join(f"{'ab'[row % 2]} text {row},{'ab'[row % 2]}\n" for row in range(24))
    )
    main(["finetune", "classify", "--train", str(folder / "train.csv"), "-o", str(folder / "run"), "--seed", "1"])
    return folder / "run"


@pytest.fixture
def verb(capsys):
    """Runs a verb, and returns its JSON."""

    def run(*arguments):
        capsys.readouterr()
        main([*map(str, arguments), "--json"])
        return json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("name", READABLE)
def test_every_verb_reads_the_same_rows(name, classifier, verb, tmp_path):
    content, expected = READABLE[name]
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())

    assert verb("embed", file, "-o", tmp_path / "v.npy")["vectors"] == len(np.load(tmp_path / "v.npy")) == len(expected)
    assert verb("check", file, "-o", tmp_path / "check")["rows"] == len(expected)
    assert "accuracy" in verb("evaluate", classifier, file)["metrics"]

    has_usual_name = name not in ("other-column-names.csv", "capital-names.csv")
    keep = ["--keep-columns", "text"] if has_usual_name else []
    assert verb("predict", classifier, file, "-o", tmp_path / "p.csv", *keep)["predictions"] == len(expected)
    with (tmp_path / "p.csv").open(encoding="utf-8-sig", newline="") as written:
        rows = [*csv.DictReader(written)]
    assert not keep or [row["text"] for row in rows] == [text for text, _ in expected]


@pytest.mark.parametrize("name", BROKEN_ROWS | REFUSED)
def test_every_verb_names_the_same_mistake(name, classifier, capsys, tmp_path):
    content, parts = (BROKEN_ROWS | REFUSED)[name]
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    for arguments in (
        ["embed", file, "-o", tmp_path / "v.npy"],
        ["predict", classifier, file, "-o", tmp_path / "p.csv"],
        ["evaluate", classifier, file],
        ["finetune", "classify", "--train", file, "-o", tmp_path / "run"],
    ):
        with pytest.raises(SystemExit) as stopped:
            main([*map(str, arguments)])
        message = capsys.readouterr().err
        part = parts if isinstance(parts, str) else parts[0]
        assert stopped.value.code == 1 and part in message and str(file) in message, (arguments, message)
