"""Train, dev and test from one table: each row once, stratified, determined by the seed; overlaps."""

from collections import Counter
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothways.base.errors import InputError
from bothways.text.data.splits import (
    fold_groups,
    overlap_warnings,
    overlaps,
    parts_for,
    rarest_labels,
    split,
    split_fold,
    split_groups,
)

PARTS = parts_for(())
NAMES = ["train", "dev", "test"]


def test_the_splits_that_are_made_depend_on_the_files():
    assert parts_for(["train"]) == {"train": 8, "dev": 1, "test": 1}
    assert parts_for(["train", "test"]) == {"train": 9, "dev": 1}
    assert parts_for(["train", "dev"]) == parts_for(["dev", "test"]) == {"train": 1}
    assert split(7, seed=3, parts={"train": 1}, source="t.csv") == {"train": [*range(7)]}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from("aaaaab"), min_size=60, max_size=140), st.integers(0, 2**31))
def test_every_row_is_in_one_split_and_every_class_in_its_shares(labels, seed):
    splits = split(len(labels), labels, seed=seed, parts=PARTS, source="t.csv")
    assert list(splits) == NAMES and sorted(chain(*splits.values())) == [*range(len(labels))]
    for rows in splits.values():
        assert rows == sorted(rows)
    for label, number in Counter(labels).items():
        for name, part in PARTS.items():
            assert abs(sum(labels[row] == label for row in splits[name]) - number * part / 10) < 1


@pytest.mark.parametrize(
    ("num_rows", "sizes"),
    [
        (8, (6, 1, 1)),
        (10, (8, 1, 1)),
        (11, (9, 1, 1)),
        (13, (11, 1, 1)),
        (14, (11, 2, 1)),
        (15, (12, 2, 1)),
        (20, (16, 2, 2)),
    ],
)
def test_sizes_are_those_of_largest_remainders(num_rows, sizes):
    splits = split(num_rows, seed=0, parts=PARTS, source="t.csv")
    assert tuple(len(splits[name]) for name in NAMES) == sizes


def test_of_equal_remainders_the_split_below_its_share_gets_the_row():
    labels = [name for name in "abcdefgh" for _ in range(5)]  # of each class 4, 0.5 and 0.5
    splits = split(40, labels, seed=1, parts=PARTS, source="t.csv")
    assert [len(splits[name]) for name in NAMES] == [32, 4, 4]


def test_the_seed_alone_decides():
    first = split(1000, seed=5, parts=PARTS, source="t.csv")
    assert first == split(1000, seed=5, parts=PARTS, source="other.csv")
    second = split(1000, seed=6, parts=PARTS, source="t.csv")
    assert first["dev"] != second["dev"] and len(set(first["dev"]) & set(second["dev"])) < 40
    again = split(20, seed=5, parts=PARTS, source="t.csv")
    assert (again["dev"], again["test"]) == ([6, 10], [9, 12])  # with every version of numpy


@pytest.mark.parametrize(
    ("labels", "parts", "message"),
    [
        (["a"], PARTS, "1 rows .* dev; .*--dev"),
        (["a"] * 5, PARTS, "5 rows .* test; .*--dev"),
        (["a"] * 4, parts_for(["test"]), "4 rows .* dev; .*--dev"),
        ([*"abcabc"], PARTS, "6 rows of 3 classes .* test; .*--dev"),
    ],
)  # fmt: skip
def test_too_few_rows_are_refused(labels, parts, message):
    with pytest.raises(InputError, match=rf"^t\.csv: {message}$"):
        split(len(labels), labels, seed=0, parts=parts, source="t.csv")


def test_a_class_of_one_row_is_for_training():
    labels = ["common"] * 30 + ["rare"]
    for seed in range(7):
        assert 30 in split(31, labels, seed=seed, parts=PARTS, source="t.csv")["train"]
    assert 7 in split(8, [*"aaaaaaab"], seed=0, parts={"dev": 9, "train": 4}, source="t.csv")["train"]


@pytest.mark.parametrize("large", [0, 10])
def test_a_class_of_three_rows_is_trained_on_and_scored(large):
    labels = [f"rare {number}" for number in range(500) for _ in range(3)]
    labels += [f"large {number}" for number in range(large) for _ in range(150)]
    splits = split(len(labels), labels, seed=3, parts=PARTS, source="t.csv")
    classes = {name: Counter(labels[row] for row in rows) for name, rows in splits.items()}
    for number in range(500):
        assert classes["train"][f"rare {number}"] == 2
        assert classes["dev"][f"rare {number}"] + classes["test"][f"rare {number}"] == 1
    assert abs(len(splits["dev"]) - len(splits["test"])) <= 1
    for number in range(large):
        assert [classes[name][f"large {number}"] for name in NAMES] == [120, 15, 15]


@pytest.mark.parametrize("size", [2, 3])
def test_rows_of_many_small_classes_are_in_all_splits(size):
    labels = [number // size for number in range(1000 * size)]
    splits = split(len(labels), labels, seed=3, parts={"train": 9, "dev": 1}, source="t.csv")
    assert abs(len(splits["dev"]) - 100 * size) <= 1 and {labels[row] for row in splits["train"]} == {*range(1000)}
    for fold in range(3):
        parts = split_fold(len(labels), labels, None, seed=3, folds=3, fold=fold, source="t.csv")
        assert all(len(parts[name]) > 30 * size for name in NAMES)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1), st.integers(0, 9))
