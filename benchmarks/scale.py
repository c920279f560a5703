"""Beyond one machine: object storage beside local files, and large jobs in parts.

    python -m benchmarks.scale storage [--pairs 3] [--steps 60] [--rows 8000]
    python -m benchmarks.scale parts [--pairs 3] [--rows 8000]

storage: tokens/s of pre-training, rows/s of `embed`, and how soon a process ends. An S3 server (moto) runs on loopback
in a process of its own, without delays, on the same processors. Local files and object storage take turns; their
results must have the same bytes.

parts: rows/s of one and of two processes of one thread each, here and under Ray, in turns, counted from the end of the
first part on; and the time and memory that it takes to plan a million parts, from a listing that is simulated.
"""

import argparse
import hashlib
import http.client
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

WORDS = "the cat sat on a mat and dogs ran over old hills where water falls slowly into green valleys".split()
PRETRAIN = "--model mini --vocab-size 800 --batch-tokens 2048 --max-length 128 --heldout-examples 8 --pairs none"
SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(*server.get_host_and_port(), flush=True)
sys.stdin.read()
server.stop()
"""


@contextmanager
def bucket() -> Iterator[str]:
    """The URL of a bucket; the environment names its server."""
    pipe = subprocess.PIPE
    quiet = {"stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=pipe, stdout=pipe, text=True, **quiet) as server:
        assert server.stdin and server.stdout
        host, port = server.stdout.readline().split()
        values = {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret", "REGION": "us-east-1"}
        os.environ |= {f"AWS_{name}": value for name, value in values.items()}
        os.environ["AWS_ENDPOINT_URL"] = f"http://{host}:{port}"
        connection = http.client.HTTPConnection(host, int(port))
        connection.request("PUT", "/scale")
        connection.getresponse().read()
        connection.close()
        try:
            yield "s3://scale"
        finally:
            server.stdin.close()


def run(*arguments: object) -> tuple[float, float]:
    """The seconds that a command takes, and those from its last line to its end."""
    command = [sys.executable, "-m", "bothways", *map(str, arguments)]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        lines, last = [], start
        for line in process.stdout:
            lines.append(line)
            last = time.perf_counter()
        process.wait()
        end = time.perf_counter()
    if process.returncode:
        sys.exit("".join(lines))
    return end - start, end - last


PLANNING = """
import json, resource, time
from bothways.scale import plan
from bothways.scale.object_storage import CloudPath, Status
from bothways.settings import Embed
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
files = []
for number in range(1_000_000):
    files.append(CloudPath(f"s3:/bucket/data/{number:07}.parquet"))
    files[-1]._status = Status(1000, 0, e_tag=f"{number:032}")
