"""SLALOM fits on arrays: oracles, descent, starts, priors, weights, noise."""

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from piste._typing import FloatArray
from piste.fitting._rows import MaskRows, merge_repeats
from piste.fitting._slalom_evidence import determined, noise
from piste.fitting._slalom_search import NO_PRIOR
from piste.fitting._slalom_solver import (
    Prior,
    Problem,
    SlalomFit,
    evaluate,
    held_out_error,
    polish,
    solve,
    within_bounds,
)
from piste.fitting._slalom_starts import even_importances, rational_importance
from piste.fitting.result import Status
from piste.fitting.slalom import (
    PriorChoice,
    SlalomOptions,
    Slaloms,
    fit_slaloms,
    min_queries,
)
from piste.sampling.designs import draw, with_anchors

NO_BACKGROUND = -np.inf


def oracle(
    masks: FloatArray, spread: float = 1.0, background: float = NO_BACKGROUND, seed: int = 0
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Scores of a SLALOM, its values and its importances, background (value 0.3) in front if finite."""
    rng = np.random.default_rng(seed)
    n_units = masks.shape[1]
    value, importance = rng.normal(size=(2, n_units)) * [[1.0], [spread]]
    importance -= importance.mean()
    weight, w_0 = np.exp(importance), np.exp(background)
    total = masks @ weight + w_0
    scores = (masks @ (weight * value) + 0.3 * w_0) / np.where(total > 0, total, 1.0)
    return scores, value, importance


def design(name: str, n_units: int, n_masks: int = 5000, seed: int = 0) -> FloatArray:
    """Masks of a law as floats; ``pairs`` draws pairs with replacement; ``+`` adds full and empty."""
    law, rng = name.removesuffix("+"), np.random.default_rng(seed)
    if law == "pairs":
        chosen = rng.random((n_masks, n_units)).argsort(axis=1)[:, :2]
        masks = np.zeros((n_masks, n_units), dtype=np.bool_)
        np.put_along_axis(masks, chosen, True, axis=1)
        anchors = np.repeat([[True], [False]], n_units, axis=1)
        return np.vstack([anchors, masks] if name.endswith("+") else [masks]).astype(float)
    if law in ("identify", "identify-bg"):
        background = law == "identify-bg"
        n_masks = 2 * n_units + (1 if background else -1)
        drawn = draw("identify", n_units, n_masks, rng, background=background)
    else:
        drawn = draw(law, n_units, n_masks, rng)
    return (with_anchors(drawn) if name.endswith("+") else drawn).masks.astype(float)


def fit(
    masks: FloatArray, scores: FloatArray, weights: FloatArray | None = None, **options: object
) -> Slaloms:
    weights = np.ones(len(masks)) if weights is None else weights
    return fit_slaloms(masks, scores.reshape(len(masks), -1), weights, SlalomOptions(**options))  # type: ignore[arg-type]


def make_problem(masks: FloatArray, scores: FloatArray, *, background: bool) -> Problem:
    scaled = (scores - scores.mean()) / scores.std()
    rows = MaskRows.from_masks(masks, masks.max(axis=0), background=background)
    return Problem(rows, scaled[:, None], np.ones(len(masks)), background)


def noisy(name: str = "uniform-size+", n_units: int = 12, level: float = 0.3, seed: int = 0) -> Problem:
    masks = design(name, n_units, 300, seed)
    scores, *_ = oracle(masks, background=1.0, seed=seed)
    scores = scores + level * scores.std() * np.random.default_rng(seed).normal(size=len(scores))
    return make_problem(masks, scores, background=True)


# --- exact oracles


# Rounding of the scores, 1e-16, is magnified by at most the inverse of the smallest attention share
# that identifies a unit: exp(-9) at spread 3.
@pytest.mark.parametrize("n_units", [2, 20, 60, 150])
@pytest.mark.parametrize("spread", [1.0, 3.0])
@pytest.mark.parametrize("background", [True, False])
def test_the_published_model_is_recovered_from_2n_minus_1_queries(
    n_units: int, spread: float, background: bool
) -> None:
    masks = design("identify", n_units)
    scores, value, importance = oracle(masks, spread, seed=n_units)
    found = fit(masks, scores, background=background)
    assert found.status is Status.OK
    assert found.identifiable.all()
    np.testing.assert_allclose(found.value[0, 0], value, atol=1e-6)
    np.testing.assert_allclose(found.importance[0, 0], importance, atol=1e-6)


@pytest.mark.parametrize("n_units", [20, 60, 150])
@pytest.mark.parametrize("spread", [1.0, 3.0])
@pytest.mark.parametrize("background", [True, False])
def test_the_published_model_is_recovered_from_5000_pairs(
    n_units: int, spread: float, background: bool
) -> None:
    masks = design("pairs", n_units)
    scores, value, importance = oracle(masks, spread, seed=n_units)
    found = fit(masks, scores, background=background)
    assert found.status is Status.OK
    assert found.identifiable.all()
    np.testing.assert_allclose(found.value[0, 0], value, atol=1e-9)
    np.testing.assert_allclose(found.importance[0, 0], importance, atol=1e-9)
    assert (found.background_importance == NO_BACKGROUND).all()


@pytest.mark.parametrize(
    ("name", "n_masks", "n_units", "spread"),
    [
        *[("identify-bg+", 0, n, s) for n in (3, 20, 60, 150) for s in (1.0, 3.0)],
        *[("pairs+", 5000, n, s) for n in (20, 60, 150) for s in (1.0, 3.0)],
        *[("uniform-size+", 400, n, s) for n in (20, 60) for s in (1.0, 3.0)],
        ("deletions+", 1500, 150, 1.0),
    ],
)
def test_a_model_with_a_background_is_recovered(
    name: str, n_masks: int, n_units: int, spread: float
) -> None:
    masks = design(name, n_units, n_masks)
    scores, value, importance = oracle(masks, spread, background=0.5, seed=n_units)
    found = fit(masks, scores)
    assert found.status is Status.OK
    assert found.identifiable.all()
    np.testing.assert_allclose(found.value[0, 0], value, atol=1e-8)
    np.testing.assert_allclose(found.importance[0, 0], importance, atol=1e-8)
    np.testing.assert_allclose(found.background_value, 0.3, atol=1e-8)
    np.testing.assert_allclose(found.background_importance, 0.5, atol=1e-8)
    assert found.noise[0] < 1e-20


@pytest.mark.parametrize("name", ["identify", "pairs", "uniform-size", "deletions"])
def test_the_eigenproblem_alone_is_nearly_exact(name: str) -> None:
    masks = design(name, 15, 300)
    masks = masks[masks.any(axis=1)]
    scores, _, importance = oracle(masks)
    solved = rational_importance(make_problem(masks, scores, background=False))
    np.testing.assert_allclose(solved, importance, atol=1e-5)


def test_the_eigenproblem_is_given_up_where_no_slalom_is_exact() -> None:
    masks = design("uniform-size", 6, 63)
    masks = masks[masks.any(axis=1)]
    scores, _, importance = oracle(masks, seed=1)
    exact = make_problem(masks, scores, background=False)
    np.testing.assert_allclose(rational_importance(exact, only_exact=True), importance, atol=1e-5)
    noise = 0.2 * scores.std() * np.random.default_rng(0).normal(size=len(scores))
    noisy = make_problem(masks, scores + noise, background=False)
    first = rational_importance(noisy, only_exact=True)
    assert np.abs(first - rational_importance(noisy)).max() > 1e-3  # rounds were left out


def test_the_eigenproblem_is_not_biased_by_noise() -> None:
    # 20,000 answers with a tenth of noise: a standard error of about 0.1 / sqrt(20000 / 6) = 0.002 per
    # unit of attention. Plain least squares on the multiplied model is off by 10 times as much.
    masks = design("uniform-size", 6, 63)
    masks = np.tile(masks[masks.any(axis=1)], (320, 1))
    scores, _, importance = oracle(masks, seed=1)
    scores = scores + 0.1 * scores.std() * np.random.default_rng(0).normal(size=len(scores))
    solved = rational_importance(make_problem(masks, scores, background=False))
    np.testing.assert_allclose(solved, importance, atol=0.05)


def test_parts_that_never_meet_are_each_solved() -> None:
    masks: FloatArray = np.kron(np.eye(2), design("exhaustive", 4, 16)).astype(np.float64)
    masks = masks[masks.any(axis=1)]
    scores, value, importance = oracle(masks, seed=2)
    found = fit(masks, scores, background=False)
    np.testing.assert_allclose(found.value[0, 0], value, atol=1e-9)
    for part in (slice(0, 4), slice(4, 8)):
        shift = found.importance[0, 0, part] - importance[part]
        np.testing.assert_allclose(shift, shift.mean(), atol=1e-8)
    assert not found.identifiable.any()  # the parts' scales are not comparable


# Twenty times their noise is what importances of spread 1 may be off; float32 is what models answer in.
@pytest.mark.parametrize(
    ("name", "n_masks"), [("identify-bg+", 0), ("pairs+", 5000), ("uniform-size+", 400)]
)
@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_answers_in_float32_are_recovered_to_their_rounding(
    name: str, n_masks: int, spread: float
) -> None:
    masks = design(name, 30, n_masks)
    scores, value, importance = oracle(masks, spread, background=0.5, seed=30)
    rounded = scores.astype(np.float32).astype(float)
    found = fit(masks, rounded)
    np.testing.assert_allclose(found.predict(masks)[:, 0], scores, atol=1e-6)
    far = {1.0: 1e-5, 3.0: 1e-2}[spread]
    np.testing.assert_allclose(found.importance[0, 0], importance, atol=far)
    np.testing.assert_allclose(found.value[0, 0], value, atol=far)


# --- the search


@pytest.mark.parametrize("n_heads", [1, 2])
def test_every_accepted_step_lowers_the_objective(n_heads: int) -> None:
    problem = noisy()
    start = np.random.default_rng(1).normal(size=(n_heads, problem.rows.n_columns)) * 2
    prior = Prior(1e-2, 1e-1)
    objectives = [evaluate(problem, within_bounds(problem, start), prior).objective]
    objectives += [solve(problem, start, prior, k).state.objective for k in range(1, 15)]
    assert (np.diff(objectives) <= 1e-12 * objectives[0]).all()
    assert objectives[-1] < 0.9 * objectives[0]


def test_a_solved_fit_has_no_slope_and_stays_where_it_is() -> None:
    problem, prior = noisy(), Prior(1e-2, 1e-1)
    found = solve(problem, even_importances(problem)[0][None], prior, 200, tolerance=1e-12)
    assert found.converged
    np.testing.assert_allclose(found.curvature.gradient, 0, atol=1e-4)
    again = solve(problem, found.state, prior, 200)
    assert again.state.objective <= found.state.objective * (1 + 1e-13)  # sums of 300 rows, rounded
    np.testing.assert_allclose(again.state.importance, found.state.importance, atol=1e-4)


def test_too_few_steps_are_reported() -> None:
    masks = design("uniform-size+", 12, 300)
    scores = np.tanh(oracle(masks, spread=2, background=0.0)[0] * 3) + masks[:, 0] * masks[:, 1]
    assert fit(masks, scores, max_iter=1).status is Status.NOT_CONVERGED
    assert fit(masks, scores, max_iter=300).status is Status.OK


def test_the_background_stays_within_bounds() -> None:
    problem = noisy()
    importance = np.zeros((1, problem.rows.n_columns))
    importance[0, 0] = 100.0
    bounded = within_bounds(problem, importance)[0]
    share = 1 / (1 + np.exp(bounded[1:] - bounded[0]).sum())
    assert share == pytest.approx(0.99)


def test_polishing_leaves_a_curved_valley() -> None:
    masks = design("pairs+", 60)
    scores, *_ = oracle(masks, spread=3.0, background=0.5, seed=60)
    merged = merge_repeats(masks, scores[:, None], np.ones(len(masks)))
    problem = make_problem(merged.masks, merged.scores[:, 0], background=True)
    solved = within_bounds(problem, rational_importance(problem)[None])
    polished = polish(problem, evaluate(problem, solved, NO_PRIOR), NO_PRIOR)
    assert polished.state.error <= 1e-28 * problem.total


# --- priors and noise


def grid_errors(problem: Problem, held: Problem) -> list[float]:
    start = np.zeros((1, problem.rows.n_columns))
    return [
        held_out_error(held, solve(problem, start, Prior(v, s), 100, 1e-4).state)
        for v in (1e-4, 1e-2, 1e-1)
        for s in (1e-3, 1e-1, 1.0, 10.0)
    ]


# Few answers per parameter and strong noise, so that the best strengths differ and matter.
@pytest.mark.parametrize("prior", ["evidence", "cv"])
def test_a_chosen_prior_is_as_good_as_the_best_of_a_grid(prior: Literal["evidence", "cv"]) -> None:
    ratios = []
    for seed in range(4):
        level, n_units = [0.1, 0.3, 0.6, 1.0][seed], 20
        masks, test = design("uniform-size+", n_units, 120, seed), design("bernoulli", n_units, 400, 9)
        truth, *_ = oracle(masks, background=2.0, seed=seed)
        scores = truth + level * truth.std() * np.random.default_rng(seed).normal(size=len(truth))
        held, *_ = oracle(test, background=2.0, seed=seed)
        predicted = fit(masks, scores, prior=prior).predict(test)[:, 0]
        rows = MaskRows.from_masks(test, test.max(axis=0), background=True)
        scaled = ((held - scores.mean()) / scores.std())[:, None]
        best = min(
            grid_errors(
                make_problem(masks, scores, background=True),
                Problem(rows, scaled, np.ones(len(test)), True),
            )
        )
        ratios.append(((predicted - held) ** 2).sum() / (best * scores.var()))
    # The grid's best is chosen by the truth that it is measured on, which flatters it.
    assert np.exp(np.mean(np.log(ratios))) < {"evidence": 1.15, "cv": 1.25}[prior]
    assert max(ratios) < 1.5


def test_noise_is_estimated_without_the_parameters_bias() -> None:
    # 2,000 answers: the estimate has a relative standard error of sqrt(2 / 2000) = 3 %.
    masks = design("uniform-size+", 25, 2000)
    scores, *_ = oracle(masks, background=2.0)
    noise_variance = 0.2 * scores.var()
    scores = scores + np.sqrt(noise_variance) * np.random.default_rng(0).normal(size=len(scores))
    assert fit(masks, scores).noise[0] == pytest.approx(noise_variance, rel=0.1)


def test_parameters_are_counted() -> None:
    problem = noisy(level=0.01)
    start = even_importances(problem)[0][None]
    loose = solve(problem, start, Prior(1e-9, 1e-9), 100)
    values, units, backgrounds = determined(problem, loose)
    assert values == pytest.approx(13, abs=1e-2)
    assert units == pytest.approx(11, abs=1e-2)
    assert backgrounds == pytest.approx(1, abs=1e-2)
    assert noise(problem, loose) == pytest.approx(
        loose.state.error / (problem.n_answers - 25), rel=1e-3
    )
    tight = solve(problem, start, Prior(1e9, 1e9), 100)
    assert sum(determined(problem, tight)) < 0.1


def test_noise_of_repeated_answers_is_not_explained_away() -> None:
    masks = np.repeat(design("identify-bg+", 4), 50, axis=0)
    scores, *_ = oracle(masks, background=0.0)
    scores = scores + 0.1 * np.random.default_rng(0).normal(size=len(scores))
    assert fit(masks, scores).noise[0] == pytest.approx(0.01, rel=0.2)


# --- weights


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1000), st.sampled_from(["evidence", "cv", (0.01, 0.1)]))
def test_weights_are_repeated_rows_and_zero_weights_no_rows(seed: int, prior: PriorChoice) -> None:
    rng = np.random.default_rng(seed)
    masks = design("uniform-size+", 6, 50, seed)
    scores = oracle(masks, background=0.0, seed=seed)[0] + 0.1 * rng.normal(size=len(masks))
    times = rng.integers(1, 4, len(masks))
    weighted = fit(masks, scores, times.astype(float), prior=prior)
    repeated = fit(np.repeat(masks, times, axis=0), np.repeat(scores, times), prior=prior)
    # The same sums in another order, and a search that stops at 1e-7 of the objective.
    for name in ("value", "importance", "background_value", "background_importance", "noise"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(repeated, name), atol=1e-5)


# --- statuses and counts of parameters


@pytest.mark.parametrize(
    ("background", "heads", "expected"), [(True, 1, 21), (False, 1, 19), (True, 2, 42)]
)
def test_min_queries(background: bool, heads: int, expected: int) -> None:
    assert min_queries(10, background=background, heads=heads) == expected


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("n_masks", [1, 2, 5, 15])
def test_too_few_answers_are_reported_and_finite(background: bool, n_masks: int) -> None:
    masks = design("uniform-size", 12, n_masks, seed=1)
    masks[0] = 1.0
    scores, *_ = oracle(masks, background=0.0)
    found = fit(masks, scores, background=background)
    expected = Status.NO_VARIATION if n_masks == 1 else Status.UNDERDETERMINED
    assert found.status is expected
    assert np.isfinite(found.value).all()
    assert np.isfinite(found.predict(np.vstack([masks, np.zeros(12)]))).all()


def test_repeating_answers_does_not_determine_more() -> None:
    masks = design("identify", 8)[:-2]
    scores, *_ = oracle(masks)
    found = fit(np.tile(masks, (3, 1)), np.tile(scores, 3))
    assert found.status is Status.UNDERDETERMINED


def test_pairs_alone_cannot_tell_a_noisy_background() -> None:
    # (v_0, v_i) -> (v_0 + c, v_i - c w_0 / (2 w_i)) changes no pair's score.
    masks = design("pairs", 10, 2000)
    scores, *_ = oracle(masks, background=0.5)
    scores = scores + 0.1 * np.random.default_rng(0).normal(size=len(scores))
    assert fit(masks, scores).status is Status.UNDERDETERMINED
    assert fit(masks, scores, background=False).status is Status.OK


def test_a_unit_that_never_varies_is_reported() -> None:
    masks = design("uniform-size+", 6, 50)
    masks[:, 2] = 1.0
    scores, *_ = oracle(masks, background=0.0)
    found = fit(masks, scores)
    assert found.status is Status.OK  # the published model, unit 2 standing in for the background
    noisy_scores = scores + 1e-3 * np.random.default_rng(0).normal(size=len(scores))
    found = fit(masks, noisy_scores)
    assert found.status is Status.UNDERDETERMINED  # its value cannot be told from the background's
    np.testing.assert_allclose(found.predict(masks)[:, 0], scores, atol=1e-2)


def test_an_importance_without_effect_is_reported() -> None:
    # Unit 0 is only ever asked alone: its value is known, its importance is not.
    masks = np.vstack([np.eye(5), np.hstack([np.zeros((15, 1)), design("exhaustive", 4, 16)[1:]])])
    scores, value, importance = oracle(masks, seed=4)
    found = fit(masks, scores, background=False)
    assert found.identifiable[0].tolist() == [False, False, False, False, False]
    np.testing.assert_allclose(found.value[0, 0], value, atol=1e-9)
    found_rest = found.importance[0, 0, 1:] - found.importance[0, 0, 1:].mean()
    np.testing.assert_allclose(found_rest, importance[1:] - importance[1:].mean(), atol=1e-8)


def test_a_fit_record_says_how_it_ended() -> None:
    found = solve(noisy(), np.zeros((1, 13)), Prior(1e-2, 1e-1), 1)
    assert isinstance(found, SlalomFit)
    assert (found.n_iter, found.converged) == (1, False)
