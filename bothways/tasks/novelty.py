"""Texts unlike the training texts: the scope of a classifier is fitted, and a threshold is a share of held-out texts.

No texts from outside are needed: the threshold keeps a stated share of texts like the texts of fine-tuning (split
conformal; Vovk 2005). Letters: N texts, G groups of them, H size of a vector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bothways.base.errors import InputError, format_count
from bothways.base.rng import Purpose, generator
from bothways.model.checkpoint.scope import Scope, unit_vectors
from bothways.tasks.arrays import NO_LABEL
from bothways.tasks.class_decoding import MAX_STORED, held_out_quantile, thinned

if TYPE_CHECKING:
    from bothways.model.checkpoint.description import Description
    from bothways.model.model import Model
    from bothways.tasks.text_examples import TextExamples

SHRINKAGE = 0.8  # of covariances towards a multiple of the identity (docs/LOG.md, "None of these")
RELATIVE = 0.75  # weight of the distance to all texts: with 1, two classes could not be told from the outside
FOLDS = 5  # in which the texts of a frozen encoder are held out
MAX_TEXTS = 2000  # that are read, spread over the groups; more hardly change the covariances
MAX_TOKENS = 200_000  # of these texts: some seconds of a small encoder
MIN_TEXTS = 8  # with fewer, nothing is known of what they have in common
Floats = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]


def stored_scope(model: Description) -> Scope:
    """The scope of a model. InputError if it has none."""
    from bothways.model.checkpoint.formats.tfidf import ENCODER, TfidfFormat

    if model.scope is None and model.model_type == TfidfFormat.model_type:
        raise InputError(
            "a TF-IDF model does not know what its training texts are like (in_scope); load an encoder, which is in "
            f"RUN/{ENCODER} if the run has trained one, or use min_score"
        )
    if model.scope is None:
        raise InputError(
            "the model does not know what its training texts are like (in_scope); fine-tune a classifier on an "
            "encoder, or use min_score"
        )
    return model.scope


def farthest(scope: Scope, in_scope: float) -> float:
    """The greatest distance of a text that is like the training texts.

    in_scope: the share of texts like the training texts that are at most as far.

    InputError if there were too few held-out texts for it.
    """
    return held_out_quantile(scope.held_out, scope.rows, in_scope, "in_scope")


def share_as_far(scope: Scope, vectors_NH: Floats) -> NDArray[np.float64]:
    """The share of texts like the training texts that are at least as far from them as each text, [N]: uniform from 0
    to 1 for such texts, near 0 for others (conformal p-value; Vovk 2005)."""
    held_out = np.array(scope.held_out, np.float32)
    nearer_N = np.searchsorted(held_out, scope.distances(vectors_NH), side="left")
    shares_N: NDArray[np.float64] = (len(held_out) - nearer_N + 1) / (len(held_out) + 1)
    return shares_N


def promise(scope: Scope, in_scope: float) -> str:
    """A line on what the threshold means."""
    texts = format_count(scope.rows, "text")
    return f"{in_scope:.0%} of new texts like those of fine-tuning keep their label, from {texts} held out"


def scope_of(model: Model, data: Mapping[str, TextExamples], *, is_trained: bool) -> Scope | None:
    """The scope of a classifier; None for too few texts.

    model: in eval mode, on the device and in the number format of the computation. is_trained: whether the encoder was
    trained on train, so that dev and test hold texts out; otherwise all but test are read, in folds.
    """
    from bothways.tasks.linear_start import FrozenFeatures

    read = {"train": data["train"]}
    if is_trained:
        others = [data[split] for split in ("dev", "test") if split in data and len(data[split].windows) > 1]
        read |= {"dev": joined(others)} if others else {}
    elif "dev" in data:
        read["train"] = joined([data["train"], data["dev"]])
    read = {split: spread(examples) for split, examples in read.items()}
    if min(len(examples.windows) for examples in read.values()) < MIN_TEXTS or (is_trained and "dev" not in read):
        return None
    features = FrozenFeatures(model, read)
    vectors = {split: features[split]["head"].flatten(1).numpy() for split in read}
    units = [str(unit) for unit in read["train"].units]
    return fit_scope(vectors["train"], groups_of(read["train"].targets), units, vectors.get("dev"))


def joined(parts: Sequence[TextExamples]) -> TextExamples:
    return reduce(lambda one, other: one.joined(other), parts)


def spread(examples: TextExamples) -> TextExamples:
    """At most MAX_TEXTS texts with a label, and MAX_TOKENS tokens of them, in turn from every group."""
    groups_N = groups_of(examples.targets)
    order = generator(0, Purpose.SCOPE).permutation(len(groups_N)).tolist()
    num_taken: Counter[int] = Counter()
    turns = []
    for row in order:
        group = int(groups_N[row])
        if group != NO_LABEL:
            turns.append((num_taken[group], row))
            num_taken[group] += 1
    chosen = [row for _, row in sorted(turns, key=lambda entry: entry[0])][:MAX_TEXTS]
    tokens = np.cumsum([examples.sizes[row] for row in chosen])
    return examples.take(sorted(chosen[: max(MIN_TEXTS, int(np.searchsorted(tokens, MAX_TOKENS)))]))


def groups_of(targets: NDArray[Any]) -> Indices:
    """The group of each text, [N]: its class; of several labels [N, C] the rarest, C without a label."""
    if targets.ndim == 1:
        return targets.astype(np.int64)
    counts_C = (targets == 1).sum(0)
    rarity_NC = np.where(targets == 1, -counts_C, -np.inf)
    groups_N = np.where((targets == 1).any(1), rarity_NC.argmax(1), targets.shape[1])
    return np.where((targets == NO_LABEL).any(1), NO_LABEL, groups_N).astype(np.int64)


def fit_scope(vectors_NH: Floats, groups_N: Indices, units: Sequence[str], held_out_MH: Floats | None) -> Scope:
    """The scope of these training texts.

    vectors_NH: the vectors that the head reads. groups_N: the group of each text, its class. units: texts of a unit are
    not independent of each other. held_out_MH: vectors of other texts; None: the encoder was not trained on these
    texts, so that each fold of them is held out from the others.
    """
    whole = describe_groups(vectors_NH, groups_N)

    if held_out_MH is not None:
        distances = whole.distances(held_out_MH)
    else:
        fold_N = fold_units(groups_N, units)
        distances = np.zeros(len(vectors_NH), np.float32)
        for fold in range(FOLDS):
            is_out_N = fold_N == fold
            if is_out_N.any() and not is_out_N.all():
                distances[is_out_N] = describe_groups(vectors_NH[~is_out_N], groups_N[~is_out_N]).distances(
                    vectors_NH[is_out_N]
                )

    held_out = thinned(np.sort(distances), MAX_STORED)
    return Scope(
        center_H=whole.center_H,
        quadratic_HH=whole.quadratic_HH,
        means_GH=whole.means_GH,
        offsets_G=whole.offsets_G,
        held_out=held_out,
        rows=len(distances),
    )


def describe_groups(vectors_NH: Floats, groups_N: Indices) -> Scope:
    """The center, the groups and the inverse covariances of texts, without held-out texts.

    Everything is divided by the mean precision within groups, so that numbers are of the size of the vectors.
    """
    unit_NH = unit_vectors(vectors_NH).astype(np.float64)
    center_H = unit_NH.mean(0)
    centered_NH = unit_NH - center_H
    names, index_N = np.unique(groups_N, return_inverse=True)
    counts_G = np.bincount(index_N)
    sums_GH = np.zeros((len(names), unit_NH.shape[1]))
    np.add.at(sums_GH, index_N, centered_NH)
    means_GH = sums_GH / counts_G[:, None]

    rest_NH = centered_NH - means_GH[index_N]
    within_HH = inverse_covariance(rest_NH, max(1, len(unit_NH) - len(names)))
    overall_HH = inverse_covariance(centered_NH, len(unit_NH))
    scale = np.trace(within_HH) / len(within_HH)
    within_HH = within_HH / scale
    overall_HH = overall_HH / scale

    weighted_GH = means_GH @ within_HH
    offsets_G = -np.einsum("gh,gh->g", weighted_GH, means_GH) / 2
    # Rounded as in the file, so that held-out distances are the distances of the loaded model. Not to half precision:
    # a trained encoder has all texts of a class so close together that it would be too coarse.
    return Scope(
        center_H=center_H.astype(np.float32),
        quadratic_HH=(within_HH - RELATIVE * overall_HH).astype(np.float32),
        means_GH=weighted_GH.astype(np.float32),
        offsets_G=offsets_G.astype(np.float32),
        held_out=(),
        rows=0,
    )


def inverse_covariance(centered_NH: Floats, freedom: int) -> NDArray[np.float64]:
    """The inverse of the covariance of vectors with mean 0, which is shrunk towards a multiple of the identity (Ledoit
    2004, with a fixed intensity), [H, H]."""
    size = centered_NH.shape[1]
    covariance_HH = centered_NH.T @ centered_NH / freedom
    variance = max(float(np.trace(covariance_HH)) / size, 1e-9)
    shrunk_HH = (1 - SHRINKAGE) * covariance_HH + SHRINKAGE * variance * np.eye(size)
    inverse_HH: NDArray[np.float64] = np.linalg.inv(shrunk_HH)
    return inverse_HH


def fold_units(groups_N: Indices, units: Sequence[str]) -> Indices:
    """The fold of each text, with every group in every fold as far as its texts and the units allow."""
    order = np.lexsort((np.random.default_rng(0).random(len(groups_N)), groups_N))
    fold_by_unit: dict[str, int] = {}
    for row in order.tolist():
        fold_by_unit.setdefault(units[row], len(fold_by_unit) % FOLDS)
    return np.array([fold_by_unit[unit] for unit in units], np.int64)
