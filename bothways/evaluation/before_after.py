"""How a changed model is measured on a user's own texts: by its head's metric where they have labels, without labels by
how many results stay as they were (of masked words too), and by the cosine between vectors where there is no head.

Figures are in percent, so that a loss is in points; the first of each kind is what counts.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import eq
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from bothways import metrics
from bothways.data.columns import Table
from bothways.data.datasets import has_named_columns, read_rows
from bothways.data.examples import read_table
from bothways.data.files import read_lines
from bothways.data.labels import class_indices, label_sets, numeric_labels
from bothways.data.squad import Question, read_squad
from bothways.data.stream import read_questions
from bothways.data.tags import OUTSIDE, detect_scheme
from bothways.errors import InputError, join_names
from bothways.evaluation.as_trained import table_as_learned
from bothways.inference.masked_words import MASK
from bothways.inference.predictor import Predictor
from bothways.inference.tagged_texts import all_words, group_sentences, read_sentences, to_iob2
from bothways.log import logger
from bothways.settings import TextColumns
from bothways.tokenizer.tokenizer import Tokenizer

MAX_DROP = 0.5  # points, where nothing else is said
MEASURING = 2000  # rows at most
GROUPS = 20  # of rows, of which one is left out at a time
GAPS = 7  # a word of so many is hidden
FEWEST = 64  # texts made of sentences, where there are so many sentences
Rows = Sequence[int]
Figures = dict[str, float]


@dataclass(frozen=True)
class Yardstick:
    """size: rows there are. ask: what a model says of some of them. judge: its figures, from what it says of them and
    what the unchanged model said. labelled: whether they are measured by labels."""

    size: int
    labelled: bool
    ask: Callable[[Predictor, Rows], list[Any]]
    judge: Callable[[Rows, list[Any], list[Any]], Figures]


def yardstick(model: Predictor, file: Path, columns: TextColumns) -> Yardstick:
    """For the texts in a file. InputError where it cannot be read, or has labels that the model does not know."""
    match model.task:
        case "answer":
            return of_answers(model, file, columns)
        case "tag":
            return of_tags(model, file, columns)
        case "fill":
            return of_guesses(texts_of(file, columns), model.tokenizer)
        case "is_next":
            raise InputError("a head for next sentences alone is measured by nothing here; fine-tune the model first")
    table = table_as_learned(model, file, columns, need_labels=columns.label_column is not None)
    match model.task:
        case "classify":
            return of_classes(model, table)
        case "regress":
            return of_numbers(table)
    return of_vectors(table)


def texts_of(file: Path, columns: TextColumns) -> Table:
    return read_table(file, text=columns.text_column, need_labels=False, encoding=columns.encoding)


def of_vectors(table: Table) -> Yardstick:
    def ask(model: Predictor, rows: Rows) -> list[Any]:
        return list(model.embed([table.texts[row] for row in rows]))

    def judge(rows: Rows, found: list[Any], exact: list[Any]) -> Figures:
        cosines_N = 100 * (np.array(found) * np.array(exact)).sum(1)
        return {"mean cosine": float(cosines_N.mean()), "least cosine": float(cosines_N.min())}

    return Yardstick(len(table), False, ask, judge)


def of_guesses(table: Table, tokenizer: Tokenizer) -> Yardstick:
    """Some words are hidden, about as many as BERT was trained to guess."""
    hidden = [with_gaps(text, tokenizer) for text in table.texts]

    def ask(model: Predictor, rows: Rows) -> list[Any]:
        return [best.token for row in rows for best, *_ in model.fill(hidden[row], top=1)]

    return _unlabelled(len(table), "same guesses", ask)


def with_gaps(text: str, tokenizer: Tokenizer) -> str:
    """Every seventh word hidden; of a text without spaces, one word to many a tokenizer, every seventh piece."""
    encoding = tokenizer.encode(text)
    words = encoding.word_ids
    whole = len({*words}) > len(words) / GAPS
    spans: dict[int, tuple[int, int]] = {}
    for place, (word, (start, end)) in enumerate(zip(words, encoding.offsets, strict=True)):
        if word is not None and start < end:
            name = word if whole else place
            spans[name] = (spans[name][0] if name in spans else start, end)
    for start, end in reversed([*spans.values()][::GAPS]):
        text = f"{text[:start]}{MASK}{text[end:]}"
    return text if spans else MASK


def of_classes(model: Predictor, table: Table) -> Yardstick:
    several = model.checkpoint.multi_label
    gold: Sequence[Any] | None = table.labels
    if gold is not None and several:
        gold = label_sets(table, model.labels)
    elif gold is not None:
        class_indices(table, model.labels)  # unknown labels are named before any work
    labels = model.labels

    def ask(model: Predictor, rows: Rows) -> list[Any]:
        found = model.classify(*_texts(table, rows))
        return [one.labels if several else one.label for one in found]

    def judge(rows: Rows, found: list[Any], exact: list[Any]) -> Figures:
        if gold is None:
            return _same("same label", found, exact)
        right = [gold[row] for row in rows]
        if several:
            return _percent(metrics.multi_label(right, found, labels), "f1_micro", "accuracy")
        return _percent(metrics.classification(right, found), "accuracy", "f1_macro")

    return Yardstick(len(table), gold is not None, ask, judge)


def of_numbers(table: Table) -> Yardstick:
    gold = None if table.labels is None else numeric_labels(table)

    def ask(model: Predictor, rows: Rows) -> list[Any]:
        return model.regress(*_texts(table, rows)).tolist()

    def judge(rows: Rows, found: list[Any], exact: list[Any]) -> Figures:
        right = exact if gold is None else [gold[row] for row in rows]
        return _percent(metrics.regression(right, found), "spearman", "pearson")

    return Yardstick(len(table), gold is not None, ask, judge)


def of_tags(model: Predictor, file: Path, columns: TextColumns) -> Yardstick:
    if not _is_tagged(file, model.labels, columns.encoding):
        table = texts_of(file, columns)
        return _unlabelled(len(table), "same entities", lambda model, rows: _entities(model, table, rows))
    named = SimpleNamespace(words_column=None, tags_column=columns.label_column, encoding=columns.encoding)
    sentences = read_sentences(file, named, model.checkpoint.settings)
    known = {_kind(label) for label in model.labels} | {OUTSIDE}
    for one in sentences:
        if strange := [tag for tag in one.tags if _kind(tag) not in known]:
            raise InputError(
                f"{one.where}: tag {strange[0]!r} is unknown; the model knows {join_names(model.labels)}; mend the tag"
            )
    scheme = detect_scheme([one.tags for one in sentences])
    plain = "plain" in (scheme, model.checkpoint.metadata.get("scheme"))
    window = model.window_policy.size if model.checkpoint.settings.get("context") else 0
    texts = [*group_sentences(sentences, model.tokenizer, window)]
    while len(texts) < min(FEWEST, len(sentences)):  # as much around each sentence as leaves texts enough
        window //= 2
        texts = [*group_sentences(sentences, model.tokenizer, window)]

    def ask(model: Predictor, rows: Rows) -> list[Any]:
        """The tags of each row's sentences."""
        found = []
        for row, tags in zip(rows, model.tag_words([all_words(texts[row]) for row in rows]), strict=True):
            rest = iter(tags)
            found.append([[*islice(rest, len(one.words))] for one in texts[row]])
        return found

    def judge(rows: Rows, found: list[Any], exact: list[Any]) -> Figures:
        given = [*chain.from_iterable(found)]
        gold = [one for row in rows for one in texts[row]]
        if plain:
            return _same("accuracy", [*chain.from_iterable(given)], [*chain.from_iterable(one.tags for one in gold)])
        right = [to_iob2(one, scheme).tags for one in gold]
        return _percent(metrics.entity_scores(right, given, "iob2"), "f1", "accuracy")

    return Yardstick(len(texts), True, ask, judge)


