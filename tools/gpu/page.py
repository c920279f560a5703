"""The section "On a GPU" of docs/RESULTS.md, from the figures of `python -m tools.gpu`.

python -m tools.gpu.page FIGURES.json docs/RESULTS.md    # replaces the section there
"""

import json
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- make gpu: begin -->", "<!-- make gpu: end -->"
Step = Mapping[str, Any]


def page(results: Mapping[str, Any]) -> str:
    """The section as Markdown. A figure that was not measured is named as such, with the reason."""
    steps: Mapping[str, Step] = results["steps"]
    parts = [*machine(results, steps.get("machine", {})), *correct(steps.get("correct")), *numerics(steps)]
    parts += [*pretraining(steps.get("pretraining", {})), *torches(results.get("torches", []))]
    parts += embedding(steps.get("embedding", {}))
    parts += [*feeding(steps.get("feeding", {}))]
    left = [f"- {name}: {step['error']}" for name, step in steps.items() if "error" in step]
    parts += ["", "Not finished:", "", *left] if left else []
    return "\n".join(map(wrapped, parts)) + "\n"


def wrapped(line: str) -> str:
    """A line of text or of a list in lines of at most 100 characters; rows of tables stay as they are."""
    indent = "  " if line.startswith("- ") else ""
    options = {"break_long_words": False, "break_on_hyphens": False}
    return line if line.startswith("|") else textwrap.fill(line, 100, subsequent_indent=indent, **options)


def machine(results: Mapping[str, Any], step: Step) -> Iterator[str]:
    dry = "A dry run with small sizes, which says nothing about speed. " if results["small"] else ""
    yield f"{dry}`make gpu`, {results['date']}."
    yield ""
    names = {
        "device": "device", "driver": "driver, power limit", "torch": "torch", "cuda": "CUDA", "python": "Python",
        "processor": "processor", "cores": "cores", "gigabytes": "memory, GB",
        "teraflops_bfloat16": "matrix products in bf16, TFLOP/s", "teraflops_float16": "in fp16",
        "teraflops_float32": "in float32", "copied_gigabytes_per_second": "copy, GB/s read and written",
    }  # fmt: skip
    yield from table(["machine", ""], [[label, number(step[key])] for key, label in names.items() if step.get(key)])


def correct(step: Step | None) -> Iterator[str]:
    if step is None or "passed" not in step:
        yield from ("", "Tests marked `gpu`: not run.")
        return
    skipped = sum(step["skipped"].values())
    yield ""
    yield f"Tests marked `gpu`: {step['passed']} passed, {step['failed']} failed, {skipped} skipped."
    yield from (f"- failed: {failure}" for failure in step["failures"])
    yield from (f"- skipped, {count}: {reason}" for reason, count in step["skipped"].items())


def numerics(steps: Mapping[str, Step]) -> Iterator[str]:
    step = steps.get("numerics", {})
    formats = [name for name in ("float32", "bfloat16", "float16") if name in step]
    if not formats:
        return
    yield ""
    yield "Vectors of the packaged model, 512 texts:"
    yield ""
    keys = {
        "lowest_cosine": "lowest cosine with the CPU's float32",
        "alone_or_in_a_batch": "greatest difference, alone against in a batch",
        "equal_alone_and_in_a_batch": "share of texts with equal bits",
    }
    yield from table(
        ["", *formats], [[label, *(number(step[name][key]) for name in formats)] for key, label in keys.items()]
    )
    kinds = {name: figures for name, figures in step.get("attention", {}).items() if isinstance(figures, Mapping)}
    for name, figures in kinds.items():
        equal = "the same bits" if figures["equal_bits"] else "other bits"
        yield ""
        yield f"Attention with {name}: {equal} alone as in a batch, {figures['per_second']:,.0f} calls/s."


