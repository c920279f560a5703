"""Servers in this process: the application of small random models, and a client that speaks ASGI to it."""

import asyncio
import json
from dataclasses import dataclass, field

import pytest

LABELS = ("bad", "good", "so so")
TAGS = ("O", "B-PER", "I-PER")


@dataclass
class Reply:
    status: int = 0
    headers: dict = field(default_factory=dict)
    content: bytes = b""

    def json(self):
        return json.loads(self.content)


class Client:
    """Calls an ASGI application. `send` is a coroutine; `post` and `get` run it in a loop of their own."""

    def __init__(self, app):
        self.app = app

    async def send(self, method, path, content=b"", headers=(), left=None, is_whole=True):
        """content: the body, or a list of its parts. left: an event at which the client leaves; by default it never
        does. is_whole: whether the body has an end."""
        names = {"host": "localhost:8080", "content-type": "application/json", **dict(headers)}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in names.items() if value is not None],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8080),
        }
        reply, left = Reply(), left or asyncio.Event()
        chunks = [content] if isinstance(content, bytes) else [*content]
        parts = [{"type": "http.request", "body": one, "more_body": True} for one in chunks]
        parts[-1]["more_body"] = not is_whole
        messages = iter(parts)

        async def receive():
            message = next(messages, None)
            if message is None:
                await left.wait()
                return {"type": "http.disconnect"}
            return message

        async def send(message):
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                reply.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                reply.content += message.get("body", b"")

        await self.app(scope, receive, send)
        return reply

    def post(self, path, body, **headers):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return asyncio.run(self.send("POST", path, content, names))

    def get(self, path, **headers):
        return asyncio.run(
            self.send("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        )


@pytest.fixture
def serve():
    """An application of predictors by name; limits, access and write_log as in `build_app`. Its queues are closed."""
    from bothways.serving.app import build_app
    from bothways.serving.guard import Access
    from bothways.serving.limits import Limits
    from bothways.serving.metrics import Metrics
    from bothways.serving.served_model import ServedModel

    opened = []

    def start(predictors, *, access=None, write_log=None, store=None, reranker=None, **limits):
        limits, metrics = Limits(**limits), Metrics()
        models = [
            ServedModel(name, model, limits, on_batch=metrics.on_batch(name, limits.batch_tokens))
            for name, model in predictors.items()
        ]
        opened.extend(models)
        app = build_app(
            models,
            limits=limits,
            metrics=metrics,
            access=access or Access(),
            version="0",
            write_log=write_log,
            store=store,
            reranker=next((one for one in models if one.name == reranker), None),
        )
        client = Client(app)
        client.models = {served.name: served for served in models}
        return client

    yield start
    for served in opened:
        assert served.queue.close(timeout=250)


@pytest.fixture(scope="session")
def predictors(make_predictor):
    """A model for each head."""
    return {
        "encoder": make_predictor(heads={"masked_words": 0, "next_sentence": 2}, pooling="mean"),
        "classifier": make_predictor(heads={"classes": 3}, labels=LABELS),
        "tagger": make_predictor(heads={"tokens": 3}, labels=TAGS),
        "reader": make_predictor(heads={"spans": 2}),
        "ranker": make_predictor(heads={"classes": 1}),
    }


@pytest.fixture(scope="session")
def decider(make_model, tokenizer):
    """A small random model with a head of statements."""
    import torch

    from bothways.inference.predictor import Predictor
    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.model.statements import StatementModel

    model = make_model("bert", {"masked_words": 0, "next_sentence": 2})
    statements = StatementModel(model.config, 4)
    generator = torch.Generator().manual_seed(1)
    for name, values in statements.named_parameters():
        if name.endswith("up"):
            torch.nn.init.normal_(values, std=0.3, generator=generator)
    head = statements.requires_grad_(False).to_head()
    return Predictor(Checkpoint(model=model, tokenizer=tokenizer, pooling="mean", statements=head), device="cpu")
