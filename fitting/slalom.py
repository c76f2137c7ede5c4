"""From masks and scores to a SLALOM: standardise, start, choose the prior, say how it came out."""

from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from piste._typing import BoolArray, FloatArray
from piste.fitting._cholesky import factorise
from piste.fitting._rows import Answers, merge_repeats
from piste.fitting._slalom_evidence import by_evidence, noise
from piste.fitting._slalom_heads import choose_heads, fit_heads
from piste.fitting._slalom_search import FIRST_PRIOR, NO_PRIOR, best_start, problem_of
from piste.fitting._slalom_solver import (
    Prior,
    Problem,
    SlalomFit,
    State,
    curve,
    evaluate,
    held_out_error,
    polish,
    solve,
    within_bounds,
)
from piste.fitting._slalom_starts import rational_importance
from piste.fitting._threads import small_algebra
from piste.fitting.result import Status

AUTO: Final = "auto"
Heads = int | Literal["auto"]
"""How many heads, or as many as predict unseen masks best."""

PriorChoice = Literal["evidence", "cv"] | tuple[float, float]
"""How ridge strengths are chosen, or the two strengths on values and on importances themselves."""

CV_STRENGTHS = tuple(
    Prior(value, importance)
    for value in (1e-4, 1e-3, 1e-2, 1e-1)
    for importance in (1e-3, 1e-2, 1e-1, 1.0)
)
# Root mean square error, relative to the scores' spread, below which answers are taken as exactly a
# SLALOM's: float64 noise is far below it and float32 noise far above.
EXACT = 1e-10
# The same of solved importances, below which it is worth while to look for an exact solution.
NEARLY_EXACT = 1e-5
# Spread, relative to the largest score, below which scores are constant but for rounding.
CONSTANT = 1e-9
# Standard error of an importance from which it counts as unknown: a weight known only to within a
# factor of exp(3) = 20 either way.
UNKNOWN = 3.0
# Eigenvalue of a scaled information matrix below which a direction is flat to rounding, and how far a
# unit takes part in a flat direction, relative to the unit that does most, to be undetermined by it.
FLAT = 1e-12
LOOSE = 1e-2


@dataclass(frozen=True)
class Slaloms:
    """Fitted SLALOMs, one per output, in the units of the scores.

    Parameters
    ----------
    value, importance
        Shape (n_outputs, n_heads, n_units), float64; importances have mean zero over the units. Heads
        beyond an output's own number have values of zero.
    n_heads
        Heads of each output.
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
    n_heads: tuple[int, ...]
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
    heads: Heads = 1
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
        Shape (n_masks,), positive: how many answers a row stands for.
    """
    n_outputs = scores.shape[1]
    groups = [list(range(n_outputs))] if options.shared_importance else [[o] for o in range(n_outputs)]
    with small_algebra():
        fits = [
            _fit_group(merge_repeats(masks, scores[:, group], weights), options) for group in groups
        ]
    return Slaloms(
        value=_of_all([f.value for f in fits], 0.0),
        importance=_of_all([f.importance for f in fits], 0.0),
        n_heads=tuple(n for f in fits for n in f.n_heads),
        background_value=_of_all([f.background_value for f in fits], 0.0),
        background_importance=_of_all(
            [f.background_importance for f in fits], 0.0 if options.background else -np.inf
        ),
        empty_value=np.concatenate([f.empty_value for f in fits]),
        identifiable=np.concatenate([f.identifiable for f in fits]),
        noise=np.concatenate([f.noise for f in fits]),
        status=max((f.status for f in fits), key=list(Status).index),
        n_iter=sum(f.n_iter for f in fits),
        prior=tuple(p for f in fits for p in f.prior),
    )


def _of_all(parts: list[FloatArray], filler: float) -> FloatArray:
    """One array of the groups' own, which have n_heads on axis 1 and may have fewer than others."""
    most = max(part.shape[1] for part in parts)
    rows = []
    for part in parts:
        rest = np.full((len(part), most - part.shape[1], *part.shape[2:]), filler)
        rows.append(np.concatenate([part, rest], axis=1))
    return np.concatenate(rows)


