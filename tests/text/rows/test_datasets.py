"""Hugging Face datasets: saved directories, and the hub with a loader that stays offline."""

import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import datasets
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest

from bothways.base.errors import InputError
from bothways.text.corpus.documents import Corpus
from bothways.text.rows import datasets as hub
from bothways.text.rows.datasets import HubDataset

TEXTS = [f"text {number}" for number in range(2503)]  # their writer makes batches of 1000


@pytest.fixture(autouse=True)
def own_cache(own_place, monkeypatch):
    """The library reads the place of its cache once, when it is imported."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(own_place / "datasets"))


@pytest.fixture(autouse=True)
def without_bars():
    datasets.disable_progress_bars()


def saved(texts, path, **settings):
    datasets.Dataset.from_dict({"n": [*range(len(texts))], "text": texts}).save_to_disk(path, **settings)
    return path


def read(path, **settings):
    return [*Corpus((path,), **settings).documents()]


# --- saved to disk ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_shards", [1, 3])
def test_a_saved_dataset_is_read_in_order(num_shards, tmp_path):
    path = saved(TEXTS, tmp_path / "saved", num_shards=num_shards)
    assert read(path) == TEXTS
    assert [file.suffix for file in Corpus((path,)).files()] == [".arrow"] * num_shards
    assert read(Corpus((path,)).files()[0]) == TEXTS[: -(-2503 // num_shards)]


def test_a_chosen_and_shuffled_dataset_is_read_as_it_was_saved(tmp_path):
    chosen = datasets.Dataset.from_dict({"text": TEXTS}).shuffle(seed=0).select(range(7))
    chosen.save_to_disk(tmp_path / "saved")
    assert read(tmp_path / "saved") == chosen["text"][:] and len(set(chosen["text"]) & set(TEXTS[:7])) < 7


def test_no_package_is_needed_for_a_saved_dataset(tmp_path, monkeypatch):
    path = saved(TEXTS, tmp_path / "saved")
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert read(path) == TEXTS


def test_of_a_saved_dictionary_split_train_is_read(tmp_path):
    parts = {name: datasets.Dataset.from_dict({"text": [name]}) for name in ("test", "train")}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "both")
    assert read(tmp_path / "both") == ["train"] and read(tmp_path / "both" / "test") == ["test"]
    datasets.DatasetDict({"b": parts["test"], "a": parts["test"]}).save_to_disk(tmp_path / "other")
    with pytest.raises(InputError, match="other: .*'train'.*: a, b"):
        read(tmp_path / "other")


def test_rows_of_a_saved_dataset_have_places_and_can_be_skipped(tmp_path):
    path = saved(["one", None, "three"], tmp_path / "saved")
    with pytest.raises(InputError, match=r"data-00000-of-00001\.arrow: row 1: 'text' .*nothing"):
        read(path)
    skipped = Counter()
    assert [*Corpus((path,), on_error="skip").documents(skipped)] == ["one", "three"] and skipped.total() == 1
    with pytest.raises(InputError, match=r"\.arrow: .*'body' .*: n, text"):
        read(path, column="body", on_error="skip")
    with pytest.raises(InputError, match=r"\.arrow: row 0: 'n' .*int"):
        read(path, column="n")


def test_other_columns_are_not_looked_at(tmp_path):
    strange = pyarrow.array([b"\xff"]).cast(pyarrow.string(), safe=False)
    table = pyarrow.table({"text": ["one"], "other": strange})
    with pyarrow.ipc.new_stream(tmp_path / "a.arrow", table.schema) as file:
        file.write_table(table)
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.arrow") == read(tmp_path / "a.parquet") == ["one"]


def test_a_broken_saved_dataset_is_named(tmp_path):
    path = saved(TEXTS, tmp_path / "saved")
    (file,) = Corpus((path,)).files()
    file.write_bytes(file.read_bytes()[:-9000])
    with pytest.raises(InputError, match=r"\.arrow: .*Arrow"):
        read(path)
    (path / "state.json").write_text(json.dumps({"_data_files": "?"}))
    with pytest.raises(InputError, match=r"state\.json: .*\.arrow"):
        read(path)


def test_a_fingerprint_follows_what_was_saved_and_not_where(tmp_path):
    paths = [saved(texts, tmp_path / name) for name, texts in (("a", TEXTS), ("b", TEXTS), ("c", TEXTS[1:]))]
    same, again, other = (Corpus((path,)).fingerprint() for path in paths)
    assert same == again != other


# --- on the hub -------------------------------------------------------------------------------------------------------


@pytest.fixture
def on_the_hub(monkeypatch):
    """A hub of one dataset: the requests it received, and its commit, which can be changed."""
    requests, commit = [], ["a" * 40]

    def load_dataset(name, config, **settings):
        requests.append((name, config, settings))
        rows = [{"n": 1, "text": "one"}, {"n": 2, "text": None}, {"n": 3, "text": "three"}]
        features = datasets.Features({"n": datasets.Value("int64"), "text": datasets.Value("string")})
        return datasets.IterableDataset.from_generator(lambda: iter(rows), features=features)

    def dataset_info(self, name):
        return SimpleNamespace(sha=commit[0])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", dataset_info)
    hub._revision.cache_clear()
    yield SimpleNamespace(requests=requests, commit=commit)
    hub._revision.cache_clear()


@pytest.mark.parametrize(
    ("text", "name", "config", "split"),
    [
        ("hf:owner/name", "owner/name", None, "train"),
        ("hf:squad", "squad", None, "train"),
        ("hf:owner/na-m.e_2:2023.en", "owner/na-m.e_2", "2023.en", "train"),
        ("hf:owner/name@test", "owner/name", None, "test"),
        ("hf:owner/name:en@validation", "owner/name", "en", "validation"),
    ],
)
def test_a_name_may_carry_a_config_and_a_split(text, name, config, split, on_the_hub):
    assert HubDataset.parse(text) == HubDataset(name, config, split)
    assert HubDataset.parse(str(HubDataset(name, config, split))) == HubDataset(name, config, split)
    for path in (text, Path(text)):
        assert [*Corpus((path,), on_error="skip").documents()] == ["one", "three"]
        settings = {"split": split, "revision": "a" * 40, "streaming": True}
        assert on_the_hub.requests.pop() == (name, config, settings)
        assert Corpus((path,)).files() == []


@pytest.mark.parametrize("text", ["hf:", "hf:a/b/c", "hf:a b", "hf:a@", "hf:a:", "hf:a@b:c", "hf:/a", "hf://a/b"])
def test_another_form_of_name_is_refused(text):
    with pytest.raises(InputError, match=r"hf:NAME\[:CONFIG\]\[@SPLIT\].* hf:owner/name:en@train"):
        read(text)


def test_rows_on_the_hub_have_places_and_can_be_skipped(on_the_hub):
    with pytest.raises(InputError, match=r"^hf:owner/name@train: row 1: 'text' .*nothing"):
        read("hf:owner/name")
    skipped = Counter()
    assert [*Corpus(("hf:owner/name",), on_error="skip").documents(skipped)] == ["one", "three"]
    assert skipped == {"hf:owner/name@train": 1}
    with pytest.raises(InputError, match=r"^hf:owner/name@train: .*'body' .*: n, text"):
        read("hf:owner/name", column="body", on_error="skip")


def test_only_the_requested_column_is_read(on_the_hub):
    assert next(HubDataset("owner/name").rows("text")) == ("hf:owner/name@train: row 0", {"text": "one"})


def test_files_and_the_hub_can_follow_one_another(on_the_hub, tmp_path):
    (tmp_path / "a.txt").write_text("zero\n")
    paths = ("hf:owner/name", tmp_path / "a.txt", "hf:owner/name@train")
    assert [*Corpus(paths, on_error="skip").documents()] == ["one", "three", "zero"]
    assert Corpus(paths).files() == [tmp_path / "a.txt"]


def test_a_fingerprint_follows_name_and_commit(on_the_hub):
    names = ("hf:owner/name", "hf:owner/name:en", "hf:owner/name@test", "hf:owner/other")
    before = [Corpus((name,)).fingerprint() for name in names]
    assert len(set(before)) == 4 and Corpus(("hf:owner/name@train",)).fingerprint() == before[0]
    on_the_hub.commit[0] = "b" * 40
    assert Corpus(names[:1]).fingerprint() == before[0]  # a run that has begun keeps its commit
    hub._revision.cache_clear()  # as a new process would
    assert Corpus(names[:1]).fingerprint() != before[0]


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    hub._revision.cache_clear()
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"^hf:owner/name@train: .* datasets; pip install 'bothways\[hub\]'$"):
        read("hf:owner/name")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"huggingface_hub; pip install 'bothways\[hub\]'$"):
        Corpus(("hf:owner/name",)).fingerprint()


def test_offline_is_an_error_in_one_line():
    hub._revision.cache_clear()
    for use in (lambda: read("hf:owner/name"), Corpus(("hf:owner/name",)).fingerprint):
        with pytest.raises(InputError, match=r"^hf:owner/name: .*offline mode") as raised:
            use()
        assert "\n" not in str(raised.value)


def test_a_lost_connection_is_an_error_in_one_line(on_the_hub, monkeypatch):
    def rows():
        yield {"text": "one"}
        raise RuntimeError("the line went dead\nlong ago")

    lost = datasets.IterableDataset.from_generator(rows)
    monkeypatch.setattr(datasets, "load_dataset", lambda *arguments, **settings: lost)
    documents = Corpus(("hf:owner/name",)).documents()
    assert next(documents) == "one"
    with pytest.raises(InputError, match=r"^hf:owner/name@train: .*\(the line went dead\)"):
        next(documents)


def test_a_local_path_with_the_name_of_a_dataset_is_an_error(on_the_hub, tmp_path, monkeypatch):
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="owner/name .*local path"):
        read("hf:owner/name")
