"""Tag schemes: spans of words written as one tag a word, and read back.

IOB1 (Ramshaw 1995): I-X in a span; B-X only where it touches the span before it and both are X.
IOB2 (Tjong Kim Sang 1999): every span begins with B-X. BIOES: its last word is E-X too, a span of one word S-X.
plain: one label a word, and no two words are one span. O is outside, in every scheme.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from bothways.errors import InputError

Scheme = Literal["iob1", "iob2", "bioes", "plain"]
OUTSIDE = "O"
SPAN_TAG = re.compile(r"([BIES])-(.+)", re.DOTALL)


class Span(NamedTuple):
    """The words first, ..., last - 1 of a sequence, counted from 0."""

    label: str
    first: int
    last: int


class IllegalTag(NamedTuple):
    """A tag that its scheme does not write where it stands: its place in the sequence, from 0, and what is wrong."""

    place: int
    why: str


def tags_to_spans(tags: Sequence[str], scheme: Scheme, *, strict: bool = False) -> list[Span]:
    """The spans that tags mean, in order. InputError for a tag without a known prefix (but in plain).

    The reading is that of conlleval and of seqeval's default mode: a tag that cannot go on with the span before it
    begins one, whatever its prefix. So IOB1, IOB2 and BIOES are read alike, and illegal sequences too. strict: only
    spans whose every tag is as the scheme writes it (seqeval's strict mode; on illegal IOB1 that has rules of its own).
    """
    spans = _one_word_spans(tags) if scheme == "plain" else _prefixed_spans(tags)
    if not strict:
        return spans
    written = spans_to_tags(spans, len(tags), scheme)
    return [span for span in spans if written[span.first : span.last] == list(tags[span.first : span.last])]


def _one_word_spans(tags: Sequence[str]) -> list[Span]:
    return [Span(tag, place, place + 1) for place, tag in enumerate(tags) if tag != OUTSIDE]


def _prefixed_spans(tags: Sequence[str]) -> list[Span]:
    spans: list[Span] = []
    unfinished = ""  # the label of a span that the next word may be part of
    for place, tag in enumerate(tags):
        prefix, label = _split_tag(tag)
        if label and label == unfinished and prefix in "IE":
            spans[-1] = Span(label, spans[-1].first, place + 1)
        elif label:
            spans.append(Span(label, place, place + 1))
        unfinished = label if prefix in "BI" else ""
    return spans


def _split_tag(tag: str) -> tuple[str, str]:
    """(prefix, label); ("O", "") outside."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    if found := SPAN_TAG.fullmatch(tag):
        return found[1], found[2]
    raise InputError(_unknown_tag(tag))


def _unknown_tag(tag: str) -> str:
    return f"tag {tag!r} is neither O nor a label after B-, I-, E- or S-; mend it, or use the scheme plain"


def spans_to_tags(spans: Iterable[Span], length: int, scheme: Scheme = "iob2") -> list[str]:
    """One tag for each of `length` words. InputError for spans that are empty, overlap or end after the last word."""
    tags = [OUTSIDE] * length
    before = Span("", 0, 0)
    for span in sorted(spans, key=lambda span: span.first):
        if not before.last <= span.first < span.last <= length:
            raise InputError(
                f"{span} after {before} in {length} words; a span has a word or more, and overlaps no other"
            )
        touches = before.last == span.first and before.label == span.label
        tags[span.first : span.last] = _write_span(span, touches, scheme)
        before = span
    return tags


def _write_span(span: Span, touches: bool, scheme: Scheme) -> list[str]:
    """The tags of one span; touches: another of its label ends where it begins."""
    num_words = span.last - span.first
    if scheme == "plain":
        return [span.label] * num_words
    if scheme == "bioes":
        prefixes = "S" if num_words == 1 else "B" + "I" * (num_words - 2) + "E"
    else:
        prefixes = ("B" if touches or scheme == "iob2" else "I") + "I" * (num_words - 1)
    return [f"{prefix}-{span.label}" for prefix in prefixes]


def find_illegal_tag(tags: Sequence[str], scheme: Scheme) -> IllegalTag | None:
    """The first tag without a known prefix, else the first that the scheme would not write for the spans that the
    sequence means: I-X after O in IOB2, a B-X that is not closed in BIOES. None for a legal sequence; plain ones are.
    """
    if scheme == "plain":
        return None
    for place, tag in enumerate(tags):
        if not _is_readable(tag):
            return IllegalTag(place, _unknown_tag(tag))
    for place, (tag, written) in enumerate(
        zip(tags, spans_to_tags(_prefixed_spans(tags), len(tags), scheme), strict=True)
    ):
        if tag != written:
            before = tags[place - 1] if place else "the start"
            after = tags[place + 1] if place + 1 < len(tags) else "the end"
            return IllegalTag(place, f"{tag} between {before} and {after} is not {scheme.upper()}; expected {written}")
    return None


def _is_readable(tag: str) -> bool:
    return tag == OUTSIDE or SPAN_TAG.fullmatch(tag) is not None


def detect_scheme(sequences: Sequence[Sequence[str]]) -> Scheme:
    """The scheme of a corpus: plain if no tag has a prefix, BIOES if one has E- or S-, else that of IOB2 and IOB1 in
    which fewer tags are illegal; IOB2 where nothing tells. Whether it is legal throughout, `first_illegal` says.
    """
    tags = {tag for sequence in sequences for tag in sequence} - {OUTSIDE}
    prefixes = {found[1] for found in map(SPAN_TAG.fullmatch, tags) if found}
    if tags and not prefixes:
        return "plain"
    if prefixes & {"E", "S"}:
        return "bioes"
    readable = [sequence for sequence in sequences if all(map(_is_readable, sequence))]
    return "iob1" if _num_illegal(readable, "iob1") < _num_illegal(readable, "iob2") else "iob2"


def _num_illegal(sequences: Iterable[Sequence[str]], scheme: Scheme) -> int:
    return sum(
        tag != written
        for tags in sequences
        for tag, written in zip(tags, spans_to_tags(_prefixed_spans(tags), len(tags), scheme), strict=True)
    )
