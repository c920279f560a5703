"""The verb of the server."""

from bothways.cli.verb import Verb

VERBS = {
    "serve": Verb(
        "bothways.settings.deploy:Serve",
        "bothways.serving.server:run",
        "serve models over HTTP, with batching and limits",
        waits=True,
        example="my-embedder --port 8080",
        words="server serving api http deploy",
    ),
}
