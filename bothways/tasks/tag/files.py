"""Tagged files: the sentences that they hold, and predictions compared with gold tags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bothways.base.errors import InputError, RowError, format_count, join_names
from bothways.base.log import logger
from bothways.settings.finetune import Tag
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks.scores import Scores
from bothways.tasks.tag.examples import documents_of, group_sentences, sentence_key
from bothways.tasks.tag.scoring import TagEvaluator, tag_scores
from bothways.tasks.task import LabelledRows
from bothways.text.data.conll import looks_tagged
from bothways.text.data.examples import has_tag_columns, read_tagged
from bothways.text.data.model_inputs import resolve_columns
from bothways.text.data.split_tables import divide_rows
from bothways.text.data.splits import parts_for
from bothways.text.data.tags import (
    OUTSIDE,
    Scheme,
    Sentence,
    detect_scheme,
    find_illegal_tag,
    plain_remark,
    tags_to_spans,
)
from bothways.text.data.word_rows import WORD_NAMES, has_word_columns, names_words
from bothways.text.rows.row_errors import RowErrors
from bothways.text.rows.rows import ANNOTATED, open_rows
from bothways.text.rows.text_files import read_lines

if TYPE_CHECKING:
    from bothways.tasks.task import LoadedModel


def read_splits(settings: Tag, errors: RowErrors | None = None, fold: int | None = None) -> dict[str, list[Sentence]]:
    """Sentences by split. A file is split by whole documents, or by groups of near-duplicate sentences if documents are
    not marked or have one sentence each.

    errors: collects rows that cannot be read; InputError if there are any and they must not be skipped. fold: the test
    fold in cross-validation.
    """
    columns = {"words": settings.words_column, "tags": settings.tags_column, "encoding": settings.encoding}
    scheme: Scheme = "iob2" if settings.scheme == "auto" else settings.scheme
    errors = errors or RowErrors(settings.on_error)

    splits = {
        split: read_tagged(source, **columns, scheme=scheme, errors=errors)
        for split, source in settings.sources.items()
    }
    errors.notes(len(splits["train"]))

    if "dev" in splits:
        return splits

    sentences = splits["train"]
    documents = [sentence.document for sentence in sentences]
    are_single = None in documents or len(set(documents)) == len(documents)
    groups = [*map(sentence_key, sentences)] if are_single else documents
    rows_by_split = divide_rows(settings, groups, parts_for(splits), fold, of="documents")
    return {**splits, **{split: [sentences[row] for row in rows] for split, rows in rows_by_split.items()}}


def compare_tags(
    gold_path: Path, path: Path, gold: Sequence[Sentence], predicted: Sequence[Sentence], scheme: Scheme | None
) -> Scores:
    """Entity scores, and how many sentences of gold and predictions break the rules of their scheme."""
    if len(gold) != len(predicted):
        raise InputError(
            f"{path}: {format_count(len(predicted), 'sentence')}, but {gold_path} has {len(gold)}; give the same "
            "words, in order"
        )

    for one, other in zip(gold, predicted, strict=True):
        if one.words != other.words:
            words = f"{beginning(other)} is not {beginning(one)} of {one.where}"
            raise InputError(f"{other.where}: {words}; give the same words, in order")

    if scheme is None:
        scheme = detect_scheme([sentence.tags for sentence in gold])
        if scheme == "plain":
            logger.warning(f"{gold_path}: {plain_remark(sentence.tags for sentence in gold)}")

    for sentence in (*gold, *predicted):
        check_spans(sentence, scheme)
    predicted_scheme = scheme if scheme == "plain" else detect_scheme([sentence.tags for sentence in predicted])

    gold_tags = [sentence.tags for sentence in gold]
    predicted_tags = [sentence.tags for sentence in predicted]
    scores = tag_scores(gold_tags, predicted_tags, scheme, documents_of(gold))

    details = {
        "scheme": scheme,
        "illegal_gold": sum(find_illegal_tag(tags, scheme) is not None for tags in gold_tags),
        "illegal_predicted": sum(find_illegal_tag(tags, predicted_scheme) is not None for tags in predicted_tags),
    }
    return replace(scores, counts={**scores.counts, **details})


def beginning(sentence: Sentence, limit: int = 5) -> str:
    words = " ".join(sentence.words[:limit])
    return f"{words!r}{' ...' if len(sentence) > limit else ''} ({format_count(len(sentence), 'word')})"


def check_spans(sentence: Sentence, scheme: Scheme) -> None:
    try:
        tags_to_spans(sentence.tags, scheme)
    except InputError as error:
        raise InputError(f"{sentence.where}: {error}") from None


def read_tagged_rows(
    model: LoadedModel,
    files: Iterable[TableSource],
    columns: object,
    requested: Scheme | Literal["auto"] = "auto",
    *,
    min_rows: int = 0,
) -> LabelledRows:
    """The tagged sentences of files. Neighbours are read together if the model was fine-tuned that way.

    columns: has words_column, tags_column and encoding. min_rows: read fewer neighbours together if there would be
    fewer rows. InputError for tags of another kind than the model's.
    """
    trained = model.description.settings
    is_plain = model.description.metadata.get("scheme") == "plain"
    written: Scheme = "plain" if is_plain else "iob2" if requested == "auto" else requested

    by_file = [read_sentences(file, columns, trained, written) for file in files]
    sentences = [*chain.from_iterable(by_file)]
    scheme = detect_scheme([sentence.tags for sentence in sentences]) if requested == "auto" else requested
    if not is_plain:
        check_entity_tags(sentences, scheme, model.labels)

    evaluator = TagEvaluator(scheme, plain=is_plain or scheme == "plain")
    counts = {}
    if not evaluator.plain:
        counts["illegal_gold"] = sum(find_illegal_tag(sentence.tags, scheme) is not None for sentence in sentences)

    window = model.window_policy.size if trained.get("context") else 0
    while True:
        rows = [row for file in by_file for row in group_sentences(file, model.tokenizer, window)]
        if len(rows) >= min(min_rows, len(sentences)):
            return LabelledRows(evaluator=evaluator, rows=rows, labelled=True, counts=counts)
        window //= 2


def check_entity_tags(sentences: Sequence[Sentence], scheme: Scheme, labels: Sequence[str]) -> None:
    """InputError for tags without a prefix that are not the model's, or if the model has none of the entity types.

    Single unknown types are allowed: the model misses their entities.
    """
    is_plain = scheme == "plain"
    known = {*labels} if is_plain else {entity_type(label) for label in labels}
    tagged = [(sentence.where, tag) for sentence in sentences for tag in sentence.tags if tag != OUTSIDE]
    unknown = [(where, tag) for where, tag in tagged if (tag if is_plain else entity_type(tag)) not in known]
    if unknown and (is_plain or len(unknown) == len(tagged)):
        where, tag = unknown[0]
        way_out = "write it with B- and I-" if is_plain else "fix the tags"
        if all(tag.isdecimal() for _, tag in tagged):
            way_out = "tags are numbers without names, so write their names"
        raise RowError(
            where,
            f"tag {tag!r} is not an entity tag of the model, which was trained on {join_names(labels)}; {way_out}",
        )


def entity_type(tag: str) -> str:
    """A tag without the prefix of its scheme."""
    return tag[2:] if tag[1:2] == "-" else tag


def is_tagged(file: TableSource, labels: Sequence[str], encoding: str | None) -> bool:
    """Whether a file has tags: in named columns a list of words, else lines that end in one of the model's tags."""
    rows = open_rows(file, encoding)
    if rows.form is ANNOTATED:
        return True
    if rows.form.has_names:
        _, values = next(rows.read(), (None, {}))
        return has_word_columns([*values]) or any(isinstance(value, list) for value in values.values())
    assert isinstance(file, Path)
    if names_words(file, encoding, WORD_NAMES) or looks_tagged(file, encoding):
        return True
    fields = next((line.split() for _, line in read_lines(file, encoding) if line.strip()), [])
    return len(fields) > 1 and (fields[-1] in (*labels, OUTSIDE) or fields[0] == "-DOCSTART-")


def tag_columns(file: TableSource, settings: object, trained: Mapping[str, Any]) -> dict[str, str | None]:
    """The columns of words and of tags in a file: the columns of the settings, else the columns of fine-tuning
    (`trained`, its settings) if they fit the file."""
    named = {use: getattr(settings, f"{use}_column") for use in ("words", "tags")}
    if has_tag_columns(file, named["words"], named["tags"], getattr(settings, "encoding", None)):
        return resolve_columns(file, settings, trained, ("words", "tags"))
    numbers = {use: str(trained.get(f"{use}_column")) for use in ("words", "tags")}
    defaults = {use: number if number.lstrip("-").isdecimal() else None for use, number in numbers.items()}
    return {use: named[use] or defaults[use] for use in defaults}


def read_sentences(
    file: TableSource, settings: object, trained: Mapping[str, Any], scheme: Scheme = "iob2"
) -> list[Sentence]:
    """The sentences of a file, with the columns of tag_columns and the encoding of the settings. scheme: see
    `read_tagged`."""
    columns = tag_columns(file, settings, trained)
    encoding = getattr(settings, "encoding", None)
    return read_tagged(file, words=columns["words"], tags=columns["tags"], scheme=scheme, encoding=encoding)
