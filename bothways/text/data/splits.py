"""Train/dev/test splits and cross-validation folds, stratified and grouped; overlaps."""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np

from bothways.base.errors import InputError, flag, format_count
from bothways.base.rng import Purpose, make_keys

Parts = Mapping[str, int]  # relative size of each split, which must include "train"
NUMBER_STRATA = 10  # numbers are stratified by tenths of their ranks
MIN_SCORED_ROWS = 3  # a class with fewer rows may have none in dev and test


class TooFewRows(InputError):
    """Rows that are too few to be split."""


def parts_for(existing: Collection[str]) -> Parts:
    """How to divide the training rows if `existing` splits have their own files.

    If there is a dev set, nothing is split off: model selection does not need a test set.
    """
    if "dev" in existing:
        return {"train": 1}
    return {"train": 9, "dev": 1} if "test" in existing else {"train": 8, "dev": 1, "test": 1}


def split(
    num_rows: int,
    labels: Sequence[Hashable] | None = None,
    groups: Sequence[Hashable] | None = None,
    *,
    seed: int,
    parts: Parts,
    source: object,
    of: str = "rows",
    group: str | None = None,
    way_out: str = "",
) -> dict[str, list[int]]:
    """The row indices of each split, sorted; determined by labels, groups, parts and seed.

    labels: the class of each row; splits are stratified (`_Sizes`). None: a single class.
    groups: rows of a group stay together and count for the most frequent class among them, so that stratification is
    approximate; a group too large for dev or test goes to train. None: each row is a group.
    source, of: the name of the table and of its rows, for messages. group: the column of the groups, if one is named.
    InputError if a split would be empty.
    """
    if labels is None:
        labels = [""] * num_rows

    members = _members(range(num_rows) if groups is None else groups)
    classes = _groups_by_class(labels, members, seed)
    rows_by_split: dict[str, list[int]] = {name: [] for name in parts}
    room = Counter[str]()  # rows each split may still take; excess from large groups is compensated in later classes
    sizes = _Sizes(parts)

    for class_groups in classes.values():
        room.update(sizes.next(sum(map(len, class_groups))))
        for index, rows in enumerate(class_groups):
            fits = (name for name in parts if 2 * room[name] >= len(rows))
            name = next(fits, "train") if index else "train"
            rows_by_split[name] += rows
            room[name] -= len(rows)

    if empty := [name for name, rows in rows_by_split.items() if not rows]:
        if group is not None:
            raise TooFewRows(_too_few_groups(source, len(members), group, f"{empty[0]} would have no row"))
        class_note = f" of {len(classes)} classes" if len(classes) > 1 else ""
        group_note = f" ({len(members)} different)" if len(members) < num_rows else ""
        raise TooFewRows(
            f"{source}: {num_rows} {of}{class_note}{group_note} are too few to take some of each for {empty[0]}; add "
            f"{of}, {way_out or 'or give ' + flag('dev')}"
        )

    return {name: sorted(rows) for name, rows in rows_by_split.items()}


def _too_few_groups(source: object, num_groups: int, column: str, reason: str) -> str:
    """Why a table cannot be split: the rows of a group stay together, and more rows of the same groups do not help."""
    return (
        f"{source}: {column!r} has {format_count(num_groups, 'group')}, and the rows of a group stay together, so "
        f"{reason}; add groups, name another column with {flag('group_column')}, or leave it out"
    )


def _members(groups: Sequence[Hashable]) -> dict[int, list[int]]:
    """The rows of each group, keyed by its first row."""
    rows_by_group: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        rows_by_group.setdefault(group, []).append(row)
    return {rows[0]: rows for rows in rows_by_group.values()}


