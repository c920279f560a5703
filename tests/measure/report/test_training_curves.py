"""Training curves as a picture: the values that it shows, and what a viewer needs for it."""

import math

import numpy as np
import pytest

from bothways.base.errors import InputError
from bothways.measure.report import chart
from bothways.measure.report.training_curves import draw_curves, smooth, thin
from tests.pictures import charts_of, is_standalone


def make_rows(seeds, name="seed"):
    for seed in seeds:
        for step in range(1, 41):
            yield {
                "step": step,
                "split": "train",
                "loss": 2.0 * seed + 1 / step,
                "learning_rate": 1e-4 / step,
                name: seed,
            }
            if step % 10 == 0:
                yield {"step": step, "split": "heldout", "loss": seed + 0.5, "spearman": 0.5 + seed / 10, name: seed}


def draw(rows, **options):
    picture = draw_curves(list(rows), title="a run", levels={"baseline": 0.1}, **options)
    return charts_of(picture.svg)


def close(points, x=0.06, y=0.03):
    """The same points, as far as lengths of a tenth of a unit show."""
    return [(pytest.approx(step, abs=x), pytest.approx(value, abs=y)) for step, value in points]


@pytest.mark.parametrize("name", ["seed", "fold"])
def test_each_seed_and_each_fold_has_its_own_line_through_its_points(name):
    panels = draw(make_rows([0, 1, 2], name), metric="spearman", unit="number")
    assert list(panels) == ["Loss", "spearman, dev", "Learning rate"]
    loss = panels["Loss"]
    steps = range(1, 41)
    assert loss.lines("train") == [close([(step, 2.0 * seed + 1 / step) for step in steps]) for seed in range(3)]
    assert loss.lines("heldout") == [close([(step, seed + 0.5) for step in (10, 20, 30, 40)]) for seed in range(3)]
    assert loss.dots("heldout") == [point for one in loss.lines("heldout") for point in one]
    for seed, line in enumerate(loss.lines("series0")):  # seeds are smoothed separately
        assert len(line) == 40 and line[0][1] == pytest.approx(2.0 * seed + 1, abs=0.3)
        assert min(value for _, value in line) > 2.0 * seed
    scores = panels["spearman, dev"].lines("heldout")
    assert scores == [close([(step, 0.5 + seed / 10) for step in (10, 20, 30, 40)], y=0.003) for seed in range(3)]
    rates = panels["Learning rate"].lines("series0")
    assert rates == [close([(step, 1e-4 / step) for step in steps], y=1e-6)] * 3


def test_axes_and_lines_are_named():
    panels = draw(make_rows([0]), metric="spearman", unit="number")
    assert {name: (one.x_name, one.y_name) for name, one in panels.items()} == {name: ("step", name) for name in panels}
    assert panels["Loss"].legend == ["train", "held out", "smoothed"]
    assert panels["spearman, dev"].legend == ["held out", "baseline"]
    assert panels["Learning rate"].legend == ["train"]


def test_the_baseline_is_a_horizontal_line():
    chart = draw(make_rows([0]), metric="spearman", unit="number")["spearman, dev"]
    assert chart.lines("level") == [close([(0, 0.1), (40, 0.1)], y=0.001)]


def test_shares_are_percentages():
    rows = [{"step": step, "split": "heldout", "accuracy": 0.5 + step / 100} for step in (10, 20)]
    chart = draw(rows, metric="accuracy")["accuracy, dev"]
    assert [text for text, _, kind in chart.texts if kind == "end"] == ["0%", "20%", "40%", "60%", "80%"]
    assert chart.lines("heldout") == [close([(10, 0.6), (20, 0.7)], y=0.002)]


def test_pretraining_shows_the_recorded_quantities_and_perplexity_on_a_logarithmic_axis():
    rows = [{"step": step, "split": "train", "loss": 5.0, "learning_rate": 1e-3} for step in (1, 2)]
    rows += [{"step": step, "split": "heldout", "loss": 4.0, "perplexity": 54.6 * step} for step in (1, 2, 3)]
    panels = draw(rows)
    assert list(panels) == ["Loss", "Perplexity, held out", "Learning rate"]
    values = panels["Perplexity, held out"].lines("heldout", is_log=True)
    assert values == [[(pytest.approx(step, abs=0.02), pytest.approx(54.6 * step, rel=0.01)) for step in (1, 2, 3)]]


def test_non_finite_values_are_gaps():
    losses = [3.0, 2.5, math.nan, 2.0, math.inf, 1.5, 1.0, 0.5]
    chart = draw({"step": step, "split": "train", "loss": loss} for step, loss in enumerate(losses, 1))["Loss"]
    expected = [[(1, 3.0), (2, 2.5)], [(4, 2.0)], [(6, 1.5), (7, 1.0), (8, 0.5)]]
    assert chart.lines("train") == [close(part, 0.02, 0.02) for part in expected]
    assert [len(part) for part in chart.lines("series0")] == [2, 1, 3]
    nothing = draw([{"step": 0, "split": "train", "loss": math.nan}])["Loss"]
    assert nothing.lines("train") == [] and len(nothing.y_ticks) > 1


