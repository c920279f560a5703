"""Models by name: the layout of the Hugging Face cache, downloads from a local server, and the commit in bothways.json.

No test reaches the network: the hub is a server on 127.0.0.1 (HF_ENDPOINT) that serves the files of a directory.
"""

import json
import shutil
import socket
import threading
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

import bothways
from bothways.base.errors import InputError, MissingFile
from bothways.base.io import Files
from bothways.cli.main import main
from bothways.model.checkpoint import checkpoint, hub, weights
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.hub import HubModel
from bothways.settings import Classify
from bothways.training.run import Run

NAME, COMMIT, OLD_COMMIT = "acme/tiny-bert", "a" * 39 + "1", "b" * 39 + "2"

CLOSED, URL_PATH = "http://127.0.0.1:9", "/{repo_id}/resolve/{revision}/{filename}"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, and an empty working directory."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def saved(make_model, tokenizer, tmp_path_factory):
    """A checkpoint with sentence vectors: its files are those of the repository."""
    directory = tmp_path_factory.mktemp("saved") / "model"
    model = Checkpoint(make_model("bert", {}, pooler=False), tokenizer, pooling="cls")
    checkpoint.save(model, directory)
    (directory / "bothways.json").unlink()
    return directory


def fill_cache(cache, files, name=NAME, commit=COMMIT, revision="main"):
    """Put a snapshot into the cache, in links to blobs as huggingface_hub does; returns it."""
    folder = cache / f"models--{name.replace('/', '--')}"
    snapshot, blobs = folder / "snapshots" / commit, folder / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    for file in sorted(path for path in files.rglob("*") if path.is_file()):
        target, blob = snapshot / file.relative_to(files), blobs / sha1(file.read_bytes()).hexdigest()
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, blob)
        target.symlink_to(blob)
    (folder / "refs" / revision).parent.mkdir(parents=True, exist_ok=True)
    (folder / "refs" / revision).write_text(commit)
    return snapshot


class StubHub:
    """The parts of the hub's interface that a download needs, over the files of a directory."""

    def __init__(self, files: Path) -> None:
        self.paths: list[str] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                path = self.path.partition("?")[0]
                prefix = f"/{NAME}/resolve/{COMMIT}/"
                if path.startswith(f"/api/models/{NAME}/tree/"):
                    names = [file.relative_to(files).as_posix() for file in files.rglob("*") if file.is_file()]
                    rows = [
                        {"type": "file", "path": name, "size": (files / name).stat().st_size, "oid": stub.tag(name)}
                        for name in names
                    ]
                    self.reply(json.dumps(rows).encode())
                elif path in (f"/api/models/{NAME}", *(f"/api/models/{NAME}/revision/{r}" for r in ("main", COMMIT))):
                    self.reply(json.dumps({"id": NAME, "sha": COMMIT, "siblings": []}).encode())
                elif path.startswith(prefix):
                    name = path.removeprefix(prefix)
                    if self.command == "GET":
                        stub.paths.append(name)
                    tags = {"ETag": f'"{stub.tag(name)}"', "X-Repo-Commit": COMMIT}
                    self.reply((files / name).read_bytes(), tags)
                else:
                    self.reply(b"", {"X-Error-Code": "RepoNotFound"}, status=404)

            do_HEAD = do_GET

            def reply(self, content, headers=(), status=200):
                self.send_response(status)
                for name, value in {**dict(headers), "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(content)

            def log_message(self, *arguments):
                pass

        self.tag = lambda name: sha1(name.encode() + (files / name).read_bytes()).hexdigest()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


def only_this_machine(host, *arguments, resolve=socket.getaddrinfo, **options):
    if host not in ("127.0.0.1", b"127.0.0.1"):
        raise OSError(f"a test looked up {host}")
    return resolve(host, *arguments, **options)


@pytest.fixture
def serve(monkeypatch):
    """Serve a directory as the repository NAME, and allow downloads: serve(directory) -> StubHub."""
    constants = pytest.importorskip("huggingface_hub.constants")
    utils = pytest.importorskip("huggingface_hub.utils")
    hubs = []

    def start(files):
        hubs.append(StubHub(files))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hubs[-1].server.server_port}")
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        # A closed port of this machine in place of the real hub: only the address in HF_ENDPOINT can answer.
        monkeypatch.setattr(constants, "ENDPOINT", CLOSED)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", CLOSED + URL_PATH)
        monkeypatch.setattr(socket, "getaddrinfo", only_this_machine)
        utils.disable_progress_bars()
        return hubs[-1]

    yield start
    utils.enable_progress_bars()
    for stub in hubs:
        stub.server.shutdown()
        stub.server.server_close()


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("bert-base-uncased", HubModel("bert-base-uncased")),
        ("sentence-transformers/all-MiniLM-L6-v2", HubModel("sentence-transformers/all-MiniLM-L6-v2")),
        ("a/b@v1.0", HubModel("a/b", "v1.0")),
        ("a/b@refs/pr/3", HubModel("a/b", "refs/pr/3")),
        ("a/b/c", None),
        ("/a/b", None),
        ("../b", None),
        ("a/b@", None),
        ("a/b@../../x", None),
        ("a--b/c", None),
        ("two words", None),
        ("", None),
    ],
)
def test_names_of_models_have_at_most_one_owner_and_a_revision(text, model):
    assert HubModel.parse(text) == model


