"""Token stores in object storage: the arrays of a local store, a cache that never exceeds its bound, and what fails."""

import gc
from threading import Event

import numpy as np
import pytest

from bothways import Tokenizer
from bothways.base.errors import InputError
from bothways.base.io import cache_directory
from bothways.base.log import messages_to
from bothways.base.paths import as_path
from bothways.scale import object_storage as cloud
from bothways.scale import shards
from bothways.scale.shards import ShardedArray
from bothways.text.corpus import array_files, cache
from bothways.text.corpus.token_store import open_or_build
from tests.cloud.conftest import at_random
from tests.soaked import in_soak

WORDS = [f"w{number}" for number in range(95)]
TOKENIZER = Tokenizer(
    {token: number for number, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
)
DRAWS = np.random.default_rng(0)
DOCUMENTS = [". ".join(" ".join(DRAWS.choice(WORDS, 100)) for _ in range(6)) for _ in range(60)]  # 36,300 tokens
GIGABYTE = 1e9


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    """18 shards of ids."""
    for module, name, value in ((array_files, "CHECKSUM_BYTES", 4096), (shards, "BLOCK", 2048), (shards, "PAGE", 256)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(cloud, "PAUSE", 0.001)


def opened(directory, documents=DOCUMENTS, key="a key"):
    options = {"language": "en", "processes": 1, "drop_duplicates": False}
    return open_or_build(as_path(directory), key, lambda: documents, TOKENIZER, **options)


@pytest.fixture
def local(tmp_path):
    return opened(tmp_path / "stores").store


def end_of_filling(store):
    store.ids[:]
    store.ids.pool.shutdown()


def opened_and_closed(directory, *arguments):
    """Opens a store, and waits until nothing uses it."""
    store = opened(directory, *arguments).store
    end_of_filling(store)
    del store
    gc.collect()


def same(store, local):
    for name in ("sentences", "documents"):
        assert np.array_equal(getattr(store, name), getattr(local, name))
    assert store.fingerprint == local.fingerprint and store.ids.dtype == local.ids.dtype
    assert len(store.ids) == len(local.ids) == store.num_tokens
    where = np.random.default_rng(1).integers(0, len(local.ids), 500)
    assert np.array_equal(store.ids[where], local.ids[where])
    for start, stop in ((0, len(local.ids)), (5, 6), (2000, 2100), (2048, 4096), (7, 30_000), (9, 9), (37_000, 99_999)):
        assert np.array_equal(store.ids[start:stop], local.ids[start:stop])


def test_a_store_in_object_storage_has_the_arrays_of_a_local_one(bucket, local, proxy):
    proxy.plan = at_random(2, ["500", "cut", "reset", "lost"], 0.3)
    built = opened(f"{bucket}/stores")
    assert not built.reused and proxy.faults > 5
    same(built.store, local)
    assert built.store.is_local and built.store.ids.present.all()
    names = [file.name for file in as_path(f"{bucket}/stores").files()]
    assert len([name for name in names if name.startswith("ids-")]) == 18
    proxy.plan = lambda method, path: ""
    proxy.requests.clear()
    again = opened(f"{bucket}/stores")
    assert again.reused
    same(again.store, local)
    assert not [path for method, path in proxy.requests if "ids-" in path and method == "GET"]


def test_the_cache_never_exceeds_its_bound_and_is_shared_out(bucket, local, monkeypatch):
    bound = 112_500  # leaves a block of the disk, since file systems hold some in advance
    seen: list[int] = []
    monkeypatch.setenv("BOTHWAYS_CACHE_GB", str(bound / GIGABYTE))
    reserve = shards._Space.reserve

    def observed(space, *arguments, **options):
        is_reserved = reserve(space, *arguments, **options)
        seen.append(shards._disk_use(cache_directory() / "shards"))
        return is_reserved

    monkeypatch.setattr(shards._Space, "reserve", observed)
    store = opened(f"{bucket}/stores").store
    same(store, local)
    there = store.ids.present.sum()
    assert 10 < there < 18 and not store.is_local and store.ids.filled == 18
    other = opened(f"{bucket}/stores", DOCUMENTS[::-1], "another").store  # the first is in use
    assert np.array_equal(other.ids[:], opened(cache_directory() / "local", DOCUMENTS[::-1]).store.ids)
    assert 0 <= other.ids.present.sum() < there
    for one in (store, other):
        end_of_filling(one)
    del store, other, one
    gc.collect()
    third = opened(f"{bucket}/stores", DOCUMENTS[::-2], "third").store  # nothing else is in use
    third.ids[:]
    assert third.is_local and len(cache.cached_stores(cache_directory() / "shards")) < 3
    assert len(seen) > 30 and max(seen) <= bound
    monkeypatch.setenv("BOTHWAYS_CACHE_GB", "0.00001")
    with pytest.raises(
        InputError, match=r"takes 0\.\d+ GB, more than the cache may still hold; raise BOTHWAYS_CACHE_GB"
    ):
        opened(f"{bucket}/others", DOCUMENTS[:7])
    monkeypatch.setenv("BOTHWAYS_CACHE_GB", "much")
    with pytest.raises(InputError, match=r"^BOTHWAYS_CACHE_GB \(much\) must be a number"):
        opened(f"{bucket}/others", DOCUMENTS[:7])


def test_ids_are_read_in_pages_before_their_shard_is_there(bucket, local, proxy, monkeypatch):
    opened_and_closed(f"{bucket}/stores")
    cache.clear_cache(cache_directory() / "shards")
    monkeypatch.setattr(ShardedArray, "_fill", lambda array: iter(()))
    monkeypatch.setattr(ShardedArray, "_wait", lambda array, shards: None)
    store = opened(f"{bucket}/stores").store
    assert not store.is_local
    proxy.plan = at_random(3, ["cut", "503"], 0.1)
    same(store, local)
    proxy.plan = lambda method, path: ""
    proxy.requests.clear()
    store.ids[np.array([[3, 4], [5, 130], [131, 20_000]])]
    assert len([path for method, path in proxy.requests if method == "GET"]) == 2  # of neighbouring pages one


def test_of_two_processes_one_fills_the_cache_for_both(bucket, local, proxy):
    """Here two threads, whose locks exclude each other as those of processes do."""
    opened_and_closed(f"{bucket}/stores")
    cache.clear_cache(cache_directory() / "shards")
    proxy.requests.clear()
    has_begun, may_go_on = Event(), Event()

    def plan(method, path):
        if "ids-00005" in path:
            has_begun.set()
            may_go_on.wait()
        return ""

    proxy.plan = plan
    first = opened(f"{bucket}/stores").store
    assert has_begun.wait()
    second = opened(f"{bucket}/stores").store  # does not wait for the first
    assert np.array_equal(second.ids[np.array([3, 4])], local.ids[np.array([3, 4])]) and not second.is_local
    may_go_on.set()
    assert np.array_equal(second.ids[:], local.ids)
    same(second, local)
    same(first, local)
    assert first.is_local and second.is_local
    fetched = [path for method, path in proxy.requests if method == "GET" and "ids-" in path]
    assert len(fetched) == 2 * 18  # each shard once, in two blocks


@pytest.mark.parametrize("part", ["ids-00003", *in_soak("sentences-00000", "store.json", "lost")])
def test_a_damaged_store_is_named_in_a_message_and_built_again(bucket, local, part):
    opened_and_closed(f"{bucket}/stores")
    [metadata] = [file for file in as_path(bucket).files() if file.name == "store.json"]
    damaged = metadata.parent / part.replace("lost", "ids-00005")
    cache.clear_cache(cache_directory() / "shards")
    if part == "lost":
        damaged.unlink()
    else:
        content = damaged.read_bytes()
        damaged.put(content[:-3] + bytes([content[-3] ^ 4]) + content[-2:])
    with messages_to((messages := []).append):
        built = opened(f"{bucket}/stores")
        if part == "ids-00003":  # found when it is read
            with pytest.raises(
                InputError, match=rf"{damaged}: differs from its checksum; delete it and run the command"
            ):
                built.store.ids[:]
            damaged.unlink()
            assert "differs from its checksum; what is not in the cache is read from object" in messages[0]
            built = opened(f"{bucket}/stores")
        assert not built.reused and "damaged token store" in messages[-1]
        same(built.store, local)


def test_a_damaged_cache_is_fetched_again(bucket, local):
    opened_and_closed(f"{bucket}/stores")
    [folder] = [path for path in (cache_directory() / "shards").iterdir() if path.is_dir()]
    for name in ("ids", "sentences"):
        with (folder / name).open("r+b") as file:
            file.seek(1000)
            file.write(b"\xff" * 8)
    store = opened(f"{bucket}/stores")
    assert store.reused
    same(store.store, local)


def test_the_cache_lists_and_deletes_what_is_fetched(bucket):
    from bothways.cli import commands
    from bothways.settings import Cache

    store = opened(f"{bucket}/stores").store
    [listed] = commands.cache(Cache()).stores
    assert listed.statistics["tokens"] == store.num_tokens and listed.size > 0
    assert commands.cache(Cache(clear=True)).deleted == []  # in use
    end_of_filling(store)
    del store
    gc.collect()
    assert [one.path for one in commands.cache(Cache(clear=True)).deleted] == [listed.path]
