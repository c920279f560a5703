"""Compressed files: all streams are read, and whatever is damaged, cut off or foreign is an error in every verb."""

import gzip
import lzma
import shutil
import subprocess

import pyarrow as pa
import pytest

from bothways.base.errors import InputError
from bothways.cli import main
from bothways.text.rows.text_files import read_bytes, read_lines

FIRST = "".join(f'{{"text": "a cat {n}", "label": "{n % 2}", "predicted": "1"}}\n' for n in range(300)).encode()
SECOND = FIRST.replace(b"cat", b"dog")
PACK = {
    "xz": lzma.compress,
    "gz": lambda content: gzip.compress(content, mtime=0),
    "zst": lambda content: pa.compress(content, codec="zstd", asbytes=True),
}


def changed(content, place):
    return content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :]


def whole_files(kind):
    """Name -> content, and the number of rows."""
    first, second = PACK[kind](FIRST), PACK[kind](SECOND)
    files = {"one": (first, 300), "two": (first + second, 600), "three": (first + second + first, 900)}
    if kind != "zst":  # whose format has no padding
        files |= {"padded": (first + bytes(8), 300), "padding between": (first + bytes(4) + second, 600)}
    return files


def damaged_files(kind):
    first, second = PACK[kind](FIRST), PACK[kind](SECOND)
    foreign = PACK["gz" if kind == "xz" else "xz"](SECOND)
    return {
        "nothing": b"",
        "the head alone": first[:3],
        "cut in the middle": first[: len(first) // 2],
        "cut at the end": first[:-3],
        "without a head": first[4:],
        "changed head": changed(first, 1),
        "another format": foreign,
        "plain text": FIRST,
        "a second stream of another format": first + foreign,
        "the head of a second stream alone": first + second[:3],
        "a second stream cut in the middle": first + second[: len(second) // 2],
        "a second stream cut at the end": first + second[:-3],
        "a second stream with a changed head": first + changed(second, 1),
        "text after it": first + b"more text",
        "a byte between": first + b"x" + second,
        "odd padding": first + b"\1\0\0\0",
        "text after the second": first + second + b"\n",
    }


@pytest.mark.parametrize("kind", PACK)
def test_every_row_of_every_stream_is_read(kind, tmp_path):
    for name, (content, rows) in whole_files(kind).items():
        file = tmp_path / f"rows.jsonl.{kind}"
        file.write_bytes(content)
        assert sum(1 for _ in read_lines(file)) == rows, name
        assert read_bytes(file).count(b"\n") == rows, name


@pytest.mark.parametrize("kind", PACK)
def test_what_is_damaged_is_an_error(kind, tmp_path):
    for name, content in damaged_files(kind).items():
        file = tmp_path / f"rows.jsonl.{kind}"
        file.write_bytes(content)
        with pytest.raises(InputError, match="download or copy it again"):
            list(read_lines(file))
        with pytest.raises(InputError, match="download or copy it again"):
            read_bytes(file)
        assert name


@pytest.mark.skipif(shutil.which("xz") is None, reason="compares with xz")
def test_a_file_of_xz_is_read_if_xz_says_that_it_is_whole(tmp_path):
    files = {name: content for name, (content, _) in whole_files("xz").items()} | damaged_files("xz")
    files |= {"three zeros": lzma.compress(FIRST) + bytes(3), "five zeros between": bytes(5).join([files["one"]] * 2)}
    for name, content in files.items():
        file = tmp_path / "rows.jsonl.xz"
        file.write_bytes(content)
        is_whole = subprocess.run(["xz", "-t", file], capture_output=True).returncode == 0
        try:
            list(read_lines(file))
            is_read = True
        except InputError:
            is_read = False
        assert is_read == is_whole, name


VERBS = {
    "embed": ["embed", "bothways-en-static", "FILE", "-o", "OUT.npy"],
    "vocab": ["vocab", "FILE", "-o", "OUT", "--size", "60"],
    "check": ["check", "FILE"],
    "evaluate": ["evaluate", "--predictions", "FILE", "FILE"],
    "finetune": ["finetune", "classify", "--train", "FILE", "-o", "OUT"],
    "pretrain": ["pretrain", "FILE", "-o", "OUT", "--steps", "1"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_damaged_file_is_named_in_a_message_by_every_verb(verb, tmp_path, capsys):
    for name, content in damaged_files("xz").items():
        file = tmp_path / "rows.jsonl.xz"
        file.write_bytes(content)
        words = [word.replace("FILE", str(file)).replace("OUT", str(tmp_path / "out")) for word in VERBS[verb]]
        with pytest.raises(SystemExit) as stopped:
            main.main(words)
        assert stopped.value.code == 1, name
        assert capsys.readouterr().err.count("download or copy it again") == 1, name
        assert not (tmp_path / "out").exists() and not (tmp_path / "out.npy").exists(), name
