"""Pairs on a SLALOM: kernels against listed pairs, slopes by differences, the ridge of scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from sklearn.linear_model import Ridge

from piste._typing import FloatArray
from piste.fitting import _pair_kernels as kernels
from piste.fitting._attention_head import Head
from piste.fitting._pair_strengths import _Evidence, learn
from piste.fitting.slalom_pairs import fit_pairs_to_rest


def head(n_units: int, rng: np.random.Generator, background: float = 1.0) -> Head:
    return Head(rng.normal(size=n_units), rng.normal(size=n_units), 0.3, background)


def listed(columns: FloatArray) -> list[FloatArray]:
    """Products of the pairs of each range, one column each."""
    first, second = np.triu_indices(columns.shape[1], 1)
    products, distance = columns[:, first] * columns[:, second], second - first
    return [
        products[:, (distance >= near) & (distance < end)]
        for near, end in kernels.ranges(columns.shape[1])
    ]


@pytest.mark.parametrize("n_units", [2, 3, 4, 9, 10, 14])
def test_grams_are_those_of_listed_pairs(n_units: int) -> None:
    rng = np.random.default_rng(n_units)
    columns = rng.normal(size=(7, n_units))
    expected = np.stack([pairs @ pairs.T for pairs in listed(columns)])
    np.testing.assert_allclose(kernels.pair_grams(columns), expected, atol=1e-11)
    variances = rng.uniform(size=len(expected))
    np.testing.assert_allclose(
        kernels.weighted_gram(columns, variances), np.tensordot(variances, expected, 1), atol=1e-11
    )


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 12))
def test_slope_of_grams_is_that_of_differences(seed: int, n_units: int) -> None:
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(5, n_units))
    slopes = rng.normal(size=(len(kernels.ranges(n_units)), 5, 5))
    slopes += slopes.swapaxes(1, 2)

    def value(flat: FloatArray) -> float:
        return float((slopes * kernels.pair_grams(flat.reshape(columns.shape))).sum())

    found = kernels.slope_by_columns(columns, slopes).ravel()
    expected = approx_fprime(columns.ravel(), value, 1e-6)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("background", [1.0, -np.inf])
def test_slope_of_the_evidence_is_that_of_differences(background: float) -> None:
    rng = np.random.default_rng(0)
    masks = rng.integers(0, 2, (40, 6)).astype(float)
    evidence = _Evidence.of(
        head(6, rng, background), masks, rng.normal(size=40), rng.uniform(0.5, 2.0, 40), 0.8
    )
    n_moves = 6 if np.isinf(background) else 7
    point = np.concatenate([rng.normal(-2.0, 1.0, len(evidence.sizes)), rng.normal(size=n_moves)])

    def loss(at: FloatArray) -> float:
        return evidence.loss(at)[0]

    slope = evidence.loss(point)[1]
    expected = approx_fprime(point, loss, 1e-6)
    np.testing.assert_allclose(slope, expected, atol=1e-4 * np.abs(expected).max())


def test_terms_are_those_of_a_ridge_on_listed_features() -> None:
    rng = np.random.default_rng(1)
    masks, start = rng.integers(0, 2, (60, 12)).astype(float), head(12, rng)
    scores = start.shares(masks) @ start.values() + 0.3 * rng.normal(size=60)
    rest = scores - start.shares(masks) @ start.values()
    strengths = learn(start, masks, scores, np.ones(60), float(rest.std()))
    shares = strengths.head.shares(masks)
    columns = [
        np.sqrt(variance) * pairs
        for each, variances in (
            ((masks - 0.5) * strengths.scaled, strengths.presence),
            (shares[:, 1:], strengths.attended),
        )
        for pairs, variance in zip(listed(each), variances, strict=True)
    ]
    features = np.hstack([*columns, np.sqrt(strengths.value) * shares])
    moved = scores - shares @ start.values()
    ridge = Ridge(strengths.noise, tol=1e-12).fit(features, moved)
    fitted = fit_pairs_to_rest(start, masks, scores, np.ones(60), 0)
    expected = shares @ start.values() + ridge.predict(features)
    np.testing.assert_allclose(fitted.predict(masks), expected, atol=1e-5)


def test_importances_follow_what_pairs_hide() -> None:
    rng = np.random.default_rng(2)
    masks, truth = rng.integers(0, 2, (300, 8)).astype(float), head(8, rng)
    shares = truth.shares(masks)
    scores = shares @ (3 * truth.values()) + 2.0 * shares[:, 1] * shares[:, 2]
    off = truth.moved_by(2 * truth.values(), np.append(0.0, 0.5 * rng.normal(size=8)))
    found = fit_pairs_to_rest(off, masks, scores, np.ones(300), 0).head

    def error(of: Head) -> float:
        return float(np.std((of.importance - of.background_importance) - (truth.importance - 1.0)))

    assert error(found) < 0.5 * error(off)


@pytest.mark.parametrize("spread", [0.0, 5.0, 20.0, 40.0])
@pytest.mark.parametrize("background", [-np.inf, -20.0, 0.0, 20.0])
def test_any_spread_of_importances_can_be_solved(spread: float, background: float) -> None:
    rng = np.random.default_rng(3)
    masks = rng.integers(0, 2, (50, 15)).astype(float)
    one = Head(rng.normal(size=15), spread * rng.normal(size=15), 0.3, background)
    scores = rng.normal(size=50)
    fitted = fit_pairs_to_rest(one, masks, scores, np.ones(50), 0)
    assert np.mean((fitted.predict(masks) - scores) ** 2) <= 1.01 * np.mean(
        (one.shares(masks) @ one.values() - scores) ** 2
    )
