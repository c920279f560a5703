"""Annotated texts: labels of character spans, as exported by spaCy, Prodigy, doccano and Label Studio.

Their files are read in `text/rows/annotation_files.py`.

Offsets count characters (code points), [start, end). The text is split into BERT's words, and the spans become tags.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, repeat
from typing import Any, NamedTuple

from bothways.base.errors import FileLocation, InputError, RowError, RowLocation, flag, shorten
from bothways.settings.tables_in_memory import TableRow, TableSource
from bothways.text.data.tags import Scheme, Sentence, Span, TextWords, spans_to_tags
from bothways.text.rows.annotation_files import is_annotated_task, layouts_message, spans_key, task_text
from bothways.text.rows.row_errors import RowErrors
from bothways.text.tokenizer.basic import Splitter

BOUND_KEYS = {"start": ("start", "start_offset"), "end": ("end", "end_offset")}  # the second ones are doccano's
REFUSED = ("reject", "ignore")  # values of Prodigy's column `answer`
# BERT's words without its normalization, so that each is a slice of the text.
SPLITTER = Splitter(lowercase=False, strip_accents=False)


class TextSpan(NamedTuple):
    """Characters [start, end) of a text with a label."""

    start: int
    end: int
    label: str


def accepted_rows(
    path: TableSource,
    located_rows: list[tuple[RowLocation, TableRow]],
    errors: RowErrors,
    used: Sequence[str | None] = (),
) -> list[tuple[RowLocation, TableRow]]:
    """The rows that their annotators accepted.

    Rows that Prodigy's `answer` rejects or ignores are left out, and tasks of Label Studio without an annotation that
    was not cancelled.

    path: the source of the rows, for the message.
    located_rows: rows of annotated texts with their locations.
    errors: receives a note with the number of rows left out.
    used: the columns that the user named for texts, labels and the like; an `answer` among them is not Prodigy's.

    InputError if no row is left.
    """
    # A column `answer` with any other value is a column of the user.
    answers = [row.get("answer") for _, row in located_rows if isinstance(row, Mapping)]
    different = {answer for answer in answers if isinstance(answer, str)}
    has_answers = "answer" not in used and different <= {"accept", *REFUSED}

    left_out = [where for where, row in located_rows if isinstance(row, Mapping) and _is_refused(row, has_answers)]
    if not left_out:
        return located_rows

    shown = f"rows that their annotators rejected, ignored or left without annotation: {len(left_out):,}"
    if len(left_out) == len(located_rows):
        raise InputError(f"{path}: holds only {shown}; give rows with the answer 'accept'")
    errors.remarks.append(f"left out {shown}, such as {left_out[0]}")

    refused = {*left_out}
    return [(where, row) for where, row in located_rows if where not in refused]


def _is_refused(row: TableRow, has_answers: bool) -> bool:
    """Whether a row is to be left out. has_answers: whether its column `answer` is Prodigy's."""
    if is_annotated_task(row):
        # True also without any annotation.
        return all(
            isinstance(annotation, Mapping) and bool(annotation.get("was_cancelled"))
            for annotation in row["annotations"]
        )

    answer = row.get("answer")
    return has_answers and isinstance(answer, str) and answer in REFUSED


def annotated_sentences(
    located_rows: Iterable[tuple[RowLocation, TableRow]], errors: RowErrors, scheme: Scheme = "iob2"
) -> list[Sentence]:
    """A sentence for each row, which is a document of its own. Texts without words are left out.

    The border of a span inside a word moves outward to the border of the word. Of overlapping spans the longest is
    kept; of equally long ones the first.

    located_rows: rows of annotated texts with their locations.
    errors: receives the error of each row whose spans cannot be read, and a note for each kind of change.
    scheme: the scheme of the tags that are written.
    """
    sentences: list[Sentence] = []
    changes = Changes()
    for where, row in located_rows:
        try:
            text, spans = read_annotation(where, row, changes)
            words = split_words(text)
            if not words:
                changes.blank.append(where)
                continue

            word_spans = changes.fit(where, words, spans)
            tags = spans_to_tags(word_spans, len(words), scheme)
            sentences.append(Sentence(words=words, tags=tuple(tags), where=where, document=len(sentences)))
        except InputError as error:
            errors(error)

    errors.remarks += changes.notes()
    return sentences


