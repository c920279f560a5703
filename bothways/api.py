"""The Python interface to the verbs: `bothways.train`, `finetune`, `evaluate` and `check`."""

from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from itertools import count
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack, overload

from bothways.base.errors import InputError, join_names, renamed_options
from bothways.cli.verbs import VERBS
from bothways.tasks import TASKS, TaskName, trained_task

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
    name = _training_verb(settings)

    from bothways.training.callbacks import Callback, list_callbacks

    checked = list_callbacks(callbacks)  # before any work
    result = VERBS[name].load(name)(settings, callbacks=checked)
    for callback in checked:
        if isinstance(callback, Callback):
            callback.on_end(result)
    return result


def _training_verb(settings: Any) -> str:
    """The verb that trains with these settings. InputError if there is none."""
    trained = {name: verb for name, verb in VERBS.items() if verb.trains}
    for name, verb in trained.items():
        if verb.settings_class is type(settings):
            return name

    task = trained_task(type(settings))
    if task is not None:  # of another package
        return f"finetune {task}"

    classes = ", ".join(verb.settings.rpartition(":")[2] for verb in trained.values())
    raise InputError(f"settings of type {type(settings).__name__} cannot be trained; bothways.settings has {classes}")


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

    train: a path or an in-memory table, as `train` of the settings; or texts, like X of scikit-learn.
    labels: labels (or numbers) of texts, like y of scikit-learn; None: the table has them.
    task: classify, regress, tag, answer, embed, rerank or decide, or a task of another package, which type checkers do
    not know.
    model: a checkpoint or a name; None: the model of the package.
    text, label, pair: names of columns, if they have unusual ones.
    out: the run directory; None: a new one in the working directory, named after the task.
    callbacks: as for `train`.
    options: other settings of the task's class in bothways.settings, such as epochs=3 or multi_label=True.

    InputError for an option that the task does not have.
    """
    if task not in TASKS or not TASKS[task].is_trained:
        trained = [name for name, entry in TASKS.items() if entry.is_trained]
        raise InputError(f"task ({task!r}) must be one of {', '.join(trained)}")
    if labels is not None:
        train = _as_table(train, labels, task)

    settings_class = TASKS[task].settings_class
    columns = {"text_column": text, "label_column": label, "pair_column": pair}
    given = {**columns, "model": model, **options}
    values = {name: value for name, value in given.items() if value is not None}
    _check_names(values, settings_class, task)
    if out is None:
        out = _new_directory(task)

    # Errors name the parameters of this function: "text=" for text_column.
    with renamed_options({name: f"{name.removesuffix('_column')}=" for name in columns}):
        settings = settings_class(train=train, out=out, **values)
        result: FineTuneResult = _train(settings, callbacks=callbacks)
    return result


def _new_directory(task: str) -> "Path":
    from pathlib import Path

    paths = (Path(f"{task}-{number}") for number in count(1))
    return next(path for path in paths if not path.exists())


def _check_names(options: Iterable[str], settings_class: type[Any], verb: str) -> None:
    """InputError for an option that the settings do not have."""
    names = {field.name for field in fields(settings_class)}
    for option in options:
        if option in names:
            continue
        near = get_close_matches(option, names, 1)
        hint = f"did you mean {near[0]}?" if near else f"bothways.settings.{settings_class.__name__} has all"
        raise InputError(f"{option.removesuffix('_column')}: no option of {verb}; {hint}")


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
    scores: Scores = VERBS["evaluate"].load("evaluate")(settings)
    return scores


def check(file: "Table", **options: Any) -> "CheckResult":
    """Check a labelled table without training, like the command `bothways check`: `bothways.check(frame).table`.

    file: a path or an in-memory table. options: other settings of bothways.settings.Check, such as label_column.
    """
    from bothways.settings.tables_in_memory import as_source

    verb = VERBS["check"]
    _check_names(options, verb.settings_class, "check")
    settings = verb.settings_class(file=as_source("table", file), **options)
    result: CheckResult = verb.load("check")(settings)
    return result
