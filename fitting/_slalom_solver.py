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

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np

from piste._typing import FloatArray
from piste.fitting._cholesky import Cholesky, factorise
from piste.fitting._rows import MaskRows

# One Gauss-Newton step never multiplies a unit's weight by more than exp(3): beyond that the
# linearisation says nothing, and weights would overflow before the step could be refused.
LONGEST_STEP = 3.0
# Log-odds of the background's share of attention on the full text, at most: at .99 a SLALOM is additive
# to within a hundredth of its effects, and beyond it values only grow without changing the model.
LARGEST_BACKGROUND = float(np.log(99.0))
# The background's importance is all but free: both of its extremes are models of their own.
BACKGROUND_FREEDOM = 1e-3
# Steps of log weights that are rounding.
POLISHED = 1e-9
# Damping that leaves a Gauss-Newton step alone but for directions that are flat to rounding.
NO_DAMPING = 1e-14


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
        Shape (n_rows,), positive: how many answers each row stands for.
    background
        Whether column 0 is the background.
    scatter
        Squared error that no model can avoid: repeated masks were answered differently.
    """

    rows: MaskRows
    scores: FloatArray
    weights: FloatArray
    background: bool
    scatter: float = 0.0

    @property
    def total(self) -> float:
        """Weighted sum of squared scores."""
        return float(self.weights @ (self.scores**2).sum(axis=1)) + self.scatter

    @property
    def n_answers(self) -> float:
        """Answers in all, each output counted."""
        return float(self.weights.sum() * self.scores.shape[1])

    @property
    def n_spare(self) -> int:
        """Distinct answers beyond the parameters, up to the gauge, of one head."""
        n_rows, n_outputs = self.scores.shape
        return int(n_rows * n_outputs - (n_outputs + 1) * self.rows.n_columns + 1)

    @property
    def first_unit(self) -> int:
        """Column of the first unit."""
        return int(self.background)


@dataclass(frozen=True)
class Prior:
    """Ridge strengths: added to the squared error per squared value and squared importance."""

    value: float
    importance: float


@dataclass(frozen=True)
class State:
    """One point of the search, with its values solved for.

    ``importance`` has shape (n_heads, n_columns) and ``value`` (n_outputs, n_heads, n_columns). ``w``
    holds the weights, the largest of a head being 1, ``share`` is ``1 / W``, shape (n_rows, n_heads),
    and ``partial`` each head's prediction, (n_outputs, n_rows, n_heads). ``gram`` is the normal matrix
    of the values, ``A^T diag(weights) A``, shape (n_heads, n_columns, n_heads, n_columns), and
    ``factor`` that of ``gram`` and the ridge.
    """

    importance: FloatArray
    w: FloatArray
    share: FloatArray
    gram: FloatArray
    value: FloatArray
    partial: FloatArray
    residual: FloatArray
    factor: Cholesky
    error: float
    objective: float


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
    """Where a search ended, on standardised scores."""

    state: State
    curvature: Curvature
    prior: Prior
    n_iter: int
    converged: bool


def solve(
    problem: Problem,
    start: FloatArray | State,
    prior: Prior,
    max_iter: int,
    tolerance: float = 1e-7,
) -> SlalomFit:
    """Levenberg-Marquardt from importances, shape (n_heads, n_columns), or from an earlier state.

    It stops when a step neither gains nor promises to gain more than ``tolerance`` of the objective.
    Damping follows Nielsen (1999, IMM-REP-1999-05).
    """
    if isinstance(start, State):
        state = under(problem, start, prior)
    else:
        state = evaluate(problem, within_bounds(problem, start), prior)
    curvature = curve(problem, state, prior)
    damping, growth, converged, n_iter = 1e-3, 2.0, False, 0
    while n_iter < max_iter and not converged:
        n_iter += 1
        step, predicted = _step(problem, curvature, damping, state.importance.shape)
        trial_importance = within_bounds(problem, state.importance + step)
        trial = evaluate(problem, trial_importance, prior, state.value)
        gained = state.objective - trial.objective
        if gained > 0:
            ratio = gained / max(predicted, np.finfo(float).tiny)
            damping *= max(1 / 9, 1 - (2 * min(ratio, 1.0) - 1) ** 3)
            growth = 2.0
            converged = max(gained, predicted) <= tolerance * state.objective
            state, curvature = trial, curve(problem, trial, prior)
        else:
            converged = predicted <= 1e-3 * tolerance * state.objective or damping > 1e12
            damping, growth = damping * growth, growth * 2
    return SlalomFit(state, curvature, prior, n_iter, converged)


def polish(problem: Problem, state: State, prior: Prior, n_steps: int = 12) -> SlalomFit:
    """Gauss-Newton steps, each taken, and the best state on the way.

    Next to an exact solution they converge quadratically, but not downhill: where the answers hardly
    determine an importance, the way to its solution is a curved valley, in which a solver that only
    accepts descent creeps along while a full step leaves it and the next one comes back.
    """
    best, n_iter = state, 0
    curvature = curve(problem, state, prior)
    while n_iter < n_steps:
        n_iter += 1
        step, _ = _step(problem, curvature, NO_DAMPING, state.importance.shape)
        state = evaluate(problem, within_bounds(problem, state.importance + step), prior, state.value)
        curvature = curve(problem, state, prior)
        if state.objective < best.objective:
            best = state
        elif np.abs(step).max() < POLISHED:
            break
    return SlalomFit(best, curve(problem, best, prior), prior, n_iter, converged=True)


def within_bounds(problem: Problem, importance: FloatArray) -> FloatArray:
    """The same model in the gauge (mean zero over the units), its background within bounds."""
    first = problem.first_unit
    centred: FloatArray = importance - importance[:, first:].mean(axis=1, keepdims=True)
    if problem.background:
        top = centred[:, 1:].max(axis=1)
        units = top + np.log(np.exp(centred[:, 1:] - top[:, None]) @ problem.rows.full[1:])
        centred[:, 0] = np.minimum(centred[:, 0], units + LARGEST_BACKGROUND)
    return centred


def evaluate(
    problem: Problem, importance: FloatArray, prior: Prior, value: FloatArray | None = None
) -> State:
    """Solve the values at these importances and measure the objective.

    What is solved for is the change from ``value`` (by default from zero), on the true residual: along
    a search that converges the changes shrink, and with them what rounding in the normal equations, of
    squared condition number, does to the result.
    """
    rows, weights = problem.rows, problem.weights
    n_heads, n_columns = importance.shape
    w = np.exp(importance - importance.max(axis=1, keepdims=True))
    share = 1.0 / rows.times(w.T, n_heads)
    gram = np.empty((n_heads, n_columns, n_heads, n_columns))
    pairs = list(combinations_with_replacement(range(n_heads), 2))
    blocks = rows.weighted_gram(np.stack([weights * share[:, h] * share[:, g] for g, h in pairs]))
    for (g, h), block in zip(pairs, blocks, strict=True):
        gram[h, :, g] = w[h][:, None] * block * w[g]
        if g != h:
            gram[g, :, h] = gram[h, :, g].T
    if value is None:
        value = np.zeros((problem.scores.shape[1], n_heads, n_columns))
        residual = problem.scores.T
    else:
        _, residual = _predict(problem, w, share, value)
    weighed = _Weighed(importance, w, share, gram)
    return _solved(problem, weighed, prior, value, residual)


def under(problem: Problem, state: State, prior: Prior) -> State:
    """The same importances under another prior, the values solved anew."""
    weighed = _Weighed(state.importance, state.w, state.share, state.gram)
    return _solved(problem, weighed, prior, state.value, state.residual)


class _Weighed(NamedTuple):
    """What importances alone decide; see `State` for each."""

    importance: FloatArray
    w: FloatArray
    share: FloatArray
    gram: FloatArray


def _solved(
    problem: Problem, weighed: _Weighed, prior: Prior, value: FloatArray, residual: FloatArray
) -> State:
    """The state, its values solved from these and the residual that they leave."""
    importance, w, share, gram = weighed
    n_outputs = len(value)
    factor = factorise(gram.reshape(importance.size, -1), prior.value)
    pulled = (problem.weights * residual)[:, :, None] * share
    right = w * _pull(problem, pulled) - prior.value * value
    step = factor.solve(right.reshape(n_outputs, -1).T).T
    value = value + step.reshape(value.shape)
    partial, residual = _predict(problem, w, share, value)
    error = float(problem.weights @ (residual**2).sum(axis=0)) + problem.scatter
    ridge = importance_ridge(problem, importance.shape, prior)
    penalty = prior.value * float((value**2).sum()) + float(ridge @ importance.ravel() ** 2)
    return State(*weighed, value, partial, residual, factor, error, error + penalty)


def _predict(
    problem: Problem, w: FloatArray, share: FloatArray, value: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Each head's prediction (n_outputs, n_rows, n_heads) and the residual (n_outputs, n_rows)."""
    n_outputs, n_heads, n_columns = value.shape
    right = (w * value).reshape(n_outputs * n_heads, n_columns)
    # The weights ride along so that rows which cancel are noticed.
    sums = problem.rows.times(np.concatenate([w, right]).T, n_heads)[:, n_heads:]
    partial = sums.T.reshape(n_outputs, n_heads, -1).transpose(0, 2, 1) * share
    return partial, problem.scores.T - partial.sum(axis=2)


