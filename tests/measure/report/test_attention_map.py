"""The picture of attention weights: cells, numbers, tokens and the maps of all heads."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from bothways.base.errors import InputError
from bothways.measure.report.attention_map import AttentionWeights

SVG = "{http://www.w3.org/2000/svg}"


def make(tokens=("[CLS]", "a", "<b>", "[SEP]"), layers=2, heads=3):
    rows = np.random.default_rng(0).random((layers, heads, len(tokens), len(tokens)), np.float32) ** 4
    return AttentionWeights([*tokens], rows / rows.sum(-1, keepdims=True))


def nodes(picture, path):
    return [*ElementTree.fromstring(picture.svg).iterfind(path.replace("/", f"/{SVG}"))]


IS_SPECIAL = [True, False, False, False, True]


def heads_by_name():
    """Weights [S, S] of [CLS] a b c [SEP] that are easily named."""
    size = len(IS_SPECIAL)
    to_separator, to_start, previous, half, across = (np.zeros((size, size), np.float32) for _ in range(5))
    to_separator[:, -1] = 1.0
    to_start[:, 0] = 1.0
    previous[0, 0] = 1.0
    previous[range(1, size), range(size - 1)] = 1.0
    across[range(size), [0, 3, 3, 1, 4]] = 1.0
    half[:] = (across + to_separator) / 2
    return {
        "separator": to_separator,
        "start": to_start,
        "uniform": np.full((size, size), 1 / size, np.float32),
        "itself": np.eye(size, dtype=np.float32),
        "half": half,
        "previous": previous,
        "across": across,
    }


@pytest.mark.parametrize(
    "names, clearest",
    [
        (("separator", "start", "itself", "uniform"), "uniform"),
        (("separator", "half", "previous", "itself"), "half"),
        (("half", "start", "across", "uniform"), "across"),
    ],
)
def test_the_clearest_head_reads_most_from_single_words_far_off(names, clearest):
    by_name = heads_by_name()
    weights = np.stack([by_name[name] for name in names]).reshape(2, 2, 5, 5)
    found = AttentionWeights(["[CLS]", "a", "b", "c", "[SEP]"], weights)
    place = found.clearest_head(IS_SPECIAL)
    assert names[2 * place[0] + place[1]] == clearest
    for number in (0, 1):
        assert found.clearest_head(IS_SPECIAL, layer=number)[0] == number
        assert found.clearest_head(IS_SPECIAL, head=number)[1] == number


@pytest.mark.parametrize("tokens", [("[CLS]", "[SEP]"), ("[CLS]", "a", "b", "[SEP]"), ("a",)])
def test_a_text_without_words_far_off_has_the_first_head(tokens):
    is_special = [token.startswith("[") for token in tokens]
    found = make(tokens)
    assert found.clearest_head(is_special) == (0, 0)
    assert found.clearest_head(is_special, layer=1, head=2) == (1, 2)


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
