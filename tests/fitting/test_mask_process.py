"""The Gaussian process over masks: its Shapley values, its gradient, leaving out, additive games."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import null_space
from scipy.optimize import approx_fprime

from piste._typing import BoolArray, FloatArray
from piste.fitting import mask_process
from piste.fitting.mask_process import MaskProcess, fit_mask_process, negative_log_likelihood
from piste.fitting.shapley import exact_shapley


def all_masks(n_units: int) -> FloatArray:
    masks: FloatArray = ((np.arange(2**n_units)[:, None] >> np.arange(n_units)) & 1).astype(float)
    return masks


def pairs_of_masks(n_pairs: int, n_units: int, seed: int) -> FloatArray:
    """Distinct masks and their complements, the full and the empty one first."""
    rng = np.random.default_rng(seed)
    rows = 1 + rng.permutation(2 ** (n_units - 1) - 1)[: n_pairs - 1]
    half = ((rows[:, None] >> np.arange(n_units)) & 1).astype(float)
    ends = np.array([[1.0] * n_units, [0.0] * n_units])
    return np.vstack([ends, half, 1.0 - half])


def triple(masks: FloatArray) -> FloatArray:
    """Odd interactions of three units, and an additive part."""
    signs = 2.0 * masks - 1.0
    scores: FloatArray = signs[:, 0] * signs[:, 1] * signs[:, 2] + 0.5 * masks @ np.arange(
        masks.shape[1]
    )
    return scores[:, None]


@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_shapley_values_of_the_mean_equal_enumeration(seed: int, n: int, n_pairs: int) -> None:
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], size=(n_pairs, n))
    process = MaskProcess(signs, rng.normal(size=(2, n_pairs)), rng.uniform(1e-3, 0.95, n))
    masks = all_masks(n)
    scores = process.predict(masks)
    np.testing.assert_allclose(
        process.shapley(), exact_shapley(scores, masks).T, atol=1e-13 * n_pairs * n
    )
    np.testing.assert_allclose(process.predict(1.0 - masks), -scores, atol=1e-13)


def test_gradient_of_the_likelihood() -> None:
    rng = np.random.default_rng(0)
    signs = 2.0 * pairs_of_masks(30, 6, 0)[:31] - 1.0
    signs = np.delete(signs, 1, axis=0)
    halves, exact = rng.normal(size=(30, 2)), np.abs(signs.sum(axis=1)) == 6
    contrasts = null_space(signs.T)
    at = np.append(rng.normal(size=6) - 1.0, -2.0)

    def value(x: FloatArray) -> float:
        return negative_log_likelihood(x, signs, halves, exact, contrasts)[0]

    gradient = negative_log_likelihood(at, signs, halves, exact, contrasts)[1]
    # Forward differences of step h err by h/2 times the curvature (about 10) and 1e-15 * 100 / h.
    np.testing.assert_allclose(gradient, approx_fprime(at, value, 1e-7), atol=2e-5)


def test_left_out_predictions_are_those_of_the_other_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With rho and noise held fixed, against fits without the pair, additive part included."""
    rho, noise = np.linspace(0.1, 0.6, 6), 0.05

    def fixed(*_: object) -> tuple[FloatArray, float]:
        return rho, noise

    monkeypatch.setattr(mask_process, "_likeliest", fixed)
    masks = pairs_of_masks(25, 6, 1)
    scores = triple(masks) + np.random.default_rng(1).normal(size=(len(masks), 1))
    fitted = fit_mask_process(masks, scores)
    assert fitted is not None
    for row in (2, 7, 20):
        kept: BoolArray = ~((masks == masks[row]).all(axis=1) | (masks == 1 - masks[row]).all(axis=1))
        others = fit_mask_process(masks[kept], scores[kept])
        assert others is not None
        own = (scores[row, 0] - scores[(masks == 1 - masks[row]).all(axis=1), 0].item()) / 2.0
        slope = generalised(*halved(masks[kept], scores[kept]), rho, noise)
        predicted = others.process.predict(masks[row : row + 1])[0, 0]
        predicted += (2.0 * masks[row] - 1.0) @ slope
        # In-sample residual plus what left_out adds to the mean is the residual left out.
        whole = generalised(*halved(masks, scores), rho, noise)
        residual = own - fitted.mean[row, 0] - (2.0 * masks[row] - 1.0) @ whole
        moved = fitted.left_out[row, 0] - fitted.mean[row, 0]
        assert residual - moved == pytest.approx(own - predicted, abs=1e-9)


