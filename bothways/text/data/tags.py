"""Tag schemes (IOB1, IOB2, BIOES, plain): converting spans of words to tags and back; words with tags.

IOB1 (Ramshaw 1995): I-X inside a span; B-X only at the start of a span that directly follows another one of label X.
IOB2 (Tjong Kim Sang 1999): every span starts with B-X. BIOES: its last word is also E-X, and a one-word span is S-X.
plain: one label per word, each word a span of its own. O is outside any span in all schemes.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, NamedTuple

from bothways.base.errors import InputError, RowLocation, flag

Scheme = Literal["iob1", "iob2", "bioes", "plain"]
OUTSIDE = "O"
SHOWN = 3  # tags that a message shows
SPAN_TAG = re.compile(r"([BIES])-(.+)", re.DOTALL)


class TextWords(tuple[str, ...]):
    """Words as slices of a text: text[starts[i] : starts[i] + len(words[i])] == words[i]."""

    text: str
    starts: tuple[int, ...]

    def __new__(cls, words: Iterable[str], text: str, starts: Iterable[int]) -> "TextWords":
        created = super().__new__(cls, words)
        created.text = text
        created.starts = tuple(starts)
        return created

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self), self.text, self.starts  # for pickle and copy


def join_words(words: Sequence[str]) -> str:
    """The text of words: the one that they are slices of, else the words joined by single spaces."""
    return words.text if isinstance(words, TextWords) else " ".join(words)


def word_starts(words: Sequence[str]) -> tuple[int, ...]:
    """The index of each word's first character in join_words(words)."""
    if isinstance(words, TextWords):
        return words.starts
    return (*accumulate((len(word) + 1 for word in words[:-1]), initial=0),) if words else ()


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words, one tag per word, and the location; in a file with a word per line, a row is a sentence.

    words: TextWords if they come from a text. document: index of its document, from 0; None if the file does not mark
    documents.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    where: RowLocation
    document: int | None = None

    def __len__(self) -> int:
        return len(self.words)


class Span(NamedTuple):
    """A labelled span: the words first, ..., last - 1, counted from 0."""

    label: str
    first: int
    last: int


class IllegalTag(NamedTuple):
    """A tag that the scheme does not allow: its index in the sequence, and why."""

    position: int
    why: str


def tags_to_spans(tags: Sequence[str], scheme: Scheme, *, strict: bool = False) -> list[Span]:
    """The spans of a sequence of tags, in order. InputError for a tag without a known prefix (except in plain).

    Follows conlleval and seqeval's default mode: a tag that cannot continue the span before it starts a new one,
    whatever its prefix. IOB1, IOB2, BIOES and illegal sequences are therefore read by the same rules. strict: only
    spans whose tags are exactly what the scheme writes (seqeval's strict mode, which differs on illegal IOB1).
    """
    words = [Span(tag, index, index + 1) for index, tag in enumerate(tags) if tag != OUTSIDE]
    spans = words if scheme == "plain" else _prefixed_spans(tags)
    if not strict:
        return spans
    written = spans_to_tags(spans, len(tags), scheme)
    return [span for span in spans if written[span.first : span.last] == list(tags[span.first : span.last])]


def _prefixed_spans(tags: Sequence[str]) -> list[Span]:
    spans: list[Span] = []
    unfinished = ""  # the label of a span that the next word may continue
    for index, tag in enumerate(tags):
        prefix, label = _split_tag(tag)
        if label and label == unfinished and prefix in "IE":
            spans[-1] = Span(label, spans[-1].first, index + 1)
        elif label:
            spans.append(Span(label, index, index + 1))
        unfinished = label if prefix in "BI" else ""
    return spans


