"""A server with the answers that the page expects, without a model. It writes down what it was asked."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.serving.pages import WEB

HEADS = ("masked_words", "classes", "tokens", "spans", "next_sentence")
INFO = {
    "model_id": "mini", "models": ["mini"], "task": "fill", "heads": [*HEADS], "labels": ["PER", "LOC"],
    "max_input_length": 512, "num_layers": 3, "num_heads": 5, "routes": ["decide"],
}  # fmt: skip
KINDS = {"html": "text/html; charset=utf-8", "css": "text/css", "js": "text/javascript"}
ENTITIES = {
    "Ada": "PER", "Angela Merkel": "PER", "Charles Babbage": "PER", "<img": "PER", "Turin": "LOC", "London": "LOC",
    "New York": "LOC", "United Nations": "ORG",
}  # fmt: skip


class Stub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}/"
        self.reset()

    def reset(self, *infos: dict[str, Any], key: str = "", failure: tuple[int, str] | None = None) -> None:
        """infos: one for each model, the first by default. failure: of every POST."""
        self.infos = infos or (INFO,)
        self.key, self.failure = key, failure
        self.asked: list[tuple[str, Any]] = []


class Handler(BaseHTTPRequestHandler):
    server: Stub

    def log_message(self, *_: Any) -> None:
        """Nothing on standard error."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        name = parts.path.removeprefix("/") or "index.html"
        if name == "info":
            self.server.asked.append((self.path, None))
            if self.is_welcome():
                wanted = parse_qs(parts.query).get("model", [self.server.infos[0]["model_id"]])[0]
                self.say(200, next(info for info in self.server.infos if info["model_id"] == wanted))
        elif (WEB / name).is_file():
            self.send(200, (WEB / name).read_bytes(), KINDS[name.rpartition(".")[2]])
        else:
            self.say(404, {"error": f"no such address: {name}", "error_type": "not_found"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, asked))
        assert self.headers["Content-Type"] == "application/json"
        if not self.is_welcome():
            return
        if self.server.failure:
            status, words = self.server.failure
            self.say(status, {"error": words, "error_type": "validation"})
        else:
            self.say(200, ANSWERS[self.path](asked))

    def is_welcome(self) -> bool:
        welcome = not self.server.key or self.headers["Authorization"] == f"Bearer {self.server.key}"
        if not welcome:
            self.say(401, {"error": "a key is needed", "error_type": "unauthorized"})
        return welcome

    def say(self, status: int, answer: Any) -> None:
        self.send(status, json.dumps(answer).encode(), "application/json")

    def send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", "default-src 'self'")
        self.end_headers()
        self.wfile.write(body)


def filled(asked: Any) -> Any:
    words, scores = ("medicine", "letter", "<b>", "water", "door"), (0.61, 0.2, 0.05, 0.031, 0.003)
    num_masks = asked["inputs"].count("[MASK]")
    turned = [words[n:] + words[:n] for n in range(num_masks)]
    guesses = [[{"token": t, "score": s} for t, s in zip(order, scores, strict=True)] for order in turned]
    return guesses[0] if num_masks == 1 else guesses


def tagged(asked: Any) -> Any:
    text = asked["inputs"]
    found = [
        {"label": label, "start": text.index(name), "end": text.index(name) + len(name), "score": 0.91, "text": name}
        for name, label in ENTITIES.items()
        if name in text
    ]
    return sorted(found, key=lambda entity: entity["start"])


def answered(asked: Any) -> Any:
    start = asked["context"].find("France")
    if start < 0:
        return {"answer": "", "start": 0, "end": 0, "score": 0.7}
    return {"answer": "France", "start": start, "end": start + 6, "score": 0.87}


def pieces(text: str) -> Any:
    """[CLS], the words, [SEP]; a word's id is its length."""
    tokens, reached = [{"id": 101, "text": "[CLS]", "special": True, "start": None, "stop": None}], 0
    for word in text.split():
        start = text.index(word, reached)
        reached = start + len(word)
        tokens.append({"id": 1000 + len(word), "text": word, "special": False, "start": start, "stop": reached})
    return [*tokens, {"id": 102, "text": "[SEP]", "special": True, "start": None, "stop": None}]


def decided(asked: Any) -> Any:
    probabilities = {"<i>late</i>": 0.61, **dict.fromkeys(asked["options"], 0.1)}
    return {"label": "<i>late</i>", "score": 0.61, "probabilities": probabilities, "none": 0.09}


def explained(asked: Any) -> Any:
    """The first word supports the label, the second one speaks against it."""
    words = [
        {"word": "a", "start": 0, "end": 1, "effect": 0.5, "text": 0},
        {"word": "b", "start": 2, "end": 3, "effect": -0.25, "text": 0},
    ]
    return {"label": "delivery", "score": 0.83, "words": words}


def attended(asked: Any) -> Any:
    """The closer to the token `head` places further on, the more."""
    tokens = [token["text"] for token in pieces(asked["inputs"])]
    layer, head = (asked.get(name, clearest) for name, clearest in (("layer", 1), ("head", 3)))
    places, ahead = range(len(tokens)), head
    raw = [[1 / (1 + abs(row + ahead - column)) ** 2 for column in places] for row in places]
    weights = [[weight / sum(row) for weight in row] for row in raw]
    return {"tokens": tokens, "weights": weights, "layer": layer, "head": head}


def similar(asked: Any) -> Any:
    """The share of common words."""
    words = [set(text.lower().split()) for text in asked["inputs"]["sentences"]]
    source = set(asked["inputs"]["source_sentence"].lower().split())
    return [len(source & those) / len(source | those) for those in words]


def searched(asked: Any) -> Any:
    if asked["query"] == "nothing":
        return {"relevant": False, "hits": [], "passages": 5, "seconds": 0.01}
    first = {"path": "a<i>.md", "line": 14, "page": None, "heading": "Late <u>fees", "score": 0.75, "metadata": {}}
    text = "😀 Fees. It is <b>late</b>. Pay."
    place = text.index("It"), text.index(" Pay")
    second = {
        "path": "scan.pdf",
        "line": None,
        "page": 2,
        "heading": "",
        "score": 0.5,
        "text": "Paid.",
        "match": [0, 5],
    }
    hits = [first | {"text": text, "match": place}, second]
    return {"relevant": asked["query"] != "weak", "hits": hits, "passages": 5, "seconds": 0.01}


ANSWERS = {
    "/search": searched,
    "/fill": filled,
    "/predict": lambda asked: [{"label": "delivery", "score": 0.83}, {"label": "<i>refund</i>", "score": 0.17}],
    "/tag": tagged,
    "/answer": answered,
    "/next": lambda asked: [{"label": "follows", "score": 0.93}, {"label": "does not follow", "score": 0.07}],
    "/similarity": similar,
    "/tokenize": lambda asked: [pieces(asked["inputs"])],
    "/decide": decided,
    "/explain": explained,
    "/attention": attended,
}


@contextmanager
def serving() -> Iterator[Stub]:
    with Stub() as stub:
        thread = threading.Thread(target=stub.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield stub
        stub.shutdown()
        thread.join()
