"""Draw docs/pictures/few_examples.png from docs/measurements: python -m tools.draw_few_examples

Scores with 95 % intervals of the models of `python -m benchmarks.few_examples`, a panel for each number of rows.
"""

from collections.abc import Mapping

import matplotlib.pyplot as plt

from benchmarks.figures.few_examples import FROZEN, METRIC_NAMES, METRICS, SETS, TRAINED, cells_of, stated
from benchmarks.measurements import ROOT, read

COLOURS: Mapping[str, str] = {
    "ours": "tab:red",
    "vectors": "tab:blue",
    "tfidf": "tab:gray",
    "ours-trained": "tab:red",
    "transformers": "tab:green",
    "setfit": "tab:purple",
}
SPACE = 0.13  # between the models of a set


def main() -> None:
    measurement = read("few-examples")
    cells = cells_of(measurement)
    titles = {**FROZEN, **TRAINED}
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.6), sharey=True, layout="constrained")
    for panel, number in zip(panels, (8, 64), strict=True):
        for row, name in enumerate(SETS):
            for place, method in enumerate(titles):
                keys = cells[name, number][method]
                if not keys:
                    continue
                score = stated(measurement, name, keys)
                y = row + SPACE * (place - 1.5)
                is_trained = method in TRAINED
                panel.plot([100 * score.low, 100 * score.high], [y, y], color=COLOURS[method], linewidth=1)
                panel.scatter(
                    100 * score.value,
                    y,
                    s=30,
                    zorder=3,
                    color="white" if is_trained else COLOURS[method],
                    edgecolor=COLOURS[method],
                    label=titles[method].replace("`", "") if row == 0 else None,
                )
        panel.set_title(f"{number} rows a class")
        panel.set_xlabel("score, % (95 % interval)")
        panel.grid(axis="x", alpha=0.3)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    labels = [f"{name}\n({METRIC_NAMES[METRICS.get(name, 'accuracy')]})" for name in SETS]
    panels[0].set_yticks(range(len(SETS)), labels)
    panels[0].invert_yaxis()

    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False, fontsize=9)
    figure.savefig(ROOT / "docs/pictures/few_examples.png", dpi=110)


if __name__ == "__main__":
    main()
