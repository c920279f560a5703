"""The verbs: settings, function and help of each, for the command line and `bothways.train`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import wraps
from itertools import count
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack, overload

from bothways.base.errors import InputError, join_names, packages_named, renamed_options
from bothways.base.log import working
from bothways.tasks import TASKS, TaskName, load_name

if TYPE_CHECKING:
    from pathlib import Path

    from bothways.evaluation.check import CheckResult
    from bothways.settings.fields import AnyPath
    from bothways.settings.finetune import FineTune
    from bothways.settings.finetune_options import FineTuneOptions
    from bothways.settings.predict import Evaluate
    from bothways.settings.pretrain import Distill, Pretrain
    from bothways.settings.tables_in_memory import Table
    from bothways.tasks.scores import Scores
    from bothways.training.callbacks import Callbacks
    from bothways.training.finetuning.deliver import FineTuneResult
    from bothways.training.pretraining.result import PretrainingResult


@dataclass(frozen=True)
class Verb:
    """A verb of the command line.

    settings: "module:Class" in bothways.settings, or of a task. function: "module:function" in this package that runs
    the verb. trains: whether `bothways.train` accepts the settings. waits: whether it runs until it is stopped, so that
    elapsed time is not progress. example: arguments, for --help. words: other words that people type for it.
    """

    settings: str
    function: str
    help: str
    trains: bool = False
    waits: bool = False
    example: str = ""
    words: str = ""

    @property
    def settings_class(self) -> type[Any]:
        loaded: type[Any] = load_name(self.settings if "." in self.settings else f"bothways.settings.{self.settings}")
        return loaded

    def load(self) -> Callable[..., Any]:
        """Import the function; it takes settings and returns a result."""
        from bothways.base.paths import with_copies

        verb = next((verb for verb, one in VERBS.items() if one is self), "")
        with packages_named(verb):
            function: Callable[..., Any] = load_name(f"bothways.{self.function}")
        named = wraps(function)(packages_named(verb)(function))
        return named if self.waits else wraps(function)(working(verb)(with_copies(named)))


GROUPS = {  # of the verbs, by their headings in `bothways --help`; `finetune` has a verb for each task
    "Try it": "demo",
    "Train": "vocab pretrain distill finetune",
    "Use a model": "predict fill embed",
    "Search": "index search extract mcp",
    "Measure": "evaluate check",
    "Deploy": "quantize shrink prune merge pack unpack export serve",
    "Inspect": "info cache",
}

# In the order of the groups. Modules are imported when a verb runs, so that --help is fast.
VERBS: dict[str, Verb] = {
    "demo": Verb(
        "tools:Demo",
        "cli.demo:run",
        "what the packaged model does, and a BERT from scratch: 2 minutes",
        example="--minutes 3",
        words="example quickstart try",
    ),
    "vocab": Verb(
        "tools:Vocab",
        "cli.commands:vocab",
        "learn a WordPiece vocabulary from text",
        example="corpus.txt -o my-tokenizer",
        words="vocabulary tokenizer tokenize wordpiece",
    ),
    "pretrain": Verb(
        "pretrain:Pretrain",
        "training.pretraining.pretrain:run",
        "pre-train a BERT on text",
        trains=True,
        example="text/ -o my-bert --model mini --minutes 60",
        words="mlm pretraining pre-training",
    ),
    "distill": Verb(
        "pretrain:Distill",
        "training.pretraining.distillation.distill:run",
        "distill a smaller BERT from a teacher",
        trains=True,
        example="my-bert text/ -o my-student --layers 3 --minutes 60",
        words="distil distillation student",
    ),
    **{
        f"finetune {name}": Verb(task.settings, task.run, task.help, trains=True, example=task.example)
        for name, task in TASKS.items()
        if task.is_trained
    },
    "predict": Verb(
        "predict:Predict",
        "cli.commands:predict",
        "predict labels, numbers, entities or answers",
        example="my-classifier texts.csv --keep-columns id,text -o labels.csv",
        words="infer inference prediction label run pipeline",
    ),
    "fill": Verb(
        "predict:Fill",
        "cli.commands:fill",
        "fill each [MASK] in a text",
        example='my-bert "He opened the [MASK] and went out."',
        words="fill-mask mask unmask",
    ),
    "embed": Verb(
        "predict:Embed",
        "scale.parts:embed",
        "write a vector for each text",
        example="my-bert texts.jsonl -o vectors.npy",
        words="encode embedding embeddings vectorize vectors features",
    ),
    "index": Verb(
        "search:Index",
        "search.commands:run_index",
        "index folders for search by words and meaning",
        example="documents -o my-index",
        words="reindex ingest crawl",
    ),
    "search": Verb(
        "search:Search",
        "search.commands:run_search",
        "search a folder or an index",
        example='"which invoices mention late fees" documents',
        words="find grep retrieve query rank lookup",
    ),
    "extract": Verb(
        "search:Extract",
        "search.commands:extract",
        "extract entities, labels and answers of folders",
        example="documents --tag my-tagger -o facts.parquet",
        words="extraction facts",
    ),
    "mcp": Verb(
        "search:Mcp",
        "search.commands:mcp",
        "search an index from agents (MCP over standard input and output)",
        waits=True,
        example="my-index",
        words="agent agents tool tools",
    ),
    "evaluate": Verb(
        "predict:Evaluate",
        "evaluation.evaluate:run",
        "score a model, or predictions in a file",
        example="my-classifier test.csv",
        words="eval evaluation test validate metrics",
    ),
    "check": Verb(
        "predict:Check",
        "evaluation.check:run",
        "check a labelled table: label errors, conflicts, duplicates, odd rows",
        example="reviews.csv -o checked",
        words="lint cleanlab label-errors quality duplicates",
    ),
    "quantize": Verb(
        "deploy:Quantize",
        "shrink.quantize:run",
        "quantize a model to int8: smaller and faster",
        example="my-classifier --with my-texts.csv -o my-classifier-int8",
        words="quantise quantization int8",
    ),
    "shrink": Verb(
        "deploy:Shrink",
        "shrink.prune:shrink",
        "the fastest model within a stated loss: cuts and int8",
        example="my-classifier --with reviews.csv --max-drop 1 -o my-fast-classifier",
        words="smaller faster optimize optimise compress",
    ),
    "prune": Verb(
        "deploy:Prune",
        "shrink.prune:run",
        "prune a fine-tuned model, with training between cuts",
        example="my-classifier --with reviews.csv --size 0.5 -o my-small-classifier",
        words="pruning trim sparsify slim",
    ),
    "merge": Verb(
        "deploy:Merge",
        "cli.commands:merge",
        "merge an adapter into its model",
        example="my-adapter -o my-classifier",
        words="merge-adapter merge-lora fuse",
    ),
    "pack": Verb(
        "deploy:Pack",
        "cli.commands:pack",
        "pack a model into few bits, for shipping",
        example="my-bert -o my-bert-packed",
        words="4bit 4-bit int4",
    ),
    "unpack": Verb(
        "deploy:Unpack",
        "cli.commands:unpack",
        "unpack a model for other libraries",
        example="bothways-en -o bothways-en",
        words="dequantize",
    ),
    "export": Verb(
        "deploy:Export",
        "cli.commands:export",
        "export a model to ONNX",
        example="my-classifier -o my-classifier-onnx",
        words="onnx convert",
    ),
    "serve": Verb(
        "deploy:Serve",
        "serving.server:run",
        "serve models over HTTP, with batching and limits",
        waits=True,
        example="my-embedder --port 8080",
        words="server serving api http deploy",
    ),
    "info": Verb(
        "tools:Info",
        "cli.commands:info",
        "describe a checkpoint or run, and how it was made",
        example="my-classifier",
        words="show describe inspect summary list ls",
    ),
    "cache": Verb(
        "tools:Cache",
        "cli.commands:cache",
        "list or delete cached token stores and search indexes",
        example="--clear",
        words="clear-cache clean",
    ),
}


@overload
def train(settings: "Pretrain | Distill", *, callbacks: "Callbacks" = ()) -> "PretrainingResult": ...
@overload
def train(settings: "FineTune", *, callbacks: "Callbacks" = ()) -> "FineTuneResult": ...


def train(settings: Any, *, callbacks: "Callbacks" = ()) -> Any:
    """Pre-train, distill or fine-tune a model, like the commands `bothways pretrain`, `distill` and `finetune`.

    settings: a Pretrain, Distill, Classify, Regress, Tag, Answer, TrainEmbed or Rerank of bothways.settings. Its
    corpus, heldout, train, dev and test may be paths or in-memory tables: a list of dicts, a dict of columns, a pandas
    DataFrame, an Arrow table, a Dataset of `datasets`, or any other object that exports Arrow data. A list of strings
    is a list of paths; pass the texts of a corpus as {"text": texts}. Messages count rows from 0: "train: row 17".

    callbacks: one or several Callback objects or functions; functions are called with each row of metrics.jsonl as it
    is written. InputError, before any work, if one cannot be called. A row has `split` ("train" after a step, "heldout"
    after an evaluation), `step`, `steps` (of the whole run), `loss`, `tokens` and `seconds` of training so far,
    `learning_rate`, and `seed` when fine-tuning. Callbacks run in the first process only. An exception in a callback
    ends the run; resume=True continues it from the last checkpoint.
    """
    verb = next((verb for verb in VERBS.values() if verb.trains and verb.settings_class is type(settings)), None)
    if verb is None:
        classes = ", ".join(verb.settings.rpartition(":")[2] for verb in VERBS.values() if verb.trains)
        raise InputError(
            f"settings of type {type(settings).__name__} cannot be trained; bothways.settings has {classes}"
        )
    from bothways.training.callbacks import Callback, list_callbacks

    listed = list_callbacks(callbacks)  # before any work
    result = verb.load()(settings, callbacks=listed)
    for callback in listed:
        if isinstance(callback, Callback):
            callback.on_end(result)
    return result


_train = train


def finetune(
    train: "Table",
    labels: Any = None,
    *,
    task: TaskName = "classify",
    model: "AnyPath | None" = None,
    text: str | None = None,
    label: str | None = None,
    pair: str | None = None,
    out: "AnyPath | None" = None,
    callbacks: "Callbacks" = (),
    **options: "Unpack[FineTuneOptions]",
) -> "FineTuneResult":
    """Fine-tune a model on a table in one call: `bothways.finetune(frame, text="message", label="kind").load()`.

    train: a path or an in-memory table, as `train` of the settings; or texts, with their labels (or numbers) as
    `labels`, like X and y of scikit-learn. task: classify, regress, tag, answer, embed or rerank.
    model: a checkpoint or a name; None: the model of the package. text, label, pair: names of columns, if they have
    unusual ones. out: the run directory; None: a new one in the working directory, named after the task. options: other
    settings of the task's class in bothways.settings, such as epochs=3 or multi_label=True. InputError for an option
    that the task does not have.
    """
    trained = {name: entry for name, entry in TASKS.items() if entry.is_trained}
    if task not in trained:
        raise InputError(f"task ({task!r}) must be one of {', '.join(trained)}")
    if labels is not None:
        train = _as_table(train, labels, task)
    cls = trained[task].settings_class
    columns = {"text_column": text, "label_column": label, "pair_column": pair}
    values = {name: value for name, value in {**columns, "model": model, **options}.items() if value is not None}
    _check_names(values, cls, task)
    out = _new_directory(task) if out is None else out
    with renamed_options({name: f"{name.removesuffix('_column')}=" for name in columns}):
        result: FineTuneResult = _train(cls(train=train, out=out, **values), callbacks=callbacks)
    return result


def _new_directory(task: str) -> "Path":
    from pathlib import Path

    return next(path for number in count(1) if not (path := Path(f"{task}-{number}")).exists())


def _check_names(options: Iterable[str], settings_class: type[Any], verb: str) -> None:
    """InputError for an option that the settings do not have."""
    known = {field.name for field in fields(settings_class)}
    if unknown := [name for name in options if name not in known]:
        near = get_close_matches(unknown[0], known, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; bothways.settings.{settings_class.__name__} has all"
        raise InputError(f"{unknown[0].removesuffix('_column')}: no option of {verb}{hint}")


def _as_table(texts: Any, labels: Any, task: str) -> dict[str, list[Any]]:
    """Texts and their labels as a table. InputError if they are something else, or the task has more columns."""
    if isinstance(labels, str):
        raise InputError(f"labels ({labels!r}) must be a label for each text; to name a column: label={labels!r}")
    labelled = [name for name, entry in TASKS.items() if entry.labelled is not None]
    if task not in labelled:
        raise InputError(f"labels are for {join_names(labelled)}; for {task}, pass a table with all columns")
    if isinstance(texts, str | PathLike) or hasattr(texts, "columns"):
        raise InputError(
            "train is a table, which has its labels in a column; leave out labels, or pass a list of texts"
        )
    return {"text": [*texts], "label": [*labels]}


@overload
def evaluate(settings: "Evaluate") -> "Scores": ...
@overload
def evaluate(settings: "AnyPath", file: "Table", **options: Any) -> "Scores": ...


def evaluate(settings: Any, file: Any = None, **options: Any) -> "Scores":
    """Evaluate a model, or a file of predictions, like the command `bothways evaluate`.

    settings: bothways.settings.Evaluate; or a model, with the file, and other settings by name:
    `bothways.evaluate("my-run", "test.csv")`. Returns the scores by name; the 95 % interval of a score follows it as
    NAME_interval. `file` may hold paths or in-memory tables, as for `train`.
    """
    settings_class = VERBS["evaluate"].settings_class
    if file is not None:
        _check_names(options, settings_class, "evaluate")
        settings = settings_class(model=settings, file=file, **options)
    if type(settings) is not settings_class:
        raise InputError(
            f"settings of type {type(settings).__name__} cannot be evaluated; pass a model and a file, or "
            "bothways.settings.Evaluate"
        )
    scores: Scores = VERBS["evaluate"].load()(settings)
    return scores


def check(file: "Table", **options: Any) -> "CheckResult":
    """Check a labelled table without training, like the command `bothways check`: `bothways.check(frame).table`.

    file: a path or an in-memory table. options: other settings of bothways.settings.Check, such as label_column.
    """
    from bothways.settings.tables_in_memory import as_source

    verb = VERBS["check"]
    _check_names(options, verb.settings_class, "check")
    result: CheckResult = verb.load()(verb.settings_class(file=as_source("table", file), **options))
    return result
