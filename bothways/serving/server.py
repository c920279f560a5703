"""`bothways serve`: load models, listen, and on SIGTERM answer all accepted requests before the end."""

import asyncio
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.base.device import release_memory
from bothways.base.errors import InputError, UsageError, flag, needs_package
from bothways.base.io import Files
from bothways.base.log import logger
from bothways.base.terminal import print_json, print_message
from bothways.serving.connections import log_loop_error, most_connections, said_once
from bothways.serving.models import load_models, model_names, with_reranker
from bothways.settings.deploy import Serve
from bothways.text.rows.text_encodings import decode_marked

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from bothways.inference.predictor import Predictor
    from bothways.serving.guard import Access
    from bothways.serving.limits import Limits
    from bothways.serving.served_model import ServedModel
    from bothways.serving.workers import Workers

# The packages of the extra `serve`, by their modules.
PACKAGES = {
    "starlette": "starlette",
    "uvicorn": "uvicorn",
    "httptools": "httptools",
    "orjson": "orjson",
    "msgspec": "msgspec",
    "prometheus_client": "prometheus-client",
}
KEY_VARIABLE = "BOTHWAYS_API_KEY"
# Shapes for which oneDNN, and torch's layer above it, keep compiled kernels. Their own numbers, 1,024 each, take 400 MB
# more per process in bf16; these cost some 5 % of the speed (docs/LOG.md).
KERNEL_CACHES = {
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256",
    "LRU_CACHE_CAPACITY": "64",
}
GRACE = 30  # seconds within which the server ends after SIGTERM
# Connections that the kernel holds until they are accepted. As many are accepted at once, and fail at once when the
# process has no file descriptor left.
BACKLOG = 128


@dataclass(frozen=True)
class Serving:
    """An application, its models and the workers that compute their batches."""

    app: "ASGIApp"
    models: "Sequence[ServedModel]"
    workers: "Workers"


def run(settings: Serve) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    missing = [package for module, package in PACKAGES.items() if find_spec(module) is None]
    if missing:
        raise needs_package("serve", missing[0], "serve")
    keys = read_keys(settings.api_key_file, os.environ)
    check_address(settings, keys)
    for name, capacity in KERNEL_CACHES.items():
        os.environ.setdefault(name, capacity)  # before torch reads it

    with listen(settings.host, settings.port) as listening:
        serving = prepare(settings, keys, inherited=[listening])
        listening.listen(BACKLOG)
        url = f"http://{bracketed(settings.host)}:{listening.getsockname()[1]}"
        names = [served.name for served in serving.models]
        for served in serving.models:
            logger.info(f"{served.name}: computed by {served.model.backend.computed_by}")
        logger.info(f"serving {', '.join(names)} at {url} (page: {url}/)")
        if settings.json:
            print_json({"url": url, "models": names})
        _serve(settings, serving, listening)


# --- keys and address -------------------------------------------------------------------------------------------------


def read_keys(file: Path | None, environment: Mapping[str, str]) -> list[str]:
    """The keys of a file, one per line, else the keys of the environment variable. InputError if the file has none, or
    if a key is not ASCII, which headers cannot hold."""
    if file is None:
        source = KEY_VARIABLE
        keys = environment.get(KEY_VARIABLE, "").split()
    else:
        source = f"api_key_file ({file})"
        keys = decode_marked(file.read_bytes(), "replace").split()
        if not keys:
            raise InputError(f"{source} has no key; write one per line")

    for number, key in enumerate(keys, 1):
        if not key.isascii():
            raise InputError(f"{source}: key {number} is not ASCII, which a header cannot hold; use another")
    return keys


