"""Bootstrap over masks: the spread of fits to resampled answers.

Sampling units (a mask with its complement) are resampled together, within their strata. The weights of
Rao & Wu (1988) take ``k = n - 1`` units of the n of a stratum with replacement and shrink the change by
the share f of the stratum that was asked,

    weight = 1 + sqrt(1 - f) (n / (n - 1) count - 1),

so that the variance of a mean is right for any n, and 0 where every mask was asked. With f = 0 and one
stratum it is the usual bootstrap of pairs (Efron 1979) less one draw.

References
----------
Efron (1979), doi:10.1214/aos/1176344552. Rao & Wu (1988), doi:10.1080/01621459.1988.10478591.
"""

from collections.abc import Callable

import numpy as np

from piste._typing import FloatArray
from piste.fitting._sampling_units import SamplingUnits
from piste.fitting._threads import small_algebra
from piste.fitting.inference import Covariance, Linearisation

N_RESAMPLES = 1000
"""The error of a standard error is then 1 / sqrt(2 * 1000), about 2 %."""

Refit = Callable[[FloatArray], FloatArray]
"""From row weights that multiply the fit's own, shape (n_rows,), to parameters (n_outputs, k)."""


def resampling_weights(
    units: SamplingUnits, rng: np.random.Generator, n_resamples: int, *, fixed_answers: bool = False
) -> FloatArray:
    """Weights of the rows in each resample, shape (n_resamples, n_rows), non-negative, of mean 1.

    Parameters
    ----------
    units
        What is resampled together. Only with ``fixed_answers`` do strata and drawn shares count;
        otherwise answers vary as well, and all units are one stratum of a population without end.
    rng
        The only source of randomness.
    n_resamples
        How many resamples.
    fixed_answers
        Whether the draw of the masks alone is random, as in covariance ``design``.

    Examples
    --------
    >>> import numpy as np
    >>> from piste.fitting._sampling_units import mask_pairs
    >>> units = mask_pairs(np.eye(4), np.ones(4))
    >>> resampling_weights(units, np.random.default_rng(0), 2).sum(axis=1)
    array([4., 4.])
    """
    stratum = units.stratum if fixed_answers else np.zeros(units.n_units, dtype=np.int64)
    open_share = 1.0 - units.fraction if fixed_answers else np.ones(units.n_units)
    weights = np.ones((n_resamples, units.n_units))
    for members in (np.flatnonzero(stratum == s) for s in np.unique(stratum)):
        n = len(members)
        if n > 1:
            counts = rng.multinomial(n - 1, np.full(n, 1 / n), size=n_resamples)
            weights[:, members] += np.sqrt(open_share[members]) * (n / (n - 1) * counts - 1.0)
    return weights[:, units.unit]


@small_algebra()
def bootstrap(
    refit: Refit,
    units: SamplingUnits,
    rng: np.random.Generator,
    *,
    n_resamples: int = N_RESAMPLES,
    fixed_answers: bool = False,
) -> FloatArray:
    """Parameters of the fit to each resample, shape (n_resamples, n_outputs, k).

    The fits are those of the estimator itself, one after the other; nearly all of the time goes into
    products of BLAS, which no Numba loop was found to beat (see `piste.fitting._linear_kernels`).
    """
    weights = resampling_weights(units, rng, n_resamples, fixed_answers=fixed_answers)
    return np.stack([refit(row) for row in weights])


def one_step_bootstrap(
    fit: Linearisation,
    residuals: FloatArray,
    units: SamplingUnits,
    rng: np.random.Generator,
    *,
    n_resamples: int = N_RESAMPLES,
) -> FloatArray:
    """Moves of the parameters that one Gauss-Newton step from the solution makes on each resample.

    ``bread J' W diag(weight - 1) e`` with ``e`` divided by ``sqrt(1 - h)``, shape (n_resamples,
    n_parameters): no fit is repeated. Its covariance is that of CR2 up to the error of resampling, so
    what it adds is the shape of the distribution; a nonlinear model's own curvature is not in it.
    """
    weights = resampling_weights(units, rng, n_resamples)
    pulls = fit.influence * (np.sqrt(fit.weights) * residuals / _left(fit))[:, None]
    moves: FloatArray = (weights - 1.0) @ pulls
    return moves


def bootstrap_covariance(draws: FloatArray, fit: Linearisation, df: float) -> Covariance:
    """Covariance of resampled parameters (n_resamples, n_parameters); null directions as in the fit."""
    deviations = draws - draws.mean(axis=0)
    matrix = deviations.T @ deviations / (len(draws) - 1)
    return Covariance(matrix, np.zeros(len(matrix)), fit.unknown, fit.scale, df)


def _left(fit: Linearisation) -> FloatArray:
    left = 1.0 - fit.leverage
    return np.sqrt(np.where(left > 1e-8, left, 1.0))
