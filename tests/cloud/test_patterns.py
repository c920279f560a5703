"""Patterns and folders as the input of one output: refused alike, local and remote, before a model is loaded."""

from pathlib import Path

import pytest

from bothways.base.paths import as_path
from bothways.cli.main import main

ONE_OUTPUT = [
    "embed bothways-en-static {} -o vectors.npy",
    "embed bothways-en-static {} -o vectors.jsonl --dry-run",
    "predict bothways-en {} -o labels.csv",
    "predict bothways-en {}",
    "predict bothways-en {} -o next.csv --label-next 1",
]
ONE_FILE = ["check {}", "quantize bothways-en --with {} -o small"]


@pytest.fixture
def places(bucket, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    for name in ("b.txt", "a.txt", "c.csv"):
        Path("in", name).write_text(f"text\n{name} was good\n")
        (as_path(bucket) / "in" / name).put(Path("in", name))
    return [str(tmp_path), bucket]


def refusals(command, places, capsys):
    """The last lines of the messages of local and remote, without the place."""
    lines = []
    for place in places:
        with pytest.raises(SystemExit) as stopped:
            main([word.replace("{}", place) for word in command.split()])
        assert stopped.value.code in (1, 2)
        lines.append(capsys.readouterr().err.splitlines()[-1].replace(place, "PLACE"))
    return lines


@pytest.mark.parametrize(
    "pattern, kind",
    [
        ("in/*.txt", "pattern (2 files)"),
        ("in/a.t?t", "pattern (1 file)"),
        ("in/[ab].txt", "pattern (2 files)"),
        ("in", "folder (3 files)"),
    ],
)
@pytest.mark.parametrize("command", ONE_OUTPUT)
def test_the_line_says_the_way_out(places, command, pattern, kind, capsys):
    local, remote = refusals(command.replace("{}", f"{{}}/{pattern}"), places, capsys)
    way = "" if "--label-next" in command else ", or a directory with --out, in which each file has a part"
    assert local == remote and local.endswith(f"PLACE/{pattern}: a {kind} where one file is read; name one{way}")
    assert {path.name for path in Path().iterdir()} <= {"in", "cache"}


@pytest.mark.parametrize("command", ONE_FILE)
def test_the_line_of_other_verbs_names_the_pattern(places, command, capsys):
    local, remote = refusals(command.replace("{}", "{}/in/*.txt"), places, capsys)
    assert local == remote
    assert local.endswith("PLACE/in/*.txt: a pattern (2 files) where one file is read; name one, or join them first")


@pytest.mark.parametrize("command", [*ONE_OUTPUT, *ONE_FILE])
def test_the_line_of_a_pattern_without_files_says_so(places, command, capsys):
    local, remote = refusals(command.replace("{}", "{}/none/*.txt"), places, capsys)
    assert local == remote and "PLACE/none/*.txt: no " in local and "file" in local


def test_a_directory_as_output_has_a_part_for_each_file(places):
    for number, place in enumerate(places):
        main(["embed", "bothways-en-static", f"{place}/in/*.txt", "-o", f"out{number}"])
    parts = [[file.read_bytes() for file in sorted(Path(f"out{number}").glob("*.parquet"))] for number in range(2)]
    assert len(parts[0]) == 2 and parts[0] == parts[1]


def test_a_name_with_the_characters_of_a_pattern_is_a_file(places):
    for number, place in enumerate(places):
        Path("in/x[1].txt").write_text("a text")
        (as_path(places[1]) / "in/x[1].txt").put(b"a text")
        main(["embed", "bothways-en-static", f"{place}/in/x[1].txt", "-o", f"{number}.jsonl"])
    assert Path("0.jsonl").read_text() == Path("1.jsonl").read_text() != ""