def _groups_by_class(
    labels: Sequence[Hashable], members: Mapping[int, list[int]], seed: int
) -> dict[Hashable, list[list[int]]]:
    """The rows of the groups whose most frequent class it is, in random order, by class. members: see `_members`."""
    classes: dict[Hashable, list[list[int]]] = {label: [] for label in labels}
    for row in np.argsort(make_keys(seed, Purpose.HELD_OUT, np.arange(len(labels))), kind="stable").tolist():
        if row in members:
            [(label, _)] = Counter(labels[member] for member in members[row]).most_common(1)
            classes[label].append(members[row])
    return classes


class _Sizes:
    """The number of rows of one class after another for each split.

    Remainders are carried over to the next class, so that the rows of many small classes are spread over all splits by
    `parts`. A class has at least one row in train. If there is a test split, a class of MIN_SCORED_ROWS rows or more
    has a row in dev or test.
    """

    def __init__(self, parts: Parts) -> None:
        total = sum(parts.values())
        self.shares = {name: Fraction(part, total) for name, part in parts.items()}
        self.carry = dict.fromkeys(parts, Fraction(0))

    def next(self, num_rows: int) -> dict[str, int]:
        shares = self.shares
        sizes = {name: int(num_rows * share) for name, share in shares.items()}
        remainders = {name: num_rows * share - sizes[name] for name, share in shares.items()}
        self.carry = {name: self.carry[name] + remainder for name, remainder in remainders.items()}
        partial = [name for name in shares if remainders[name]]

        left = num_rows - sum(sizes.values())
        for name in sorted(partial, key=self.carry.__getitem__, reverse=True)[:left]:
            sizes[name] += 1
            self.carry[name] -= 1

        held_out = [name for name in shares if name != "train"]
        if num_rows and not sizes["train"]:
            name = max(held_out, key=lambda name: (sizes[name], -self.carry[name]))
            sizes["train"] = 1
            sizes[name] -= 1
            self.carry["train"] -= 1
            self.carry[name] += 1

        if "test" in shares and num_rows >= MIN_SCORED_ROWS and not any(sizes[name] for name in held_out):
            name = max(held_out, key=self.carry.__getitem__)
            sizes["train"] -= 1
            sizes[name] = 1
            for other in held_out:  # the row comes on top of their parts: their balance changes, train keeps its own
                self.carry[other] += shares[other] / (1 - shares["train"]) - (other == name)

        return sizes


def split_groups(
    groups: Sequence[Hashable], *, seed: int, parts: Parts, source: object, of: str = "rows"
) -> dict[str, list[int]]:
    """Like `split`, but divides groups (passages, documents) by `parts`, so that row counts are approximate."""
    index_by_group = {group: index for index, group in enumerate(dict.fromkeys(groups))}
    groups_by_split = split(len(index_by_group), seed=seed, parts=parts, source=source, of=of)
    name_by_index = {index: name for name, indices in groups_by_split.items() for index in indices}
    rows: dict[str, list[int]] = {name: [] for name in parts}
    for row, group in enumerate(groups):
        rows[name_by_index[index_by_group[group]]].append(row)
    return rows


def fold_groups(
    num_rows: int,
    labels: Sequence[Hashable] | None,
    groups: Sequence[Hashable] | None,
    *,
    seed: int,
    folds: int,
    source: object,
    of: str = "rows",
    group: str | None = None,
) -> list[list[int]]:
    """The rows of each fold, sorted; determined by labels, groups and seed.

    Groups stay together, as in `split`. Groups are assigned by decreasing size, each to the fold with the fewest rows
    of its most frequent class, then with the fewest rows. InputError if a fold would be empty.
    """
    members = _members(range(num_rows) if groups is None else groups)
    if len(members) < folds and group is not None:
        raise InputError(_too_few_groups(source, len(members), group, f"there are no {folds} folds"))
    if len(members) < folds:
        raise InputError(
            f"{source}: {len(members)} different {of} make no {folds} folds; add {of}, or lower {flag('folds')}"
        )
    order = [row for row in np.argsort(make_keys(seed, Purpose.FOLDS, np.arange(num_rows))).tolist() if row in members]
    rows_by_fold: list[list[int]] = [[] for _ in range(folds)]
    counts = [Counter[Hashable]() for _ in range(folds)]
    for first in sorted(order, key=lambda row: -len(members[row])):
        label_counts = Counter("" if labels is None else labels[row] for row in members[first])
        [(label, _)] = label_counts.most_common(1)
        fold = min(range(folds), key=lambda fold: (counts[fold][label], len(rows_by_fold[fold])))
        rows_by_fold[fold] += members[first]
        counts[fold] += label_counts
    return [sorted(rows) for rows in rows_by_fold]


