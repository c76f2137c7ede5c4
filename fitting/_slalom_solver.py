"""Softmax-linked additive log-odds (SLALOM), fitted by separable Levenberg-Marquardt.

With one background column in front of the units, every mask row ``M_r`` and head ``h`` has

    W_rh = sum_j M_rj w_hj,   w = exp(s),      A_rhj = M_rj w_hj / W_rh,
    F_rh = sum_j A_rhj v_hj,                   F_r = sum_h F_rh,

and derivatives ``dF/dv_hj = A_rhj`` and ``dF/ds_hj = A_rhj (v_hj - F_rh)``. Values are linear given
importances, so each step solves them exactly (variable projection, Golub & Pereyra 1973, in Kaufman's
1975 form: the Schur complement of the joint Gauss-Newton matrix) and Levenberg-Marquardt moves only
the importances. Every matrix that a step needs is ``w w^T`` times a weighted Gram matrix of the masks,

    G(c) = M^T diag(c) M   with   c = 1, F_h, F_g, F_h F_g   each divided by W_h W_g,

which is why a step costs as much as the squares of the numbers of changed units, and no more.

Source: Leemann, Fastowski, Pfeiffer & Kasneci (2025), arXiv 2405.13536 for the model; the background
column, the heads and this solver are piste's own.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import logsumexp

from piste._typing import FloatArray
from piste.fitting._rows import MaskRows

# One Gauss-Newton step never multiplies a unit's weight by more than exp(3): beyond that the
# linearisation says nothing, and weights would overflow before the step could be refused.
LONGEST_STEP = 3.0
# Log-odds of the background's share of attention on the full text, at most: at .99 a SLALOM is additive to
# within a hundredth of its effects, and beyond it values only grow without changing the model.
LARGEST_BACKGROUND = np.log(99.0)
# The background's importance is all but free: both of its extremes are models of their own.
BACKGROUND_FREEDOM = 1e-3


@dataclass(frozen=True)
class Problem:
    """What one fit is given; scores are centred and scaled, so priors have no units.

    Parameters
    ----------
    rows
        Mask rows over the background (where ``background``) and the units.
    scores
        Shape (n_rows, n_outputs); outputs of one problem share their importances.
    weights
        Shape (n_rows,), non-negative, mean one.
    background
        Whether column 0 is the background.
    """

    rows: MaskRows
    scores: FloatArray
    weights: FloatArray
    background: bool

    @property
    def total(self) -> float:
        """Weighted sum of squared scores."""
        return float(np.einsum("r,ro->", self.weights, self.scores**2))


@dataclass(frozen=True)
class Prior:
    """Ridge strengths: added to the squared error per squared value and squared importance."""

    value: float
    importance: float


@dataclass(frozen=True)
class State:
    """One point of the search, with its values solved for.

    ``importance`` has shape (n_heads, n_columns), ``value`` (n_outputs, n_heads, n_columns); ``share``
    is ``1 / W`` and ``partial`` each head's prediction, (n_rows, n_heads) and (n_outputs, n_rows,
    n_heads); ``scale`` and ``factor`` hold the scaled Cholesky factor of the values' normal matrix.
    """

    importance: FloatArray
    value: FloatArray
    share: FloatArray
    partial: FloatArray
    residual: FloatArray
    error: float
    objective: float
    scale: FloatArray
    factor: FloatArray


@dataclass(frozen=True)
class Curvature:
    """Gauss-Newton matrices at a state, the values eliminated.

    ``schur`` (p, p) is the information on importances, ``gradient`` (p,) minus half the objective's
    gradient, ``cross`` (n_outputs, p, p) couples importances (rows) to values (columns).
    """

    schur: FloatArray
    gradient: FloatArray
    cross: FloatArray


@dataclass(frozen=True)
class SlalomFit:
    """A fitted SLALOM in the units of the scores it was given.

    ``value`` has shape (n_outputs, n_heads, n_columns), ``importance`` (n_heads, n_columns) with mean
    zero over the units.
    """

    state: State
    prior: Prior
    noise: float
    n_iter: int
    converged: bool


def solve(
    problem: Problem,
    importance: FloatArray,
    prior: Prior,
    max_iter: int,
    tolerance: float = 1e-7,
) -> SlalomFit:
    """Levenberg-Marquardt from one starting point, shape (n_heads, n_columns).

    It stops when a step neither gains nor promises to gain more than ``tolerance`` of the objective.
    """
    state = evaluate(problem, _centred(problem, importance), prior)
    damping, growth, converged, n_iter = 1e-3, 2.0, False, 0
    curvature = curve(problem, state, prior)
    floor = 1e-30 * max(problem.total, np.finfo(float).tiny)
    while n_iter < max_iter and not converged:
        n_iter += 1
        step, predicted = _step(problem, curvature, damping, state.importance.shape)
        trial = evaluate(problem, _centred(problem, state.importance + step), prior)
        gained = state.objective - trial.objective
        if gained > 0:
            ratio = gained / max(predicted, np.finfo(float).tiny)
            damping *= max(1 / 9, 1 - (2 * min(ratio, 1.0) - 1) ** 3)
            growth = 2.0
            converged = trial.error <= floor or (max(gained, predicted) <= tolerance * state.objective)
            state, curvature = trial, curve(problem, trial, prior)
        else:
            converged = predicted <= 1e-3 * tolerance * state.objective or damping > 1e12
            damping, growth = damping * growth, growth * 2
    return SlalomFit(state, prior, np.nan, n_iter, converged)


def _centred(problem: Problem, importance: FloatArray) -> FloatArray:
    """The same model in the gauge (mean zero over the units), its background within bounds."""
    first = 1 if problem.background else 0
    centred: FloatArray = importance - importance[:, first:].mean(axis=1, keepdims=True)
    if problem.background:
        units = logsumexp(centred[:, 1:] + np.log(np.maximum(problem.rows.full[1:], 1e-300)), axis=1)
        centred[:, 0] = np.minimum(centred[:, 0], units + LARGEST_BACKGROUND)
    return centred


def evaluate(problem: Problem, importance: FloatArray, prior: Prior) -> State:
    """Solve the values at these importances and measure the objective.

    The normal equations are scaled to a unit diagonal and refined twice on the true residual, so that
    their squared condition number does not reach the result.
    """
    rows, weights = problem.rows, problem.weights
    n_heads, n_columns = importance.shape
    n_outputs = problem.scores.shape[1]
    w = np.exp(importance - importance.max(axis=1, keepdims=True))
    share = 1.0 / rows.times(w.T, n_heads)
    gram = np.empty((n_heads, n_columns, n_heads, n_columns))
    for h in range(n_heads):
        for g in range(h + 1):
            block = rows.weighted_gram((weights * share[:, h] * share[:, g])[None])[0]
            gram[h, :, g] = np.outer(w[h], w[g]) * block
            gram[g, :, h] = gram[h, :, g].T
    scale, factor = _factor(gram.reshape(n_heads * n_columns, -1), prior.value)

    value = np.zeros((n_outputs, n_heads, n_columns))
    partial = np.zeros((n_outputs, len(share), n_heads))
    residual = problem.scores.T.copy()
    for _ in range(3):
        for o in range(n_outputs):
            pull = rows.transposed_times((weights * residual[o])[:, None] * share)
            right = (w * pull.T - prior.value * value[o]).ravel()
            step = scale * cho_solve((factor, True), scale * right, check_finite=False)
            value[o] += step.reshape(n_heads, n_columns)
        partial, residual = _predict(problem, w, share, value)
    error = float(np.einsum("r,or->", weights, residual**2))
    objective = (
        error
        + prior.value * float((value**2).sum())
        + float((_importance_prior(problem, importance.shape, prior) * importance.ravel() ** 2).sum())
    )
    return State(importance, value, share, partial, residual, error, objective, scale, factor)


def _predict(
    problem: Problem, w: FloatArray, share: FloatArray, value: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Each head's prediction (n_outputs, n_rows, n_heads) and the residual (n_outputs, n_rows)."""
    n_outputs, n_heads, n_columns = value.shape
    right = (w * value).reshape(n_outputs * n_heads, n_columns).T
    # The weights ride along so that rows which cancel are noticed.
    sums = problem.rows.times(np.column_stack([w.T, right]), n_heads)[:, n_heads:]
    partial = sums.T.reshape(n_outputs, n_heads, -1).transpose(0, 2, 1) * share
    return partial, problem.scores.T - partial.sum(axis=2)