def _entities(model: Predictor, table: Table, rows: Rows) -> list[Any]:
    """What is found where; how sure of it a model is differs from one number format to the next."""
    found = model.tag([table.texts[row] for row in rows])
    return [[(one.label, one.start, one.end) for one in entities] for entities in found]


def _is_tagged(file: Path, labels: Sequence[str], encoding: str | None) -> bool:
    """Whether there are tags: in columns with names a list of words, else lines that end in one of the model's tags."""
    if has_named_columns(file):
        rows = read_rows(file, encoding=encoding)
        return bool(rows) and any(isinstance(value, list) for value in rows[0][1].values())
    fields = next((line.split() for _, line in read_lines(file, encoding) if line.strip()), [])
    return len(fields) > 1 and (fields[-1] in (*labels, OUTSIDE) or fields[0] == "-DOCSTART-")


def _kind(tag: str) -> str:
    """Of what an entity is, whatever the scheme writes before it."""
    return tag[2:] if tag[1:2] == "-" else tag


def of_answers(model: Predictor, file: Path, columns: TextColumns) -> Yardstick:
    rows = read_rows(file, encoding=columns.encoding) if has_named_columns(file) else []
    if rows and "answers" not in rows[0][1]:
        given = [
            *read_questions(
                str(file), question=columns.text_column, context=columns.pair_column, encoding=columns.encoding
            )
        ]
        if wrong := [one for one in given if isinstance(one, InputError)]:
            raise wrong[0]
        asked = [(one.text, one.pair or "") for one in given if not isinstance(one, InputError)]
        return _unlabelled(len(asked), "same answer", lambda model, rows: _answers(model, [asked[row] for row in rows]))
    skipped: Counter[str] = Counter()
    gold: list[Question] = read_squad(file, on_error="skip", skipped=skipped, encoding=columns.encoding)
    if skipped:
        logger.warning(
            f"{file}: left out {skipped.total():,} questions that cannot be read (finetune answer names the first)"
        )

    def ask(model: Predictor, rows: Rows) -> list[Any]:
        return _answers(model, [(gold[row].question, gold[row].context) for row in rows])

    def judge(rows: Rows, found: list[Any], exact: list[Any]) -> Figures:
        right = {gold[row].id: [text for text, _ in gold[row].answers] for row in rows}
        scores = metrics.answer_scores(right, dict(zip(right, found, strict=True)))
        return {name: float(scores[name]) for name in ("f1", "exact_match")}

    return Yardstick(len(gold), True, ask, judge)


