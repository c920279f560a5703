"""Texts per second of `embed` in float32 and int8, against sentence-transformers in float32, where nothing is padded.

    ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI python -m benchmarks.equal_lengths [--int8 DIR] [--tokens 128] [--rounds 9]

All texts have the same number of tokens, so the ragged batch gains nothing: this is what a processor without bf16
instructions gets at least. The variable limits matrix products to such instructions on a processor that has more.
--int8: the output of `bothways quantize` for all-MiniLM-L6-v2. The sides take turns; medians and quartiles.
"""

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from typing import Any

import bothways
from benchmarks.inference_texts import minilm

WORDS = Path(__file__).parent.parent / "README.md"
TEXTS, BATCH = 128, 64


def text_of(num_tokens: int, tokenizer: bothways.Tokenizer, words: list[str], rng: random.Random) -> str:
    """A text of random words with this many tokens, special tokens included."""
    chosen: list[str] = []
    while (size := len(tokenizer.encode(" ".join(chosen)).ids) + 2) != num_tokens:
        chosen = chosen[:-1] if size > num_tokens else [*chosen, rng.choice(words)]
    return " ".join(chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--int8", type=Path)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    from sentence_transformers import SentenceTransformer

    model, peer = bothways.load(minilm(), dtype="float32"), SentenceTransformer(str(minilm()), device="cpu")
    words, rng = WORDS.read_text(encoding="utf-8").split(), random.Random(0)
    texts = [text_of(options.tokens, model.tokenizer, words, rng) for _ in range(TEXTS)]
    sides: dict[str, Callable[[], Any]] = {
        "sentence-transformers float32": lambda: peer.encode(texts, batch_size=BATCH, normalize_embeddings=True),
        "bothways float32": lambda: model.embed(texts),
    }
    if options.int8:
        small = bothways.load(options.int8, dtype="float32")
        sides["bothways int8"] = lambda: small.embed(texts)
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(options.rounds + 1):
        for name, embed in sides.items():
            start = time.perf_counter()
            embed()
            if turn:  # the first round imports and allocates
                speeds[name].append(TEXTS / (time.perf_counter() - start))
    reference, *_ = speeds
    print(f"{TEXTS} texts of {options.tokens} tokens, median (quartiles) of {options.rounds} rounds")
    for name, values in speeds.items():
        low, middle, high = quantiles(values, n=4)
        ratios = [one / other for one, other in zip(values, speeds[reference], strict=True)]
        print(f"{name:30} {middle:8.1f} texts/s ({low:.1f} to {high:.1f}), {quantiles(ratios, n=4)[1]:.2f} x")


if __name__ == "__main__":
    main()