def pretraining(step: Step) -> Iterator[str]:
    rows = speeds(step)
    if not rows:
        return
    yield ""
    yield (
        f"Pre-training, BERT {step['size']}, {step['batch_tokens']:,} tokens a step, bf16; the peak is "
        f"{step['teraflops']:,} TFLOP/s, measured in the same process:"
    )
    yield ""
    yield from table(
        ["", "tokens/s (lowest to highest)", "of the peak", "GPU busy", "waits in a step", "GB", "W"],
        [
            [name, spread(row), *(share(row.get(key)) for key in ("of_the_peak", "busy")),
             *(number(row.get(key)) for key in ("waits_in_a_step", "gigabytes", "watts"))]
            for name, row in rows.items()
        ],
    )  # fmt: skip
    yield from failures(step)


def torches(runs: Sequence[Step]) -> Iterator[str]:
    """Pre-training with each PyTorch, one column each."""
    if not runs:
        return
    sides = {name: None for run in runs for name in speeds(run)}
    yield ""
    yield "Pre-training with other versions of PyTorch, tokens/s, and times the first:"
    yield ""
    yield from table(
        ["", *(f"torch {run.get('torch', '?')}" for run in runs)],
        [[name, *(beside(run.get(name), runs[0].get(name)) for run in runs)] for name in sides],
    )
    for number, run in enumerate(runs, 1):
        if "error" in run:
            yield ""
            yield f"Column {number}: {run['error']}"


def beside(row: Any, first: Any) -> str:
    """A speed and its ratio to the first one; "" if it was not measured."""
    if not isinstance(row, Mapping) or "rate" not in row:
        return ""
    if row is first or not isinstance(first, Mapping) or not first.get("rate"):
        return spread(row)
    return f"{spread(row)}, {row['rate'] / first['rate']:.2f}"


def embedding(step: Step) -> Iterator[str]:
    if not (rows := speeds(step)):
        return
    yield ""
    tokens = {name.partition(":")[0]: value for name, value in step.items() if name.endswith("tokens per text")}
    yield (
        "Embedding short texts (" + ", ".join(f"{name}: {value} tokens a text" for name, value in tokens.items()) + "):"
    )
    yield ""
    yield from table(
        ["", "texts/s (lowest to highest)", "of the peak", "GB", "W"],
        [
            [name, spread(row), share(row.get("of_the_peak")), number(row.get("gigabytes")), number(row.get("watts"))]
            for name, row in rows.items()
        ],
    )
    yield from failures(step)


def feeding(step: Step) -> Iterator[str]:
    rates = {name: value for name, value in step.items() if isinstance(value, int | float) and name != "seconds"}
    if rates:
        yield from ("", "What the processor prepares, per second:", "")
        yield from table(["", ""], [[name, f"{rate:,.0f}"] for name, rate in rates.items()])


def speeds(step: Step) -> dict[str, Step]:
    return {name: row for name, row in step.items() if isinstance(row, Mapping) and "rate" in row}


def failures(step: Step) -> Iterator[str]:
    for name, row in step.items():
        if isinstance(row, Mapping) and "error" in row:
            yield ""
            yield f"{name}: {row['error']}"


def spread(row: Step) -> str:
    return f"{row['rate']:,.0f} ({row['lowest']:,.0f} to {row['highest']:,.0f})"


def share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def number(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.7g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    yield from (f"| {' | '.join(row)} |" for row in rows)


def insert(section: str, document: str) -> str:
    """The document with this section between its two marks."""
    before, _, rest = document.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"error: the page has no place for the figures; write {BEGIN} and {END} into it")
    return f"{before}{BEGIN}\n\n{section}\n{END}{after}"


if __name__ == "__main__":
    figures, target = map(Path, sys.argv[1:])
    measured = json.loads(figures.read_text(encoding="utf-8"))
    if measured["small"]:
        raise SystemExit(f"error: {figures} is of a dry run; only a full run belongs on the page")
    target.write_text(insert(page(measured), target.read_text(encoding="utf-8")), encoding="utf-8")
