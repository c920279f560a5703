"""The questions of JevBench's cases, answered by `decide_each` and by the vectors alone.

    pip install jevbench==0.1.0
    python -m benchmarks.jevbench [--model DIR] [--cases 240]

The right answers are not in the package; its generator gives them again: cases of a domain, planned with seed 1, whose
questions and thresholds are those of the stored cases. Questions whose answer is unknown are left out. Printed by type:
accuracy; of yes or no also the area under the curve, which needs no threshold. Vectors alone: the cosine of the vectors
of the state and of the same strings that `decide_each` reads; above their median an answer is yes.
"""

import argparse
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import bothways
from bothways.inference.predictor import Predictor
from bothways.tasks.decide.questions import YES, AskedQuestion, Levels, OneOf, YesNo

SUITE = "jevbench-240"
SEED = 1  # with which the cases were planned


def answered_cases() -> Iterator[tuple[str, list[tuple[dict[str, Any], Any]]]]:
    """The state of each case, and its questions with their answers."""
    from jevbench.datagen.domains import DOMAINS
    from jevbench.datagen.sample import plan_domain
    from jevbench.suites import load_suite

    by_domain = defaultdict(list)
    for case in load_suite(SUITE).cases:
        by_domain[case.id.rsplit("-", 1)[0]].append(case)

    domains = DOMAINS.values() if isinstance(DOMAINS, Mapping) else DOMAINS
    for domain in domains:
        cases = by_domain[domain.name]
        number = max(int(case.id.rsplit("-", 1)[1]) for case in cases)
        plans = {plan["id"]: plan for plan in plan_domain(domain, number, SEED)}
        for case in cases:
            plan = plans[case.id]
            if not is_same(case.questions, plan["questions"]):
                raise SystemExit(f"{case.id}: the generator has other questions; another version of jevbench?")
            gold = plan["gold"]
            yield case.state, [(asked, gold[name]) for name, asked in case.questions.items() if gold[name] != "unknown"]


def is_same(stored: Mapping[str, Any], planned: Mapping[str, Any]) -> bool:
    """Whether these are the same questions, whatever the order of their options."""

    def kept(questions: Mapping[str, Any]) -> dict[str, Any]:
        return {name: (asked["instructions"], sorted(asked.get("criteria") or [])) for name, asked in questions.items()}

    return kept(stored) == kept(planned)


def as_question(asked: Mapping[str, Any]) -> AskedQuestion:
    criteria = asked.get("criteria")
    if asked["type"] == "noul":
        return YesNo(asked["instructions"])
    if asked["type"] == "choice":
        options = {name: description or name for name, description in criteria.items()}
        return OneOf.of(options, asked["instructions"], none=False)
    return Levels(tuple(criteria), asked["instructions"])


def answers_of_vectors(model: Predictor, state: str, questions: Sequence[AskedQuestion]) -> list[np.ndarray]:
    """The cosine of each statement of each question."""
    vector = model.embed(state)
    return [model.embed([*question.statements]) @ vector for question in questions]


def area(scores: np.ndarray, holds: np.ndarray) -> float:
    """The share of pairs of a right and a wrong statement that are in order."""
    pairs = scores[holds][:, None] - scores[~holds]
    return float((pairs > 0).mean() + (pairs == 0).mean() / 2)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="bothways-en")
    parser.add_argument("--cases", type=int, default=240)
    options = parser.parse_args(arguments)

    model = bothways.load(options.model)
    cases = random.Random(0).sample([*answered_cases()], options.cases)
    right: dict[tuple[str, str], list[bool]] = defaultdict(list)
    yes: dict[str, list[float]] = defaultdict(list)
    holds: list[bool] = []

    for state, asked in cases:
        questions = [as_question(question) for question, _ in asked]
        decisions = model.decide_each([state], questions)[0]
        cosines = answers_of_vectors(model, state, questions)
        for (question, gold), decision, cosines_K in zip(asked, decisions, cosines, strict=True):
            kind = question["type"]
            if kind == "noul":
                holds.append(bool(gold))
                yes["decide"].append(decision.probabilities[YES])
                yes["vectors alone"].append(float(cosines_K[0]))
                continue
            names = [*question["criteria"]]
            expected = gold if kind == "choice" else names[int(gold)]
            right["decide", kind].append(decision.label == expected)
            right["vectors alone", kind].append(names[int(cosines_K.argmax())] == expected)

    holds_N = np.array(holds)
    for method, scores in yes.items():
        scores_N = np.array(scores)
        middle = 0.5 if method == "decide" else float(np.median(scores_N))
        right[method, "noul"] = ((scores_N > middle) == holds_N).tolist()
        everything = [value for (name, _), values in right.items() if name == method for value in values]
        parts = [
            f"{kind} {np.mean(values):.1%} ({len(values)})" for (name, kind), values in right.items() if name == method
        ]
        print(
            f"{method:14} {np.mean(everything):.1%} of {len(everything):,}: {', '.join(parts)}; "
            f"area under the curve of noul {area(scores_N, holds_N):.3f}"
        )


if __name__ == "__main__":
    main()