def split_words(text: str) -> TextWords:
    """BERT's words of a text, as slices of it: split at white space, punctuation and ideographs."""
    # origins: the index in the text of each character of a word.
    bounds = [(origins[0], origins[-1] + 1) for _, origins in SPLITTER.spans(text)]
    words = [text[start:end] for start, end in bounds]
    starts = [start for start, _ in bounds]
    return TextWords(words, text, starts)


# --- spans of words ---------------------------------------------------------------------------------------------------


class Changes:
    """The changes that were needed to turn the spans of a file into spans of words, for the notes.

    moved: spans whose borders moved to the borders of words, as shown in the note.
    dropped: spans left out because they overlap another one, as shown in the note.
    blank: locations of texts without words.
    converted: locations of rows whose offsets count UTF-16 units.
    others: number of regions of Label Studio by their type, such as choices, which are no spans.
    """

    def __init__(self) -> None:
        self.moved: list[str] = []
        self.dropped: list[str] = []
        self.blank: list[str] = []
        self.converted: list[str] = []
        self.others = Counter[str]()

    def fit(self, where: str, words: TextWords, spans: Sequence[TextSpan]) -> list[Span]:
        """The spans of words that cover the spans of characters, without overlaps. InputError if one covers no word."""
        text = words.text
        ends = [start + len(word) for start, word in zip(words.starts, words, strict=True)]
        longest_first = sorted(dict.fromkeys(spans), key=lambda span: (span.start - span.end, span.start))

        kept = list[Span]()
        is_taken = [False] * len(words)
        for span in longest_first:
            # The words first..last-1 have a character in the span.
            first = bisect_right(ends, span.start)
            last = bisect_left(words.starts, span.end)
            shown = f"{span.label} {shorten(repr(text[span.start : span.end]))} at {span.start}"
            if first >= last:
                raise RowError(where, f"{shown} covers no word; correct its offsets or remove it")

            if any(is_taken[first:last]):
                self.dropped.append(f"{shown} ({where})")
                continue

            if words.starts[first] < span.start or ends[last - 1] > span.end:
                whole = shorten(repr(text[words.starts[first] : ends[last - 1]]))
                self.moved.append(f"{shown} becomes {whole} ({where})")

            is_taken[first:last] = [True] * (last - first)
            kept.append(Span(span.label, first, last))
        return kept

    def notes(self) -> list[str]:
        """A note for each kind of change, with the first example."""
        kinds = (
            (self.moved, "entities that begin or end inside a word, extended to whole words"),
            (self.dropped, "entities left out because they overlap a longer or earlier one"),
            (self.blank, "texts left out because they have no words"),
            (self.converted, "texts whose offsets count UTF-16 units, read as characters"),
        )
        notes = [f"{kind}: {len(examples):,}, such as {examples[0]}" for examples, kind in kinds if examples]

        others = ", ".join(f"{number:,} {kind}" for kind, number in self.others.items())
        if others:
            notes.append(f"left out regions that are no spans with labels: {others}")
        return notes


# --- rows -------------------------------------------------------------------------------------------------------------


def read_annotation(where: FileLocation, row: Any, changes: Changes) -> tuple[str, list[TextSpan]]:
    """The text of a row and its spans, without white space at their borders.

    Where spans come with their own text and it is not at their offsets, the offsets may count UTF-16 units, as
    JavaScript does: they are read so if all texts are then found.

    where: the location of the row, for messages.
    row: a row as it was read; only an object is valid.
    changes: receives the location of a row whose offsets were converted, and regions that are no spans.

    InputError if text or spans are not valid.
    """
    if not isinstance(row, Mapping):
        raise RowError(where, f"holds {type(row).__name__}, not an object; {layouts_message()}")

    if is_annotated_task(row):
        text = task_text(where, row["data"])
        name = "result"
        values = list(_task_values(where, row, changes))
    elif (key := spans_key(row)) is not None and "text" in row:
        text = row["text"]
        name = key
        values = row[key]
    else:
        if key is not None:
            raise RowError(
                where, f"no 'text' next to {key!r}; add it (to predictions with {flag('keep_columns', 'text')})"
            )
        listed = ", ".join(map(str, row)) or "none"
        raise RowError(where, f"no text with a list of entities (there are: {listed}); {layouts_message()}")

    if not isinstance(text, str):
        raise RowError(where, f"'text' holds {shorten(repr(text))}, not text; fix the row or drop it")
    if not isinstance(values, list):
        raise RowError(where, f"{name!r} holds {shorten(repr(values))}, not a list; {layouts_message()}")

    places = [where.inside(f"{name}[{index}]") for index in range(len(values))]
    spans = [_span(place, value) for place, value in zip(places, values, strict=True)]
    expected = [value.get("text") if isinstance(value, Mapping) else None for value in values]

    try:
        return text, [*map(_placed, places, spans, expected, repeat(text))]
    except InputError:
        if any(isinstance(span_text, str) for span_text in expected):
            # If this fails too, the error of the offsets as they are is the one that is shown.
            with suppress(InputError):
                placed = [*map(_placed, places, _from_utf16(spans, text), expected, repeat(text))]
                changes.converted.append(where)
                return text, placed
        raise


