"""The routes of models: the body, the answer and the handler of each."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bothways.serving import bodies, handlers
from bothways.serving.decisions.handler import decide
from bothways.serving.decisions.openai_beta import DecisionsBody
from bothways.serving.decisions.own import DecideBody
from bothways.serving.decisions.system_one import SystemOneBody
from bothways.serving.request import ModelRequest
from bothways.tasks import task_routes
from bothways.tasks.task import LIST, OBJECT, Route, Schema

VECTORS: Schema = {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}
TEXTS: Schema = {"type": "array", "items": {"type": "string"}}


@dataclass(frozen=True)
class Post:
    """A route of models.

    body: a struct; its docstring is the summary.
    answer: the schema of the answer.
    handle: makes the answer.
    """

    body: type[bodies.ModelBody]
    answer: Schema
    handle: Callable[[ModelRequest], Awaitable[Any]]

    @classmethod
    def of(cls, route: Route) -> "Post":
        """A task's route."""
        return cls(bodies.route_body(route), route.answer, handlers.route_handler(route))


POSTS: dict[str, Post] = {
    "/embed": Post(bodies.EmbedBody, VECTORS, handlers.embed),
    "/embed_all": Post(bodies.EmbedAllBody, LIST, handlers.embed_all),
    "/rerank": Post(bodies.RerankBody, LIST, handlers.rerank),
    "/similarity": Post(bodies.SimilarityBody, LIST, handlers.similarity),
    "/tokenize": Post(bodies.TokenizeBody, LIST, handlers.tokenize),
    "/decode": Post(bodies.DecodeBody, TEXTS, handlers.decode),
    **{route.path: Post.of(route) for route in task_routes()},
    "/explain": Post(bodies.ExplainBody, OBJECT, handlers.explain),
    "/attention": Post(bodies.AttentionBody, OBJECT, handlers.attention),
    "/decide": Post(DecideBody, OBJECT, decide),
    "/v1/systemone": Post(SystemOneBody, OBJECT, decide),
    "/v1/decisions": Post(DecisionsBody, OBJECT, decide),
    "/v1/embeddings": Post(bodies.EmbeddingsBody, OBJECT, handlers.embeddings),
}
