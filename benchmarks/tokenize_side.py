"""One side of benchmarks/tokenize.py, in a process and an environment of its own, which may hold nothing but the side.

    python -P benchmarks/tokenize_side.py '{"way": "nanotoken", "texts": "timed.json", ...}'

Prints one JSON object: the seconds of the first (cold) and the second (warm) pass, the number of tokens and the
version.
"""

import hashlib
import importlib.metadata
import json
import os
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

BATCH = 1000
Encode = Callable[[list[str]], Sequence[Any]]  # texts -> the ids of each


def encode_many(files: str) -> Encode:
    from bothways import Tokenizer

    tokenizer = Tokenizer.load(files)
    return lambda texts: [encoding.ids for encoding in tokenizer.encode_many(texts)]


class Rows(Sequence[Any]):
    """The rows of a flat array, without an object a row until one is asked for."""

    def __init__(self, ids: Any, starts: Any) -> None:
        self.ids = ids
        self.starts = starts

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: Any) -> Any:
        if index >= len(self):
            raise IndexError(index)
        return self.ids[self.starts[index] : self.starts[index + 1]]

    @property
    def num_tokens(self) -> int:
        return int(self.starts[-1])


def encode_arrays(files: str) -> Encode:
    from bothways import Tokenizer

    tokenizer: Any = Tokenizer.load(files)  # a checkout may be older than the method
    return lambda texts: Rows(*tokenizer.encode_arrays(texts))


def tokenizers_batch(files: str) -> Encode:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{files}/tokenizer.json")
    return lambda texts: [encoding.ids for encoding in tokenizer.encode_batch(texts)]


def tokenizers_fast(files: str) -> Encode:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{files}/tokenizer.json")
    return lambda texts: [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]


def tokenizers_arrays(files: str) -> Encode:
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_file(f"{files}/tokenizer.json")  # 1.0, whose types this environment does not have
    return lambda texts: [encoding.ids_array for encoding in tokenizer.encode_batch(texts)]


def nanotoken(files: str) -> Encode:
    from nanotoken import Tokenizer  # type: ignore[import-not-found, unused-ignore]

    tokenizer = Tokenizer(f"{files}/tokenizer.json")

    def encode(texts: list[str]) -> Rows:
        rows = tokenizer.encode_batch(texts, parallel=False)
        return Rows(rows.ids, rows.offsets)

    return encode


WAYS = {
    "encode_many": encode_many,
    "encode_arrays": encode_arrays,
    "tokenizers_batch": tokenizers_batch,
    "tokenizers_fast": tokenizers_fast,
    "tokenizers_arrays": tokenizers_arrays,
    "nanotoken": nanotoken,
}


def timed_pass(encode: Encode, texts: list[str], began: float) -> tuple[float, int]:
    """Seconds since `began` and tokens, when all texts are encoded in batches."""
    tokens = 0
    for start in range(0, len(texts), BATCH):
        rows = encode(texts[start : start + BATCH])
        # Arrays know their length; the lists of other sides have to be made to be counted, as for every use of them.
        tokens += rows.num_tokens if isinstance(rows, Rows) else sum(map(len, rows))
    return time.perf_counter() - began, tokens


def digest(ids: Any) -> str:
    """Ten hexadecimal digits for the ids of a text, whatever type they have."""
    return hashlib.blake2b(array("i", map(int, ids)).tobytes(), digest_size=5).hexdigest()


def digests(encode: Encode, texts: list[str]) -> list[str]:
    """A digest for each text; of a batch that the side refuses, the word for it."""
    found = []
    for start in range(0, len(texts), BATCH):
        batch = texts[start : start + BATCH]
        try:
            found += [digest(ids) for ids in encode(batch)]
        except Exception as error:  # whatever another library raises
            print(f"refused: {error}", file=sys.stderr)
            found += ["refused"] * len(batch)
    return found


def main() -> None:
    request = json.loads(sys.argv[1])
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    texts = json.loads(Path(request["texts"]).read_text(encoding="utf-8"))

    # A cold start includes loading the library and the vocabulary.
    began = time.perf_counter()
    encode = WAYS[request["way"]](request["files"])
    cold, tokens = timed_pass(encode, texts, began)
    warm, _ = timed_pass(encode, texts, time.perf_counter())

    if request["compared"]:
        compared = json.loads(Path(request["compared"]).read_text(encoding="utf-8"))
        by_kind = {kind: digests(encode, some) for kind, some in compared.items()}
        Path(request["digests"]).write_text(json.dumps(by_kind), encoding="utf-8")
    package = request["package"]
    version = importlib.metadata.version(package) if package else ""
    print(json.dumps({"cold": cold, "warm": warm, "tokens": tokens, "version": version}))


if __name__ == "__main__":
    main()
