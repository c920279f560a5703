"""Memory that is kept for the next step: it stops growing once it is capped, over 300 steps of ragged batches."""

import subprocess
import sys

import pytest

GROWING = """
import sys, torch
from bothways.base import device
torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
draw = lambda low, high: int(torch.randint(low, high, (1,), generator=generator))
long_lived, levels = [], []
device.retain_freed_memory()
for step in range(300):  # blocks of varying sizes, like those of ragged batches, and small long-lived ones
    if step == device.STEPS_BEFORE_CAP and "cap" in sys.argv:
        device.cap_retained_memory()
    tokens, activations = draw(1200, 2048), []
    for width in (384, 1152, 384, 1536, 1536, 384) * 2:
        activations.append(torch.ones(tokens * width, dtype=torch.bfloat16))
        temporary = torch.ones(draw(1, tokens) * 384, dtype=torch.bfloat16)
        if draw(0, 12) == 0:
            long_lived = [*long_lived[-999:], torch.ones(draw(100, 8000))]
    del activations, temporary
    if step % 100 == 99:
        levels.append(int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6)
print(*levels)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's")
def test_retained_memory_stops_growing_once_it_is_capped():
    def growth(*arguments):
        run = subprocess.run([sys.executable, "-c", GROWING, *arguments], capture_output=True, text=True, check=True)
        after, *_, end = map(float, run.stdout.split())
        return end - after

    uncapped, capped = growth(), growth("cap")
    assert capped < 5 and capped < uncapped / 3, (uncapped, capped)  # MB; the uncapped growth depends on the machine