def test_a_picture_stands_alone_and_shows_itself_in_notebooks(tmp_path):
    picture = draw_curves([*make_rows([0])], title="<a> & b", levels={})
    assert is_standalone(picture.svg) and ">&lt;a&gt; &amp; b</text>" in picture.svg
    assert picture.write(tmp_path / "curves.svg") is picture and picture.write(None) is picture
    assert (tmp_path / "curves.svg").read_text(encoding="utf-8") == picture._repr_svg_() == picture.svg
    assert repr(picture) == "Picture()"
    selectors = [line for line in picture.svg.splitlines() if line.startswith("svg")]
    assert selectors and all(line.startswith("svg.picture ") for line in selectors)


def test_a_long_line_has_few_positions_and_all_its_peaks():
    rows = [{"step": step, "split": "train", "loss": 1 + step % 7 / 10 + 3 * (step == 7013)} for step in range(20_000)]
    (line,) = draw(rows)["Loss"].lines("train")
    assert len(line) < 1300 and max(line, key=lambda point: point[1]) == (
        pytest.approx(7013, abs=10), pytest.approx(4 + 7013 % 7 / 10, abs=0.02),
    )  # fmt: skip
    assert line[0][0] == 0 and line[-1][0] == pytest.approx(19_999, abs=10)
    column = [(5.1, 3.0), (5.2, 9.0), (5.2, 9.0), (5.3, 4.0), (5.4, 1.0), (5.4, 2.0), (7.0, 2.0)]
    assert [*thin(column)] == [(5.1, 3.0), (5.2, 9.0), (5.4, 1.0), (5.4, 2.0), (7.0, 2.0)]


def smoothed(values_N):
    points = [*enumerate(values_N.tolist(), 5)]
    assert [step for step, _ in smooth(points)] == [step for step, _ in points]
    return np.array([value for _, value in smooth(points)])


@pytest.mark.parametrize("num_records", [7, 41, 307, 2003])
@pytest.mark.parametrize("curve", [lambda x: 5 + 0 * x, lambda x: 3 - 2 * x, lambda x: 3 + 4 * np.exp(-7 * x)])
def test_the_smoothed_line_passes_through_the_middle_of_the_records(curve, num_records):
    expected_N = curve(np.linspace(0, 1, num_records))
    noise_N = np.random.default_rng(0).normal(0, 0.2, num_records)
    residual_N = expected_N + noise_N - smoothed(expected_N + noise_N)
    assert abs(residual_N.mean()) < 1e-6
    if num_records > 40:
        thirds = np.array_split(residual_N, 3)
        assert max(abs(third.mean()) for third in thirds) < 0.03
    assert num_records < 40 or np.square(smoothed(noise_N)).mean() < np.square(noise_N).mean() / 3


@pytest.mark.parametrize("num_records", [4, 5, 23])
def test_the_smoothed_line_is_that_of_the_whole_matrices(num_records):
    values_N = np.random.default_rng(1).normal(size=num_records)
    difference_MN = np.diff(np.eye(num_records), 2, axis=0)
    expected_N = np.linalg.solve(np.eye(num_records) + difference_MN.T @ difference_MN, values_N)
    np.testing.assert_allclose(smoothed(values_N), expected_N, rtol=1e-9)


def test_non_finite_losses_are_gaps_of_the_smoothed_line():
    values_N = np.linspace(3, 1, 29)
    values_N[[4, 17]] = np.inf, np.nan
    smoothed_N = smoothed(values_N)
    assert np.flatnonzero(np.isnan(smoothed_N)).tolist() == [4, 17]
    assert np.nanmax(np.abs(smoothed_N - np.linspace(3, 1, 29))) < 0.05
    assert smooth([(3, 2.5)]) == [(3, 2.5)] and smooth([]) == []


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1.9, 31.0, [2, 5, 10, 20]),
        (3.3, 4.4, [3.5, 4.0]),
        (1.5, 2e4, [2, 20, 200, 2000, 20000]),
        (0.4, 8.0, [0.5, 1, 2, 5]),
    ],
)
def test_ticks_of_a_logarithmic_axis_are_round_numbers(low, high, ticks):
    assert chart.log_ticks(low, high) == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("low", "high"), [(1.0, 1e9), (99.0, 104.0), (3.99, 4.01), (1.2, 2.1), (7e-4, 0.3), (5.0, 5.0), (1.0, 1e80)]
)
def test_a_logarithmic_axis_has_two_to_seven_ticks_with_plain_labels(low, high):
    rows = [{"step": step, "split": "heldout", "perplexity": value} for step, value in ((1, low), (2, high))]
    panel = draw(rows)["Perplexity, held out"]
    labels = [text for text, _, kind in panel.texts if kind == "end"]
    assert 2 <= len(labels) <= 7 and len(set(labels)) == len(labels) == len(panel.y_ticks)
    values = [value for _, value in panel.lines("heldout", is_log=True)[0]]
    assert np.log(values) == pytest.approx(np.log([low, high]), rel=0.01, abs=0.01)


def test_a_picture_that_cannot_be_drawn_is_one_line(tmp_path):
    with pytest.raises(InputError, match="run: no metrics to plot"):
        draw_curves([], title="run", levels={})
    picture = draw_curves([*make_rows([0])], title="run", levels={})
    with pytest.raises(InputError, match=r"curves.png: .*ends in .svg"):
        picture.write(tmp_path / "curves.png")
    assert not [*tmp_path.iterdir()]