def _answers(model: Predictor, asked: list[tuple[str, str]]) -> list[Any]:
    found = model.answer([question for question, _ in asked], [passage for _, passage in asked])
    return [best.text for best, *_ in found]


@dataclass(frozen=True)
class Loss:
    """What a model loses of the figure that counts, in points, with the standard error of that."""

    metric: str
    points: float
    error: float

    @property
    def interval(self) -> tuple[float, float]:
        """95 %."""
        return self.points - 1.96 * self.error, self.points + 1.96 * self.error

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.points:.2f} points of {self.metric} (95 % interval {low:.2f} to {high:.2f})"


def loss_of(measure: Yardstick, rows: Rows, found: list[Any], exact: list[Any]) -> Loss:
    """What the results `found` lose against the unchanged model's on the same rows. The error is the jackknife's: each
    of 20 groups of rows is left out in turn (Efron 1982); where no result changes, it is as if one had."""

    def lost(places: Sequence[int]) -> tuple[str, float]:
        chosen, said, right = ([values[place] for place in places] for values in (rows, found, exact))
        (name, before), *_ = measure.judge(chosen, right, right).items()
        return name, before - measure.judge(chosen, said, right)[name]

    size, groups = len(rows), min(GROUPS, len(rows))
    name, points = lost(range(size))
    parts = np.array([lost([row for row in range(size) if row % groups != group])[1] for group in range(groups)])
    error = float(np.sqrt((groups - 1) * parts.var()))
    return Loss(name, points, 100 / size if error == 0 else error)


def allowed(max_drop: float | None) -> float:
    """The greatest loss, in points."""
    return MAX_DROP if max_drop is None else max_drop


def spread(rows: range, most: int) -> Rows:
    """At most so many of the rows, evenly."""
    return [rows[place * len(rows) // most] for place in range(most)] if len(rows) > most else rows


# --- what they share --------------------------------------------------------------------------------------------------


def _unlabelled(size: int, name: str, ask: Callable[[Predictor, Rows], list[Any]]) -> Yardstick:
    return Yardstick(size, False, ask, lambda rows, found, exact: _same(name, found, exact))


def _same(name: str, found: list[Any], right: list[Any]) -> Figures:
    """The share of results that are as they should be."""
    return {name: 100 * sum(map(eq, found, right)) / len(right)}


def _percent(found: dict[str, Any], *names: str) -> Figures:
    return {name: 100 * float(found[name]) for name in names}


def _texts(table: Table, rows: Rows) -> tuple[list[str], list[str] | None]:
    pairs = None if table.pairs is None else [table.pairs[row] for row in rows]
    return [table.texts[row] for row in rows], pairs
