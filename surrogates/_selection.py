"""Which units keep a coefficient, as the lime package chooses them."""

import warnings
from collections.abc import Callable

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from piste._typing import FloatArray, IntArray
from piste.fitting._threads import small_algebra
from piste.fitting.linear import forward_selection, solve_ridge, weighted_deviations

Selection = Callable[[FloatArray, FloatArray, FloatArray, int], IntArray]
"""From masks (n_masks, n_units), scores (n_masks,), weights (n_masks,) and a number to so many units."""


def highest_weights(Z: FloatArray, y: FloatArray, weights: FloatArray, n_features: int) -> IntArray:
    """The largest coefficients times counts of a ridge fit."""
    effects = solve_ridge(Z, y[:, None], weights, alpha=0.01).coef[0] * Z.max(axis=0)
    return np.argsort(-np.abs(effects), kind="stable")[:n_features]


@small_algebra()
def lasso_path(Z: FloatArray, y: FloatArray, weights: FloatArray, n_features: int) -> IntArray:
    """The last step of the lasso path that has few enough."""
    from sklearn.linear_model import lars_path  # a sixth of a second for who never asks for it

    A, b = weighted_deviations(Z, weights), weighted_deviations(y[:, None], weights)[:, 0]
    with warnings.catch_warnings():
        # Equal columns make the path drop one of them, which is all that can be done about them.
        warnings.simplefilter("ignore", ConvergenceWarning)
        _, _, path = lars_path(A, b, Gram="auto", method="lasso")
    n_active = np.count_nonzero(path, axis=0)
    chosen: IntArray = np.flatnonzero(path[:, np.flatnonzero(n_active <= n_features)[-1]])
    return chosen


SELECTIONS: dict[str, Selection] = {
    "forward_selection": forward_selection,
    "highest_weights": highest_weights,
    "lasso_path": lasso_path,
}