def test_rows_of_one_group_stay_together(groups, seed):
    groups = [*range(41), *groups]
    splits = split_groups(groups, seed=seed, parts=PARTS, source="t.csv")
    assert sorted(chain(*splits.values())) == [*range(len(groups))]
    held = [{groups[row] for row in rows} for rows in splits.values()]
    assert [len(one) for one in held] == [33, 4, 4] and len(set.union(*held)) == 41
    assert all(rows == sorted(rows) for rows in splits.values())


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 2**31))
def test_rows_of_one_text_stay_together_and_classes_keep_about_their_shares(data, seed):
    sizes = data.draw(st.lists(st.sampled_from([1, 1, 1, 2, 3, 5]), min_size=40, max_size=70))
    groups = [group for group, size in enumerate(sizes) for _ in range(size)]
    labels = [data.draw(st.sampled_from("aab")) for _ in sizes]
    of_rows = [labels[group] for group in groups]
    splits = split(len(groups), of_rows, groups, seed=seed, parts=PARTS, source="t.csv")
    assert sorted(chain(*splits.values())) == [*range(len(groups))]
    held = [{groups[row] for row in rows} for rows in splits.values()]
    assert len(set.union(*held)) == sum(map(len, held)) == len(sizes)
    for name, part in PARTS.items():
        assert abs(len(splits[name]) - len(groups) * part / 10) < 6  # a group and what was left over
    assert {of_rows[row] for row in splits["train"]} == {*of_rows}


def test_rows_that_are_all_different_are_divided_as_without_groups():
    labels = [*"aaab" * 30]
    alone = split(120, labels, seed=4, parts=PARTS, source="t.csv")
    assert split(120, labels, [f"text {row}" for row in range(120)], seed=4, parts=PARTS, source="t.csv") == alone


def test_a_text_that_is_half_of_the_table_is_trained_on():
    groups = [0] * 60 + [*range(1, 61)]
    splits = split(120, [*"ab" * 60], groups, seed=1, parts=PARTS, source="t.csv")
    assert set(range(60)) <= {*splits["train"]} and len(splits["dev"]) == len(splits["test"]) == 12


def test_a_table_that_holds_every_row_twice_is_divided_even_where_classes_are_small():
    labels = [label for label in "abcdefgh" for _ in range(5)] * 2
    splits = split(80, labels, [*range(40)] * 2, seed=2, parts=PARTS, source="t.csv")
    assert [len(rows) for rows in splits.values()] == [64, 8, 8]
    assert {*splits["dev"]}.isdisjoint(row + 40 for row in splits["train"])


def test_several_labels_are_divided_by_the_rarest():
    assert rarest_labels([{"a", "b"}, {"a"}, set(), {"a", "c"}, {"b", "c"}]) == ["b", "a", "", "c", "b"]
    sets = [{"all", "even"} if row % 2 == 0 else {"all"} for row in range(40)] + [{"all", "once"}]
    train = split(41, rarest_labels(sets), seed=2, parts=PARTS, source="t.csv")["train"]
    assert 40 in train and sum(row % 2 for row in train) == 16


# --- what splits share ------------------------------------------------------------------------------------------------


def test_examples_in_two_splits_are_counted():
    splits = {"train": ["a", "b", "b", "c"], "dev": ["b", "x", "b", "A"], "test": ["c", "x", "y"]}
    assert overlaps(splits) == {("train", "dev"): 2, ("train", "test"): 1, ("dev", "test"): 1}
    (line,) = overlap_warnings(splits)
    assert line == (
        "2 of 4 examples of dev are also in train; 1 of 3 examples of test are also in train; "
        "1 of 3 examples of test are also in dev (apart from case, spaces and punctuation)"
    )
    assert overlap_warnings({"train": ["a"], "dev": ["b"]}) == [] == overlap_warnings({"train": ["a"]})


def test_a_pair_is_shared_only_as_a_whole():
    assert overlaps({"train": [("a", "b")], "dev": [("a", "c"), ("b", "a"), ("a", "b")]}) == {("train", "dev"): 1}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text("ab", max_size=2)), st.lists(st.text("ab", max_size=2)))
def test_overlaps_are_those_of_two_loops(first, second):
    expected = sum(any(one == other for other in first) for one in second)
    assert overlaps({"train": first, "dev": second}) == {("train", "dev"): expected}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from("aaaaab"), min_size=60, max_size=140), st.integers(0, 2**31))
def test_every_row_is_in_one_fold_and_classes_are_divided_evenly(labels, seed):
    folds = fold_groups(len(labels), labels, None, seed=seed, folds=5, source="t.csv")
    assert sorted(chain(*folds)) == [*range(len(labels))]
    for name in "ab":
        numbers = [sum(labels[row] == name for row in rows) for rows in folds]
        assert max(numbers) - min(numbers) <= 1
    assert max(map(len, folds)) - min(map(len, folds)) <= 1


def test_a_group_is_in_one_fold_and_never_on_both_sides_of_a_training():
    groups = [row // 3 for row in range(90)]
    labels = [*"ab" * 45]
    parts = [split_fold(90, labels, groups, seed=1, folds=5, fold=fold, source="t.csv") for fold in range(5)]
    assert sorted(chain(*(splits["test"] for splits in parts))) == [*range(90)]
    for splits in parts:
        assert sorted(chain(*splits.values())) == [*range(90)] and [*splits] == ["train", "dev", "test"]
        sides = [{groups[row] for row in rows} for rows in splits.values()]
        assert sum(map(len, sides)) == 30
    whole = split_fold(90, labels, groups, seed=1, folds=5, fold=None, source="t.csv")
    assert [*whole] == ["train", "dev"] and sorted(chain(*whole.values())) == [*range(90)]


def test_fewer_groups_than_folds_are_refused():
    with pytest.raises(InputError, match=r"^t\.csv: 3 .* 5 folds; .*--folds$"):
        fold_groups(9, None, [0, 1, 2] * 3, seed=0, folds=5, source="t.csv")
