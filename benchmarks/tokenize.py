"""Tokenizing Wikipedia, beside `tokenizers` 0.23, `tokenizers` 1.0 and nanotoken: one core, a process each, same run.

    python -m benchmarks.tokenize [--megabytes 100] [--rounds 3] [--vocab FILE] [--cut CHARACTERS] [--checkout DIR]

Each side runs in its own process on one core with one thread, reads the paragraphs first and is then timed twice: from
loading its library and vocabulary to the last paragraph (cold), and for the same paragraphs again (warm). Sides take
turns. The other libraries have an environment each, made by pip in build/tokenize; a side that cannot be installed is
named with the reason. Ids are compared on the timed paragraphs, the fixtures of the tests, the Unicode files of
$BOTHWAYS_DATA and every code point. --checkout: `encode_many` of another checkout, as one more side:

    git worktree add --detach DIR COMMIT
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import measurements
from benchmarks.inference_side import last_line

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("BOTHWAYS_DATA", ROOT.parent / "shared" / "data"))
ENVIRONMENTS = ROOT / "build" / "tokenize"
INSTALL_SECONDS = 300
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
POINTS_PER_TEXT = 32
Answer = dict[str, Any]


@dataclass(frozen=True)
class Side:
    """A way of tokenizing.

    name: its row.
    way: its function in tokenize_side.py.
    gives: what a caller gets beside ids: of this function, and from its library.
    requirement: the other library for pip; empty for Bothways.
    checkout: the folder that Bothways is imported from.
    """

    name: str
    way: str
    gives: str
    requirement: str = ""
    checkout: Path = ROOT

    @property
    def package(self) -> str:
        return self.requirement.partition("=")[0]


ENCODE_MANY = Side("Bothways encode_many", "encode_many", "offsets, word ids, pairs, windows, training")
ENCODE_ARRAYS = Side("Bothways encode_arrays", "encode_arrays", "two arrays of ids")
OLD = "tokenizers==0.23.3"
PEERS = (
    Side("tokenizers encode_batch", "tokenizers_batch", "offsets, word ids, pairs, windows, training", OLD),
    Side("tokenizers encode_batch_fast", "tokenizers_fast", "pairs, windows, training", OLD),
    Side("tokenizers encode_batch", "tokenizers_arrays", "pairs", "tokenizers==1.0.0rc3"),
    Side("nanotoken encode_batch", "nanotoken", "two arrays of ids", "nanotoken==0.1.0"),
)


# --- texts -----------------------------------------------------------------------------------------------------------


def paragraphs(characters: int) -> list[str]:
    import pyarrow.parquet as parquet

    paragraphs: list[str] = []
    for file in sorted((DATA / "wikipedia-2015-en").glob("train-*.parquet")):
        for text in parquet.read_table(file, columns=["text"])["text"].to_pylist():
            for paragraph in filter(None, text.split("\n")):
                paragraphs.append(paragraph)
                characters -= len(paragraph)
                if characters <= 0:
                    return paragraphs
    return paragraphs


def lines(folder: Path) -> list[str]:
    """Lines of the text files of a folder that are not empty."""
    files = [*sorted(folder.glob("*.txt")), *sorted(folder.glob("*.tsv"))]
    return [line for file in files for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]


def code_points() -> Iterator[str]:
    """Every character inside a word, at both ends of one, and alone; halves of pairs (surrogates) are no characters."""
    characters = [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]
    for start in range(0, len(characters), POINTS_PER_TEXT):
        group = characters[start : start + POINTS_PER_TEXT]
        yield " ".join(f"a{character}b {character}e {character} f{character}" for character in group)


def compared_texts(timed: list[str]) -> dict[str, list[str]]:
    return {
        "fixtures of the tests": lines(ROOT / "tests" / "fixtures"),
        "lines of Unicode files": lines(DATA / "unicode"),
        "timed texts": timed,
        f"code points, {POINTS_PER_TEXT} a text": list(code_points()),
    }


# --- sides -----------------------------------------------------------------------------------------------------------


def interpreter(side: Side) -> str:
    """The Python of a side's environment, which is made first where it is missing. RuntimeError: not installed."""
    if not side.requirement:
        return sys.executable

    folder = ENVIRONMENTS / side.requirement
    done = folder / "installed"
    python = folder / "bin" / "python"
    if done.exists():
        return str(python)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--pre", side.requirement]
    try:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True, text=True)
        subprocess.run(pip, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not installed after {INSTALL_SECONDS} s") from None
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"not installed: {last_line(error.stderr or error.stdout)}") from None
    done.touch()
    return str(python)


