"""Which columns of a table are its texts, second texts and labels: those that are named, else those with usual names.

Our own names (`text`, `pair` or `text_pair`, `label`) come first; without them, just one choice of the usual names
below must be there, for nothing is guessed between two. Case does not matter. Where the text is named or is ours, no
usual name makes a pair of it.
"""

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from bothways.data.near_duplicates import text_key
from bothways.data.tables import Row
from bothways.errors import InputError

PAIRED = (  # texts and second texts: names that go together
    ("text_a", "text_b"), ("text1", "text2"), ("sentence1", "sentence2"), ("sentence_a", "sentence_b"),
    ("question1", "question2"), ("premise", "hypothesis"), ("#1 string", "#2 string"), ("question", "sentence"),
    ("question", "answer"), ("question", "passage"), ("question", "context"), ("query", "passage"),
    ("query", "document"), ("anchor", "positive"),
)  # fmt: skip
TEXTS = (
    *("sentence", "content", "review", "tweet", "comment", "document", "abstract", "headline"),
    *dict.fromkeys(first for first, _ in PAIRED),
)
LABELS = (
    "labels", "gold", "gold_label", "class", "category", "target", "score", "sentiment", "intent", "rating", "stars",
    "similarity", "similarity_score", "relatedness", "relatedness_score", "entailment_judgment", "is_duplicate",
    "quality",
)  # fmt: skip
Use = Literal["text", "pair", "label", "words", "tags"]  # of a column; the flag that names one is --text-column


@dataclass(frozen=True)
class Table:
    """Texts with, where the file has them, pairs and labels; `where` says file and line of each.

    A label that is a list (several at once) stands as JSON. notes: what was changed or left out when it was read.
    """

    texts: list[str]
    pairs: list[str] | None
    labels: list[str] | None
    where: list[str]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def keys(self) -> list[tuple[str, ...]]:
        """What near-equal rows share (near_duplicates.text_key), labels aside."""
        columns = [self.texts] if self.pairs is None else [self.texts, self.pairs]
        return [*zip(*([*map(text_key, texts)] for texts in columns), strict=True)]


def table_of(
    path: Path,
    found: Sequence[tuple[str, Row]],
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    need_labels: bool,
) -> Table:
    """The texts in ('file:line', columns by name). A column that is named must be there; None: found by its usual name.

    Pairs may be absent, and labels unless they are needed. InputError says which columns there are, or the line.
    """
    if not found:
        raise InputError(f"{path}: empty; a table has a header and at least one row")
    columns = list(dict.fromkeys(name for _, row in found for name in row))
    text, pair = find_texts(path, columns, text, None if pair == "pair" else pair)
    label = find_column(path, columns, "label", label, ["label"], LABELS if need_labels else ())
    if need_labels and label is None:
        raise no_usual_column(path, columns, "label")
    for where, row in found:
        for name in (text, pair, label if need_labels else None):
            if name is not None:
                _check_filled(where, row, name)
    labels = None
    if label is not None and not any(_is_missing(row.get(label)) for _, row in found):
        try:
            labels = [_label(where, row, label) for where, row in found]
        except InputError:
            if need_labels:
                raise
    return Table(
        [text_in(where, row, text) for where, row in found],
        None if pair is None else [text_in(where, row, pair) for where, row in found],
        labels,
        [where for where, _ in found],
    )


def find_column(
    path: Path, columns: Sequence[str], use: Use, named: str | None, ours: Collection[str], usual: Collection[str]
) -> str | None:
    """The column that is named, else the one with a name of ours, else the only one with a usual name; None: none is.

    InputError where the one that is named is not there, and where several could be meant.
    """
    if named is not None and named not in columns:
        there = ", ".join(columns)
        raise InputError(
            f"{path}: no column {named!r} (there are: {there}); rename one, or name yours with --{use}-column"
        )
    if named is not None:
        return named
    for names in (ours, usual):
        if found := [name for name in columns if name.strip().lower() in names]:
            return _only(path, use, [(name,) for name in found])[0]
    return None


def no_usual_column(path: Path, columns: Sequence[str], use: Use) -> InputError:
    there = f"(there are: {', '.join(columns)}), nor one with another usual name"
    return InputError(f"{path}: no column {use!r} {there}; rename one, or name yours with --{use}-column")


def find_texts(path: Path, columns: Sequence[str], text: str | None, pair: str | None) -> tuple[str, str | None]:
    """The columns of texts and of second texts: those named, else those with usual names. InputError as find_column."""
    text = find_column(path, columns, "text", text, ["text"], ())
    pair = find_column(path, columns, "pair", pair, ["pair", "text_pair"], ())
    if text is not None:
        return text, pair
    if pair is not None:
        text = find_column(path, [name for name in columns if name != pair], "text", None, (), TEXTS)
        choices: list[tuple[str, ...]] = [(text, pair)] if text is not None else []
    else:
        choices = _usual_texts(columns)
    if not choices:
        raise no_usual_column(path, columns, "text")
    chosen = _only(path, "text", choices)
    return chosen[0], chosen[1] if len(chosen) > 1 else None


def has_usual_texts(columns: Sequence[str]) -> bool:
    """Whether some column has a usual name of texts."""
    return "text" in {name.strip().lower() for name in columns} or bool(_usual_texts(columns))


def _usual_texts(columns: Sequence[str]) -> list[tuple[str, ...]]:
    """(text, pair) or (text,) of every choice among the usual names; a part of a pair is no choice of its own."""
    by_name = {name.strip().lower(): name for name in columns}
    pairs = [(by_name[a], by_name[b]) for a, b in PAIRED if a in by_name and b in by_name]
    paired = {name for names in pairs for name in names}
    return [*pairs, *((by_name[name],) for name in TEXTS if name in by_name and by_name[name] not in paired)]


def _only(path: Path, use: Use, choices: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    if len(choices) == 1:
        return choices[0]
    told = " or ".join(" with ".join(map(repr, names)) for names in choices)
    raise InputError(f"{path}: the {use} could be {told}; say which with --{use}-column")


def text_in(where: str, row: Row, column: str, use: str = "text") -> str:
    """The text in a row's column. InputError where there is none."""
    _check_filled(where, row, column)
    value = row[column]
    if isinstance(value, list | dict | bytes):
        raise InputError(
            f"{where}: {column!r} holds {type(value).__name__}, not text; name the column with --{use}-column"
        )
    return str(value)


def _check_filled(where: str, row: Row, column: str) -> None:
    if _is_missing(row.get(column)):
        raise InputError(f"{where}: {column!r} is missing; fill it in or drop the row")


def _is_missing(value: Any) -> bool:
    """None, or what pandas writes for it."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _label(where: str, row: Row, column: str) -> str:
    value: Any = row[column]
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, dict | list | bytes):
            held = type(one).__name__
            raise InputError(f"{where}: {column!r} holds {held}, not a label; name the column with --label-column")
        if _is_missing(one):
            raise InputError(f"{where}: {column!r} has a gap in its list of labels; fill it in or take it out")
    label = json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list) else str(value)
    if not label.isprintable() and any("\ud800" <= sign <= "\udfff" for sign in label):
        raise InputError(
            f"{where}: {column!r} holds half of a character ({label!a}), which no file can; mend the label"
        )
    return label
