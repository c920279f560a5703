"""Milliseconds of decisions by the core: many options, and many questions about one text.

    python -m benchmarks.decide_speed [--model DIR] [--rounds 100]

A text of 12 words with 1 and 20 options that are new in each round (nothing of them is kept), beside the vector of the
text alone; a text of 200 words with one question of three options and with ten. The kinds alternate within a round;
printed are medians, the quartiles, and ratios of the medians within rounds.
"""

import argparse
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import bothways
from bothways.tasks.decide.questions import OneOf

WORDS = (
    "parcel delivery invoice money account password refund return broken screen happy angry manager order late early "
    "address street town price offer discount card bank transfer letter phone message answer question shop"
).split()
SHORT, LONG = 12, 200


def drawn(rng: random.Random, number: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(number))


def options(rng: random.Random, number: int) -> list[str]:
    return [f"{index} {drawn(rng, 3)}" for index in range(number)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="bothways-en")
    parser.add_argument("--rounds", type=int, default=100)
    asked = parser.parse_args(arguments)

    model = bothways.load(asked.model)
    rng = random.Random(0)
    print(f"{asked.model}, {model.backend.computed_by}")

    def questions(number: int) -> list[OneOf]:
        return [OneOf.of(options(rng, 3), drawn(rng, 4)) for _ in range(number)]

    def kinds() -> dict[str, Callable[[], object]]:
        short, long = drawn(rng, SHORT), drawn(rng, LONG)
        one, twenty, first, ten = options(rng, 1), options(rng, 20), questions(1), questions(10)
        return {
            "vector of a short text": lambda: model.embed(short),
            "1 option": lambda: model.decide(short, one),
            "20 options": lambda: model.decide(short, twenty),
            "vector of a long text": lambda: model.embed(long),
            "1 question about a long text": lambda: model.decide_each([long], first),
            "10 questions about a long text": lambda: model.decide_each([long], ten),
        }

    seconds = defaultdict(list)
    for number in range(asked.rounds + 5):
        for name, run in kinds().items():
            start = time.perf_counter()
            run()
            if number >= 5:
                seconds[name].append(time.perf_counter() - start)

    for name, values in seconds.items():
        low, middle, high = (1000 * value for value in statistics.quantiles(values, n=4))
        print(f"  {name:32} {middle:7.2f} ms ({low:.2f} to {high:.2f})")
    for one, other in (
        ("20 options", "vector of a short text"),
        ("10 questions about a long text", "1 question about a long text"),
    ):
        ratios = [a / b for a, b in zip(seconds[one], seconds[other], strict=True)]
        print(f"  {one} / {other}: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
