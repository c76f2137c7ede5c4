r"""How additive a model is at a text: a SLALOM between its two ends.

With ``W = sum_i m_i w_i`` the units' attention on the full text, the background's share

    a = w_0 / (w_0 + W)

is 1 where the model adds its units up and 0 where it is the published, purely softmax-pooled SLALOM.
Both ends are models of their own, so both can be tested against the model between them.

**Why a bootstrap.** The likelihood ratio has no chi-square law at either end: ``a = 0`` is a boundary, and
at ``a = 1`` importances lose all meaning (Davies 1987, doi:10.1093/biomet/74.1.33). So answers are drawn
from the fitted end, with normal errors of its own residual variance, and both models are fitted to them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from piste._typing import FloatArray, IntArray
from piste.fitting.linear import solve_ridge
from piste.fitting.slalom import SlalomOptions, fit_slaloms
from piste.fitting.slalom_inference import SlalomInference

N_FOLDS = 5


@dataclass(frozen=True)
class Additivity:
    """The background's share of attention on the full text, with its interval, each in [0, 1]."""

    index: float
    low: float
    high: float


@dataclass(frozen=True)
class Ends:
    """The model between the ends against each of them.

    Parameters
    ----------
    lr_additive, lr_published
        Likelihood ratios ``n log(error of the end / error of the model between)``, 0 or more.
    p_additive, p_published
        Bootstrap p-values that the end alone would give as large a ratio; at least ``1 / (n + 1)``.
    mse_additive, mse_published, mse_between
        Mean squared errors of predicted answers, five folds of masks.
    """

    lr_additive: float
    p_additive: float
    lr_published: float
    p_published: float
    mse_additive: float
    mse_published: float
    mse_between: float


def additivity(inference: SlalomInference, quantile: float) -> Additivity:
    """The index, and its delta-method interval on the scale of log-odds, ``s_0 - log W``.

    Parameters
    ----------
    inference
        A linearised fit; without a background the index is 0, and nothing is uncertain about it.
    quantile
        How many standard errors the interval extends to either side.
    """
    parameters = inference.parameters
    if not parameters.background:
        return Additivity(0.0, 0.0, 0.0)
    w = inference.full * np.exp(parameters.importance)
    log_odds = parameters.background_importance - np.log(w.sum())
    n = parameters.n_columns
    gradient = np.zeros((1, 2 * n))
    gradient[0, n] = 1.0
    gradient[0, n + 1 :] = -w / w.sum()
    half = quantile * inference.covariance("HC2").std_errors(gradient)[0]
    low, high = expit([log_odds - half, log_odds + half])
    return Additivity(float(expit(log_odds)), float(low), float(high))


Fit = Callable[[FloatArray, FloatArray, FloatArray], Callable[[FloatArray], FloatArray]]
"""From masks, scores (n_masks,) and weights to a function that predicts masks."""


def compare_ends(
    masks: FloatArray,
    scores: FloatArray,
    weights: FloatArray,
    *,
    max_iter: int,
    n_bootstrap: int,
    rng: np.random.Generator,
) -> Ends:
    """Test both ends, and cross-validate all three models.

    Parameters
    ----------
    masks, scores, weights
        Shapes (n_masks, n_units), (n_masks,), (n_masks,); the empty text, of which the published model
        says nothing, is left out of every comparison.
    max_iter
        Solver steps of each fit.
    n_bootstrap
        Samples drawn from each end; each costs two fits.
    rng
        Draws samples and folds.
    """
    kept = np.flatnonzero(masks.sum(axis=1))
    masks, scores, weights = masks[kept], scores[kept], weights[kept]
    between, published = _slalom(True, max_iter), _slalom(False, max_iter)
    ratios = {}
    for name, end in (("additive", _additive), ("published", published)):
        fitted = end(masks, scores, weights)(masks)
        ratio = _ratio(end, between, masks, scores, weights)
        noise = np.sqrt(np.average((scores - fitted) ** 2, weights=weights) / weights)
        drawn = [
            _ratio(end, between, masks, fitted + noise * rng.standard_normal(len(masks)), weights)
            for _ in range(n_bootstrap)
        ]
        ratios[name] = (ratio, (1 + sum(other >= ratio for other in drawn)) / (1 + n_bootstrap))
    fold = rng.permutation(len(masks)) % N_FOLDS
    errors = [
        _cross_validated(fit, masks, scores, weights, fold) for fit in (_additive, published, between)
    ]
    return Ends(*ratios["additive"], *ratios["published"], *errors)


def _additive(
    masks: FloatArray, scores: FloatArray, weights: FloatArray
) -> Callable[[FloatArray], FloatArray]:
    fit = solve_ridge(masks, scores[:, None], weights)
    return lambda rows: fit.intercept[0] + rows @ fit.coef[0]


def _slalom(background: bool, max_iter: int) -> Fit:
    options = SlalomOptions(background=background, max_iter=max_iter)

    def fit(
        masks: FloatArray, scores: FloatArray, weights: FloatArray
    ) -> Callable[[FloatArray], FloatArray]:
        fitted = fit_slaloms(masks, scores[:, None], weights, options)
        return lambda rows: fitted.predict(rows)[:, 0]

    return fit


def _ratio(end: Fit, between: Fit, masks: FloatArray, scores: FloatArray, weights: FloatArray) -> float:
    """Likelihood ratio; the priors may leave the wider model a little behind, which counts as 0."""
    floor = np.finfo(float).eps ** 2 * max(float((scores**2).sum()), np.finfo(float).tiny)
    error_end, error_between = (
        float(weights @ (scores - fit(masks, scores, weights)(masks)) ** 2) for fit in (end, between)
    )
    return max(float(weights.sum() * np.log((error_end + floor) / (error_between + floor))), 0.0)


def _cross_validated(
    fit: Fit, masks: FloatArray, scores: FloatArray, weights: FloatArray, fold: IntArray
) -> float:
    error = 0.0
    for k in range(N_FOLDS):
        train, test = fold != k, fold == k
        predict = fit(masks[train], scores[train], weights[train])
        error += float(weights[test] @ (scores[test] - predict(masks[test])) ** 2)
    return error / float(weights.sum())