started = time.perf_counter()
inputs = plan.versions_of(files, CloudPath("s3:/bucket/data"))
parts_plan = plan.PartsPlan({}, inputs, plan.cut_into_parts(inputs, Embed(file="s3://bucket/data", out="out"), None))
text = json.dumps([[one[1:4] for one in parts_plan.inputs], parts_plan.parts])
seconds = time.perf_counter() - started
memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) >> 10
print(f"{len(parts_plan.parts):,} parts planned in {seconds:.1f} s; {memory:,} MB, and {len(text) >> 20} MB of plan")
"""


def contents(place: str) -> bytes:
    from bothways.base.paths import as_path

    return as_path(place).read_bytes()


def training_speed(place: str) -> float:
    """Tokens per second of a run, from its second step on."""
    from bothways.base.paths import as_path
    from bothways.scale.object_storage import CloudPath

    file = as_path(place) / "metrics.jsonl"
    pieces = file.files() if isinstance(file, CloudPath) else [file]
    rows = [json.loads(line) for line in b"".join(piece.read_bytes() for piece in pieces).splitlines()]
    first, *_, last = [row for row in rows if row["split"] == "train"]
    return float((last["tokens"] - first["tokens"]) / (last["seconds"] - first["seconds"]))


def print_ratio(name: str, asked: float, local: list[float], remote: list[float]) -> None:
    ratios = sorted(there / here for here, there in zip(local, remote, strict=True))
    print(
        f"{name}: local {statistics.median(local):,.0f}, object storage {statistics.median(remote):,.0f}; ratio "
        f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}, {len(ratios)} pairs; asked {asked})",
        flush=True,
    )


def parts_speed(out: Path) -> float:
    """Rows per second of a directory of parts, from the end of its first part on."""
    ends = {file: file.stat().st_mtime for file in (out / "_parts").iterdir()}
    first = min(ends, key=lambda file: ends[file])
    rows = sum(json.loads(file.read_text())["rows"] for file in ends if file != first)
    return float(rows / (max(ends.values()) - ends[first]))


def measure_parts(settings: argparse.Namespace) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    with TemporaryDirectory() as folder:
        texts = Path(folder, "in")
        texts.mkdir()
        for part in range(40):
            rows = range(part, settings.rows, 40)
            lines = [" ".join(WORDS[n * k % 17] for k in range(1, 12)) + f" {n}" for n in rows]
            (texts / f"{part}.txt").write_text("\n".join(lines) + "\n")
        speeds: dict[str, list[float]] = {}
        digests: dict[str, set[str]] = {}
        ways = {"one process": [], "two processes": ["--workers", 2]}
        ways |= {f"Ray, {n} workers": ["--ray", "local", "--workers", n] for n in (1, 2)}
        for pair in range(settings.pairs):
            for number, (way, flags) in enumerate(ways.items()):
                out = Path(folder, f"out-{pair}-{number}")
                seconds, end = run("embed", "bothways-en", texts, "-o", out, *flags)
                speeds.setdefault(way, []).append(parts_speed(out))
                for file in out.glob("part-*"):
                    digests.setdefault(file.name, set()).add(hashlib.sha256(file.read_bytes()).hexdigest())
                print(f"  {way}: {speeds[way][-1]:,.0f} rows/s, {seconds:.0f} s in all, {end:.2f} s to end", flush=True)
        for two, one in (("two processes", "one process"), ("Ray, 2 workers", "Ray, 1 workers")):
            ratios = sorted(two / one for one, two in zip(speeds[one], speeds[two], strict=True))
            print(f"{two}: {statistics.median(ratios):.2f} times {one} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
        print(f"same bytes: {all(len(one) == 1 for one in digests.values())}")
    subprocess.run([sys.executable, "-c", PLANNING], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["storage", "parts"])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rows", type=int, default=8000)
    settings = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}")
    measure_storage(settings) if settings.what == "storage" else measure_parts(settings)


def measure_storage(settings: argparse.Namespace) -> None:
    with TemporaryDirectory() as folder, bucket() as remote:
        os.environ["BOTHWAYS_CACHE"] = f"{folder}/cache"
        texts, corpus = Path(folder, "rows.csv"), Path(folder, "corpus.txt")
        lines = [" ".join(WORDS[n * k % 17] for k in range(1, 12)) + f" {n}" for n in range(settings.rows)]
        texts.write_text("text\n" + "\n".join(lines) + "\n")
        corpus.write_text("\n\n".join(lines))
        from bothways.base.paths import as_path
        from bothways.scale.object_storage import CloudPath

        for file in (texts, corpus):
            target = as_path(f"{remote}/{file.name}")
            assert isinstance(target, CloudPath)
            target.put(file)
        speeds: dict[tuple[str, str], list[float]] = {}
        digests: dict[str, set[str]] = {"train": set(), "embed": set()}
        ends = []
        for pair in range(settings.pairs):
            for name, place in ("local", folder), ("remote", remote):
                out = f"{place}/run-{pair}"
                stores = ["--token-store", f"{place}/stores-{pair}"]
                flags = [*PRETRAIN.split(), "--steps", settings.steps, "--checkpoint-every", settings.steps // 2]
                _, end = run("pretrain", f"{place}/corpus.txt", "-o", out, *stores, *flags)
                ends.append(end)
                speeds.setdefault(("train", name), []).append(training_speed(out))
                digests["train"].add(hashlib.sha256(contents(f"{out}/model/model.safetensors")).hexdigest())
                seconds, end = run("embed", f"{place}/rows.csv", "-o", f"{place}/vectors-{pair}.npy")
                ends.append(end)
                speeds.setdefault(("embed", name), []).append(settings.rows / seconds)
                digests["embed"].add(hashlib.sha256(contents(f"{place}/vectors-{pair}.npy")).hexdigest())
                print(f"  {name}: {speeds['train', name][-1]:,.0f} tokens/s, {speeds['embed', name][-1]:,.0f} rows/s")
        print_ratio("pre-training, tokens/s", 0.95, speeds["train", "local"], speeds["train", "remote"])
        print_ratio(
            "embed bothways-en, rows/s of the whole command", 0.90, speeds["embed", "local"], speeds["embed", "remote"]
        )
        print(f"same bytes: {all(len(one) == 1 for one in digests.values())}")
        print(f"from the last line to the end of the process: at most {max(ends):.2f} s (asked 5)")


if __name__ == "__main__":
    main()
