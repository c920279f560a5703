"""Random numbers by place: the same place gives the same numbers, in any order."""

from itertools import product

import numpy as np
import pytest

from bothways.data.draws import Purpose, generator, seed_of

PINNED = [462, 59, 133, 752, 329]
PINNED_SEED = 3120812250713008334


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
    assert seed_of(1, Purpose.DROPOUT, 2) == PINNED_SEED


def test_seeds_for_other_generators_differ_by_place_and_are_below_two_to_the_62():
    seeds = [seed_of(seed, Purpose.DROPOUT, step) for seed in range(5) for step in range(200)]
    assert len(set(seeds)) == 1000
    assert min(seeds) >= 0 and 2**61 < max(seeds) < 2**62


def test_draws_are_uniform():
    values = np.array([generator(0, Purpose.MASK, 0, example).random() for example in range(4000)])
    assert values.mean() == pytest.approx(0.5, abs=0.02)
    assert np.histogram(values, 10, (0, 1))[0].min() > 320
