"""Metrics in the text format of Prometheus, with the names of Text Embeddings Inference, and a few more."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

# Upper ends of the buckets of histograms.
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
SIZES = tuple(1 << power for power in range(13))  # 1 to 4,096 texts
TOKENS = tuple(1 << power for power in range(4, 18))  # 16 to 131,072
FILLS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)


@dataclass
class RequestMetrics:
    """A request for the log and the metrics; its values are set as they become known.

    model: its name.
    texts, tokens: their numbers.
    error_type: why it was refused or failed; "" if it was answered.
    queue_seconds: that its texts waited; None if they never came into a queue.
    inference_seconds: of the batches that its texts were in.
    """

    model: str = ""
    texts: int = 0
    tokens: int = 0
    error_type: str = ""
    queue_seconds: float | None = None
    inference_seconds: float | None = None

    def add_batches(self, *, waited: float, computed: float) -> None:
        """Add the seconds that texts waited in a queue, and the seconds of their batches, to the seconds before."""
        self.queue_seconds = (self.queue_seconds or 0.0) + waited
        self.inference_seconds = (self.inference_seconds or 0.0) + computed


class Metrics:
    """Counters and histograms of a server; one registry each, so that servers of one process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(name, meaning, ["model", *labels], registry=self.registry)

        def histogram(name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, meaning, ["model"], buckets=buckets, registry=self.registry)

        def gauge(name: str, meaning: str) -> Gauge:
            return Gauge(name, meaning, ["model"], registry=self.registry)

        # The text lists them in this order.
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
        self.speed = gauge("te_tokens_per_second", "Speed of the last batch")
        self.queue_size = gauge("te_queue_size", "Requests that wait")
        self.queue_tokens = gauge("te_queue_tokens", "Tokens that wait")

    def watch(self, model: str, *, queue_size: Callable[[], float], queue_tokens: Callable[[], float]) -> None:
        """Ask the queue of a model for its size whenever metrics are asked for.

        model: the name.
        queue_size: gives the number of requests that wait.
        queue_tokens: gives the number of their tokens.
        """
        self.queue_size.labels(model).set_function(queue_size)
        self.queue_tokens.labels(model).set_function(queue_tokens)

    def on_batch(self, model: str, budget: int) -> Callable[[int, int, float], None]:
        """A function that counts a batch; the queue of a model calls it with the batch's texts, tokens and seconds.

        model: the name.
        budget: tokens that a batch may have.
        """

        def count(texts: int, tokens: int, seconds: float) -> None:
            self.batch_size.labels(model).observe(texts)
            self.batch_tokens.labels(model).observe(tokens)
            self.batch_fill.labels(model).observe(min(1.0, tokens / budget))  # one long text may exceed it
            self.tokens.labels(model).inc(tokens)
            self.busy.labels(model).inc(seconds)
            self.speed.labels(model).set(tokens / max(seconds, 1e-6))

        return count

    def count_request(self, request: RequestMetrics, status: int, seconds: float) -> None:
        """Count a request that has been answered.

        request: with all values that became known.
        status: of the answer.
        seconds: from its arrival to the end of the answer.
        """
        model = request.model
        method = "single" if request.texts <= 1 else "batch"
        self.requests.labels(model, method).inc()
        self.duration.labels(model).observe(seconds)

        if status == 200:
            self.successes.labels(model, method).inc()
        else:
            self.failures.labels(model, request.error_type.lower() or "other").inc()

        if request.queue_seconds is not None:
            self.queued.labels(model).observe(request.queue_seconds)
            self.inferred.labels(model).observe(request.inference_seconds or 0.0)

    def text(self) -> bytes:
        """All metrics, under the names of Text Embeddings Inference.

        The client library adds `_total` to the name of each counter, and a metric `_created` with its start.
        """
        # The name of a model stands in a line as a value, and may hold "_total" or a line break other than "\n". So
        # lines are split at "\n" alone, and only their beginning is changed.
        lines = generate_latest(self.registry).decode().removesuffix("\n").split("\n")
        shortened = []
        for line in lines:
            if not re.match(r"(# \w+ )?te_\w+_created\b", line):
                shortened.append(re.sub(r"^((?:# \w+ )?te_\w+)_total\b", r"\1", line) + "\n")
        return "".join(shortened).encode()
