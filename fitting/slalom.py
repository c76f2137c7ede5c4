"""From masks and scores to a SLALOM: standardise, start, choose the prior, say how it came out."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from piste._typing import BoolArray, FloatArray
from piste.fitting._rows import MaskRows
from piste.fitting._slalom_solver import (
    Prior,
    Problem,
    SlalomFit,
    by_evidence,
    curve,
    evaluate,
    gauge,
    solve,
)
from piste.fitting._slalom_starts import starting_importances
from piste.fitting._threads import single_blas_thread
from piste.fitting.result import Status

PriorChoice = Literal["evidence", "cv"] | tuple[float, float]
"""How ridge strengths are chosen, or the two strengths on values and on importances themselves."""

FIRST_PRIOR = Prior(value=1e-2, importance=1e-1)
NO_PRIOR = Prior(value=0.0, importance=0.0)
CV_STRENGTHS = tuple(
    Prior(value, importance)
    for value in (1e-4, 1e-3, 1e-2, 1e-1)
    for importance in (1e-3, 1e-2, 1e-1, 1.0)
)
# Root mean square error, relative to the scores' spread, below which answers are taken as exactly a
# SLALOM's: float64 noise is far below it and float32 noise far above.
EXACT = 1e-10
# Standard error of an importance from which it counts as unknown: a weight known only to within a factor
# of exp(3) = 20 either way.
UNKNOWN = 3.0


@dataclass(frozen=True)
class Slaloms:
    """Fitted SLALOMs, one per output, in the units of the scores.

    Parameters
    ----------
    value, importance
        Shape (n_outputs, n_heads, n_units), float64; importances have mean zero over the units.
    background_value, background_importance
        Shape (n_outputs, n_heads), float64; an importance of ``-inf`` means no background.
    empty_value
        Shape (n_outputs,), float64: the prediction where no unit and no background takes part.
    identifiable
        Shape (n_outputs, n_units), bool: whether the answers determine the unit's importance.
    noise
        Shape (n_outputs,), float64: residual variance, in squared score units.
    status
        How the fit came out, the worst over outputs.
    n_iter
        Solver iterations in all.
    prior
        The strengths used, on standardised scores, per output.
    """

    value: FloatArray
    importance: FloatArray
    background_value: FloatArray
    background_importance: FloatArray
    empty_value: FloatArray
    identifiable: BoolArray
    noise: FloatArray
    status: Status
    n_iter: int
    prior: tuple[Prior, ...]

    def predict(self, masks: FloatArray) -> FloatArray:
        """Predicted scores, shape (n_masks, n_outputs)."""
        top = np.maximum(self.importance.max(axis=2), self.background_importance)
        w = np.exp(self.importance - top[..., None])
        w_0 = np.exp(self.background_importance - top)
        weight = np.einsum("ru,ohu->roh", masks, w) + w_0
        summed = np.einsum("ru,ohu->roh", masks, w * self.value) + w_0 * self.background_value
        empty = weight == 0
        predicted = np.where(empty, 0.0, summed / np.where(empty, 1.0, weight)).sum(axis=2)
        nothing = empty.all(axis=2)
        return np.where(nothing, self.empty_value, predicted)


@dataclass(frozen=True)
class SlalomOptions:
    """How a SLALOM is fitted; see `piste.surrogates.Slalom` for each."""

    background: bool = True
    heads: int = 1
    shared_importance: bool = False
    prior: PriorChoice = "evidence"
    max_iter: int = 100
    seed: int = 0


def min_queries(n_units: int, *, background: bool, heads: int) -> int:
    """Parameters up to the gauge: ``2 n - 1`` as published, ``2 n + 1`` with a background, per head.

    The published model's two extra queries, the full and the empty text, belong to every pool and
    are not counted here.
    """
    return heads * (2 * n_units + (1 if background else -1))


def fit_slaloms(
    masks: FloatArray, scores: FloatArray, weights: FloatArray, options: SlalomOptions
) -> Slaloms:
    """Fit one SLALOM per output, or one set of importances for all outputs.

    Parameters
    ----------
    masks
        Shape (n_masks, n_units), non-negative counts.
    scores
        Shape (n_masks, n_outputs), float64.
    weights
        Shape (n_masks,), non-negative.
    """
    n_outputs = scores.shape[1]
    groups = [list(range(n_outputs))] if options.shared_importance else [[o] for o in range(n_outputs)]
    used = weights > 0
    with single_blas_thread():
        fits = [_fit_group(masks[used], scores[used][:, g], weights[used], options) for g in groups]
    return Slaloms(
        value=np.concatenate([f.value for f in fits]),
        importance=np.concatenate([f.importance for f in fits]),
        background_value=np.concatenate([f.background_value for f in fits]),
        background_importance=np.concatenate([f.background_importance for f in fits]),
        empty_value=np.concatenate([f.empty_value for f in fits]),
        identifiable=np.concatenate([f.identifiable for f in fits]),
        noise=np.concatenate([f.noise for f in fits]),
        status=max((f.status for f in fits), key=list(Status).index),
        n_iter=sum(f.n_iter for f in fits),
        prior=tuple(p for f in fits for p in f.prior),
    )


def _fit_group(
    masks: FloatArray, scores: FloatArray, weights: FloatArray, options: SlalomOptions
) -> Slaloms:
    """One or more outputs that share their importances."""
    weights = weights / weights.mean()
    centre = weights @ scores / len(weights)
    spread = np.sqrt(weights @ (scores - centre) ** 2 / len(weights))
    varies = spread > 1e-9 * (1 + np.abs(centre))
    scaled = (scores - centre) / np.where(varies, spread, 1.0)
    empty = masks.sum(axis=1) == 0
    at_empty = scores[empty].mean(axis=0) if empty.any() else centre
    if not varies.any() or empty.all():
        return _constant(masks, scores, centre)
    problem, fit = _best_model(masks, scaled, weights, options)
    return _in_score_units(problem, fit, centre, spread * varies, at_empty)


def _best_model(
    masks: FloatArray, scaled: FloatArray, weights: FloatArray, options: SlalomOptions
) -> tuple[Problem, SlalomFit]:
    """The published model if it is exact, else the one asked for, from the best of several starts.

    Both being exact happens (pairs alone cannot tell a background apart), and then the one with fewer
    parameters is meant. Where the published model is not exact, it is still one of the starts.
    """
    found: list[FloatArray] = []
    stages = (False, True) if options.background and options.heads == 1 else (options.background,)
    for background in stages:
        problem = _problem(masks, scaled, weights, background=background)
        starts = starting_importances(masks, scaled[:, 0], found, background=background)
        heads = _apart(starts, options)
        fits = [solve(problem, at, FIRST_PRIOR, options.max_iter, tolerance=1e-4) for at in heads]
        fit = min(fits, key=lambda f: f.state.objective)
        exact = _exact(problem, [fit.state.importance, *heads]) if options.heads == 1 else None
        if exact is not None:
            return problem, exact
        found = [fit.state.importance[0]]
    return problem, _with_prior(masks, scaled, weights, problem, fit.state.importance, options)


def _problem(
    masks: FloatArray, scaled: FloatArray, weights: FloatArray, *, background: bool
) -> Problem:
    """The published model says nothing about the empty text, so without a background it is left out."""
    kept = np.ones(len(masks), dtype=np.bool_) if background else masks.sum(axis=1) > 0
    kept_weights = weights[kept]
    return Problem(
        MaskRows.from_masks(masks[kept], background=background),
        scaled[kept],
        kept_weights / kept_weights.mean(),
        background,
    )


def _apart(starts: list[FloatArray], options: SlalomOptions) -> list[FloatArray]:
    """Starts of shape (n_heads, n_columns); heads that start alike would stay alike."""
    if options.heads == 1:
        return [start[None] for start in starts]
    rng = np.random.default_rng(options.seed)
    return [start + rng.normal(size=(options.heads, len(start))) for start in starts]


def _exact(problem: Problem, starts: list[FloatArray]) -> SlalomFit | None:
    """An exact solution without any prior, if there is one.

    Answers that follow the model to rounding need no prior. Data that it does not fit are recognised by
    the error left by the search and cost nothing here, unless there are only as many answers as
    parameters, when every prior would show.
    """
    n_rows, n_columns = len(problem.scores), problem.rows.n_columns
    spare = n_rows - (2 * n_columns - 1)
    first = evaluate(problem, starts[0], FIRST_PRIOR)
    if spare < 0 or (spare > 2 and first.error > 0.05 * problem.total):
        return None
    for start in starts:
        fit = solve(problem, start, NO_PRIOR, 100)
        if fit.state.error <= EXACT**2 * problem.total:
            return fit
    return None


def _with_prior(
    masks: FloatArray,
    scaled: FloatArray,
    weights: FloatArray,
    problem: Problem,
    importance: FloatArray,
    options: SlalomOptions,
) -> SlalomFit:
    """The fit under the prior that was asked for."""
    if options.prior == "evidence":
        return by_evidence(problem, importance, FIRST_PRIOR, options.max_iter)
    prior = (
        _cross_validated(masks, scaled, weights, importance, options)
        if options.prior == "cv"
        else Prior(*options.prior)
    )
    return solve(problem, importance, prior, options.max_iter)


def _cross_validated(
    masks: FloatArray,
    scaled: FloatArray,
    weights: FloatArray,
    importance: FloatArray,
    options: SlalomOptions,
) -> Prior:
    """The strengths with the least squared error over five folds of masks."""
    fold = np.random.default_rng(options.seed).permutation(len(masks)) % 5
    errors = np.zeros(len(CV_STRENGTHS))
    for k in range(5):
        train, test = fold != k, fold == k
        problem = _problem(masks[train], scaled[train], weights[train], background=options.background)
        held = _problem(masks[test], scaled[test], weights[test], background=options.background)
        start = importance
        for at, prior in enumerate(CV_STRENGTHS):
            fit = solve(problem, start, prior, options.max_iter)
            start = fit.state.importance
            errors[at] += _error(held, fit)
    return CV_STRENGTHS[int(errors.argmin())]


def _error(problem: Problem, fit: SlalomFit) -> float:
    """Weighted squared error of a fit on the rows of another problem."""
    w = np.exp(fit.state.importance - fit.state.importance.max(axis=1, keepdims=True))
    n_heads = len(w)
    weight = problem.rows.times(w.T, n_heads)
    error = 0.0
    for o, value in enumerate(fit.state.value):
        summed = problem.rows.times(np.column_stack([w.T, (w * value).T]), n_heads)[:, n_heads:]
        error += float(problem.weights @ (problem.scores[:, o] - (summed / weight).sum(axis=1)) ** 2)
    return error


def _in_score_units(
    problem: Problem,
    fit: SlalomFit,
    centre: FloatArray,
    spread: FloatArray,
    at_empty: FloatArray,
) -> Slaloms:
    """Undo the standardisation; centred scores are shared equally by the heads."""
    state = fit.state
    n_outputs, n_heads, n_columns = state.value.shape
    value = state.value * spread[:, None, None] + (centre / n_heads)[:, None, None]
    importance = np.broadcast_to(state.importance, value.shape).copy()
    first = 1 if problem.background else 0
    if problem.background:
        background_value, background_importance = value[:, :, 0], importance[:, :, 0]
        empty_value = background_value.sum(axis=1)
    else:
        background_value = np.broadcast_to((at_empty / n_heads)[:, None], (n_outputs, n_heads)).copy()
        background_importance = np.full((n_outputs, n_heads), -np.inf)
        empty_value = at_empty
    free = max(len(problem.scores) - n_columns, 1)
    noise = fit.noise if np.isfinite(fit.noise) else state.error / (free * n_outputs)
    identifiable = _identifiable(problem, fit, noise)
    n_units = n_columns - first
    enough = len(problem.scores) >= min_queries(n_units, background=problem.background, heads=n_heads)
    status = (
        Status.UNDERDETERMINED if not enough else Status.OK if fit.converged else Status.NOT_CONVERGED
    )
    return Slaloms(
        value=value[:, :, first:],
        importance=importance[:, :, first:],
        background_value=background_value,
        background_importance=background_importance,
        empty_value=empty_value,
        identifiable=np.broadcast_to(identifiable, (n_outputs, n_units)),
        noise=np.broadcast_to(noise, n_outputs) * spread**2,
        status=status,
        n_iter=fit.n_iter,
        prior=(fit.prior,) * n_outputs,
    )


def _identifiable(problem: Problem, fit: SlalomFit, noise: float) -> BoolArray:
    """Whether the answers alone say anything about each unit's importance, shape (n_units,)."""
    shape = fit.state.importance.shape
    first = 1 if problem.background else 0
    n_units = shape[1] - first
    if shape[0] > 1:  # a head's importances have no meaning of their own
        return np.ones(n_units, dtype=np.bool_)
    if n_units == 1:  # one importance is all gauge
        return np.zeros(1, dtype=np.bool_)
    state = evaluate(problem, fit.state.importance, NO_PRIOR)
    information = curve(problem, state, NO_PRIOR).schur
    fixed = gauge(problem, shape)
    information = information + fixed.T @ fixed * max(np.diag(information).max(), 1e-300)
    eigenvalues, vectors = np.linalg.eigh(information)
    eigenvalues = np.maximum(eigenvalues, 1e-15 * eigenvalues.max())
    rounding = 1e-26 * problem.total / len(problem.scores)
    variance = max(noise, rounding) * (vectors**2 / eigenvalues).sum(axis=1)
    determined: BoolArray = variance[first:] < UNKNOWN**2
    return determined


def _constant(masks: FloatArray, scores: FloatArray, centre: FloatArray) -> Slaloms:
    """Nothing varies: every value is the constant and no importance means anything."""
    n_outputs, n_units = scores.shape[1], masks.shape[1]
    value = np.broadcast_to(centre[:, None, None], (n_outputs, 1, n_units)).copy()
    return Slaloms(
        value=value,
        importance=np.zeros_like(value),
        background_value=centre[:, None].copy(),
        background_importance=np.zeros((n_outputs, 1)),
        empty_value=centre.copy(),
        identifiable=np.zeros((n_outputs, n_units), dtype=np.bool_),
        noise=np.zeros(n_outputs),
        status=Status.NO_VARIATION,
        n_iter=0,
        prior=(FIRST_PRIOR,) * n_outputs,
    )
