"""A reranker for SciFact: how many pairs it takes, and whether it is better than the hybrid search that it reranks.

    python -m benchmarks.reranker [--out DIR] [--model MODEL] [--queries 0 300 100]

The training claims of SciFact and the abstracts that they cite are the pairs; our own hybrid search (BM25 and the
vectors of bothways-en) finds the other passages, and the first 10 are reranked. A quarter of the claims is dev, the
same for every row of the table, which decides whether the model is delivered. The test is BEIR's, 300 claims.

--queries: numbers of training claims; 0: all. --model: to start from. Mined rows are kept in DIR and used again.

Writes reranker.json. Data: $BOTHWAYS_DATA (default: ../shared/data). One thread; half an hour beside other work.
"""

import argparse
import csv
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import bothways
from benchmarks.search import DATA
from bothways.pretrained import DEFAULT
from bothways.search.negatives import MiningOptions, find_in_documents, write_negatives
from bothways.text.data.beir import BeirDataset

PASSAGES, WINDOW, NEGATIVES, EPOCHS = 10, 160, 3, 2.0
DEV_SHARE = 0.25
CLAIMS = DATA / "retrieval/scifact/claims_train.csv"
Row = dict[str, Any]


def training_claims(documents: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """{claim: {abstract: 1}} of the abstracts that each claim cites."""
    relevant: dict[str, dict[str, float]] = {}
    with CLAIMS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for name in re.findall(r"\d+", row["cited_doc_ids"]):
                if name in documents:
                    relevant.setdefault(row["claim"], {})[documents[name]] = 1.0
    return relevant


def mined_rows(out: Path) -> dict[str, list[Row]]:
    """The rows of the training claims and of the test, which are mined once."""
    files = {split: out / f"rows-{split}.jsonl" for split in ("train", "test")}
    if not all(file.exists() for file in files.values()):
        data = BeirDataset.read(DATA / "retrieval/beir-scifact")
        relevant = {"train": training_claims(data.documents), "test": data.relevant_texts()}
        queries = [query for part in relevant.values() for query in part]
        find = find_in_documents(data.documents, queries, DEFAULT)
        for split, file in files.items():
            facts = {"pairs": split, "negatives_from": "SciFact"}
            write_negatives(relevant[split], find, MiningOptions(PASSAGES), file, facts)
    return {
        split: [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for split, file in files.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("build/reranker"))
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--queries", type=int, nargs="+", default=[0, 300, 100])
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    rows = mined_rows(out)

    claims = [*dict.fromkeys(row["query"] for row in rows["train"])]
    order = [claims[place] for place in np.random.default_rng(0).permutation(len(claims)).tolist()]
    num_dev = round(DEV_SHARE * len(order))
    dev, train = {*order[:num_dev]}, order[num_dev:]

    results = []
    for number in arguments.queries:
        chosen = {*(train[:number] if number else train)}
        started = time.monotonic()
        run = bothways.finetune(
            [row for row in rows["train"] if row["query"] in chosen],
            task="rerank",
            model=arguments.model,
            out=out / f"{Path(arguments.model).name}-{len(chosen)}-{int(time.time())}",
            dev=[row for row in rows["train"] if row["query"] in dev],
            test=rows["test"],
            window=WINDOW,
            long="truncate",
            negatives=NEGATIVES,
            epochs=EPOCHS,
            evaluations_per_epoch=1,
        )
        figures = json.loads((run.directory / "bothways.json").read_text(encoding="utf-8"))["figures"]
        results.append(
            {
                "model": str(arguments.model),
                "claims": len(chosen),
                "minutes": round((time.monotonic() - started) / 60, 1),
                "no reranking": run.baselines["no reranking"],
                "reranked": run.mean,
                "interval": run.interval,
                "weight": figures["dev"]["weight"],
                "dev, no reranking": figures["dev"]["baseline"],
                "dev, reranked": figures["dev"]["ndcg@10"],
                "differences": json.loads((run.directory / "bothways.json").read_text(encoding="utf-8"))["result"][
                    "differences"
                ],
                "not delivered": run.not_delivered,
            }
        )
        print(json.dumps(results[-1], indent=2), flush=True)
        (out / "reranker.json").write_text(json.dumps(results, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
