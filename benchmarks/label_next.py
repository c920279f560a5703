"""Labels saved by `predict --label-next`: accuracy by number of labels, for texts chosen at random and by two methods.

    python -m benchmarks.label_next [--sets SST-2 IMDb ACL-ARC] [--draws 3] [--rounds 5] [--step 20] [--cache DIR]

A logistic head on frozen vectors of MiniLM-L6; 20 random labels, then five rounds in which 20 texts of a pool of at
most 3,000 are labelled and the head is fitted again. clusters: what `--label-next` does, k-means of the most uncertain
texts (bothways/inference/active_learning.py). gradients: BADGE. Random choice goes on to three times as many labels, so
that the number that it needs for the same accuracy can be read off its mean curve, interpolated linearly. Data:
$BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import bothways
from benchmarks.finetune_scores import minilm
from benchmarks.finetune_sets import SETS, rows_of, sample_rows
from bothways.inference.active_learning import CandidatePool, UnlabelledTexts, uncertainties
from bothways.model.linear import linear_head
from bothways.model.losses import classification_loss

POOL, TEST, LEAST_TEST = 3000, 1000, 600  # rows
Array = NDArray[np.float32]
Rows = tuple[Array, NDArray[np.str_]]  # vectors [N, H] and labels
Choice = Callable[[Array, Array, int, int], list[int]]  # (scores [N, C], vectors [N, H], number, seed) -> rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["SST-2", "IMDb", "ACL-ARC"])
    for name, number in (("draws", 3), ("rounds", 5), ("step", 20)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "label-next")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    print("a row: the number of labels, then accuracy in percent, mean +- deviation over the draws")
    for name in options.sets:
        pool, test = data_of(name, options.cache)
        curves = {
            method: np.array(
                [
                    curve(pool, test, choice, draw, options.step, options.rounds * (3 if method == "random" else 1))
                    for draw in range(options.draws)
                ]
            )
            for method, choice in METHODS.items()
        }
        report(name, len(pool[1]), curves, options.step)


def data_of(name: str, cache: Path) -> tuple[Rows, Rows]:
    """The pool and the test set; a small test set takes rows from the pool."""
    (x_NH, labels), (test_NH, test_labels) = embedded(name, "train", POOL, cache), embedded(name, "test", TEST, cache)
    moved = max(0, LEAST_TEST - len(test_labels))
    test = np.concatenate([test_NH, x_NH[:moved]]), np.concatenate([test_labels, labels[:moved]])
    return (x_NH[moved:], labels[moved:]), test


def embedded(name: str, split: str, most: int, cache: Path) -> Rows:
    """The vectors and labels of at most this many rows of a split; computed once."""
    file = cache / f"{name}-{split}-{most}.npz"
    if not file.exists():
        rows = sample_rows(rows_of(SETS[name]().arguments, split), most, seed=0)
        vectors_NH = bothways.load(minilm()).embed([row["text"] for row in rows])
        np.savez(file, vectors=vectors_NH, labels=np.array([row["label"] for row in rows]))
    stored = np.load(file)
    return stored["vectors"], stored["labels"]


# --- methods ----------------------------------------------------------------------------------------------------------


def at_random(scores_NC: Array, vectors_NH: Array, number: int, seed: int) -> list[int]:
    rows: list[int] = np.random.default_rng(seed).permutation(len(scores_NC))[:number].tolist()
    return rows


def by_clusters(scores_NC: Array, vectors_NH: Array, number: int, seed: int) -> list[int]:
    """What `--label-next` does."""
    pool, rows = CandidatePool(number), np.arange(len(scores_NC))
    uncertainty_N = uncertainties(scores_NC, multi_label=False)
    pool.add(UnlabelledTexts(rows, [*map(str, rows)], uncertainty_N, vectors_NH))
    return pool.choose(f"{len(rows)} texts")


def by_gradients(scores_NC: Array, vectors_NH: Array, number: int, seed: int) -> list[int]:
    """BADGE (Ash 2020): k-means++ over the gradients of the last layer for the predicted label, outer products of
    p - y and the vector, whose distances need only (a x') . (b y') = (a . b)(x . y)."""
    errors_NC = torch.from_numpy(scores_NC).softmax(-1).numpy()
    errors_NC[np.arange(len(errors_NC)), errors_NC.argmax(1)] -= 1
    squares_N = np.square(errors_NC).sum(1) * np.square(vectors_NH).sum(1)
    rows, rng = [int(squares_N.argmax())], np.random.default_rng(seed)
    nearest_N = np.full(len(squares_N), np.inf)
    while len(rows) < number:
        last = rows[-1]
        products_N = (errors_NC @ errors_NC[last]) * (vectors_NH @ vectors_NH[last])
        nearest_N = np.minimum(nearest_N, np.maximum(squares_N + squares_N[last] - 2 * products_N, 0))
        nearest_N[rows] = 0
        rows.append(int(rng.choice(len(nearest_N), p=nearest_N / nearest_N.sum())))
    return rows


METHODS: dict[str, Choice] = {"random": at_random, "clusters": by_clusters, "gradients": by_gradients}


# --- rounds -----------------------------------------------------------------------------------------------------------


def curve(pool: Rows, test: Rows, choice: Choice, draw: int, step: int, rounds: int) -> list[float]:
    """The accuracy on test after each round. The first texts are random, the same for every method."""
    vectors_NH, labels = pool
    names = sorted({*labels.tolist()})
    classes_N = np.array([names.index(label) for label in labels.tolist()])
    labelled = np.random.default_rng(draw).permutation(len(labels))[:step].tolist()
    accuracies = []
    for number in range(rounds + 1):
        rows = torch.from_numpy(vectors_NH[labelled]), torch.from_numpy(classes_N[labelled])
        head = linear_head.fit(rows, classification_loss, len(names), score=accuracy)
        predicted = head(torch.from_numpy(test[0])).argmax(-1).tolist()
        accuracies.append(float(np.mean([names[row] == label for row, label in zip(predicted, test[1], strict=True)])))
        rest = np.setdiff1d(np.arange(len(labels)), labelled)
        scores_NC = head(torch.from_numpy(vectors_NH[rest])).numpy()
        chosen = choice(scores_NC, vectors_NH[rest], step, 1000 * draw + number)
        labelled += rest[chosen].tolist()
    return accuracies


def accuracy(scores_NC: torch.Tensor, classes_N: torch.Tensor) -> float:
    """Selects the penalty, as in fine-tuning."""
    return float((scores_NC.argmax(-1) == classes_N).float().mean())


def report(name: str, size: int, curves: dict[str, NDArray[np.float64]], step: int) -> None:
    print(f"\n{name}, pool of {size:,}\n{'labels':>6}", *(f"{method:>13}" for method in curves))
    for number in range(max(one.shape[1] for one in curves.values())):
        cells = [
            f"{100 * one[:, number].mean():6.1f} +- {100 * one[:, number].std(ddof=1):3.1f}"
            if number < one.shape[1] else " " * 13
            for one in curves.values()
        ]  # fmt: skip
        print(f"{step * (number + 1):6}", *cells)
    random = curves["random"]
    for method in [name for name in curves if name != "random"]:
        accuracies, draws = curves[method], len(random)
        gains = 100 * (accuracies - random[:, : accuracies.shape[1]])[:, -1]
        means = accuracies.mean(0)[1:]
        needed = ", ".join(labels_needed(random.mean(0), mean, step) for mean in means)
        print(
            f"{method}: with {step * accuracies.shape[1]} labels {gains.mean():+.1f} points "
            f"(standard error {gains.std(ddof=1) / draws**0.5:.1f}) over random; random needs {needed} labels for the "
            "accuracies of the rounds"
        )


def labels_needed(accuracies: Sequence[float], wanted: float, step: int) -> str:
    """The first number of labels at which the curve of random choice reaches an accuracy, between two rounds."""
    for number, (low, high) in enumerate(pairwise(accuracies), 1):
        if low < wanted <= high:
            return f"{step * (number + (wanted - low) / (high - low)):.0f}"
    return f"over {step * len(accuracies)}" if wanted > accuracies[0] else str(step)


if __name__ == "__main__":
    main()