def halved(masks: FloatArray, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """One member of each pair as signs, and half the difference of answers."""
    first = masks[:, 0] == 1
    mine, theirs = masks[first], masks[~first]
    order = [int(np.flatnonzero((theirs == 1 - m).all(axis=1))[0]) for m in mine]
    return 2.0 * mine - 1.0, (scores[first, 0] - scores[~first, 0][order]) / 2.0


def generalised(signs: FloatArray, halves: FloatArray, rho: FloatArray, noise: float) -> FloatArray:
    """Generalised least squares estimate of the additive part."""
    same, opposite = mask_process._kernels(signs, signs, rho)
    exact = np.abs(signs.sum(axis=1)) == signs.shape[1]
    inverse = np.linalg.inv(same - opposite + np.diag(np.where(exact, 0.0, noise)))
    slope = np.linalg.solve(signs.T @ inverse @ signs, signs.T @ inverse @ halves)
    return np.asarray(slope, dtype=np.float64)


def test_learns_which_units_interact() -> None:
    masks = pairs_of_masks(60, 8, 2)
    fitted = fit_mask_process(masks, triple(masks))
    assert fitted is not None
    assert fitted.process.rho[:3].min() > 3 * fitted.process.rho[3:].max()
    fresh = all_masks(8)
    additive = np.column_stack([np.ones(256), fresh])
    beyond = triple(fresh)[:, 0] - fitted.process.predict(fresh)[:, 0]
    left = beyond - additive @ np.linalg.lstsq(additive, beyond)[0]
    assert np.square(left).mean() < 0.05  # of 1: the variance of a product of three signs


def test_nothing_to_fit() -> None:
    masks = pairs_of_masks(20, 6, 3)
    assert fit_mask_process(masks, (masks @ np.arange(6.0))[:, None] + 1.0) is None  # additive
    signs = 2.0 * masks - 1.0
    assert fit_mask_process(masks, signs[:, :1] * signs[:, 1:2]) is None  # even
    assert (
        fit_mask_process(masks[:10], np.random.default_rng(0).normal(size=(10, 1))) is None
    )  # no pairs
    assert fit_mask_process(np.array([[1.0], [0.0]]), np.array([[1.0], [0.0]])) is None


def test_repeated_rows_are_averaged_and_lone_masks_predicted() -> None:
    masks = pairs_of_masks(40, 7, 4)
    scores = triple(masks)
    fitted = fit_mask_process(masks, scores)
    absent = next(m for m in all_masks(7) if not (masks == m).all(axis=1).any())
    lone = np.vstack([masks, masks[2:3], absent])
    answers = np.vstack([scores, scores[2:3] + 2.0, [[5.0]]])
    answers[2] -= 2.0
    again = fit_mask_process(lone, answers)
    assert fitted is not None
    assert again is not None
    np.testing.assert_allclose(again.process.shapley(), fitted.process.shapley(), atol=1e-9)
    np.testing.assert_array_equal(again.left_out[-1], again.mean[-1])


def test_outputs_that_vary_share_the_kernel() -> None:
    masks = pairs_of_masks(40, 7, 5)
    scores = np.hstack([triple(masks), masks @ np.arange(7.0)[:, None], -3.0 * triple(masks)])
    fitted = fit_mask_process(masks, scores)
    assert fitted is not None
    values = fitted.process.shapley()
    np.testing.assert_array_equal(values[1], np.zeros(7))
    np.testing.assert_allclose(values[2], -3.0 * values[0], atol=1e-9)  # found by iteration


def test_fewer_pairs_than_units_in_the_choice_of_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mask_process, "MOST_FOR_KERNEL", 1)
    masks = pairs_of_masks(60, 8, 6)
    fitted = fit_mask_process(masks, triple(masks))  # chosen by 16 of 60 pairs
    assert fitted is not None
    assert np.isfinite(fitted.left_out).all()
    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], (3, 8))
    rho, noise = mask_process._likeliest(signs, rng.normal(size=(3, 1)), np.zeros(3, dtype=np.bool_))
    assert (rho == 0.5).all()
    assert noise == 1.0
