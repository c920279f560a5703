"""Simple models side by side: TF-IDF, static vectors, the packaged model and MiniLM-L6, without fine-tuning.

    python -m benchmarks.classical [--draws 5]

SST-2: accuracy on dev of a logistic regression on vectors of 500 training rows, and of 8 rows a class; means over
draws, with their standard deviation. STS-B test: Spearman of the cosine, without training. The penalty is chosen by
cross-validation on the training rows.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegressionCV

import bothways
from benchmarks.embedding_students import sts_benchmark
from benchmarks.inference_texts import DATA, minilm
from bothways.model.linear.tfidf import Tfidf

STRENGTHS = np.logspace(-2, 3, 11)
TERMS = 50_000


def sst2(split: str) -> tuple[list[str], np.ndarray]:
    rows = (DATA / "glue" / "SST-2" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]
    texts, labels = zip(*(row.rsplit("\t", 1) for row in rows), strict=True)
    return list(texts), np.array(labels, int)


def accuracy(train: Any, targets: np.ndarray, dev: Any, gold: np.ndarray) -> float:
    folds = min(5, int(np.bincount(targets).min()))
    model = LogisticRegressionCV(
        Cs=STRENGTHS, cv=folds, max_iter=2000, scoring="neg_log_loss", l1_ratios=(0,), use_legacy_attributes=False
    )
    return float((model.fit(train, targets).predict(dev) == gold).mean())


def draw(targets: np.ndarray, number: int, seed: int, balanced: bool) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if not balanced:
        return generator.choice(len(targets), number, replace=False)
    return np.concatenate(
        [generator.choice(np.flatnonzero(targets == label), number, replace=False) for label in (0, 1)]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=5)
    options = parser.parse_args()
    texts, targets = sst2("train")
    dev, gold = sst2("dev")
    first, second, similarity = sts_benchmark()
    embedders: dict[str, Callable[[Sequence[str]], np.ndarray]] = {
        "static, bothways-en-static": bothways.load("bothways-en-static").embed,
        "bothways-en": bothways.load().embed,
        "MiniLM-L6": bothways.load(minilm()).embed,
    }
    print(f"{'':28} SST-2, 500 rows    8 rows a class     STS-B test")
    for name in ("TF-IDF", *embedders):
        cells = []
        for number, balanced in ((500, False), (8, True)):
            scores = []
            for seed in range(options.draws):
                rows = draw(targets, number, seed, balanced)
                chosen = [texts[row] for row in rows]
                if name == "TF-IDF":
                    tfidf, train = Tfidf.learn(chosen, TERMS)
                    features = tfidf(dev)
                else:
                    train, features = embedders[name](chosen), embedders[name](dev)
                scores.append(100 * accuracy(train, targets[rows], features, gold))
            cells.append(f"{np.mean(scores):5.1f} +- {np.std(scores, ddof=1):3.1f}")
        if name == "TF-IDF":
            vectors = TfidfVectorizer(sublinear_tf=True).fit([*first, *second])
            cosines = np.asarray(vectors.transform(first).multiply(vectors.transform(second)).sum(1)).ravel()
        else:
            cosines = (embedders[name](first) * embedders[name](second)).sum(1)
        print(f"{name:28} {cells[0]:18} {cells[1]:18} {spearmanr(cosines, similarity)[0]:.3f}", flush=True)


if __name__ == "__main__":
    main()
