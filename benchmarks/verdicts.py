"""What a run says of small data, against the truth on 5,000 other rows: its verdict, its probabilities, its sets.

    python -m benchmarks.verdicts [--draws 20] [--sets SST-2 CoLA]

Each draw takes 100 to 1,000 random rows, fits the linear start (all-MiniLM-L6-v2, frozen) and TF-IDF + logistic
regression to 80 % of them, calibrates on 10 %, and compares the two on the last 10 %, as a run without training does.

wrong: the verdict says better or worse, and on the other rows it is the other way round. cannot tell: of these, how
often the difference on the other rows is below two points. error: expected calibration error on the other rows, before
and after calibration. coverage: of sets with a promised coverage of 90 %, by the number of calibration rows.
"""

import argparse
from collections import Counter
from pathlib import Path
from statistics import fmean, stdev
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from bothways.training.finetuning.score import Score

from benchmarks.finetune_scores import minilm
from benchmarks.finetune_sets import glue, rows_of, sample_rows
from bothways.measure import metrics
from bothways.model.linear import linear_head, tfidf
from bothways.model.linear.tfidf import TextRows
from bothways.settings import Classify
from bothways.tasks import task_of
from bothways.tasks.class_decoding import fit_calibration
from bothways.tasks.classify.training import Classification
from bothways.training.finetuning import compare
from bothways.training.finetuning.plan import load_start

OTHERS, FEWEST, MOST = 5000, 100, 1000
COVERAGE, CALIBRATION_ROWS = 0.9, (50, 100, 500, 1000)


def build_task(name: str) -> Classification:
    """All rows as the test split, whose features and texts are then divided by each draw."""
    rows = sample_rows(rows_of(glue(name).arguments, "train"), OTHERS + MOST, seed=0)
    settings = Classify(model=minilm(), train=rows[:100], dev=rows[:100], test=rows, out=Path("unused"), epochs=1.0)
    task = task_of(settings).train(settings, load_start(settings), None)
    assert isinstance(task, Classification)
    return task


def scores_of(task: Classification, x_NH: torch.Tensor, rows: dict[str, list[int]]) -> dict[str, torch.Tensor]:
    """The scores of both models for dev, test and the other rows."""
    table, targets = task.tables["test"], task.data["test"].targets
    y = torch.from_numpy(targets)
    parts = {name: table.take(indices) for name, indices in rows.items()}
    data = {name: TextRows(part.texts, None, targets[rows[name]], part.units) for name, part in parts.items()}

    def score(scores_NC: np.ndarray, gold: np.ndarray) -> float:
        return task.scoring.score(scores_NC, gold)

    words = tfidf.fit(data["train"], data["dev"], "classes", len(task.names), score=score)
    train, dev = ((x_NH[rows[name]], y[rows[name]]) for name in ("train", "dev"))
    head = linear_head.fit(
        train,
        task.objective.loss,
        len(task.names),
        dev=dev,
        score=lambda scores, gold: score(scores.numpy(), gold.numpy()),
    )
    scores = {}
    for name in ("dev", "test", "others"):
        scores[f"head {name}"] = head(x_NH[rows[name]])
        scores[f"words {name}"] = torch.from_numpy(words(parts[name].texts, None))
    return scores


def verdict(task: Classification, own: torch.Tensor, other: torch.Tensor, rows: list[int]) -> str:
    """That of a run, by the same functions."""
    table = task.tables["test"].take(rows)
    gold = task.scoring.to_names(task.data["test"].targets[rows])
    results = []
    for scores_NC in (own, other):
        predicted = [task.names[index] for index in scores_NC.argmax(-1).tolist()]
        scored = task.scoring.evaluator.compare(gold, predicted, table.units)
        results.append(Score.of_scores("TF-IDF + logistic regression", scored, "accuracy"))
    best, baseline = results
    score: Any = SimpleNamespace(mean=best.value, rows=len(rows), frozen=True)
    plan: Any = SimpleNamespace(measured="", sources={"model": ""})
    text = compare.verdict(score, [baseline], {baseline.model: best.difference(baseline)}, plan)
    return "cannot tell" if text.startswith("cannot") else text.partition(" ")[0]


def error_of(scores_NC: torch.Tensor, targets_N: torch.Tensor) -> float:
    confidence_N, class_N = scores_NC.softmax(-1).max(-1)
    return float(metrics.reliability(confidence_N.tolist(), (class_N == targets_N).tolist()).error)


def measure(name: str, draws: int) -> None:
    task = build_task(name)
    with torch.no_grad():
        pooler = task.initial_checkpoint(0).model.pooler
        assert pooler is not None
        x_NH = pooler(task.frozen["test"]["head"])
    y = torch.from_numpy(task.data["test"].targets)
    said, small, errors, wrong = Counter[str](), 0, [], 0
    coverages: dict[int, list[float]] = {rows: [] for rows in CALIBRATION_ROWS}
    for draw in range(draws):
        order = np.random.default_rng(draw).permutation(len(y)).tolist()
        number = round(FEWEST * (MOST / FEWEST) ** (draw / max(1, draws - 1)))
        tenth = number // 10
        rows = {
            "dev": order[:tenth], "test": order[tenth : 2 * tenth], "train": order[2 * tenth : number],
            "others": order[-OTHERS:],
        }  # fmt: skip
        scores = scores_of(task, x_NH, rows)
        gold = y[rows["others"]]
        hits = [(scores[f"{model} others"].argmax(-1) == gold).double() for model in ("head", "words")]
        truth = float((hits[0] - hits[1]).mean())
        answer = verdict(task, scores["head test"], scores["words test"], rows["test"])
        said[answer] += 1
        wrong += (answer == "better" and truth < 0) or (answer == "worse" and truth > 0)
        small += answer == "cannot tell" and abs(truth) < 0.02
        calibration = fit_calibration(scores["head dev"].numpy(), y[rows["dev"]].numpy(), multi_label=False)
        scaled = scores["head others"] / calibration.temperature
        errors.append((error_of(scores["head others"], gold), error_of(scaled, gold)))
        for size in CALIBRATION_ROWS:
            held_out = fit_calibration(scores["head others"][:size].numpy(), gold[:size].numpy(), multi_label=False)
            rest = (scores["head others"][size:] / held_out.temperature).softmax(-1)
            in_set = rest.gather(1, gold[size:, None])[:, 0] >= held_out.threshold(COVERAGE)
            coverages[size].append(float(in_set.double().mean()))
    before, after = zip(*errors, strict=True)
    print(f"{name}, {draws} draws: {dict(said)}, wrong {wrong}; of 'cannot tell' {small} below two points")
    print(f"  calibration error {100 * fmean(before):.1f} before, {100 * fmean(after):.1f} after")
    for size, values in coverages.items():
        print(f"  coverage {COVERAGE:.0%} from {size} rows: {100 * fmean(values):.1f} +- {100 * stdev(values):.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--sets", nargs="+", default=["SST-2", "CoLA"])
    options = parser.parse_args()
    for name in options.sets:
        measure(name, options.draws)


if __name__ == "__main__":
    main()
