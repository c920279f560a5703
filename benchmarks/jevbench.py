"""JevBench: how many of its questions are answered rightly, and how many of its laws hold.

    pip install jevbench==0.1.0
    python -m benchmarks.jevbench [--model DIR] [--cases 240] [--seed 0]
    python -m benchmarks.jevbench --laws [--suite jevbench-mini] [--cases 24] [--seed 0] [--save FILE]

Answers: the questions of the cases, answered by `decide_each` and by the vectors alone. The right answers are not in
the package; its generator gives them again: cases of a domain, planned with seed 1, whose questions and thresholds are
those of the stored cases. Questions whose answer is unknown are left out. Printed by type: accuracy; of yes or no also
the area under the curve, which needs no threshold. Vectors alone: the cosine of the vectors of the state and of the
same strings that `decide_each` reads; above their median an answer is yes.

Laws (--laws): JevBench's own engine asks `bothways serve` over HTTP, in a process of its own on a free port of this
machine. A law says how the answers to a changed question follow from those to the question as it was, for instance that
a question and its negation sum to one; it holds in a test if they are at most .05 apart. Printed: the share of tests
that pass, in percent. Of a law it is over its tests, of a group or dimension the mean of its laws, and the coherence is
the mean of the five dimensions. In jevbench-240 a law has one test in each case; in jevbench-mini, whose figures are
those that are published, in 24 of the 240.
"""

import argparse
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import bothways
from benchmarks.figures.scores import auroc
from benchmarks.serving_processes import Server, Side
from bothways.inference.predictor import Predictor
from bothways.tasks.decide.questions import YES, AskedQuestion, Levels, OneOf, YesNo

SUITES = ("jevbench-240", "jevbench-mini")
SUITE = SUITES[0]
SEED = 1  # with which the cases were planned
BY_CONSTRUCTION = ("batch_", "duplicate_question", "option_permutation")  # laws of batches and of order
FEWEST_TESTS = 5  # of a law that counts
WORST = 15  # laws that are printed

# --- answers ----------------------------------------------------------------------------------------------------------


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
    criteria: Any = asked.get("criteria")
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


def print_answers(path: str, num_cases: int, seed: int) -> None:
    """The accuracy of both methods on so many cases."""
    model = bothways.load(path)
    cases = random.Random(seed).sample([*answered_cases()], num_cases)
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
            f"area under the curve of noul {auroc(scores_N[holds_N], scores_N[~holds_N]):.3f}"
        )


# --- laws -------------------------------------------------------------------------------------------------------------


def report_of_laws(path: str, suite: str, num_cases: int, seed: int) -> Any:
    """JevBench's report on a served model, of so many cases of a suite.

    SystemExit if a request failed or was refused: the laws that it tested have no figure then.
    """
    import jevbench

    whole = jevbench.load_suite(suite)
    chosen = replace(whole, cases=random.Random(seed).sample(whole.cases, num_cases))
    with Server(Side("ours", "auto", path, threads=1)) as server:
        backend = jevbench.systemone(f"http://127.0.0.1:{server.port}/v1/systemone", "model")
        fewest = min(FEWEST_TESTS, num_cases)
        report = jevbench.evaluate(backend, chosen, name=path, cache=":memory:", min_n=fewest, progress=True)

    if report.errors:
        raise SystemExit(f"{len(report.errors)} requests failed; the first: {report.errors[0]}")
    return report


def print_laws(report: Any) -> None:
    """The coherence, and the shares of tests that pass: of dimensions, groups and laws."""
    from jevbench import taxonomy

    for level in ("dimension", "group"):
        print(report.table(level))

    laws = report.relations
    batches_and_order = [share for name, share in laws.items() if name.startswith(BY_CONSTRUCTION)]
    print(f"{'laws of batches and order':35} {np.mean(batches_and_order):6.1%} (mean of {len(batches_and_order)})")

    whole = [name for name, share in laws.items() if share == 1]
    print(f"{len(whole)} of {len(laws)} laws hold in every test: {', '.join(whole)}")
    print("the laws that hold least:")
    for name, share in sorted(laws.items(), key=lambda law: law[1])[:WORST]:
        entry = taxonomy.entry(name)
        tests = report.scores["checks"][f"{name}/{entry.primary[0]}"]["n"]
        print(f"  {name:25} {share:6.1%} of {tests:3} ({entry.group}: {entry.summary})")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bothways-en")
    parser.add_argument("--cases", type=int, default=240, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--laws", action="store_true", help="laws instead of answers")
    parser.add_argument("--suite", choices=SUITES, default=SUITE, help="whose tests of laws are run")
    parser.add_argument("--save", metavar="FILE", help="where JevBench's report on the laws is written")
    options = parser.parse_args(arguments)

    if not options.laws:
        print_answers(options.model, options.cases, options.seed)
        return
    report = report_of_laws(options.model, options.suite, options.cases, options.seed)
    print_laws(report)
    if options.save:
        report.save(options.save)


if __name__ == "__main__":
    main()
