"""Inputs and outputs are local or in object storage: other places are refused by name, before anything is read."""

from pathlib import Path

import pytest

from bothways.base.errors import InputError
from bothways.base.paths import as_path
from bothways.cli.main import main
from bothways.settings import Classify, Embed, Pretrain


@pytest.mark.parametrize("place", ["hdfs://host/train.csv", "https://example.org/a.jsonl", Path("abfs://b/x")])
def test_other_places_are_refused_by_name(place):
    scheme = str(place).partition(":")[0]
    with pytest.raises(InputError, match=rf"^{scheme}://[^/].*; copy it to a local path"):
        Classify(train=place, out="run")
    with pytest.raises(InputError, match=rf"^{scheme}://"):
        Pretrain(corpus=("a.txt", place), out="run")
    with pytest.raises(InputError, match=rf"^{scheme}://"):
        Embed(file="a.txt", out=place)


@pytest.mark.parametrize(
    "place", ["a:b.csv", "C:/texts/a.csv", "./s3:/x", "a/b.csv", "hf:owner/name", "owner/name@main"]
)
def test_other_paths_stay_as_they_are(place):
    assert as_path(place) == Path(place)


def test_a_command_line_names_the_place_as_it_was_typed(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["finetune", "classify", "--train", "hdfs://host/train.csv", "--out", "run"])
    error = capsys.readouterr().err
    assert stopped.value.code in (1, 2) and "hdfs://host/train.csv: " in error and not (tmp_path / "run").exists()
