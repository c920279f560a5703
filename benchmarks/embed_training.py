"""What training for vectors gains on SciFact: nDCG@10 of the start, of the delivered and of the trained model.

    python -m benchmarks.embed_training -o DIR [--negatives] [--documents 1500] [--window 128] [--learning-rate 5e-5]

The training claims are the queries, and the abstracts that they cite the passages; the test is BEIR's, 300 other claims
in 5,183 abstracts. Texts are cut at `--window` tokens. `--negatives`: with a hard negative for each pair, the abstract
that the start model ranks highest among those that the claim does not cite. `--documents`: only so many abstracts, with
all that the test judges, which is easier and faster. Prints what the run says of its gain on
dev, and the scores with their 95 % intervals.
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np

import bothways
from benchmarks.finetune_scores import minilm
from benchmarks.inference_texts import DATA
from bothways.inference.predictor import Predictor
from bothways.measure.metrics.intervals import percentile_interval
from bothways.settings import TrainEmbed
from bothways.tasks.arrays import Floats
from bothways.tasks.embed.scoring import ranking_scores
from bothways.tasks.scores import Scores
from bothways.text.data.beir import BeirDataset

TOP = 10


def part_of(dataset: BeirDataset, size: int) -> BeirDataset:
    """The dataset with `size` documents: the judged ones, and the first of the others."""
    judged = {document for grades in dataset.qrels.values() for document in grades}
    others = [document for document in dataset.documents if document not in judged]
    kept = judged | {*others[: max(0, size - len(judged))]}
    documents = {document: text for document, text in dataset.documents.items() if document in kept}
    return BeirDataset(documents, dataset.queries, dataset.qrels)


def claims_with_abstracts(dataset: BeirDataset) -> list[dict[str, str]]:
    """A row for each training claim and each abstract that it cites."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    with (DATA / "retrieval/scifact/claims_train.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for document in row["cited_doc_ids"].strip("[]").replace(",", " ").split():
                pair = {"query": row["claim"], "passage": dataset.documents[document]}
                rows[row["claim"], document] = pair
    return [*rows.values()]


def add_negatives(rows: list[dict[str, str]], queries_NH: Floats, documents_DH: Floats, texts: list[str]) -> None:
    """Give each row the abstract with the greatest cosine among those that its claim does not cite."""
    cited: dict[str, set[str]] = {}
    for row in rows:
        cited.setdefault(row["query"], set()).add(row["passage"])

    for row, query_H in zip(rows, queries_NH, strict=True):
        order = np.argsort(-(documents_DH @ query_H))
        row["negative"] = next(texts[place] for place in order if texts[place] not in cited[row["query"]])


def search(model: Predictor, dataset: BeirDataset, documents_DH: Floats, window: int) -> Scores:
    """The scores of an exhaustive search of BEIR's test."""
    queries_QH = model.embed([*dataset.queries.values()], window=window, long="truncate")
    names = np.array([*dataset.documents])
    order_QD = np.argsort(-(queries_QH @ documents_DH.T), axis=1)[:, :TOP]
    return ranking_scores(dataset.qrels, dict(zip(dataset.queries, names[order_QD].tolist(), strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--negatives", action="store_true")
    parser.add_argument("--documents", type=int)
    parser.add_argument("--window", type=int, default=128)
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    given = parser.parse_args()

    dataset = BeirDataset.read(DATA / "retrieval/beir-scifact")
    rows = claims_with_abstracts(dataset)
    if given.documents:
        dataset = part_of(dataset, given.documents)
    texts = [*dataset.documents.values()]

    def documents_of(model: Predictor) -> Floats:
        return model.embed(texts, window=given.window, long="truncate")

    start = bothways.load(minilm())
    documents_DH = documents_of(start)
    if given.negatives:
        queries_NH = start.embed([row["query"] for row in rows], window=given.window, long="truncate")
        add_negatives(rows, queries_NH, documents_DH, texts)
    scores = {"start": search(start, dataset, documents_DH, given.window)}

    begun = time.perf_counter()
    result = bothways.train(
        TrainEmbed(
            model=minilm(),
            train=rows,
            out=given.out,
            window=given.window,
            long="truncate",
            epochs=given.epochs,
            learning_rate=given.learning_rate,
        )
    )
    print(f"{len(rows)} pairs, {(time.perf_counter() - begun) / 60:.1f} minutes; {result.not_delivered or 'delivered'}")

    name = "trained, not delivered" if result.not_delivered else "trained, delivered"
    directory = result.directory / "trained" if result.not_delivered else result.model_directory
    trained = bothways.load(directory)
    scores[name] = search(trained, dataset, documents_of(trained), given.window)

    for kind, score in scores.items():
        low, high = score[f"ndcg@{TOP}_interval"]
        print(f"{kind:24} test nDCG@{TOP} {score[f'ndcg@{TOP}']:.4f} ({low:.4f} to {high:.4f})", flush=True)
    before, after = (score.intervals for score in scores.values())
    assert before is not None and after is not None
    difference_B = after.resamples[f"ndcg@{TOP}"] - before.resamples[f"ndcg@{TOP}"]
    low, high = percentile_interval(0.0, difference_B, after.num_units)
    print(f"the difference is {100 * low:+.1f} to {100 * high:+.1f} points (95 % interval)")


if __name__ == "__main__":
    main()
