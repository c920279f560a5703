"""What large runs take, from figures that were measured on single machines: tokens, hours, network, money.

    python -m benchmarks.cost [--gpu MEASURED.json] [--gpu-hour 3.5] [--core-hour 0.04] [--texts 2000]

The GPU's figures are those of `make gpu` (docs/measurements); embedding on a processor is measured now, with texts of
the same length, by `embed` with a process of one thread for each core. Prices are assumptions: replace them.
"""

import argparse
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.scale import parts_speed, run
from tools.gpu.steps import short_texts

SHORT, LONG = 0.9e6 * 256 * 128, 0.1e6 * 256 * 512  # tokens of BERT: steps, sequences, length (Devlin 2018, A.2)
WORDS, BYTES_PER_WORD = 3.3e9, 6.0  # of BERT's corpus; English
BYTES_PER_TOKEN = 402.6e6 / 85_773_961  # of Wikipedia and Google's vocabulary (docs/RESULTS.md, the token store)
TOKENIZED = 12.2e6 / 2  # bytes/s of a core, into a store (ibid.)
PARAMETERS, BATCH = 110e6, 256 * 512
EFFICIENCY = 0.9  # of eight GPUs in a machine, an assumption: not measured
VECTORS = 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", type=Path, default=Path("docs/measurements/2026-11-27-h200.json"))
    parser.add_argument("--gpu-hour", type=float, default=3.5, help="dollars")
    parser.add_argument("--core-hour", type=float, default=0.04, help="dollars")
    parser.add_argument("--texts", type=int, default=2000, help="to measure the processor with")
    settings = parser.parse_args()
    steps = json.loads(settings.gpu.read_text(encoding="utf-8"))["steps"]
    print(f"GPU: {steps['machine']['device']}, ${settings.gpu_hour} an hour; a core ${settings.core_hour} an hour\n")
    pretraining(steps["pretraining"], settings.gpu_hour, settings.core_hour)
    embedding(steps["embedding"], settings)


def pretraining(measured: dict, price: float, core: float) -> None:
    speeds = [measured[f"bothways, {length} tokens"]["rate"] for length in (128, 512)]
    hours = (SHORT / speeds[0] + LONG / speeds[1]) / 3600
    text, tokens = WORDS * BYTES_PER_WORD, WORDS * BYTES_PER_WORD / BYTES_PER_TOKEN
    print(f"BERT-Base, {WORDS / 1e9:.1f} B words: {text / 1e9:.0f} GB of text, {tokens / 1e9:.1f} B tokens, a store of")
    prepared = text / TOKENIZED / 3600
    print(f"{2 * tokens / 1e9:.0f} GB, tokenized in {prepared:.1f} core hours (${prepared * core:.2f}); trained on")
    print(f"{SHORT / 1e9:.1f} B tokens in sequences of 128 and {LONG / 1e9:.1f} B in sequences of 512:\n")
    print("| GPUs | hours | dollars | sent by each in a step | in |\n|---|---|---|---|---|")
    for gpus in (1, 8, 16):
        efficiency = EFFICIENCY if gpus > 1 else 1.0
        sent = 2 * (gpus - 1) / gpus * PARAMETERS * 2  # gradients in bf16, added up in a ring
        seconds = BATCH / speeds[1] / gpus / efficiency
        needs = f"{sent / 1e6:.0f} MB | {1000 * seconds:.0f} ms, so {8 * sent / seconds / 1e9:.0f} Gbit/s if one waits"
        total = hours / gpus / efficiency
        print(f"| {gpus} | {total:.1f} | {total * gpus * price:.0f} | {needs if gpus > 1 else ' | '} |")
    day = 8 * speeds[1] * EFFICIENCY * 86400
    print(f"\nEight GPUs train on {day / 1e12:.2f} T tokens a day.\n")


def embedding(measured: dict, settings: argparse.Namespace) -> None:
    cores, tokens = os.cpu_count() or 1, measured["6 x 384: tokens per text"]
    texts = short_texts(settings.texts)
    size = sum(len(text.encode()) for text in texts) / len(texts)
    with TemporaryDirectory() as folder:
        files, out = Path(folder, "in"), Path(folder, "out")
        files.mkdir()
        for part in range(40):
            (files / f"{part}.txt").write_text("\n".join(texts[part::40]) + "\n", encoding="utf-8")
        run("embed", "bothways-en", files, "-o", out, "--workers", cores)
        speed = parts_speed(out) / cores
    print(f"{VECTORS / 1e9:.0f} B texts of {tokens:.0f} tokens ({size:.0f} bytes), {VECTORS * size / 1e12:.2f} TB:\n")
    print("| | texts/s | hours | dollars | vectors, float32 | read and written |\n|---|---|---|---|---|---|")
    for name, width in (("6 x 384", 384), ("12 x 384", 384), ("12 x 768", 768)):
        rate = measured[f"{name}: bothways, texts"]["rate"]
        hours = VECTORS / rate / 3600
        rest = f"{hours * settings.gpu_hour:.0f} | {VECTORS * width * 4 / 1e12:.1f} TB"
        print(f"| {name}, a GPU | {rate:,.0f} | {hours:.1f} | {rest} | {rate * (size + width * 4) / 1e6:.0f} MB/s |")
    hours, width = VECTORS / speed / 3600, 384
    rest = f"{hours * settings.core_hour:.0f} | {VECTORS * width * 4 / 1e12:.1f} TB"
    moved = speed * (size + width * 4) / 1e6
    print(f"| bothways-en, a core | {speed:,.0f} | {hours:,.0f} | {rest} | {moved:.1f} MB/s |")


if __name__ == "__main__":
    main()
