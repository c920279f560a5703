"""Settings of `quantize`, `export`, `merge`, `pack` and `serve`."""

from typing import Annotated, Literal

from bothways.settings.base import (
    Checked,
    Compute,
    Model,
    NumberFormat,
    OptionalDirectory,
    Output,
    Printed,
    TextColumns,
    settings,
)
from bothways.settings.fields import Location, OptionalLocation, Positional, Several, arg, default

Texts = Annotated[Location, arg(name="with")]
OptionalTexts = Annotated[OptionalLocation, arg(name="with")]


@settings
class Quantize(TextColumns, Checked, NumberFormat, Printed):
    """Quantize a model to int8: smaller, often faster on CPUs. Nothing is written if its scores may drop too much."""

    model: Model
    """Checkpoint, run, or name of a model on the hub."""
    texts: Texts
    """At least 32 of your texts, labelled or not: half for calibration, half to measure the drop in quality."""
    out: Output
    """Output directory."""
    max_drop: float | None = None
    """Largest allowed upper end of the drop's 95 % interval, in points; a mean cosine counts times 100. [0.5]"""


@settings
class Pack(Printed):
    """Pack a model: its word table and layers in few bits, for shipping. It is unpacked when it is loaded."""

    model: Model
    """Checkpoint, run, or name of a model on the hub."""
    out: Output
    """Output directory."""
    word_bits: Literal[4, 5, 6, 8] = 4
    """Bits of a number in the word table."""
    layer_bits: Literal[4, 5, 6, 8] = 6
    """Bits of a number in the other matrices."""


@settings
class Unpack(Printed):
    """Unpack a model into float32 weights in the Hugging Face layout, which transformers and sentence-transformers
    read."""

    model: Model
    """A packed model, such as bothways-en, or any other checkpoint or run."""
    out: Output
    """Output directory."""


@settings
class Merge(Printed):
    """Merge an adapter (LoRA, or biases) into the model that it belongs to, as plain weights which every library
    reads."""

    adapter: Model
    """Directory of an adapter, or run that trained one."""
    out: Output
    """Output directory."""
    base: OptionalDirectory = default(None)
    """The model that it belongs to: a checkpoint, a run, or a name on the hub. [the one that the adapter names]"""


@settings
class Export(TextColumns, Checked, Printed):
    """Export a model to ONNX. Nothing is written if its scores under ONNX Runtime differ from the original's by more
    than --tolerance."""

    model: Model
    """Checkpoint, run, or name of a model on the hub."""
    out: Output
    """Output directory, for model.onnx, the tokenizer files and metadata."""
    to: Literal["onnx"] = "onnx"
    """Output format."""
    tolerance: float = 1e-4
    """Largest allowed difference between a score and the original."""
    int8: bool = False
    """Also write model-int8.onnx; its drop in quality is measured on the texts of --with."""
    texts: OptionalTexts = default(None)
    """With --int8: your own texts, with or without labels, on which its drop in quality is measured."""
    max_drop: float | None = None
    """Largest allowed upper end of the int8 drop's 95 % interval, in points; a mean cosine counts times 100. [0.5]"""


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
