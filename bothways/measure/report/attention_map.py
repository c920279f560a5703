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
FAR_OFF = 2  # tokens: many heads read just the token before, in every text

MOST_DRAWN = 64  # tokens of a picture
MOST_NUMBERED = 16  # tokens of a picture with numbers in its cells
LONGEST_LABEL = 14  # of a token, in characters
CHARACTER = 7  # width of a character
TOP = 52  # of the titles
SIDE = 400  # of the large map, without labels
NARROWEST = 230  # width of its title
SMALL = 40  # side of a small map
GAP = 5  # between two small maps
LEVELS = 20  # shades of a small map

End = tuple[int, int]  # the right and the lower end of a drawing


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """How much each token of a text reads from each other token, in every layer and head. Notebooks show the picture.

    tokens: the tokens of the text, special tokens included.
    weights: float32 [L, N, S, S]; weights[layer, head, i, j] is the share that token i reads from token j, so that each
        row sums to 1. Layers and heads are counted from 0.
    """

    tokens: list[str]
    weights: NDArray[np.float32] = field(repr=False)

    def of_head(self, layer: int, head: int) -> Weights:
        """The weights of one head, float32 [S, S]: a row for each token that reads. InputError if there is no such
        layer or head."""
        num_layers, num_heads = self.weights.shape[:2]
        for name, number, count in (("layer", layer, num_layers), ("head", head, num_heads)):
            if not 0 <= number < count:
                raise InputError(f"{name} ({number}) must be from 0 to {count - 1}")

        weights_SS: Weights = self.weights[layer, head]
        return weights_SS

    def clearest_head(
        self,
        is_special: Sequence[bool],
        *,
        layer: int | None = None,
        head: int | None = None,
    ) -> tuple[int, int]:
        """The layer and head in which words read most from single words far off; of a layer or head, if one is given.

        The measure of a head is the largest share that a token reads from a token at least FAR_OFF places away,
        averaged over the tokens; special tokens are left out on both sides. A head that looks at [CLS] and [SEP], at
        the token itself or at the one before has about 0, and one that looks everywhere the same 1 / S. Of equal heads
        it is the first.

        is_special: for each token, whether it is special.
        layer, head: the only one to choose from.
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
        """A picture of one head with its tokens, beside small maps of all layers and heads.

        file: the file (.svg) to write it to, if one is named.
        layer, head: the head that is drawn large.

        InputError for more than 64 tokens, which could not be read.
        """
        if len(self.tokens) > MOST_DRAWN:
            raise InputError(f"the text has {len(self.tokens)} tokens; a picture has at most {MOST_DRAWN}, shorten it")

        large, (right, large_bottom) = draw_head(self.tokens, self.of_head(layer, head))
        small, (width, small_bottom) = draw_all(self.weights, layer, head, left=right + 60)
        size = (width, max(large_bottom, small_bottom))
        title = f"Attention of layer {layer}, head {head}"
        return draw_picture(title, large, small, size=size).write(file)

    def _repr_html_(self) -> str | None:
        if len(self.tokens) > MOST_DRAWN:
            return None
        return self.plot().svg


def draw_head(tokens: list[str], weights_SS: Weights) -> tuple[Html, End]:
    """One head as a table with a row for each token that reads, and its right and lower end."""
    names = [shorten(token) for token in tokens]
    margin = 16 + CHARACTER * max(map(len, names))  # the names stand left of the table, and above it
    cell = max(12, min(34, SIDE // len(names)))
    top = TOP + margin
    side = cell * len(names)

    shapes = [label((10, TOP), "Rows read from columns, in percent", "name")]
    for index, name in enumerate(names):
        middle = (index + 0.5) * cell + 4
        shapes.append(label((margin - 6, top + middle), name, "end"))
        upright = {"transform": f"translate({margin + middle:g},{top - 6}) rotate(-90)"}
        shapes.append(element("text", name, attributes=upright))

    for (row, column), weight in np.ndenumerate(weights_SS):
        percent = round(100 * float(weight))
        if percent < 1:
            continue
        left = margin + column * cell
        upper = top + row * cell
        square = {
            "x": left,
            "y": upper,
            "width": cell,
            "height": cell,
            "fill-opacity": round(float(weight), 2),
        }
        tooltip = element("title", f"{tokens[row]} reads {percent}% from {tokens[column]}")
        shapes.append(element("rect.weight", tooltip, attributes=square))
        if len(tokens) <= MOST_NUMBERED:
            style = "middle.number.light" if percent > 65 else "middle.number"
            shapes.append(label((left + cell / 2, upper + cell / 2 + 3.5), str(percent), style))

    shapes.append(draw_frame("frame", margin, top, side))
    return join(shapes), (max(margin + side, NARROWEST), top + side + 12)


def shorten(token: str) -> str:
    if len(token) <= LONGEST_LABEL:
        return token
    return f"{token[: LONGEST_LABEL - 1]}…"


def draw_frame(style: str, left: float, top: float, side: float, **more: float) -> Html:
    """The frame of a square. more: attributes."""
    square = {
        "x": left,
        "y": top,
        "width": side,
        "height": side,
    }
    return element(f"rect.{style}", attributes=square | more)


def draw_all(weights_LNSS: Weights, layer: int, head: int, left: int) -> tuple[Html, End]:
    """A small map for each layer (row) and head (column), one of them with a frame, and their right and lower end."""
    num_layers, num_heads, size, _ = weights_LNSS.shape
    step = SMALL + GAP
    top = TOP + 30

    shapes = [label((left, TOP), "All layers (rows) and heads (columns)", "name")]
    for column in range(num_heads):
        shapes.append(label((left + column * step + SMALL / 2, top - 6), str(column), "middle"))
    for row in range(num_layers):
        shapes.append(label((left - 6, top + row * step + SMALL / 2 + 4), str(row), "end"))

    for row, column in np.ndindex(num_layers, num_heads):
        x = left + column * step
        y = top + row * step
        scaled = {"transform": f"translate({x},{y}) scale({SMALL / size:.4g})"}
        shapes.append(element("g", *shades(weights_LNSS[row, column]), attributes=scaled))
        shapes.append(draw_frame("frame", x - 0.5, y - 0.5, SMALL + 1))

    # Last, so that no neighbour covers it.
    x = left + head * step
    y = top + layer * step
    shapes.append(draw_frame("chosen", x - 2, y - 2, SMALL + 4, **{"stroke-width": 2}))
    return join(shapes), (left + max(num_heads * step, NARROWEST), top + num_layers * step + 12)


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
