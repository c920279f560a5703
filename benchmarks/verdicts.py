"""What a run says of small data, against the truth on 5,000 other rows: its verdict, its probabilities, its sets.

    python -m benchmarks.verdicts [--draws 20] [--sets SST-2 CoLA] [--keep]

Each draw takes 100 to 1,000 random rows, fits the linear start (all-MiniLM-L6-v2, frozen) and TF-IDF + logistic
regression to 80 % of them, calibrates on 10 %, and compares the two on the last 10 %, as a run without training does.

wrong: the verdict says better or worse, and on the other rows it is the other way round. cannot tell: of these, how
often the difference on the other rows is below two points. error: expected calibration error on the other rows, before
and after calibration. coverage: of sets with a promised coverage of 90 %, by the number of calibration rows.

--keep: scores and verdicts are kept in docs/measurements; benchmarks/figures/verdicts.py computes the table from them.
"""

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks import measurements
from benchmarks.figures.verdicts import VERDICTS, figures
from benchmarks.finetune_scores import minilm
from benchmarks.finetune_sets import glue, rows_of, sample_rows
from bothways.model.linear import linear_head, tfidf
from bothways.model.linear.tfidf import TextRows
from bothways.settings import Classify
from bothways.tasks import task_of
from bothways.tasks.classify.training import Classification
from bothways.training.finetuning import compare
from bothways.training.finetuning.ground.score import Score
from bothways.training.finetuning.plan import load_start

OTHERS, FEWEST, MOST = 5000, 100, 1000


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
    model: Any = SimpleNamespace(
        scores=SimpleNamespace(mean=best.value, rows=len(rows), frozen=True),
        kind=lambda plan: "the linear start",
    )
    plan: Any = SimpleNamespace(measured="", sources={"model": ""}, task=SimpleNamespace(needs_gain=False))
    text = compare.verdict(model, [baseline], {baseline.model: best.difference(baseline)}, plan, {})
    return next(said for said in VERDICTS if text.startswith(said))


def measure(name: str, draws: int) -> dict[str, np.ndarray]:
    """For each draw: the verdict, the margins of both models on the other rows, and of the head on dev."""
    task = build_task(name)
    with torch.no_grad():
        pooler = task.initial_checkpoint(0).model.pooler
        assert pooler is not None
        x_NH = pooler(task.frozen["test"]["head"])

    targets = task.data["test"].targets
    verdicts = np.zeros(draws, np.int8)
    gold = np.zeros((draws, OTHERS), np.int8)
    head, words = (np.zeros((draws, OTHERS), np.float16) for _ in range(2))
    dev_gold = np.full((draws, MOST // 10), -1, np.int8)
    dev_head = np.zeros((draws, MOST // 10), np.float32)
    for draw in range(draws):
        order = np.random.default_rng(draw).permutation(len(targets)).tolist()
        number = round(FEWEST * (MOST / FEWEST) ** (draw / max(1, draws - 1)))
        tenth = number // 10
        rows = {
            "dev": order[:tenth], "test": order[tenth : 2 * tenth], "train": order[2 * tenth : number],
            "others": order[-OTHERS:],
        }  # fmt: skip
        scores = scores_of(task, x_NH, rows)
        verdicts[draw] = VERDICTS.index(verdict(task, scores["head test"], scores["words test"], rows["test"]))
        gold[draw] = targets[rows["others"]]
        head[draw], words[draw] = margins(scores["head others"]), margins(scores["words others"])
        dev_gold[draw, :tenth] = targets[rows["dev"]]
        dev_head[draw, :tenth] = margins(scores["head dev"])
    return {
        f"{name}/verdict": verdicts,
        f"{name}/gold": gold,
        f"{name}/head": head,
        f"{name}/words": words,
        f"{name}/dev gold": dev_gold,
        f"{name}/dev head": dev_head,
    }


def margins(scores_N2: torch.Tensor) -> np.ndarray:
    """The score of the second class minus that of the first."""
    return np.asarray(scores_N2[:, 1] - scores_N2[:, 0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--sets", nargs="+", default=["SST-2", "CoLA"])
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()

    arrays: dict[str, np.ndarray] = {}
    for name in options.sets:
        arrays |= measure(name, options.draws)
    measurement = measurements.write(
        "verdicts",
        arrays,
        model="all-MiniLM-L6-v2, frozen, with a linear head; TF-IDF",
        seeds=range(options.draws),
        folder=measurements.FOLDER if options.keep else None,
    )
    print("\n".join(figures(measurement).tables["verdicts"]))


if __name__ == "__main__":
    main()
