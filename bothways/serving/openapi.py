"""The description of the routes (OpenAPI 3.1), and a page of it that needs no network."""

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from typing import Any

from bothways.serving.bodies import SCHEMAS, Body, SearchBody, form, schemas
from bothways.serving.posts import POSTS, Post
from bothways.tasks.task import OBJECT, Schema

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
    version: str, posts: Mapping[str, Post] = POSTS, *, root: str = "/embed", has_store: bool = False
) -> dict[str, Any]:
    """The OpenAPI document.

    version: of the package.
    posts: the routes of models.
    root: the route that POST / is.
    has_store: whether the server searches an index.
    """
    kinds: list[type[Body]] = [post.body for post in posts.values()]
    references, components = schemas([*kinds, SearchBody] if has_store else kinds)

    paths: dict[str, Any] = {}
    for path, summary in {**GETS, "/models/{model}/info": GETS["/info"]}.items():
        paths[path] = {"get": {"summary": summary, **_parameters(path), "responses": _answers(None)}}
    for (path, post), reference in zip(posts.items(), references, strict=False):
        for full_path in (path, f"/models/{{model}}{path}"):
            paths.setdefault(full_path, {})["post"] = _post(full_path, post.body, reference, post.answer)

    if has_store:
        paths["/search"] = {"post": _post("/search", SearchBody, references[-1], OBJECT)}
    paths["/"]["post"] = paths[root]["post"] | {"summary": f"As {root}"}
    paths["/embeddings"] = {"post": paths["/v1/embeddings"]["post"] | {"summary": "As /v1/embeddings"}}

    scheme = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Bothways", "version": version},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"key": scheme}},
        "security": [{}, {"key": []}],
    }


def _post(path: str, body: type[Body], reference: Schema, answer: Schema) -> dict[str, Any]:
    return {
        "summary": str(body.__doc__).rstrip("."),
        **_parameters(path),
        "requestBody": {"required": True, "content": {"application/json": {"schema": reference}}},
        "responses": _answers(answer) | {status: {"description": text} for status, text in STATUSES.items()},
    }


def _parameters(path: str) -> dict[str, Any]:
    parameter = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    return {"parameters": [parameter]} if "{model}" in path else {}


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
                reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                schema = document["components"]["schemas"][reference.removeprefix(SCHEMAS)]
                parts.append(_fields_table(schema))

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
    # Fields that every route has come first in a struct.
    for name, value in sorted(schema["properties"].items(), key=lambda field: field[0] not in schema["required"]):
        required = "required" if name in schema["required"] else ""
        rows.append(f"<tr><td><code>{escape(name)}</code></td><td>{escape(form(value))}</td><td>{required}</td></tr>")
    return f"<table>{''.join(rows)}</table>"
