"""How strong a SLALOM's priors should be: marginal likelihood in Laplace's approximation.

MacKay's (1992, doi:10.1162/neco.1992.4.3.415) fixed point: with ``gamma`` the number of values and
importances that the answers determine, ``noise = error / (n - gamma)``, and each prior variance is the
mean square of its parameters per determined one.
"""

import numpy as np

from piste._typing import FloatArray
from piste.fitting._slalom_solver import (
    Prior,
    Problem,
    SlalomFit,
    centring,
    importance_ridge,
    pinned,
    solve,
)

# Each round moves the fit to within this fraction of its objective, then the prior; the last fit is
# tight.
LOOSE = 1e-2
N_ROUNDS = 12
# Log strengths this close make no difference to any prediction.
SETTLED = 0.3
# With fewer answers than parameters the fit can follow them all, so that they say nothing of the noise
# and the fixed point ends next to no prior at all. These strengths, a third of a squared spread of the
# scores per value, had the least error there; docs/quality.md, 100 masks of long texts.
FEW_ANSWERS = Prior(value=0.3, importance=0.3)


def by_evidence(problem: Problem, importance: FloatArray, prior: Prior, max_iter: int) -> SlalomFit:
    """Fit with the prior strengths that maximise the marginal likelihood, or with fixed ones where few."""
    if problem.n_spare < 0:
        return solve(problem, importance, FEW_ANSWERS, max_iter)
    fit = solve(problem, importance, prior, max_iter, LOOSE)
    n_iter = fit.n_iter
    for _ in range(N_ROUNDS):
        updated = _updated_prior(problem, fit)
        change = np.abs(np.log([updated.value / prior.value, updated.importance / prior.importance]))
        prior = updated
        if change.max() < SETTLED:
            break
        fit = solve(problem, fit.state, prior, max_iter, LOOSE)
        n_iter += fit.n_iter
    fit = solve(problem, fit.state, prior, max_iter)
    return SlalomFit(fit.state, fit.curvature, prior, n_iter + fit.n_iter, fit.converged)


def determined(problem: Problem, fit: SlalomFit) -> tuple[float, float, float]:
    """How many values, importances of units and importances of backgrounds the answers determine."""
    state, prior, curvature = fit.state, fit.prior, fit.curvature
    n_heads, n_columns = state.importance.shape
    shape = (n_heads, n_columns)
    factor, scale = pinned(curvature.schur, n_heads, 0.0)
    centred = centring(problem, shape) / scale
    variance = centred @ factor.inverse() @ centred.T
    shrunk = (importance_ridge(problem, shape, prior) * np.diag(variance)).reshape(shape)
    units = shrunk[:, problem.first_unit :]
    # The gauge takes one importance from each head.
    known_units = max(units.size - n_heads - float(units.sum()), 1e-3)
    known_background = max(n_heads * problem.first_unit - float(shrunk.sum() - units.sum()), 0.0)
    inner = state.factor.inverse()
    known_values = 0.0
    for value, cross in zip(state.value, curvature.cross, strict=True):
        through = inner @ cross.T
        trace = float(np.trace(inner) + ((through @ variance) * through).sum())
        known_values += max(value.size - prior.value * trace, 1e-3)
    return known_values, known_units, known_background


def noise(problem: Problem, fit: SlalomFit) -> float:
    """Residual variance on standardised scores."""
    return _noise(problem, fit, sum(determined(problem, fit)))


def _noise(problem: Problem, fit: SlalomFit, n_determined: float) -> float:
    return max(fit.state.error, 1e-300) / max(problem.n_answers - n_determined, 1.0)


def _updated_prior(problem: Problem, fit: SlalomFit) -> Prior:
    """One step of the evidence fixed point."""
    state, prior = fit.state, fit.prior
    values, units, backgrounds = determined(problem, fit)
    noise = _noise(problem, fit, values + units + backgrounds)
    spread = state.importance[:, problem.first_unit :]
    value = noise * values / max(float((state.value**2).sum()), 1e-300)
    importance = noise * units / max(float((spread**2).sum()), 1e-300)
    # Importances of more than about e^3 between units are never assumed impossible, nor is a prior
    # allowed to vanish within one round: both would be decided by a single unlucky start.
    return Prior(
        float(np.clip(value, prior.value * 1e-4, prior.value * 1e4)),
        float(np.clip(importance, prior.importance * 1e-4, max(noise * 10, prior.importance * 1e-4))),
    )
