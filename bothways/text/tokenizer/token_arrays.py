"""Arrays of token ids: many texts one after another, without an object for each."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class TokenArrays(NamedTuple):
    """Texts as arrays of token ids, special tokens included: text n is ids[starts[n] : starts[n + 1]].

    ids [T]: int32, of all texts one after another.
    starts [N + 1]: int64.
    """

    ids: "NDArray[np.int32]"
    starts: "NDArray[np.int64]"


def join_arrays(blocks: Iterable[TokenArrays]) -> TokenArrays:
    """The texts of all blocks."""
    import numpy as np

    ids = [np.zeros(0, np.int32)]
    starts = [np.zeros(1, np.int64)]
    for block in blocks:
        ids.append(block.ids)
        starts.append(block.starts[1:] + starts[-1][-1])
    return TokenArrays(np.concatenate(ids), np.concatenate(starts))
