"""Filters of a search: conditions such as "year > 2010 and author = 'Smith'" on metadata, as SQL with parameters.

Names are columns of tables and keys of front matter; `path`, `page` and `heading` are those of the passage. Values are
never part of the SQL, so a filter from a stranger can only compare.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from bothways.errors import InputError, shorten

TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d+)?(?![\w.-]))|(?P<text>'(?:[^']|'')*'|\"[^\"]*\")|"
    r"(?P<operator><=|>=|!=|<>|==|=|<|>|\(|\))|(?P<name>[^\W\d][\w.-]*))"
)
OPERATORS = {"=": "IS", "==": "IS", "!=": "IS NOT", "<>": "IS NOT", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
COLUMNS = {"path": "files.path", "page": "passages.page", "heading": "passages.heading"}
WORDS = {"true": 1, "false": 0, "null": None}
EXAMPLE = "\"year > 2010 and author = 'Smith'\""
MOST_PARTS = 200  # tokens of a filter
LARGEST = 1 << 63  # beyond the whole numbers of SQLite


@dataclass
class _Parser:
    text: str
    tokens: list[tuple[str, str]] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def parse(self) -> str:
        position = 0
        while self.text[position:].strip():
            match = TOKEN.match(self.text, position)
            if match is None or len(self.tokens) >= MOST_PARTS:
                raise self.error(f"cannot read {shorten(self.text[position:], 20)!r}")
            self.tokens.append((str(match.lastgroup), str(match[str(match.lastgroup)])))
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
        return f"({' OR '.join(parts)})"

    def all_of(self) -> str:
        parts = [self.condition()]
        while self.take("and"):
            parts.append(self.condition())
        return f"({' AND '.join(parts)})"

    def condition(self) -> str:
        if self.take("not"):
            return f"(NOT ifnull({self.condition()}, 0))"
        if self.take("("):
            sql = self.any_of()
            if not self.take(")"):
                raise self.error("a closing parenthesis is missing")
            return sql
        kind, name = self.next("a name")
        if kind != "name":
            raise self.error(f"expected a name before a comparison, not {name}")
        column = COLUMNS.get(name)
        if column is None:
            self.values.append(f'$."{name}"')
            column = "json_extract(passages.metadata, ?)"
        if self.take("like"):
            operator = "LIKE"
        else:
            _, sign = self.next("a comparison")
            if sign not in OPERATORS:
                raise self.error(f"{sign!r} is no comparison; there are {', '.join(OPERATORS)}, like")
            operator = OPERATORS[sign]
        self.values.append(self.value())
        return f"{column} {operator} ?"

    def value(self) -> Any:
        kind, word = self.next("a value")
        if kind == "number":
            number = float(word)
            return int(word) if "." not in word and abs(number) < LARGEST else number
        if kind == "text":
            return word[1:-1].replace("''", "'") if word[0] == "'" else word[1:-1]
        if kind == "name" and word.lower() in WORDS:
            return WORDS[word.lower()]
        raise self.error(f"expected a number or a text in quotes, not {word}; write '{word}'")

    def take(self, word: str) -> bool:
        """Whether the next token is this word, which is then read."""
        if self.tokens and self.tokens[-1][0] in ("name", "operator") and self.tokens[-1][1].lower() == word:
            self.tokens.pop()
            return True
        return False

    def next(self, wanted: str) -> tuple[str, str]:
        if not self.tokens:
            raise self.error(f"{wanted} is missing at the end")
        return self.tokens.pop()

    def error(self, reason: str) -> InputError:
        return InputError(f"filter ({shorten(self.text)}): {reason}; write it as {EXAMPLE}")


def parse_filter(text: str) -> tuple[str, list[Any]]:
    """The SQL condition on `passages` and `files` of a filter, and its parameters. InputError if it is malformed."""
    parser = _Parser(text)
    return parser.parse(), parser.values
