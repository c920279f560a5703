"""Compares the results of two checkouts of this repository, bit by bit: a safety net for changes of structure.

    python -m tools.same_results BEFORE AFTER [--work DIR] [--only SECTION ...] [--tolerance X]

BEFORE and AFTER are directories of checkouts. Of each, small seeded runs of the command line, of `bothways.load` and of
the server write their results, each section in a process with PYTHONPATH set to the checkout and with one thread.
Compared are: exit status and output of each command; of each file that it writes, rows (.jsonl, .csv, metrics), keys
and values (.json), vectors (.npy), or the SHA-256 (.safetensors, others, and files of more than 100 kB); what the
methods of loaded models return; status and body of each HTTP answer. Left out are times, memory, versions, dates,
places, pictures, the report page, and the state in training checkpoints that is not a tensor.

Prints `same` for each section, or its first differences with both values, at most 20 lines; the exit status is 1 if
anything differs. `--tolerance X` treats numbers of the sections use, python and server as equal that differ by at most
X. Losses, scores of runs and weights are always compared exactly.

Results are kept in DIR, by commit, changes that are not committed, and this program, so that a checkout that has not
changed is not run again; without --work they are deleted. A checkout needs no copy of this program: the one that runs
is used for both, with the Python that runs it.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.same_results.compare import report
from tools.same_results.data import write_data
from tools.same_results.plan import LIMIT, NEEDED

# Runs a section: this program from its own place, which is then forgotten, and bothways from the checkout.
CHILD = """
import sys
place, section = sys.argv[1:]
sys.path.insert(0, place)
from tools.same_results.sections import run_section
sys.path.remove(place)
run_section(section)
"""


def state(checkout: Path) -> str:
    """A hash of the tree: commit, changes that are not committed, new files, and this program."""

    def git(*arguments: str) -> bytes:
        done = subprocess.run(["git", *arguments], cwd=checkout, capture_output=True, check=False)
        if done.returncode:
            raise SystemExit(f"{checkout}: not a checkout: {done.stderr.decode().strip()}")
        return done.stdout

    parts = [
        *(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py"))),
        sys.executable.encode(),
        git("rev-parse", "HEAD"),
        git("diff", "HEAD", "--binary"),
    ]
    for name in git("ls-files", "--others", "--exclude-standard", "-z").split(b"\0"):
        if name and (path := checkout / os.fsdecode(name)).is_file():
            parts += [name, path.read_bytes()]
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]


def results_of(checkout: Path, sections: Sequence[str], work: Path) -> dict[str, Any]:
    """Results by section. Sections that are in the directory of this state of the checkout are not run again."""
    place = work / state(checkout)
    if not (place / "documents").exists():
        place.mkdir(parents=True, exist_ok=True)
        write_data(place)
    for section in sections:
        if not (place / f"{section}.json").exists():
            began = time.monotonic()
            print(f"{checkout.name}: {section}", flush=True)
            run_in(checkout, place, section)
            print(f"{checkout.name}: {section} took {time.monotonic() - began:.0f} s", flush=True)
    return {section: json.loads((place / f"{section}.json").read_text(encoding="utf-8")) for section in sections}


def run_in(checkout: Path, place: Path, section: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BOTHWAYS_")}
    environment |= {"PYTHONPATH": str(checkout), "SAME_RESULTS_CHECKOUT": str(checkout), "OMP_NUM_THREADS": "1"}
    environment |= {"PYTHONHASHSEED": "0", "BOTHWAYS_CACHE": str(place / "cache"), "COLUMNS": "120", "NO_COLOR": "1"}
    environment |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}

    with (place / f"{section}.log").open("w", encoding="utf-8") as log:
        child = [sys.executable, "-P", "-c", CHILD, str(Path(__file__).resolve().parents[2]), section]
        done = subprocess.run(
            child,
            cwd=place,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=LIMIT,
            check=False,
        )

    if done.returncode:
        end = (place / f"{section}.log").read_text(encoding="utf-8", errors="replace")[-3000:]
        raise SystemExit(f"{checkout}: {section} ended with status {done.returncode}:\n{end}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, metavar="BEFORE")
    parser.add_argument("after", type=Path, metavar="AFTER")
    parser.add_argument("--work", type=Path, metavar="DIR")
    parser.add_argument("--only", nargs="+", choices=NEEDED, default=[*NEEDED], metavar="SECTION")
    parser.add_argument("--tolerance", type=float, default=0.0, metavar="X")
    options = parser.parse_args()

    wanted = {*options.only}.union(*(NEEDED[section] for section in options.only))
    needed = [section for section in NEEDED if section in wanted]

    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or Path(temporary)).resolve()
        results = [results_of(one.resolve(), needed, work) for one in (options.before, options.after)]

    before, after = ({section: one[section] for section in needed if section in options.only} for one in results)
    lines, all_same = report(before, after, options.tolerance)
    print("\n".join(lines))
    return int(not all_same)


if __name__ == "__main__":
    sys.exit(main())
