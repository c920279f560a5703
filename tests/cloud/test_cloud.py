"""Objects behind URLs: reading, listing, putting, and what fails on the way."""

import gzip
import http.client
import os
import pickle
from pathlib import Path
from urllib.parse import quote, urlsplit

import pyarrow
import pyarrow.parquet
import pytest

from bothways.base.errors import InputError, MissingFile
from bothways.base.paths import as_path
from bothways.scale import object_storage as cloud
from bothways.scale.mirror import download
from bothways.text.corpus.documents import Corpus
from bothways.text.data.model_inputs import read_texts
from bothways.text.rows import text_files
from bothways.text.rows.text_files import matching


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(cloud, "PAUSE", 0.001)


@pytest.mark.parametrize("url", ["s3://b/a/c.txt", "gs://b/c.jsonl.gz", "az://b/c"])
def test_a_path_of_a_url_shows_the_url(url):
    path = as_path(url)
    assert str(path) == url == str(as_path(Path(url))) == str(pickle.loads(pickle.dumps(path)))
    assert str(path.parent / "x.csv") == url.rpartition("/")[0] + "/x.csv"
    assert as_path("file:///a/b.txt") == Path("/a/b.txt") and type(as_path("file:///a")) is type(Path("/a"))


def test_objects_are_listed_read_and_put(bucket, proxy):
    content = os.urandom(100_000)
    (as_path(bucket) / "docs/a.bin").put(content)
    (as_path(bucket) / "docs/sub/b.txt").put(b"text")
    path = as_path(f"{bucket}/docs/a.bin")
    assert path.read_bytes() == content and path.stat().st_size == 100_000
    assert [method for method, name in proxy.requests if name.endswith("a.bin")] == ["PUT", "HEAD", "GET"]
    with path.open() as file:
        file.seek(-10, 2)
        assert file.read() == content[-10:]
    assert path.is_file() and not path.is_dir() and path.parent.is_dir() and not path.parent.is_file()
    assert [file.key for file in path.parent.files()] == ["docs/a.bin", "docs/sub/b.txt"]
    for pattern, expected in {"docs/*": 1, "docs/**/*": 2, "**": 2, "docs/*/*.txt": 1, "docs/*.t?t": 0}.items():
        assert len(matching(as_path(f"{bucket}/{pattern}"), 2)) == expected, pattern
    path.unlink()
    assert not as_path(str(path)).exists()


