"""What starting costs: help of every verb, imports, a vocabulary, passages; against an empty interpreter.

    python -m benchmarks.start [--rounds 7]

Every command is a new process, and takes turns with `python -c ""`, so that other programs on the machine slow both.
Prints the median milliseconds of processor time (user and system, of the whole process) with the lowest and highest,
and the median ratio to the empty interpreter of the same round. The aim for help: at most twice the empty interpreter
plus 100 ms. Passages: 1,000 documents of 10 headings and paragraphs in this process, against `str.split`.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from bothways.base.device import processor_name
from bothways.cli.verbs import VERBS
from bothways.search.passages import split_passages
from bothways.text.tokenizer.tokenizer import SPECIAL_TOKENS

EMPTY = ["-c", ""]
FACTOR, ADDED = 2.0, 100.0  # of the aim for help: times the empty interpreter, and milliseconds
VOCABULARY_SIZE = 30_522
PARAGRAPH = "The fox ran over the hill and did not look back. It was cold.\n" * 8


def processor_milliseconds(arguments: Sequence[str]) -> float:
    """Of a new interpreter with these arguments."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def milliseconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - began)


def line(name: str, times: Sequence[float], ratios: Sequence[float]) -> str:
    return f"{name:28} {median(times):8.1f} ({min(times):.1f} to {max(times):.1f}) {median(ratios):6.1f}"


def commands(directory: Path) -> dict[str, list[str]]:
    """name -> arguments of the interpreter."""
    words = [f"word{number}" for number in range(VOCABULARY_SIZE - len(SPECIAL_TOKENS))]
    (directory / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *words]), encoding="utf-8")
    encode = f"import bothways; bothways.Tokenizer.load({str(directory)!r}).encode('The cats and dogs.')"
    return {
        "import bothways": ["-c", "import bothways"],
        f"{VOCABULARY_SIZE:,} words, one text": ["-c", encode],
        "load, embed one text": ["-c", "import bothways; bothways.load().embed('the cat')"],
        **{f"{verb} --help".strip(): ["-m", "bothways", *verb.split(), "--help"] for verb in ("", *VERBS)},
    }


def print_starts(rounds: int) -> None:
    print(
        f"{processor_name()}; ms of processor time, median (lowest to highest) of {rounds}; times an empty interpreter"
    )
    with tempfile.TemporaryDirectory() as directory:
        for name, arguments in commands(Path(directory)).items():
            processor_milliseconds(arguments)  # compiles what is new
            pairs = [(processor_milliseconds(arguments), processor_milliseconds(EMPTY)) for _ in range(rounds)]
            times = [one for one, _ in pairs]
            aim = median(one - FACTOR * empty - ADDED for one, empty in pairs)
            note = f"   above the aim by {aim:.0f} ms" if name.endswith("--help") and aim > 0 else ""
            print(line(name, times, [one / empty for one, empty in pairs]) + note, flush=True)


def print_passages(rounds: int) -> None:
    text = "\n\n".join(f"## Part {index}\n\n{PARAGRAPH}" for index in range(10))

    def passages() -> None:
        for _ in range(1000):
            split_passages(text, lambda part: len(part) // 5, is_markdown=True)

    def words() -> None:
        for _ in range(1000):
            text.split()

    pairs = [(milliseconds(passages), milliseconds(words)) for _ in range(rounds)]
    print(
        line("1,000 documents to passages", [one for one, _ in pairs], [one / two for one, two in pairs]) + " str.split"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    print_starts(rounds)
    print_passages(rounds)


if __name__ == "__main__":
    main()
