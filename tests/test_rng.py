"""Random numbers by place: the same place gives the same numbers, in any order; they are uniform and independent."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from bothways.rng import Purpose, derive_seed, fold_in, generator, make_keys, uniform

PINNED = [462, 59, 133, 752, 329]
PINNED_SEED = 3120812250713008334
LEAST = 1e-6  # a sound code falls below it once in a million


def test_the_same_place_gives_the_same_numbers_whatever_was_drawn_before():
    places = list(product((0, 1, 7), (Purpose.MASK, Purpose.PAIRS), (0, 3), (0, 11)))
    forward = {place: generator(*place).random(5).tolist() for place in places}
    np.random.seed(3)
    backward = {place: generator(*place).random(5).tolist() for place in reversed(places)}
    assert forward == backward


def test_different_places_give_different_numbers():
    places = list(product((0, 1), Purpose, (0, 1, 2), (0, 1, 2), (0, 1)))
    assert len({tuple(generator(*place).random(3)) for place in places}) == len(places)


def test_neighbouring_places_share_no_stretch_of_numbers():
    # A counter in the wrong word would make place k + 1 begin where place k is after four draws.
    one = generator(0, Purpose.MASK, 0, 0).random(4000)
    for at in ((0, 1), (1, 0), (0, 0, 1)):
        assert not set(one) & set(generator(0, Purpose.MASK, *at).random(4000))


def test_numbers_left_out_of_a_place_are_zero():
    assert generator(5, Purpose.ORDER).random() == generator(5, Purpose.ORDER, 0, 0, 0).random()


def test_a_place_is_kept_over_versions():
    assert generator(1, Purpose.MASK, 2, 3, 4).integers(1000, size=5).tolist() == PINNED
    assert derive_seed(1, Purpose.DROPOUT, 2) == PINNED_SEED


def test_seeds_for_other_generators_differ_by_place_and_are_below_two_to_the_62():
    seeds = [derive_seed(seed, Purpose.DROPOUT, step) for seed in range(5) for step in range(200)]
    assert len(set(seeds)) == 1000
    assert min(seeds) >= 0 and 2**61 < max(seeds) < 2**62


def test_draws_are_uniform():
    values = np.array([generator(0, Purpose.MASK, 0, example).random() for example in range(4000)])
    assert values.mean() == pytest.approx(0.5, abs=0.02)
    assert np.histogram(values, 10, (0, 1))[0].min() > 320


# --- many places at once --------------------------------------------------------------------------------------------


def test_what_is_below_a_key_is_the_sequence_of_splitmix64():
    # The values its authors' program prints for these two seeds.
    zero, other = np.array([0], np.uint64), np.array([1234567], np.uint64)
    assert fold_in(zero, np.arange(3)).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert fold_in(other, np.arange(3)).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_many_places_at_once_are_each_place_alone():
    epochs, rows = np.array([[0], [5]]), np.array([3, 0, 2**40, 11])
    together = make_keys(7, Purpose.PAIRS, epochs, 2, rows)
    assert together.shape == (2, 4) and together.dtype == np.uint64
    for row, column in product(range(2), range(4)):
        alone = make_keys(7, Purpose.PAIRS, int(epochs[row, 0]), 2, int(rows[column]))
        assert alone.shape == (1,) and alone[0] == together[row, column]
    assert np.array_equal(uniform(together, 5)[:, 1, 2], uniform(together[1, 2:3], 5)[:, 0])


def test_the_first_draws_are_the_same_however_many_are_drawn():
    place = make_keys(2**63 - 1, Purpose.MASK, np.arange(13))
    assert uniform(place, 7).shape == (7, 13)
    assert np.array_equal(uniform(place, 7)[:3], uniform(place, 3))


def test_keys_of_different_places_differ():
    at = np.meshgrid(*[np.arange(number) for number in (5, 13, 19, 31)], indexing="ij")
    found = np.concatenate([make_keys(seed, purpose, *at).ravel() for seed in (0, 1) for purpose in Purpose])
    assert len(np.unique(found)) == len(found) == 2 * len(Purpose) * 5 * 13 * 19 * 31


@pytest.fixture(scope="module")
def draws():
    """Three draws for each token of texts of two epochs: [3, 2, 100, 1000], places as masks have them."""
    texts = make_keys(0, Purpose.MASK, np.arange(2)[:, None], 0, np.arange(100))
    return uniform(fold_in(texts[..., None], np.arange(1000)), 3)


def test_draws_of_places_are_uniform_in_zero_to_one(draws):
    assert draws.min() >= 0 and draws.max() < 1
    for draw in draws:
        assert stats.chisquare(np.histogram(draw, 1000, (0, 1))[0]).pvalue > LEAST
        assert stats.kstest(draw.ravel(), "uniform").pvalue > LEAST
    # The lowest bits too: there are 2^53 numbers.
    low = (draws.ravel() * 2**53).astype(np.int64) % 256
    assert stats.chisquare(np.bincount(low, minlength=256)).pvalue > LEAST


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("far", [1, 2, 64])
def test_draws_of_neighbours_are_independent(draws, axis, far):
    """Neighbouring draws, epochs, texts and tokens; cells of a 16 by 16 table are as likely."""
    draws = np.moveaxis(draws, axis, 0)
    if far >= len(draws):
        return
    one, other = draws[:-far].ravel(), draws[far:].ravel()
    table = np.histogram2d(one, other, 16, [(0, 1), (0, 1)])[0]
    assert stats.chisquare(table.ravel()).pvalue > LEAST


def test_sums_over_a_text_are_as_scattered_as_sums_of_independent_draws(draws):
    sums = (draws.sum(-1).ravel() - 500) / (1000 / 12) ** 0.5  # 600 of them
    assert stats.kstest(sums, "norm").pvalue > LEAST