def held_out_error(problem: Problem, state: State) -> float:
    """Weighted squared error on the rows of another problem than the state's own."""
    share = 1.0 / problem.rows.times(state.w.T, len(state.w))
    _, residual = _predict(problem, state.w, share, state.value)
    return float(problem.weights @ (residual**2).sum(axis=0))


def _pull(problem: Problem, terms: FloatArray) -> FloatArray:
    """``M^T terms`` for terms (n_outputs, n_rows, n_heads), shape (n_outputs, n_heads, n_columns)."""
    n_outputs, n_rows, n_heads = terms.shape
    columns = terms.transpose(1, 0, 2).reshape(n_rows, -1)
    return problem.rows.transposed_times(columns).T.reshape(n_outputs, n_heads, -1)


def importance_ridge(problem: Problem, shape: tuple[int, ...], prior: Prior) -> FloatArray:
    """Ridge on each importance, shape (n_heads * n_columns,)."""
    ridge = np.full(shape, float(prior.importance))
    if problem.background:
        ridge[:, 0] *= BACKGROUND_FREEDOM
    return ridge.ravel()


def curve(problem: Problem, state: State, prior: Prior) -> Curvature:
    """Gauss-Newton information on the importances, with the values projected out."""
    n_outputs, n_heads, n_columns = state.value.shape
    p = n_heads * n_columns
    ridge = importance_ridge(problem, (n_heads, n_columns), prior)
    schur = np.diag(ridge)
    coupling = np.empty((n_outputs, p, p))
    for o in range(n_outputs):
        own, cross = _information(problem, state, o)
        coupling[o] = cross.reshape(p, p)
        half = state.factor.half(coupling[o].T)
        schur += own.reshape(p, p) - half.T @ half
    pulled = (problem.weights * state.residual)[:, :, None] * state.share
    pull, pull_partial = _pull(problem, pulled), _pull(problem, pulled * state.partial)
    gradient = (state.w * (state.value * pull - pull_partial)).sum(axis=0).ravel()
    # Zero but for the rounding of the values, which would otherwise push along weak importances.
    by_value = (state.w * pull - prior.value * state.value).reshape(n_outputs, p)
    for cross, change in zip(coupling, state.factor.solve(by_value.T).T, strict=True):
        gradient -= cross @ change
    return Curvature(schur, gradient - ridge * state.importance.ravel(), coupling)


