"""Training curves as matplotlib figures, before they are saved."""

import numpy as np
import pytest

from bothways.report import plot


def make_rows(seeds):
    for seed in seeds:
        for step in range(1, 41):
            yield {
                "step": step,
                "split": "train",
                "loss": 2.0 * seed + 1 / step,
                "learning_rate": 1e-4 / step,
                "seed": seed,
            }
            if step % 10 == 0:
                yield {"step": step, "split": "heldout", "loss": seed + 0.5, "spearman": 0.5 + seed / 10, "seed": seed}


def draw_panels(rows, **options):
    figure = plot.draw_curves(list(rows), title="a run", levels={"baseline": 0.1}, **options)
    return {axis.get_title(): axis for axis in figure.axes}


def test_each_seed_has_its_own_line():
    panels = draw_panels(make_rows([0, 1, 2]), metric="spearman")
    assert list(panels) == ["Loss", "spearman, dev", "Learning rate"]
    for axis, lines in (("Loss", 9), ("spearman, dev", 3 + 1), ("Learning rate", 3)):
        drawn = [line for line in panels[axis].lines if len(line.get_xdata()) > 2]
        assert len(panels[axis].lines) == lines
        assert all((np.diff(line.get_xdata()) > 0).all() for line in drawn), f"a line of {axis} goes back"
    smooth = [line for line in panels["Loss"].lines if line.get_color() == "tab:blue"]
    for seed, line in enumerate(smooth):  # seeds are smoothed separately
        assert line.get_ydata()[0] == pytest.approx(2.0 * seed + 1) and min(line.get_ydata()) > 2.0 * seed
    assert [text.get_text() for text in panels["Loss"].get_legend().get_texts()] == [
        "train", "train, smoothed", "held out",
    ]  # fmt: skip


def test_the_baseline_is_a_horizontal_line():
    axis = draw_panels(make_rows([0]), metric="spearman")["spearman, dev"]
    assert [list(line.get_ydata()) for line in axis.lines][1] == [0.1, 0.1]
    assert "baseline" in [text.get_text() for text in axis.get_legend().get_texts()]


def test_pretraining_shows_the_recorded_quantities():
    rows = [{"step": step, "split": "train", "loss": 5.0, "learning_rate": 1e-3} for step in (1, 2)]
    rows += [{"step": 2, "split": "heldout", "loss": 4.0, "perplexity": 54.6}]
    panels = draw_panels(rows)
    assert list(panels) == ["Loss", "Perplexity, held out", "Learning rate"]
    assert panels["Perplexity, held out"].get_yscale() == "log"
