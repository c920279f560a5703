"""Training curves as matplotlib figures, before they are saved."""

import sys

import numpy as np
import pytest

from bothways.measure.report import plot


@pytest.fixture(autouse=True)
def drawn(curves):
    with curves():
        yield


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
        assert line.get_ydata()[0] == pytest.approx(2.0 * seed + 1, abs=0.3) and min(line.get_ydata()) > 2.0 * seed
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
    assert len(panels["Perplexity, held out"].get_yticklabels()) >= 2


@pytest.mark.parametrize("num_records", [7, 41, 307, 2003])
@pytest.mark.parametrize("curve", [lambda x: 5 + 0 * x, lambda x: 3 - 2 * x, lambda x: 3 + 4 * np.exp(-7 * x)])
def test_the_smoothed_line_passes_through_the_middle_of_the_records(curve, num_records):
    expected_N = curve(np.linspace(0, 1, num_records))
    noise_N = np.random.default_rng(0).normal(0, 0.2, num_records)
    residual_N = expected_N + noise_N - plot.smooth(expected_N + noise_N)
    assert abs(residual_N.mean()) < 1e-6
    if num_records > 40:
        thirds = np.array_split(residual_N, 3)
        assert max(abs(third.mean()) for third in thirds) < 0.03
    assert num_records < 40 or np.square(plot.smooth(noise_N)).mean() < np.square(noise_N).mean() / 3


def test_non_finite_losses_are_gaps_of_the_smoothed_line():
    values_N = np.linspace(3, 1, 29)
    values_N[[4, 17]] = np.inf, np.nan
    smoothed_N = np.array(plot.smooth(values_N))
    assert np.flatnonzero(np.isnan(smoothed_N)).tolist() == [4, 17]
    assert np.nanmax(np.abs(smoothed_N - np.linspace(3, 1, 29))) < 0.05
    assert plot.smooth([2.5]) == [2.5] and plot.smooth([]) == []


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1.9, 31.0, [2, 5, 10, 20]),
        (3.3, 4.4, [3.4, 3.6, 3.8, 4.0, 4.2, 4.4]),
        (1.5, 2e4, [10, 100, 1000, 10000]),
        (0.4, 8.0, [0.5, 1, 2, 5]),
    ],
)
def test_ticks_of_a_logarithmic_axis_are_round_numbers(low, high, ticks):
    assert plot.log_ticks(low, high) == pytest.approx(ticks)


@pytest.mark.parametrize(("low", "high"), [(1.0, 1e9), (99.0, 104.0), (3.99, 4.01), (1.2, 2.1), (7e-4, 0.3)])
def test_a_logarithmic_axis_has_two_to_seven_ticks_with_plain_labels(low, high):
    from matplotlib.figure import Figure

    axis = Figure().subplots()
    axis.plot([1, 2], [low, high])
    plot.set_log_scale(axis)
    labels = [text.get_text() for text in axis.get_yticklabels()]
    assert 2 <= len(labels) <= 7 and len(set(labels)) == len(labels)
    assert [float(label.replace(",", "")) for label in labels] == pytest.approx(axis.get_yticks())
    assert not len(axis.get_yticks(minor=True))


def test_a_plot_that_cannot_be_drawn_is_one_line(tmp_path, monkeypatch):
    from bothways.errors import InputError

    with pytest.raises(InputError, match="run: no metrics to plot"):
        plot.draw_curves([], title="run", levels={})
    with pytest.raises(InputError, match=r"curves.docx: .*docx.* is not supported"):
        plot.draw_curves([*make_rows([0])], title="run", levels={}, file=tmp_path / "curves.docx")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"matplotlib.*pip install matplotlib"):
        plot.draw_curves([], title="run", levels={})