def _fit_group(answers: Answers, options: SlalomOptions) -> Slaloms:
    """One or more outputs that share their importances."""
    scores, weights = answers.scores, answers.weights
    centre = np.average(scores, axis=0, weights=weights)
    between = np.average((scores - centre) ** 2, axis=0, weights=weights)
    varies = np.sqrt(between) > CONSTANT * np.abs(scores).max(axis=0)
    asked = answers.asked
    if not varies.any() or not asked.any():
        return _constant(answers, centre, 1 if options.heads == AUTO else int(options.heads))
    spread = np.sqrt(between + answers.scatter.sum(axis=0) / weights.sum())
    spread = np.where(varies, spread, 1.0)
    scaled = replace(answers, scores=(scores - centre) / spread, scatter=answers.scatter / spread**2)
    at_empty = centre if asked.all() else scores[~asked][0]
    problem, fit = _best_model(scaled, options)
    found = _in_score_units(problem, fit, centre, spread * varies, at_empty)
    if options.background and not problem.background and not asked.all() and _has_no_spare(problem):
        # As many answers as the published model has parameters, which fit it whatever they are, and one
        # to the empty text, of which only a background speaks: they cannot tell the two models apart.
        return replace(found, status=Status.UNDERDETERMINED)
    return found


def _has_no_spare(problem: Problem) -> bool:
    """Whether a published model of two units or more fits these rows whatever the answers."""
    return problem.rows.n_columns > 1 and len(problem.scores) <= min_queries(
        problem.rows.n_columns, background=False, heads=1
    )


def _best_model(answers: Answers, options: SlalomOptions) -> tuple[Problem, SlalomFit]:
    """The published model if it is exact, else the one asked for.

    Both being exact happens (pairs alone cannot tell a background apart), and then the one with fewer
    parameters is meant.
    """
    if options.heads not in (1, AUTO):
        problem = problem_of(answers, background=options.background)
        return problem, _several(answers, problem, options)
    for background in (False, True) if options.background else (False,):
        problem = problem_of(answers, background=background)
        # Without the background that was asked for nothing but an exact solution is wanted.
        solved = rational_importance(problem, only_exact=background != options.background)
        exact = _exact(problem, solved)
        if exact is not None:
            return problem, exact
    if options.heads == AUTO:
        return problem, _several(answers, problem, options)
    start, prior = best_start(problem, solved)
    return problem, _with_prior(answers, problem, start, prior, options)


def _several(answers: Answers, problem: Problem, options: SlalomOptions) -> SlalomFit:
    """As many heads as are asked for, or as predict best."""
    given = None if isinstance(options.prior, str) else Prior(*options.prior)
    if options.heads == AUTO:
        fit = choose_heads(
            answers,
            background=options.background,
            prior=given,
            max_iter=options.max_iter,
            seed=options.seed,
        )
    else:
        fit = fit_heads(problem, int(options.heads), given, options.max_iter)
    if options.prior != "cv":
        return fit
    return _with_prior(answers, problem, fit.state.importance, fit.prior, options)


def _exact(problem: Problem, importance: FloatArray) -> SlalomFit | None:
    """An exact solution without any prior, if the importances are close to one.

    Answers that follow the model to rounding need no prior. Where there are fewer of them than
    parameters they always can, and it means nothing.
    """
    if problem.n_spare < 0:
        return None
    first = evaluate(problem, within_bounds(problem, importance[None]), NO_PRIOR)
    if first.error > NEARLY_EXACT**2 * problem.total or not _values_determined(first):
        return None
    fit = polish(problem, first, NO_PRIOR)
    return fit if fit.state.error <= EXACT**2 * problem.total else None


def _values_determined(state: State) -> bool:
    """Whether the answers determine every value, given the importances."""
    gram = state.gram.reshape(state.value[0].size, -1)
    diagonal = np.diag(gram)
    if not diagonal.all():
        return False
    scale = 1 / np.sqrt(diagonal)
    return bool(np.linalg.eigvalsh(scale[:, None] * gram * scale)[0] > FLAT)


def _with_prior(
    answers: Answers, problem: Problem, importance: FloatArray, first: Prior, options: SlalomOptions
) -> SlalomFit:
    """The fit under the prior that was asked for; the evidence is climbed from the first one."""
    if options.prior == "evidence":
        return by_evidence(problem, importance, first, options.max_iter)
    prior = (
        _cross_validated(answers, importance, options)
        if options.prior == "cv"
        else Prior(*options.prior)
    )
    return solve(problem, importance, prior, options.max_iter)


