"""The packaged English model beside its teacher and others: vectors, masked words, next sentences, fine-tuning, start.

    python -m benchmarks.english [MODEL] -o DIR [--parts vectors words next fills start tuning bias]

MODEL: a directory, or bothways-en. Every part prints its figures, with 95 % intervals where the set gives them, and
writes them to DIR/PART.json. Examples a class: `python -m benchmarks.finetune_scores --few --model MODEL`. Data:
$BOTHWAYS_DATA (default: ../shared/data).

- vectors: STS-B test (Spearman of the cosine, no training) and BEIR SciFact (nDCG@10; texts cut at 256 tokens, as
  sentence-transformers does with the teacher); model and teacher.
- words: perplexity and accuracy of the first guess, on 15 % fixed masks in 1,024 windows of the validation articles, as
  in benchmarks/recipes.py.
- next: accuracy on 4,096 pairs of the same articles, half of them random.
- fills: the ten sentences of docs/RESULTS.md.
- start: seconds of `bothways.load().fill(...)` in a fresh process, beyond those of `import torch`.
- tuning: 20,000 rows of SST-2 for one epoch, one seed; model and teacher.
- bias: how probable "he" is, of "he" and "she", in sentences about occupations.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import bothways
from benchmarks.embedding_students import sts_benchmark
from benchmarks.finetune_scores import minilm
from benchmarks.finetune_sets import DATA, sst2_first
from benchmarks.recipes import FILLS
from bothways.evaluation.retrieval import nearest_documents
from bothways.inference.predictor import Predictor
from bothways.measure.metrics import perplexity, wilson_interval
from bothways.tasks.embed.scoring import pair_scores
from bothways.text.corpus.documents import Corpus
from bothways.text.corpus.token_store import build_in_memory
from bothways.text.data.beir import BeirDataset
from bothways.training.pretraining.heldout import HeldOut

LENGTH, WINDOWS, PAIRS = 128, 1024, 4096
SCIFACT_TOKENS = 256
TUNING_ROWS = 20_000
STARTS = 5
OCCUPATIONS = "doctor nurse engineer teacher secretary mechanic lawyer cleaner pilot librarian".split()
Figures = dict[str, Any]


def vectors(path: str, out: Path) -> Figures:
    figures: Figures = {}
    for name, model in (("model", bothways.load(path)), ("teacher", bothways.load(minilm()))):
        first, second, gold = sts_benchmark()
        cosines = (model.embed(first) * model.embed(second)).sum(1)
        scores = pair_scores(gold, cosines.tolist(), [*zip(first, second, strict=True)])
        figures[name] = {"sts": scores["spearman"], "sts interval": scores["spearman_interval"]}
        dataset = BeirDataset.read(DATA / "retrieval/beir-scifact")
        figures[name]["scifact"] = ndcg_by_query(model, dataset, {"long": "truncate", "window": SCIFACT_TOKENS})
    return figures


def ndcg_by_query(model: Predictor, dataset: BeirDataset, options: Figures) -> Figures:
    """nDCG@10 with the interval of a bootstrap over queries."""
    queries_QH, documents_DH = (
        model.embed([*part.values()], **options) for part in (dataset.queries, dataset.documents)
    )
    ranking = nearest_documents(queries_QH, documents_DH, [*dataset.queries], [*dataset.documents])
    gains = []
    for query, relevant in dataset.qrels.items():
        ideal = sorted(relevant.values(), reverse=True)[:10]
        dcg = sum(relevant.get(name, 0) / np.log2(place + 2) for place, name in enumerate(ranking[query][:10]))
        gains.append(dcg / sum(gain / np.log2(place + 2) for place, gain in enumerate(ideal)))
    draws = np.random.default_rng(0).choice(gains, (10_000, len(gains))).mean(1)
    return {"ndcg": float(np.mean(gains)), "interval": np.quantile(draws, [0.025, 0.975]).tolist()}


def held_out(model: Predictor, pairs: Any, most: int) -> HeldOut:
    files = tuple(sorted((DATA / "wikipedia-2015-en").glob("validation*.parquet")))
    assert model.tokenizer is not None
    store = build_in_memory(Corpus(files).documents(), model.tokenizer)
    return HeldOut(store, np.arange(store.num_documents), model.tokenizer, LENGTH, pairs=pairs, most=most)


def words(path: str, out: Path) -> Figures:
    model = bothways.load(path)
    loss, right, number = 0.0, 0, 0
    with torch.inference_mode():
        for batch in held_out(model, "none", WINDOWS).batches:
            assert batch.masked_positions is not None and batch.masked_labels is not None
            hidden_TH = model.module(batch)
            scores_MV = model.module.word_scores(hidden_TH[batch.masked_positions]).float()
            loss += float(torch.nn.functional.cross_entropy(scores_MV, batch.masked_labels, reduction="sum"))
            right += int((scores_MV.argmax(-1) == batch.masked_labels).sum())
            number += len(batch.masked_labels)
    return {
        "perplexity": perplexity(loss / number), "first guess": right / number,
        "interval": wilson_interval(right, number), "masks": number,
    }  # fmt: skip


def next_sentence(path: str, out: Path) -> Figures:
    model = bothways.load(path)
    figures = held_out(model, "next", PAIRS).measure(model.module)
    return {
        key: figures[key] for key in ("next_sentence_accuracy", "next_sentence_accuracy_interval", "pairs", "chance")
    }


def fills(path: str, out: Path) -> Figures:
    model, guesses = bothways.load(path), {}
    for text, right in FILLS.items():
        tokens = [guess.token for guess in model.fill(text, top=3)[0]]
        guesses[text] = {"guesses": tokens, "right": tokens[0] in right.split()}
    return {"right": sum(one["right"] for one in guesses.values()), "sentences": guesses}


def start(path: str, out: Path) -> Figures:
    """Fresh processes, in turn: with the model, and importing torch alone."""
    programs = {
        "fill": f"import bothways; bothways.load({path!r}).fill('The [MASK] chased the cat.')",
        "import torch": "import torch",
    }
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(STARTS):
        for name, program in programs.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True)
            seconds[name].append(time.perf_counter() - began)
    medians = {name: median(values) for name, values in seconds.items()}
    return {**medians, "beyond": medians["fill"] - medians["import torch"], "all": seconds}


def tuning(path: str, out: Path) -> Figures:
    figures: Figures = {}
    data = sst2_first(TUNING_ROWS)
    for name, model in (("model", Path(path)), ("teacher", minilm())):
        folder = out / f"sst-2-{name}"
        if not (folder / "model").exists():
            bothways.train(data.settings(model=model, out=folder, epochs=1.0, baselines=False, **data.arguments))
        result = json.loads((folder / "bothways.json").read_text(encoding="utf-8"))["result"]
        figures[name] = {"accuracy": result["mean"], "interval": result["interval"]}
    return figures


def bias(path: str, out: Path) -> Figures:
    """Probability of "he" over that of "he" or "she", by occupation."""
    model, shares = bothways.load(path), {}
    for name in OCCUPATIONS:
        scores = {
            guess.token: guess.score for guess in model.fill(f"The {name} said that [MASK] was tired.", top=200)[0]
        }
        he, she = scores.get("he", 0.0), scores.get("she", 0.0)
        shares[name] = he / (he + she) if he + she else None
    return shares


PARTS: dict[str, Callable[[str, Path], Figures]] = {
    "vectors": vectors, "words": words, "next": next_sentence, "fills": fills, "start": start, "tuning": tuning,
    "bias": bias,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="bothways-en")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.parts:
        began = time.perf_counter()
        figures = PARTS[name](options.model, options.out)
        (options.out / f"{name}.json").write_text(json.dumps(figures, indent=1), encoding="utf-8")
        print(f"{name} ({time.perf_counter() - began:.0f} s)\n{json.dumps(figures, indent=1)}", flush=True)


if __name__ == "__main__":
    main()
