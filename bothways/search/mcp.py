"""An index as a tool of agents: the Model Context Protocol over standard input and output, one JSON object per line.

Only the messages of a server with tools are needed (initialize, ping, tools/list, tools/call), so they are written by
hand: the protocol's own package would bring a web server and 27 more packages.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

from bothways import __version__
from bothways.base.errors import InputError, shorten
from bothways.base.io import to_json
from bothways.search.reranking import search_reranked
from bothways.search.spaces import Space, VectorModel, open_vectors
from bothways.search.store import Store

if TYPE_CHECKING:
    from bothways.inference.predictor import Predictor

VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")  # of the protocol, the newest first
BATCHES = "2025-03-26"  # the only version in which a line may be a list of messages

# Codes of JSON-RPC.
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
NO_METHOD = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

MOST_HITS = 100
LARGEST = (1 << 53) - 1  # integer that every reader of JSON holds exactly

SEARCH_TOOL: dict[str, Any] = {
    "name": "search",
    "description": "Search the indexed documents by words and by meaning. Returns the best passages with their file, "
    "line and score: the estimated probability that it is relevant. Those with weak: true probably are not; "
    "relevant: false means that no hit is a clear match.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "A question, a sentence or a few words.",
            },
            "top": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_HITS,
                "default": 5,
            },
            "how": {
                "type": "string",
                "enum": ["hybrid", "words", "vectors"],
                "default": "hybrid",
            },
            "glob": {
                "type": "string",
                "description": "Only files whose path matches, such as *.md",
            },
            "filter": {
                "type": "string",
                "description": "A condition on metadata, such as year > 2010",
            },
            "min_score": {
                "type": "number",
                "minimum": 0,
                "maximum": 1,
                "description": "Leave out passages of a lower score.",
            },
        },
        "required": ["query"],
    },
}
READ_TOOL: dict[str, Any] = {
    "name": "read",
    "description": "The passages of an indexed file in their order, from a place on: line, page and start as in the "
    "result of search, or some of them; without any, from the beginning.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "The path of the file, as in the result of search.",
            },
            "line": {
                "type": "integer",
                "minimum": 1,
                "maximum": LARGEST,
            },
            "page": {
                "type": "integer",
                "minimum": 1,
                "maximum": LARGEST,
            },
            "start": {
                "type": "integer",
                "minimum": 0,
                "maximum": LARGEST,
                "description": "A character.",
            },
            "passages": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_HITS,
                "default": 3,
            },
        },
        "required": ["path"],
    },
}


class _Refused(Exception):
    """A message that is answered with an error: its code and text."""


def answer_messages(
    lines: Iterable[str | bytes],
    store: Store,
    vectors: Callable[[Space, str], VectorModel] = open_vectors,
    reranker: "Predictor | None" = None,
) -> Iterator[str]:
    """An answer for each line that needs one.

    lines: messages of a client.
    store: the index.
    vectors: opens the models of the index.
    reranker: orders the passages that are found; None: they stay in the order of the search.
    """
    session = _Session(store, vectors, reranker)
    for line in lines:
        answer = session.answer_line(line) if line.strip() else None
        if answer:
            yield json.dumps(answer)


class _Session:
    """Answers to one client. version: of the protocol, once it is agreed on."""

    def __init__(
        self, store: Store, vectors: Callable[[Space, str], VectorModel], reranker: "Predictor | None"
    ) -> None:
        self.store = store
        self.tools: dict[Any, Callable[..., dict[str, Any]]] = {
            "search": partial(_search, store, vectors=vectors, reranker=reranker),
            "read": partial(_read, store),
        }
        self.version = ""

    def answer_line(self, line: str | bytes) -> Any:
        """The answer to a message, or the answers to a batch of messages; nothing if none needs one."""
        try:
            message = json.loads(line, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return _error(None, PARSE_ERROR, "not JSON, or nested too deeply")

        if self.version == BATCHES and isinstance(message, list) and message:
            return [answer for answer in map(self._answer, message) if answer]
        return self._answer(message)

    def _answer(self, message: Any) -> dict[str, Any] | None:
        number = message.get("id") if isinstance(message, dict) else None
        if isinstance(number, bool) or not isinstance(number, str | int):
            number = None

        try:
            if not isinstance(message, dict) or not isinstance(message.get("method"), str):
                raise _Refused(INVALID_REQUEST, f"expected an object with a method; only {BATCHES} has lists of them")
            if "id" not in message:  # a notification
                return None
            if number is None:
                raise _Refused(INVALID_REQUEST, "id must be a string or an integer")
            result = self._result(message["method"], _object(message, "params"))
            return {"jsonrpc": "2.0", "id": number, "result": result}
        except _Refused as refused:
            return _error(number, *refused.args)
        except Exception as error:  # one message never ends the session
            return _error(number, INTERNAL_ERROR, shorten(f"{type(error).__name__}: {error}", 200))

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "initialize":
            version = params.get("protocolVersion")
            self.version = version if version in VERSIONS else VERSIONS[0]
            return {
                "protocolVersion": self.version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bothways", "version": __version__},
            }
        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": [_search_tool(self.store.columns()), READ_TOOL]}
        if method == "tools/call":
            return self._call(params)
        raise _Refused(NO_METHOD, f"no method {shorten(method)}")

    def _call(self, params: dict[str, Any]) -> dict[str, Any]:
        name = params.get("name")
        if name == "search":
            schema = SEARCH_TOOL["inputSchema"]
        elif name == "read":
            schema = READ_TOOL["inputSchema"]
        else:
            raise _Refused(INVALID_PARAMS, f"no tool {shorten(name)}; there are search and read")
        arguments = _arguments(schema, _object(params, "arguments"))

        try:
            content = self.tools[name](**arguments)
        except InputError as error:
            # The agent reads this error and can mend its call, unlike an error of the protocol.
            return {
                "content": [{"type": "text", "text": to_json({"error": str(error)})}],
                "isError": True,
            }
        return {
            "content": [{"type": "text", "text": to_json(content)}],
            "isError": False,
            "structuredContent": content,
        }


def _error(number: str | int | None, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _object(message: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = {} if message.get(name) is None else message[name]
    if not isinstance(value, dict):
        raise _Refused(INVALID_PARAMS, f"{name} must be an object")
    return value


def _arguments(schema: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call, checked by the schema of the tool. _Refused names the one that is wrong."""
    properties = schema["properties"]
    for name in values:
        if name not in properties:
            raise _Refused(INVALID_PARAMS, f"no argument {shorten(name)}; there are {', '.join(properties)}")

    arguments = {}
    for name, value in values.items():
        if value is not None:
            arguments[name] = _value(name, value, properties[name])

    for name in schema["required"]:
        if name not in arguments:
            raise _Refused(INVALID_PARAMS, f"argument {name} is missing")
    return arguments