def test_put_with_create_never_overwrites(bucket, proxy, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{proxy.target}")
    small, large = b"1", os.urandom(12 << 20)  # that would be put in parts
    for name, content in (("small", small), ("large", large)):
        path = as_path(f"{bucket}/{name}")
        path.put(content, create=True)
        path.put(content, create=True)  # as after an answer that was lost
        with pytest.raises(FileExistsError):
            path.put(content + b"2", create=True)
        assert as_path(str(path)).read_bytes() == content


@pytest.mark.parametrize("fault", ["500", "503", "409", "reset", "cut", "lost", "429"])
def test_requests_are_repeated(bucket, proxy, fault):
    content, once = os.urandom(50_000), [True]
    proxy.plan = lambda method, path: fault if "a.bin" in path and once and once.pop() else ""
    as_path(f"{bucket}/a.bin").put(content, create=True)
    once.append(True)
    assert as_path(f"{bucket}/a.bin").read_bytes() == content and proxy.faults
    assert not once


@pytest.mark.parametrize("fault", ["lost", "500", "cut"])
def test_a_multipart_upload_is_repeated(bucket, proxy, fault):
    content, once = os.urandom(12 << 20), [True]
    proxy.plan = lambda method, path: fault if method == "POST" and "uploadId" in path and once and once.pop() else ""
    as_path(f"{bucket}/a.bin").put(content)
    assert as_path(f"{bucket}/a.bin").read_bytes() == content and not once


def test_what_cannot_be_reached_is_one_line(bucket, proxy, monkeypatch):
    with pytest.raises(MissingFile, match=f"^{bucket}/none: no such file"):
        text_files.open_file(as_path(f"{bucket}/none"))
    with pytest.raises(MissingFile, match="^s3://no-bucket: no such bucket"):
        as_path("s3://no-bucket").files()
    proxy.plan = lambda method, path: "403"
    with pytest.raises(InputError, match="access denied; check the credentials") as denied:
        as_path(f"{bucket}/a.txt").put(b"1")
    assert "\n" not in str(denied.value)
    proxy.plan = lambda method, path: "500"
    with pytest.raises(InputError, match=r"not reached in 6 attempts .*; check the network"):
        as_path(f"{bucket}/a.txt").put(b"1")
    proxy.plan = lambda method, path: ""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://storage.example:9000")
    cloud._open_store.cache_clear()
    with pytest.raises(InputError, match="plain http is for this machine only"):
        as_path(f"{bucket}/a.txt").put(b"1")
    cloud._open_store.cache_clear()


def test_an_object_that_is_replaced_while_it_is_read_is_an_error(bucket, monkeypatch):
    monkeypatch.setattr(cloud, "BLOCK", 1000)
    path = as_path(f"{bucket}/a.bin")
    path.put(b"1" * 5000)
    with path.open() as file:
        file.read(10)
        as_path(str(path)).put(b"2" * 5000)
        with pytest.raises(InputError, match="replaced while it was read"):
            file.read()


def test_a_corpus_has_the_documents_of_the_same_local_files(bucket, tmp_path, proxy):
    texts = [f"Document {number} has a few words and an ümlaut." for number in range(300)]
    local = tmp_path / "corpus"
    (local / "sub").mkdir(parents=True)
    (local / "a.txt").write_text("\n\n".join(texts[:100]))
    (local / "b.txt.gz").write_bytes(gzip.compress("\n\n".join(texts[100:200]).encode()))
    pyarrow.parquet.write_table(pyarrow.table({"text": texts[200:]}), local / "sub" / "c.parquet")
    (local / ".hidden.txt").write_text("hidden")
    for file in filter(Path.is_file, local.rglob("*")):
        (as_path(bucket) / "corpus" / file.relative_to(local)).put(file)
    expected = [*Corpus((local,)).documents()]
    assert [*Corpus((f"{bucket}/corpus",)).documents()] == expected == texts
    assert [*Corpus((f"{bucket}/corpus/**/*",)).documents()] == expected
    assert [*Corpus((as_path(f"{bucket}/corpus/a.txt"),)).documents()] == texts[:100]
    before = Corpus((f"{bucket}/corpus",)).fingerprint()
    assert Corpus((f"{bucket}/corpus",)).fingerprint() == before
    (as_path(bucket) / "corpus/a.txt").put(b"other text")
    assert Corpus((f"{bucket}/corpus",)).fingerprint() != before
    with pytest.raises(InputError, match="no file to read|no such file"):
        Corpus((f"{bucket}/none/*",)).files()


def test_rows_of_a_table_are_streamed(bucket, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text('text,label\n"a, b\nc",x\nd,y\n')
    (as_path(bucket) / "rows.csv").put(file)
    assert [*read_texts(f"{bucket}/rows.csv")] == [*read_texts(str(file))]


def put_raw(proxy, bucket, key, content):
    """Put an object under exactly this key, as other programs can."""
    connection = http.client.HTTPConnection(urlsplit(proxy.url).netloc)
    connection.request("PUT", f"/{bucket.removeprefix('s3://')}/{quote(key)}", content)
    assert connection.getresponse().status == 200
    connection.close()


@pytest.mark.parametrize("key", ["a//b.txt", "/a/b.txt", "a/b.txt//", "a/./b.txt", "c/../a/b.txt", "a/\tb.txt"])
def test_a_key_that_a_path_cannot_hold_never_becomes_another(bucket, proxy, key):
    (as_path(bucket) / "a/b.txt").put(b"that of one slash")
    put_raw(proxy, bucket, key, b"its own")
    proxy.requests.clear()
    with pytest.raises(InputError, match="is not supported; ") as refused:
        as_path(f"{bucket}/{key}").put(b"other")
    assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="is not supported; "):
        [*read_texts(f"{bucket}/{key}")]
    assert not proxy.requests


@pytest.mark.parametrize("key", ["a//b.txt", "a/./b.txt", "a/\tb.txt"])
def test_a_folder_with_such_a_key_is_refused(bucket, proxy, key):
    (as_path(bucket) / "a/b.txt").put(b"that of one slash")
    put_raw(proxy, bucket, key, b"its own")
    with pytest.raises(InputError, match=rf"^{bucket}/a: .*; copy that object to another key$"):
        text_files.find_files(as_path(f"{bucket}/a"))


@pytest.mark.parametrize("url", ["s3://", "s3:///", "gs:////b/a.txt"])
def test_a_url_without_a_bucket_is_no_local_path(url):
    with pytest.raises(InputError, match="names no bucket"):
        as_path(url)


@pytest.mark.parametrize(
    "name", ["a b", "ü", "a%20b", "%2F", "a#b", "a?b", "a[1]", "a*b", "a&b=c+d", "a:b", "~", "a\\b"]
)
def test_keys_with_unusual_characters_are_as_others_write_them(bucket, proxy, name):
    put_raw(proxy, bucket, f"docs/{name}.txt", name.encode())
    path = as_path(f"{bucket}/docs/{name}.txt")
    assert path.read_bytes() == name.encode()
    [listed] = as_path(f"{bucket}/docs").files()
    assert listed.key == f"docs/{name}.txt" and listed.read_bytes() == name.encode()
    assert text_files.find_files(path) == [path]


def test_objects_that_stand_for_folders_are_no_files(bucket, proxy):
    """Consoles put an empty object KEY/ for each folder; obstore lists it as KEY."""
    for key in ("docs/", "docs/sub/"):
        put_raw(proxy, bucket, key, b"")
    assert as_path(f"{bucket}/docs").is_dir()
    (as_path(bucket) / "docs/sub/a.txt").put(b"text")
    (as_path(bucket) / "docs/empty.txt").put(b"")
    assert [file.key for file in as_path(f"{bucket}/docs/").files()] == ["docs/empty.txt", "docs/sub/a.txt"]
    copy = download(as_path(f"{bucket}/docs"))
    assert (copy / "sub/a.txt").read_bytes() == b"text" and (copy / "empty.txt").read_bytes() == b""


def test_a_copy_loses_the_folders_that_are_gone(bucket):
    for name in ("one/a.txt", "two/b.txt"):
        (as_path(bucket) / "run" / name).put(b"text")
    copy = download(as_path(f"{bucket}/run"), lambda name: name != "two/b.txt")
    assert (copy / "one/a.txt").is_file() and [*(copy / "two").iterdir()] == []
    as_path(f"{bucket}/run/one/a.txt").unlink()
    copy = download(as_path(f"{bucket}/run"))
    assert [file.name for file in copy.iterdir()] == ["two"] and (copy / "two/b.txt").read_bytes() == b"text"
    (as_path(bucket) / "run/two/b.txt").put(b"newer")
    download(as_path(f"{bucket}/run"), lambda name: name != "two/b.txt")
    assert (download(as_path(f"{bucket}/run")) / "two/b.txt").read_bytes() == b"newer"
