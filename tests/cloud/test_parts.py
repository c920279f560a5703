"""Parts in object storage: the bytes of a local directory, whatever fails; work that is done twice is harmless."""

import json
import shutil
from dataclasses import replace

import pytest

from bothways.base.errors import InputError
from bothways.base.paths import as_path
from bothways.inference.jobs import verbs
from bothways.scale import part, parts
from bothways.settings import Embed
from tests.cloud.conftest import at_random


@pytest.fixture
def job(bucket, tmp_path):
    """Settings of a job whose input is in the bucket, and the parts that it has as a local one."""
    (tmp_path / "in").mkdir()
    for number in range(6):
        file = tmp_path / "in" / f"{number}.csv"
        file.write_text("text\n" + "".join(f"film {n} of {number} was good\n" for n in range(30)))
        (as_path(bucket) / "in" / file.name).put(file)
    settings = Embed(file=str(tmp_path / "in"), out=tmp_path / "out", model="bothways-en-static", text_column="text")
    verbs.embed(settings)
    return replace(settings, file=f"{bucket}/in", out=f"{bucket}/out"), contents(tmp_path / "out")


def contents(out):
    files = as_path(out).files() if str(out).startswith("s3:") else as_path(out).iterdir()
    return {file.name: file.read_bytes() for file in files if file.suffix == ".parquet"}


def test_parts_in_object_storage_are_those_of_local_files(job, proxy):
    settings, expected = job
    proxy.plan = at_random(3, ["500", "reset", "cut", "lost", "409"], 0.15)
    journal, _ = verbs.embed(settings)
    proxy.plan = lambda method, path: ""
    assert contents(settings.out) == expected and journal.results == 180 and proxy.faults
    stored = json.loads((as_path(settings.out) / "_manifest.json").read_bytes())
    assert [record["file"] for record in stored["parts"]] == [f"{number}.csv" for number in range(6)]
    with pytest.raises(InputError, match="is complete"):
        verbs.embed(replace(settings, resume=True))


def test_another_machine_goes_on_with_the_parts_that_are_missing(job, proxy, tmp_path, monkeypatch):
    settings, expected = job
    proxy.plan = lambda method, path: "500" if "_parts/part-00003" in path and method == "PUT" else ""
    with pytest.raises(InputError, match="not reached"):
        verbs.embed(settings)
    proxy.plan = lambda method, path: ""
    shutil.rmtree(tmp_path / "cache")
    proxy.requests.clear()
    verbs.embed(replace(settings, resume=True))
    assert contents(settings.out) == expected
    written = [path for method, path in proxy.requests if method == "PUT" and path.endswith(".parquet")]
    assert [path.rpartition("/")[2][:10] for path in sorted(written)] == ["part-00003", "part-00004", "part-00005"]
    (as_path(settings.file) / "2.csv").put(b"text\nanother\n")
    with pytest.raises(InputError, match="is complete"):
        verbs.embed(replace(settings, resume=True))


def test_a_part_that_was_computed_elsewhere_with_other_bytes_is_named_or_kept(job, monkeypatch):
    settings, expected = job
    other = as_path(settings.out) / "part-00001-of-00006.parquet"
    other.put(b"other bytes")
    with pytest.raises(InputError, match="has other files"):
        verbs.embed(settings)
    monkeypatch.setattr(parts, "check_directory", lambda *arguments, **options: None)
    with pytest.raises(InputError, match=r"part-00001-of-00006\.parquet: was computed before, with other bytes"):
        verbs.embed(settings)
    verbs.embed(replace(settings, mixed=True, resume=True))
    assert contents(settings.out) == {**expected, other.name: b"other bytes"}


def test_an_object_that_is_replaced_meanwhile_is_refused(job, monkeypatch):
    settings, _ = job
    real = part.compute_block

    def replacing(*arguments):
        (as_path(settings.file) / "1.csv").put(b"text\nanother\n")
        return real(*arguments)

    monkeypatch.setattr(part, "compute_block", replacing)
    with pytest.raises(InputError, match=r"in/1\.csv: (has changed|replaced) while"):
        verbs.embed(settings)
    monkeypatch.setattr(part, "compute_block", real)
    with pytest.raises(InputError, match=r"out: the input has changed since the parts were planned \(1\.csv\)"):
        verbs.embed(replace(settings, resume=True))


def test_storage_that_fails_is_no_file_to_skip(job, proxy):
    settings, expected = job
    settings = replace(settings, on_error="skip")
    proxy.plan = lambda method, path: "500" if "in/3.csv" in path and method == "GET" else ""
    with pytest.raises(InputError, match="not reached"):
        verbs.embed(settings)
    proxy.plan = lambda method, path: ""
    journal, _ = verbs.embed(replace(settings, resume=True))
    assert contents(settings.out) == expected and journal.set_aside == 0


def test_an_object_that_cannot_be_read_and_one_without_rows_are_parts(job):
    settings, _ = job
    settings = replace(settings, on_error="skip", out=f"{settings.out}-2")
    folder = as_path(settings.file)
    (folder / "0.csv").put(b"text\n")
    (folder / "2.csv").put(b"size\n1\n")
    (folder / "4.csv").put(b"")
    journal, _ = verbs.embed(settings)
    assert (journal.results, journal.set_aside) == (90, 1) and len(contents(settings.out)) == 6
