"""Settings of `serve`."""

from typing import Annotated

from bothways.settings.accepted import Several, default
from bothways.settings.base import Checked, Compute, OptionalDirectory, settings
from bothways.settings.location import OptionalLocation
from bothways.settings.marks import Positional, arg


@settings
class Serve(Checked, Compute):
    """Serve models over HTTP: vectors, labels, entities, answers, masked words; with the routes of Text Embeddings
    Inference and OpenAI's embeddings. SIGTERM ends the server after it has answered what it accepted."""

    models: Positional[Annotated[Several[str], arg(metavar="[[NAME=]DIR ...]")]] = default(())
    """Models, each with an optional name; the first is the default of requests that name none. Adapters share the
    weights of their model. [the packaged model]"""
    store: OptionalDirectory = default(None)
    """Also search this index (`bothways index`): POST /search, and a part of the page."""
    host: str = "127.0.0.1"
    """Address to listen on. Any other than a loopback address needs a key or --no-auth."""
    port: int = 8080
    """Port to listen on; 0: any free one."""
    api_key_file: OptionalLocation = default(None)
    """File with the keys that clients may use, one per line. [those in the environment variable BOTHWAYS_API_KEY]"""
    auth: bool = True
    """Whether another address than loopback needs keys."""
    allow_host: Several[str] = default(())
    """Names by which clients may address the server, besides IP addresses, localhost and --host; * for any."""
    max_wait: float = 0.0
    """Milliseconds that a request may wait for others to share its batch; 0: batches of what is queued."""
    batch_tokens: int = 4096
    """Maximum tokens per batch."""
    window: int | None = None
    """Maximum tokens per window, special tokens included. [as in fine-tuning, else 512]"""
    max_requests: int = 512
    """Maximum requests in flight; more are answered with status 429."""
    queue_tokens: int = 131_072
    """Maximum tokens that wait for a model; more are answered with status 429."""
    max_body: int = 2_000_000
    """Maximum bytes of a request's body; a larger one is answered with status 413."""
    max_texts: int = 1024
    """Maximum texts (or pairs) of a request; more are answered with status 413."""
    max_text_tokens: int = 32_768
    """Maximum tokens of a text (or pair); a longer one is answered with status 413."""
    read_timeout: float = 10.0
    """Seconds within which a client must send its request."""
    grace: float = 30.0
    """Seconds within which the server ends after SIGTERM."""
    access_log: bool = True
    """Write a line of JSON per request to standard error, without its texts."""
    json: bool = False
    """When the server is ready, print its URL and the names of its models as one JSON object to standard output."""
