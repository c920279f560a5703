"""Draw docs/pictures/comparison.png for docs/guide/serving.md from figures recorded in docs/RESULTS.md.

Run it after changing the figures: python tools/draw_comparison.py
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

DOCS = Path(__file__).parent.parent / "docs"
# Panels: title, unit, then (system, figure) in the order of the bars. All figures are from docs/RESULTS.md.
PANELS = (
    (
        "Embed 2,000 short texts with MiniLM-L6",
        "texts/s",
        (
            ("Bothways int8", "635"),
            ("ONNX Runtime int8", "596"),
            ("Bothways bf16", "499"),
            ("OpenVINO bf16", "452"),
            ("sentence-transformers bf16", "331"),
            ("ONNX Runtime float32", "290"),
            ("sentence-transformers float32", "182"),
        ),
    ),
    (
        "Fine-tune MiniLM-L6 on CoNLL-2003 for one epoch",
        "seconds, lower is better",
        (("Bothways bf16", "64.6"), ("transformers Trainer bf16", "162"), ("transformers Trainer float32", "338")),
    ),
    (
        "Pre-train a BERT of 4 layers, 256 wide",
        "tokens/s",
        (("Bothways bf16", "8,889"), ("transformers bf16", "1,800"), ("transformers float32", "1,340")),
    ),
)


def draw(path: Path) -> None:
    heights = [len(bars) + 1 for *_, bars in PANELS]
    figure, axes = pyplot.subplots(len(PANELS), 1, figsize=(8, 5.5), height_ratios=heights, layout="constrained")
    for axis, (title, unit, bars) in zip(axes, PANELS, strict=True):
        values = [float(value.replace(",", "")) for _, value in bars]
        colors = ["#2563a8" if name.startswith("Bothways") else "#b8c4d0" for name, _ in bars]
        labels = axis.barh([name for name, _ in bars], values, color=colors, height=0.7)
        axis.bar_label(labels, [value for _, value in bars], padding=4)
        axis.invert_yaxis()
        axis.set_title(f"{title}: {unit}", loc="left", fontsize=10)
        axis.set_xticks([])
        axis.set_xlim(0, max(values) * 1.12)
        axis.spines[["top", "right", "bottom"]].set_visible(False)
        axis.tick_params(left=False)
    figure.savefig(path, dpi=100, metadata={"Software": None})


if __name__ == "__main__":
    draw(DOCS / "pictures" / "comparison.png")