def _factor(gram: FloatArray, ridge: float) -> tuple[FloatArray, FloatArray]:
    """Scaling to unit diagonal and the Cholesky factor, with just enough jitter to exist."""
    diagonal = np.diag(gram) + ridge
    scale = np.where(diagonal > 0, 1 / np.sqrt(np.maximum(diagonal, 1e-300)), 0.0)
    scaled = scale[:, None] * gram * scale
    np.fill_diagonal(scaled, 1.0)
    jitter = 0.0
    while True:
        try:
            factor, _ = cho_factor(
                scaled + jitter * np.eye(len(scaled)), lower=True, check_finite=False
            )
        except LinAlgError:
            jitter = max(1e-14, jitter * 100)
        else:
            return scale, np.tril(factor)


def _importance_prior(problem: Problem, shape: tuple[int, int], prior: Prior) -> FloatArray:
    """Ridge on each importance, shape (n_heads * n_columns,)."""
    ridge = np.full(shape, float(prior.importance))
    if problem.background:
        ridge[:, 0] *= BACKGROUND_FREEDOM
    return ridge.ravel()


def curve(problem: Problem, state: State, prior: Prior) -> Curvature:
    """Gauss-Newton information on the importances, with the values projected out."""
    rows, weights = problem.rows, problem.weights
    n_outputs, n_heads, n_columns = state.value.shape
    w = np.exp(state.importance - state.importance.max(axis=1, keepdims=True))
    own = np.zeros((n_heads, n_columns, n_heads, n_columns))
    cross = np.empty((n_outputs, n_heads, n_columns, n_heads, n_columns))
    gradient = np.zeros((n_heads, n_columns))
    for o in range(n_outputs):
        value, partial = state.value[o], state.partial[o]
        pulled = (weights * state.residual[o])[:, None] * state.share
        pull = rows.transposed_times(np.column_stack([pulled, pulled * partial])).T
        gradient += w * (value * pull[:n_heads] - pull[n_heads:])
        for h in range(n_heads):
            for g in range(h + 1):
                c = weights * state.share[:, h] * state.share[:, g]
                f_h, f_g = partial[:, h], partial[:, g]
                base, by_h, by_g, by_both = rows.weighted_gram(
                    np.stack([c, c * f_h, c * f_g, c * f_h * f_g])
                )
                outer = np.outer(w[h], w[g])
                v_h, v_g = value[h][:, None], value[g][None, :]
                block = outer * (v_h * v_g * base - v_h * by_g - v_g * by_h + by_both)
                own[h, :, g] += block
                cross[o, h, :, g] = outer * (v_h * base - by_h)
                if g != h:
                    own[g, :, h] += block.T
                    cross[o, g, :, h] = (outer * (v_g * base - by_g)).T
    p = n_heads * n_columns
    schur = own.reshape(p, p)
    coupling = cross.reshape(n_outputs, p, p)
    for o in range(n_outputs):
        half = state.scale[:, None] * coupling[o].T
        schur = schur - half.T @ cho_solve((state.factor, True), half, check_finite=False)
    ridge = _importance_prior(problem, (n_heads, n_columns), prior)
    schur = schur + np.diag(ridge)
    return Curvature(schur, gradient.ravel() - ridge * state.importance.ravel(), coupling)


