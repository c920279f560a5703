"""Tagged sentences as texts for a tagger: columns, tag schemes, neighbouring sentences."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from bothways.data.datasets import has_named_columns
from bothways.data.examples import read_tagged
from bothways.data.stream import resolve_columns
from bothways.data.tags import Scheme, Sentence, join_words, spans_to_tags, tags_to_spans
from bothways.errors import InputError
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks.windows import NUM_SPECIALS
from bothways.tokenizer.tokenizer import Tokenizer

NO_LABEL = -100  # label of tokens that are not trained on


def tag_columns(file: TableSource, settings: object, trained: Mapping[str, Any]) -> dict[str, str | None]:
    """The columns of words and of tags in a file: those of the settings, else those of fine-tuning (`trained`, its
    settings) if they fit the file."""
    if has_named_columns(file):
        return resolve_columns(file, settings, trained, ("words", "tags"))
    numbers = {use: str(trained.get(f"{use}_column")) for use in ("words", "tags")}
    defaults = {use: number if number.lstrip("-").isdecimal() else None for use, number in numbers.items()}
    return {use: getattr(settings, f"{use}_column") or defaults[use] for use in defaults}


def read_sentences(
    file: TableSource, settings: object, trained: Mapping[str, Any], scheme: Scheme = "iob2"
) -> list[Sentence]:
    """The sentences of a file, with the columns of tag_columns and the encoding of the settings. scheme: see
    `read_tagged`."""
    columns = tag_columns(file, settings, trained)
    encoding = getattr(settings, "encoding", None)
    return read_tagged(file, words=columns["words"], tags=columns["tags"], scheme=scheme, encoding=encoding)


def to_iob2(sentence: Sentence, scheme: Scheme) -> Sentence:
    """The sentence with its tags as IOB2; plain tags stay as they are."""
    if scheme == "plain":
        return sentence
    try:
        return replace(
            sentence, tags=tuple(spans_to_tags(tags_to_spans(sentence.tags, scheme), len(sentence.words), "iob2"))
        )
    except InputError as error:
        raise InputError(f"{sentence.where}: {error}") from None


def group_sentences(sentences: Sequence[Sentence], tokenizer: Tokenizer, window: int) -> Iterator[list[Sentence]]:
    """Consecutive sentences of one document, as many as fit into a window of tokens, but at least one."""
    room = window - NUM_SPECIALS
    group: list[Sentence] = []
    num_tokens = 0
    for sentence in sentences:
        length = len(tokenizer.ids(join_words(sentence.words)))
        if group and (num_tokens + length > room or sentence.document != group[0].document):
            yield group
            group, num_tokens = [], 0
        group.append(sentence)
        num_tokens += length
    if group:
        yield group


def all_words(sentences: Sequence[Sentence]) -> Sequence[str]:
    """The words of all sentences, in order; those of a single sentence as they are."""
    if len(sentences) == 1:
        return sentences[0].words
    return [*chain.from_iterable(sentence.words for sentence in sentences)]
