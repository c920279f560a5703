"""The ASGI application: routes, the choice of the model, the page."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from bothways.search.store import Store
from bothways.serving import openapi
from bothways.serving.bodies import Refusal, as_body
from bothways.serving.document_search import DocumentSearch
from bothways.serving.guard import OPEN_PATHS, Access, Guard
from bothways.serving.limits import Limits
from bothways.serving.metrics import Metrics, RequestMetrics
from bothways.serving.posts import POSTS, Post
from bothways.serving.reply import METRICS, answered, error_response, json_response, large_response
from bothways.serving.request import ModelRequest, read_body
from bothways.serving.served_model import ServedModel
from bothways.tasks import TASKS, task_routes

SAME_ABILITY = {  # routes of other servers, and our route that needs the same of a model
    "/v1/embeddings": "/embed",
    "/v1/systemone": "/decide",
    "/v1/decisions": "/decide",
}
MEDIA_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
}
PAGE_HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def build_app(
    models: Sequence[ServedModel],
    *,
    limits: Limits,
    metrics: Metrics,
    access: Access,
    version: str,
    write_log: Callable[[str], object] | None = None,
    store: Store | None = None,
    reranker: ServedModel | None = None,
) -> ASGIApp:
    """The application of these models.

    models: the first is the default.
    limits: of requests.
    metrics: that /metrics shows.
    access: who may use the server.
    version: of the package.
    write_log: called with a line for each request.
    store: an index to search.
    reranker: of the models, the one that orders the passages that a search has found.
    """
    search = DocumentSearch(store, models, limits, reranker=reranker) if store is not None else None
    site = Site(models, limits, version, search=search)
    for served in models:
        _watch_queue(metrics, served)

    async def metrics_text(request: Request) -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    routes = [*site.routes(), Route("/metrics", metrics_text)]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _http_error})
    app.router.redirect_slashes = False
    return Guard(
        app,
        access=access,
        limits=limits,
        metrics=metrics,
        write_log=write_log,
        open_paths=frozenset(OPEN_PATHS | page_files().keys()),
    )


def _watch_queue(metrics: Metrics, served: ServedModel) -> None:
    queue = served.queue
    metrics.watch(served.name, queue_size=queue.__len__, queue_tokens=lambda: queue.tokens)


class Site:
    """Models by name, and the routes to them and to everything that is answered without computing.

    root: the route that POST / is.
    """

    def __init__(
        self, models: Sequence[ServedModel], limits: Limits, version: str, search: DocumentSearch | None = None
    ) -> None:
        self.models = {served.name: served for served in models}
        self.default = models[0]
        self.limits = limits
        self.version = version
        self.search = search
        self.root = "/rerank" if self.default.is_ranker else TASKS[self.default.model.task].load().route
        # Routes of other packages; a path of ours stays ours.
        tasks = {served.model.task for served in models} - {*TASKS}
        added = [route for route in task_routes(sorted(tasks)) if route.path not in POSTS]
        self.posts = {**POSTS, **{route.path: Post.of(route) for route in added}}
        self.document = openapi.description(version, self.posts, root=self.root, has_store=search is not None)

    def routes(self) -> list[Route]:
        """All routes but the route of the metrics."""
        posts = {path: self.endpoint(path, post) for path, post in self.posts.items()}
        aliases = {
            "/embeddings": posts["/v1/embeddings"],
            "/": posts[self.root],
        }
        routes = []
        for path, endpoint in {**posts, **aliases}.items():
            routes.append(Route(path, endpoint, methods=["POST"]))
        for path, endpoint in posts.items():
            routes.append(Route(f"/models/{{model}}{path}", endpoint, methods=["POST"]))

        routes += [
            Route("/info", self.info),
            Route("/models/{model}/info", self.info),
            Route("/v1/models", self.list_models),
            Route("/v1/models/{model}", self.show_model),
            Route("/health", self.health),
            Route("/ping", self.health),
            Route("/openapi.json", self.openapi),
            Route("/docs", self.docs),
        ]
        for path, name in page_files().items():
            routes.append(Route(path, self.page_file(name)))
        if self.search is not None:
            routes.append(Route("/search", self.search.respond, methods=["POST"]))
        if "/" not in page_files():
            routes.append(Route("/", lambda request: RedirectResponse("docs")))
        return routes

    def endpoint(self, path: str, post: Post) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of a route: read the body, choose the model, answer."""
        needed = SAME_ABILITY.get(path, path).strip("/")

        async def respond(request: Request) -> Response:
            metrics: RequestMetrics = request.scope[METRICS]

            async def handle() -> Response:
                # The model of the path comes before the model of the body.
                given = {**await read_body(request, self.limits), **request.path_params}
                body = as_body(post.body, given) if post.body.is_read_first else None
                served = self.choose(given.get("model"))
                metrics.model = served.name
                served.need(needed, self.models.values())

                body = body or as_body(post.body, given)
                model_request = ModelRequest(http=request, body=body, served=served, metrics=metrics)
                content = await post.handle(model_request)
                return await large_response(content, model_request.headers)

            return await answered(handle, request)

        return respond

    def choose(self, name: Any) -> ServedModel:
        """The model of a name; None: the default. Refusal with all names if there is none."""
        if name is None:
            return self.default
        if not isinstance(name, str) or name not in self.models:
            names = ", ".join(self.models)
            raise Refusal(404, f"no model {name!r:.60} here; the models are {names}", "ModelNotFound")
        return self.models[name]

    # --- routes without a body ----------------------------------------------------------------------------------------

    async def info(self, request: Request) -> Response:
        async def handle() -> Response:
            served = self.choose(request.path_params.get("model", request.query_params.get("model")))
            facts = {
                **served.info,
                "models": [*self.models],
                "max_concurrent_requests": self.limits.max_requests,
                "max_batch_tokens": self.limits.batch_tokens,
                "max_client_batch_size": self.limits.max_texts,
                "auto_truncate": served.fingerprint is not None and served.model.window_policy.long == "truncate",
                "version": self.version,
            }
            if self.search:
                facts["store"] = await asyncio.to_thread(self.search.facts)
            return json_response(facts)

        return await answered(handle, request)

    async def list_models(self, request: Request) -> Response:
        return json_response({"object": "list", "data": [*map(_openai_model, self.models)]})

    async def show_model(self, request: Request) -> Response:
        async def handle() -> Response:
            return json_response(_openai_model(self.choose(request.path_params["model"]).name))

        return await answered(handle, request)

    async def health(self, request: Request) -> Response:
        if all(served.queue.is_alive for served in self.models.values()):
            return json_response({"status": "ok"})
        return error_response(Refusal(503, "a model no longer computes"), request.scope["path"])

    async def openapi(self, request: Request) -> Response:
        return json_response(self.document)

    async def docs(self, request: Request) -> Response:
        return HTMLResponse(openapi.page(self.document), headers={"content-security-policy": openapi.DOCS_POLICY})

    def page_file(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            content = files("bothways.serving").joinpath("web", name).read_bytes()
            return Response(content, headers=PAGE_HEADERS, media_type=MEDIA_TYPES[_ending(name)])

        return respond


def _openai_model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "bothways"}


def page_files() -> dict[str, str]:
    """The files of the page by path; index.html is at / too."""
    names = sorted(file.name for file in files("bothways.serving").joinpath("web").iterdir())
    paths = {f"/{name}": name for name in names if _ending(name) in MEDIA_TYPES}
    if "/index.html" in paths:
        paths["/"] = "index.html"
    return paths


def _ending(name: str) -> str:
    return name[name.rfind(".") :]


async def _http_error(request: Request, error: Exception) -> Response:
    """No such route, or another method: an error of one line."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    message = f"{request.method} {path[:100]}: {error.detail}; /docs lists all routes"
    return error_response(Refusal(error.status_code, message, "NotFound", headers=dict(error.headers or {})), path)
