"""Erasure metrics on arrays: numbers worked out by hand, identities of curves, order of ties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import auc

from piste._errors import InputError
from piste._typing import FloatArray
from piste.evaluation import erasure

SCORES = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=1, max_size=30)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_erasers_two_by_hand() -> None:
    """Four units, y = 1, .7, .4, .2 with the top 0, 1, 2, 4 of them erased."""
    full, without, only = 1.0, np.array([0.7, 0.7, 0.4]), np.array([0.9, 0.9, 1.1])
    assert erasure.comprehensiveness(full, without) == pytest.approx([0.3, 0.3, 0.6])
    assert erasure.sufficiency(full, only) == pytest.approx([0.1, 0.1, -0.1])
    assert erasure.aopc(np.array([0.3, 0.3, 0.6])) == pytest.approx(0.4)


def test_aopc_is_the_mean_over_the_listed_bins_only() -> None:
    """The paper's |B| + 1 would give 5/6 of it."""
    assert erasure.aopc(np.full(5, 0.6)) == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("n_units", "sizes"),
    [(1, [1, 1, 1, 1, 1]), (2, [1, 1, 1, 1, 1]), (10, [1, 1, 1, 2, 5]), (100, [1, 5, 10, 20, 50])],
)
def test_bin_sizes_round_up(n_units: int, sizes: list[int]) -> None:
    assert erasure.bin_sizes(n_units).tolist() == sizes


@pytest.mark.parametrize("bins", [(), (0.0,), (1.1,), (np.nan,)])
def test_bins_are_shares(bins: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="expected shares of a text"):
        erasure.bin_sizes(3, bins)


@pytest.mark.parametrize("n_units", range(1, 200))
def test_no_bin_is_empty_or_more_than_a_unit_too_large(n_units: int) -> None:
    sizes = erasure.bin_sizes(n_units)
    exact = np.array(erasure.BINS) * n_units
    assert (sizes >= 1).all()
    assert (sizes - exact < 1).all()
    assert (sizes >= exact - 1e-9).all()


def test_human_size_is_the_mean_length() -> None:
    assert erasure.human_size([4, 0, 6]) == 5
    with pytest.raises(InputError, match="no document with a human rationale"):
        erasure.human_size([0, 0])


@settings(max_examples=50, deadline=None)
@given(SCORES, st.integers(0, 5))
def test_an_order_falls_and_has_every_unit(scores: list[float], seed: int) -> None:
    array = np.array(scores)
    order = erasure.relevance_order(array, generator(seed))
    assert sorted(order.tolist()) == list(range(len(scores)))
    assert (np.diff(array[order]) <= 0).all()
    assert (order == erasure.relevance_order(array, generator(seed))).all()


def test_ties_are_in_random_order() -> None:
    """Each of 3 tied units comes first in a third of 3,000 seeds: 1,000 +- 6 standard errors of 26."""
    firsts = [erasure.relevance_order(np.zeros(3), generator(seed))[0] for seed in range(3000)]
    assert (np.abs(np.bincount(firsts, minlength=3) - 1000) < 156).all()


def test_rounding_errors_make_no_order() -> None:
    scores = np.array([0.1 + 0.2, 0.3, 0.3 - 1e-16])
    assert erasure.tied_at(scores, np.array([1, 2])).tolist() == [True, True]
    assert not erasure.tied_at(np.array([0.3, 0.3 - 1e-9]), np.array([1]))[0]


@settings(max_examples=50, deadline=None)
@given(SCORES, st.integers(1, 25), st.integers(0, 3))
def test_each_insertion_is_the_opposite_deletion_read_backwards(
    scores: list[float], points: int, seed: int
) -> None:
    array = np.array(scores)
    order = erasure.relevance_order(array, generator(seed))
    counts = erasure.curve_counts(len(array), points)
    weights = generator(1).normal(size=len(array))
    for most in (True, False):
        inserted = erasure.insertion_masks(order, counts, most_first=most)
        deleted = erasure.deletion_masks(order, counts, most_first=not most)
        assert (inserted == deleted[::-1]).all()
        areas = [erasure.curve_area(counts, masks @ weights) for masks in (inserted, deleted)]
        assert areas[0] == pytest.approx(areas[1], abs=1e-12)


def test_curves_by_hand() -> None:
    """Additive, y = 3, 2, 1 for units 0, 1, 2 and 0 for none; scores in the right order."""
    effects = np.array([3.0, 2.0, 1.0])
    counts = erasure.curve_counts(3)
    order = erasure.relevance_order(effects, generator())
    curves = {
        (name, most): (draw(order, counts, most_first=most) @ effects)
        for name, draw in (("in", erasure.insertion_masks), ("out", erasure.deletion_masks))
        for most in (True, False)
    }
    assert {key: curve.tolist() for key, curve in curves.items()} == {
        ("in", True): [0, 3, 5, 6],
        ("in", False): [0, 1, 3, 6],
        ("out", True): [6, 3, 1, 0],
        ("out", False): [6, 5, 3, 0],
    }
    assert erasure.curve_area(counts, curves["in", True]) == pytest.approx(11 / 3)
    assert erasure.curve_area(counts, curves["out", True]) == pytest.approx(7 / 3)


def test_counts_of_a_long_text_are_few_and_symmetric() -> None:
    counts = erasure.curve_counts(117, 20)
    assert counts[0] == 0
    assert counts[-1] == 117
    assert len(counts) <= 40
    assert (counts == 117 - counts[::-1]).all()
    with pytest.raises(InputError, match="at least 1"):
        erasure.curve_counts(3, 0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=20))
def test_area_against_scikit_learn(heights: list[float]) -> None:
    values: FloatArray = np.array(heights)
    counts = np.arange(len(values))
    expected = auc(counts / counts[-1], values)
    assert erasure.curve_area(counts, values) == pytest.approx(expected, rel=1e-12, abs=1e-9)
