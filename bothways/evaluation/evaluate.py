"""Evaluate a model by its task. The data and the options choose the task of a model that was not fine-tuned."""

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from bothways.base.errors import InputError, flag
from bothways.base.log import logger
from bothways.evaluation.before_after import selected_on
from bothways.evaluation.masked_words import evaluate_masked_words
from bothways.evaluation.retrieval import evaluate_retrieval
from bothways.inference.jobs.plan import asking
from bothways.inference.load import load
from bothways.inference.predictor import Predictor
from bothways.measure import metrics
from bothways.settings.predict import Evaluate
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks import TASKS, TRAINED_HEADS
from bothways.tasks.embed.task import EMBED
from bothways.tasks.fill.task import FILL
from bothways.tasks.scores import Scores
from bothways.tasks.task import Task
from bothways.text.data.beir import is_beir_dataset, is_qrels_file
from bothways.text.data.columns import LABEL_NAMES, find_label_columns, find_text_columns
from bothways.text.data.conll import looks_tagged
from bothways.text.data.examples import TAGS
from bothways.text.data.model_inputs import resolve_columns
from bothways.text.data.word_rows import WORD_NAMES, has_word_columns, names_words
from bothways.text.rows.annotation_files import has_annotations
from bothways.text.rows.datasets import HUB_PREFIX, arrow_files, unread_splits
from bothways.text.rows.rows import ANNOTATED, form_of, open_rows
from bothways.text.rows.text_files import file_type

TAG_COLUMNS = {"tags", "pos_tags", *TAGS}
DataKind = Literal["search", "pairs", "questions", "tags", "labels", "texts"]
NAMES: Mapping[DataKind, str] = {
    "search": "a BEIR directory",
    "pairs": "pairs of texts",
    "questions": "questions with answers",
    "tags": "tagged words",
    "labels": "texts with labels",
    "texts": "texts without labels",
}
REMEDIES: Mapping[DataKind, str] = {  # for models that were not fine-tuned
    "questions": "fine-tune it with finetune answer",
    "tags": "fine-tune it with finetune tag",
    "labels": "fine-tune it with finetune classify, decide or regress; or name its labels as --options, if it decides "
    "without training; or name {column} for the perplexity of the texts",
}

# The name of the row count in the scores, and the plural noun for the rows.
ROWS = {
    "texts": "texts",
    "sentences": "sentences",
    "n": "questions",
    "pairs": "pairs",
    "queries": "queries",
}
FINE_TUNED_ROWS = ("texts", "sentences", "questions")  # that only a fine-tuned model is scored on


def run(settings: Evaluate) -> Scores:
    """Score a model by its head, or a file of predictions.

    The 95 % interval of a score follows it as NAME_interval; the number of rows has one of the names in ROWS.
    """
    scores = measure(settings)
    for name, noun in ROWS.items():
        if name in scores:
            warn_of_few_rows(scores[name], noun, settings)
            break
    return scores


def measure(settings: Evaluate) -> Scores:
    if settings.predictions:
        return score_file(settings)

    for file in settings.file:
        splits = unread_splits(file)
        if splits:
            raise InputError(f"{file}: has several splits; name one of them, such as {file}/{splits[0]}")

    model = load(
        settings.model,
        dtype=settings.dtype,
        device=settings.device,
        window=settings.window,
    )
    model = asking(model, settings)
    task = choose_task(model, settings)
    check_options(model, task, settings)

    match settings.file:
        case [Path() as directory] if is_beir_dataset(directory):
            scores = search(model, directory, settings)
        case _ if task is FILL:
            scores = evaluate_masked_words(model, settings.file, settings)
        case _:
            scores = task.evaluate(model, settings.file, settings)
    counts = {**scores.counts, **selected_on(model, settings.file)}
    return replace(scores, counts=counts, dtype=model.dtype)


def check_options(model: Predictor, task: Task, settings: Evaluate) -> None:
    """InputError if an option is not for the task."""
    skips = task.skips_rows or TASKS[model.task].load().inputs == "questions"
    if settings.on_error == "skip" and not skips:
        raise InputError("on_error skip is for plain text and answers; every row of a labelled file counts, so fix it")

    for entry in TASKS.values():
        other = entry.load()
        option = asked_for(settings, other.evaluate_options)
        if other is not task and option:
            raise InputError(f"{option} is for {other.evaluate_data}; leave it out, or name such data")