def _information(problem: Problem, state: State, output: int) -> tuple[FloatArray, FloatArray]:
    """``J_s^T diag(weights) J_s`` and ``J_s^T diag(weights) J_v`` of one output.

    Both of shape (n_heads, n_columns, n_heads, n_columns), importances first.
    """
    value, partial, w = state.value[output], state.partial[output], state.w
    own, cross = np.empty_like(state.gram), np.empty_like(state.gram)
    factors: list[FloatArray] = []
    pairs = list(combinations_with_replacement(range(len(value)), 2))
    for g, h in pairs:
        c = problem.weights * state.share[:, h] * state.share[:, g]
        f_h, f_g = partial[:, h], partial[:, g]
        factors += [c * f_h, c * f_h * f_g, c * f_g][: 2 if g == h else 3]
    blocks = iter(problem.rows.weighted_gram(np.stack(factors)))
    for g, h in pairs:
        by_h, by_both = (w[h][:, None] * next(blocks) * w[g] for _ in range(2))
        by_g = by_h if g == h else w[h][:, None] * next(blocks) * w[g]
        base, v_h, v_g = state.gram[h, :, g], value[h][:, None], value[g]
        cross[h, :, g] = v_h * base - by_h
        own[h, :, g] = cross[h, :, g] * v_g - v_h * by_g + by_both
        if g != h:
            cross[g, :, h] = (base * v_g - by_g).T
            own[g, :, h] = own[h, :, g].T
    return own, cross


def centring(problem: Problem, shape: tuple[int, ...]) -> FloatArray:
    """Matrix (p, p) that shifts each head's importances to mean zero over the units."""
    n_heads, n_columns = shape
    mean = np.zeros(n_columns)
    mean[problem.first_unit :] = 1 / (n_columns - problem.first_unit)
    shift = np.outer(np.ones(n_columns), mean)
    return np.eye(n_heads * n_columns) - np.kron(np.eye(n_heads), shift)


def pinned(schur: FloatArray, n_heads: int, damping: float) -> tuple[Cholesky, FloatArray]:
    """Factor of ``schur`` in units of its own diagonal, damped, and those units, shape (p,).

    Shifting all importances of a head changes no prediction. That direction is pinned in the same
    units: in others, what the answers say of units with little attention would be lost to rounding.
    """
    diagonal = np.abs(np.diag(schur))  # negative where rounding is all that there is
    units = np.sqrt(np.maximum(diagonal, 1e-12 * (diagonal.max() or 1.0)))
    scaled = schur / np.outer(units, units)
    scaled.flat[:: len(schur) + 1] += damping
    n_columns = len(schur) // n_heads
    for first in range(0, len(schur), n_columns):
        head = slice(first, first + n_columns)
        shift = units[head] / np.linalg.norm(units[head])
        scaled[head, head] += np.outer(shift, shift)
    return factorise(scaled), units


def _step(
    problem: Problem, curvature: Curvature, damping: float, shape: tuple[int, ...]
) -> tuple[FloatArray, float]:
    """The damped step within the gauge and the decrease of the objective that it predicts."""
    schur, gradient = curvature.schur, curvature.gradient
    factor, units = pinned(schur, shape[0], damping)
    step = (factor.solve(gradient / units) / units).reshape(shape)
    step -= step[:, problem.first_unit :].mean(axis=1, keepdims=True)
    longest = np.abs(step).max()
    if longest > LONGEST_STEP:
        step *= LONGEST_STEP / longest
    flat = step.ravel()
    predicted = float(2 * gradient @ flat - flat @ schur @ flat)
    return step, max(predicted, 0.0)
