"""The picture of attention weights: cells, numbers, tokens and the maps of all heads."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from bothways.errors import InputError
from bothways.measure.report.attention_map import AttentionWeights

SVG = "{http://www.w3.org/2000/svg}"


def make(tokens=("[CLS]", "a", "<b>", "[SEP]"), layers=2, heads=3):
    rows = np.random.default_rng(0).random((layers, heads, len(tokens), len(tokens)), np.float32) ** 4
    return AttentionWeights([*tokens], rows / rows.sum(-1, keepdims=True))


def nodes(picture, path):
    return [*ElementTree.fromstring(picture.svg).iterfind(path.replace("/", f"/{SVG}"))]


def test_a_cell_shows_the_weight_of_its_row_and_column_in_the_chosen_head():
    found = make()
    picture = found.plot(layer=1, head=2)
    cells = nodes(picture, "./rect[@class='weight']")
    size, left, top = (min(float(one.get(name)) for one in cells) for name in ("width", "x", "y"))
    places = {
        (round((float(one.get("y")) - top) / size), round((float(one.get("x")) - left) / size)): one for one in cells
    }
    weights = found.weights[1, 2]
    assert set(places) == {tuple(place) for place in np.argwhere(np.rint(100 * weights) >= 1).tolist()}
    for (row, column), cell in places.items():
        assert float(cell.get("fill-opacity")) == pytest.approx(float(weights[row, column]), abs=0.005)
        percent = f"{100 * weights[row, column]:.0f}%"
        assert cell[0].text == f"{found.tokens[row]} reads {percent} from {found.tokens[column]}"
    numbers = [int(one.text) for one in nodes(picture, "./text") if "number" in one.get("class", "")]
    assert numbers == [round(100 * float(weight)) for weight in weights.flat if round(100 * float(weight))]
    assert sum(one.text == "<b>" for one in nodes(picture, "./text")) == 2  # of its row and its column


def test_every_head_has_a_map_of_its_shades():
    found = make()
    picture = found.plot()
    for index, one in enumerate(nodes(picture, "./g")):
        drawn = np.zeros((4, 4))
        for path in one.iterfind(f"{SVG}path"):
            for column, row, run in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\d+z", path.get("d")):
                drawn[int(row), int(column) : int(column) + int(run)] = float(path.get("fill-opacity"))
        assert np.abs(drawn - found.weights[divmod(index, 3)]).max() <= 0.025 + 1e-6
    assert len(nodes(picture, "./g")) == 6 and len(nodes(picture, "./rect[@class='chosen']")) == 1


def test_long_texts_have_no_numbers_and_very_long_ones_no_picture():
    assert not [one for one in nodes(make("a" * 17).plot(), "./text") if "number" in one.get("class", "")]
    assert make("a" * 64)._repr_html_() == make("a" * 64).plot().svg and make("a" * 65)._repr_html_() is None
    with pytest.raises(InputError, match="65 tokens"):
        make("a" * 65).plot()


def test_layers_and_heads_are_counted_from_0():
    found = make()
    assert (found.of_head(0, 2) == found.weights[0, 2]).all()
    for layer, head in ((2, 0), (-1, 0), (0, 3)):
        with pytest.raises(InputError, match=r"must be from 0 to (1|2)$"):
            found.plot(layer=layer, head=head)
