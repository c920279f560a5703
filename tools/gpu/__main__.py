"""Checks and measures Bothways on a GPU in eight minutes: `make gpu`.

    python -m tools.gpu -o DIR [--wheels DIR] [--minutes 8] [--steps machine correct ...] [--small]

Uses the PyTorch of this Python. Other packages that are missing are installed beside it, into DIR/site, from the wheels
of `make gpu-wheels`; nothing else is changed. Each step (steps.py) is a process with a time limit. What it has measured
is in DIR/gpu.json at once, so a step that fails or is stopped costs only what it has not measured yet. At the end
DIR/gpu.md is the section of docs/RESULTS.md. `--small` is a dry run: small sizes, on the CPU if there is no GPU.

    BOTHWAYS_TORCHES=/envs/a/bin/python:/envs/b/bin/python python -m tools.gpu -o DIR --steps pretraining

The variable names Pythons with other versions of PyTorch. Pre-training is then measured with each of them instead of
this one, in a process of its own, one after another; the page has their tokens per second side by side.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tools.gpu.page import page

ROOT = Path(__file__).parent.parent.parent
WHEELS = Path(__file__).parent / "wheels.txt"
LIMITS = {  # seconds of each step, in order; the checks come first
    "machine": 40,
    "correct": 150,
    "numerics": 45,
    "pretraining": 110,
    "embedding": 165,
    "feeding": 35,
}
LEAST = 10  # seconds without which no step is begun
TORCHES = "BOTHWAYS_TORCHES"  # environment variable: paths of Pythons, separated by colons


def missing_packages(required: list[str]) -> list[str]:
    """Those of `name==version` whose package this Python does not have in any version."""
    return [line for line in required if not has_package(line.partition("==")[0])]


def has_package(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def required_packages() -> list[str]:
    return [line for line in WHEELS.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def install(wheels: Path | None, site: Path) -> None:
    """Install the missing packages into `site`, from wheels alone. Exits with the way out if one is not there."""
    if not (missing := missing_packages(required_packages())):
        return
    names = [line.partition("==")[0].replace("-", "_").lower() for line in missing]
    found = {file.name.split("-")[0].lower(): file for file in wheels.glob("*.whl")} if wheels else {}
    if absent := [line for line, name in zip(missing, names, strict=True) if name not in found]:
        names = ", ".join(absent)
        sys.exit(f"error: {names}: missing; pip install them, or make gpu-wheels where there is a network")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-compile",
        "--upgrade",
    ]
    command += ["--target", str(site), *(str(found[name]) for name in names)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2].removeprefix("ERROR: ")
        sys.exit(f"error: the wheels in {wheels} (Python 3.12, Linux, x86-64) cannot be installed: {reason}")


def gpu_problem(environment: dict[str, str]) -> str:
    """Why this Python cannot use a GPU; "" if it can."""
    code = "import torch; from bothways.base.device import cuda_problem; print(cuda_problem())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    return (done.stderr if done.returncode else done.stdout).strip().rpartition("\n")[2]


def run_step(name: str, out: Path, seconds: float, environment: dict[str, str], command: list[str]) -> dict[str, Any]:
    """What the command of a step has written to OUT/NAME.json, with `seconds` and, if it did not end well, `error`."""
    began, file, log = time.monotonic(), out / f"{name}.json", out / f"{name}.log"
    file.unlink(missing_ok=True)
    error = ""
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            if process.wait(seconds):
                error = f"exit status {process.returncode}: {last_line(log)}"
        except subprocess.TimeoutExpired:
            error = f"stopped after {seconds:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with the processes that it has started
                process.wait()
    figures: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.unlink(missing_ok=True)
    return {**figures, "seconds": round(time.monotonic() - began, 1), **({"error": error} if error else {})}


def last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "no output"


def pythons_of(name: str) -> list[str]:
    """The Pythons that run a step: this one, or for pre-training those that the environment names."""
    named = [path for path in os.environ.get(TORCHES, "").split(":") if path]
    return named if named and name == "pretraining" else [sys.executable]


def measure(name: str, options: argparse.Namespace, end: float, environment: dict[str, str]) -> list[dict[str, Any]]:
    """The figures of a step, of each Python that runs it, in the time that is left until `end`."""
    out = options.out.resolve()
    results: list[dict[str, Any]] = []
    for number, python in enumerate(pythons_of(name), 1):
        seconds = min(LIMITS[name], end - time.monotonic())
        if seconds < LEAST:
            results.append({"error": "left out: no time"})
            continue

        # Each has files of its own, so that no log is lost.
        file = name if number == 1 else f"{name}-{number}"
        print(f"{file} ...", flush=True)
        command = [python, "-m", "tools.gpu.steps", name, str(out / f"{file}.json")]
        if options.small:
            command.append("--small")
        results.append(run_step(file, out, seconds, environment, command))
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--steps", nargs="+", choices=LIMITS, default=[*LIMITS])
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    end, out = time.monotonic() + 60 * options.minutes, options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": f"{out / 'site'}{os.pathsep}{ROOT}", "PYTHONUNBUFFERED": "1"}
    environment |= {"TOKENIZERS_PARALLELISM": "true", "HF_HUB_OFFLINE": "1"}
    if not options.small and (problem := gpu_problem(environment)):
        sys.exit(f"error: {sys.executable} cannot use a GPU: {problem}; --small is a dry run without one")
    if absent := [path for path in pythons_of("pretraining") if not os.access(path, os.X_OK)]:
        sys.exit(f"error: {TORCHES}: {', '.join(absent)}: no such program")
    install(options.wheels, out / "site")
    steps: dict[str, Any] = {}
    results: dict[str, Any] = {"date": date.today().isoformat(), "small": options.small, "steps": steps}
    for name in options.steps:
        measured = measure(name, options, end, environment)
        steps[name] = measured[0]
        if name == "pretraining" and os.environ.get(TORCHES):
            results["torches"] = measured
        (out / "gpu.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (out / "gpu.md").write_text(page(results), encoding="utf-8")
    print(page(results))
    failed = [f"{name}: {step['error']}" for name, step in steps.items() if "error" in step]
    others = results.get("torches", [])[1:]
    failed += [f"pretraining-{number}: {run['error']}" for number, run in enumerate(others, 2) if "error" in run]
    if failed:
        print("\n".join(["not finished:", *failed]), file=sys.stderr)
    return int(bool(failed) or bool(steps.get("correct", {}).get("failed")))


if __name__ == "__main__":
    sys.exit(main())
