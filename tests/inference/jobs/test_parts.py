"""Large jobs in named parts: the same bytes whatever the number of processes and however often they are killed."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet
import pytest

from bothways.base.device import num_threads
from bothways.base.errors import InputError
from bothways.inference.jobs import blocks, estimate, facts, verbs
from bothways.inference.jobs import part as job_part
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.scale import part, parts, plan
from bothways.scale.object_storage import CloudPath, Status
from bothways.settings import Embed, Predict
from bothways.text.tokenizer.worker_processes import in_order

WORDS = "the cat sat on a mat and dogs ran".split()
STATIC = "bothways-en-static"  # whose processes start without torch


@pytest.fixture(scope="module")
def models(make_model, tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("models")
    for kind, heads, labels in (("vectors", {}, ()), ("labels", {"classes": 3}, ("x", "é", "z"))):
        checkpoint.save(Checkpoint(make_model("bert", heads), tokenizer, labels=labels), directory / kind)
    return directory


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(facts, "num_cores", lambda: 2)


@pytest.fixture
def folder(tmp_path):
    """A folder of 5 tables, in which every third text has a line end; and one below it."""
    (tmp_path / "in" / "below").mkdir(parents=True)
    for number in range(5):
        write_table(tmp_path / "in" / ("below" if number == 2 else "") / f"{number}.csv", number, 7 + number)
    return tmp_path / "in"


def write_table(file, first, rows):
    with file.open("w", newline="") as opened:
        table = csv.writer(opened)
        table.writerow(["text", "id"])
        for n in range(rows):
            table.writerow([f"{WORDS[n % 9]}{chr(10) if n % 3 else ' '}{WORDS[(n * first) % 9]} mat", f"{first}-{n}"])


def embed(models, file, out, *, model=None, **options):
    """model: in place of a small encoder."""
    model = model or models / "vectors"
    return verbs.embed(Embed(model=model, file=str(file), out=out, text_column="text", dtype="float32", **options))


def contents(out):
    return {file.name: file.read_bytes() for file in Path(out).glob("part-*")}


def manifest(out):
    return json.loads((out / "_manifest.json").read_text())


def test_parts_hold_the_rows_of_each_file_and_a_table_reader_reads_the_directory(models, folder, tmp_path):
    journal, width = embed(models, folder, tmp_path / "out")
    table = pyarrow.parquet.read_table(tmp_path / "out")
    assert journal.results == table.num_rows == sum(range(7, 12)) and width == 24
    names = ["0.csv", "1.csv", "3.csv", "4.csv", "below/2.csv"]
    assert [record["file"] for record in manifest(tmp_path / "out")["parts"]] == names
    for name in names:
        embed(models, folder / name, tmp_path / "one.npy")
        rows = table.filter(pyarrow.compute.equal(table["file"], name))
        assert rows["row"].to_pylist() == [*range(rows.num_rows)]
        np.testing.assert_array_equal(np.stack(rows["vector"].to_numpy()), np.load(tmp_path / "one.npy"))
        (tmp_path / "one.npy").unlink()
    assert not (tmp_path / "out" / "_work").exists()


@pytest.mark.slow
def test_two_processes_write_the_bytes_of_one(models, folder, tmp_path, monkeypatch):
    embed(models, folder, tmp_path / "one", model=STATIC)
    embed(models, folder, tmp_path / "two", model=STATIC, workers=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two") and len(contents(tmp_path / "one")) == 5
    processes = {record["process"] for record in manifest(tmp_path / "two")["parts"]}
    assert processes and os.getpid() not in processes
    monkeypatch.setattr(blocks, "ROWS", 4)
    settings = dict(model=models / "labels", file=str(folder / "4.csv"), dtype="float32", keep_columns="id")
    verbs.predict(Predict(out=tmp_path / "one.csv", **settings))
    verbs.predict(Predict(out=tmp_path / "two.csv", workers=2, **settings))
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()


def test_a_large_file_is_cut_between_rows_and_read_on_from_part_to_part(models, tmp_path, monkeypatch):
    write_table(tmp_path / "big.csv", 1, 50)
    monkeypatch.setattr(plan, "PART_BYTES", 200)
    opened, plan_job = [], job_part.plan_job
    monkeypatch.setattr(job_part, "plan_job", lambda *arguments: opened.append(0) or plan_job(*arguments))
    embed(models, tmp_path / "big.csv", tmp_path / "out")
    records = manifest(tmp_path / "out")["parts"]
    assert len(records) > 2 and sum(record["rows"] for record in records) == 50
    ends = [record["first_row"] + record["rows"] for record in records]
    assert [record["first_row"] for record in records] == [0, *ends[:-1]] and ends[-1] == 50
    assert len(opened) == 3  # for the settings, the plan and the parts
    embed(models, tmp_path / "big.csv", tmp_path / "whole.npy")
    table = pyarrow.parquet.read_table(tmp_path / "out")
    assert table.column_names == ["row", "vector"] and table["row"].to_pylist() == [*range(50)]
    np.testing.assert_allclose(np.stack(table["vector"].to_numpy()), np.load(tmp_path / "whole.npy"), atol=1e-6)


def test_a_large_parquet_is_cut_by_its_number_of_rows(models, tmp_path, monkeypatch):
    pyarrow.parquet.write_table(pyarrow.table({"text": [f"the cat {n}" for n in range(40)]}), tmp_path / "t.parquet")
    monkeypatch.setattr(plan, "PART_ROWS", 15)
    monkeypatch.setattr(plan, "PART_BYTES", (tmp_path / "t.parquet").stat().st_size - 1)
    embed(models, tmp_path / "t.parquet", tmp_path / "out")
    assert [record["rows"] for record in manifest(tmp_path / "out")["parts"]] == [15, 15, 10]


def test_predictions_in_parts_keep_columns_and_list_skipped_rows(models, folder, tmp_path):
    with (folder / "0.csv").open("a") as opened:
        opened.write("too,many,columns\n")
    settings = dict(model=models / "labels", file=str(folder), out=tmp_path / "out", dtype="float32")
    with pytest.raises(InputError, match=r"0\.csv: row 7 .*--on-error skip"):
        verbs.predict(Predict(**settings))
    journal = verbs.predict(Predict(**settings, on_error="skip", resume=True))
    assert journal.set_aside == 1 and journal.rows == sum(range(7, 12)) + 1
    (listed,) = (tmp_path / "out" / "_skipped").iterdir()
    assert json.loads(listed.read_text())["row"] == 7 and listed.name == "part-00000-of-00005.jsonl"
    table = pyarrow.parquet.read_table(tmp_path / "out")
    assert {"row", "file", "line", "id", "label"} <= {*table.column_names}
    assert table["id"][0].as_py() == "0-0" and table["line"][1].as_py() == 3


@pytest.fixture
def begun(models, folder, tmp_path, monkeypatch):
    """The options of a job that was stopped after two parts."""
    real, count = parts.compute_part, iter(range(9))
    monkeypatch.setattr(parts, "compute_part", lambda task: real(task) if next(count) < 2 else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        embed(models, folder, tmp_path / "out")
    monkeypatch.setattr(parts, "compute_part", real)
    return dict(models=models, file=folder, out=tmp_path / "out")


def test_a_stopped_job_computes_only_the_parts_that_are_missing(begun, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="was begun; continue with --resume"):
        embed(**begun)
    before, computed, real = contents(tmp_path / "out"), [], parts.compute_part
    assert len(before) == 2
    monkeypatch.setattr(parts, "compute_part", lambda task: computed.append(task.name) or real(task))
    embed(**begun, resume=True)
    assert len(computed) == 3 and not {*computed} & {name.removesuffix(".parquet") for name in before}
    embed(**{**begun, "out": tmp_path / "whole"})
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    with pytest.raises(InputError, match="is complete"):
        embed(**begun, resume=True)


def test_another_input_or_other_settings_are_refused(begun, folder):
    with pytest.raises(InputError, match=r"planned with other settings \(normalize: True -> False\)"):
        embed(**begun, resume=True, normalize=False, mixed=True)
    with (folder / "below" / "2.csv").open("a") as opened:
        opened.write("one more,2-9\n")
    with pytest.raises(InputError, match=r"input has changed .*\(below/2\.csv\)"):
        embed(**begun, resume=True)


def test_an_input_that_changes_while_it_is_read_is_refused(models, folder, tmp_path, monkeypatch):
    real = part.compute_block

    def changing(*arguments):
        os.utime(folder / "1.csv", ns=(1, 1))
        return real(*arguments)

    monkeypatch.setattr(part, "compute_block", changing)
    with pytest.raises(InputError, match=r"1\.csv: has changed while"):
        embed(models, folder, tmp_path / "out")
    assert len(contents(tmp_path / "out")) == 1


def test_another_machine_is_refused_or_accepted_and_named(begun, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "other")
    with pytest.raises(InputError, match=r"planned on another machine \(processor: .*'other'\).*--mixed"):
        embed(**begun, resume=True)
    embed(**begun, resume=True, mixed=True)
    stored = manifest(tmp_path / "out")
    assert stored["is_mixed"] and sum("other" in record["differs"] for record in stored["parts"]) == 3


def test_a_part_that_another_process_is_at_is_left_to_it(begun, tmp_path, monkeypatch):
    import fcntl

    held, real = [], part.open_output

    def busy(out, *arguments):
        if not held:  # as another process would
            held.append(out.with_name(f".{out.name}.partial").open("ab"))
            fcntl.flock(held[0], fcntl.LOCK_EX)
        return real(out, *arguments)

    monkeypatch.setattr(part, "open_output", busy)
    with pytest.raises(InputError, match="another command is writing 1 of the parts"):
        embed(**begun, resume=True)
    held[0].close()
    assert len(contents(tmp_path / "out")) == 4
    embed(**begun, resume=True)
    assert len(contents(tmp_path / "out")) == 5


def test_a_part_that_is_there_with_other_bytes_is_named_or_kept(begun, tmp_path):
    other = tmp_path / "out" / "part-00003-of-00005.parquet"
    other.write_bytes(b"other bytes")
    with pytest.raises(InputError, match=r"part-00003-of-00005\.parquet: was computed before, with other bytes"):
        embed(**begun, resume=True)
    embed(**begun, resume=True, mixed=True)
    assert other.read_bytes() == b"other bytes"
    record = next(one for one in manifest(tmp_path / "out")["parts"] if one["part"] == other.stem)
    assert record["bytes"] == 11


def test_what_has_no_parts_is_refused_with_a_way_out(models, folder, tmp_path):
    with pytest.raises(InputError, match="-: is read as one stream.*an output file"):
        embed(models, "-", tmp_path / "out")
    with pytest.raises(InputError, match="is in the input"):
        embed(models, folder, folder / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(InputError, match="full: has other files"):
        embed(models, folder, tmp_path / "full")
    with pytest.raises(InputError, match="mixed and ray are for the parts of a directory"):
        embed(models, folder / "0.csv", tmp_path / "v.npy", mixed=True)
    with pytest.raises(InputError, match="workers, ray, mixed and dry_run are for an output"):
        Predict(model=models / "labels", file="t.csv", workers=2)
    with pytest.raises(InputError, match="workers .0. must be at least 1"):
        embed(models, folder, tmp_path / "out", workers=0)


def test_a_dry_run_writes_nothing_and_says_parts_bytes_time_and_cost(models, folder, tmp_path):
    size = sum(file.stat().st_size for file in folder.rglob("*.csv"))
    estimated = embed(models, folder, tmp_path / "out", dry_run=True)
    assert (estimated.files, estimated.parts, estimated.bytes) == (5, 5, size)
    assert 20 < estimated.rows < 90 and estimated.seconds > 0
    assert estimated.dollars == pytest.approx(estimated.seconds / 3600 * estimate.CORE_HOUR * num_threads())
    one = embed(models, folder / "0.csv", tmp_path / "v.npy", dry_run=True)
    assert one.parts == 1 and {*tmp_path.iterdir()} == {folder}


def test_a_listing_of_many_objects_is_planned_without_a_request(models, monkeypatch):
    """None is opened: here there is no server."""
    files = [CloudPath(f"s3:/bucket/data/{number:06}.csv") for number in range(20_000)]
    for number, file in enumerate(files):
        file._status = Status(1000 + number, 0, e_tag=f"e{number}")
    inputs = plan.versions_of(files, CloudPath("s3:/bucket/data"))
    settings = Embed(model=models / "vectors", file="s3://bucket/data", out="out")
    parts_plan = plan.PartsPlan({}, inputs, plan.cut_into_parts(inputs, settings, None))
    assert len(parts_plan.parts) == 20_000 and inputs[7][1:4] == ("000007.csv", 1007, "e7")
    assert parts_plan.name(7) == "part-00007-of-20000"


def test_names_are_below_the_folder_that_files_of_a_pattern_have_in_common(tmp_path):
    for name in ("a/x/1.csv", "a/y/2.csv", "b/x/3.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    names = [one.name for one in plan.versions_of(parts.find_files(tmp_path / "a*/*/*.csv"), tmp_path / "a*/*/*.csv")]
    assert names == ["x/1.csv", "y/2.csv"]


def command(folder, out, *options):
    arguments = ["embed", STATIC, folder, "-o", out, "--text-column", "text", "--dtype", "float32"]
    return [sys.executable, "-m", "bothways", *map(str, [*arguments, "--workers", "2", "--resume", *options])]


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_a_killed_job_resumes(models, folder, tmp_path, monkeypatch):
    for number in range(5, 40):
        write_table(folder / f"{number:02}.csv", number, 200)
    embed(models, folder, tmp_path / "whole", model=STATIC)
    out = tmp_path / "out"

    def wait_for(process, done):
        while len([*(out / "_parts").glob("part-*.json")]) < done:
            assert process.poll() is None
            time.sleep(0.01)

    with subprocess.Popen(command(folder, out)) as process:
        wait_for(process, 1)
        process.kill()
    with subprocess.Popen(command(folder, out), stderr=subprocess.PIPE, text=True) as process:
        wait_for(process, 8)
        one = next(child for child in psutil.Process(process.pid).children() if "spawn_main" in str(child.cmdline()))
        one.send_signal(signal.SIGKILL)
        errors = process.stderr.read()
    assert process.returncode == 0 and re.search("was killed; its work begins again", errors), errors
    assert contents(out) == contents(tmp_path / "whole") and len(manifest(out)["parts"]) == 40


@pytest.mark.slow
def test_work_that_kills_every_process_is_named(monkeypatch):
    with pytest.raises(InputError, match=r"killed in 4 attempts.*--workers, which is 2"):
        list(in_order(signal.raise_signal, [signal.SIGKILL], 2))
