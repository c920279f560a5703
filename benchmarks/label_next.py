"""Labels saved by `predict --label-next`: accuracy by number of labels, for texts chosen at random and by two methods.

    python -m benchmarks.label_next [--sets SST-2 IMDb ACL-ARC] [--draws 10] [--cache DIR] [--keep]

A logistic head on frozen vectors of MiniLM-L6; 20 random labels, then five rounds in which 20 texts of a pool of at
most 3,000 are labelled and the head is fitted again. clusters: what `--label-next` does, k-means of the most uncertain
texts (bothways/inference/active_learning.py). gradients: BADGE. Random choice goes on to three times as many labels, so
that the number that it needs for the same accuracy can be read off its mean curve, interpolated linearly.

--keep: which test rows are right is kept in docs/measurements; benchmarks/figures/label_next.py computes the table from
that. Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import bothways
from benchmarks import measurements
from benchmarks.figures.label_next import STEP, figures
from benchmarks.finetune_scores import minilm
from benchmarks.finetune_sets import SETS, rows_of, sample_rows
from bothways.inference.active_learning import CandidatePool, UnlabelledTexts, uncertainties
from bothways.model.linear import linear_head
from bothways.model.losses import classification_loss

POOL, TEST, LEAST_TEST = 3000, 1000, 600  # rows
ROUNDS = 5  # after the first labels
LONGER = 3  # times as many rounds of random choice
Array = NDArray[np.float32]
Rows = tuple[Array, NDArray[np.str_]]  # vectors [N, H] and labels
Choice = Callable[[Array, Array, int, int], list[int]]  # (scores [N, C], vectors [N, H], number, seed) -> rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["SST-2", "IMDb", "ACL-ARC"])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "label-next")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)

    arrays: dict[str, np.ndarray] = {}
    pools = {}
    for name in options.sets:
        pool, test = data_of(name, options.cache)
        pools[name] = len(pool[1])
        for method, choice in METHODS.items():
            rounds = ROUNDS * (LONGER if method == "random" else 1)
            draws = [curve(pool, test, choice, draw, rounds) for draw in range(options.draws)]
            arrays[f"{name}/{method}"] = np.stack(draws)
        print(f"{name}: done", flush=True)

    measurement = measurements.write(
        "label-next",
        arrays,
        model="linear heads on frozen vectors of all-MiniLM-L6-v2",
        seeds=range(options.draws),
        folder=measurements.FOLDER if options.keep else None,
        pools=pools,
    )
    for table in figures(measurement).tables.values():
        print("\n".join(["", *table]))


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


def curve(pool: Rows, test: Rows, choice: Choice, draw: int, rounds: int) -> np.ndarray:
    """Which test rows are right after each round, bool [rounds + 1, N]. The first texts are random, the same for every
    method."""
    vectors_NH, labels = pool
    names = sorted({*labels.tolist()})
    classes_N = np.array([names.index(label) for label in labels.tolist()])
    labelled = np.random.default_rng(draw).permutation(len(labels))[:STEP].tolist()
    right = []
    for number in range(rounds + 1):
        rows = torch.from_numpy(vectors_NH[labelled]), torch.from_numpy(classes_N[labelled])
        head = linear_head.fit(rows, classification_loss, len(names), score=accuracy)
        predicted = head(torch.from_numpy(test[0])).argmax(-1).tolist()
        right.append([names[row] == label for row, label in zip(predicted, test[1], strict=True)])
        rest = np.setdiff1d(np.arange(len(labels)), labelled)
        scores_NC = head(torch.from_numpy(vectors_NH[rest])).numpy()
        chosen = choice(scores_NC, vectors_NH[rest], STEP, 1000 * draw + number)
        labelled += rest[chosen].tolist()
    return np.array(right)


def accuracy(scores_NC: torch.Tensor, classes_N: torch.Tensor) -> float:
    """Selects the penalty, as in fine-tuning."""
    return float((scores_NC.argmax(-1) == classes_N).float().mean())


if __name__ == "__main__":
    main()
