"""An index as a tool of agents: the Model Context Protocol over standard input and output, one JSON object per line.

Only the messages of a server with tools are needed (initialize, ping, tools/list, tools/call), so they are written by
hand: the protocol's own package would bring a web server and 20 more packages.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from bothways import __version__
from bothways.errors import InputError, shorten
from bothways.log import print_json_line
from bothways.search.commands import hit_json
from bothways.search.spaces import Space, VectorModel, open_vectors
from bothways.search.store import Store
from bothways.settings import Mcp

VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")  # of the protocol, the newest first
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
MOST_HITS = 100
SEARCH_TOOL: dict[str, Any] = {
    "name": "search",
    "description": "Search the indexed documents by words and by meaning. Returns the best passages with their file, "
    "line and score.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "A question, a sentence or a few words."},
            "top": {"type": "integer", "minimum": 1, "maximum": MOST_HITS, "default": 5},
            "how": {"type": "string", "enum": ["hybrid", "words", "vectors"], "default": "hybrid"},
            "glob": {"type": "string", "description": "Only files whose path matches, such as *.md"},
            "filter": {"type": "string", "description": "A condition on metadata, such as year > 2010"},
        },
        "required": ["query"],
    },
}
READ_TOOL: dict[str, Any] = {
    "name": "read",
    "description": "The passages of an indexed file in their order, from the one that contains a line.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "The path of the file, as in the result of search."},
            "line": {"type": "integer", "minimum": 1, "default": 1},
            "passages": {"type": "integer", "minimum": 1, "maximum": MOST_HITS, "default": 3},
        },
        "required": ["path"],
    },
}


class _Refused(Exception):
    """A message that is answered with an error: its code and text."""


def run(settings: Mcp) -> None:
    """Answer messages until standard input ends."""
    with Store(settings.store) as store:
        for answer in answer_messages(
            sys.stdin, store, partial(open_vectors, device=settings.device, dtype=settings.dtype)
        ):
            print_json_line(answer)


def answer_messages(
    lines: Iterable[str], store: Store, vectors: Callable[[Space, str], VectorModel] = open_vectors
) -> Iterator[str]:
    """An answer for each line that needs one. vectors: opens the models of the index."""
    for line in lines:
        if not line.strip():
            continue
        number = None
        try:
            try:
                message = json.loads(line)
            except ValueError:
                raise _Refused(PARSE_ERROR, "not JSON") from None
            if not isinstance(message, dict) or not isinstance(message.get("method"), str):
                raise _Refused(INVALID_REQUEST, "expected an object with a method")
            if "id" not in message:  # a notification
                continue
            number = message["id"]
            answer: dict[str, Any] = {"result": _result(message["method"], message.get("params") or {}, store, vectors)}
        except _Refused as refused:
            answer = {"error": {"code": refused.args[0], "message": refused.args[1]}}
        yield json.dumps({"jsonrpc": "2.0", "id": number, **answer})


def _result(method: str, params: dict[str, Any], store: Store, vectors: Callable[..., VectorModel]) -> dict[str, Any]:
    if method == "initialize":
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "bothways", "version": __version__},
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": [SEARCH_TOOL, READ_TOOL]}
    if method == "tools/call":
        tools: dict[Any, Callable[..., dict[str, Any]]] = {"search": partial(_search, vectors=vectors), "read": _read}
        tool = tools.get(params.get("name"))
        if tool is None:
            raise _Refused(INVALID_PARAMS, f"no tool {shorten(params.get('name'))}; there are search and read")
        try:
            content, is_error = tool(store, **_arguments(params)), False
        except InputError as error:
            content, is_error = {"error": str(error)}, True
        text = json.dumps(content, ensure_ascii=False)
        result = {"content": [{"type": "text", "text": text}], "isError": is_error}
        return result if is_error else {**result, "structuredContent": content}
    raise _Refused(NO_METHOD, f"no method {shorten(method)}")


def _arguments(params: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call, checked by the schema of the tool. _Refused names the one that is wrong."""
    (tool,) = (tool for tool in (SEARCH_TOOL, READ_TOOL) if tool["name"] == params["name"])
    schema: Any = tool["inputSchema"]
    given = params.get("arguments") or {}
    if not isinstance(given, dict):
        raise _Refused(INVALID_PARAMS, "arguments must be an object")
    if missing := [name for name in schema["required"] if name not in given]:
        raise _Refused(INVALID_PARAMS, f"argument {missing[0]} is missing")
    for name, value in given.items():
        expected = schema["properties"].get(name)
        if expected is None:
            raise _Refused(INVALID_PARAMS, f"no argument {name!r}; there are {', '.join(schema['properties'])}")
        kind = str if expected["type"] == "string" else int
        least, most = expected.get("minimum", 0), expected.get("maximum", 1 << 31)
        if not isinstance(value, kind) or isinstance(value, bool) or (kind is int and not least <= value <= most):
            raise _Refused(INVALID_PARAMS, f"argument {name} ({shorten(value)}) must be a {expected['type']}")
        if value not in expected.get("enum", [value]):
            raise _Refused(INVALID_PARAMS, f"argument {name} ({shorten(value)}) must be one of {expected['enum']}")
    return given


def _search(
    store: Store,
    query: str,
    top: int = 5,
    how: Any = "hybrid",
    glob: str | None = None,
    filter: str | None = None,
    *,
    vectors: Callable[..., VectorModel],
) -> dict[str, Any]:
    hits = store.search(query, top=top, how=how, vectors=vectors, globs=[glob] if glob else [], condition=filter)
    return {"hits": [hit_json(hit) for hit in hits]}


def _read(store: Store, path: str, line: int = 1, passages: int = 3) -> dict[str, Any]:
    return {"passages": [hit_json(hit) for hit in store.passages_from(path, line, passages)]}