def search(model: Predictor, directory: Path, settings: Evaluate) -> Scores:
    reranker = partial(load, settings.rerank or "", dtype=settings.dtype, device=settings.device)
    return evaluate_retrieval(
        model,
        directory,
        how=settings.how,
        language=settings.language,
        dimensions=settings.dimensions,
        rerank=reranker if settings.rerank else None,
    )


def warn_of_few_rows(num_rows: int, noun: str, settings: Evaluate) -> None:
    # Predictions of any system, and search and vectors without fine-tuning, cannot be cross-validated.
    is_fine_tuned = settings.predictions is None and noun in FINE_TUNED_ROWS
    way_out = "" if is_fine_tuned else f"measure on more {noun}"
    measured_on = " ".join(map(str, settings.file or [settings.model]))
    warning = metrics.few_rows_warning(num_rows, noun, measured_on, way_out)
    if warning:
        logger.warning(warning)


def score_file(settings: Evaluate) -> Scores:
    """The scores of `predictions` by the metrics of the gold file's task, `model`. InputError if the two files do not
    match. If a scheme or a column of words or tags is named, both files are read as tags, whatever their names."""
    if settings.scheme != "auto" or settings.words_column or settings.tags_column:
        kind = "tags"
    else:
        columns = (*settings.columns.values(), settings.group_column)
        has_columns = any(column is not None for column in columns)
        labelled = has_columns or bool(settings.multi_label or settings.positive)
        kind = gold_kind(settings.model, labelled, settings.encoding)
    if settings.on_error == "skip" and kind != "answers":
        raise InputError("on_error skip is for gold answers; every row of these files counts, so fix the broken ones")

    tasks = (entry.load() for entry in TASKS.values())  # loaded up to the task, and no further
    task = next(task for task in tasks if task.gold == kind)
    assert settings.predictions is not None
    return task.score_file(settings.predictions, settings.model, settings)


def gold_kind(gold: Path, labelled: bool, encoding: str | None) -> Literal["labels", "tags", "answers", "ranking"]:
    """The kind of data in a file, by its first row, or by its name if columns have no names.

    gold: the file.
    labelled: an option for labels was given, so columns query, document and label are not qrels.
    encoding: of the file; None: UTF-8.

    | gold file                           | predictions, in its order (answers in any)                       |
    | table of labels or numbers          | table with a column named in PREDICTED, or .txt, one per line    |
    | CoNLL columns, or table of words    | the same words, tags in the last column, or the one of tags      |
    | texts with labelled characters      | the same texts with labelled characters                          |
    | SQuAD's JSON, or table of questions | JSON {id: answer}; JSON lines with `id` and `answer`             |
    | relevance judgements (qrels)        | TREC run, or table with query, document and score                |
    """
    rows = open_rows(gold, encoding)
    if rows.form is ANNOTATED:
        return "tags"
    is_published = rows.form.text is not None
    if not labelled and not is_published and is_qrels_file(gold, encoding):
        return "ranking"

    if rows.form.has_names:
        _, row = next(rows.read(lambda error: None), (None, {}))
        if {"question", "context", "answers"} <= row.keys():
            return "answers"
        has_words = isinstance(row.get("words", row.get("tokens")), list) or has_word_columns([*row])
        return "tags" if has_words or has_annotations(row) else "labels"

    if rows.form.is_squad:
        return "answers"
    if names_words(gold, encoding, WORD_NAMES):
        return "tags"
    if file_type(gold) in (".csv", ".tsv") or is_published:
        return "labels"
    return "tags"


