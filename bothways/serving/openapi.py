"""The description of the routes (OpenAPI 3.1), and a page of it that needs no network."""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from html import escape
from typing import Any

from bothways.tasks import task_routes
from bothways.tasks.task import FLAG, LIST, NUMBER, OBJECT, ONE_OR_MANY, STRINGS, TEXT, TRUNCATE, Route, Schema

IDS: Schema = {"type": "array", "items": NUMBER}
INPUTS: Schema = {"oneOf": [TEXT, IDS, {"type": "array", "items": {"oneOf": [TEXT, IDS]}}]}
VECTORS: Schema = {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}
PROMPT: Schema = {"type": "string", "description": "Name of one of the model's prompts, put before each text."}
MODEL: Schema = {"type": "string", "description": "Name of the model; by default the first."}


def describe(route: Route) -> tuple[str, dict[str, Schema], Schema]:
    """Summary, fields of the body, and answer of a task's route."""
    return route.summary, {**route.fields}, route.answer


# By route of models: summary, fields of the body (required ones end in *), answer.
POSTS: dict[str, tuple[str, dict[str, Schema], Schema]] = {
    "/embed": (
        "A vector per text",
        {
            "inputs*": INPUTS,
            "normalize": FLAG,
            "dimensions": NUMBER,
            "truncate": TRUNCATE,
            "prompt_name": PROMPT,
        },
        VECTORS,
    ),
    "/embed_all": (
        "A vector per token of each text",
        {"inputs*": INPUTS, "truncate": TRUNCATE, "prompt_name": PROMPT},
        LIST,
    ),
    "/rerank": (
        "Texts by their relevance to a query, the best first",
        {
            "query*": TEXT,
            "texts*": STRINGS,
            "raw_scores": FLAG,
            "return_text": FLAG,
            "truncate": TRUNCATE,
        },
        LIST,
    ),
    "/similarity": (
        "Cosines of a sentence and others",
        {
            "inputs*": {
                "type": "object",
                "properties": {"source_sentence": TEXT, "sentences": STRINGS},
                "required": ["source_sentence", "sentences"],
            },
            "parameters": OBJECT,
            "prompt_name": PROMPT,
        },
        LIST,
    ),
    "/tokenize": (
        "Tokens of each text",
        {"inputs*": ONE_OR_MANY, "add_special_tokens": FLAG, "prompt_name": PROMPT},
        LIST,
    ),
    "/decode": (
        "Texts of ids",
        {"ids*": {"oneOf": [IDS, {"type": "array", "items": IDS}]}, "skip_special_tokens": FLAG},
        STRINGS,
    ),
    **{route.path: describe(route) for route in task_routes()},
    "/attention": (
        "Attention weights of a layer and head for a text of at most 64 tokens",
        {"inputs*": TEXT, "layer": NUMBER, "head": NUMBER},
        OBJECT,
    ),
    "/v1/embeddings": (
        "OpenAI's embeddings",
        {
            "input*": INPUTS,
            "encoding_format": {"type": "string", "enum": ["float", "base64"]},
            "dimensions": NUMBER,
            "prompt_name": PROMPT,
        },
        OBJECT,
    ),
}
SEARCH: tuple[str, dict[str, Schema], Schema] = (
    "Passages of the index, the best first",
    {
        "query*": TEXT,
        "top": NUMBER,
        "how": {"type": "string", "enum": ["hybrid", "words", "vectors"]},
        "glob": TEXT,
        "filter": TEXT,
        "min_score": NUMBER,
    },
    OBJECT,
)
GETS = {
    "/info": "The model: task, heads, labels, limits, fingerprint of its vectors",
    "/v1/models": "OpenAI's list of models",
    "/v1/models/{model}": "A model of this list",
    "/health": "Status 200 if the server answers requests, else 503",
    "/ping": "As /health",
    "/metrics": "Metrics for Prometheus",
    "/docs": "This description as a page",
    "/openapi.json": "This description",
    "/": "A page to try the models",
}
STATUSES = {
    "400": "An empty input, or a body that is not JSON",
    "401": "No valid key",
    "403": "Another host, or a page of another origin",
    "404": "No model of this name",
    "408": "The body did not arrive in time",
    "413": "Too many bytes, texts or tokens",
    "415": "The body is not application/json",
    "422": "A field that is missing or wrong",
    "424": "The model cannot do this",
    "429": "Overloaded; Retry-After has the seconds to wait",
}
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "code,pre{font:14px ui-monospace,monospace}td,th{text-align:left;padding:.1rem 1rem .1rem 0;vertical-align:top}"
)
DOCS_POLICY = f"default-src 'none'; style-src 'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'"


