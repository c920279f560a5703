"""`bothways serve`: load models, listen, and on SIGTERM answer all accepted requests before the end."""

import asyncio
import ipaddress
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.base.device import release_memory
from bothways.base.errors import InputError, UsageError, flag, needs_package
from bothways.base.io import SURROGATES, Files
from bothways.base.log import logger, print_json, print_message
from bothways.pretrained import DEFAULT
from bothways.settings.deploy import Serve
from bothways.text.data.text_encodings import decode_marked

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from bothways.inference.predictor import Predictor
    from bothways.serving.guard import Access
    from bothways.serving.inference_queue import Limits
    from bothways.serving.served_model import ServedModel
    from bothways.serving.workers import Workers

PACKAGES = {
    "starlette": "starlette",
    "uvicorn": "uvicorn",
    "httptools": "httptools",
    "orjson": "orjson",
    "prometheus_client": "prometheus-client",
}
KEY_VARIABLE = "BOTHWAYS_API_KEY"
# Shapes for which oneDNN, and torch's layer above it, keep compiled kernels. Their own numbers, 1,024 each, take 400 MB
# more per process in bf16; these cost some 5 % of the speed (docs/LOG.md).
KERNEL_CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256", "LRU_CACHE_CAPACITY": "64"}
GRACE = 30  # seconds within which the server ends after SIGTERM
# Connections that the kernel holds until they are accepted. As many are accepted at once, and fail at once when the
# process has no file descriptor left.
BACKLOG = 128
MOST_CONNECTIONS = 4096
SPARE_FILES = 64  # file descriptors for everything but connections and what is open when the server starts
MOST_FILES = 65_536  # that are asked for; some systems refuse "unlimited"


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
    listening = listen(settings.host, settings.port)
    with listening:
        serving = prepare(settings, keys, inherited=[listening])
        listening.listen(BACKLOG)
        url = f"http://{bracketed(settings.host)}:{listening.getsockname()[1]}"
        logger.info(f"serving {', '.join(one.name for one in serving.models)} at {url} (page: {url}/)")
        if settings.json:
            print_json({"url": url, "models": [one.name for one in serving.models]})
        _serve(settings, serving, listening)


def prepare(settings: Serve, keys: Sequence[str] = (), inherited: Sequence[socket.socket] = ()) -> Serving:
    """Load the models, start processes that compute, and build the application. inherited: sockets that the processes
    are to close."""
    import bothways
    from bothways.inference.backends.static import StaticBackend
    from bothways.model.checkpoint import hub
    from bothways.model.checkpoint.sentence_transformers import read_prompts
    from bothways.search.store import Store
    from bothways.serving.app import build_app
    from bothways.serving.guard import Metrics
    from bothways.serving.served_model import ServedModel
    from bothways.serving.workers import Workers

    limits = limits_of(settings)
    places, reranker = with_reranker(model_names(settings.models), settings)
    options = {"dtype": settings.dtype, "device": settings.device, "window": settings.window}
    loaded = load_models(places, **options, batch_tokens=limits.batch_tokens)
    for name, model in loaded.items():
        if isinstance(model.backend, StaticBackend):
            raise InputError(f"models ({name}) is static vectors, which the server does not serve; name an encoder")
    store = Store(settings.store) if settings.store else None
    workers = Workers.forked(loaded, inherited=inherited)
    metrics, models = Metrics(), []
    for name, model in loaded.items():
        on_batch = metrics.on_batch(name, limits.batch_tokens)
        prompts = read_prompts(Files(hub.locate(places[name])))
        models.append(ServedModel(name, model, limits, workers=workers, prompts=prompts, on_batch=on_batch))
    app = build_app(
        models,
        limits=limits,
        metrics=metrics,
        access=access_of(settings, keys),
        version=bothways.__version__,
        write_log=print_message if settings.access_log else None,
        store=store,
        reranker=next((one for one in models if one.name == reranker), None),
    )
    release_memory()  # of the fingerprints
    return Serving(app, models, workers)


def access_of(settings: Serve, keys: Sequence[str]) -> "Access":
    from bothways.serving.guard import Access

    return Access(tuple(keys), (settings.host, *settings.allow_host))


def limits_of(settings: Serve) -> "Limits":
    from bothways.serving.inference_queue import Limits

    return Limits(
        max_requests=settings.max_requests,
        queue_tokens=settings.queue_tokens,
        batch_tokens=settings.batch_tokens,
        max_body=settings.max_body,
        max_texts=settings.max_texts,
        max_text_tokens=settings.max_text_tokens,
        read_timeout=settings.read_timeout,
    )