def test_the_cache_is_that_of_huggingface_hub(monkeypatch, tmp_path):
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert hub.cache_directory() == tmp_path / ".cache" / "huggingface" / "hub"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert hub.cache_directory() == Path("/xdg/huggingface/hub")
    monkeypatch.setenv("HF_HOME", "~/home")
    assert hub.cache_directory() == tmp_path / "home" / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", "/elsewhere")
    assert hub.cache_directory() == Path("/elsewhere")


def test_a_cached_model_is_loaded_by_name_and_its_commit_is_kept(cache, saved, tmp_path):
    fill_cache(cache, saved)
    model, local = bothways.load(NAME, dtype="bfloat16"), bothways.load(saved, dtype="bfloat16")
    assert model.checkpoint.pooling == "cls"
    assert (model.embed(["a cat"]) == local.embed(["a cat"])).all()
    model.save(tmp_path / "copy")  # reads the exact weights again
    assert json.loads((tmp_path / "copy" / "bothways.json").read_text())["hub"] == {"model": f"{NAME}@{COMMIT}"}
    assert checkpoint.load(tmp_path / "copy").metadata["hub"] == {"model": f"{NAME}@{COMMIT}"}


def test_branches_and_commits_are_versions(cache, saved):
    fill_cache(cache, saved)
    old = fill_cache(cache, saved, commit=OLD_COMMIT, revision="refs/pr/3")
    assert hub.locate(f"{NAME}@{OLD_COMMIT}") == hub.locate(f"{NAME}@refs/pr/3") == old
    assert hub.locate(NAME).name == COMMIT


def test_a_directory_of_that_name_comes_first(cache, saved):
    fill_cache(cache, saved)
    shutil.copytree(saved, NAME)
    assert hub.locate(NAME) == Path(NAME)
    assert "hub" not in checkpoint.load(NAME).metadata


@pytest.mark.parametrize("lost", ["config.json", "model.safetensors", "1_Pooling/config.json"])
def test_a_snapshot_that_lacks_a_file_does_not_count(cache, saved, lost):
    snapshot = fill_cache(cache, saved)
    (snapshot / lost).resolve().unlink()  # a dangling link, as after a cut-off download
    with pytest.raises(MissingFile, match=f"aaaaaaa lacks {lost}.*hf download {NAME} --local-dir tiny-bert"):
        bothways.load(NAME)


def test_a_shard_that_is_missing_is_named(cache, saved):
    snapshot = fill_cache(cache, saved)
    (snapshot / "model.safetensors").unlink()
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    (snapshot / shards["a"]).touch()
    with pytest.raises(MissingFile, match=f"lacks {shards['b']}"):
        hub.locate(NAME)


