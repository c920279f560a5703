"""The static vectors of the package, bothways-en-static: rows fitted to bothways-en's vectors of texts.

    python tools/static_english.py -o build/static --minutes 11

Reads the development data ($BOTHWAYS_DATA): Wikipedia, questions of SQuAD, sentences of STS-B's training part,
abstracts of the ACL. Prints the rank correlation on STS-B's dev set; no test set is read.
"""

import argparse
import json
import os
import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy.stats import spearmanr
from sentencex import segment

import bothways
from bothways.inference.fingerprint import vector_space
from bothways.model.linear.static_vectors import StaticVectors, VectorTable, packed_table, unknown_ids, write_static
from bothways.training.pretraining.distillation.static_run import (
    count_matrix,
    fit_rows,
    sif_weights,
    vocabulary_vectors,
    zipf_frequencies,
)

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
BLOCK = 4096  # texts that are encoded together
SEED = 7


def training_texts() -> list[str]:
    """Sentences, paragraphs, headings and questions, mixed."""
    chance = random.Random(SEED)
    texts: list[str] = []

    def add(some: Iterable[str], number: int) -> None:
        distinct = [text for text in dict.fromkeys(map(str.strip, some)) if len(text) > 8]
        chance.shuffle(distinct)
        texts.extend(distinct[:number])

    articles = [
        row
        for file in sorted(DATA.glob("wikipedia-2015-en/train-*.parquet"))
        for row in pq.read_table(file, columns=["text", "title"]).to_pylist()
    ]
    chance.shuffle(articles)
    paragraphs = [line for row in articles[:9000] for line in row["text"].split("\n") if len(line) > 200]
    headings = [
        f"{row['title']} {line}"
        for row in articles[9000:]
        for line in row["text"].split("\n")[:60]
        if 3 < len(line) < 50
    ]
    chance.shuffle(paragraphs)
    add((sentence for line in paragraphs[:60_000] for sentence in segment("en", line)[:3]), 70_000)
    add((line[:600] for line in paragraphs[60_000:]), 40_000)
    add([*headings, *(row["title"] for row in articles)], 15_000)
    squad = json.loads((DATA / "squad/train-v1.1.json").read_text(encoding="utf-8"))["data"]
    add((one["question"] for row in squad for part in row["paragraphs"] for one in part["qas"]), 30_000)
    add((text for first, second, _ in sts("train") for text in (first, second)), 12_000)
    abstracts = [row["text"] for row in pq.read_table(DATA / "scientific/acl-abstracts/train.parquet").to_pylist()]
    add((text[:900] for text in abstracts), 10_000)
    add((segment("en", text)[-1] for text in abstracts), 10_000)
    chance.shuffle(texts)
    return texts


def sts(split: str) -> Iterator[tuple[str, str, float]]:
    """Pairs of sentences of STS-B with their scores."""
    (file,) = (DATA / "glue/STS-B").glob(f"*{split}*")
    for line in filter(None, file.read_text(encoding="utf-8").split("\n")):
        cells = line.split("\t")
        yield cells[5], cells[6], float(cells[4])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=11.0, help="of reading texts with bothways-en")
    options = parser.parse_args()

    model = bothways.load()
    texts = training_texts()

    vectors = []
    started = time.monotonic()
    for first in range(0, len(texts), BLOCK):
        vectors.append(model.embed(texts[first : first + BLOCK]).astype(np.float16))
        if time.monotonic() - started > 60 * options.minutes:
            break

    targets_NH = np.concatenate(vectors).astype(np.float32)
    texts = texts[: len(targets_NH)]

    unknown = unknown_ids(model.tokenizer)
    ids = ([one for one in model.tokenizer.ids(text) if one not in unknown] for text in texts)

    alone_VH = vocabulary_vectors(model)
    start_VH = ((alone_VH - alone_VH.mean(0)) * sif_weights(zipf_frequencies(model.tokenizer.tokens))[:, None]).numpy()
    start_VH[unknown] = 0

    matrix_NV = count_matrix(ids, len(start_VH))
    guess_NH = matrix_NV @ start_VH
    start_VH *= np.float32((targets_NH * guess_NH).sum() / (guess_NH**2).sum())
    rows_VH = fit_rows(matrix_NV, targets_NH, start_VH)
    rows_VH[unknown] = 0

    facts = {"base_model": "bothways-en", "fitted_texts": len(texts), "space": vector_space(model)}

    first, second, scores = zip(*sts("dev"), strict=True)
    for name, table in {"float32": VectorTable(rows_VH), "4 bits": packed_table(rows_VH)}.items():
        static = StaticVectors(model.tokenizer, table, unknown=unknown, facts=facts)
        cosines = (static.embed(first) * static.embed(second)).sum(1)
        print(f"{len(texts):,} texts, {name}: STS-B dev {spearmanr(cosines, scores)[0]:.4f}")
    write_static(static, options.out, packed=True)
    (options.out / "tokenizer.json").unlink()  # vocab.txt says the same in a third of the bytes


if __name__ == "__main__":
    main()
