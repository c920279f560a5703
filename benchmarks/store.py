"""The token store of English Wikipedia, against `tokenizers` on the same documents: MB/s, memory, second start.

    python -m benchmarks.store [--files 8] [--processes 2] [--vocab DIR]

Reads wikipedia-2015-en/train-*.parquet under $BOTHWAYS_DATA (default: ../shared/data). Each side has its own process
and is timed from reading its vocabulary to its last id. Bothways writes ids with sentence and document boundaries to
disk and syncs them. `tokenizers` runs encode_batch, as transformers calls it, on whole documents with the same
number of threads, and stores nothing. Processor seconds are summed over all processes and threads; a busy machine
affects them less than wall-clock time. Memory is the peak sum over all processes of a side (proportional set size,
so that shared pages count once; mapped files count).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from threading import Event, Thread

DATA = Path(os.environ.get("BOTHWAYS_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
SIDES = ("bothways", "bothways, second start", "tokenizers encode_batch")
BATCH = 1000
SAMPLE_EVERY = 0.25  # seconds


def documents(num_files: int) -> Iterator[str]:
    import pyarrow.parquet as parquet

    for file in sorted((DATA / "wikipedia-2015-en").glob("train-*.parquet"))[:num_files]:
        for batch in parquet.ParquetFile(file).iter_batches(256, columns=["text"]):
            yield from batch.column(0).to_pylist()


def make_store(directory: Path, vocab: str, num_files: int, processes: int) -> dict[str, float]:
    from bothways import Tokenizer
    from bothways.text.corpus.token_store import open_or_build

    built = open_or_build(
        directory, f"wikipedia {num_files}", lambda: documents(num_files), Tokenizer.load(vocab), language="en",
        processes=processes, drop_duplicates=True,
    )  # fmt: skip
    size = sum(array.nbytes for array in (built.store.ids, built.store.sentences, built.store.documents))
    return {
        "tokens": built.store.num_tokens,
        "megabytes": built.megabytes,
        "duplicates": built.duplicates,
        "stored": size / 1e6,
        "opened": built.seconds,
    }


def encode_batches(vocab: str, num_files: int) -> dict[str, float]:
    from tokenizers import BertWordPieceTokenizer

    peer = BertWordPieceTokenizer(f"{vocab}/vocab.txt")
    texts = documents(num_files)
    tokens = size = 0
    while batch := list(islice(texts, BATCH)):
        size += sum(len(text.encode()) for text in batch)
        tokens += sum(len(encoding.ids) for encoding in peer.encode_batch(batch, add_special_tokens=False))
    return {"tokens": tokens, "megabytes": size / 1e6}


def run_side(side: str, directory: Path, vocab: str, num_files: int, processes: int) -> None:
    """Time one side in this process; prints one JSON line."""
    largest = 0
    has_ended = Event()

    def watch() -> None:
        nonlocal largest
        while not has_ended.wait(SAMPLE_EVERY):
            largest = max(largest, held_by_all(os.getpid()))

    watcher = Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    try:
        ours = side.startswith("bothways")
        figures = make_store(directory, vocab, num_files, processes) if ours else encode_batches(vocab, num_files)
    finally:
        seconds = time.perf_counter() - start
        largest = max(largest, held_by_all(os.getpid()))
        has_ended.set()
        watcher.join()
    processor = sum(os.times()[:4])  # this process and its finished children
    print(json.dumps({**figures, "seconds": seconds, "processor": processor, "memory": largest / 1e6}))


def held_by_all(process: int) -> int:
    """Memory of a process and its children in bytes; shared pages count once."""
    total = 0
    for number in [process, *children(process)]:
        try:
            lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
        except OSError:  # the process has just ended
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def children(process: int) -> list[int]:
    processes = []
    for thread in Path(f"/proc/{process}/task").iterdir():
        try:
            processes += [int(word) for word in (thread / "children").read_text().split()]
        except OSError:
            continue
    return processes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=8, help="how many of the 8 training files to read")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--vocab", default=str(DATA / "vocab" / "bert-base-uncased"), help="a directory with vocab.txt")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        return run_side(options.side, options.directory, options.vocab, options.files, options.processes)
    environment = {**os.environ, "RAYON_NUM_THREADS": str(options.processes), "TOKENIZERS_PARALLELISM": "true"}
    rows = {}
    with tempfile.TemporaryDirectory() as directory:
        for side in SIDES:
            command = [sys.executable, "-m", "benchmarks.store", "--side", side, "--directory", directory]
            command += ["--files", str(options.files), "--processes", str(options.processes), "--vocab", options.vocab]
            output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
            rows[side] = json.loads(output)
    ours, again, theirs = rows.values()
    print(
        f"{ours['megabytes']:,.1f} MB of text, {options.processes} processes (threads); {ours['tokens']:,} tokens, "
        f"{ours['stored']:,.1f} MB on disk, {ours['duplicates']} duplicate documents; "
        f"tokenizers: {theirs['tokens']:,} tokens\n"
    )
    print("| | seconds | MB/s | processor seconds | MB per processor second | memory, MB |\n|---|---|---|---|---|---|")
    for side, row in rows.items():
        speeds = [f"{row[spent]:.2f} | {row['megabytes'] / row[spent]:,.1f}" for spent in ("seconds", "processor")]
        print(f"| {side} | {' | '.join(speeds)} | {row['memory']:,.0f} |")
    print(
        f"\nopened and all checksums checked in {again['opened']:.2f} s "
        f"({again['stored'] / 1000 / again['opened']:.1f} GB/s); bothways is "
        f"{theirs['seconds'] / ours['seconds']:.2f}x as fast as tokenizers"
    )


if __name__ == "__main__":
    main()