def load_models(places: Mapping[str, str], **options: Any) -> "dict[str, Predictor]":
    """The models by name. Adapters of the same model share its weights, with the model itself if it is among them."""
    from bothways.inference.adapters import with_adapter
    from bothways.inference.load import load
    from bothways.inference.predictor import Predictor
    from bothways.model.adapters.files import find_adapter
    from bothways.model.checkpoint import hub

    located = {name: hub.locate(place) for name, place in places.items()}
    adapters = {name: adapter for name, place in located.items() if (adapter := find_adapter(place))}
    model_of = {name: hub.locate(files.base) for name, files in adapters.items()}
    uses = Counter(model_of.get(name, place) for name, place in located.items())
    shared = {place: load(place, **options) for place in {*model_of.values()} if uses[place] > 1}
    loaded = {}
    for name, place in located.items():
        if name in adapters and model_of[name] in shared:
            base = shared[model_of[name]].torch_encoder
            loaded[name] = Predictor(with_adapter(base, adapters[name].directory))
        else:
            loaded[name] = shared.get(place) or load(place, **options)
    return loaded


def model_names(arguments: Sequence[str]) -> dict[str, str]:
    """Directories (or names on the hub) by the names of the models: NAME=DIR, or the last part of DIR."""
    named: dict[str, str] = {}
    for argument in arguments or (DEFAULT,):
        name, equals, place = argument.partition("=")
        if not equals or "/" in name or not name:
            name, place = Path(argument).name or Path(argument).resolve().name, argument
        if not place:
            raise InputError(f"models ({argument}): a directory must follow the name")
        if SURROGATES.search(name):
            raise InputError(f"models ({argument}): the name is not UTF-8; name it otherwise: NAME={place}")
        if name in named:
            raise InputError(f"models: two are named {name!r}; name one of them otherwise: NAME={place}")
        named[name] = place
    return named


def with_reranker(places: Mapping[str, str], settings: Serve) -> tuple[dict[str, str], str]:
    """The models with that of `rerank`, which may be one of them, and its name; "" for none."""
    if settings.rerank is None:
        return {**places}, ""
    if settings.store is None:
        raise InputError(f"rerank ({settings.rerank}) orders what a search has found; give {flag('store')} too")
    ((name, place),) = model_names([str(settings.rerank)]).items()
    if places.get(name, place) != place:
        raise InputError(f"rerank: two models are named {name!r}; name one of them otherwise: NAME={place}")
    return {**places, name: place}, name


def read_keys(file: Path | None, environment: Mapping[str, str]) -> list[str]:
    """The keys of a file, one per line, else those of the environment variable. InputError if the file has none, or if
    a key is not ASCII, which headers cannot hold."""
    if file is None:
        source, keys = KEY_VARIABLE, environment.get(KEY_VARIABLE, "").split()
    else:
        source = f"api_key_file ({file})"
        keys = decode_marked(file.read_bytes(), "replace").split()
        if not keys:
            raise InputError(f"{source} has no key; write one per line")
    if wrong := [number for number, key in enumerate(keys, 1) if not key.isascii()]:
        raise InputError(f"{source}: key {wrong[0]} is not ASCII, which a header cannot hold; use another")
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


def bracketed(host: str) -> str:
    return f"[{host.strip('[]')}]" if ":" in host else host


def listen(host: str, port: int) -> socket.socket:
    """A bound socket: made before models are loaded, so that a port in use is an error at once; it listens later, so
    that no client waits for the models."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise InputError(f"cannot listen on host {host}, port {port}: {error.strerror or error}") from None
    return listening


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
    is_done = [served.queue.close(timeout=1.0) for served in serving.models]
    serving.workers.close()
    if not all(is_done):  # a batch of requests whose time was over; Python would wait for torch
        sys.stderr.flush()
        os._exit(0)


# --- connections and file descriptors ---------------------------------------------------------------------------------


def most_connections() -> int:
    """How many connections may be open, below the limit of the process for file descriptors, which is raised first."""
    try:
        import resource
    except ImportError:  # Windows, whose sockets are not counted with files
        return MOST_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(1, min(MOST_CONNECTIONS, soft - _open_files() - SPARE_FILES))


def _open_files() -> int:
    with suppress(OSError):
        return len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))
    return 0


def said_once() -> Callable[[str], None]:
    """A function that logs each line the first time."""
    said: set[str] = set()

    def say(line: str) -> None:
        if line not in said:
            said.add(line)
            logger.warning(line)

    return say


def log_loop_error(say: Callable[[str], None], loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A connection that cannot be accepted is one line, once, instead of a traceback for each attempt."""
    error = context.get("exception")
    if isinstance(error, OSError) and "accept" in context.get("message", ""):
        say(f"a connection cannot be accepted ({error.strerror}); the server tries again each second")
    else:
        loop.default_exception_handler(context)
