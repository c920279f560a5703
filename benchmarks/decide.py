"""Options named when one asks, without training: `decide` beside the vectors alone and the most frequent answer.

    python -m benchmarks.decide [--model DIR] [--sets SST-2 support ...] [--rows 1000]

The head has seen none of these sets. Names of options are those of the set, with spaces for underscores; the question
is a line in this file, and was not chosen by its score. Vectors alone: the cosine of the vectors of text and option
(with the question: the same strings as `decide` reads), 20 times the cosine as log-odds. Printed: accuracy with its
95 % interval, calibration error (10 bins), and for `decide` the share of texts that could be automated at 5 % error:
the largest share of the most certain answers of which at least 95 % are right. Data: $BOTHWAYS_DATA (default:
../shared/data).
"""

import argparse
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np

import bothways
from bothways.inference.predictor import Predictor

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
COSINE_SCALE = 20.0
RESAMPLES = 2000
ALLOWED_ERROR = 0.05
BINS = 10


@dataclass(frozen=True)
class LabelSet:
    """Texts with the right option of each. question: read before the options."""

    texts: list[str]
    labels: list[str]
    question: str

    @property
    def options(self) -> list[str]:
        return sorted({*self.labels})

    def sample(self, rows: int) -> "LabelSet":
        order = random.Random(0).sample(range(len(self.texts)), min(rows, len(self.texts)))
        return LabelSet([self.texts[row] for row in order], [self.labels[row] for row in order], self.question)


def named(label: str) -> str:
    """The name of an option: "CompareOrContrast" and "card_arrival" in words."""
    spaced = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in label)
    return spaced.replace("_", " ").strip()


def sst2() -> LabelSet:
    lines = (DATA / "glue/SST-2/dev.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    names = {"0": "negative", "1": "positive"}
    return LabelSet([text.strip() for text, _ in rows], [names[label] for _, label in rows], "The sentiment is")


def support() -> LabelSet:
    lines = files("bothways.sample").joinpath("support.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return LabelSet([row["text"] for row in rows], [named(row["label"]) for row in rows], "")


def acl_arc() -> LabelSet:
    rows = [
        json.loads(line)
        for part in ("dev", "test")
        for line in (DATA / f"scientific/acl-arc/{part}.txt").read_text(encoding="utf-8").splitlines()
    ]
    return LabelSet([row["text"] for row in rows], [named(row["label"]) for row in rows], "")


def clinc_domains() -> LabelSet:
    domains = json.loads((DATA / "clinc150/domains.json").read_text(encoding="utf-8"))
    domain_of = {intent: named(domain) for domain, intents in domains.items() for intent in intents}
    rows = json.loads((DATA / "clinc150/data_full.json").read_text(encoding="utf-8"))["test"]
    return LabelSet([text for text, _ in rows], [domain_of[intent] for _, intent in rows], "")


SETS: dict[str, Callable[[], LabelSet]] = {
    "SST-2": sst2,
    "support": support,
    "ACL-ARC": acl_arc,
    "CLINC150 domains": clinc_domains,
}


def decided(model: Predictor, rows: LabelSet) -> np.ndarray:
    """The probability of each option for each text, one of which must be chosen, [N, C]."""
    decisions = model.decide(rows.texts, rows.options, question=rows.question, none=False)
    return np.array([[decision.probabilities[name] for name in rows.options] for decision in decisions])


def by_vectors(model: Predictor, rows: LabelSet) -> np.ndarray:
    options = model.embed([f"{rows.question} {name}".strip() for name in rows.options])
    scores_NC = COSINE_SCALE * model.embed(rows.texts) @ options.T
    powers_NC = np.exp(scores_NC - scores_NC.max(1, keepdims=True))
    return powers_NC / powers_NC.sum(1, keepdims=True)


def calibration_error(best_N: np.ndarray, right_N: np.ndarray) -> float:
    """The mean difference of confidence and accuracy over bins of confidence, weighted by their texts."""
    bin_N = np.minimum((best_N * BINS).astype(int), BINS - 1)
    parts = [bin_N == number for number in range(BINS)]
    return float(sum(abs(best_N[part].mean() - right_N[part].mean()) * part.mean() for part in parts if part.any()))


def automated(best_N: np.ndarray, right_N: np.ndarray) -> float:
    """The largest share of the most certain answers of which at most ALLOWED_ERROR are wrong."""
    order = np.argsort(-best_N, kind="stable")
    errors = (~right_N[order]).cumsum() / np.arange(1, len(order) + 1)
    allowed = np.flatnonzero(errors <= ALLOWED_ERROR)
    return float((allowed[-1] + 1) / len(order)) if len(allowed) else 0.0


def report(name: str, rows: LabelSet, probabilities_NC: np.ndarray) -> None:
    right_N = np.array(rows.options)[probabilities_NC.argmax(1)] == np.array(rows.labels)
    best_N = probabilities_NC.max(1)
    draws = np.random.default_rng(0).integers(0, len(right_N), (RESAMPLES, len(right_N)))
    low, high = np.percentile(right_N[draws].mean(1), [2.5, 97.5])
    print(
        f"  {name:16} {right_N.mean():6.1%} ({low:.1%} to {high:.1%}), calibration error "
        f"{calibration_error(best_N, right_N):.3f}, {automated(best_N, right_N):.0%} at 5 % error",
        flush=True,
    )


def measure(model: Predictor, name: str, number: int) -> None:
    rows = SETS[name]().sample(number)
    most = Counter(rows.labels).most_common(1)[0][1] / len(rows.labels)
    print(f"{name}: {len(rows.texts)} texts, {len(rows.options)} options; most frequent {most:.1%}")
    report("vectors alone", rows, by_vectors(model, rows))

    start = time.monotonic()
    probabilities_NC = decided(model, rows)
    seconds = time.monotonic() - start
    report("decide", rows, probabilities_NC)
    print(f"  {1000 * seconds / len(rows.texts):.1f} ms a text")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="bothways-en")
    parser.add_argument("--sets", nargs="+", default=[*SETS], choices=SETS)
    parser.add_argument("--rows", type=int, default=1000)
    options = parser.parse_args(arguments)

    model = bothways.load(options.model)
    print(f"{options.model}, {model.backend.computed_by}")
    for name in options.sets:
        measure(model, name, options.rows)


if __name__ == "__main__":
    main()
