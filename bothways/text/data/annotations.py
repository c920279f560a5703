"""Annotated texts: labels of character spans, as exported by spaCy, Prodigy, doccano and Label Studio.

Offsets count characters (code points), [start, end). The text is split into BERT's words, and the spans become tags.
"""

import json
from bisect import bisect_left, bisect_right
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, repeat
from pathlib import Path
from typing import Any, NamedTuple

from bothways.base.errors import InputError, RowLocation, flag, shorten
from bothways.settings.tables_in_memory import MemoryTable, TableSource, is_annotated_pair
from bothways.text.data.tables import RowErrors, TableRow
from bothways.text.data.tags import OUTSIDE, Scheme, Sentence, Span, TextWords, spans_to_tags
from bothways.text.data.text_files import decoded_lines, file_type, read_bytes
from bothways.text.tokenizer.basic import Splitter

SPAN_KEYS = ("entities", "ents", "spans", "label", "labels")  # ents: spaCy's Doc.to_json
BOUND_KEYS = {"start": ("start", "start_offset"), "end": ("end", "end_offset")}  # the second ones are doccano's
REFUSED = ("reject", "ignore")  # values of Prodigy's column `answer`
LAYOUTS = (  # of a row, for messages
    '{"words": ["In", "Rome"], "tags": ["O", "B-CITY"]}',
    '{"text": "In Rome", "entities": [{"start": 3, "end": 7, "label": "CITY"}]} (or ents, spans, label, labels)',
    '{"text": "In Rome", "entities": [[3, 7, "CITY"]]}',
    '["In Rome", {"entities": [[3, 7, "CITY"]]}]',
    'Label Studio\'s {"data": {"text": "In Rome"}, "annotations": [{"result": [{"value": {"start": 3, "end": 7, '
    '"labels": ["CITY"]}}]}]}',
)
# BERT's words without its normalization, so that each is a slice of the text.
SPLITTER = Splitter(lowercase=False, strip_accents=False)


class TextSpan(NamedTuple):
    """Characters [start, end) of a text with a label."""

    start: int
    end: int
    label: str


def layouts_message() -> str:
    """The layouts of a row with tags, with an example of each."""
    return f"a row of tags is {', or '.join(LAYOUTS)}"


def is_annotation_file(path: TableSource) -> bool:
    """Whether a file is a .json with a list of annotated texts, as exported by Label Studio, or with an object that
    holds them, or JSON lines of spaCy's pairs. Lists of other records are tables (text/data/json_tables.py)."""
    if isinstance(path, MemoryTable):
        return False
    if file_type(path) == ".jsonl":
        return path.is_file() and is_annotated_pair(_first_value(path))
    if file_type(path) != ".json":
        return False
    content = read_bytes(path).removeprefix(BOM_UTF8).lstrip()
    if content[:1] == b"{" and b'"paragraphs"' in content:
        return False  # SQuAD's
    with suppress(ValueError, RecursionError):
        rows = _held_rows(json.loads(content)) or []
        return bool(rows) and _is_annotated(rows[0])
    return _is_annotated(_first_value(path))


def _is_annotated(row: Any) -> bool:
    """Whether a value is an annotated text: a pair or a document of spaCy, an object with a text and spans, or a task
    of Label Studio, also without annotations."""
    if not isinstance(row, Mapping):
        return is_annotated_pair(row)
    is_task = isinstance(row.get("data"), Mapping) and "text" not in row
    return is_task or _is_document(row) or has_annotations(row)


def _first_value(path: Path) -> Any:
    """The value of the first line of JSON lines that is not blank; None without one."""
    first = next((line.text.strip() for line in decoded_lines(path) if line.text.strip()), "")
    with suppress(ValueError, RecursionError):
        return json.loads(first)
    return None


def _held_rows(content: Any) -> list[Any] | None:
    """The annotated texts of a JSON file: a list, or an object that is one or holds a list of spaCy's pairs, as the
    annotators of its users write; None if it is anything else."""
    if isinstance(content, list):
        return content
    if not isinstance(content, Mapping):
        return None
    held = content.get("annotations")
    if isinstance(held, list) and "data" not in content:
        pairs = [row for row in held if row is not None]  # null: a text that was passed over
        return pairs if pairs and all(map(is_annotated_pair, pairs)) else None
    return [content] if has_annotations(content) else None


def _unpacked(row: Any) -> Iterator[Any]:
    """The rows of an element of a list. A pair of spaCy has its text, a document of spaCy a row for each sentence."""
    if is_annotated_pair(row):
        yield {"text": row[0], **row[1]}
    elif isinstance(row, Mapping) and _is_document(row):
        yield from _document_sentences(row)
    else:
        yield row