def selection_folds(
    targets: np.ndarray, groups: Sequence[Hashable] | None, *, seed: int, folds: int
) -> list[list[int]]:
    """The rows of at most `folds` folds for choosing a setting of a model, stratified, with groups kept together.

    targets: classes [N], numbers [N], which are stratified by rank, or labels [N, C], which are not. groups: None or a
    single one: each row is a group.
    """
    strata: list[int] | None = None
    if targets.ndim == 1:
        is_number = np.issubdtype(targets.dtype, np.floating)
        strata = (targets.argsort().argsort() * NUMBER_STRATA // len(targets) if is_number else targets).tolist()
    num_groups = len(targets) if groups is None else len(set(groups))
    if num_groups < 2:
        groups = None
        num_groups = len(targets)
    return fold_groups(len(targets), strata, groups, seed=seed, folds=min(folds, num_groups), source="")


def split_fold(
    num_rows: int,
    labels: Sequence[Hashable] | None,
    groups: Sequence[Hashable] | None,
    *,
    seed: int,
    folds: int,
    fold: int | None,
    source: object,
    of: str = "rows",
    group: str | None = None,
) -> dict[str, list[int]]:
    """One fold as test, and the rest divided 9:1 into train and dev. fold None: no test, all rows are divided."""
    test: list[int] = []
    if fold is not None:
        test = fold_groups(num_rows, labels, groups, seed=seed, folds=folds, source=source, of=of, group=group)[fold]
    rest = np.setdiff1d(np.arange(num_rows), test).tolist()
    columns = (None if column is None else [column[row] for row in rest] for column in (labels, groups))
    parts = {"train": 9, "dev": 1}
    inner = split(
        len(rest),
        *columns,
        seed=seed,
        parts=parts,
        source=source,
        of=of,
        group=group,
        way_out=f"or leave {flag('folds')} out",
    )
    rows_by_split = {name: [rest[row] for row in rows] for name, rows in inner.items()}
    return rows_by_split if fold is None else {**rows_by_split, "test": test}


def rarest_labels(label_sets: Sequence[Collection[str]]) -> list[str]:
    """The rarest label of each row ("" if it has none), to stratify rows with several labels."""
    counts = Counter(label for labels in label_sets for label in labels)
    return [min(labels, key=lambda label: (counts[label], label), default="") for labels in label_sets]


# --- what splits share ------------------------------------------------------------------------------------------------


def overlaps(splits: Mapping[str, Sequence[Hashable]]) -> dict[tuple[str, str], int]:
    """{(earlier, later): number of examples of the later split that also occur in the earlier one}."""
    seen = {name: set(examples) for name, examples in splits.items()}
    return {
        (earlier, later): sum(example in seen[earlier] for example in splits[later])
        for earlier, later in combinations(splits, 2)
    }


def overlap_warnings(splits: Mapping[str, Sequence[Hashable]]) -> list[str]:
    """A warning about examples that splits share, if there are any.

    splits: keys of the examples, see near_duplicates.text_key.
    """
    shared = "; ".join(
        f"{count:,} of {len(splits[later]):,} examples of {later} are also in {earlier}"
        for (earlier, later), count in overlaps(splits).items()
        if count
    )
    return [f"{shared} (apart from case, spaces and punctuation)"] if shared else []
