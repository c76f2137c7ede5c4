"""Covariances: statsmodels, scipy, the jackknife, repeated draws, derivatives, null directions."""

from itertools import product
from math import comb

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import curve_fit

from piste._errors import InputError
from piste._typing import FloatArray
from piste.fitting._sampling_units import mask_pairs
from piste.fitting.bootstrap import (
    bootstrap,
    bootstrap_covariance,
    one_step_bootstrap,
    resampling_weights,
)
from piste.fitting.inference import SANDWICHES, Estimate, Sandwich, covariance, linearise
from piste.fitting.linear import solve_constrained
from piste.fitting.shapley import exact_shapley, slalom_shapley
from piste.fitting.slalom_inference import (
    SlalomKind,
    SlalomParameters,
    slalom_gradients,
    slalom_jacobian,
)
from piste.sampling.designs import draw
from piste.surrogates.shap import shapley_weights

# Condition numbers of Gram matrices are below 1e4 here: rounding costs 1e4 * 1e-16 * (a few).
TIGHT = 1e-10
KINDS: tuple[SlalomKind, ...] = ("value", "importance", "linear", "removal", "shapley")


def sample(
    n_rows: int = 200, n_units: int = 6, seed: int = 0
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Design with intercept, answers with uneven noise, weights."""
    rng = np.random.default_rng(seed)
    masks = (rng.random((n_rows, n_units)) < rng.random((n_rows, 1))).astype(float)
    design = np.column_stack([np.ones(n_rows), masks])
    answers = masks @ rng.normal(size=n_units) + rng.normal(size=n_rows) * (1 + 3 * masks[:, 0])
    return design, answers, rng.random(n_rows) + 0.1


def paired(n_pairs: int, n_units: int, seed: int = 0) -> FloatArray:
    half = np.random.default_rng(seed).random((n_pairs, n_units)) < 0.4
    half = np.unique(half[:, 1:], axis=0)
    half = np.column_stack([np.zeros(len(half), dtype=np.bool_), half])
    masks: FloatArray = np.concatenate([half, ~half]).astype(float)
    sizes = masks.sum(axis=1)
    inner: FloatArray = masks[(sizes > 0) & (sizes < n_units)]
    return inner


# --- linear fits against statsmodels and the jackknife


@pytest.mark.parametrize("kind", ["classical", "HC0", "HC1", "HC2", "HC3"])
@pytest.mark.parametrize("weighted", [True, False])
def test_agrees_with_statsmodels(kind: Sandwich, weighted: bool) -> None:
    design, answers, weights = sample()
    weights = weights if weighted else np.ones(len(weights))
    reference = sm.WLS(answers, design, weights=weights).fit()
    found = covariance(linearise(design, weights), answers - design @ reference.params, kind)
    expected = reference.cov_params() if kind == "classical" else getattr(reference, f"cov_{kind}")
    np.testing.assert_allclose(found.matrix, expected, rtol=TIGHT, atol=TIGHT * np.abs(expected).max())
    np.testing.assert_allclose(found.std_errors(np.eye(7)), np.sqrt(np.diag(expected)), rtol=TIGHT)
    assert found.df == pytest.approx(reference.df_resid)
    errors = found.std_errors(np.eye(7))
    estimate = Estimate(reference.params[None], errors[None], np.array([found.df]))
    if kind == "classical":
        low, high = estimate.interval(0.9)
        np.testing.assert_allclose(
            np.column_stack([low[0], high[0]]), reference.conf_int(0.1), rtol=TIGHT
        )
        np.testing.assert_allclose(estimate.p_values()[0], reference.pvalues, rtol=1e-6, atol=1e-15)


def test_leverages_are_the_hat_matrix() -> None:
    design, _, weights = sample()
    fit = linearise(design, weights)
    white = np.sqrt(weights)[:, None] * design
    np.testing.assert_allclose(fit.leverage, np.diag(white @ np.linalg.pinv(white)), rtol=TIGHT)
    assert fit.n_effective == pytest.approx(7)


def test_cr3_is_the_jackknife_over_units() -> None:
    masks = paired(30, 5)
    design = np.column_stack([np.ones(len(masks)), masks])
    rng = np.random.default_rng(1)
    answers, weights = rng.normal(size=len(masks)), rng.random(len(masks)) + 0.5

    def fitted(rows: np.ndarray) -> FloatArray:
        root = np.sqrt(weights[rows])[:, None]
        solution: FloatArray = np.linalg.lstsq(root * design[rows], root[:, 0] * answers[rows])[0]
        return solution

    everything = np.ones(len(masks), dtype=np.bool_)
    solution = fitted(everything)
    units = mask_pairs(masks, np.ones(5))
    moves = np.stack([fitted(units.unit != u) - solution for u in range(units.n_units)])
    found = covariance(linearise(design, weights), answers - design @ solution, "CR3", units=units)
    np.testing.assert_allclose(found.matrix, moves.T @ moves, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(("by_pair", "by_row"), [("CR2", "HC2"), ("CR3", "HC3")])
def test_without_pairs_units_are_rows(by_pair: Sandwich, by_row: Sandwich) -> None:
    design, answers, weights = sample(n_units=12)
    units = mask_pairs(design[:, 1:], np.ones(12))
    rows = np.flatnonzero(np.bincount(units.unit)[units.unit] == 1)
    fit, e = linearise(design[rows], weights[rows]), answers[rows]
    alone = mask_pairs(design[rows, 1:], np.ones(12))
    np.testing.assert_allclose(
        covariance(fit, e, by_pair, units=alone).matrix, covariance(fit, e, by_row).matrix, rtol=TIGHT
    )


def test_cr2_is_right_on_average_for_even_noise() -> None:
    """Its mean under noise of variance 1 is the covariance of the fit: by algebra, not by chance."""
    masks = paired(30, 5)
    design = np.column_stack([np.ones(len(masks)), masks])
    fit, units = linearise(design, np.ones(len(masks))), mask_pairs(masks, np.ones(5))
    hat = fit.influence @ fit.design.T
    left = np.eye(len(masks)) - hat
    values, vectors = np.linalg.eigh(left)
    assert values.min() > -1e-12
    roots = vectors * np.sqrt(np.maximum(values, 0.0))  # residuals of the noise along each direction
    mean = sum(covariance(fit, e, "CR2", units=units).matrix for e in roots.T)
    np.testing.assert_allclose(mean, fit.bread, rtol=1e-8, atol=1e-10)


def test_units_are_needed_where_they_count() -> None:
    design, answers, weights = sample()
    with pytest.raises(InputError, match="without sampling units"):
        covariance(linearise(design, weights), answers, "CR3")


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.sampled_from(["classical", "HC1", "HC3"]))
@settings(max_examples=25, deadline=None)
def test_units_of_measurement_only_scale(of_scores: float, of_column: float, kind: Sandwich) -> None:
    design, answers, weights = sample(n_rows=60)
    scale = np.ones(7)
    scale[3] = of_column
    plain = covariance(linearise(design, weights), answers, kind).std_errors(np.eye(7))
    scaled = covariance(linearise(design * scale, weights), answers * of_scores, kind)
    np.testing.assert_allclose(scaled.std_errors(np.eye(7)), plain * of_scores / scale, rtol=1e-8)


def test_a_common_factor_of_the_weights_changes_nothing() -> None:
    design, answers, weights = sample()
    for kind in ("classical", "HC0", "HC1", "HC2", "HC3"):
        one = covariance(linearise(design, weights), answers, kind).matrix
        other = covariance(linearise(design, 1e3 * weights), answers, kind).matrix
        np.testing.assert_allclose(one, other, rtol=1e-9)


# --- null directions


@pytest.mark.parametrize("ridge", [0.0, 1.0])
@pytest.mark.parametrize("kind", SANDWICHES)
def test_what_the_rows_do_not_determine_has_infinite_errors(ridge: float, kind: Sandwich) -> None:
    design, answers, weights = sample()
    design[:, 2] = design[:, 1]  # two equal columns: only their sum is known
    design[:, 4] = 0.0  # a unit that is never there
    fit = linearise(design, weights, ridge=np.full(7, ridge))
    units = mask_pairs(design[:, 1:], design[:, 1:].max(axis=0))
    errors = covariance(fit, answers, kind, units=units).std_errors(np.eye(7))
    np.testing.assert_array_equal(np.isinf(errors), [False, True, True, False, True, False, False])
    both = np.zeros((1, 7))
    both[0, 1:3] = 1.0
    assert np.isfinite(covariance(fit, answers, kind, units=units).std_errors(both)).all()


def test_nearly_equal_columns_count_as_equal() -> None:
    design, answers, weights = sample()
    design[:, 2] = design[:, 1]
    design[0, 2] += 1e-7
    errors = covariance(linearise(design, weights), answers, "HC3").std_errors(np.eye(7))
    assert np.isinf(errors[1:3]).all()
    assert np.isfinite(errors[3:]).all()


@pytest.mark.parametrize("kind", ["HC2", "HC3", "CR2", "CR3", "design"])
def test_a_number_that_hangs_on_one_answer_has_an_infinite_error(kind: Sandwich) -> None:
    design, answers, weights = sample()
    design[:, 1] = 0.0
    design[7, 1] = 1.0
    units = mask_pairs(design[:, 1:], np.ones(6))
    fit = linearise(design, weights)
    errors = covariance(fit, answers, kind, units=units).std_errors(np.eye(7))
    np.testing.assert_array_equal(np.isinf(errors), np.arange(7) == 1)
    assert np.isfinite(covariance(fit, answers, "classical").std_errors(np.eye(7))).all()


@pytest.mark.parametrize("kind", SANDWICHES)
def test_as_many_rows_as_parameters_tell_no_noise(kind: Sandwich) -> None:
    design = np.column_stack([np.ones(4), np.eye(4)[:, 1:]])
    units = mask_pairs(np.eye(8)[:4], np.ones(8))
    found = covariance(linearise(design, np.ones(4)), np.zeros(4), kind, units=units)
    assert np.isinf(found.std_errors(np.eye(4))).all()


def test_a_gauge_is_not_a_null_direction() -> None:
    rng = np.random.default_rng(2)
    design = rng.normal(size=(50, 4))
    design -= design.mean(axis=1, keepdims=True)  # blind to a common shift
    found = covariance(
        linearise(design, np.ones(50), gauge=np.ones((1, 4))), rng.normal(size=50), "HC3"
    )
    assert np.isfinite(found.std_errors(np.eye(4))).all()
    # A variance of nothing but rounding, about 1e-16 of the others: its root is 1e-8 of theirs.
    assert found.std_errors(np.ones((1, 4))) <= 1e-7 * found.std_errors(np.eye(4)).max()
    ungauged = covariance(linearise(design, np.ones(50)), rng.normal(size=50), "HC3")
    assert np.isinf(ungauged.std_errors(np.eye(4))).all()
    difference = np.array([[1.0, -1.0, 0.0, 0.0]])
    assert np.isfinite(ungauged.std_errors(difference)).all()


# --- ridge


def test_ridge_sandwich_by_its_formula() -> None:
    design, answers, weights = sample()
    ridge = np.array([0.0, *[5.0] * 6])
    gram = design.T @ (weights[:, None] * design)
    bread = np.linalg.inv(gram + np.diag(ridge))
    e = answers - design @ bread @ design.T @ (weights * answers)
    meat = design.T @ (((weights * e) ** 2)[:, None] * design)
    fit = linearise(design, weights, ridge=ridge)
    np.testing.assert_allclose(covariance(fit, e, "HC0").matrix, bread @ meat @ bread, rtol=1e-8)
    assert fit.n_effective == pytest.approx(np.trace(bread @ gram))


def test_a_prior_adds_its_bias() -> None:
    """Classical with a prior is the Bayesian covariance; the bias is the way to the fit without it."""
    design, answers, weights = sample()
    ridge = np.full(7, 5.0)
    fit = linearise(design, weights, ridge=ridge)
    gram = design.T @ (weights[:, None] * design)
    pull = design.T @ (weights * answers)
    shrunk = np.asarray(np.linalg.solve(gram + np.diag(ridge), pull), dtype=np.float64)
    free = np.linalg.solve(gram, pull)
    e = answers - design @ shrunk
    noise = weights @ e**2 / (len(e) - fit.n_effective)
    found = covariance(fit, e, "classical", shrunk=shrunk)
    np.testing.assert_allclose(found.matrix, noise * fit.bread, rtol=1e-8)
    np.testing.assert_allclose(found.bias, free - shrunk, rtol=1e-8)
    expected = np.sqrt(np.diag(found.matrix) + (free - shrunk) ** 2)
    np.testing.assert_allclose(found.std_errors(np.eye(7)), expected, rtol=TIGHT)


# --- what is drawn at once


def test_pairs_sizes_and_drawn_shares() -> None:
    masks = np.array(
        [[1, 0, 0, 0], [0, 1, 1, 1], [1, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]], dtype=float
    )
    units = mask_pairs(masks, np.ones(4))
    assert units.unit[0] == units.unit[1]
    assert units.unit[3] == units.unit[4]
    assert units.n_units == 3
    by_row = units.fraction[units.unit]
    np.testing.assert_allclose(by_row, [1 / 4, 1 / 4, 1 / 6, 2 / 4, 2 / 4])


def test_counts_have_no_known_share() -> None:
    masks = np.array([[2.0, 0], [0, 1], [1, 1], [2, 1], [0, 0]])
    units = mask_pairs(masks, masks.max(axis=0))
    assert units.unit[0] == units.unit[1]
    assert units.unit[3] == units.unit[4]
    assert not units.fraction.any()


def test_shares_of_large_sizes_do_not_overflow() -> None:
    masks = np.zeros((2, 300))
    masks[0, :150] = masks[1, 150:] = 1.0
    assert 0 <= mask_pairs(masks, np.ones(300)).fraction[0] < 1e-80


@pytest.mark.parametrize("n_units", range(2, 9))
def test_all_masks_are_the_whole_of_each_size(n_units: int) -> None:
    masks = np.array(list(product([0.0, 1.0], repeat=n_units)))
    assert (mask_pairs(masks, np.ones(n_units)).fraction == 1).all()


# --- the design-based error against repeated sampling

GAME_UNITS = 9


def shapley_regression(
    masks: FloatArray, game: FloatArray, total: float
) -> tuple[FloatArray, FloatArray]:
    """Shapley values from inner masks, and their design-based errors."""
    answers = game[(masks @ (1 << np.arange(GAME_UNITS))).astype(int)]
    weights = shapley_weights(masks)
    fit = solve_constrained(masks, answers[:, None], weights, total=np.array([total]))
    geometry = linearise(masks, weights, gauge=np.ones((1, GAME_UNITS)))
    found = covariance(
        geometry, answers - masks @ fit.coef[0], "design", units=mask_pairs(masks, np.ones(GAME_UNITS))
    )
    return fit.coef[0], found.std_errors(np.eye(GAME_UNITS))


@pytest.mark.parametrize(
    ("law", "n_masks"), [("leverage", 120), ("leverage", 300), ("uniform-size", 150)]
)
def test_design_based_errors_are_those_of_repeated_draws(law: str, n_masks: int) -> None:
    """250 draws: a root mean square has an error of 4.5 % per unit, 2 % on average over nine.

    The formula is a linearisation with a jackknife-like correction, good to a tenth here.
    """
    rng = np.random.default_rng(3)
    masks = ((np.arange(2**GAME_UNITS)[:, None] >> np.arange(GAME_UNITS)) & 1).astype(float)
    game = masks @ rng.normal(size=GAME_UNITS) + rng.normal(size=2**GAME_UNITS)
    game -= game[0]
    truth = exact_shapley(game, masks)
    values, errors = [], []
    for seed in range(250):
        drawn = draw(law, GAME_UNITS, n_masks, np.random.default_rng([4, seed])).masks.astype(float)
        drawn = drawn[(drawn.sum(axis=1) > 0) & (drawn.sum(axis=1) < GAME_UNITS)]
        value, error = shapley_regression(drawn, game, game[-1])
        values.append(value)
        errors.append(error)
    actual = np.sqrt(np.mean((np.array(values) - truth) ** 2))
    claimed = np.sqrt(np.mean(np.array(errors) ** 2))
    assert claimed == pytest.approx(actual, rel=0.1)
    covered = np.abs(np.array(values) - truth) <= 1.98 * np.array(errors)
    assert 0.92 < covered.mean() < 0.98


@pytest.mark.parametrize("n_units", range(2, 9))
def test_nothing_is_open_once_every_mask_was_asked(n_units: int) -> None:
    masks = np.array(list(product([0.0, 1.0], repeat=n_units)))[1:-1]
    units = mask_pairs(masks, np.ones(n_units))
    weights, gauge = shapley_weights(masks), np.ones((1, n_units))
    residuals = np.random.default_rng(5).normal(size=len(masks))
    found = covariance(linearise(masks, weights, gauge=gauge), residuals, "design", units=units)
    np.testing.assert_array_equal(found.std_errors(np.eye(n_units)), 0.0)


# --- bootstrap


def test_resampling_weights_give_the_variance_of_a_stratified_mean() -> None:
    """Sizes 1 and 2 of six units, 4 of 6 and 5 of 15 drawn: var(mean) = (1 - f) S^2 / n in each.

    20,000 resamples leave 1 % (1 / sqrt(2 * 20,000) of a standard error is .5 %).
    """
    rng = np.random.default_rng(6)
    singles = np.eye(6)[:4]
    pairs = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1], [1, 0, 1, 0, 0, 0]])
    masks = np.concatenate([singles, pairs, [[0, 1, 0, 1, 0, 0]]]).astype(float)
    units = mask_pairs(masks, np.ones(6))
    weights = resampling_weights(units, rng, 20_000, fixed_answers=True)
    values = rng.normal(size=9)
    for rows, existing in ((slice(0, 4), 6), (slice(4, 9), comb(6, 2))):
        n = len(values[rows])
        means = weights[:, rows] @ values[rows] / n
        expected = (1 - n / existing) * values[rows].var(ddof=1) / n
        assert means.var() == pytest.approx(expected, rel=0.04)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 9)


def test_pairs_are_resampled_together() -> None:
    units = mask_pairs(paired(20, 6), np.ones(6))
    weights = resampling_weights(units, np.random.default_rng(0), 50)
    for unit in range(units.n_units):
        rows = np.flatnonzero(units.unit == unit)
        assert (weights[:, rows] == weights[:, rows[:1]]).all()


def test_bootstrap_agrees_with_brute_force() -> None:
    """Against resampling pairs of rows by hand: 800 resamples each, 1 / sqrt(1,600) = 2.5 % each."""
    masks = paired(200, 8)
    design = np.column_stack([np.ones(len(masks)), masks])
    answers = np.random.default_rng(7).normal(size=len(masks)) * (1 + masks[:, 0])
    units = mask_pairs(masks, np.ones(8))

    def refit(times: FloatArray) -> FloatArray:
        return np.asarray(sm.WLS(answers, design, weights=times).fit().params)[None]

    draws = bootstrap(refit, units, np.random.default_rng(8), n_resamples=800)[:, 0]
    members = [np.flatnonzero(units.unit == u) for u in range(units.n_units)]
    rng, brute = np.random.default_rng(9), []
    for _ in range(800):
        rows = np.concatenate([members[u] for u in rng.integers(0, len(members), len(members))])
        brute.append(np.linalg.lstsq(design[rows], answers[rows])[0])
    np.testing.assert_allclose(draws.std(axis=0), np.std(brute, axis=0), rtol=0.12)


def test_one_step_bootstrap_spreads_as_hc2() -> None:
    """4,000 resamples: 1.1 % of a standard error, three of them."""
    design, answers, weights = sample(n_rows=400, n_units=14)
    fit, units = linearise(design, weights), mask_pairs(design[:, 1:], np.ones(14))
    single = np.bincount(units.unit)[units.unit] == 1
    fit, units = linearise(design[single], weights[single]), mask_pairs(design[single, 1:], np.ones(14))
    e = answers[single]
    draws = one_step_bootstrap(fit, e, units, np.random.default_rng(10), n_resamples=4000)
    found = bootstrap_covariance(draws, fit, 300.0).std_errors(np.eye(15))
    centred = fit.influence * (np.sqrt(fit.weights) * e / np.sqrt(1 - fit.leverage))[:, None]
    expected = np.sqrt(np.square(centred - centred.mean(axis=0)).sum(axis=0))
    np.testing.assert_allclose(found, expected, rtol=0.04)


# --- intervals


def test_intervals_of_infinite_zero_and_missing_errors() -> None:
    estimate = Estimate(
        np.array([[1.0, 1.0, 1.0]]), np.array([[np.inf, 0.0, np.nan]]), np.array([np.inf])
    )
    low, high = estimate.interval(0.95)
    np.testing.assert_array_equal(low, [[-np.inf, 1.0, np.nan]])
    np.testing.assert_array_equal(high, [[np.inf, 1.0, np.nan]])
    np.testing.assert_array_equal(estimate.p_values(), [[1.0, 0.0, np.nan]])


def test_intervals_use_t_where_degrees_are_finite() -> None:
    estimate = Estimate(np.zeros((3, 1)), np.ones((3, 1)), np.array([3.0, np.inf, -1.0]))
    _, high = estimate.interval(0.9)
    np.testing.assert_allclose(high[:, 0], [stats.t(3).ppf(0.95), *[stats.norm.ppf(0.95)] * 2])


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, 95.0])
def test_levels_are_between_0_and_1(level: float) -> None:
    with pytest.raises(InputError, match="expected a number between 0 and 1"):
        Estimate(np.zeros((1, 1)), np.ones((1, 1)), np.ones(1)).interval(level)


# --- SLALOM: derivatives, gauge, reference


def slalom(n_units: int = 5, *, background: bool = True, seed: int = 0) -> SlalomParameters:
    rng = np.random.default_rng(seed)
    importance = rng.normal(size=n_units)
    return SlalomParameters(
        2 * rng.normal(size=n_units),
        importance - importance.mean(),
        0.4,
        0.7 if background else -np.inf,
    )


def as_vector(at: SlalomParameters) -> FloatArray:
    return np.concatenate(at.columns)


def from_vector(theta: FloatArray, *, background: bool) -> SlalomParameters:
    value, importance = np.split(theta, 2)
    if background:
        return SlalomParameters(value[1:], importance[1:], float(value[0]), float(importance[0]))
    return SlalomParameters(value, importance, 0.4, -np.inf)


def attributions(at: SlalomParameters, kind: SlalomKind, full: FloatArray) -> FloatArray:
    found: FloatArray
    if kind == "removal":
        rows = np.vstack([full, full - np.eye(len(full))])
        predicted, _ = slalom_jacobian(at, rows)
        found = predicted[0] - predicted[1:]
        return found
    if kind == "shapley":
        owner = np.repeat(np.arange(at.n_units), full.astype(int))
        phi = slalom_shapley(
            at.value[owner], at.importance[owner], at.background_value, at.background_importance
        )
        found = phi[np.cumsum(full).astype(int) - 1]
        return found
    linear = at.value * np.exp(at.importance)
    return {"value": at.value, "importance": at.importance, "linear": linear}[kind]


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("full", [np.ones(5), np.array([1.0, 2.0, 1.0, 3.0, 1.0])])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_by_central_differences(kind: SlalomKind, full: FloatArray, background: bool) -> None:
    """Steps of 1e-5: truncation 1e-10 times a third derivative, rounding 1e-16 / 1e-5."""
    at = slalom(background=background)
    theta = as_vector(at)
    expected = np.empty((5, len(theta)))
    for column in range(len(theta)):
        step = np.zeros(len(theta))
        step[column] = 1e-5
        up, down = (from_vector(theta + sign * step, background=background) for sign in (1, -1))
        expected[:, column] = (attributions(up, kind, full) - attributions(down, kind, full)) / 2e-5
    np.testing.assert_allclose(slalom_gradients(at, kind, full), expected, atol=1e-7)


@pytest.mark.parametrize("background", [True, False])
def test_jacobian_by_central_differences(background: bool) -> None:
    at = slalom(background=background)
    masks = np.random.default_rng(1).integers(0, 3, (20, 5)).astype(float)
    masks[0] = 0.0
    theta = as_vector(at)
    predicted, jacobian = slalom_jacobian(at, masks)
    assert predicted[0] == 0.4
    for column in range(len(theta)):
        step = np.zeros(len(theta))
        step[column] = 1e-5
        up, _ = slalom_jacobian(from_vector(theta + step, background=background), masks)
        down, _ = slalom_jacobian(from_vector(theta - step, background=background), masks)
        np.testing.assert_allclose(jacobian[:, column], (up - down) / 2e-5, atol=1e-7)


def test_classical_slalom_errors_are_scipys() -> None:
    """curve_fit on the same least squares, the gauge removed by hand: s_n = -(the others)."""
    n_units, at = 5, slalom()
    rng = np.random.default_rng(11)
    masks = (rng.random((300, n_units)) < 0.5).astype(float)
    clean, _ = slalom_jacobian(at, masks)
    scores = clean + 0.02 * rng.normal(size=300)

    def unpacked(free: FloatArray) -> FloatArray:
        return np.append(free, -free[n_units + 2 :].sum())

    def predict(_: FloatArray, *free: float) -> FloatArray:
        return slalom_jacobian(from_vector(unpacked(np.array(free)), background=True), masks)[0]

    def derivatives(_: FloatArray, *free: float) -> FloatArray:
        _, whole = slalom_jacobian(from_vector(unpacked(np.array(free)), background=True), masks)
        reduced = whole[:, :-1].copy()
        reduced[:, n_units + 2 :] -= whole[:, -1:]
        return reduced

    free, reference = curve_fit(
        predict, masks, scores, p0=as_vector(at)[:-1], jac=derivatives, xtol=1e-14, ftol=1e-14
    )
    solution = from_vector(unpacked(free), background=True)
    predicted, jacobian = slalom_jacobian(solution, masks)
    gauge = np.zeros((1, 12))
    gauge[0, 7:] = 1.0
    found = covariance(linearise(jacobian, np.ones(300), gauge=gauge), scores - predicted, "classical")
    errors = found.std_errors(np.eye(12))
    np.testing.assert_allclose(errors[:-1], np.sqrt(np.diag(reference)), rtol=1e-6)
    last = np.append(np.zeros(7), -np.ones(4))
    assert errors[-1] == pytest.approx(np.sqrt(last @ reference @ last), rel=1e-6)


@given(st.floats(-5, 5))
@settings(max_examples=20, deadline=None)
def test_a_shift_of_all_importances_changes_no_error(shift: float) -> None:
    at, rng = slalom(), np.random.default_rng(12)
    moved = SlalomParameters(at.value, at.importance + shift, 0.4, 0.7 + shift)
    masks, e = (rng.random((100, 5)) < 0.5).astype(float), rng.normal(size=100)
    gauge = np.zeros((1, 12))
    gauge[0, 7:] = 1.0
    for kind in KINDS:
        errors = [
            covariance(
                linearise(slalom_jacobian(where, masks)[1], np.ones(100), gauge=gauge), e, "HC3"
            ).std_errors(slalom_gradients(where, kind, np.ones(5)))
            for where in (at, moved)
        ]
        scale = np.exp(shift) if kind == "linear" else 1.0  # v exp(s) is in the units of the gauge
        np.testing.assert_allclose(errors[0] * scale, errors[1], rtol=1e-6)
