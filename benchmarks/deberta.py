"""DeBERTa against transformers: the same model and texts, forward pass and training step.

    python -m benchmarks.deberta [--layers 6] [--hidden 384] [--rounds 5]

Random models (v1; v2 as in the published v3: shared projections, 256 logarithmic buckets, layer norm on the table of
relative positions) on 64 texts of mixed lengths (those of English sentences and paragraphs, 8 to 400 tokens), sorted
by length into batches of 4,096 tokens for both libraries; transformers pads each batch to its longest text. Rounds
alternate between the two; medians.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers

from bothways.model.families import FAMILIES
from bothways.model.model import Model, initialize
from bothways.model.prepacked import prepack
from bothways.text.batch import Batch

TOKENS = 4096
V3 = {"position_buckets": 256, "share_att_key": True, "norm_rel_ebd": "layer_norm"}
PEERS: dict[str, tuple[str, dict[str, Any]]] = {"deberta": ("Deberta", {}), "deberta-v2": ("DebertaV2", V3)}


def batches(seed: int = 0) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    lengths = np.sort(np.clip(rng.lognormal(4.0, 0.9, 64).astype(int), 8, 400))
    batches: list[list[np.ndarray]] = [[]]
    for length in lengths:
        if sum(map(len, batches[-1])) + length > TOKENS:
            batches.append([])
        batches[-1].append(rng.integers(5, 1000, length))
    return batches


def ours(
    family: str, theirs: dict[str, Any], texts: list[list[np.ndarray]], dtype: torch.dtype
) -> Callable[[bool], None]:
    config, _ = FAMILIES[family].parse_config({**theirs, "model_type": family}, "config")
    model = Model(config)
    initialize(model, 0.02, torch.Generator().manual_seed(0))
    model = model.to(dtype)
    batches = []
    for rows in texts:
        ids = np.concatenate(rows)
        batches.append(Batch.from_arrays(ids, ids * 0, np.array([len(row) for row in rows])))
    prepacked = prepack(model.eval())

    def run(train: bool) -> None:
        model.train(train)
        for batch in batches:
            if train:
                model(batch).float().square().mean().backward()
            else:
                with torch.inference_mode():
                    prepacked(batch)

    return run


def peer(
    name: str, theirs: dict[str, Any], texts: list[list[np.ndarray]], dtype: torch.dtype
) -> Callable[[bool], None]:
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}Model")(getattr(transformers, f"{name}Config")(**theirs)).to(dtype)
    batches = []
    for rows in texts:
        ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
        for line, row in zip(ids, rows, strict=True):
            line[: len(row)] = torch.from_numpy(row)
        batches.append({"input_ids": ids, "attention_mask": (ids > 0).long()})

    def run(train: bool) -> None:
        model.train(train)
        for inputs in batches:
            if train:
                model(**inputs).last_hidden_state.float().square().mean().backward()
            else:
                with torch.inference_mode():
                    model(**inputs)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    texts = batches()
    number = sum(len(row) for rows in texts for row in rows)
    print(f"{len(texts)} batches, {number:,} tokens; {options.layers} layers, {options.hidden} wide; tokens per second")
    print(f"{'family':10} {'':13} {'dtype':9} {'bothways':>8} {'transformers':>12}  bothways is faster by")
    for family, (name, more) in PEERS.items():
        theirs = {
            "vocab_size": 1000, "hidden_size": options.hidden, "num_hidden_layers": options.layers,
            "num_attention_heads": options.hidden // 64, "intermediate_size": 4 * options.hidden,
            "max_position_embeddings": 512, "relative_attention": True, "pos_att_type": ["c2p", "p2c"],
            "position_biased_input": False, **more,
        }  # fmt: skip
        for dtype in (torch.float32, torch.bfloat16):
            sides = (ours(family, theirs, texts, dtype), peer(name, theirs, texts, dtype))
            for title, train in (("forward", False), ("training step", True)):
                seconds: tuple[list[float], list[float]] = ([], [])
                for round_number in range(options.rounds + 1):
                    for times, run in zip(seconds, sides, strict=True):
                        start = time.perf_counter()
                        run(train)
                        if round_number:  # the first round is warm-up
                            times.append(time.perf_counter() - start)
                speed, peer_speed = (number / statistics.median(times) for times in seconds)
                dtype_name = str(dtype).removeprefix("torch.")
                print(
                    f"{family:10} {title:13} {dtype_name:9} {speed:8,.0f} {peer_speed:12,.0f}  "
                    f"{speed / peer_speed:.2f}x",
                    flush=True,
                )


if __name__ == "__main__":
    main()
