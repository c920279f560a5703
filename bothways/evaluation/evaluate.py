"""Measure a model at what it has learned: classes, numbers, tags or answers, masked words, vectors."""

from collections import Counter
from collections.abc import Callable
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from bothways import metrics
from bothways.corpus.documents import Corpus
from bothways.corpus.sentence_pairs import PairTask
from bothways.corpus.store import build_in_memory
from bothways.data.columns import Table
from bothways.data.datasets import unread_splits
from bothways.data.labels import class_indices, label_sets, numeric_labels
from bothways.data.squad import read_squad
from bothways.data.tags import OUTSIDE, detect_scheme, find_illegal_tag
from bothways.errors import InputError, join_names
from bothways.evaluation.as_trained import table_as_learned
from bothways.evaluation.predictions import score, told_of
from bothways.evaluation.retrieval import vectors
from bothways.evaluation.scores import (
    answer_scores,
    class_scores,
    document_of,
    entity_scores,
    label_set_scores,
    number_scores,
    tag_scores,
)
from bothways.families import FAMILIES
from bothways.inference.load import load
from bothways.inference.predictor import Predictor
from bothways.inference.tagged_texts import all_words, group_sentences, read_sentences, to_iob2
from bothways.log import logger
from bothways.pretraining.heldout import HeldOut
from bothways.settings import Evaluate
from bothways.tables_in_memory import MemoryTable, TableSource


def run(settings: Evaluate) -> dict[str, Any]:
    """The metrics by name, of the model's head; or of somebody else's predictions. A score with a 95 % interval is
    followed by it as NAME_interval; the number of rows is there under one of the names in ROWS."""
    scores = measured(settings)
    rows = next(((scores[name], kind) for name, kind in ROWS.items() if name in scores), None)
    measured_on = " ".join(map(str, settings.file or [settings.model]))
    if rows and (few := metrics.few_rows_warning(*rows, measured_on)):
        logger.warning(few)
    return scores


def measured(settings: Evaluate) -> dict[str, Any]:
    if settings.predictions:
        return score(
            settings.predictions, settings.model, text_column=settings.text_column, pair_column=settings.pair_column,
            label_column=settings.label_column, words_column=settings.words_column, tags_column=settings.tags_column,
            scheme=None if settings.scheme == "auto" else settings.scheme, multi_label=settings.multi_label,
            positive=settings.positive, on_error=settings.on_error, encoding=settings.encoding,
        )  # fmt: skip
    for file in settings.file:
        if others := unread_splits(file):
            raise InputError(f"{file}: has several splits; say which is measured, such as {file}/{others[0]}")
    predictor = load(settings.model, dtype=settings.dtype, window=settings.window)
    heads = predictor.module.num_outputs
    if settings.on_error == "skip" and not {"spans", "masked_words"} & {*heads}:
        raise InputError("on_error skip is for plain text and answers; every row of a labelled file counts, mend it")
    if predictor.task in MEASURES:
        measure = MEASURES[predictor.task]
    elif "masked_words" in heads:
        measure = masked_words
    elif not heads:
        measure = vectors
    else:
        raise InputError(f"{settings.model}: no head that can be measured (heads: {', '.join(heads)}); fine-tune one")
    scores = measure(predictor, settings)
    return {**scores, **selected_on(predictor, settings)}


# Where scores say how many rows they are of, and what those are.
ROWS = {"texts": "texts", "sentences": "sentences", "n": "questions", "pairs": "pairs", "queries": "queries"}


def selected_on(predictor: Predictor, settings: Evaluate) -> dict[str, str]:
    """Which of the files that the model was trained on, or its weights chosen by, is measured; said, and marked."""
    for split, done in (("train", "trained on"), ("dev", "chosen by")):
        used = predictor.checkpoint.settings.get(split)
        for file in settings.file:
            if _is_same(file, used):
                logger.warning(f"{file}: the model was {done} it, so the score says little of other text")
                return {"selected_on": split}
    return {}


def _is_same(file: TableSource, used: Any) -> bool:
    """Whether data is what bothways.json holds as `used`: a path, or the record of a table in memory."""
    if isinstance(file, MemoryTable):
        return isinstance(used, dict) and used.get("fingerprint") == file.fingerprint
    return isinstance(used, str) and Path(used).resolve() == file.resolve()


def texts(predictor: Predictor, settings: Evaluate) -> dict[str, Any]:
    """Of a model with one output or several at [CLS]."""
    tables = [table_as_learned(predictor, file, settings, need_labels=True) for file in settings.file]
    if not predictor.labels:
        gold = [number for table in tables for number in numeric_labels(table)]
        given = [float(one) for table in tables for one in predictor.regress(table.texts, table.pairs)]
        return number_scores(gold, given)
    if predictor.checkpoint.multi_label:
        return several(predictor, tables)
    for table in tables:
        class_indices(table, predictor.labels)  # unknown labels are named before any work
    right = [label for table in tables for label in table.labels or []]
    predicted = [one.label for table in tables for one in predictor.classify(table.texts, table.pairs)]
    return class_scores(right, predicted, positive_of(predictor, settings.positive))