def choose_task(model: Predictor, settings: Evaluate) -> Task:
    """The task for the data and the options. InputError if the model does not support it."""
    is_search = any(isinstance(file, Path) and is_beir_dataset(file) for file in settings.file)
    if TASKS[model.task].head not in TRAINED_HEADS:
        return EMBED if is_search else choose_untrained(model, settings)
    if is_search and settings.how == "words":
        return EMBED  # the model takes no part

    task = TASKS[model.task].load()
    if is_search:
        data = NAMES["search"]
        remedy = f"name an embedding model; {flag('rerank')} orders its results anew"
    elif task.inputs != "questions" and any(map(is_squad_file, settings.file)):
        data = NAMES["questions"]
        remedy = "use a model that answers"
    else:
        return task
    raise InputError(f"{settings.file[0]}: {data}, but {settings.model} is fine-tuned to {model.task}; {remedy}")


def choose_untrained(model: Predictor, settings: Evaluate) -> Task:
    """The task to evaluate a model on that was not fine-tuned to predict anything."""
    kinds = {file: data_kind(file, settings, model.description.settings) for file in settings.file}
    if len({*kinds.values()}) > 1:
        contents = ", ".join(f"{file} has {NAMES[kind]}" for file, kind in kinds.items())
        raise InputError(f"{contents}; evaluate one kind at a time")
    kind: DataKind = next(iter(kinds.values()), "texts")

    asks_words = asked_for(settings, FILL.evaluate_options) != ""
    if asked_for(settings, EMBED.evaluate_options) or (kind == "pairs" and not asks_words):
        return EMBED

    # A table has labels that the model cannot predict, but its texts have words, if they are asked for.
    heads = model.backend.heads
    names_text = settings.text_column is not None and settings.label_column is None
    reads_texts = kind == "texts" or (kind in ("pairs", "labels") and (asks_words or names_text))
    if "masked_words" in heads and reads_texts:
        return FILL

    if kind in REMEDIES:
        remedy = REMEDIES[kind].format(column=flag("text_column"))
        raise InputError(
            f"{settings.file[0]}: {NAMES[kind]}, which {settings.model} was not fine-tuned to predict; {remedy}"
        )
    if not heads:
        return EMBED
    raise InputError(f"{settings.model}: no head that can be evaluated (heads: {', '.join(heads)}); fine-tune it")


def asked_for(settings: Evaluate, names: Collection[str]) -> str:
    """The name of the first setting that differs from its default; "" if none does."""
    defaults = {field.name: field.default for field in fields(settings)}
    for name in names:
        if getattr(settings, name) != defaults[name]:
            return name
    return ""


def data_kind(file: TableSource, settings: Evaluate, trained: Mapping[str, Any]) -> DataKind:
    """The kind of data in a file, by its format, columns and first rows.

    file: the file, or the table in memory.
    settings: may name its columns.
    trained: names the columns of the model's data.
    """
    if is_squad_file(file):
        return "questions"

    rows = open_rows(file, settings.encoding)
    if isinstance(file, Path):
        if rows.form is ANNOTATED or looks_tagged(file, settings.encoding):
            return "tags"
        if is_plain_text(file):
            return "texts"

    columns = rows.names()
    text_columns = resolve_columns(file, settings, trained)
    if text_columns["text"] is None:
        names = {name.strip().lower() for name in columns}
        if names >= {"question", "context", "answers"}:
            return "questions"
        if (names & {"words", "tokens"} and names & TAG_COLUMNS) or has_word_columns(columns):
            return "tags"

        first = rows.first() if rows.form.has_names else []
        if first and all(map(has_annotations, first)):  # a row without labels could be of several classes
            return "tags"

    label = find_label_columns(file, columns, settings.label_column, (), ())
    try:
        _, pair = find_text_columns(file, columns, text_columns["text"], text_columns["pair"])
        label = label or find_label_columns(file, columns, None, ["label"], LABEL_NAMES)
    except InputError:  # the evaluation needs other columns, and names the missing ones
        return "texts"
    if pair:
        return "pairs"
    return "labels" if label else "texts"


def is_plain_text(path: Path) -> bool:
    """Whether a path is a folder or a pattern of plain text, rather than a file or a data set."""
    if path.is_dir():
        return not arrow_files(path)
    return not (path.as_posix().startswith(HUB_PREFIX) or path.is_file())


def is_squad_file(file: TableSource) -> bool:
    return form_of(file).is_squad
