"""Pairwise interactions: definitions, games of pairs, SLALOM by quadrature, shapiq, axioms."""

from itertools import combinations
from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config

from piste._errors import InputError
from piste._typing import FloatArray
from piste.fitting.interactions import (
    PairIndex,
    exact_pairs,
    fit_pairs,
    pair_sums,
    slalom_pairs,
    slalom_pairs_heads,
)
from piste.fitting.shapley import exact_shapley, slalom_shapley
from piste.surrogates.shap import shapley_weights

INDICES: list[PairIndex] = ["faith-shap", "k-sii"]
NONE = -np.inf  # the importance of no background
JIT_DISABLED = getattr(config, "DISABLE_JIT", False)


def all_masks(n_units: int) -> FloatArray:
    masks: FloatArray = ((np.arange(2**n_units)[:, None] >> np.arange(n_units)) & 1).astype(float)
    return masks


def derivative_average(scores: FloatArray, n_units: int) -> FloatArray:
    """SII of pairs from its definition: the mean discrete derivative, sizes of T equally likely."""
    pairs = np.zeros((n_units, n_units))
    for i, j in combinations(range(n_units), 2):
        others = [k for k in range(n_units) if k not in (i, j)]
        for size in range(len(others) + 1):
            weight = factorial(size) * factorial(n_units - 2 - size) / factorial(n_units - 1)
            for chosen in combinations(others, size):
                t = sum(1 << k for k in chosen)
                a, b = 1 << i, 1 << j
                pairs[i, j] += weight * (scores[t | a | b] - scores[t | a] - scores[t | b] + scores[t])
        pairs[j, i] = pairs[i, j]
    return pairs


def play(masks: FloatArray, v: FloatArray, s: FloatArray, v_0: float, s_0: float) -> FloatArray:
    w, w_0 = np.exp(s), np.exp(s_0)
    total = w_0 + masks @ w
    answers: FloatArray = np.where(
        total == 0, v_0, (w_0 * v_0 + masks @ (w * v)) / np.where(total == 0, 1.0, total)
    )
    return answers


