"""The packaged English model beside its teacher and others: vectors, masked words, next sentences, fine-tuning, start.

    python -m benchmarks.english [MODEL] -o DIR [--parts vectors words next fills start tuning bias] [--keep]

MODEL: a directory, or bothways-en. Every part prints its figures, with 95 % intervals where the set gives them, and
writes them to DIR/PART.json; the predictions of vectors, words, next and fills to DIR/english-PART, with --keep to
docs/measurements. Examples a class: `python -m benchmarks.finetune_scores --few --model MODEL`. Data:
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
from benchmarks import measurements
from benchmarks.embedding_students import sts_benchmark
from benchmarks.figures import english as english_figures
from benchmarks.figures.scores import Figures as Stated
from benchmarks.finetune_scores import minilm
from benchmarks.finetune_sets import DATA, sst2_first
from benchmarks.measurements import Measurement
from benchmarks.recipes import FILLS
from benchmarks.search_rankings import best_documents, gold_ranking
from bothways.inference.predictor import Predictor
from bothways.text.corpus.documents import Corpus
from bothways.text.corpus.token_store import build_in_memory
from bothways.text.data.beir import BeirDataset
from bothways.training.pretraining.heldout import HeldOut

LENGTH, WINDOWS, PAIRS = 128, 1024, 4096
SCIFACT_TOKENS = 256
TUNING_ROWS = 20_000
STARTS = 5
OCCUPATIONS = "doctor nurse engineer teacher secretary mechanic lawyer cleaner pilot librarian".split()
Arrays = dict[str, np.ndarray]
Figures = dict[str, Any]


def vectors(path: str, out: Path) -> Arrays:
    """The cosines of STS-B, and the first documents of SciFact for each query; of the model and of its teacher."""
    first, second, gold = sts_benchmark()
    dataset = BeirDataset.read(DATA / "retrieval/beir-scifact")
    arrays = {"sts/gold": np.array(gold, np.float32), **gold_ranking("scifact", dataset)}
    for name, model in (("model", bothways.load(path)), ("teacher", bothways.load(minilm()))):
        cosines_N = (model.embed(first) * model.embed(second)).sum(1)
        arrays[f"sts/{name}"] = cosines_N.astype(np.float32)

        options: dict[str, Any] = {"long": "truncate", "window": SCIFACT_TOKENS}
        queries_QH = model.embed([*dataset.queries.values()], **options)
        documents_DH = model.embed([*dataset.documents.values()], **options)
        arrays[f"scifact/{name}"] = best_documents(dataset, queries_QH @ documents_DH.T)
    return arrays


def held_out(model: Predictor, pairs: Any, most: int) -> HeldOut:
    files = tuple(sorted((DATA / "wikipedia-2015-en").glob("validation*.parquet")))
    assert model.tokenizer is not None
    store = build_in_memory(Corpus(files).documents(), model.tokenizer)
    return HeldOut(store, np.arange(store.num_documents), model.tokenizer, LENGTH, pairs=pairs, most=most)


def words(path: str, out: Path) -> Arrays:
    """The loss of each masked word, and whether it is the first guess."""
    model = bothways.load(path)
    losses = []
    right = []
    with torch.inference_mode():
        for batch in held_out(model, "none", WINDOWS).batches:
            assert batch.masked_positions is not None and batch.masked_labels is not None
            hidden_TH = model.module(batch)
            scores_MV = model.module.word_scores(hidden_TH[batch.masked_positions]).float()
            losses.append(torch.nn.functional.cross_entropy(scores_MV, batch.masked_labels, reduction="none").numpy())
            right.append((scores_MV.argmax(-1) == batch.masked_labels).numpy())
    return {"loss": np.concatenate(losses), "right": np.concatenate(right)}


def next_sentence(path: str, out: Path) -> Arrays:
    """Whether each pair belongs together, and whether the model says so."""
    model = bothways.load(path)
    texts = held_out(model, "next", PAIRS)
    predicted = []
    gold = []
    with torch.inference_mode():
        for batch in texts.batches:
            outputs = texts.objective.forward(model.module, batch)
            ((of_pairs, right),) = texts.objective.predictions(model.module, batch, outputs).values()
            predicted.append(of_pairs.numpy())
            gold.append(right.numpy())
    return {"predicted": np.concatenate(predicted).astype(bool), "gold": np.concatenate(gold).astype(bool)}


def fills(path: str, out: Path) -> Arrays:
    """For ten sentences, the place of the first right word among 50 guesses; -1 if none is right."""
    model = bothways.load(path)
    places = []
    for text, right in FILLS.items():
        tokens = [guess.token for guess in model.fill(text, top=50)[0]]
        print(f"  {text} {', '.join(tokens[:3])}")
        places.append(next((place for place, token in enumerate(tokens) if token in right.split()), -1))
    return {"places": np.array(places, np.int16)}


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


# Parts whose predictions are kept, with what computes their figures.
PREDICTED: dict[str, tuple[Callable[[str, Path], Arrays], Callable[[Measurement], Stated]]] = {
    "vectors": (vectors, english_figures.vectors),
    "words": (words, english_figures.words),
    "next": (next_sentence, english_figures.next_sentence),
    "fills": (fills, english_figures.fills),
}
PARTS: dict[str, Callable[[str, Path], Figures]] = {
    "start": start,
    "tuning": tuning,
    "bias": bias,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="bothways-en")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--parts", nargs="+", choices=[*PREDICTED, *PARTS], default=[*PREDICTED, *PARTS])
    parser.add_argument("--keep", action="store_true", help="write predictions to docs/measurements")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.parts:
        began = time.perf_counter()
        if name in PREDICTED:
            predict, figures_of = PREDICTED[name]
            arrays = predict(options.model, options.out)
            folder = measurements.FOLDER if options.keep else options.out
            measurement = measurements.write(f"english-{name}", arrays, model=options.model, folder=folder)
            figures = figures_of(measurement).values
        else:
            figures = PARTS[name](options.model, options.out)
        (options.out / f"{name}.json").write_text(json.dumps(figures, indent=1), encoding="utf-8")
        print(f"{name} ({time.perf_counter() - began:.0f} s)\n{json.dumps(figures, indent=1)}", flush=True)


if __name__ == "__main__":
    main()
