"""`bothways push`: which files go to the hub, and that nothing of this machine is in them."""

import base64
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import bothways
from bothways.base.errors import InputError
from bothways.cli import main
from bothways.cli.push import run
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.card_file import CARD, MARK
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings.deploy import Push

PLANTED = "zebrafinch"  # the host, the user, and a part of every path


class StandIn:
    """The routes of the hub that an upload calls, on loopback.

    repositories: whether each is private, by name.
    files: content by name.
    tokens: that were sent.
    """

    def __init__(self):
        self.repositories = {}
        self.files = {}
        self.tokens = set()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, method, path, body):
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            status = 409 if name in self.repositories else 200
            is_private = asked.get("private", asked.get("visibility") == "private")
            self.repositories.setdefault(name, is_private)
            return status, {"url": f"{self.url}/{name}", "name": name}
        if "/preupload/" in path:
            names = [file["path"] for file in json.loads(body)["files"]]
            files = [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]
            return 200, {"files": files}
        if "/commit/" in path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            return 200, {"commitUrl": f"{self.url}/me/it/commit/1", "commitOid": "1" * 40, "success": True}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        name = path.removeprefix("/api/models/").partition("/revision")[0].partition("?")[0]
        if method == "GET" and name in self.repositories:
            facts = {"id": name, "private": self.repositories[name], "sha": "0" * 40, "siblings": [], "tags": []}
            return 200, facts | {"downloads": 0, "likes": 0}
        return 404, {"error": path}

    def handler(self):
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                hub.tokens.add(self.headers.get("Authorization"))
                status, content = hub.answer(self.command, self.path, body)
                encoded = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)

            do_GET = do_POST = do

            def log_message(self, *arguments):
                pass

        return Handler


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for the hub, to which huggingface_hub is sent."""
    stand_in = StandIn()
    thread = threading.Thread(target=stand_in.server.serve_forever)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", stand_in.url)
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_test")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    yield stand_in
    stand_in.server.shutdown()
    stand_in.server.server_close()
    thread.join()


@pytest.fixture
def model(make_model, tokenizer, tmp_path):
    """A classifier whose metadata, config and directory have a planted word, and a file that is no part of it."""
    path = f"/home/{PLANTED}/data"
    metadata = {
        "verb": "finetune classify",
        "settings": {"model": path, "train": path, "out": path, "window": 48, "text_column": "message"},
        "process": {"host": PLANTED, "machine": f"{PLANTED} 1", "id": 7},
        "hardware": {"device": PLANTED},
        "started": "2026-01-01T00:00:00+00:00",
        "rows": {"train": 90},
        "reads_pairs": False,
        "result": {
            "mean": 0.5,
            "metric": "accuracy",
            "split": "test",
            "verdict": path,
            "scored": path,
            "readers": path,
        },
        "by_another_package": {"path": path, "number": 3},
    }
    directory = tmp_path / PLANTED / "model"
    directory.parent.mkdir()
    built = make_model("bert", {"classes": 2})
    saved = Checkpoint(built, tokenizer, labels=("a", "b"), metadata=metadata, extra={"_name_or_path": path})
    checkpoint.save(saved, directory, card=f"{MARK}\nOWNER/NAME\n")
    (directory / "notes.txt").write_text("mine", encoding="utf-8")
    return directory


def content_of(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_model_is_sent_without_paths_host_and_user_and_loads(model, hub, tmp_path):
    before = content_of(model)
    assert PLANTED.encode() in before[model / "bothways.json"] + before[model / "config.json"]
    pushed = run(Push(model=model, name="me/it"))

    assert content_of(model) == before
    assert hub.repositories == {"me/it": True} and not pushed.is_public
    assert hub.tokens - {None} == {"Bearer hf_of_a_test"}  # the check of the front matter sends none
    assert {*hub.files} == {file.name for file in pushed.files} and "notes.txt" not in hub.files
    assert not [name for name, content in hub.files.items() if PLANTED.encode() in content]
    assert hub.files[CARD].decode() == f"{MARK}\nme/it\n"
    metadata = json.loads(hub.files["bothways.json"])
    assert metadata["settings"] == {"window": 48, "text_column": "message"}
    assert metadata["by_another_package"] == {"number": 3}

    for name, content in hub.files.items():
        (tmp_path / "there" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "there" / name).write_bytes(content)
    scores = [bothways.load(path, dtype="float32").classify("the cat").scores for path in (model, tmp_path / "there")]
    assert scores[0] == scores[1]


def test_a_dry_run_prints_what_would_be_sent_and_sends_nothing(model, hub, capsys):
    main.main(["push", str(model), "me/it", "--dry-run"])
    shown = capsys.readouterr().out
    assert not hub.repositories and not hub.files and not hub.tokens

    main.main(["push", str(model), "me/it"])
    for name, content in hub.files.items():
        assert f"{len(content):,}  {name}" in shown
    assert "not sent: notes.txt" in shown and PLANTED not in shown
    assert '"text_column": "message"' in shown and "nothing was sent" in shown


def test_a_public_repository_needs_public(model, hub):
    hub.repositories["me/it"] = False
    with pytest.raises(InputError, match="exists and is public; add --public"):
        run(Push(model=model, name="me/it"))
    assert not hub.files
    assert run(Push(model=model, name="me/it", public=True)).is_public and hub.files
    run(Push(model=model, name="me/new", public=True))
    assert hub.repositories["me/new"] is False


def test_a_card_of_the_user_is_sent_as_it_is(model, hub):
    (model / CARD).write_text("about OWNER/NAME", encoding="utf-8")
    run(Push(model=model, name="me/it"))
    assert hub.files[CARD] == b"about OWNER/NAME"


def test_a_model_without_a_card_gets_one_without_scores(model, hub):
    (model / CARD).unlink()
    run(Push(model=model, name="me/it"))
    text = hub.files[CARD].decode()
    assert 'bothways.load("me/it")' in text and "has no score" in text and not (model / CARD).exists()


def test_an_adapter_of_a_model_on_this_machine_is_not_sent(model, hub, tmp_path):
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": str(model), "peft_type": "LORA"}), encoding="utf-8"
    )
    with pytest.raises(InputError, match="bothways merge"):
        run(Push(model=tmp_path / "adapter", name="me/it"))


@pytest.mark.parametrize("name", ["it", "a/b/c", "me/", "me/it@main"])
def test_a_name_that_the_hub_does_not_allow_is_named(name, tmp_path):
    with pytest.raises(InputError, match="OWNER/NAME"):
        Push(model=tmp_path, name=name)


def test_without_the_package_the_error_names_the_extra(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"bothways\[hub\]"):
        run(Push(model=model, name="me/it"))
    assert run(Push(model=model, name="me/it", dry_run=True)).files


def test_a_refusal_of_the_hub_is_one_line(model, hub, monkeypatch):
    monkeypatch.setattr(hub, "answer", lambda *request: (403, {"error": "no"}))
    with pytest.raises(InputError, match="me/it: not sent .+; check the name, and that the token may write"):
        run(Push(model=model, name="me/it"))