def game_of_pairs(n_units: int, seed: int = 0) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Main effects, symmetric pairs, and the scores of all masks."""
    rng = np.random.default_rng(seed)
    main, pairs = rng.normal(size=n_units), np.triu(rng.normal(size=(n_units, n_units)), 1)
    masks = all_masks(n_units)
    scores = 0.3 + masks @ main + np.einsum("ri,ij,rj->r", masks, pairs, masks)
    return main, pairs + pairs.T, scores


# --- exact values of a table

# Sums of 2^n terms of about 1 with weights that add up to 4 or so: 1e-12 leaves three digits.
TIGHT = 1e-12


@pytest.mark.parametrize("n_units", range(1, 8))
def test_k_sii_is_the_mean_discrete_derivative(n_units: int) -> None:
    scores = np.random.default_rng(n_units).normal(size=2**n_units)
    pairs = exact_pairs(scores, all_masks(n_units), "k-sii")
    np.testing.assert_allclose(pairs, derivative_average(scores, n_units), atol=TIGHT)


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("n_units", [1, 2, 3, 10])
def test_a_game_of_pairs_has_these_pairs(n_units: int, index: PairIndex) -> None:
    main, expected, scores = game_of_pairs(n_units)
    masks = all_masks(n_units)
    pairs = exact_pairs(scores, masks, index)
    np.testing.assert_allclose(pairs, expected, atol=TIGHT)
    np.testing.assert_allclose(exact_shapley(scores, masks) - pairs.sum(axis=1) / 2, main, atol=TIGHT)


@pytest.mark.parametrize("n_units", [3, 4, 7, 10])
def test_faith_shap_is_the_constrained_regression(n_units: int) -> None:
    """All masks under the Shapley kernel; main effects follow from Shapley values."""
    scores = np.random.default_rng(n_units).normal(size=(2**n_units, 2))
    masks = all_masks(n_units)
    gains = scores - scores[0]
    fit = fit_pairs(masks[1:-1], gains[1:-1], shapley_weights(masks)[1:-1], gains[-1])
    pairs = exact_pairs(scores, masks)
    np.testing.assert_allclose(fit.pairs, pairs, atol=1e-10)
    main = exact_shapley(scores, masks).T - pairs.sum(axis=2) / 2
    np.testing.assert_allclose(fit.main, main, atol=1e-10)
    np.testing.assert_allclose(fit.predict(np.ones((1, n_units)))[0], gains[-1], atol=1e-12)


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.filterwarnings("ignore:The set_:PendingDeprecationWarning")
def test_agrees_with_shapiq(index: PairIndex) -> None:
    from shapiq import ExactComputer

    n = 6
    scores = np.random.default_rng(1).normal(size=2**n)
    masks = all_masks(n)
    bits = 1 << np.arange(n)
    computer = ExactComputer(lambda z: scores[(z @ bits).astype(int)], n)
    reference = computer("FSII" if index == "faith-shap" else "k-SII", 2)
    pairs = exact_pairs(scores, masks, index)
    main = exact_shapley(scores, masks) - pairs.sum(axis=1) / 2
    # shapiq imposes the end points of FSII by weights of 1e7 or so.
    tolerance = 1e-5 if index == "faith-shap" else 1e-12
    for i in range(n):
        assert main[i] == pytest.approx(reference[(i,)], abs=tolerance)
    for i, j in combinations(range(n), 2):
        assert pairs[i, j] == pytest.approx(reference[(i, j)], abs=tolerance)


@pytest.mark.parametrize("index", INDICES)
def test_refuses_an_incomplete_table(index: PairIndex) -> None:
    with pytest.raises(InputError, match="each of the 4 masks once"):
        exact_pairs(np.arange(3.0), all_masks(2)[:3], index)


# --- a SLALOM


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("anchor", [NONE, -12.0, 0.0, 12.0])
@pytest.mark.parametrize("spread", [0.0, 3.0, 25.0])
@pytest.mark.parametrize("n_units", [1, 2, 3, 8, 12])
def test_quadrature_equals_enumeration(
    n_units: int, spread: float, anchor: float, index: PairIndex
) -> None:
    rng = np.random.default_rng(n_units)
    v, s, v_0 = rng.normal(size=n_units), spread * rng.uniform(-0.5, 0.5, n_units), rng.normal()
    masks = all_masks(n_units)
    expected = exact_pairs(play(masks, v, s, v_0, anchor), masks, index)
    got = slalom_pairs(v, s, v_0, anchor, index)
    # 40 n roundings of the range, as for Shapley values; each pair sums four of them.
    tolerance = 160 * n_units * float(np.finfo(float).eps) * np.abs(v - v_0).max()
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)


@pytest.mark.skipif(JIT_DISABLED, reason="takes minutes without Numba")
@pytest.mark.parametrize("index", INDICES)
def test_long_texts(index: PairIndex) -> None:
    """200 equal units, half of them of value 1: by symmetry three different numbers, known exactly."""
    n, half = 200, 100
    v = np.repeat([1.0, 0.0], half)
    pairs = slalom_pairs(v, np.zeros(n), 0.0, 0.0, index)
    for block in (pairs[:half, :half], pairs[half:, half:]):
        np.testing.assert_allclose(block[~np.eye(half, dtype=bool)], block[0, 1], atol=1e-15)
    # F(S) = a / (1 + s) for a units of value 1 in s: the derivative of a mean over T is a rational sum.
    t = np.arange(n - 1)
    shares = (
        1.0 / (n - 1) if index == "k-sii" else 6.0 * (t + 1) * (n - 1 - t) / ((n + 1) * n * (n - 1))
    )
    ones = t * half / (n - 2)  # mean number of ones among t others of two zeros
    expected = (shares * ones * (1 / (3 + t) - 2 / (2 + t) + 1 / (1 + t))).sum()
    np.testing.assert_allclose(pairs[-1, -2], expected, rtol=1e-11)


def test_heads_add_up() -> None:
    rng = np.random.default_rng(0)
    v, s = rng.normal(size=(2, 3, 5)), rng.normal(size=(3, 5))
    v_0, s_0 = rng.normal(size=(2, 3)), rng.normal(size=3)
    pairs = slalom_pairs_heads(v, s, v_0, s_0, "k-sii")
    assert pairs.shape == (2, 5, 5)
    expected = sum(slalom_pairs(v[1, h], s[h], v_0[1, h], s_0[h], "k-sii") for h in range(3))
    np.testing.assert_allclose(pairs[1], expected)


def test_linear_end_of_the_family_has_no_pairs() -> None:
    pairs = slalom_pairs([1.0, -2.0, 3.0], np.zeros(3), 0.0, 40.0)
    np.testing.assert_allclose(pairs, 0.0, atol=1e-15)


def test_refuses_parameters_that_are_not_finite() -> None:
    with pytest.raises(InputError, match="finite"):
        slalom_pairs([1.0, np.nan], [0.0, 0.0], 0.0, 0.0)


# --- pools of masks


@given(st.integers(0, 2**32 - 1), st.integers(2, 7), st.sampled_from(INDICES))
@settings(max_examples=40, deadline=None)
def test_axioms(seed: int, n: int, index: PairIndex) -> None:
    """Efficiency, dummy, symmetry, permutation, linearity; on all masks."""
    masks, rng = all_masks(n), np.random.default_rng(seed)
    bits = 1 << np.arange(n)
    game, other = rng.normal(size=(2, 2**n))
    pairs = exact_pairs(game, masks, index)
    main = exact_shapley(game, masks) - pairs.sum(axis=1) / 2
    np.testing.assert_allclose(main.sum() + pairs.sum() / 2, game[-1] - game[0], atol=TIGHT)
    np.testing.assert_array_equal(pairs, pairs.T)
    order = rng.permutation(n)
    permuted = exact_pairs(game, masks[:, order], index)
    np.testing.assert_allclose(permuted, pairs[np.ix_(order, order)], atol=TIGHT)
    dummy = game[((masks * (np.arange(n) > 0)) @ bits).astype(int)] + 0.7 * masks[:, 0]
    np.testing.assert_allclose(exact_pairs(dummy, masks, index)[0], 0.0, atol=TIGHT)
    both = exact_pairs(2.0 * game + other, masks, index)
    np.testing.assert_allclose(both, 2.0 * pairs + exact_pairs(other, masks, index), atol=TIGHT)


def test_sums_of_a_size_that_was_asked_in_full_are_exact_and_others_unbiased() -> None:
    """Pools of all masks of the outer sizes and ten of each inner one: the mean of 400 estimates.

    Five standard errors in each of 15 pairs: all stay within with probability .99999. Fixed seeds.
    """
    n, rng = 6, np.random.default_rng(5)
    masks, scores = all_masks(n), rng.normal(size=2**n)
    sizes = masks.sum(axis=1).astype(int)
    estimates = []
    for _ in range(400):
        drawn = [
            rng.permutation(np.flatnonzero(sizes == s))[: 10 if 2 <= s <= 4 else 99] for s in range(7)
        ]
        rows = np.concatenate(drawn)
        shares = np.concatenate([np.full(len(d), 1.0 / len(d)) for d in drawn])
        estimates.append(pair_sums(masks[rows], scores[rows, None], shares)[0])
    found = np.array(estimates)
    error = np.abs(found.mean(axis=0) - exact_pairs(scores, masks, "k-sii"))
    allowed = 5 * found.std(axis=0, ddof=1) / np.sqrt(400)
    assert (error <= allowed + TIGHT).all()


def test_totals_agree_with_shapley_values_of_the_slalom() -> None:
    v, s = np.array([1.0, -1.0, 0.5, 2.0]), np.array([0.0, 1.0, -1.0, 0.3])
    masks = all_masks(4)
    scores = play(masks, v, s, 0.2, 0.5)
    gains = (scores - scores[0])[:, None]
    fit = fit_pairs(masks[1:-1], gains[1:-1], shapley_weights(masks)[1:-1], gains[-1])
    pairs = slalom_pairs(v, s, 0.2, 0.5)
    np.testing.assert_allclose(fit.pairs[0], pairs, atol=1e-12)
    main = slalom_shapley(v, s, 0.2, 0.5) - pairs.sum(axis=1) / 2
    np.testing.assert_allclose(fit.main[0], main, atol=1e-12)
