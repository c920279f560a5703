"""Limits of a server: of one request, and of all that are in flight."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of a server. It refuses more with status 413 (limits of one request) or 429 (limits of all requests).

    max_requests: in flight.
    queue_tokens: that wait for a model.
    batch_tokens: of a batch.
    max_body: bytes.
    max_texts: of a request.
    max_text_tokens: of a text (or pair).
    read_timeout: seconds within which a client must send its request.
    max_numbers: of the vectors of tokens in an answer.
    max_unread: bytes of answers that clients have not taken, above which no further request is read.
    """

    max_requests: int = 512
    queue_tokens: int = 131_072
    batch_tokens: int = 4096
    max_body: int = 2_000_000
    max_texts: int = 1024
    max_text_tokens: int = 32_768
    read_timeout: float = 10.0
    max_numbers: int = 1 << 23
    max_unread: int = 1 << 28