def test_every_verb_takes_names(cache, saved, capsys, tmp_path):
    fill_cache(cache, saved)
    fill_cache(cache, saved, name="tiny-bert")
    for name in (NAME, "tiny-bert"):
        main(["info", name, "--json"])
        assert json.loads(capsys.readouterr().out)["hub"] == f"model: {name}@{COMMIT}"
    Path("texts.txt").write_text("a cat\na dog\n")
    main(["embed", NAME, "texts.txt", "-o", "vectors.npy"])
    capsys.readouterr()
    assert Path("vectors.npy").exists()


def test_runs_record_the_commits_of_model_and_teacher(cache, saved, tmp_path):
    fill_cache(cache, saved)
    options = {"train": Path("train.csv"), "out": tmp_path / "run"}
    settings = Classify(model=Path(NAME), teacher=Path(f"{NAME}@{COMMIT}"), **options)
    with Run(settings.out, "finetune classify", settings) as run:
        assert run.origin["hub"] == dict.fromkeys(("model", "teacher"), f"{NAME}@{COMMIT}")
        run.log_metrics(step=1)
    assert json.loads((settings.out / "bothways.json").read_text())["hub"]["model"] == f"{NAME}@{COMMIT}"


def test_without_network_the_error_names_the_cache_and_the_settings(cache):
    with pytest.raises(MissingFile, match=f"{NAME}@v2: .*{cache}.*HF_HUB_OFFLINE.*--revision v2"):
        bothways.load(f"{NAME}@v2")
    with pytest.raises(InputError, match=r"/no/such: no such directory"):
        bothways.load("/no/such")


def test_a_misspelled_local_path_is_not_looked_up(serve, saved):
    stub = serve(saved)
    Path("acme").mkdir()
    with pytest.raises(MissingFile, match=f"{NAME}: .*acme is a directory"):
        bothways.load(NAME)
    assert not stub.paths


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(MissingFile, match=r"bothways\[hub\]"):
        bothways.load(NAME)


def test_a_download_fetches_what_is_read_once(serve, saved, tmp_path):
    files = tmp_path / "repository"
    shutil.copytree(saved, files)
    for other in ("pytorch_model.bin", "onnx/model.onnx", "onnx/model.safetensors", "README.md", "rust_model.ot"):
        (files / other).parent.mkdir(exist_ok=True)
        (files / other).write_bytes(b"0")
    stub = serve(files)
    model = bothways.load(NAME, dtype="float32")
    assert sorted(stub.paths) == sorted(str(file.relative_to(saved)) for file in saved.rglob("*") if file.is_file())
    assert model.checkpoint.metadata["hub"] == {"model": f"{NAME}@{COMMIT}"} and model.checkpoint.pooling == "cls"
    stub.paths.clear()
    assert (bothways.load(NAME, dtype="float32").embed(["a"]) == model.embed(["a"])).all() and not stub.paths


def test_a_pickle_is_fetched_only_without_safetensors(serve, saved, tmp_path):
    files = tmp_path / "repository"
    shutil.copytree(saved, files)
    torch.save(
        {name: torch.from_numpy(value) for name, value in weights.read_weights(Files(saved)).items()},
        files / "pytorch_model.bin",
    )
    (files / "model.safetensors").unlink()
    stub = serve(files)
    assert (bothways.load(NAME).embed(["a"]) == bothways.load(saved).embed(["a"])).all()
    assert stub.paths.count("pytorch_model.bin") == 1


def test_a_repository_without_weights_or_of_another_name_is_an_error_of_one_line(serve, saved, tmp_path):
    files = tmp_path / "repository"
    shutil.copytree(saved, files)
    (files / "model.safetensors").unlink()
    serve(files)
    with pytest.raises(MissingFile, match=r"lacks model\.safetensors"):
        bothways.load(NAME)
    with pytest.raises(MissingFile, match=r"acme/other: .*no such model"):
        bothways.load("acme/other")