def _is_document(row: TableRow) -> bool:
    """Whether an object is a document in the JSON of spaCy 2."""
    return "text" not in row and isinstance(row.get("paragraphs"), list)


def _document_sentences(document: TableRow) -> Iterator[TableRow]:
    """Words and tags of the sentences of a document, in the JSON of spaCy 2: paragraphs of sentences of tokens."""
    for paragraph in _objects(document, "paragraphs"):
        for sentence in _objects(paragraph, "sentences"):
            tokens = _objects(sentence, "tokens")
            words = [token.get("orth") for token in tokens]
            yield {"words": words, "tags": [token.get("ner", OUTSIDE) for token in tokens]}


def _objects(row: TableRow, name: str) -> list[TableRow]:
    values = row.get(name)
    return [value for value in values if isinstance(value, Mapping)] if isinstance(values, list) else []


def has_annotations(row: TableRow) -> bool:
    """Whether a row has a text and a list of spans, or is a task of Label Studio. Predictions that lack their text
    count too, since they need another error than a row of words."""
    if _is_task(row):
        return True
    key = _spans_key(row)
    spans = None if key is None else row[key]
    if not isinstance(spans, list):
        return False
    if spans:
        return isinstance(spans[0], Mapping) or ("text" in row and isinstance(spans[0], list))
    lists = [value for name, value in row.items() if name != key and isinstance(value, list) and value]
    return "text" in row and not any(isinstance(values[0], str) for values in lists)


def _is_task(row: TableRow) -> bool:
    return isinstance(row.get("data"), Mapping) and isinstance(row.get("annotations"), list)


def _spans_key(row: TableRow) -> str | None:
    keys = [key for key in SPAN_KEYS if key in row]
    return next((key for key in keys if isinstance(row[key], list)), keys[0] if keys else None)


def read_annotation_file(path: Path) -> list[tuple[RowLocation, TableRow]]:
    """(location, row) for each element of a .json that holds a list, or of JSON lines; rows of spaCy are unpacked."""
    rows = _json_lines(path) if file_type(path) == ".jsonl" else _json_elements(path)
    unpacked = [(where, row) for where, packed in rows for row in _unpacked(packed)]
    return [(where.with_id(row) if isinstance(row, Mapping) else where, row) for where, row in unpacked]


def _json_elements(path: Path) -> list[tuple[RowLocation, Any]]:
    """(location, value) of each element of the list in a .json; of each line, if it holds JSON lines."""
    try:
        content = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        if is_annotation_file(path) and str(error).startswith("Extra data"):
            return _json_lines(path)
        raise InputError(
            f"{path}: not readable as JSON ({error}); give a list of annotated texts, or a .jsonl with one per line"
        ) from None
    rows = _held_rows(content)
    if not rows:
        held = "an empty list" if rows == [] else f"{type(content).__name__}, not a list"
        raise InputError(f"{path}: holds {held}; {layouts_message()}")
    return [(RowLocation(path, number), row) for number, row in enumerate(rows)]


def _json_lines(path: Path) -> list[tuple[RowLocation, Any]]:
    """(location, value) of each line that is not blank. InputError for the first that is not JSON."""
    rows: list[tuple[RowLocation, Any]] = []
    for line in decoded_lines(path):
        if not line.text.strip():
            continue
        where = RowLocation(path, len(rows), line.number)
        if line.error:
            raise line.error
        try:
            rows.append((where, json.loads(line.text)))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: not readable as JSON ({error}); fix the line") from None
    return rows


def text_rows(path: Path) -> Iterator[tuple[RowLocation, TableRow]]:
    """The rows of a .json that holds a list; tasks of Label Studio have their text as the column "text"."""
    for where, row in read_annotation_file(path):
        if not isinstance(row, Mapping):
            raise InputError(f"{where}: holds {type(row).__name__}, not an object; {layouts_message()}")
        is_task = isinstance(row.get("data"), Mapping)
        yield where, {**row, "text": _task_text(where, row["data"])} if is_task else row


