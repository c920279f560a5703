"""Filters of a search: conditions such as "year > 2010 and author = 'Smith'" on metadata, as SQL with parameters.

Names are columns of tables and keys of front matter, in quotes if they are not one word; `path`, `page` and `heading`
are columns of the passage. A value is compared with a number if it reads as one ("01234", "1.10" too), and with a text
as it is written. Of a list one value has to match; != is true if none is equal. Names and values are never part of the
SQL, so a filter from a stranger can only compare.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bothways.base.errors import InputError, shorten

TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d+)?(?![\w.-]))|(?P<text>'(?:[^']|'')*'|\"[^\"]*\")|"
    r"(?P<operator><=|>=|!=|<>|==|=|<|>|\(|\))|(?P<name>[^\W\d][\w.-]*))"
)
VALUE = "CASE field.type WHEN 'array' THEN item.value ELSE field.value END"
VALUES = (  # of a name in the metadata, each of a list; '[0]' makes one row of a value that is no list
    "SELECT 1 FROM json_each(passages.metadata) AS field JOIN json_each(CASE field.type WHEN 'array' THEN field.value "
    "ELSE '[0]' END) AS item WHERE field.key = ?"
)
OPERATORS = {
    "=": "IS",
    "==": "IS",
    "!=": "IS NOT",
    "<>": "IS NOT",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
FILE_NAME = "replace(roots.path, rtrim(roots.path, replace(roots.path, '/', '')), '')"
PATH = f"CASE files.path WHEN '' THEN {FILE_NAME} ELSE files.path END"  # "": the root is the file
COLUMNS = {
    "path": PATH,
    "page": "passages.page",
    "heading": "passages.heading",
}
WORDS = {"true": 1, "false": 0, "null": None}
EXAMPLE = "\"year > 2010 and author = 'Smith'\""
MOST_PARTS = 200  # tokens of a filter
DEEPEST = 20  # parentheses and `not` within each other; SQLite's parser may have room for 100 symbols
LONGEST_NUMBER = 18  # characters of an integer of SQLite; longer ones are approximate
LONGEST_TEXT = 10_000  # characters
NUMBER = "CAST(? AS NUMERIC)"  # with it SQLite compares a text that reads as a number as one, others are greater
LARGEST = "CAST(9e999 AS REAL)"


def parse_filter(text: str) -> tuple[str, list[Any], list[str]]:
    """The SQL condition on `passages` and `files` of a filter, its parameters, and the names of metadata in it.
    InputError if it is malformed.

    >>> parse_filter("page = 3")
    ('passages.page IS CAST(? AS NUMERIC)', [3], [])
    """
    parser = _Parser(text)
    return parser.parse(), parser.values, parser.names


@dataclass
class _Parser:
    """Reads a filter by recursive descent. tokens: (kind, word) of those that are not read yet, the next one last."""

    text: str
    tokens: list[tuple[str, str]] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    depth: int = 0

    def parse(self) -> str:
        position = 0
        while self.text[position:].strip():
            match = TOKEN.match(self.text, position)
            if match is None or len(self.tokens) >= MOST_PARTS:
                raise self.error(f"cannot read {shorten(self.text[position:], 20)!r}")
            kind = str(match.lastgroup)
            self.tokens.append((kind, str(match[kind])))
            position = match.end()
        self.tokens.reverse()

        sql = self.any_of()
        if self.tokens:
            raise self.error(f"unexpected {self.tokens[-1][1]!r}")
        return sql

    def any_of(self) -> str:
        parts = [self.all_of()]
        while self.take("or"):
            parts.append(self.all_of())
        return f"({' OR '.join(parts)})" if len(parts) > 1 else parts[0]

    def all_of(self) -> str:
        parts = [self.condition()]
        while self.take("and"):
            parts.append(self.condition())
        return f"({' AND '.join(parts)})" if len(parts) > 1 else parts[0]

    def condition(self) -> str:
        if self.take("not"):
            with self.nested():
                return f"({self.condition()} IS NOT TRUE)"

        if self.take("("):
            with self.nested():
                sql = self.any_of()
            if not self.take(")"):
                raise self.error("a closing parenthesis is missing")
            return sql

        column, name = self.column()
        operator = "LIKE" if self.take("like") else self.operator()
        value = self.value()
        if name is None:
            return self.comparison(column, operator, value)
        return self.metadata_comparison(name, operator, value)

    def metadata_comparison(self, name: str, operator: str, value: Any) -> str:
        """The SQL that asks whether a value of a name in the metadata compares so."""
        self.names.append(name)
        self.values.append(name)
        if operator not in ("IS", "IS NOT"):
            return f"EXISTS ({VALUES} AND {self.comparison(VALUE, operator, value)})"

        # A missing name is null, so `= null` asks that no value is there; `!= 3`, that no value is 3.
        if value is None:
            exists = operator == "IS NOT"
            compared = self.comparison(VALUE, "IS NOT", value)
        else:
            exists = operator == "IS"
            compared = self.comparison(VALUE, "IS", value)
        return f"{'' if exists else 'NOT '}EXISTS ({VALUES} AND {compared})"

    def comparison(self, column: str, operator: str, value: Any) -> str:
        """The SQL that compares an expression with a value, which becomes a parameter."""
        self.values.append(value)
        if isinstance(value, str):
            return f"CAST({column} AS TEXT) {operator} ?"
        if value is None:
            return f"{column} {operator} ?"
        if operator in ("IS", "IS NOT"):
            return f"{column} {operator} {NUMBER}"
        return f"({column} {operator} {NUMBER} AND {column} <= {LARGEST})"

    @contextmanager
    def nested(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.error(f"more than {DEEPEST} parentheses and `not` within each other")
        yield
        self.depth -= 1

    def column(self) -> tuple[str, str | None]:
        """The SQL expression for a name, and the name if it is one of the metadata."""
        kind, name = self.next("a name")
        if kind == "name" and name in COLUMNS:
            return COLUMNS[name], None
        if kind not in ("name", "text"):
            raise self.error(f"expected a name before a comparison, not {name}")
        if kind == "text":
            name = self.unquoted(name)
        return VALUE, name

    def operator(self) -> str:
        _, sign = self.next("a comparison")
        if sign not in OPERATORS:
            raise self.error(f"{sign!r} is no comparison; there are {', '.join(OPERATORS)}, like")
        return OPERATORS[sign]

    def unquoted(self, word: str) -> str:
        if len(word) > LONGEST_TEXT:
            raise self.error(f"a text of {len(word):,} characters, of {LONGEST_TEXT:,} at most")
        content = word[1:-1]
        return content.replace("''", "'") if word[0] == "'" else content

    def value(self) -> Any:
        kind, word = self.next("a value")
        if kind == "number":
            if "." in word or len(word) > LONGEST_NUMBER:
                return float(word)
            return int(word)
        if kind == "text":
            return self.unquoted(word)
        if kind == "name" and word.lower() in WORDS:
            return WORDS[word.lower()]
        raise self.error(f"expected a number or a text in quotes, not {word}; write '{word}'")

    def take(self, word: str) -> bool:
        """Whether the next token is this word, which is then read."""
        if not self.tokens:
            return False
        kind, token = self.tokens[-1]
        is_word = kind in ("name", "operator") and token.lower() == word
        if is_word:
            self.tokens.pop()
        return is_word

    def next(self, wanted: str) -> tuple[str, str]:
        if not self.tokens:
            raise self.error(f"{wanted} is missing at the end")
        return self.tokens.pop()

    def error(self, reason: str) -> InputError:
        return InputError(f"filter ({shorten(self.text)}): {reason}; write it as {EXAMPLE}")
