"""Time and memory for one long text, forward pass and training step, against transformers and full attention.

    python -m benchmarks.long -o DIR [--lengths 512 1024 ... 16384] [--only longformer big_bird modernbert bert]

Random models of 4 layers, 256 wide, no dropout: Longformer (256 neighbours on each side, global attention for
[CLS]), BigBird (blocks of 64, 3 random ones), ModernBERT (64 neighbours; layers 0 and 3 attend globally), and a BERT
with full attention. Each figure is from its own process: seconds are the median of the calls after the first, MiB is
the peak growth of memory. Writes the table and a picture with logarithmic axes to DIR.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
FAMILIES = ("longformer", "big_bird", "modernbert", "bert")
SIZES = {
    "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
    "intermediate_size": 1024, "max_position_embeddings": 16384 + 2,
}  # fmt: skip
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "longformer": ("Longformer", NO_DROPOUT | {"attention_window": 512, "type_vocab_size": 1}),
    "big_bird": ("BigBird", NO_DROPOUT | {"max_position_embeddings": 16384}),
    "modernbert": ("ModernBert", {"pad_token_id": 0}),
    "bert": ("Bert", NO_DROPOUT),
}
SIDES = (("ours", "bfloat16"), ("transformers", "bfloat16"), ("ours", "float32"), ("transformers", "float32"))
ENOUGH = 3.0  # stop after this many seconds of calls
STEP = {"forward": "forward", "training step": "step"}


def peer_of(family: str, dtype: str) -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    name, more = CONFIGS[family]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **more})
    return getattr(transformers, f"{name}Model")(config).to(getattr(torch, dtype)).eval()


def calls(side: str, family: str, length: int, dtype: str) -> Callable[[], torch.Tensor]:
    """A function that computes the hidden states of one random text."""
    ids = torch.randint(5, 1000, (length,), generator=torch.Generator().manual_seed(1))
    if side == "transformers":
        peer, inputs = peer_of(family, dtype), {"input_ids": ids[None]}
        if family == "longformer":
            inputs["global_attention_mask"] = (torch.arange(length) == 0).long()[None]
        return lambda: peer(**inputs).last_hidden_state  # type: ignore[no-any-return]
    from dataclasses import replace

    from bothways.model.families import FAMILIES
    from bothways.model.model import Model, initialize
    from bothways.model.prepacked import prepack
    from bothways.text.batch import Batch

    theirs = {**SIZES, **CONFIGS[family][1], "model_type": family}
    config, _ = FAMILIES[family].parse_config(theirs, "config")
    model = Model(config)
    initialize(model, 0.02, torch.Generator().manual_seed(0))
    model = model.to(getattr(torch, dtype)).eval()
    batch = Batch.from_arrays(ids.numpy(), ids.numpy() * 0, torch.tensor([length]).numpy())
    if family == "longformer":
        batch = replace(batch, global_tokens=torch.arange(length) == 0)
    prepacked = prepack(model)
    return lambda: (model if torch.is_grad_enabled() else prepacked)(batch)


def measured(side: str, family: str, length: int, dtype: str, mode: str) -> dict[str, float]:
    call = calls(side, family, length, dtype)

    def run() -> None:
        if mode == "step":
            call().float().square().sum().backward()
            return
        with torch.inference_mode():
            call()

    before = resident()
    run()
    seconds: list[float] = []
    while len(seconds) < 2 or (sum(seconds) < ENOUGH and len(seconds) < 15):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": statistics.median(seconds), "mib": max(0.0, peak - before)}


def resident() -> float:
    """Resident memory in MiB."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def run_child(*arguments: object) -> dict[str, float] | None:
    command = [sys.executable, "-m", "benchmarks.long", "--child", json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"  {arguments}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def draw(
    figures: dict[str, dict[str, float] | None], lengths: list[int], families: list[str], dtype: str, file: Path
) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(11, 8.5), layout="constrained")
    shades = dict(zip(FAMILIES, ("tab:blue", "tab:green", "tab:orange", "tab:gray"), strict=True))
    for row, (title, mode) in enumerate(STEP.items()):
        for column, (key, unit) in enumerate((("seconds", "seconds"), ("mib", "MiB in addition to the model"))):
            panel = panels[row][column]
            for family in families:
                for side, style in (("ours", "-o"), ("transformers", "--x")):
                    cells = [figures.get(f"{side} {family} {length} {dtype} {mode}") for length in lengths]
                    points = [(length, cell[key]) for length, cell in zip(lengths, cells, strict=True) if cell]
                    if points:
                        label = f"{CONFIGS[family][0]}, {side}"
                        panel.plot(*zip(*points, strict=True), style, color=shades[family], label=label, markersize=4)
            panel.set(xscale="log", yscale="log", title=f"{title}, {dtype}", xlabel="tokens of the text", ylabel=unit)
            panel.set_xticks(lengths, [f"{length:,}" for length in lengths])
            if len(lengths) > 1:
                panel.minorticks_off()
            panel.grid(alpha=0.3)
    panels[0][0].legend(fontsize=8)
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--only", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(*json.loads(options.child))))
        return
    if options.out is None:
        parser.error("-o is required: the directory for the table and the picture")
    options.out.mkdir(parents=True, exist_ok=True)
    figures: dict[str, dict[str, float] | None] = {}
    print(f"{'family':10} {'tokens':>6} {'':13} {'side':23} {'seconds':>8} {'tokens/s':>9} {'MiB':>7}  ours")
    for family in options.only:
        for length in options.lengths:
            for title, mode in STEP.items():
                ours: dict[str, float] = {}
                for side, dtype in SIDES:
                    if dtype not in options.dtypes:
                        continue
                    cell = run_child(side, family, length, dtype, mode)
                    figures[f"{side} {family} {length} {dtype} {mode}"] = cell
                    if cell is None:
                        continue
                    if side == "ours":
                        ours[dtype] = cell["seconds"]
                    ratio = f"{cell['seconds'] / ours[dtype]:.2f}x" if dtype in ours else ""
                    print(
                        f"{family:10} {length:6,} {title:13} {side + ', ' + dtype:23} {cell['seconds']:8.3f} "
                        f"{length / cell['seconds']:9,.0f} {cell['mib']:7,.0f}  {ratio}",
                        flush=True,
                    )
    (options.out / "long.json").write_text(json.dumps(figures, indent=1), encoding="utf-8")
    draw(figures, options.lengths, options.only, options.dtypes[-1], options.out / "long.png")


if __name__ == "__main__":
    main()