def _split_tag(tag: str) -> tuple[str, str]:
    """(prefix, label); ("O", "") outside."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    if match := SPAN_TAG.fullmatch(tag):
        return match[1], match[2]
    raise InputError(_unknown_tag(tag))


def _unknown_tag(tag: str) -> str:
    return f"tag {tag!r} is neither O nor a label with B-, I-, E- or S-; fix it, or use the scheme plain"


def spans_to_tags(spans: Iterable[Span], length: int, scheme: Scheme = "iob2") -> list[str]:
    """One tag for each of `length` words. InputError for spans that are empty, overlap, or exceed the length."""
    tags = [OUTSIDE] * length
    previous = Span("", 0, 0)
    for span in sorted(spans, key=lambda span: span.first):
        if not previous.last <= span.first < span.last <= length:
            raise InputError(f"{span} after {previous} in {length} words; spans must not be empty or overlap")
        touches = previous.last == span.first and previous.label == span.label
        tags[span.first : span.last] = _write_span(span, touches, scheme)
        previous = span
    return tags


def _write_span(span: Span, touches: bool, scheme: Scheme) -> list[str]:
    """The tags of one span. touches: whether a span with the same label ends where this one starts."""
    num_words = span.last - span.first
    if scheme == "plain":
        return [span.label] * num_words
    if scheme == "bioes":
        prefixes = "S" if num_words == 1 else "B" + "I" * (num_words - 2) + "E"
    else:
        prefixes = ("B" if touches or scheme == "iob2" else "I") + "I" * (num_words - 1)
    return [f"{prefix}-{span.label}" for prefix in prefixes]


def find_illegal_tag(tags: Sequence[str], scheme: Scheme) -> IllegalTag | None:
    """The first tag without a known prefix, else the first that differs from the scheme's tags for the same spans.

    Examples: I-X after O in IOB2; in BIOES a span that does not end. None for a legal sequence; all plain ones are.
    """
    if scheme == "plain":
        return None
    for index, tag in enumerate(tags):
        if not is_entity_tag(tag):
            return IllegalTag(index, _unknown_tag(tag))
    for index, (tag, written) in enumerate(
        zip(tags, spans_to_tags(_prefixed_spans(tags), len(tags), scheme), strict=True)
    ):
        if tag != written:
            before = tags[index - 1] if index else "the start"
            after = tags[index + 1] if index + 1 < len(tags) else "the end"
            return IllegalTag(index, f"{tag} between {before} and {after} is not {scheme.upper()}; expected {written}")
    return None


def is_entity_tag(tag: str) -> bool:
    """Whether a tag is O or has a prefix, as the tags of entities have."""
    return tag == OUTSIDE or SPAN_TAG.fullmatch(tag) is not None


def detect_scheme(sequences: Sequence[Sequence[str]]) -> Scheme:
    """The scheme of a corpus: plain if no tag has a prefix, BIOES if one has E- or S-, else IOB1 or IOB2.

    Of IOB1 and IOB2, the one with fewer illegal tags; IOB2 in case of a tie. Use `find_illegal_tag` to check it.
    """
    tags = {tag for sequence in sequences for tag in sequence} - {OUTSIDE}
    prefixes = {match[1] for match in map(SPAN_TAG.fullmatch, tags) if match}
    if tags and not prefixes:
        return "plain"
    if prefixes & {"E", "S"}:
        return "bioes"
    readable = [sequence for sequence in sequences if all(map(is_entity_tag, sequence))]
    return "iob1" if _num_illegal(readable, "iob1") < _num_illegal(readable, "iob2") else "iob2"


def plain_remark(sequences: Iterable[Sequence[str]]) -> str:
    """A note on how tags without a prefix are read, and on the way out if they are entities."""
    tags = sorted({tag for sequence in sequences for tag in sequence} - {OUTSIDE})
    shown = f"{', '.join(map(repr, tags[:SHOWN]))}{', ...' if len(tags) > SHOWN else ''}"
    score = "each is the label of one word, and the score is the accuracy of single tags"
    taken_for = f"{score} ({flag('scheme', 'plain')})"
    if all(tag.isdecimal() for tag in tags):
        return (
            f"tags are numbers without names ({shown}), so {taken_for}; if they are entities, write their names, "
            "such as B-PER for 1, or give a dataset or Parquet file whose features name them (ClassLabel)"
        )
    return (
        f"no tag has a prefix such as B- or I- ({shown}), so {taken_for}; if they are entities, write B-X at the first "
        "word and I-X at the others"
    )


def _num_illegal(sequences: Iterable[Sequence[str]], scheme: Scheme) -> int:
    return sum(
        tag != written
        for tags in sequences
        for tag, written in zip(tags, spans_to_tags(_prefixed_spans(tags), len(tags), scheme), strict=True)
    )