def positive_of(predictor: Predictor, given: str | None) -> str | None:
    """The label that `f1` is of: the one given, the one the model was fine-tuned for, or of two the last."""
    if given is not None and given not in predictor.labels:
        raise InputError(f"positive ({given!r}) is no label of the model ({join_names(predictor.labels)}); name one")
    usual = predictor.labels[-1] if len(predictor.labels) == 2 else None
    return given or predictor.checkpoint.settings.get("positive") or usual


def several(predictor: Predictor, tables: list[Table]) -> dict[str, Any]:
    """Of a model that gives a text several labels, or none."""
    gold = [labels for table in tables for labels in label_sets(table, predictor.labels)]
    predicted = [one.labels for table in tables for one in predictor.classify(table.texts, table.pairs)]
    return label_set_scores(gold, predicted, predictor.labels)


def tags(predictor: Predictor, settings: Evaluate) -> dict[str, Any]:
    """Of a tagger: exact entities, or with one label a word the share that is right. Sentences are read with those
    around them where it was fine-tuned so."""
    learned = predictor.checkpoint.settings
    by_file = [read_sentences(file, settings, learned) for file in settings.file]
    sentences = [*chain.from_iterable(by_file)]
    window = predictor.window_policy.size if learned.get("context") else 0
    texts = [all_words(text) for one in by_file for text in group_sentences(one, predictor.tokenizer, window)]
    tags = chain.from_iterable(predictor.tag_words(texts))
    found = [[*islice(tags, len(one.words))] for one in sentences]
    scheme = detect_scheme([one.tags for one in sentences]) if settings.scheme == "auto" else settings.scheme
    is_plain = predictor.checkpoint.metadata.get("scheme") == "plain"
    if settings.scheme == "auto" and scheme == "plain" and not is_plain:
        for one in sentences:
            if strange := [tag for tag in one.tags if tag not in (*predictor.labels, OUTSIDE)]:
                names = ", ".join(predictor.labels)
                raise InputError(
                    f"{one.where}: tag {strange[0]!r} says no entity to a model that learned {names}; write it with "
                    "B- and I-"
                )
    documents = [*map(document_of, sentences)]
    if is_plain or scheme == "plain":
        return tag_scores([one.tags for one in sentences], found, documents)
    illegal = sum(find_illegal_tag(one.tags, scheme) is not None for one in sentences)
    gold = [to_iob2(one, scheme).tags for one in sentences]
    return {**entity_scores(gold, found, "iob2", documents), "illegal_gold": illegal}


def answers(predictor: Predictor, settings: Evaluate) -> dict[str, Any]:
    """Of a model that finds answers: SQuAD's scores, in percent."""
    named = {settings.text_column: "question", settings.pair_column: "context", settings.label_column: "answers"}
    if strange := [column for column, usual in named.items() if column not in (None, usual)]:
        raise InputError(
            f"column {strange[0]!r}: answers are measured by columns named question, context and answers; rename yours"
        )
    skipped: Counter[str] = Counter()
    asked = [
        one
        for file in settings.file
        for one in read_squad(file, on_error=settings.on_error, skipped=skipped, encoding=settings.encoding)
    ]
    for id, number in Counter(one.id for one in asked).items():
        if number > 1:
            raise InputError(f"question {id!r} is in two of the files; measure each file by itself, or keep one")
    found = predictor.answer([one.question for one in asked], [one.context for one in asked])
    given = {one.id: best[0].text for one, best in zip(asked, found, strict=True)}
    gold = {one.id: [text for text, _ in one.answers] for one in asked}
    return {**answer_scores(gold, given, {one.id: one.context for one in asked}), **told_of(skipped)}


def masked_words(predictor: Predictor, settings: Evaluate) -> dict[str, Any]:
    """Of a pre-trained model, on text it has not read."""
    if settings.window is not None:
        raise InputError(
            f"window ({settings.window}) is for texts with labels; masked words are read --max-length at a time"
        )
    predictor.warn_of_lost_decoder()
    column = settings.text_column or "text"
    corpus = Corpus(settings.file, settings.documents, column, settings.on_error, settings.encoding)
    skipped: Counter[str] = Counter()
    store = build_in_memory(corpus.documents(skipped), predictor.tokenizer, language=settings.language)
    usual = FAMILIES[predictor.checkpoint.model_type].pairs
    learned: PairTask = predictor.checkpoint.settings.get("pairs", usual)
    length = min(settings.max_length, predictor.module.config.max_position_embeddings)
    pairs = learned if "next_sentence" in predictor.module.num_outputs else "none"
    direction = predictor.module.config.direction
    held = HeldOut(
        store, np.arange(store.num_documents), predictor.tokenizer, length, pairs=pairs, most=4096,
        objective="masked" if direction == "both" else "halves" if direction == "halves" else "forward",
    )  # fmt: skip
    return {**held.measure(predictor.module), "tokens": store.num_tokens, **told_of(skipped)}


MEASURES: dict[str, Callable[[Predictor, Evaluate], dict[str, Any]]] = {
    "classify": texts,
    "regress": texts,
    "tag": tags,
    "answer": answers,
}