def run_side(side: Side, files: Path, *, compare: bool) -> Answer:
    """One process of a side; `compare` also writes the digests of its ids. RuntimeError: it did not run."""
    request = {
        "way": side.way,
        "package": side.package,
        "files": str(files),
        "texts": str(files / "timed.json"),
        "compared": str(files / "compared.json") if compare else "",
        "digests": str(files / "digests.json"),
    }
    # -P: otherwise the folder of the script comes first, and tokenize.py in it would hide the standard library's.
    command = [interpreter(side), "-P", str(ROOT / "benchmarks" / "tokenize_side.py"), json.dumps(request)]
    paths = {"PYTHONPATH": "" if side.requirement else str(side.checkout.resolve())}
    done = subprocess.run(
        command, env=os.environ | ONE_THREAD | paths, cwd=files, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(last_line(done.stderr))
    answer: Answer = json.loads(done.stdout.splitlines()[-1])
    if compare:
        answer["digests"] = json.loads((files / "digests.json").read_text(encoding="utf-8"))
    return answer


def measure(sides: Sequence[Side], files: Path, rounds: int) -> dict[Side, list[Answer]]:
    """The answers of each side, a round each; sides that do not run are printed with the reason and left out."""
    answers: dict[Side, list[Answer]] = {side: [] for side in sides}
    for round_ in range(rounds):
        # Every other round goes backwards, so that a drift in the machine's speed affects all alike.
        for side in list(answers)[:: 1 if round_ % 2 == 0 else -1]:
            try:
                answers[side].append(run_side(side, files, compare=round_ == 0))
            except RuntimeError as error:
                print(f"left out: {side.name} {side.requirement} ({error})")
                del answers[side]
    return answers


# --- table -----------------------------------------------------------------------------------------------------------


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def equal_texts(digests: dict[str, list[str]], ours: dict[str, list[str]]) -> dict[str, int]:
    """On how many texts of each kind two sides have the same ids."""
    return {
        kind: sum(one == other for one, other in zip(digests[kind], expected, strict=True))
        for kind, expected in ours.items()
    }


def print_table(answers: dict[Side, list[Answer]], megabytes: float) -> None:
    ours = answers[ENCODE_MANY][0]["digests"]
    print("equal ids: " + "; ".join(f"{kind} ({len(some):,})" for kind, some in ours.items()))
    print("| | MB/s, cold | MB/s, warm | equal ids | gives |\n|---|---|---|---|---|")
    for side, rounds in answers.items():
        cold = spread([megabytes / answer["cold"] for answer in rounds])
        warm = spread([megabytes / answer["warm"] for answer in rounds])
        counts = equal_texts(rounds[0]["digests"], ours)
        equal = "; ".join("all" if count == len(ours[kind]) else f"{count:,}" for kind, count in counts.items())
        name = side.name.replace(side.package, f"{side.package} {rounds[0]['version']}") if side.package else side.name
        print(f"| {name} | {cold} | {warm} | {equal} | {side.gives} |")


def print_gain(answers: dict[Side, list[Answer]], checkout: Side, texts: int) -> None:
    """The fastest way of this checkout beside the other checkout: texts a second, and the ratios within rounds."""
    best = ENCODE_ARRAYS if ENCODE_ARRAYS in answers else ENCODE_MANY
    for kind in ("cold", "warm"):
        speeds = {side: [texts / answer[kind] for answer in answers[side]] for side in (best, checkout)}
        ratios = [new / old for new, old in zip(speeds[best], speeds[checkout], strict=True)]
        new, old = (f"{statistics.median(values):,.0f}" for values in speeds.values())
        print(f"{kind}: {best.name} {new} texts/s, {checkout.name} {old}; ratio {spread(ratios)}, target 1.5")


def commit(folder: Path) -> str:
    """The short name of a folder's commit, or the folder's name."""
    done = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or folder.name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vocab", default=str(DATA / "vocab" / "bert-base-uncased" / "vocab.txt"))
    parser.add_argument("--cut", type=int, help="read only so many characters of a paragraph: short texts")
    parser.add_argument("--checkout", type=Path, help="folder of another checkout")
    parser.add_argument("--keep", metavar="NAME", help="write the speeds to docs/measurements/NAME.json")
    options = parser.parse_args()

    import bothways

    sides = [ENCODE_MANY]
    if hasattr(bothways.Tokenizer, "encode_arrays"):
        sides.insert(0, ENCODE_ARRAYS)
    checkout = None
    if options.checkout:
        name = f"Bothways encode_many, {commit(options.checkout)}"
        checkout = Side(name, "encode_many", ENCODE_MANY.gives, checkout=options.checkout)
        sides.append(checkout)

    with tempfile.TemporaryDirectory() as temporary:
        files = Path(temporary)
        # The other libraries read the tokenizer.json that Bothways writes; 1.0 reads no vocab.txt.
        bothways.Tokenizer.load(options.vocab).save(files)
        texts = [text[: options.cut] for text in paragraphs(options.megabytes * 1_000_000)]
        (files / "timed.json").write_text(json.dumps(texts), encoding="utf-8")
        (files / "compared.json").write_text(json.dumps(compared_texts(texts)), encoding="utf-8")

        answers = measure([*sides, *PEERS], files, options.rounds)
        megabytes = sum(len(text.encode()) for text in texts) / 1e6

    tokens = answers[ENCODE_MANY][0]["tokens"]
    print(
        f"{len(texts):,} texts, {megabytes:.1f} MB, {tokens:,} tokens; median (lowest to highest) of {options.rounds}"
    )
    print_table(answers, megabytes)
    if options.keep:
        measurements.write(
            options.keep,
            {},
            model="the vocabulary of bert-base-uncased",
            measures=["bothways/core", "bothways/text/tokenizer"],
            figures={
                f"{side.name}, {kind}, MB/s": [round(megabytes / answer[kind], 2) for answer in rounds]
                for side, rounds in answers.items()
                for kind in ("cold", "warm")
            },
        )
    if checkout:
        print_gain(answers, checkout, len(texts))


if __name__ == "__main__":
    main()
