"""Noise of the answers in the errors of attributions: exact by linearity, then by simulation."""

from itertools import product

import numpy as np
import pytest

from piste._errors import InputError
from piste._typing import FloatArray
from piste.fitting.linear_inference import LinearCovariance
from piste.sampling.designs import draw, with_anchors
from piste.surrogates import KernelShap, Lime, Slalom
from piste.surrogates.base import Surrogate
from piste.surrogates.interactions import Interactions

N_UNITS = 5
TAKES_ERRORS = [
    Lime(),
    Lime(kernel_width=None, alpha=2.0),
    KernelShap(),
    Interactions(),
    Interactions(index="k-sii"),
]


def all_masks(n_units: int = N_UNITS) -> FloatArray:
    return np.array(list(product([0.0, 1.0], repeat=n_units)))


def moves(surrogate: Surrogate, masks: FloatArray, scores: FloatArray, kind: str) -> FloatArray:
    """Derivatives (n_units, n_masks) of attributions that are linear in the scores, by refitting."""
    columns = scores[:, None] + np.eye(len(masks))
    bumped = surrogate.fit(masks, np.column_stack([columns, scores])).attributions(kind)
    return np.asarray(bumped[:-1] - bumped[-1]).T


@pytest.mark.parametrize("surrogate", TAKES_ERRORS, ids=str)
def test_when_every_mask_was_asked_only_the_answers_vary(surrogate: Surrogate) -> None:
    """Variance of a linear map: the sum of squared derivatives times variances, to rounding."""
    rng = np.random.default_rng(0)
    masks = all_masks()
    scores, errors = rng.normal(size=len(masks)), rng.random(len(masks))
    kind = surrogate.effect
    expected = np.sqrt(moves(surrogate, masks, scores, kind) ** 2 @ errors**2)
    fitted = surrogate.fit(masks, scores, score_errors=errors)  # type: ignore[call-arg]
    np.testing.assert_allclose(fitted.std_errors(kind), expected, rtol=1e-9)
    low, high = fitted.confidence_interval(kind)
    np.testing.assert_allclose((high - low) / 2, 1.959963984540054 * expected, rtol=1e-9)
    exact = surrogate.fit(masks, scores)
    np.testing.assert_allclose(exact.std_errors(kind), 0.0, atol=1e-12)


@pytest.mark.parametrize("covariance", ["design", "bootstrap"])
def test_noise_is_counted_once(covariance: LinearCovariance) -> None:
    """Residuals count a size drawn to the share f with 1 - f, so that f of the noise is left to add."""
    rng = np.random.default_rng(1)
    masks = with_anchors(draw("leverage", 6, 40, rng)).masks.astype(float)
    scores, errors = rng.normal(size=len(masks)), rng.random(len(masks))
    size = masks.sum(axis=1).astype(int)
    share = np.bincount(size, minlength=7)[size] / np.array([1, 6, 15, 20, 15, 6, 1])[size]
    design = KernelShap().fit(masks, scores).std_errors(covariance=covariance)
    noise = moves(KernelShap(), masks, scores, "shapley") ** 2 @ (share * errors**2)
    fitted = KernelShap().fit(masks, scores, score_errors=errors)
    expected = np.sqrt(design**2 + noise)
    np.testing.assert_allclose(fitted.std_errors(covariance=covariance), expected, rtol=1e-9)


@pytest.mark.parametrize("covariance", ["classical", "HC2", "CR3"])
def test_residuals_hold_all_noise_but_that_of_the_anchors(covariance: LinearCovariance) -> None:
    rng = np.random.default_rng(2)
    masks = with_anchors(draw("leverage", 6, 40, rng)).masks.astype(float)
    scores, errors = rng.normal(size=len(masks)), rng.random(len(masks))
    anchor = np.isin(masks.sum(axis=1), [0, 6])
    plain = KernelShap().fit(masks, scores).std_errors(covariance=covariance)
    added = moves(KernelShap(), masks, scores, "shapley")[:, anchor] ** 2 @ errors[anchor] ** 2
    fitted = KernelShap().fit(masks, scores, score_errors=errors)
    expected = np.sqrt(plain**2 + added)
    np.testing.assert_allclose(fitted.std_errors(covariance=covariance), expected, rtol=1e-9)
    lime = Lime().fit(masks, scores)
    told = Lime().fit(masks, scores, score_errors=errors)
    np.testing.assert_array_equal(lime.std_errors(None, covariance), told.std_errors(None, covariance))


def test_repeated_anchors_share_their_noise() -> None:
    masks = np.array([[0.0, 0], [0, 0], [1, 0], [0, 1], [1, 1]])
    errors = np.array([0.2, 0.4, 0.0, 0.0, 0.0])
    fitted = KernelShap().fit(masks, np.arange(5.0), score_errors=errors)
    # phi_i = (f(i) - f(0) + f(12) - f(j)) / 2: half of the mean of the two empty rows.
    np.testing.assert_allclose(fitted.std_errors(), np.sqrt(0.04 + 0.16) / 4)


def test_several_outputs_have_their_own_noise() -> None:
    rng = np.random.default_rng(3)
    masks = all_masks(3)
    scores, errors = rng.normal(size=(8, 2)), rng.random((8, 2))
    for surrogate in (Lime(), KernelShap(), Interactions()):
        both = surrogate.fit(masks, scores, score_errors=errors).std_errors()
        for output in range(2):
            one = surrogate.fit(masks, scores[:, output], score_errors=errors[:, output])
            np.testing.assert_allclose(both[output], one.std_errors(), rtol=1e-12)


@pytest.mark.parametrize("wrong", [np.ones(7), -np.ones(8), np.full(8, np.nan), np.ones((8, 1))])
@pytest.mark.parametrize("surrogate", [Lime(), KernelShap(), Interactions()], ids=str)
def test_impossible_errors_are_refused(surrogate: Lime, wrong: FloatArray) -> None:
    with pytest.raises(InputError, match=r"Got score_errors of shape .* expected one finite number"):
        surrogate.fit(all_masks(3), np.ones(8), score_errors=wrong)


@pytest.mark.parametrize("surrogate", [Lime(), KernelShap(), Interactions(), Slalom()], ids=str)
def test_scores_whose_squares_overflow_are_refused(surrogate: Surrogate) -> None:
    with pytest.raises(InputError, match=r"score of size 2e\+200; expected at most 1e\+100"):
        surrogate.fit(all_masks(3), np.linspace(-2e200, 1e200, 8))
    assert np.isfinite(surrogate.fit(all_masks(3), np.linspace(-1e100, 0, 8)).attributions()).all()
