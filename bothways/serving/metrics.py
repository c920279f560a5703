"""Metrics in the text format of Prometheus, with the names of Text Embeddings Inference, and a few more."""

import re
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
SIZES = tuple(1 << power for power in range(13))
TOKENS = tuple(1 << power for power in range(4, 18))
FILLS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)


class Metrics:
    """Counters and histograms of a server; one registry each, so that servers of one process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def histogram(name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, meaning, ["model"], buckets=buckets, registry=self.registry)

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(name, meaning, ["model", *labels], registry=self.registry)

        self.requests = counter("te_request_count", "Requests to a model", "method")
        self.successes = counter("te_request_success", "Requests that were answered with status 200", "method")
        self.failures = counter("te_request_failure", "Requests that were refused or failed, by reason", "err")
        self.duration = histogram("te_request_duration", "Seconds of a request", SECONDS)
        self.queued = histogram("te_request_queue_duration", "Seconds that a request waited", SECONDS)
        self.inferred = histogram("te_request_inference_duration", "Seconds of a request's batches", SECONDS)
        self.batch_size = histogram("te_batch_next_size", "Texts of a batch", SIZES)
        self.batch_tokens = histogram("te_batch_next_tokens", "Tokens of a batch", TOKENS)
        self.batch_fill = histogram("te_batch_fill", "Tokens of a batch as a fraction of its budget", FILLS)
        self.tokens = counter("te_tokens", "Tokens that were computed")
        self.busy = counter("te_inference_seconds", "Seconds in which the model computed")
        self.speed = Gauge("te_tokens_per_second", "Speed of the last batch", ["model"], registry=self.registry)
        self.queue_size = Gauge("te_queue_size", "Requests that wait", ["model"], registry=self.registry)
        self.queue_tokens = Gauge("te_queue_tokens", "Tokens that wait", ["model"], registry=self.registry)

    def watch(self, model: str, *, queue_size: Callable[[], float], queue_tokens: Callable[[], float]) -> None:
        """Read the queue of a model whenever metrics are asked for."""
        self.queue_size.labels(model).set_function(queue_size)
        self.queue_tokens.labels(model).set_function(queue_tokens)

    def on_batch(self, model: str, budget: int) -> Callable[[int, int, float], None]:
        """What the queue of a model calls after each batch, with its texts, tokens and seconds."""

        def record(texts: int, tokens: int, seconds: float) -> None:
            self.batch_size.labels(model).observe(texts)
            self.batch_tokens.labels(model).observe(tokens)
            self.batch_fill.labels(model).observe(min(1.0, tokens / budget))
            self.tokens.labels(model).inc(tokens)
            self.busy.labels(model).inc(seconds)
            self.speed.labels(model).set(tokens / max(seconds, 1e-6))

        return record

    def text(self) -> bytes:
        """All metrics. The client library ends names of counters in _total; those of TEI have no such end."""
        lines = generate_latest(self.registry).decode().splitlines()
        kept = [line for line in lines if not re.match(r"(# \w+ )?te_\w+_created\b", line)]
        return "".join(re.sub(r"\b(te_\w+)_total\b", r"\1", line) + "\n" for line in kept).encode()
