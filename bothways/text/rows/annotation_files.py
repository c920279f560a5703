"""Files of annotated texts: .json and .jsonl as exported by spaCy, Prodigy, doccano and Label Studio.

What the spans of a row mean is in `text/data/annotations.py`.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError, RowError, RowLocation
from bothways.settings.tables_in_memory import MemoryTable, RowOrError, TableRow, TableSource, is_annotated_pair
from bothways.text.rows.text_files import decoded_lines, file_type, read_bytes

SPAN_KEYS = ("entities", "ents", "spans", "label", "labels")  # ents: spaCy's Doc.to_json
OUTSIDE = "O"  # the tag of a word of no entity
LAYOUTS = (  # of a row, for messages
    '{"words": ["In", "Rome"], "tags": ["O", "B-CITY"]}',
    '{"text": "In Rome", "entities": [{"start": 3, "end": 7, "label": "CITY"}]} (or ents, spans, label, labels)',
    '{"text": "In Rome", "entities": [[3, 7, "CITY"]]}',
    '["In Rome", {"entities": [[3, 7, "CITY"]]}]',
    'Label Studio\'s {"data": {"text": "In Rome"}, "annotations": [{"result": [{"value": {"start": 3, "end": 7, '
    '"labels": ["CITY"]}}]}]}',
)


def is_annotation_file(path: TableSource, encoding: str | None = None) -> bool:
    """Whether a file holds annotated texts, judged by its first row.

    encoding: see `read_annotations`.

    Such a file is a .json with a list of them (as exported by Label Studio), with an object that holds them, or with
    one on each line; or a .jsonl of spaCy's pairs. Lists of other records are tables (text/rows/json_tables.py).
    """
    if isinstance(path, MemoryTable):
        return False
    if file_type(path) == ".jsonl":
        return path.is_file() and is_annotated_pair(_first_value(path, encoding))
    if file_type(path) != ".json":
        return False

    content = read_bytes(path)
    stripped = content.removeprefix(BOM_UTF8).lstrip()
    if stripped[:1] == b"{" and b'"paragraphs"' in stripped:
        return False  # questions in SQuAD's format

    with suppress(ValueError, RecursionError):
        rows = _file_rows(_parsed(content, encoding)) or []
        return bool(rows) and _is_annotated(rows[0])
    # Not one JSON value: the .json may hold JSON lines.
    return _is_annotated(_first_value(path, encoding))


def _is_annotated(row: Any) -> bool:
    """Whether a value is an annotated text: a pair or a document of spaCy, an object with a text and spans, or a task
    of Label Studio, also without annotations."""
    if not isinstance(row, Mapping):
        return is_annotated_pair(row)
    is_any_task = isinstance(row.get("data"), Mapping) and "text" not in row
    return is_any_task or _is_document(row) or has_annotations(row)


def _parsed(content: bytes, encoding: str | None) -> Any:
    """The value of the content of a .json, which is in the encoding unless it begins with a byte-order mark."""
    if content.startswith(BOM_UTF8):
        return json.loads(content.removeprefix(BOM_UTF8))
    return json.loads(content.decode(encoding) if encoding else content)


def _first_value(path: Path, encoding: str | None) -> Any:
    """The value of the first line that is not blank; None if there is no such line, or if it is not JSON."""
    with suppress(ValueError, RecursionError, InputError):
        first = next((line.text.strip() for line in decoded_lines(path, encoding) if line.text.strip()), "")
        return json.loads(first)
    return None


def _file_rows(content: Any) -> list[Any] | None:
    """The rows of the content of a .json; None if it holds no annotated texts.

    content: a list of rows; an object whose `annotations` are spaCy's pairs, as annotation tools made for spaCy write
    it; or an object that is a row itself.
    """
    if isinstance(content, list):
        return content
    if not isinstance(content, Mapping):
        return None

    annotations = content.get("annotations")
    if isinstance(annotations, list) and "data" not in content:
        pairs = [row for row in annotations if row is not None]  # null: a text that was passed over
        return pairs if pairs and all(map(is_annotated_pair, pairs)) else None
    return [content] if has_annotations(content) else None


def _unpacked(row: Any) -> Iterator[Any]:
    """The rows of an element of a file: one for a pair of spaCy, one a sentence for a document of spaCy; any other
    element is a row already."""
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
            yield {
                "words": [token.get("orth") for token in tokens],
                "tags": [token.get("ner", OUTSIDE) for token in tokens],
            }


def _objects(row: TableRow, name: str) -> list[TableRow]:
    """The objects in the list `name` of a row; none if it has no such list."""
    values = row.get(name)
    if not isinstance(values, list):
        return []
    return [value for value in values if isinstance(value, Mapping)]


def read_annotations(path: Path, encoding: str | None = None) -> Iterator[tuple[RowLocation, Any] | InputError]:
    """(location, value) of each row of a .json or .jsonl, or its error; pairs and documents of spaCy are unpacked.

    A row may be any value of JSON, since only the readers of a row know which they accept.
    """
    elements = _json_lines(path, encoding) if file_type(path) == ".jsonl" else _json_elements(path, encoding)
    for element in elements:
        if isinstance(element, InputError):
            yield element
            continue

        where, value = element
        for row in _unpacked(value):
            yield where.with_id(row) if isinstance(row, Mapping) else where, row


def _json_elements(path: Path, encoding: str | None) -> Iterator[tuple[RowLocation, Any] | InputError]:
    """(location, value) of each row of a .json; of each line, if it holds JSON lines."""
    try:
        value = _parsed(read_bytes(path), encoding)
    except (ValueError, RecursionError) as error:
        # json's message where a second value follows the first: a second line.
        if is_annotation_file(path, encoding) and str(error).startswith("Extra data"):
            yield from _json_lines(path, encoding)
            return
        raise InputError(
            f"{path}: not readable as JSON ({error}); give a list of annotated texts, or a .jsonl with one per line"
        ) from None

    rows = _file_rows(value)
    if not rows:
        shown = "an empty list" if rows == [] else f"{type(value).__name__}, not a list"
        raise InputError(f"{path}: holds {shown}; {layouts_message()}")
    for number, row in enumerate(rows):
        yield RowLocation(path, number), row


def _json_lines(path: Path, encoding: str | None) -> Iterator[tuple[RowLocation, Any] | InputError]:
    """(location, value) of each line that is not blank, or its error."""
    lines = (line for line in decoded_lines(path, encoding) if line.text.strip())
    for number, line in enumerate(lines):
        where = RowLocation(path, number, line.number)
        if line.error:
            yield line.error
            continue

        try:
            yield where, json.loads(line.text)
        except (ValueError, RecursionError) as error:
            yield RowError(where, f"not readable as JSON ({error}); fix the line")


def text_rows(path: Path, encoding: str | None = None) -> Iterator[RowOrError]:
    """The rows of an annotation file as rows of a table, or their errors.

    A task of Label Studio, with annotations or without, has its text as the column "text".
    """
    for element in read_annotations(path, encoding):
        if isinstance(element, InputError):
            yield element
            continue

        where, row = element
        if not isinstance(row, Mapping):
            yield RowError(where, f"holds {type(row).__name__}, not an object; {layouts_message()}")
        elif isinstance(row.get("data"), Mapping):
            try:
                yield where, {**row, "text": task_text(where, row["data"])}
            except InputError as error:
                yield error.with_traceback(None)
        else:
            yield where, row


# --- one row ----------------------------------------------------------------------------------------------------------


def layouts_message() -> str:
    """The layouts of a row with tags, with an example of each."""
    return f"a row of tags is {', or '.join(LAYOUTS)}"


def has_annotations(row: TableRow) -> bool:
    """Whether a row has a text and a list of spans, or is a task of Label Studio with annotations.

    Predictions that lack their text count too, since they need another error than a row of words.
    """
    if is_annotated_task(row):
        return True

    key = spans_key(row)
    spans = None if key is None else row[key]
    if not isinstance(spans, list):
        return False
    if spans:
        return isinstance(spans[0], Mapping) or ("text" in row and isinstance(spans[0], list))

    # An empty list shows nothing. Beside a list of strings, it belongs to a row of words.
    lists = [value for name, value in row.items() if name != key and isinstance(value, list) and value]
    return "text" in row and not any(isinstance(values[0], str) for values in lists)


def is_annotated_task(row: TableRow) -> bool:
    """Whether an object is a task of Label Studio with a list of annotations, which may be empty."""
    return isinstance(row.get("data"), Mapping) and isinstance(row.get("annotations"), list)


def spans_key(row: TableRow) -> str | None:
    """The first key of spans that holds a list; else the first one, for the error; None if the row has none."""
    keys = [key for key in SPAN_KEYS if key in row]
    first = keys[0] if keys else None
    return next((key for key in keys if isinstance(row[key], list)), first)


def task_text(where: str, data: Mapping[str, Any]) -> Any:
    """The value "text" of the data of a task of Label Studio, else its only string."""
    if "text" in data:
        return data["text"]

    strings = [value for value in data.values() if isinstance(value, str)]
    if len(strings) != 1:
        raise RowError(where, f"no 'text' in data (there are: {', '.join(data) or 'none'}); name the text so")
    return strings[0]
