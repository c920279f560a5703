"""Settings of `quantize`, `export`, `merge`, `pack`, `push`, `serve`, `prune` and `shrink`."""

import re
from dataclasses import fields
from typing import Literal

from bothways.base.errors import InputError, must_be
from bothways.settings.base import Checked, Compute, Data, NumberFormat, OptionalData, Printed, TextColumns, settings
from bothways.settings.fields import Location, Locations, OptionalLocation, Several, argument, option

HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


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
class Push(Checked, Printed):
    """Upload a model with its card to the Hugging Face hub, into a private repository. Paths, host and times are left
    out of its bothways.json."""

    model: Location = argument("DIR")
    """Checkpoint or run."""
    name: str = argument("OWNER/NAME")
    """Name on the hub. The token is that of huggingface_hub: $HF_TOKEN, or that of hf auth login."""
    public: bool = option("output", default=False)
    """Make the repository public."""
    dry_run: bool = option("output", default=False)
    """Only show what would be sent: the files, and the content of bothways.json."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not HUB_NAME.fullmatch(self.name):
            raise must_be("name", self.name, "OWNER/NAME, as the hub names a model")


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
    rerank: OptionalLocation = option("machine", default=None, metavar="[NAME=]DIR", first=True)
    """With --store: reranker (finetune rerank), or another model of text pairs, that orders what is found."""
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
    write_timeout: float = option("limits", default=60.0, least=0.001)
    """Seconds after which a client that takes no byte of its answer is left."""
    access_log: bool = option("machine", default=True)
    """Write a line of JSON per request to standard error, without its texts."""
    json: bool = option("output", default=False)
    """When the server is ready, print its URL and the names of its models as one JSON object to standard output."""


TARGETS = ("size", "speed", "max_drop")


@settings
class Prune(TextColumns, Checked, Compute, Printed):
    """Prune a fine-tuned model: fewer layers, heads, feed-forward neurons or vocabulary entries, in steps with training
    between, in which the model as it was is the teacher."""

    model: Location = argument("DIR")
    """A fine-tuned model: a checkpoint or a run."""
    texts: Data = option("data", flag="--with")
    """Labelled data to train on, such as that of the fine-tuning; dev and test are split off it, unless given."""
    out: Location = option("output", aliases=("-o",))
    """Output directory."""
    size: float | None = option("model", default=None, least=0.01, most=0.99, first=True)
    """Target: this share of the weights of the layers, such as 0.5."""
    speed: float | None = option("task", default=None, least=1.01, most=100, first=True)
    """Target: this many times as fast, such as 2."""
    max_drop: float | None = option("evaluation", default=None, least=0, first=True)
    """Target: as small as possible with at most this drop of the score, in percentage points."""
    parts: Several[Literal["layers", "feed-forward", "heads"]] = option("task", default=(), first=True)
    """What may be cut. [layers as far as possible, then feed-forward neurons; only these where layers differ]"""
    vocabulary_from: Locations = option("model", default=(), metavar="FILE", first=True)
    """Keep only the vocabulary entries that these texts and those of --with need; other words are split smaller."""
    cuts: int | None = option("task", default=None, least=1, most=100)
    """Number of cuts to the target, with training after each. [one for each layer; else 2]"""
    dev: OptionalData = option("data", default=None, first=True)
    """Data for the selection of weights. [a tenth of --with]"""
    test: OptionalData = option("data", default=None, first=True)
    """Data for the reported score. [without --dev, a tenth of --with]"""
    alpha: float = option("task", default=0.5, least=0, most=1)
    """Weight of the teacher's outputs in the loss, from 0 to 1; the labels have the rest."""
    epochs: float | None = option("training", default=None, least=0.001, first=True)
    """Passes over the training data after the last cut; after the others a third of them. [as in fine-tuning]"""
    seed: int = option("training", default=0, least=0, most=2**63 - 1)
    """Random seed."""
    resume: bool = option("output", default=False, first=True)
    """Continue in the output directory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        targets = [name for name in TARGETS if getattr(self, name) is not None]
        if len(targets) > 1:
            raise InputError(f"{targets[0]} and {targets[1]} exclude each other; name one target")
        if not targets and not self.vocabulary_from:
            raise InputError("prune needs a target: size, speed, max_drop or vocabulary_from")


@settings
class Shrink(TextColumns, Checked, Compute, Printed):
    """Shrink a fine-tuned model: cut it layer by layer with training between, each also in int8, and keep the fastest
    that loses no more than allowed. Writes a picture of quality against speed."""

    model: Location = argument("DIR")
    """A fine-tuned model: a checkpoint or a run."""
    texts: Data = option("data", flag="--with")
    """Labelled data to train on, such as that of the fine-tuning; dev and test are split off it, unless given."""
    out: Location = option("output", aliases=("-o",))
    """Output directory."""
    max_drop: float = option("evaluation", default=1.0, least=0, first=True)
    """Largest allowed drop of the score on dev, in percentage points."""
    best: Literal["speed", "size"] = option("task", default="speed", first=True)
    """Which of the models within the drop is kept: the fastest or the smallest."""
    dev: OptionalData = option("data", default=None, first=True)
    """Data for the selection of weights, and of the model. [a tenth of --with]"""
    test: OptionalData = option("data", default=None, first=True)
    """Data for the reported score. [without --dev, a tenth of --with]"""
    alpha: float = option("task", default=0.5, least=0, most=1)
    """Weight of the teacher's outputs in the loss, from 0 to 1; the labels have the rest."""
    epochs: float | None = option("training", default=None, least=0.001, first=True)
    """Passes over the training data after each cut. [as in fine-tuning]"""
    seed: int = option("training", default=0, least=0, most=2**63 - 1)
    """Random seed."""
    resume: bool = option("output", default=False, first=True)
    """Continue in the output directory."""

    @property
    def pruning(self) -> Prune:
        """The settings of its cuts."""
        shared = {field.name for field in fields(Shrink)} & {field.name for field in fields(Prune)}
        return Prune(**{name: getattr(self, name) for name in shared})
