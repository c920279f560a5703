"""Orders and batches: pure in (seed, epoch), within the budget, nothing lost."""

import numpy as np
import pytest

from bothways.data.order import blocks, by_length, fill_budget, shuffled


def test_an_order_is_a_permutation_and_a_function_of_seed_and_epoch():
    orders = {(seed, epoch): shuffled(97, seed=seed, epoch=epoch).tolist() for seed in (0, 1) for epoch in (0, 1, 2)}
    assert all(sorted(order) == list(range(97)) for order in orders.values())
    assert len(set(map(tuple, orders.values()))) == 6
    np.random.seed(5)
    assert shuffled(97, seed=1, epoch=2).tolist() == orders[1, 2]


@pytest.mark.parametrize("budget", [1, 17, 40, 1000])
def test_batches_keep_the_order_and_the_budget_and_are_as_full_as_they_can_be(budget):
    lengths = np.random.default_rng(0).integers(1, 31, 97).tolist()
    order = shuffled(97, seed=0, epoch=0).tolist()
    found = list(fill_budget(order, lengths, budget))
    assert [row for rows in found for row in rows] == order
    sizes = [sum(lengths[row] for row in rows) for rows in found]
    assert all(size <= budget or len(rows) == 1 for size, rows in zip(sizes, found, strict=True))
    following = [lengths[rows[0]] for rows in found[1:]]
    assert all(size + extra > budget for size, extra in zip(sizes, following, strict=False))


def test_no_rows_are_no_batches():
    assert list(fill_budget([], [], 10)) == [] and list(blocks([], 3)) == []


def test_rows_by_length_stand_in_their_order_where_they_are_equal():
    assert by_length([4, 3, 0, 2, 1], [5, 2, 5, 7, 2]) == [1, 4, 0, 2, 3]


def test_blocks_are_of_the_size_and_the_last_one_is_the_rest():
    assert list(blocks(iter("abcdefg"), 3)) == [["a", "b", "c"], ["d", "e", "f"], ["g"]]
