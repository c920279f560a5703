"""Attention weights of a text, and their picture: the weights of one head, and a small map of every layer and head.

Letters: L layers, N heads, S tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bothways.base.errors import InputError
from bothways.measure.report.chart import Picture, draw_picture, label
from bothways.measure.report.markup import Html, element, join

Weights = NDArray[np.float32]
MOST_DRAWN, MOST_NUMBERED = 64, 16  # tokens of a picture, and of one with numbers in its cells
LONGEST_LABEL, CHARACTER = 14, 7  # of a token, in characters, and the width of one
SMALL, GAP, LEVELS = 40, 5, 20  # side of a small map, space between two, and shades
FAR_OFF = 2  # tokens: many heads read just the token before, in every text
TOP, SIDE, NARROWEST = 52, 400, 230  # place of the titles; side of the large map without labels; width of its title


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """How much each token of a text reads from each other token, in every layer and head. Notebooks show the picture.

    tokens: of the text, special tokens included. weights: float32 [L, N, S, S]; weights[layer, head, i, j] is the share
    that token i reads from token j, so that each row sums to 1. Layers and heads are counted from 0.
    """

    tokens: list[str]
    weights: NDArray[np.float32] = field(repr=False)

    def of_head(self, layer: int, head: int) -> Weights:
        """The weights of one head, float32 [S, S]: a row for each token that reads. InputError if there is no such
        layer or head."""
        for name, number, count in zip(("layer", "head"), (layer, head), self.weights.shape, strict=False):
            if not 0 <= number < count:
                raise InputError(f"{name} ({number}) must be from 0 to {count - 1}")
        weights_SS: Weights = self.weights[layer, head]
        return weights_SS

    def clearest_head(
        self, is_special: Sequence[bool], *, layer: int | None = None, head: int | None = None
    ) -> tuple[int, int]:
        """The layer and head in which words read most from single words far off; of a layer or head, if one is given.

        The measure of a head is the largest share that a token reads from a token at least FAR_OFF places away,
        averaged over the tokens; special tokens are left out on both sides. A head that looks at [CLS] and [SEP], at
        the token itself or at the one before has about 0, and one that looks everywhere the same 1 / S. Of equal heads
        it is the first.

        is_special: for each token, whether it is special.
        """
        words = np.flatnonzero(~np.asarray(is_special))
        if len(words) <= FAR_OFF:
            return layer or 0, head or 0

        between_words = self.weights[:, :, words[:, None], words]
        is_far = np.abs(words[:, None] - words) >= FAR_OFF
        clearness_LN = np.where(is_far, between_words, 0.0).max(-1).mean(-1)

        # Only the wanted layer or head competes.
        for axis, number in enumerate((layer, head)):
            if number is not None:
                others = np.arange(clearness_LN.shape[axis]) != number
                clearness_LN[(slice(None),) * axis + (others,)] = -1.0

        best_layer, best_head = np.unravel_index(clearness_LN.argmax(), clearness_LN.shape)
        return int(best_layer), int(best_head)

    def plot(self, file: str | Path | None = None, *, layer: int = 0, head: int = 0) -> Picture:
        """A picture of one head with its tokens, beside small maps of all layers and heads; written to a file (.svg),
        if one is named. InputError for more than 64 tokens, which could not be read."""
        if len(self.tokens) > MOST_DRAWN:
            raise InputError(f"the text has {len(self.tokens)} tokens; a picture has at most {MOST_DRAWN}, shorten it")
        large, (right, height) = draw_head(self.tokens, self.of_head(layer, head))
        small, (width, bottom) = draw_all(self.weights, layer, head, right + 60)
        title = f"Attention of layer {layer}, head {head}"
        return draw_picture(title, large, small, size=(width, max(height, bottom))).write(file)

    def _repr_html_(self) -> str | None:
        return self.plot().svg if len(self.tokens) <= MOST_DRAWN else None


def draw_head(tokens: list[str], weights_SS: Weights) -> tuple[Html, tuple[int, int]]:
    """One head as a table with a row for each token that reads, and its right and lower end."""
    names = [token if len(token) <= LONGEST_LABEL else f"{token[: LONGEST_LABEL - 1]}…" for token in tokens]
    margin, cell = 16 + CHARACTER * max(map(len, names)), max(12, min(34, SIDE // len(names)))
    top, side = TOP + margin, cell * len(names)
    shapes = [label((10, TOP), "Rows read from columns, in percent", "name")]
    for index, name in enumerate(names):
        middle = (index + 0.5) * cell + 4
        place = {"transform": f"translate({margin + middle:g},{top - 6}) rotate(-90)"}
        shapes += [label((margin - 6, top + middle), name, "end"), element("text", name, attributes=place)]
    for (row, column), weight in np.ndenumerate(weights_SS):
        if (percent := round(100 * float(weight))) >= 1:
            left, upper = margin + column * cell, top + row * cell
            size = {"x": left, "y": upper, "width": cell, "height": cell, "fill-opacity": round(float(weight), 2)}
            tooltip = element("title", f"{tokens[row]} reads {percent}% from {tokens[column]}")
            shapes.append(element("rect.weight", tooltip, attributes=size))
            if len(tokens) <= MOST_NUMBERED:
                style = "middle.number.light" if percent > 65 else "middle.number"
                shapes.append(label((left + cell / 2, upper + cell / 2 + 3.5), str(percent), style))
    frame = {"x": margin, "y": top, "width": side, "height": side}
    return join([*shapes, element("rect.frame", attributes=frame)]), (max(margin + side, NARROWEST), top + side + 12)


def draw_all(weights_LNSS: Weights, layer: int, head: int, left: int) -> tuple[Html, tuple[int, int]]:
    """A small map for each layer (row) and head (column), one of them with a frame, and their right and lower end."""
    layers, heads, size, _ = weights_LNSS.shape
    step, top = SMALL + GAP, TOP + 30
    shapes = [label((left, TOP), "All layers (rows) and heads (columns)", "name")]
    shapes += [label((left + column * step + SMALL / 2, top - 6), str(column), "middle") for column in range(heads)]
    shapes += [label((left - 6, top + row * step + SMALL / 2 + 4), str(row), "end") for row in range(layers)]
    for row, column in np.ndindex(layers, heads):
        x, y = left + column * step, top + row * step
        place = {"transform": f"translate({x},{y}) scale({SMALL / size:.4g})"}
        shapes.append(element("g", *shades(weights_LNSS[row, column]), attributes=place))
        frame = {"x": x - 0.5, "y": y - 0.5, "width": SMALL + 1, "height": SMALL + 1}
        shapes.append(element("rect.frame", attributes=frame))
        if (row, column) == (layer, head):
            frame = {"x": x - 2, "y": y - 2, "width": SMALL + 4, "height": SMALL + 4, "stroke-width": 2}
            chosen = element("rect.chosen", attributes=frame)
    return join([*shapes, chosen]), (left + max(heads * step, NARROWEST), top + layers * step + 12)


def shades(weights_SS: Weights) -> Iterator[Html]:
    """The cells of a map in units of a cell: a path for each shade but white, of equal neighbours at once."""
    paths: dict[int, str] = {}
    for row, levels in enumerate(np.rint(weights_SS * LEVELS).astype(int).tolist()):
        for level, run in groupby(enumerate(levels), lambda cell: cell[1]):
            columns = [column for column, _ in run]
            paths[level] = paths.get(level, "") + f"M{columns[0]} {row}h{len(columns)}v1h-{len(columns)}z"
    for level, path in sorted(paths.items()):
        if level:
            yield element("path.weight", attributes={"d": path, "fill-opacity": level / LEVELS})