def accepted_rows(
    path: TableSource,
    located_rows: list[tuple[RowLocation, TableRow]],
    errors: RowErrors,
    used: Sequence[str | None] = (),
) -> list[tuple[RowLocation, TableRow]]:
    """The rows without those that Prodigy's `answer` rejects or ignores, and without tasks of Label Studio that have no
    annotation, or only cancelled ones. `errors` receives a note with their number.

    used: the columns named for other uses, which `answer` may be. InputError if no row is left.
    """
    answers = [row.get("answer") for _, row in located_rows if isinstance(row, Mapping)]
    values = {one for one in answers if isinstance(one, str)}
    has_answers = "answer" not in used and values <= {"accept", *REFUSED}
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
    if _is_task(row):
        return all(isinstance(one, Mapping) and bool(one.get("was_cancelled")) for one in row["annotations"])
    answer = row.get("answer")
    return has_answers and isinstance(answer, str) and answer in REFUSED


def annotated_sentences(
    located_rows: Iterable[tuple[RowLocation, TableRow]], errors: RowErrors, scheme: Scheme = "iob2"
) -> list[Sentence]:
    """A sentence for each row, a document of its own. scheme: of the tags that are written.

    The border of a span inside a word moves outward to the border of the word; of overlapping spans the longest is
    kept, else the first. `errors` receives a note for each with their number, and for texts without words, which are
    left out; and the error of a row whose spans cannot be read.
    """
    sentences: list[Sentence] = []
    changes = Changes()
    for where, row in located_rows:
        try:
            text, spans = read_annotation(where, row, changes)
            words = split_words(text)
            if words:
                tags = spans_to_tags(changes.fit(where, words, spans), len(words), scheme)
                sentences.append(Sentence(words=words, tags=tuple(tags), where=where, document=len(sentences)))
            else:
                changes.blank.append(where)
        except InputError as error:
            errors(error)
    errors.remarks += changes.notes()
    return sentences


def split_words(text: str) -> TextWords:
    """BERT's words of a text, as slices of it: split at white space, punctuation and ideographs."""
    bounds = [(origins[0], origins[-1] + 1) for _, origins in SPLITTER.spans(text)]
    return TextWords([text[start:end] for start, end in bounds], text, [start for start, _ in bounds])


# --- spans of words ---------------------------------------------------------------------------------------------------


class Changes:
    """Spans of characters as spans of words, with the first examples and the number of those that were changed."""

    def __init__(self) -> None:
        self.moved: list[str] = []
        self.dropped: list[str] = []
        self.blank: list[str] = []  # locations of texts without words
        self.converted: list[str] = []  # locations of rows whose offsets count UTF-16 units
        self.others = Counter[str]()  # regions of other types

    def fit(self, where: str, words: TextWords, spans: Sequence[TextSpan]) -> list[Span]:
        """The spans of words that cover the spans of characters, without overlaps. InputError if one covers no word."""
        text = words.text
        kept = list[Span]()
        is_taken = [False] * len(words)
        ends = [start + len(word) for start, word in zip(words.starts, words, strict=True)]
        for span in sorted(dict.fromkeys(spans), key=lambda span: (span.start - span.end, span.start)):
            first = bisect_right(ends, span.start)
            last = bisect_left(words.starts, span.end)
            shown = f"{span.label} {shorten(repr(text[span.start : span.end]))} at {span.start}"
            if first >= last:
                raise InputError(f"{where}: {shown} covers no word; correct its offsets or remove it")
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
        others = ", ".join(f"{number:,} {kind}" for kind, number in self.others.items())
        return [
            *(f"{kind}: {len(examples):,}, such as {examples[0]}" for examples, kind in kinds if examples),
            *([f"left out regions that are no spans with labels: {others}"] if others else []),
        ]


# --- rows -------------------------------------------------------------------------------------------------------------


def read_annotation(where: str, row: Any, changes: Changes) -> tuple[str, list[TextSpan]]:
    """The text of a row and its spans, without white space at their borders. InputError if they are not valid.

    Where spans come with their text and it is not at their offsets, the offsets may count UTF-16 units.
    """
    if not isinstance(row, Mapping):
        raise InputError(f"{where}: holds {type(row).__name__}, not an object; {layouts_message()}")

    if _is_task(row):
        text = _task_text(where, row["data"])
        name = "result"
        values = list(_task_values(where, row, changes))
    elif (key := _spans_key(row)) is not None and "text" in row:
        text = row["text"]
        name = key
        values = row[key]
    else:
        if key is not None:
            raise InputError(
                f"{where}: no 'text' next to {key!r}; add it (to predictions with {flag('keep_columns', 'text')})"
            )
        listed = ", ".join(map(str, row)) or "none"
        raise InputError(f"{where}: no text with a list of entities (there are: {listed}); {layouts_message()}")

    if not isinstance(text, str):
        raise InputError(f"{where}: 'text' holds {shorten(repr(text))}, not text; fix the row or drop it")
    if not isinstance(values, list):
        raise InputError(f"{where}: {name!r} holds {shorten(repr(values))}, not a list; {layouts_message()}")

    places = [f"{where}: {name}[{index}]" for index in range(len(values))]
    spans = [_span(place, value) for place, value in zip(places, values, strict=True)]
    expected = [value.get("text") if isinstance(value, Mapping) else None for value in values]

    try:
        return text, [*map(_placed, places, spans, expected, repeat(text))]
    except InputError:
        if any(isinstance(one, str) for one in expected):
            with suppress(InputError):
                placed = [*map(_placed, places, _from_utf16(spans, text), expected, repeat(text))]
                changes.converted.append(where)
                return text, placed
        raise