def _cross_validated(answers: Answers, importance: FloatArray, options: SlalomOptions) -> Prior:
    """The strengths with the least squared error over five folds of distinct masks."""
    if not options.background:
        answers = answers.take(answers.asked)
    n_rows = len(answers.masks)
    fold = np.random.default_rng(options.seed).permutation(n_rows) % 5
    errors = np.zeros(len(CV_STRENGTHS))
    for k in range(min(5, n_rows) if n_rows > 1 else 0):
        problem = problem_of(answers.take(np.isin(fold, k, invert=True)), background=options.background)
        held = problem_of(answers.take(np.isin(fold, k)), background=options.background)
        start: FloatArray | State = importance
        for at, prior in enumerate(CV_STRENGTHS):
            start = solve(problem, start, prior, options.max_iter, tolerance=1e-4).state
            errors[at] += held_out_error(held, start)
    return CV_STRENGTHS[int(errors.argmin())]


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
    first = problem.first_unit
    if problem.background:
        background_value, background_importance = value[:, :, 0], importance[:, :, 0]
        empty_value = background_value.sum(axis=1)
    else:
        background_value = np.broadcast_to((at_empty / n_heads)[:, None], (n_outputs, n_heads)).copy()
        background_importance = np.full((n_outputs, n_heads), -np.inf)
        empty_value = at_empty
    variance = noise(problem, fit)
    n_units = n_columns - first
    enough = len(problem.scores) >= min_queries(n_units, background=problem.background, heads=n_heads)
    # Several heads share what the answers say about their sum, and a prior has to tell them apart.
    determined = enough and (n_heads > 1 or _values_determined(state))
    found = Status.OK if fit.converged else Status.NOT_CONVERGED
    return Slaloms(
        value=value[:, :, first:],
        importance=importance[:, :, first:],
        n_heads=(n_heads,) * n_outputs,
        background_value=background_value,
        background_importance=background_importance,
        empty_value=empty_value,
        identifiable=np.broadcast_to(_identifiable(problem, fit, variance), (n_outputs, n_units)),
        noise=np.broadcast_to(variance, n_outputs) * spread**2,
        status=found if determined else Status.UNDERDETERMINED,
        n_iter=fit.n_iter,
        prior=(fit.prior,) * n_outputs,
    )


def _identifiable(problem: Problem, fit: SlalomFit, variance: float) -> BoolArray:
    """Whether the answers alone say anything about each unit's importance, shape (n_units,)."""
    shape, first = fit.state.importance.shape, problem.first_unit
    n_units = shape[1] - first
    if shape[0] > 1:  # a head's importances have no meaning of their own
        return np.ones(n_units, dtype=np.bool_)
    if n_units == 1:  # one importance is all gauge
        return np.zeros(1, dtype=np.bool_)
    gram = fit.state.gram.reshape(shape[1], -1)
    free = replace(fit.state, factor=factorise(gram))
    # Information per unit of attention and of score, so that its eigenvalues have no units.
    scale = 1 / np.sqrt(np.maximum(np.diag(gram), 1e-300))
    scaled = scale[:, None] * curve(problem, free, NO_PRIOR).schur * scale
    eigenvalues, vectors = np.linalg.eigh(scaled)
    flat = eigenvalues < FLAT
    directions = scale[:, None] * vectors
    directions /= np.abs(directions).max(axis=0)
    in_gauge = directions[first:] - directions[first:].mean(axis=0)
    length = np.sqrt(((directions / scale[:, None]) ** 2).sum(axis=0))
    error = variance * ((in_gauge / length)[:, ~flat] ** 2 / eigenvalues[~flat]).sum(axis=1)
    loose = (np.abs(in_gauge[:, flat]) > LOOSE).any(axis=1)
    determined: BoolArray = ~loose & (error < UNKNOWN**2)
    return determined


def _constant(answers: Answers, centre: FloatArray, n_heads: int) -> Slaloms:
    """Nothing varies: the values add up to the constant and no importance means anything."""
    n_outputs, n_units = answers.scores.shape[1], answers.masks.shape[1]
    share = centre[:, None] / n_heads * np.ones(n_heads)
    value = share[:, :, None] * np.ones(n_units)
    return Slaloms(
        value=value,
        importance=np.zeros_like(value),
        n_heads=(n_heads,) * n_outputs,
        background_value=share,
        background_importance=np.zeros_like(share),
        empty_value=centre.copy(),
        identifiable=np.zeros((n_outputs, n_units), dtype=np.bool_),
        noise=np.zeros(n_outputs),
        status=Status.NO_VARIATION,
        n_iter=0,
        prior=(FIRST_PRIOR,) * n_outputs,
    )
