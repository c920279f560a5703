"""Write bothways/search/word_shares.txt: how many passages of English text have each of its common words.

    python -m tools.make_word_shares

Passages are 150 words long, half of them from Wikipedia (validation articles), half from the novels of the package,
so that words of facts and words of talk are as usual as in the other half. A word is a stem, as in search. The file has
a line for each that at least 2 in 1,000 passages have, the most usual first: the passages in 1,000, and the stem.

Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import json
import lzma
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path

import pyarrow.parquet as pq

from bothways.text.retrieval.words import WORD_SHARES, Analyzer

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
WORDS = 150
PASSAGES = 4800  # of each half
LEAST = 2  # passages in 1,000


def articles() -> Iterator[str]:
    for file in sorted((DATA / "wikipedia-2015-en").glob("validation-*.parquet")):
        yield from pq.read_table(file, columns=["text"]).column("text").to_pylist()


def novels() -> Iterator[str]:
    with lzma.open(str(files("bothways").joinpath("sample", "novels.jsonl.xz")), "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)["text"]


def passages(texts: Iterable[str]) -> list[str]:
    """PASSAGES runs of words, drawn by lot."""
    found = []
    for text in texts:
        words = text.split()
        found += [" ".join(words[start : start + WORDS]) for start in range(0, len(words) - WORDS + 1, WORDS)]
    return random.Random(0).sample(found, PASSAGES)


def main() -> None:
    analyzer = Analyzer("en")
    drawn = [*passages(articles()), *passages(novels())]
    counts = Counter(term for text in drawn for term in set(analyzer.terms(text)))

    rows = []
    for term, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        share = 1000 * count / len(drawn)
        if share >= LEAST:
            rows.append(f"{share:.0f} {term}\n")

    target = Path(str(files("bothways.search").joinpath(WORD_SHARES)))
    target.write_text("".join(rows), encoding="utf-8")
    print(f"{target}: {len(rows):,} words")


if __name__ == "__main__":
    main()
