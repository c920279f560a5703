"""Tokenizing the first 100 MB of Wikipedia, against `tokenizers`: one core, one process, cold start, same run.

    python -m benchmarks.tokenize [--megabytes 100] [--rounds 3] [--vocab FILE]

Each side runs in its own process on one core, reads the paragraphs first and is then timed from loading its
vocabulary to the last paragraph. `tokenizers` gets whole batches and one thread; `encode_batch_fast` omits offsets.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

DATA = Path(os.environ.get("BOTHWAYS_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
SIDES = ("bothways", "tokenizers encode_batch", "tokenizers encode_batch_fast")
BATCH = 1000


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


def batches(texts: list[str]) -> Iterator[list[str]]:
    return (texts[start : start + BATCH] for start in range(0, len(texts), BATCH))


def run_side(side: str, vocab: str, megabytes: int) -> None:
    """Time one side in this process; prints seconds, tokens and megabytes."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    texts = paragraphs(megabytes * 1_000_000)
    size = sum(len(text.encode()) for text in texts)
    tokens = 0
    start = time.perf_counter()
    if side == "bothways":
        import bothways

        tokenizer = bothways.Tokenizer.load(vocab)
        for batch in batches(texts):
            tokens += sum(len(encoding.ids) for encoding in tokenizer.encode_many(batch))
    else:
        from tokenizers import BertWordPieceTokenizer

        peer = BertWordPieceTokenizer(vocab)._tokenizer
        encode = peer.encode_batch_fast if side.endswith("fast") else peer.encode_batch
        for batch in batches(texts):
            tokens += sum(len(encoding.ids) for encoding in encode(batch))
    print(time.perf_counter() - start, tokens, size / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vocab", default=str(DATA / "vocab" / "bert-base-uncased" / "vocab.txt"))
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        return run_side(options.side, options.vocab, options.megabytes)
    speeds: dict[str, list[float]] = {side: [] for side in SIDES}
    counts = set()
    environment = {**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    for _ in range(options.rounds):
        for side in SIDES:
            command = [sys.executable, "-m", "benchmarks.tokenize", "--side", side]
            command += ["--vocab", options.vocab, "--megabytes", str(options.megabytes)]
            output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
            seconds, tokens, megabytes = map(float, output.split())
            speeds[side].append(megabytes / seconds)
            counts.add(tokens)
    if len(counts) != 1:
        sys.exit(f"the sides do not agree on the number of tokens: {sorted(counts)}")
    ours = statistics.median(speeds["bothways"])
    print(f"{counts.pop():,.0f} tokens each; MB/s over {options.rounds} rounds, cold start, one core")
    for side, values in speeds.items():
        speed = statistics.median(values)
        print(
            f"{side:30} median {speed:5.2f}  (min {min(values):.2f}, max {max(values):.2f})  bothways is "
            f"{ours / speed:.2f}x"
        )


if __name__ == "__main__":
    main()
