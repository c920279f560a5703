"""The verbs of the command line: of the library, of the applications above it, and of other packages."""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from bothways.base.errors import InputError
from bothways.base.registry import Registry
from bothways.cli.verb import Verb, task_verb
from bothways.tasks import TASKS

FINETUNE = "finetune "

# Applications stand above the command line, which finds them by name.
APPLICATIONS = ("search", "serving")

# The groups of `bothways --help`; `finetune` has a verb for each task, and an application may be missing.
GROUPS = {
    "Try it": ("demo",),
    "Train": ("vocab", "pretrain", "distill", "finetune"),
    "Use a model": ("predict", "fill", "decide", "embed"),
    "Search": ("index", "search", "extract", "mcp"),
    "Measure": ("evaluate", "check"),
    "Deploy": ("quantize", "shrink", "prune", "merge", "pack", "unpack", "export", "push", "serve"),
    "Inspect": ("info", "cache"),
}


# The verbs of the library by name; of a task, `finetune NAME`.
LIBRARY_VERBS: dict[str, Verb] = {
    "demo": Verb(
        "bothways.settings.tools:Demo",
        "bothways.cli.demo:run",
        "what the packaged model does, and a BERT from scratch: 2 minutes",
        example="--minutes 3",
        words="example quickstart try",
    ),
    "vocab": Verb(
        "bothways.settings.tools:Vocab",
        "bothways.cli.commands:vocab",
        "learn a WordPiece vocabulary from text",
        example="corpus.txt -o my-tokenizer",
        words="vocabulary tokenizer tokenize wordpiece",
    ),
    "pretrain": Verb(
        "bothways.settings.pretrain:Pretrain",
        "bothways.training.pretraining.pretrain:run",
        "pre-train a BERT on text",
        trains=True,
        example="text/ -o my-bert --model mini --minutes 60",
        words="mlm pretraining pre-training",
    ),
    "distill": Verb(
        "bothways.settings.pretrain:Distill",
        "bothways.training.pretraining.distillation.distill:run",
        "distill a smaller BERT from a teacher",
        trains=True,
        example="my-bert text/ -o my-student --layers 3 --minutes 60",
        words="distil distillation student",
    ),
    **{f"finetune {name}": task_verb(task) for name, task in TASKS.items() if task.is_trained},
    "predict": Verb(
        "bothways.settings.predict:Predict",
        "bothways.cli.commands:predict",
        "predict labels, numbers, entities or answers",
        example="my-classifier texts.csv --keep-columns id,text -o labels.csv",
        words="infer inference prediction label run pipeline",
    ),
    "fill": Verb(
        "bothways.settings.predict:Fill",
        "bothways.cli.commands:fill",
        "fill each [MASK] in a text",
        example='my-bert "He opened the [MASK] and went out."',
        words="fill-mask mask unmask",
    ),
    "decide": Verb(
        "bothways.settings.predict:Decide",
        "bothways.cli.commands:decide",
        "decide which of the options that you name fits a text",
        example='"My parcel never came." --options delivery,billing,returns',
        words="decision zero-shot zeroshot zero-shot-classification choose choice",
    ),
    "embed": Verb(
        "bothways.settings.predict:Embed",
        "bothways.cli.commands:embed",
        "write a vector for each text",
        example="my-bert texts.jsonl -o vectors.npy",
        words="encode embedding embeddings vectorize vectors features",
    ),
    "evaluate": Verb(
        "bothways.settings.predict:Evaluate",
        "bothways.evaluation.evaluate:run",
        "score a model, or predictions in a file",
        example="my-classifier test.csv",
        words="eval evaluation test validate metrics",
    ),
    "check": Verb(
        "bothways.settings.predict:Check",
        "bothways.evaluation.check:run",
        "check a labelled table: label errors, conflicts, duplicates, odd rows",
        example="reviews.csv -o checked",
        words="lint cleanlab label-errors quality duplicates",
    ),
    "quantize": Verb(
        "bothways.settings.deploy:Quantize",
        "bothways.shrink.quantize:run",
        "quantize a model to int8: smaller and faster",
        example="my-classifier --with my-texts.csv -o my-classifier-int8",
        words="quantise quantization int8",
    ),
    "shrink": Verb(
        "bothways.settings.deploy:Shrink",
        "bothways.shrink.prune:shrink",
        "the fastest model within a stated loss: cuts and int8",
        example="my-classifier --with reviews.csv --max-drop 1 -o my-fast-classifier",
        words="smaller faster optimize optimise compress",
    ),
    "prune": Verb(
        "bothways.settings.deploy:Prune",
        "bothways.shrink.prune:run",
        "prune a fine-tuned model, with training between cuts",
        example="my-classifier --with reviews.csv --size 0.5 -o my-small-classifier",
        words="pruning trim sparsify slim",
    ),
    "merge": Verb(
        "bothways.settings.deploy:Merge",
        "bothways.cli.commands:merge",
        "merge an adapter into its model",
        example="my-adapter -o my-classifier",
        words="merge-adapter merge-lora fuse",
    ),
    "pack": Verb(
        "bothways.settings.deploy:Pack",
        "bothways.cli.commands:pack",
        "pack a model into few bits, for shipping",
        example="my-bert -o my-bert-packed",
        words="4bit 4-bit int4",
    ),
    "unpack": Verb(
        "bothways.settings.deploy:Unpack",
        "bothways.cli.commands:unpack",
        "unpack a model for other libraries",
        example="bothways-en -o bothways-en",
        words="dequantize",
    ),
    "export": Verb(
        "bothways.settings.deploy:Export",
        "bothways.cli.commands:export",
        "export a model to ONNX",
        example="my-classifier -o my-classifier-onnx",
        words="onnx convert",
    ),
    "push": Verb(
        "bothways.settings.deploy:Push",
        "bothways.cli.push:run",
        "upload a model with its card to the Hugging Face hub",
        example="my-classifier OWNER/NAME --dry-run",
        words="upload publish hub push-to-hub share",
    ),
    "info": Verb(
        "bothways.settings.tools:Info",
        "bothways.cli.commands:info",
        "describe a checkpoint or run, and how it was made",
        example="my-classifier",
        words="show describe inspect summary list ls",
    ),
    "cache": Verb(
        "bothways.settings.tools:Cache",
        "bothways.cli.commands:cache",
        "list or delete cached token stores and search indexes",
        example="--clear",
        words="clear-cache clean",
    ),
}