def check_address(settings: Serve, keys: Sequence[str]) -> None:
    """UsageError if other machines could use the server without a key, and nobody has allowed it."""
    if not keys and settings.auth and not is_loopback(settings.host):
        raise UsageError(
            f"host ({settings.host}) is open to other machines; set {KEY_VARIABLE}, name {flag('api_key_file')}, or "
            f"allow everybody with {flag('auth', False)}"
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A bound socket: made before models are loaded, so that a port in use is an error at once; it listens later, so
    that no client waits for the models."""
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = addresses[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise InputError(f"cannot listen on host {host}, port {port}: {error.strerror or error}") from None
    return listening


def bracketed(host: str) -> str:
    return f"[{host.strip('[]')}]" if ":" in host else host


# --- models and application -------------------------------------------------------------------------------------------


def prepare(settings: Serve, keys: Sequence[str] = (), inherited: Sequence[socket.socket] = ()) -> Serving:
    """Load the models, start processes that compute, and build the application.

    settings: of the server.
    keys: of clients; none: everybody may use the server.
    inherited: sockets that the processes are to close.
    """
    import bothways
    from bothways.model.checkpoint import hub
    from bothways.model.checkpoint.sentence_transformers import read_prompts
    from bothways.search.store import Store
    from bothways.serving.app import build_app
    from bothways.serving.metrics import Metrics
    from bothways.serving.served_model import ServedModel
    from bothways.serving.workers import Workers

    limits = limits_of(settings)
    sources, reranker_name = with_reranker(model_names(settings.models), settings)
    loaded = load_models(
        sources,
        dtype=settings.dtype,
        device=settings.device,
        window=settings.window,
        batch_tokens=limits.batch_tokens,
    )
    refuse_static_vectors(loaded)
    store = Store(settings.store) if settings.store else None

    # Forked while there are no threads, which do not survive it; the queue of a ServedModel starts some.
    workers = Workers.forked(loaded, inherited=inherited)
    metrics = Metrics()
    models = {}
    for name, model in loaded.items():
        models[name] = ServedModel(
            name,
            model,
            limits,
            workers=workers,
            prompts=read_prompts(Files(hub.locate(sources[name]))),
            on_batch=metrics.on_batch(name, limits.batch_tokens),
        )

    app = build_app(
        [*models.values()],
        limits=limits,
        metrics=metrics,
        access=access_of(settings, keys),
        version=bothways.__version__,
        write_log=print_message if settings.access_log else None,
        store=store,
        reranker=models.get(reranker_name),
    )
    release_memory()  # of the fingerprints
    return Serving(app, [*models.values()], workers)


def limits_of(settings: Serve) -> "Limits":
    from bothways.serving.limits import Limits

    return Limits(
        max_requests=settings.max_requests,
        queue_tokens=settings.queue_tokens,
        batch_tokens=settings.batch_tokens,
        max_body=settings.max_body,
        max_texts=settings.max_texts,
        max_text_tokens=settings.max_text_tokens,
        read_timeout=settings.read_timeout,
    )


def refuse_static_vectors(loaded: "Mapping[str, Predictor]") -> None:
    """InputError if a model is a table of static vectors."""
    from bothways.inference.backends.static import StaticBackend

    for name, model in loaded.items():
        if isinstance(model.backend, StaticBackend):
            raise InputError(f"models ({name}) is static vectors, which the server does not serve; name an encoder")


def access_of(settings: Serve, keys: Sequence[str]) -> "Access":
    from bothways.serving.guard import Access

    return Access(keys=tuple(keys), hosts=(settings.host, *settings.allow_host))


# --- serving ----------------------------------------------------------------------------------------------------------


def _serve(settings: Serve, serving: Serving, listening: socket.socket) -> None:
    import uvicorn

    from bothways.serving.protocol import TimedProtocol

    class Server(uvicorn.Server):
        """Ends with status 0 after a signal, which uvicorn would raise again."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            handlers = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
            try:
                yield
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)

    say = said_once()
    protocol: Any = partial(
        TimedProtocol,
        seconds=settings.read_timeout,
        max_body=settings.max_body,
        write_seconds=settings.write_timeout,
        most_connections=most_connections(),
        say=say,
    )
    config: Any = uvicorn.Config(
        serving.app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE,
        backlog=BACKLOG,
    )

    async def serve() -> None:
        asyncio.get_running_loop().set_exception_handler(partial(log_loop_error, say))
        await Server(config).serve(sockets=[listening])

    asyncio.run(serve())
    _end(serving)


def _end(serving: Serving) -> None:
    """Finish the batches that are computed, and end the workers."""
    is_done = [served.queue.close(timeout=1.0) for served in serving.models]
    serving.workers.close()
    if not all(is_done):  # a batch of requests whose time was over; Python would wait for torch
        sys.stderr.flush()
        os._exit(0)
