"""Texts of none of the classes: how many are refused where 95 % of the texts of the classes are kept.

    python -m benchmarks.out_of_scope [--rows 10] [--seed 0] [--train] [--keep]

CLINC150 (Larson 2019): 150 intents, `rows` texts of each, the encoder frozen (with --train as `finetune` does by
default); 4,500 texts of the intents and 1,000 of none of them. Printed: accuracy of the texts of the intents; by score,
the texts outside that are refused at the threshold that keeps 95 % of those inside, and the AUROC; then `in_scope=0.95`
as a user asks for it, whose threshold is from the training alone. Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import json
import os
import random
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import bothways
from benchmarks import measurements
from benchmarks.figures import out_of_scope as scope_figures
from bothways.settings import Classify
from bothways.tasks.novelty import stored_scope
from bothways.training.finetuning.finetune import run as run_task

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
KEPT = 0.95


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--keep", action="store_true", help="write the scores to docs/measurements")
    options = parser.parse_args()

    splits = json.loads((DATA / "clinc150" / "data_full.json").read_text(encoding="utf-8"))
    rows = draw(splits["train"], options.rows, options.seed)
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        table, out = Path(folder) / "train.jsonl", Path(folder) / "run"
        table.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        how: dict[str, Any] = {} if options.train else {"learning_rate": 0.0}
        run_task(Classify(train=table, out=out, baselines=False, **how))
        model = bothways.load(out)
        bytes_stored = (out / "model" / "scope.safetensors").stat().st_size
    print(f"{len(rows):,} training texts, {time.perf_counter() - begun:.0f} s; {bytes_stored / 1e6:.2f} MB are stored")

    inside, gold = zip(*splits["test"], strict=True)
    outside = [text for text, _ in splits["oos_test"]]
    names = sorted({*gold})
    arrays = {
        "gold": measurements.codes(gold, names),
        "predicted": measurements.codes([one.label for one in model.classify(inside)], names),
    }
    for name, (kept_N, refused_M) in scores(model, [row["text"] for row in rows], [*inside], outside).items():
        arrays[f"inside/{name}"] = kept_N.astype(np.float32)
        arrays[f"outside/{name}"] = refused_M.astype(np.float32)
    for name, texts in (("inside", [*inside]), ("outside", outside)):
        arrays[f"{name} kept"] = np.array([one.is_like_training for one in model.classify(texts, in_scope=KEPT)])

    name = "out-of-scope-trained" if options.train else "out-of-scope"
    kept_in = measurements.FOLDER if options.keep else None
    measurement = measurements.write(name, arrays, model="bothways-en", seeds=[options.seed], folder=kept_in)
    print("\n".join(scope_figures.figures(measurement).tables["scores"]))


def draw(rows: list[list[str]], number: int, seed: int) -> list[dict[str, str]]:
    """This many texts of each intent."""
    texts_by_label = defaultdict(list)
    for text, label in rows:
        texts_by_label[label].append(text)
    draws = random.Random(seed)
    return [
        {"text": text, "label": label}
        for label in sorted(texts_by_label)
        for text in draws.sample(texts_by_label[label], number)
    ]


def scores(
    model: bothways.Predictor, training: list[str], inside: list[str], outside: list[str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By name, the score of each text, the higher the more like the training texts."""
    known_RH, _ = unit_vectors(model, training)
    scope = stored_scope(model.description)
    by_name: dict[str, list[np.ndarray]] = defaultdict(list)
    for texts in (inside, outside):
        vectors_NH, states_NH = unit_vectors(model, texts)
        probabilities_NC = np.array([[*one.scores.values()] for one in model.classify(texts)])
        cosines_NR = np.sort(vectors_NH @ known_RH.T, axis=1)
        by_name["greatest probability"].append(probabilities_NC.max(1))
        by_name["entropy"].append((probabilities_NC * np.log(probabilities_NC.clip(1e-30))).sum(1))
        by_name["cosine, nearest text"].append(cosines_NR[:, -1])
        by_name["cosine, three nearest"].append(cosines_NR[:, -3:].mean(1))
        by_name["in_scope"].append(-scope.distances(states_NH))
    return {name: (first, second) for name, (first, second) in by_name.items()}


def unit_vectors(model: bothways.Predictor, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The vectors that the head reads, scaled to length 1 and as they are."""
    states_NH = np.concatenate([part for _, part in model.backend.scored_vectors("classes", texts, None, {})])
    return states_NH / np.linalg.norm(states_NH, axis=1, keepdims=True), states_NH


if __name__ == "__main__":
    main()