def _value(name: str, value: Any, expected: Mapping[str, Any]) -> Any:
    if expected["type"] == "string":
        return _string(name, value, expected.get("enum"))

    least = expected["minimum"]
    most = expected["maximum"]
    if expected["type"] == "number":
        if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise _Refused(INVALID_PARAMS, f"argument {name} ({shorten(value)}) must be from {least} to {most}")

    if isinstance(value, float) and value.is_integer():  # 2.0 is an integer in JSON
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise _Refused(INVALID_PARAMS, f"argument {name} ({shorten(value)}) must be an integer from {least} to {most}")


def _string(name: str, value: Any, options: Sequence[str] | None) -> str:
    if isinstance(value, str) and (not options or value in options):
        return value
    wanted = f"one of {', '.join(options)}" if options else "a string"
    raise _Refused(INVALID_PARAMS, f"argument {name} ({shorten(value)}) must be {wanted}")


def _search_tool(columns: Sequence[str]) -> dict[str, Any]:
    """The tool of search, whose description has the names that `filter` may have."""
    tool = deepcopy(SEARCH_TOOL)
    tool["inputSchema"]["properties"]["filter"]["description"] += f"; the columns of this index: {', '.join(columns)}"
    return tool


def _search(
    store: Store,
    query: str,
    top: int = 5,
    how: Any = "hybrid",
    glob: str | None = None,
    filter: str | None = None,
    min_score: float | None = None,
    *,
    vectors: Callable[..., VectorModel],
    reranker: "Predictor | None",
) -> dict[str, Any]:
    hits = search_reranked(
        store,
        query,
        reranker,
        top=top,
        how=how,
        vectors=vectors,
        globs=[glob] if glob else [],
        condition=filter,
        min_score=min_score,
    )
    return {
        "relevant": not all(hit.weak for hit in hits),
        "hits": [hit.to_json() for hit in hits],
    }


def _read(
    store: Store,
    path: str,
    line: int | None = None,
    passages: int = 3,
    *,
    page: int | None = None,
    start: int | None = None,
) -> dict[str, Any]:
    hits = store.passages_from(path, line, passages, page=page, start=start)
    return {"passages": [hit.to_json() for hit in hits]}