def gauge(problem: Problem, shape: tuple[int, int]) -> FloatArray:
    """Rows that pick the mean importance of each head's units, shape (n_heads, p), unit length."""
    n_heads, n_columns = shape
    first = 1 if problem.background else 0
    means = np.zeros((n_heads, n_heads, n_columns))
    for h in range(n_heads):
        means[h, h, first:] = 1 / np.sqrt(n_columns - first)
    return means.reshape(n_heads, -1)


def _step(
    problem: Problem, curvature: Curvature, damping: float, shape: tuple[int, int]
) -> tuple[FloatArray, float]:
    """The damped step within the gauge and the decrease of the objective that it predicts."""
    schur, gradient = curvature.schur, curvature.gradient
    diagonal = np.maximum(np.diag(schur), 0.0)
    scale = np.maximum(diagonal, 1e-12 * max(diagonal.max(), 1e-300))
    fixed = gauge(problem, shape)
    damped = schur + np.diag(damping * scale) + fixed.T @ fixed * scale.max()
    try:
        step = cho_solve(cho_factor(damped, check_finite=False), gradient, check_finite=False)
    except LinAlgError:  # rounding made a flat direction negative
        step = np.linalg.lstsq(damped, gradient, rcond=1e-14)[0]
    longest = np.abs(step).max()
    if longest > LONGEST_STEP:
        step = step * (LONGEST_STEP / longest)
    predicted = float(2 * gradient @ step - step @ schur @ step)
    return step.reshape(shape), max(predicted, 0.0)


