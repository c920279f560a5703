"""Options named when one asks, without training: `decide` beside the vectors alone and the most frequent answer.

    python -m benchmarks.decide [--model DIR] [--sets SST-2 support ...] [--rows 1000] [--keep]

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np

import bothways
from benchmarks import measurements
from benchmarks.figures import decide as decide_figures
from bothways.inference.predictor import Predictor

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
COSINE_SCALE = 20.0


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


def measure(model: Predictor, name: str, number: int) -> dict[str, np.ndarray]:
    """The right option of each text of a set, and the probabilities of the options by both methods."""
    rows = SETS[name]().sample(number)
    arrays = {
        f"{name}/gold": measurements.codes(rows.labels, rows.options),
        f"{name}/vectors": by_vectors(model, rows).astype(np.float32),
    }
    start = time.monotonic()
    arrays[f"{name}/decide"] = decided(model, rows).astype(np.float32)
    seconds = time.monotonic() - start
    print(f"{name}: {1000 * seconds / len(rows.texts):.1f} ms a text", flush=True)
    return arrays


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="bothways-en")
    parser.add_argument("--sets", nargs="+", default=[*SETS], choices=SETS)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--keep", action="store_true", help="write the probabilities to docs/measurements")
    options = parser.parse_args(arguments)

    model = bothways.load(options.model)
    print(f"{options.model}, {model.backend.computed_by}")
    arrays: dict[str, np.ndarray] = {}
    for name in options.sets:
        arrays |= measure(model, name, options.rows)
    folder = measurements.FOLDER if options.keep else None
    measurement = measurements.write("decide", arrays, model=options.model, seeds=[0], folder=folder)
    print("\n".join(decide_figures.figures(measurement).tables["sets"]))


if __name__ == "__main__":
    main()
