"""The cache of token stores: listed, and deleted without touching other files."""

import fcntl
import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from bothways.base.log import messages_to
from bothways.cli import main
from bothways.settings import Pretrain
from bothways.text.corpus import cache
from bothways.training.pretraining import text_data
from bothways.training.pretraining.setup import open_text

TEXT = "\n\n".join(f"The cat sat on the mat {number} times. Then it ran away." for number in range(40))


@pytest.fixture
def run_cache(capsys):
    def run(*arguments):
        main.main(["cache", *map(str, arguments)])
        return capsys.readouterr().out

    return run


@pytest.fixture
def stores(tokenizer, tmp_path, monkeypatch):
    """The user's cache with two stores, one damaged store, one unfinished, and other files and directories."""
    monkeypatch.setenv("BOTHWAYS_CACHE", str(tmp_path / "cache"))
    tokenizer.save(tmp_path / "tokenizer")
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"{TEXT} {name}", encoding="utf-8")
        settings = Pretrain(corpus=(tmp_path / name,), out=tmp_path / "run", tokenizer=tmp_path / "tokenizer")
        text_data._open_store(text := open_text(settings), text.training, tokenizer)
    folder = tmp_path / "cache" / "stores"
    for name in ("0123456789abcdef", ".fedcba9876543210.unfinished", "thesis"):
        (folder / name).mkdir()
        (folder / name / "ids").write_bytes(b"12345")
    (folder / "0123456789abcdef.txt").write_text("mine")
    return folder


def test_stores_are_listed_with_their_corpus_and_size(stores, run_cache, tmp_path):
    listing = json.loads(run_cache("--json"))
    assert listing["directory"] == str(stores) and listing["deleted"] == []
    whole = {kept["corpus"][0]: kept for kept in listing["stores"] if kept["corpus"]}
    assert whole.keys() == {str(tmp_path / "a.txt"), str(tmp_path / "b.txt")}
    for kept in whole.values():
        files = [file.stat().st_size for file in (stores / kept["path"]).iterdir()]
        assert kept["size"] == sum(files) > 1000 and kept["statistics"]["documents"] == 40
    others = [kept for kept in listing["stores"] if not kept["corpus"]]
    assert [kept["size"] for kept in others] == [5, 5] and others[0]["statistics"] == {}


def test_a_line_is_printed_for_each_store_and_one_for_all(stores, run_cache, tmp_path):
    table = run_cache().splitlines()
    assert len(table) == 5 and str(tmp_path / "a.txt") in "".join(table) and str(stores) in table[-1]


def test_clearing_deletes_stores_and_nothing_else(stores, run_cache):
    kept = cache.cached_stores(stores)
    with (stores / f".{kept[-1].path.name.strip('.').split('.')[0]}.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # as a run that builds it has
        result = json.loads(run_cache("--clear", "--json"))
        assert len(result["deleted"]) == 3 and [one["path"] for one in result["stores"]] == [str(kept[-1].path)]
    assert len(json.loads(run_cache("--clear", "--json"))["deleted"]) == 1
    assert {path.name for path in stores.iterdir() if path.suffix != ".lock"} == {"thesis", "0123456789abcdef.txt"}
    assert json.loads(run_cache("--token-store", stores / "nothing", "--json"))["stores"] == []


def test_unpacked_weights_are_listed_and_cleared(stores, run_cache, tmp_path):
    folder = tmp_path / "cache" / "unpacked"
    folder.mkdir()
    save_file({"x": np.zeros(999, np.float32)}, folder / "0123456789abcdef.safetensors", {"source": "/models/mine"})
    (folder / ".abc-1-1.tmp").write_bytes(b"half")
    listed = {one["path"]: one for one in json.loads(run_cache("--json"))["stores"]}
    kept = listed[str(folder / "0123456789abcdef.safetensors")]
    assert kept["corpus"] == ["/models/mine"] and kept["size"] > 3996
    assert listed[str(folder / ".abc-1-1.tmp")]["corpus"] == []
    assert json.loads(run_cache("--token-store", stores, "--clear", "--json"))["deleted"]
    assert len([*folder.iterdir()]) == 2
    assert len(json.loads(run_cache("--clear", "--json"))["deleted"]) == 2
    assert not [*folder.iterdir()]


def test_a_printed_line_names_the_weights_and_their_model(monkeypatch, run_cache, tmp_path):
    monkeypatch.setenv("BOTHWAYS_CACHE", str(tmp_path))
    (tmp_path / "unpacked").mkdir()
    save_file({"x": np.zeros(9, np.float32)}, tmp_path / "unpacked" / "ab.safetensors", {"source": "/models/mine"})
    first, last = run_cache().splitlines()
    assert "float32 weights of /models/mine" in first and f"in 1 file of weights in {tmp_path};" in last


@pytest.mark.slow
def test_a_run_warns_of_a_large_cache(stores, tokenizer, tmp_path, monkeypatch):
    for large, expected in ((10**9, 0), (100, 1)):
        monkeypatch.setattr(cache, "LARGE_BYTES", large)
        (tmp_path / "c.txt").write_text(f"{TEXT} {large}", encoding="utf-8")
        settings = Pretrain(corpus=(tmp_path / "c.txt",), out=tmp_path / "run", tokenizer=tmp_path / "tokenizer")
        messages: list[str] = []
        with messages_to(messages.append):
            text_data._open_store(text := open_text(settings), text.training, tokenizer)
        assert sum(str(stores) in line and "bothways cache" in line for line in messages) == expected