def description(
    version: str, *, root: str = "/embed", has_store: bool = False, added: Iterable[Route] = ()
) -> dict[str, Any]:
    """The OpenAPI document.

    version: of the package.
    root: the route that POST / is.
    has_store: whether the server searches an index.
    added: routes of other packages.
    """
    posts = {**POSTS, **{route.path: describe(route) for route in added}}
    paths: dict[str, Any] = {}
    for path, summary in {**GETS, "/models/{model}/info": GETS["/info"]}.items():
        paths[path] = {"get": _get(summary, is_named="{model}" in path)}
    for path, (summary, fields, answer) in posts.items():
        for full_path in (path, f"/models/{{model}}{path}"):
            operation = _post(summary, fields, answer, is_named=full_path != path)
            paths.setdefault(full_path, {})["post"] = operation

    if has_store:
        paths["/search"] = {"post": _post(*SEARCH, is_named=True)}
    paths["/"]["post"] = _post(f"As {root}", *posts[root][1:], is_named=False)
    paths["/embeddings"] = {"post": _post("As /v1/embeddings", *POSTS["/v1/embeddings"][1:], is_named=False)}

    scheme = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Bothways", "version": version},
        "paths": paths,
        "components": {"securitySchemes": {"key": scheme}},
        "security": [{}, {"key": []}],
    }


PARAMETER: Schema = {"name": "model", "in": "path", "required": True, "schema": TEXT}


def _get(summary: str, *, is_named: bool) -> dict[str, Any]:
    parameters = {"parameters": [PARAMETER]} if is_named else {}
    return {"summary": summary, **parameters, "responses": _answers(None)}


def _post(summary: str, fields: Mapping[str, Schema], answer: Schema, *, is_named: bool) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {name.rstrip("*"): value for name, value in fields.items()} | {"model": MODEL},
        "required": [name.rstrip("*") for name in fields if name.endswith("*")],
    }
    return {
        "summary": summary,
        **({"parameters": [PARAMETER]} if is_named else {}),
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": _answers(answer) | {status: {"description": text} for status, text in STATUSES.items()},
    }


def _answers(schema: Schema | None) -> dict[str, Any]:
    content = {} if schema is None else {"content": {"application/json": {"schema": schema}}}
    return {"200": {"description": "The answer", **content}}


def page(document: Mapping[str, Any]) -> str:
    """The description as HTML without scripts."""
    parts = []
    for path, methods in document["paths"].items():
        if path.startswith("/models/"):
            continue
        for method, operation in methods.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}.</p>")
            if "requestBody" in operation:
                parts.append(_fields_table(operation["requestBody"]["content"]["application/json"]["schema"]))

    statuses = "".join(f"<tr><td>{status}</td><td>{escape(text)}</td></tr>" for status, text in STATUSES.items())
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Bothways: routes</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{STYLE}</style><h1>Bothways {escape(document['info']['version'])}</h1>"
        "<p>Routes of models are also under <code>/models/NAME/...</code>. "
        '<a href="openapi.json">openapi.json</a> is this description for programs.</p>'
        f"{''.join(parts)}<h2>Statuses</h2><table>{statuses}</table></html>"
    )


def _fields_table(schema: Mapping[str, Any]) -> str:
    rows = []
    for name, value in schema["properties"].items():
        required = "required" if name in schema["required"] else ""
        rows.append(f"<tr><td><code>{escape(name)}</code></td><td>{_type(value)}</td><td>{required}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _type(schema: Schema) -> str:
    if "oneOf" in schema:
        return " or ".join(map(_type, schema["oneOf"]))
    if schema.get("type") == "array" and "items" in schema:
        return f"list of ({_type(schema['items'])})"
    return escape(str(schema.get("type", "")))
