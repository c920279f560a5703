"""Counter-based random numbers: reproducible in any order, uniform and independent."""

import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from scipy import stats

from bothways.base.rng import Purpose, derive_seed, fold_in, generator, make_keys, uniform

PINNED = [462, 59, 133, 752, 329]
PINNED_SEED = 3120812250713008334
MIN_PVALUE = 1e-6  # correct code falls below it once in a million tests


def test_draws_do_not_depend_on_earlier_draws(global_seed):
    addresses = list(product((0, 1, 7), (Purpose.MASK, Purpose.PAIRS), (0, 3), (0, 11)))
    forward = {address: generator(*address).random(5).tolist() for address in addresses}
    np.random.seed(3)
    backward = {address: generator(*address).random(5).tolist() for address in reversed(addresses)}
    assert forward == backward


def test_different_addresses_give_different_numbers():
    addresses = list(product((0, 1), Purpose, (0, 1, 2), (0, 1, 2), (0, 1)))
    assert len({tuple(generator(*address).random(3)) for address in addresses}) == len(addresses)


def test_sequences_of_neighbouring_addresses_do_not_overlap():
    # With the index in the wrong word of the counter, address k + 1 would start where k is after four draws.
    first = generator(0, Purpose.MASK, 0, 0).random(4000)
    for indices in ((0, 1), (1, 0), (0, 0, 1)):
        assert not set(first) & set(generator(0, Purpose.MASK, *indices).random(4000))


def test_missing_indices_are_zero():
    assert generator(5, Purpose.ORDER).random() == generator(5, Purpose.ORDER, 0, 0, 0).random()


def test_draws_are_the_same_in_every_version():
    assert generator(1, Purpose.MASK, 2, 3, 4).integers(1000, size=5).tolist() == PINNED
    assert derive_seed(1, Purpose.DROPOUT, 2) == PINNED_SEED


def test_derived_seeds_differ_and_are_below_two_to_the_62():
    seeds = [derive_seed(seed, Purpose.DROPOUT, step) for seed in range(5) for step in range(200)]
    assert len(set(seeds)) == 1000
    assert min(seeds) >= 0 and 2**61 < max(seeds) < 2**62


def test_draws_are_uniform():
    values = np.array([generator(0, Purpose.MASK, 0, example).random() for example in range(4000)])
    assert values.mean() == pytest.approx(0.5, abs=0.02)
    assert np.histogram(values, 10, (0, 1))[0].min() > 320


# --- vectorized draws -------------------------------------------------------------------------------------------------


def test_fold_in_gives_the_sequence_of_splitmix64():
    # The output of the authors' program for these two seeds.
    zero, other = np.array([0], np.uint64), np.array([1234567], np.uint64)
    assert fold_in(zero, np.arange(3)).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert fold_in(other, np.arange(3)).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_vectorized_keys_equal_single_keys():
    epochs, rows = np.array([[0], [5]]), np.array([3, 0, 2**40, 11])
    together = make_keys(7, Purpose.PAIRS, epochs, 2, rows)
    assert together.shape == (2, 4) and together.dtype == np.uint64
    for row, column in product(range(2), range(4)):
        alone = make_keys(7, Purpose.PAIRS, int(epochs[row, 0]), 2, int(rows[column]))
        assert alone.shape == (1,) and alone[0] == together[row, column]
    assert np.array_equal(uniform(together, 5)[:, 1, 2], uniform(together[1, 2:3], 5)[:, 0])


def test_the_first_draws_do_not_depend_on_the_number_of_draws():
    keys = make_keys(2**63 - 1, Purpose.MASK, np.arange(13))
    assert uniform(keys, 7).shape == (7, 13)
    assert np.array_equal(uniform(keys, 7)[:3], uniform(keys, 3))


@pytest.mark.slow
def test_keys_of_different_addresses_differ():
    indices = np.meshgrid(*[np.arange(size) for size in (5, 13, 19, 31)], indexing="ij")
    keys = np.concatenate([make_keys(seed, purpose, *indices).ravel() for seed in (0, 1) for purpose in Purpose])
    assert len(np.unique(keys)) == len(keys) == 2 * len(Purpose) * 5 * 13 * 19 * 31


@pytest.fixture(scope="module")
def draws():
    """Three draws for each token of 100 texts in two epochs, addressed as in masking: [3, 2, 100, 1000]."""
    texts = make_keys(0, Purpose.MASK, np.arange(2)[:, None], 0, np.arange(100))
    return uniform(fold_in(texts[..., None], np.arange(1000)), 3)


def test_vectorized_draws_are_uniform(draws):
    assert draws.min() >= 0 and draws.max() < 1
    for draw in draws:
        assert stats.chisquare(np.histogram(draw, 1000, (0, 1))[0]).pvalue > MIN_PVALUE
        assert stats.kstest(draw.ravel(), "uniform").pvalue > MIN_PVALUE
    # The lowest bits too: there are 2^53 numbers.
    low = (draws.ravel() * 2**53).astype(np.int64) % 256
    assert stats.chisquare(np.bincount(low, minlength=256)).pvalue > MIN_PVALUE


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("distance", [1, 2, 64])
def test_draws_of_neighbours_are_independent(draws, axis, distance):
    """Neighbouring draws, epochs, texts and tokens: all cells of a 16 by 16 histogram are equally likely."""
    draws = np.moveaxis(draws, axis, 0)
    if distance >= len(draws):
        return
    first, second = draws[:-distance].ravel(), draws[distance:].ravel()
    table = np.histogram2d(first, second, 16, [(0, 1), (0, 1)])[0]
    assert stats.chisquare(table.ravel()).pvalue > MIN_PVALUE


def test_sums_over_a_text_vary_like_sums_of_independent_draws(draws):
    sums = (draws.sum(-1).ravel() - 500) / (1000 / 12) ** 0.5  # 600 of them
    assert stats.kstest(sums, "norm").pvalue > MIN_PVALUE


def test_numpy_random_is_imported_by_the_first_draw_only():
    code = "import sys, bothways.base.rng; sys.exit('numpy.random' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
