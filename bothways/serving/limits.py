"""Limits of a server."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a server accepts; more is refused with status 413 (of one request) or 429 (of all).

    max_requests: in flight. queue_tokens: that wait for a model. max_body: bytes. max_texts: of a request.
    max_text_tokens: of a text (or pair). read_timeout: seconds within which a client must send its request. max_wait:
    seconds. max_numbers: of the vectors of tokens in an answer.
    """

    max_requests: int = 512
    queue_tokens: int = 131_072
    batch_tokens: int = 4096
    max_body: int = 2_000_000
    max_texts: int = 1024
    max_text_tokens: int = 32_768
    read_timeout: float = 10.0
    max_wait: float = 0.0
    max_numbers: int = 1 << 23
