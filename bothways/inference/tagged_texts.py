"""Tagged sentences as texts that a tagger reads."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from bothways.data.conll import Sentence
from bothways.data.datasets import has_named_columns
from bothways.data.examples import read_tagged
from bothways.data.stream import resolve_columns
from bothways.data.tags import Scheme, spans_to_tags, tags_to_spans
from bothways.errors import InputError
from bothways.inference.tag_decoding import joined
from bothways.inference.windows import NUM_SPECIALS
from bothways.tables_in_memory import TableSource
from bothways.tokenizer.tokenizer import Tokenizer

NO_LABEL = -100  # on tokens at which no label counts


def tag_columns(file: TableSource, told: object, learned: Mapping[str, Any]) -> dict[str, str | None]:
    """The columns of words and of tags in a file: those that `told` names as words_column and tags_column, else those
    `learned` from, if the file can have them."""
    if has_named_columns(file):
        return resolve_columns(file, told, learned, ("words", "tags"))
    numbers = {use: str(learned.get(f"{use}_column")) for use in ("words", "tags")}
    before = {use: number if number.lstrip("-").isdecimal() else None for use, number in numbers.items()}
    return {use: getattr(told, f"{use}_column") or before[use] for use in before}


def sentences_as_learned(file: TableSource, told: object, learned: Mapping[str, Any]) -> list[Sentence]:
    """The sentences of a file, by the columns of tag_columns and the encoding of `told`."""
    columns = tag_columns(file, told, learned)
    encoding = getattr(told, "encoding", None)
    return read_tagged(file, words=columns["words"], tags=columns["tags"], encoding=encoding)


def as_iob2(sentence: Sentence, scheme: Scheme) -> Sentence:
    if scheme == "plain":
        return sentence
    try:
        return replace(
            sentence, tags=tuple(spans_to_tags(tags_to_spans(sentence.tags, scheme), len(sentence.words), "iob2"))
        )
    except InputError as error:
        raise InputError(f"{sentence.where}: {error}") from None


def runs(sentences: Sequence[Sentence], tokenizer: Tokenizer, window: int) -> Iterator[list[Sentence]]:
    """Sentences of one document in a row, as many as a window of so many tokens holds, or one alone."""
    room = window - NUM_SPECIALS
    text: list[Sentence] = []
    size = 0
    for sentence in sentences:
        own = len(tokenizer.ids(joined(sentence.words)))
        if text and (size + own > room or sentence.document != text[0].document):
            yield text
            text, size = [], 0
        text.append(sentence)
        size += own
    if text:
        yield text


def words_of(text: Sequence[Sentence]) -> list[str]:
    return [*chain.from_iterable(sentence.words for sentence in text)]
