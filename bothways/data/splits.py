"""Dividing labelled rows into train, dev and test, and counting what such splits have in common."""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import combinations

import numpy as np

from bothways.errors import InputError
from bothways.rng import Purpose, make_keys

Parts = Mapping[str, int]  # how many parts of the rows each split is to have; one of the splits is "train"


def parts_for(given: Collection[str]) -> Parts:
    """What to divide the training rows into where these splits have a file of their own. With a dev set it is nothing,
    for a test set is not needed to choose by."""
    if "dev" in given:
        return {"train": 1}
    return {"train": 9, "dev": 1} if "test" in given else {"train": 8, "dev": 1, "test": 1}


def split(
    num_rows: int,
    labels: Sequence[Hashable] | None = None,
    groups: Sequence[Hashable] | None = None,
    *,
    seed: int,
    parts: Parts,
    source: object,
    of: str = "rows",
    way_out: str = "or give --dev",
) -> dict[str, list[int]]:
    """The numbers of each split's rows, in order: a function of labels, groups, parts and seed alone.

    labels: each row's class; every class is divided as the whole is, by largest remainders. None: one class.
    groups: rows with the same one stay together, in the class of most of them, so that classes are divided only about
    so; a group too large for dev or test is for training. None: each row is a group.
    source: what the rows are of, and of: what they are, for the message. InputError where a split, or a class in train,
    would have no row.
    """
    if labels is None:
        labels = [""] * num_rows
    classes: dict[Hashable, list[list[int]]] = {label: [] for label in labels}
    members = _members(range(num_rows) if groups is None else groups)
    for row in np.argsort(make_keys(seed, Purpose.HELD_OUT, np.arange(num_rows)), kind="stable").tolist():
        if row in members:
            [(label, _)] = Counter(labels[member] for member in members[row]).most_common(1)
            classes[label].append(members[row])
    found: dict[str, list[int]] = {name: [] for name in parts}
    room = Counter[str]()  # rows that each split may still take; what groups took too many of is made up for later
    for label, own in classes.items():
        num_own = sum(map(len, own))
        room.update(sizes := _sizes(num_own, parts, found))
        if own and not sizes["train"]:
            raise InputError(f"{source}: with {num_own} rows {label!r} has none to train on; add rows of it")
        for place, rows in enumerate(own):
            fits = (name for name in parts if 2 * room[name] >= len(rows))
            name = next(fits, "train") if place else "train"
            found[name] += rows
            room[name] -= len(rows)
    if empty := [name for name, rows in found.items() if not rows]:
        among = f" of {len(classes)} classes" if len(classes) > 1 else ""
        different = f" ({len(members)} different)" if len(members) < num_rows else ""
        raise InputError(
            f"{source}: {num_rows} {of}{among}{different} are too few to take some of each for {empty[0]}; add {of}, "
            f"{way_out}"
        )
    return {name: sorted(rows) for name, rows in found.items()}


def _members(groups: Sequence[Hashable]) -> dict[int, list[int]]:
    """The rows of each group, by its first one."""
    found: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        found.setdefault(group, []).append(row)
    return {rows[0]: rows for rows in found.values()}


def _sizes(num_rows: int, parts: Parts, found: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Rows of one class for each split. Of equal remainders that of the split furthest behind its share comes first,
    else many small classes would leave one split empty."""
    whole, done = sum(parts.values()), sum(map(len, found.values()))
    sizes = {name: num_rows * part // whole for name, part in parts.items()}

    def remainder_and_debt(name: str) -> tuple[int, int]:
        return num_rows * parts[name] % whole, done * parts[name] - whole * len(found[name])

    left = num_rows - sum(sizes.values())
    for name in sorted(parts, key=remainder_and_debt, reverse=True)[:left]:
        sizes[name] += 1
    return sizes


def split_groups(
    groups: Sequence[Hashable], *, seed: int, parts: Parts, source: object, of: str = "rows"
) -> dict[str, list[int]]:
    """The same for rows of which those of one group stay together: the questions about one passage, the sentences of
    one document. The groups are divided, so rows only about so."""
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    found = split(len(numbers), seed=seed, parts=parts, source=source, of=of)
    name_by_number = {number: name for name, chosen in found.items() for number in chosen}
    rows: dict[str, list[int]] = {name: [] for name in parts}
    for row, group in enumerate(groups):
        rows[name_by_number[numbers[group]]].append(row)
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
) -> list[list[int]]:
    """The rows of each fold, in order: a function of labels, groups and seed alone.

    Groups stay together, as in `split`; large ones are placed first, each in the fold that has fewest rows of its class
    (the class of most of its rows), and of those the one with fewest rows. InputError where a fold would have none.
    """
    members = _members(range(num_rows) if groups is None else groups)
    if len(members) < folds:
        raise InputError(f"{source}: {len(members)} different {of} make no {folds} folds; add {of}, or lower --folds")
    order = [row for row in np.argsort(make_keys(seed, Purpose.FOLDS, np.arange(num_rows))).tolist() if row in members]
    found: list[list[int]] = [[] for _ in range(folds)]
    counts = [Counter[Hashable]() for _ in range(folds)]
    for first in sorted(order, key=lambda row: -len(members[row])):
        own = Counter("" if labels is None else labels[row] for row in members[first])
        [(label, _)] = own.most_common(1)
        fold = min(range(folds), key=lambda fold: (counts[fold][label], len(found[fold])))
        found[fold] += members[first]
        counts[fold] += own
    return [sorted(rows) for rows in found]


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
) -> dict[str, list[int]]:
    """One fold as test; of the rest nine tenths as train and one as dev, divided by `split`. fold None: there is no
    test, the rest is all rows."""
    test: list[int] = []
    if fold is not None:
        test = fold_groups(num_rows, labels, groups, seed=seed, folds=folds, source=source, of=of)[fold]
    rest = np.setdiff1d(np.arange(num_rows), test).tolist()
    columns = (None if column is None else [column[row] for row in rest] for column in (labels, groups))
    parts = {"train": 9, "dev": 1}
    inner = split(len(rest), *columns, seed=seed, parts=parts, source=source, of=of, way_out="or leave --folds out")
    found = {name: [rest[row] for row in rows] for name, rows in inner.items()}
    return found if fold is None else {**found, "test": test}


def rarest_labels(label_sets: Sequence[Collection[str]]) -> list[str]:
    """The rarest of each row's labels, "" where it has none: a class to divide rows of several labels by."""
    counts = Counter(label for labels in label_sets for label in labels)
    return [min(labels, key=lambda label: (counts[label], label), default="") for labels in label_sets]


# --- what splits share ------------------------------------------------------------------------------------------------


def overlaps(splits: Mapping[str, Sequence[Hashable]]) -> dict[tuple[str, str], int]:
    """{(earlier, later): how many examples of the later split equal one of the earlier}, of all pairs of splits."""
    seen = {name: set(examples) for name, examples in splits.items()}
    return {
        (earlier, later): sum(example in seen[earlier] for example in splits[later])
        for earlier, later in combinations(splits, 2)
    }


def overlap_warning(splits: Mapping[str, Sequence[Hashable]]) -> str:
    """'3 of 872 examples of dev stand in train too ...', of all pairs of splits that share some; '' where none do.

    splits: the examples as near_duplicates.text_key gives them.
    """
    shared = "; ".join(
        f"{number:,} of {len(splits[later]):,} examples of {later} stand in {earlier} too"
        for (earlier, later), number in overlaps(splits).items()
        if number
    )
    return shared and f"{shared} (case, blanks and punctuation aside)"
