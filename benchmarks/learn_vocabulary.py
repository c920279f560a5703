"""Learning a vocabulary from English Wikipedia, against `tokenizers`: time, memory, tokens per word.

    python benchmarks/learn_vocabulary.py [--files 1] [--size 30522]

Reads wikipedia-2015-en/*.parquet under $BOTHWAYS_DATA (default: ../shared/data). Each run has its own process; its
time includes reading the files, its memory is the sum of the peaks of all its processes.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq

REPOSITORY = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("BOTHWAYS_DATA", REPOSITORY / "../shared/data")) / "wikipedia-2015-en"
sys.path.insert(0, str(REPOSITORY))
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
RUNS = {"bothways, 1 process": 1, "bothways, 2 processes": 2, "tokenizers": 0}


def texts(pattern: str, num_files: int | None = None) -> Iterator[str]:
    for path in sorted(DATA.glob(pattern))[:num_files]:
        for batch in pq.ParquetFile(path).iter_batches(256, columns=["text"]):
            yield from batch.column(0).to_pylist()


def learn_ours(num_files: int, size: int, processes: int) -> list[str]:
    from bothways import Tokenizer

    vocab = Tokenizer.learn(texts("train-*", num_files), size=size, lowercase=True, processes=processes).vocab
    return sorted(vocab, key=vocab.__getitem__)


def learn_theirs(num_files: int, size: int) -> list[str]:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, min_frequency=2, limit_alphabet=1000, special_tokens=SPECIALS, show_progress=False
    )
    tokenizer.train_from_iterator(texts("train-*", num_files), trainer)
    vocab = tokenizer.get_vocab()
    return sorted(vocab, key=vocab.__getitem__)


def measure(run: str, num_files: int, size: int, path: Path) -> None:
    """Learn, write the vocabulary to path, print one JSON line."""
    processes = RUNS[run]
    start = time.perf_counter()
    pieces = learn_ours(num_files, size, processes) if processes else learn_theirs(num_files, size)
    seconds = time.perf_counter() - start
    path.write_text("".join(piece + "\n" for piece in pieces), encoding="utf-8")
    parent, child = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    gigabytes = (parent + child * (processes if processes > 1 else 0)) * 1024 / 1e9
    print(json.dumps({"seconds": seconds, "gigabytes": gigabytes}))


def tokens_per_word(path: Path) -> tuple[float, float]:
    """(tokens per word, share of unknown words) on the validation articles, encoded with `tokenizers` for all runs."""
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(str(path), lowercase=True)
    num_words = num_tokens = num_unknown = 0
    for encoding in tokenizer.encode_batch(list(texts("validation-*")), add_special_tokens=False):
        num_words += len(set(encoding.word_ids))
        num_tokens += len(encoding)
        num_unknown += encoding.tokens.count("[UNK]")
    return num_tokens / num_words, num_unknown / num_words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=8, help="how many of the 8 training files to read")
    parser.add_argument("--size", type=int, default=30522)
    parser.add_argument("--run", choices=RUNS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.run:
        measure(settings.run, settings.files, settings.size, settings.out)
        return
    num_characters = sum(map(len, texts("train-*", settings.files)))
    print(f"{num_characters / 1e6:.0f} M characters, {settings.size} entries, {os.cpu_count()} cores\n")
    print("| learned by | seconds | peak memory, GB | tokens per word | unknown words | entries | sha256 |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        vocabularies = {}
        for number, run in enumerate(RUNS):
            path = Path(directory, f"{number}.txt")
            options = ["--files", str(settings.files), "--size", str(settings.size), "--run", run, "--out", str(path)]
            output = subprocess.run([sys.executable, __file__, *options], stdout=subprocess.PIPE, check=True).stdout
            figures = json.loads(output)
            vocabularies[run] = path.read_bytes()
            tokens, unknown = tokens_per_word(path)
            num_pieces, digest = vocabularies[run].count(b"\n"), sha256(vocabularies[run]).hexdigest()[:12]
            print(
                f"| {run} | {figures['seconds']:.1f} | {figures['gigabytes']:.2f} "
                f"| {tokens:.4f} | {unknown:.4%} | {num_pieces} | {digest} |",
                flush=True,
            )
    one, two, theirs = vocabularies.values()
    num_shared = len(set(one.splitlines()) & set(theirs.splitlines()))
    print(f"\n1 and 2 processes: {'identical' if one == two else 'DIFFERENT'} files", end="; ")
    print(f"{num_shared} entries shared with tokenizers")


if __name__ == "__main__":
    main()