def application_module(name: str) -> ModuleType | None:
    """A module of an application, such as "search.commands"; None if the application is not there."""
    application = name.partition(".")[0]
    assert application in APPLICATIONS
    if find_spec(f"bothways.{application}") is None:
        return None
    return import_module(f"bothways.{name}")


def in_groups(verbs: dict[str, Verb]) -> Iterator[tuple[str, Verb]]:
    """The verbs in the order of the groups."""
    for words in GROUPS.values():
        for word in words:
            yield from ((name, verb) for name, verb in verbs.items() if name.split()[0] == word)


def all_verbs() -> dict[str, Verb]:
    """The verbs of the library and of the applications that are there."""
    verbs = dict(LIBRARY_VERBS)
    for application in APPLICATIONS:
        module = application_module(f"{application}.verbs")
        if module is not None:
            verbs.update(module.VERBS)
    return dict(in_groups(verbs))


class VerbRegistry(Registry[Verb]):
    """The verbs, and `finetune NAME` of each task of another package."""

    def names(self) -> list[str]:
        tasks = [f"{FINETUNE}{name}" for name in TASKS.names() if name not in TASKS.entries]
        return [*super().names(), *tasks]

    def __contains__(self, name: object) -> bool:
        if name in self.entries or not (isinstance(name, str) and name.startswith(FINETUNE)):
            return super().__contains__(name)

        task = name.removeprefix(FINETUNE)
        # A task of ours that has no verb is one that pre-training teaches, unless it was added since.
        return TASKS[task].is_trained if task in TASKS.entries else task in TASKS

    def _from_package(self, name: str) -> Verb:
        if not name.startswith(FINETUNE):
            return super()._from_package(name)

        task = TASKS[name.removeprefix(FINETUNE)]
        if not task.is_trained:
            raise InputError(f"{name}: this task has no settings; a model is not fine-tuned for it")
        return task_verb(task)


VERBS = VerbRegistry("verb", "bothways.verbs", all_verbs())