def by_evidence(
    problem: Problem, importance: FloatArray, prior: Prior, max_iter: int, n_rounds: int = 12
) -> SlalomFit:
    """Fit with prior strengths that maximise the marginal likelihood (Laplace approximation).

    MacKay's (1992, doi:10.1162/neco.1992.4.3.415) fixed point: with ``gamma`` the number of values and
    importances that the answers determine, ``noise = error / (n - gamma)``, and each prior variance
    is the mean square of its parameters per determined one.
    """
    fit = solve(problem, importance, prior, max_iter, tolerance=1e-4)
    n_iter, noise = fit.n_iter, np.nan
    for _ in range(n_rounds):
        updated, noise = _update_prior(problem, fit)
        change = max(
            abs(np.log(updated.value / prior.value)),
            abs(np.log(updated.importance / prior.importance)),
        )
        prior = updated
        if change < 0.1:
            break
        fit = solve(problem, fit.state.importance, prior, max_iter, tolerance=1e-4)
        n_iter += fit.n_iter
    fit = solve(problem, fit.state.importance, prior, max_iter)
    return replace(fit, noise=noise, n_iter=n_iter + fit.n_iter)


def _update_prior(problem: Problem, fit: SlalomFit) -> tuple[Prior, float]:
    """One step of the evidence fixed point."""
    state, prior = fit.state, fit.prior
    n_outputs, n_heads, n_columns = state.value.shape
    shape = (n_heads, n_columns)
    curvature = curve(problem, state, prior)
    fixed = gauge(problem, shape)
    schur = curvature.schur + fixed.T @ fixed * max(np.diag(curvature.schur).max(), 1e-300)
    inverse = np.linalg.pinv(schur, hermitian=True, rcond=1e-14)
    ridge = _importance_prior(problem, shape, prior)
    units = np.ones(shape, dtype=np.bool_)
    if problem.background:
        units[:, 0] = False
    flat = units.ravel()
    # The gauge takes one importance from each head.
    known_s = max(flat.sum() - n_heads - float((ridge * np.diag(inverse))[flat].sum()), 1e-3)
    known_v = 0.0
    inner = state.scale[:, None] * cho_solve(
        (state.factor, True), np.diag(state.scale), check_finite=False
    )
    for o in range(n_outputs):
        through = inner @ curvature.cross[o].T
        variance = np.trace(inner) + np.einsum("ij,jk,ik->", through, inverse, through)
        known_v += max(state.value[o].size - prior.value * float(variance), 1e-3)
    free = max(problem.scores.size - known_v - known_s, 1.0)
    noise = max(state.error, 1e-300) / free
    value = noise * known_v / max(float((state.value**2).sum()), 1e-300)
    importance = (
        noise * known_s / max(float((state.importance[units.reshape(shape)] ** 2).sum()), 1e-300)
    )
    # Importances of more than about e^3 between units are never assumed impossible, nor is a prior
    # allowed to vanish within one round: both would be decided by a single unlucky start.
    return Prior(
        float(np.clip(value, prior.value * 1e-4, prior.value * 1e4)),
        float(np.clip(importance, prior.importance * 1e-4, max(noise * 10, prior.importance * 1e-4))),
    ), noise
