"""Settings of `quantize`, `export`, `merge`, `pack` and `serve`."""

from bothways.settings.base import Checked, Compute, NumberFormat, Printed, TextColumns, settings
from bothways.settings.fields import Location, OptionalLocation, Several, argument, option


@settings
class Quantize(TextColumns, Checked, NumberFormat, Printed):
    """Quantize a model to int8: smaller, often faster on CPUs. Nothing is written if its scores may drop too much."""

    model: Location = argument("DIR")
    """Checkpoint, run, or name of a model on the hub."""
    texts: Location = option("data", flag="--with")
    """At least 32 of your texts, labelled or not: half for calibration, half to measure the drop in quality."""
    out: Location = option("output", aliases=("-o",))
    """Output directory."""
    max_drop: float | None = option("evaluation", default=None, least=0, first=True)
    """Largest allowed upper end of the drop's 95 % interval, in points; a mean cosine counts times 100. [0.5]"""


@settings
class Pack(Checked, Printed):
    """Pack a model: its word table and layers in few bits, for shipping. It is unpacked when it is loaded."""

    model: Location = argument("DIR")
    """Checkpoint, run, or name of a model on the hub."""
    out: Location = option("output", aliases=("-o",))
    """Output directory."""


@settings
class Unpack(Checked, Printed):
    """Unpack a model into float32 weights in the Hugging Face layout, which transformers and sentence-transformers
    read."""

    model: Location = argument("DIR")
    """A packed model, such as bothways-en, or any other checkpoint or run."""
    out: Location = option("output", aliases=("-o",))
    """Output directory."""


@settings
class Merge(Checked, Printed):
    """Merge an adapter (LoRA, or biases) into the model that it belongs to, as plain weights which every library
    reads."""

    adapter: Location = argument("DIR")
    """Directory of an adapter, or run that trained one."""
    out: Location = option("output", aliases=("-o",))
    """Output directory."""
    base: OptionalLocation = option("model", default=None, metavar="DIR")
    """The model that it belongs to: a checkpoint, a run, or a name on the hub. [the one that the adapter names]"""


@settings
class Export(TextColumns, Checked, Printed):
    """Export a model to ONNX. Nothing is written if its scores under ONNX Runtime differ from the original's by more
    than --tolerance."""

    model: Location = argument("DIR")
    """Checkpoint, run, or name of a model on the hub."""
    out: Location = option("output", aliases=("-o",))
    """Output directory, for model.onnx, the tokenizer files and metadata."""
    tolerance: float = option("evaluation", default=1e-4, least=0)
    """Largest allowed difference between a score and the original."""
    int8: bool = option("output", default=False)
    """Also write model-int8.onnx; its drop in quality is measured on the texts of --with."""
    texts: OptionalLocation = option("data", default=None, flag="--with")
    """With --int8: your own texts, with or without labels, on which its drop in quality is measured."""
    max_drop: float | None = option("evaluation", default=None, least=0, first=True)
    """Largest allowed upper end of the int8 drop's 95 % interval, in points; a mean cosine counts times 100. [0.5]"""


@settings
class Serve(Checked, Compute):
    """Serve models over HTTP: vectors, labels, entities, answers, masked words; with the routes of Text Embeddings
    Inference and OpenAI's embeddings. SIGTERM ends the server after it has answered what it accepted."""

    models: Several[str] = argument("[NAME=]DIR", default=())
    """Models, each with an optional name; the first is the default of requests that name none. Adapters share the
    weights of their model. [the packaged model]"""
    store: OptionalLocation = option("machine", default=None, metavar="DIR", first=True)
    """Also search this index (`bothways index`): POST /search, and a part of the page."""
    host: str = option("machine", default="127.0.0.1", first=True)
    """Address to listen on. Any other than a loopback address needs a key or --no-auth."""
    port: int = option("machine", default=8080, least=0, most=65535, first=True)
    """Port to listen on; 0: any free one."""
    api_key_file: OptionalLocation = option("machine", default=None, first=True)
    """File with the keys that clients may use, one per line. [those in the environment variable BOTHWAYS_API_KEY]"""
    auth: bool = option("machine", default=True)
    """Whether another address than loopback needs keys."""
    allow_host: Several[str] = option("machine", default=())
    """Names by which clients may address the server, besides IP addresses, localhost and --host; * for any."""
    batch_tokens: int = option("training", default=4096, least=1)
    """Maximum tokens per batch."""
    window: int | None = option("model", default=None, least=8, first=True)
    """Maximum tokens per window, special tokens included. [as in fine-tuning, else 512]"""
    max_requests: int = option("limits", default=512, least=1)
    """Maximum requests in flight; more are answered with status 429."""
    queue_tokens: int = option("limits", default=131_072, least=1)
    """Maximum tokens that wait for a model; more are answered with status 429."""
    max_body: int = option("limits", default=2_000_000, least=1)
    """Maximum bytes of a request's body; a larger one is answered with status 413."""
    max_texts: int = option("limits", default=1024, least=1)
    """Maximum texts (or pairs) of a request; more are answered with status 413."""
    max_text_tokens: int = option("limits", default=32_768, least=1)
    """Maximum tokens of a text (or pair); a longer one is answered with status 413."""
    read_timeout: float = option("limits", default=10.0, least=0.001)
    """Seconds within which a client must send its request."""
    access_log: bool = option("machine", default=True)
    """Write a line of JSON per request to standard error, without its texts."""
    json: bool = option("output", default=False)
    """When the server is ready, print its URL and the names of its models as one JSON object to standard output."""
