"""Static vectors that are fine-tuned, beside what one would write with scikit-learn on the same vectors.

    python -m benchmarks.static_start [--rows 3000] [--minutes 2] [--sets SST-2 BANKING77]

Of each set, the first rows are for training and its own test rows (SST-2: dev) for the score. The peers are fitted in
the same run: logistic regression on the vectors of `bothways.load("bothways-en-static").embed`, and on TF-IDF. Printed:
accuracy, seconds of the whole fit, and texts a second of predictions, three times each, in turn. Data: $BOTHWAYS_DATA
(default: ../shared/data).
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import bothways
from benchmarks.first_labels import load_set

STATIC = "bothways-en-static"
REPEATS = 3
Texts = list[str]
Predict = Callable[[Texts], list[str]]


def fit_static(texts: Texts, labels: list[str], directory: Path, minutes: float) -> Predict:
    rows = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
    run = bothways.finetune(rows, model=STATIC, out=directory / "run", minutes=minutes, baselines=False)
    model = run.load()
    return lambda texts: [prediction.label for prediction in model.classify(texts)]


def fit_vectors(texts: Texts, labels: list[str]) -> Predict:
    vectors = bothways.load(STATIC)
    head = LogisticRegression(max_iter=2000, C=10).fit(vectors.embed(texts), labels)
    return lambda texts: head.predict(vectors.embed(texts)).tolist()


def fit_words(texts: Texts, labels: list[str]) -> Predict:
    words = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(max_iter=2000))
    words.fit(texts, labels)
    return lambda texts: words.predict(texts).tolist()


def measure(name: str, num_rows: int, minutes: float, directory: Path) -> None:
    train, test = load_set(name)
    texts = [row["text"] for row in train[:num_rows]]
    labels = [str(row["label"]) for row in train[:num_rows]]
    test_texts = [row["text"] for row in test]

    fits = {
        "static vectors, fine-tuned": lambda: fit_static(texts, labels, directory, minutes),
        "static vectors + logistic regression": lambda: fit_vectors(texts, labels),
        "TF-IDF + logistic regression": lambda: fit_words(texts, labels),
    }
    fitted: dict[str, Predict] = {}
    seconds: dict[str, float] = {}
    for kind, fit in fits.items():
        start = time.perf_counter()
        fitted[kind] = fit()
        seconds[kind] = time.perf_counter() - start

    speeds: dict[str, list[float]] = {kind: [] for kind in fits}
    accuracy: dict[str, float] = {}
    for _ in range(REPEATS):
        for kind, predict in fitted.items():
            start = time.perf_counter()
            predicted = predict(test_texts)
            speeds[kind].append(len(test_texts) / (time.perf_counter() - start))
            right = [label == str(row["label"]) for label, row in zip(predicted, test, strict=True)]
            accuracy[kind] = sum(right) / len(right)

    print(f"{name}: {len(texts):,} rows, {len(test):,} test rows")
    for kind in fits:
        low, *_, high = sorted(speeds[kind])
        print(f"  {kind:38} {accuracy[kind]:7.2%} {seconds[kind]:7.1f} s  {low:,.0f} to {high:,.0f} texts/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["SST-2", "BANKING77"])
    parser.add_argument("--rows", type=int, default=20_000, help="of a set for training, at most")
    parser.add_argument("--minutes", type=float, default=2.0, help="of a fine-tuning")
    options = parser.parse_args()
    for name in options.sets:
        with tempfile.TemporaryDirectory() as directory:
            measure(name, options.rows, options.minutes, Path(directory))


if __name__ == "__main__":
    main()
