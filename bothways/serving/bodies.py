"""Bodies of requests: read by hand, with one line that names the field that is wrong.

Unknown fields are ignored, as in Text Embeddings Inference. An empty input is status 400, any other mistake 422.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

from bothways.base.errors import InputError, shorten
from bothways.tasks.task import Item

ERROR_TYPES = {
    400: "Empty",
    401: "Unauthorized",
    424: "Backend",
    429: "Overloaded",
    503: "Unhealthy",
}
Body = Mapping[str, Any]


class Refusal(InputError):
    """A request that is refused: status, message, type of the error, further headers."""

    def __init__(
        self, status: int, message: str, error_type: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error_type = error_type or ERROR_TYPES.get(status, "Validation")
        self.headers = dict(headers or {})


def wrong(field: str, value: Any, expected: str) -> Refusal:
    if value is None:
        return Refusal(422, f"`{field}` is missing; it must be {expected}")
    return Refusal(422, f"`{field}` ({shorten(repr(value), 40)}) must be {expected}")


def read_object(value: Any, field: str = "the body") -> Body:
    if not isinstance(value, dict):
        raise wrong(field, value, "a JSON object")
    return value


def read_bool(body: Body, field: str, default: bool) -> bool:
    value = body.get(field)
    if value is not None and not isinstance(value, bool):
        raise wrong(field, value, "true or false")
    return default if value is None else value


def read_integer(body: Body, field: str, default: int | None, least: int, most: int = 1 << 31) -> int | None:
    value = body.get(field)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise wrong(field, value, f"a whole number from {least} to {most}")
    return value


def read_share(body: Body, field: str) -> float | None:
    value = body.get(field)
    if value is not None and (not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1):
        raise wrong(field, value, "a number from 0 to 1")
    return value


def read_text(body: Body, field: str) -> str:
    value = body.get(field)
    if not isinstance(value, str):
        raise wrong(field, value, "a string")
    return value


def read_choice(body: Body, field: str, choices: Sequence[str]) -> str:
    """One of the choices; the first by default."""
    value = body.get(field)
    if value is None:
        return choices[0]
    if value not in choices:
        raise wrong(field, value, f"one of {', '.join(choices)}")
    return str(value)


def read_strings(body: Body, field: str) -> tuple[list[str], bool]:
    """A string or a list of strings, and whether it is a single one."""
    value = body.get(field)
    if isinstance(value, str):
        return [value], True
    if not is_list_of(value, str):
        raise wrong(field, value, "a string or a list of strings")
    if not value:
        raise Refusal(400, f"`{field}` is empty; give at least one text")
    return value, False


def read_inputs(body: Body, field: str = "inputs") -> tuple[list[str | list[int]], bool]:
    """A string, ids, or a list of them (strings and lists of ids may be mixed), and whether it is a single one."""
    value = body.get(field)
    if isinstance(value, str):
        return [value], True
    if isinstance(value, list) and not value:
        raise Refusal(400, f"`{field}` is empty; give at least one text")
    if is_ids(value):
        return [[*value]], True
    if not isinstance(value, list) or not all(isinstance(entry, str) or (entry and is_ids(entry)) for entry in value):
        raise wrong(field, value, "a string, a list of ids, or a list of those")
    return value, False


def read_pairs(body: Body, field: str = "inputs") -> tuple[list[tuple[str, str]], bool]:
    """A pair of strings or a list of such pairs, and whether it is a single one."""
    value = body.get(field)
    if is_list_of(value, str) and len(value) == 2:
        return [(value[0], value[1])], True
    if isinstance(value, list) and not value:
        raise Refusal(400, f"`{field}` is empty; give at least one pair")
    if not isinstance(value, list) or not all(is_list_of(pair, str) and len(pair) == 2 for pair in value):
        raise wrong(field, value, "a list of two strings, or a list of such lists")
    return [(first, second) for first, second in value], False


def read_sequences(body: Body, field: str = "inputs") -> tuple[list[Item], bool]:
    """The inputs of /predict: a string, a list of one or two strings (a text or a pair), or a list of such lists."""
    value = body.get(field)
    if isinstance(value, str):
        return [(value, None)], True
    if isinstance(value, list) and not value:
        raise Refusal(400, f"`{field}` is empty; give at least one text")
    rows: Any = [value] if is_list_of(value, str) else value
    if not isinstance(rows, list) or not all(is_list_of(row, str) and len(row) in (1, 2) for row in rows):
        raise wrong(field, value, "a string, a list of one or two strings (a text or a pair), or a list of such lists")
    if len({len(row) for row in rows}) > 1:
        raise Refusal(422, f"`{field}` mixes texts and pairs; send them in two requests")
    return [(row[0], row[1] if len(row) == 2 else None) for row in rows], rows is not value


def read_single_texts(body: Body) -> tuple[list[Item], bool]:
    texts, is_single = read_strings(body, "inputs")
    return [(text, None) for text in texts], is_single


def read_questions(body: Body) -> tuple[list[Item], bool]:
    """A question with its context, in `inputs` or in the body itself, or a list of them, and whether it is one."""
    inputs = body.get("inputs")
    if inputs == []:
        raise Refusal(400, "`inputs` is empty; give at least one question")
    is_single = not isinstance(inputs, list)
    rows: Any = inputs
    if is_single:
        rows = [body if inputs is None else inputs]
    objects = [read_object(row, "`inputs`") for row in rows]
    return [(read_text(row, "question"), read_text(row, "context")) for row in objects], is_single


def is_list_of(value: Any, kind: type) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and all(isinstance(entry, kind) for entry in value)


def is_ids(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(isinstance(entry, int) and not isinstance(entry, bool) for entry in value)


READERS: Mapping[str, Callable[[Body], tuple[Sequence[Item], bool]]] = {  # by `reads` of a route
    "texts": read_single_texts,
    "pairs": read_pairs,
    "sequences": read_sequences,
    "questions": read_questions,
}
