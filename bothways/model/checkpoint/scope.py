"""The scope of a classifier: where the vectors of its training texts lie, and how far from them held-out texts are. No
torch.

The distance is a relative Mahalanobis distance (Ren 2021): from the squared Mahalanobis distance to the nearest group
of training texts, most of the distance to all of them is subtracted, so that directions in which all texts differ count
less.

Letters: N texts, G groups of training texts (the classes), H size of a vector.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from bothways.base.errors import InputError

SCOPE = "scope.safetensors"  # file of a model's directory
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Scope:
    """The distance of a text to the training texts, and the distances of held-out texts, ascending.

    For the vector x of length 1, and z = x - center_H: z A z - 2 max over groups of (z v + offset), where A is
    `quadratic_HH`, the inverse covariance within groups minus a part of the inverse covariance of all texts, and v, a
    row of `means_GH`, is the mean of a group times the inverse covariance within groups.

    held_out: distances of texts held out from the training, thinned out if there are many.
    rows: number of held-out texts.
    """

    center_H: Floats
    quadratic_HH: Floats
    means_GH: Floats
    offsets_G: Floats
    held_out: Sequence[float]
    rows: int

    def distances(self, vectors_NH: Floats) -> NDArray[np.float32]:
        """The distance of each text to the training texts, by the vector that the head reads: float32 [N]."""
        # In float32 whatever the fields are, since they are stored in float32: a model read again measures the same.
        center_H = self.center_H.astype(np.float32)
        quadratic_HH = self.quadratic_HH.astype(np.float32)
        means_GH = self.means_GH.astype(np.float32)
        offsets_G = self.offsets_G.astype(np.float32)

        centered_NH = unit_vectors(vectors_NH) - center_H
        curved_N = np.einsum("nh,nh->n", centered_NH @ quadratic_HH, centered_NH)
        nearness_NG = centered_NH @ means_GH.T + offsets_G
        distances_N: NDArray[np.float32] = curved_N - 2 * nearness_NG.max(1)
        return distances_N

    def write(self, directory: Path) -> None:
        """Write the file into the directory of a model: about 0.8 MB for 384 numbers and 150 classes.

        OSError if it cannot be written.
        """
        arrays = {
            "center": self.center_H.astype(np.float32),
            "quadratic": self.quadratic_HH.astype(np.float32),
            "means": self.means_GH.astype(np.float32),
            "offsets": self.offsets_G.astype(np.float32),
            "held_out": np.array(self.held_out, np.float32),
            "rows": np.array([self.rows], np.int64),
        }

        # As bytes: save_file would restrict the file to its owner.
        content = save({name: np.ascontiguousarray(value) for name, value in arrays.items()})
        (directory / SCOPE).write_bytes(content)

    @staticmethod
    def read(file: Path) -> "Scope | None":
        """The scope in a file; None without the file. InputError if its arrays do not belong together."""
        if not file.is_file():
            return None

        try:
            arrays = load_file(file)
            center_H = arrays["center"]
            means_GH = arrays["means"]
            held_out = arrays["held_out"]
            expected = {
                "quadratic": (len(center_H), len(center_H)),
                "offsets": (len(means_GH),),
                "rows": (1,),
            }
            shapes = {name: arrays[name].shape for name in expected}
        except (KeyError, TypeError, ValueError, OSError, SafetensorError) as error:
            raise InputError(f"{file}: broken ({error}); fine-tune again, or delete it") from None

        if shapes != expected or means_GH.shape[1:] != center_H.shape:
            raise InputError(f"{file}: its arrays do not belong together; fine-tune again, or delete it")
        return Scope(
            center_H=center_H,
            quadratic_HH=arrays["quadratic"],
            means_GH=means_GH,
            offsets_G=arrays["offsets"],
            held_out=tuple(held_out.tolist()),
            rows=int(arrays["rows"][0]),
        )


def unit_vectors(vectors_NH: Floats) -> NDArray[np.float32]:
    """Vectors of length 1, float32; a zero vector stays zero."""
    single_NH = vectors_NH.astype(np.float32)
    lengths_N = np.linalg.norm(single_NH, axis=1)
    unit_NH: NDArray[np.float32] = single_NH / np.maximum(lengths_N, 1e-12)[:, None]
    return unit_NH
