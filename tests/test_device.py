"""What a training process keeps of its memory."""

import subprocess
import sys

import pytest

GROWING = """
import sys, torch
from bothways import device
torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
draw = lambda low, high: int(torch.randint(low, high, (1,), generator=generator))
kept, levels = [], []
device.retain_freed_memory()
for step in range(300):  # blocks of as many sizes as ragged batches have, and small ones that stay
    if step == device.STEPS_BEFORE_CAP and "settled" in sys.argv:
        device.cap_retained_memory()
    tokens, held = draw(1200, 2048), []
    for width in (384, 1152, 384, 1536, 1536, 384) * 6:
        held.append(torch.ones(tokens * width, dtype=torch.bfloat16))
        passing = torch.ones(draw(1, tokens) * 384, dtype=torch.bfloat16)
        if draw(0, 12) == 0:
            kept = [*kept[-999:], torch.ones(draw(100, 8000))]
    del held, passing
    if step % 100 == 99:
        levels.append(int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6)
print(*levels)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux's C library is told to keep memory")
def test_memory_that_is_kept_grows_no_more_once_it_is_settled():
    def growth(*told):
        found = subprocess.run([sys.executable, "-c", GROWING, *told], capture_output=True, text=True, check=True)
        after, *_, end = map(float, found.stdout.split())
        return end - after

    free, settled = growth(), growth("settled")
    assert settled < 5 and settled < free / 3, (free, settled)  # MB; how far the free one grows, machines differ in


HOLES = """
import torch
from bothways.device import keep_memory, release_memory
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
keep_memory()
blocks, kept = [], []
for number in range(100):
    blocks.append(torch.ones(500_000 + number))
    kept.append(bytearray(3000))
before = resident()
del blocks
freed = resident()
release_memory()
print(before - freed, freed - resident())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux's C library is asked to give memory back")
def test_freed_memory_between_blocks_that_stay_is_given_back():
    found = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    by_itself, released = map(float, found.stdout.split())
    assert by_itself < 20 and released > 150, (by_itself, released)  # MB, of 200