def _task_values(where: str, task: TableRow, changes: Changes) -> Iterator[Any]:
    """The spans of the first annotation that was not cancelled, as values for `_span`.

    Regions of other types, such as relations and choices, are counted in `changes`.
    """
    for annotation in task["annotations"]:
        if not isinstance(annotation, Mapping) or not isinstance(annotation.get("result"), list):
            raise RowError(where, f"an annotation has no list 'result'; {layouts_message()}")
        if annotation.get("was_cancelled"):
            continue

        for result in annotation["result"]:
            kind = result.get("type", "labels") if isinstance(result, Mapping) else "labels"
            if kind != "labels":
                changes.others[str(kind)] += 1
            else:
                yield result.get("value") if isinstance(result, Mapping) else None
        return  # Later annotations are second opinions of the same text.


def _span(where: str, value: Any) -> TextSpan:
    """A span from an object with start, end and label (or labels, a list of one), or from a list of the three."""
    if isinstance(value, list):
        if len(value) != 3:
            raise RowError(where, f"holds {shorten(repr(value))}, not [start, end, label]; fix it")
        bounds = dict(zip(BOUND_KEYS, value, strict=False))
        label = value[2]
    elif isinstance(value, Mapping):
        bounds = {name: next((value[key] for key in keys if key in value), None) for name, keys in BOUND_KEYS.items()}
        label = value.get("label", value.get("labels"))
        label = label[0] if isinstance(label, list) and len(label) == 1 else label
    else:
        raise RowError(where, f"holds {shorten(repr(value))}, not an object with start, end and label; fix it")

    for name, bound in bounds.items():
        if type(bound) is not int:  # isinstance would let True pass
            problem = "is missing" if bound is None else f"holds {shorten(repr(bound))}, not a whole number"
            raise RowError(where, f"{name!r} {problem}; give the offset of a character in the text")

    if not isinstance(label, str) or not label.strip():
        problem = "is missing" if label is None else f"holds {shorten(repr(label))}, not a name"
        raise RowError(where, f"'label' {problem}; give the name of one label")
    return TextSpan(bounds["start"], bounds["end"], label)


def _from_utf16(spans: Iterable[TextSpan], text: str) -> list[TextSpan]:
    """Spans whose offsets count UTF-16 units, in characters; an offset inside a character becomes -1."""
    # Characters above U+FFFF, such as emoji, take two units.
    units = accumulate((1 + (character > "\uffff") for character in text), initial=0)
    characters = {unit: index for index, unit in enumerate(units)}
    return [TextSpan(characters.get(start, -1), characters.get(end, -1), label) for start, end, label in spans]


def _placed(where: str, span: TextSpan, expected: Any, text: str) -> TextSpan:
    """A span without white space at its borders.

    where: the location of the span, for messages.
    span: a span as it was read.
    expected: the text of the span, if the row tells it as a string.
    text: the text of the row.

    InputError if the span is not in the text, is blank, or is not `expected`.
    """
    start, end, label = span
    if not 0 <= start < end <= len(text):
        raise RowError(
            where,
            f"characters {start} to {end} are not in the text, which has {len(text):,}; give 0 <= start < end "
            "<= length",
        )

    inside = text[start:end]
    if inside.isspace():
        raise RowError(where, f"characters {start} to {end} are white space; correct the offsets or remove it")

    # Label Studio writes the line feeds of a span's text as a backslash and an n.
    if isinstance(expected, str) and inside.split() not in (expected.split(), expected.replace("\\n", "\n").split()):
        raise RowError(
            where,
            f"characters {start} to {end} are {shorten(repr(inside))}, but its text is "
            f"{shorten(repr(expected))}; count the offsets in characters (code points) of 'text'",
        )

    leading = len(inside) - len(inside.lstrip())
    trailing = len(inside) - len(inside.rstrip())
    return TextSpan(start + leading, end - trailing, label)