def _task_text(where: str, data: Mapping[str, Any]) -> Any:
    """The text of a task of Label Studio: "text", or the only string."""
    strings = [name for name, value in data.items() if isinstance(value, str)]
    if "text" in data or len(strings) != 1:
        if "text" not in data:
            raise InputError(f"{where}: no 'text' in data (there are: {', '.join(data) or 'none'}); name the text so")
        return data["text"]
    return data[strings[0]]


def _task_values(where: str, task: TableRow, changes: Changes) -> Iterator[Any]:
    """The spans of the first annotation that was not cancelled; others, such as relations and choices, are counted."""
    for annotation in task["annotations"]:
        if not isinstance(annotation, Mapping) or not isinstance(annotation.get("result"), list):
            raise InputError(f"{where}: an annotation has no list 'result'; {layouts_message()}")
        if annotation.get("was_cancelled"):
            continue
        for result in annotation["result"]:
            kind = result.get("type", "labels") if isinstance(result, Mapping) else "labels"
            if kind != "labels":
                changes.others[str(kind)] += 1
            else:
                yield result.get("value") if isinstance(result, Mapping) else None
        return


def _span(where: str, value: Any) -> TextSpan:
    """A span from an object with start, end and label (or labels, a list of one), or from a list of the three."""
    if isinstance(value, list):
        if len(value) != 3:
            raise InputError(f"{where}: holds {shorten(repr(value))}, not [start, end, label]; fix it")
        bounds = dict(zip(BOUND_KEYS, value, strict=False))
        label = value[2]
    elif isinstance(value, Mapping):
        bounds = {name: next((value[key] for key in keys if key in value), None) for name, keys in BOUND_KEYS.items()}
        label = value.get("label", value.get("labels"))
        label = label[0] if isinstance(label, list) and len(label) == 1 else label
    else:
        raise InputError(f"{where}: holds {shorten(repr(value))}, not an object with start, end and label; fix it")
    for name, bound in bounds.items():
        if type(bound) is not int:
            problem = "is missing" if bound is None else f"holds {shorten(repr(bound))}, not a whole number"
            raise InputError(f"{where}: {name!r} {problem}; give the offset of a character in the text")
    if not isinstance(label, str) or not label.strip():
        problem = "is missing" if label is None else f"holds {shorten(repr(label))}, not a name"
        raise InputError(f"{where}: 'label' {problem}; give the name of one label")
    return TextSpan(bounds["start"], bounds["end"], label)


def _from_utf16(spans: Iterable[TextSpan], text: str) -> list[TextSpan]:
    """Spans whose offsets count UTF-16 units, in characters; an offset inside a character becomes -1."""
    units = accumulate((1 + (character > "\uffff") for character in text), initial=0)
    characters = {unit: index for index, unit in enumerate(units)}
    return [TextSpan(characters.get(start, -1), characters.get(end, -1), label) for start, end, label in spans]


def _placed(where: str, span: TextSpan, expected: Any, text: str) -> TextSpan:
    """A span without white space at its borders. expected: its text, if known. InputError if that is elsewhere."""
    start, end, label = span
    if not 0 <= start < end <= len(text):
        raise InputError(
            f"{where}: characters {start} to {end} are not in the text, which has {len(text):,}; give 0 <= start < end "
            "<= length"
        )
    inside = text[start:end]
    if inside.isspace():
        raise InputError(f"{where}: characters {start} to {end} are white space; correct the offsets or remove it")
    if isinstance(expected, str) and inside.split() not in (expected.split(), expected.replace("\\n", "\n").split()):
        raise InputError(
            f"{where}: characters {start} to {end} are {shorten(repr(inside))}, but its text is "
            f"{shorten(repr(expected))}; count the offsets in characters (code points) of 'text'"
        )
    return TextSpan(start + len(inside) - len(inside.lstrip()), end - len(inside) + len(inside.rstrip()), label)
