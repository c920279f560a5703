"""The tasks. Each has a folder here, with equally named files; what several tasks share is beside the folders.

task.py      the Task: rows, predictions, routes of the server
training.py  the TrainingTask: head, teacher, baselines
examples.py  examples, batches
scoring.py   the loss, scores of a training, evaluators
report.py    numbers and warnings about the rows, mistakes, likely label errors
files.py     rows from files, predictions against gold
decoding.py  scores to labels, entities or answers

A task that lacks a part lacks the file. A new task is a folder, or one file, and one entry in TASKS. The verbs, their
help and the kind of a loaded model derive from this table. A task is imported when it is used.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bothways.base.registry import Registry, load_name

if TYPE_CHECKING:
    from bothways.model.checkpoint.description import Description
    from bothways.tasks.task import Route, Task

# Tasks that a model is fine-tuned for, for type checkers.
TaskName = Literal[
    "classify",
    "regress",
    "tag",
    "answer",
    "embed",
    "rerank",
    "decide",
]
MASK = "[MASK]"  # in texts, whatever the tokenizer calls it
TASK = "task"  # key in bothways.json of a model whose heads and labels another task has, too


@dataclass(frozen=True)
class TaskEntry:
    """A task by its name, which is also the name of its method of Predictor, if it has one.

    implementation: "module:Class" of the Task.
    head: the head of its models ("" for none).
    labelled: whether its models have labels; None: either.
    settings: "module:Class" of the options of `finetune NAME`; "" for a task that pre-training teaches.
    help: the line of the verb in `bothways --help`.
    example: arguments of an example, for the verb's help.
    words: other words that people type for the verb.
    remedy: for a task that pre-training teaches: the way to a model with the head.
    run: "module:function" of its training.
    """

    implementation: str
    head: str
    labelled: bool | None = None
    settings: str = ""
    help: str = ""
    example: str = ""
    words: str = ""
    remedy: str = ""
    run: str = "bothways.training.finetuning.finetune:run"

    @property
    def is_trained(self) -> bool:
        """Whether `finetune` teaches it."""
        return self.settings != ""

    @property
    def settings_class(self) -> type[Any]:
        loaded: type[Any] = load_name(self.settings)
        return loaded

    def load(self) -> "Task":
        task: Task = load_name(self.implementation)
        return task


TASKS = Registry[TaskEntry](
    "task",
    "bothways.tasks",
    {
        "classify": TaskEntry(
            "bothways.tasks.classify.task:CLASSIFY",
            head="classes",
            labelled=True,
            settings="bothways.settings.finetune:Classify",
            help="fine-tune a text classifier",
            example="--model my-bert --train reviews.csv -o my-classifier",
            words="classifier classification text-classification sequence-classification sentiment intent topic "
            "multi-label multilabel nli",
        ),
        "regress": TaskEntry(
            "bothways.tasks.regress.task:REGRESS",
            head="classes",
            labelled=False,
            settings="bothways.settings.finetune:Regress",
            help="fine-tune a regression model: a number per text",
            example="--model my-bert --train ratings.csv -o my-rater --label-column stars",
            words="regression regressor rating",
        ),
        "tag": TaskEntry(
            "bothways.tasks.tag.task:TAG",
            head="tokens",
            settings="bothways.settings.finetune:Tag",
            help="fine-tune a tagger: named entities (NER), parts of speech",
            example="--model my-bert --train train.conll --dev dev.conll -o my-tagger",
            words="ner pos tagger tagging token tokens token-classification entities entity conll",
        ),
        "answer": TaskEntry(
            "bothways.tasks.answer.task:ANSWER",
            head="spans",
            settings="bothways.settings.finetune:Answer",
            help="fine-tune a question answering model (SQuAD)",
            example="--model my-bert --train squad.json -o my-reader",
            words="qa question-answering questions squad reader mrc answers",
        ),
        "embed": TaskEntry(
            "bothways.tasks.embed.task:EMBED",
            head="",
            settings="bothways.settings.finetune:TrainEmbed",
            help="fine-tune a sentence embedding model",
            example="--model my-bert --train pairs.csv -o my-embedder",
            words="embedder sentence-embedding sentence-transformer sentence-transformers sbert sts similarity "
            "contrastive retriever matryoshka",
            run="bothways.cli.mining:run_embed",
        ),
        "rerank": TaskEntry(
            "bothways.tasks.rerank.task:RERANK",
            head="classes",
            settings="bothways.settings.finetune:Rerank",
            help="fine-tune a reranker: it orders what a search has found",
            example="--pairs clicks.jsonl --negatives-from my-index -o my-reranker",
            words="reranker reranking re-rank cross-encoder crossencoder ranker ranking",
            run="bothways.cli.mining:run",
        ),
        "decide": TaskEntry(
            "bothways.tasks.decide.task:DECIDE_TASK",
            head="classes",
            labelled=True,
            settings="bothways.settings.finetune:TrainDecide",
            help="fine-tune decisions among options, from a few rows on",
            example="--train rows.csv -o my-decisions --options other-options.json",
            words="decisions options none-of-these soft-labels",
        ),
        "fill": TaskEntry(
            "bothways.tasks.fill.task:FILL", head="masked_words", remedy="use a model pre-trained with masked words"
        ),
        "is_next": TaskEntry(
            "bothways.tasks.is_next.task:IS_NEXT",
            head="next_sentence",
            remedy="use a model pre-trained with next sentences",
        ),
    },
)


def trained_task(settings_class: type[Any]) -> str | None:
    """The name of the task whose options of `finetune` these are; None if they are of no task.

    A class of another package is of a task of the same package, so that no other one is imported.
    """

    def is_of(name: str) -> bool:
        return TASKS[name].is_trained and TASKS[name].settings_class is settings_class

    ours = next(filter(is_of, TASKS), None)
    if ours is not None:
        return ours

    package = settings_class.__module__.partition(".")[0]
    return next(filter(is_of, TASKS.names_of(package)), None)


def task_of(settings: Any) -> "Task":
    """The task that these settings of `finetune` are for."""
    name = trained_task(type(settings))
    assert name is not None
    return TASKS[name].load()


def task_routes(names: Iterable[str] = TASKS) -> "Iterator[Route]":
    """The server's routes of these tasks; of all of ours by default."""
    for name in names:
        yield from TASKS[name].load().routes


TRAINED_HEADS = ("spans", "tokens", "classes")  # a model with one of these was fine-tuned


def task_from_heads(heads: Mapping[str, int], described: "Description", *, fills: bool = True) -> str:
    """The name of the task of a model, from its heads, its labels and its pooling, or its metadata.

    Fine-tuned heads come first. Pre-trained models with a pooling, and models whose heads no task uses, are embedding
    models. fills: whether the model reads in both directions, as filling masks needs.
    """
    stored = described.metadata.get(TASK)
    if isinstance(stored, str) and stored in TASKS and TASKS[stored].head in ("", *heads):
        return stored

    head = next((head for head in TRAINED_HEADS if head in heads), "")
    if not head and described.pooling is None:
        if "masked_words" in heads:
            head = "masked_words" if fills else ""
        elif "next_sentence" in heads:
            head = "next_sentence"

    labelled = bool(described.labels)
    return next(name for name, entry in TASKS.items() if entry.head == head and entry.labelled in (None, labelled))
