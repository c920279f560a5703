"""The estimated time and cost of a job, from the time of its first rows."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from bothways.base.device import num_threads
from bothways.base.errors import format_count
from bothways.base.progress import format_duration
from bothways.inference.jobs.blocks import SAMPLE_SIZE, estimate_num_rows, split_into_blocks
from bothways.inference.jobs.part import compute_block, plan_file
from bothways.inference.jobs.plan import JobPlan

SAMPLE_ROWS = 256  # of which the time is measured
SAMPLE_FILES = 64  # of which the rows are counted or estimated
CORE_HOUR = 0.04  # US dollars, usual prices of clouds in 2026
GPU_HOUR = 2.5


@dataclass(frozen=True)
class Estimate:
    """Estimated rows, seconds and dollars of a job; None if unknown. price: the basis of the dollars."""

    files: int
    parts: int
    bytes: int
    rows: int | None
    seconds: float | None
    dollars: float | None
    price: str

    def to_json(self) -> dict[str, Any]:
        return vars(self)

    def lines(self) -> Iterator[str]:
        files = format_count(self.files, "file")
        parts = format_count(self.parts, "part")
        rows = "unknown rows" if self.rows is None else f"about {self.rows:,} rows"
        yield f"{files}, {parts}, {self.bytes:,} bytes, {rows}"

        if self.seconds is None or self.dollars is None:
            yield "time and cost: unknown before the rows are read"
        else:
            time = format_duration(self.seconds)
            yield f"about {time} on this machine, ${self.dollars:.2f} at {self.price}"


def estimate(plan: JobPlan, files: list[Path], num_parts: int) -> Estimate:
    """The estimated time and cost of a job, from the time of its first rows."""
    num_rows = _num_rows(files, plan)
    is_cpu = plan.model.device == "cpu"
    unknown = Estimate(
        files=len(files),
        parts=num_parts,
        bytes=sum(map(size_of, files)),
        rows=num_rows,
        seconds=None,
        dollars=None,
        price=f"${CORE_HOUR} per core and hour" if is_cpu else f"${GPU_HOUR} per GPU and hour",
    )

    block = next(split_into_blocks(islice(plan.inputs, SAMPLE_ROWS), "skip"), None)
    if not num_rows or block is None or not block.inputs:
        return unknown

    start = time.perf_counter()
    compute_block(replace(plan, on_error="skip"), block)
    seconds = (time.perf_counter() - start) / len(block) * num_rows
    hour = CORE_HOUR * num_threads() if is_cpu else GPU_HOUR
    return replace(unknown, seconds=seconds, dollars=hour * seconds / 3600)


def _num_rows(files: list[Path], plan: JobPlan) -> int | None:
    """The rows of all files: counted in up to SAMPLE_FILES small ones, else estimated from such a sample; None if
    nothing is known of it."""
    sample = files[:: math.ceil(len(files) / SAMPLE_FILES)]
    num_rows = num_bytes = 0

    for file in sample:
        size = size_of(file)
        if size > SAMPLE_SIZE:
            rows = estimate_num_rows(str(file), plan.settings.encoding)
        else:
            inputs = plan_file(plan.settings, str(file), plan.model).inputs
            rows = sum(1 for _ in inputs) - (inputs.error is not None)
        if rows is not None:
            num_rows += rows
            num_bytes += size

    total = sum(map(size_of, files))
    if not num_bytes:
        return None if total else 0
    return round(num_rows * total / num_bytes)


def size_of(file: Path) -> int:
    """The bytes of a file; 0 for a link to nothing."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
