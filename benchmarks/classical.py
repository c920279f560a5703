"""Simple models side by side: TF-IDF, static vectors, the packaged model and MiniLM-L6, without fine-tuning.

    python -m benchmarks.classical [--draws 5] [--keep]

SST-2: accuracy on dev of a logistic regression on vectors of 500 training rows, and of 8 rows a class; means over
draws, with their standard deviation. STS-B test: Spearman of the cosine, without training. The penalty is chosen by
cross-validation on the training rows.

--keep: labels and cosines are kept in docs/measurements; benchmarks/figures/classical.py computes the table from them.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegressionCV

import bothways
from benchmarks import measurements
from benchmarks.embedding_students import sts_benchmark
from benchmarks.figures.classical import figures
from benchmarks.inference_texts import DATA, minilm
from bothways.model.linear.sparse import Csr
from bothways.model.linear.tfidf import Tfidf

STRENGTHS = np.logspace(-2, 3, 11)
TERMS = 50_000


def sst2(split: str) -> tuple[list[str], np.ndarray]:
    rows = (DATA / "glue" / "SST-2" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]
    texts, labels = zip(*(row.rsplit("\t", 1) for row in rows), strict=True)
    return list(texts), np.array(labels, int)


def predicted(train: Any, targets: np.ndarray, dev: Any) -> np.ndarray:
    folds = min(5, int(np.bincount(targets).min()))
    model = LogisticRegressionCV(
        Cs=STRENGTHS, cv=folds, max_iter=2000, scoring="neg_log_loss", l1_ratios=(0,), use_legacy_attributes=False
    )
    return np.asarray(model.fit(train, targets).predict(dev), np.int8)


def as_scipy(rows: Csr) -> csr_matrix:
    return csr_matrix((rows.data, rows.indices, rows.indptr), shape=rows.shape)


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
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    texts, targets = sst2("train")
    dev, gold = sst2("dev")
    first, second, scores = sts_benchmark()
    similarity = np.array(scores, np.float32)
    embedders: dict[str, Callable[[Sequence[str]], np.ndarray]] = {
        "bothways-en-static": bothways.load("bothways-en-static").embed,
        "bothways-en": bothways.load().embed,
        "MiniLM-L6": bothways.load(minilm()).embed,
    }
    arrays: dict[str, np.ndarray] = {"gold": gold.astype(np.int8), "similarity": similarity}
    for name in ("TF-IDF", *embedders):
        dev_NH = None if name == "TF-IDF" else embedders[name](dev)
        for number, balanced in ((500, False), (8, True)):
            answers = []
            for seed in range(options.draws):
                rows = draw(targets, number, seed, balanced)
                chosen = [texts[row] for row in rows]
                if dev_NH is None:
                    tfidf, train = Tfidf.learn(chosen, TERMS)
                    answers.append(predicted(as_scipy(train), targets[rows], as_scipy(tfidf(dev))))
                else:
                    answers.append(predicted(embedders[name](chosen), targets[rows], dev_NH))
            arrays[f"{name}/{number}"] = np.stack(answers)

        if name == "TF-IDF":
            vectors = TfidfVectorizer(sublinear_tf=True).fit([*first, *second])
            cosines = np.asarray(vectors.transform(first).multiply(vectors.transform(second)).sum(1)).ravel()
        else:
            cosines = (embedders[name](first) * embedders[name](second)).sum(1)
        arrays[f"{name}/cosines"] = cosines.astype(np.float32)

    measurement = measurements.write(
        "classical",
        arrays,
        model=", ".join(("TF-IDF", *embedders)),
        seeds=range(options.draws),
        folder=measurements.FOLDER if options.keep else None,
    )
    print("\n".join(figures(measurement).tables["models"]))


if __name__ == "__main__":
    main()
