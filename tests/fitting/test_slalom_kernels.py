"""SLALOM kernels and Gauss-Newton matrices against dense numpy, derivatives by finite differences."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from piste._typing import FloatArray
from piste.fitting._cholesky import factorise
from piste.fitting._rows import MaskRows, merge_repeats
from piste.fitting._slalom_solver import (
    Prior,
    Problem,
    centring,
    curve,
    evaluate,
    importance_ridge,
    pinned,
)

# Sums of a few hundred numbers of about 1 lose two or three digits of float64's sixteen.
TIGHT = 1e-12
PRIOR = Prior(value=0.03, importance=0.2)
NO_PRIOR = Prior(value=0.0, importance=0.0)


def masks_of(kind: str, n_units: int = 9, n_rows: int = 120, seed: int = 0) -> FloatArray:
    """Masks that are kept short, nearly whole, in between, or counts; the last row is the full text."""
    rng = np.random.default_rng(seed)
    kept = {"short": 0.15, "deletions": 0.85}.get(kind, 0.5)
    full = rng.integers(1, 5, n_units) if kind == "counts" else np.ones(n_units, dtype=np.int64)
    masks = rng.binomial(full, kept, size=(n_rows, n_units)).astype(float)
    return np.vstack([masks, full])


def dense(masks: FloatArray, background: bool) -> FloatArray:
    return np.column_stack([np.ones(len(masks)), masks]) if background else masks


KINDS = ["short", "deletions", "mixed", "counts"]
both_ways = pytest.mark.parametrize("background", [True, False])
every_kind = pytest.mark.parametrize("kind", KINDS)


# --- rows and kernels


@every_kind
@both_ways
def test_rows_multiply_as_the_dense_matrix_does(kind: str, background: bool) -> None:
    masks = masks_of(kind)
    rows, M = (
        MaskRows.from_masks(masks, masks.max(axis=0), background=background),
        dense(masks, background),
    )
    rng = np.random.default_rng(1)
    right = np.column_stack([rng.random(M.shape[1]) + 0.1, rng.normal(size=(M.shape[1], 2))])
    np.testing.assert_allclose(rows.times(right, 1), M @ right, atol=TIGHT)
    left = rng.normal(size=(len(M), 3))
    np.testing.assert_allclose(rows.transposed_times(left), M.T @ left, atol=1e2 * TIGHT)
    weights = rng.normal(size=(3, len(M)))
    expected = [M.T @ (w[:, None] * M) for w in weights]
    np.testing.assert_allclose(rows.weighted_gram(weights), expected, atol=1e2 * TIGHT)


@every_kind
@both_ways
def test_a_row_lists_the_fewer_of_kept_and_missing(kind: str, background: bool) -> None:
    masks = masks_of(kind)
    rows = MaskRows.from_masks(masks, masks.max(axis=0), background=background)
    missing, kept = (masks.max(axis=0) != masks).sum(axis=1), (masks > 0).sum(axis=1)
    np.testing.assert_array_equal(np.diff(rows.indptr)[rows.lists], np.minimum(missing, kept))
    assert rows.removed[missing < kept].all()
    assert not rows.removed[missing > kept].any()
    assert all(
        (np.diff(rows.listed[a:b]) > 0).all()
        for a, b in zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
    )
    assert (rows.listed >= int(background)).all()


@both_ways
@pytest.mark.parametrize("n_units", [6, 7])
def test_a_mask_and_its_complement_share_a_list(n_units: int, background: bool) -> None:
    masks = np.array(list(product([0.0, 1.0], repeat=n_units)))
    rows = MaskRows.from_masks(masks, np.ones(n_units), background=background)
    assert len(rows.indptr) - 1 == len(masks) // 2
    np.testing.assert_array_equal(rows.lists, rows.lists[::-1])
    np.testing.assert_array_equal(rows.removed, ~rows.removed[::-1])


@pytest.mark.parametrize("n_weights", [1, 2, 4, 5, 8])
def test_any_number_of_weights_has_its_matrices(n_weights: int) -> None:
    masks = masks_of("counts")
    rows = MaskRows.from_masks(masks, masks.max(axis=0), background=True)
    weights = np.random.default_rng(2).normal(size=(n_weights, len(masks)))
    together = rows.weighted_gram(weights)
    alone = np.concatenate([rows.weighted_gram(one[None]) for one in weights])
    np.testing.assert_allclose(together, alone, atol=1e2 * TIGHT)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 10**6), st.booleans())
def test_any_counts_are_stored_without_loss(
    n_units: int, n_rows: int, seed: int, background: bool
) -> None:
    masks = np.random.default_rng(seed).integers(0, 4, (n_rows, n_units)).astype(float)
    rows = MaskRows.from_masks(masks, masks.max(axis=0), background=background)
    np.testing.assert_array_equal(rows.times(np.eye(rows.n_columns), 0), dense(masks, background))


@both_ways
def test_removing_nearly_all_the_weight_loses_no_digits(background: bool) -> None:
    # Unit 0 outweighs the rest by 1e12: as a difference, what is left would keep 4 of 16 digits.
    masks = np.ones((2, 8))
    masks[0, 0] = 0.0
    rows = MaskRows.from_masks(masks, masks.max(axis=0), background=background)
    w = np.ones(rows.n_columns)
    w[int(background)] = 1e12
    value = np.arange(1.0, rows.n_columns + 1)
    found = rows.times(np.column_stack([w, w * value]), 1)
    expected = dense(masks, background)[0] @ np.column_stack([w, w * value])
    assert rows.removed[0]
    np.testing.assert_allclose(found[0], expected, rtol=1e-15)


def test_repeats_are_merged_into_mean_weight_and_scatter() -> None:
    masks = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [300.0, 0.5]])
    scores = np.array([[1.0, 5.0], [2.0, 5.0], [4.0, 8.0], [3.0, 0.0]])
    merged = merge_repeats(masks, scores, np.array([1.0, 1.0, 2.0, 0.5]))
    order = np.lexsort(merged.masks.T)
    assert merged.masks[order].tolist() == [[1, 0], [300, 0.5], [0, 1]]
    np.testing.assert_allclose(merged.scores[order], [[3, 7], [3, 0], [2, 5]])
    np.testing.assert_allclose(merged.weights[order], [3, 0.5, 1])
    np.testing.assert_allclose(merged.scatter[order], [[6, 6], [0, 0], [0, 0]])


def test_merged_rows_do_not_depend_on_the_order_given() -> None:
    masks = masks_of("short", n_units=4)
    scores, order = np.arange(len(masks), dtype=float)[:, None], np.arange(len(masks))[::-1]
    weights = np.ones(len(masks))
    one = merge_repeats(masks, scores, weights)
    other = merge_repeats(masks[order], scores[order], weights)
    assert len(one.masks) <= 16
    np.testing.assert_array_equal(one.masks, other.masks)
    np.testing.assert_allclose(one.scores, other.scores, rtol=TIGHT)


# --- Cholesky factors


@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_factor_solves(ridge: float) -> None:
    A = np.random.default_rng(0).normal(size=(20, 6)) * 10.0 ** np.arange(6)
    matrix, right = A.T @ A, np.random.default_rng(1).normal(size=(6, 2))
    factor = factorise(matrix, ridge)
    ridged = matrix + ridge * np.eye(6)
    np.testing.assert_allclose(ridged @ factor.solve(right), right, atol=1e-9)
    np.testing.assert_allclose(factor.solve(right[:, 0]), factor.solve(right)[:, 0], rtol=TIGHT)
    np.testing.assert_allclose(ridged @ factor.inverse(), np.eye(6), atol=1e-9)
    half = factor.half(right)
    np.testing.assert_allclose(half.T @ half, right.T @ factor.solve(right), rtol=1e-10)


@pytest.mark.parametrize(
    "matrix", [np.zeros((3, 3)), np.ones((3, 3)), np.diag([1.0, 0.0, 2.0]), np.eye(1) * 1e-200]
)
def test_singular_matrices_have_a_factor(matrix: FloatArray) -> None:
    assert np.isfinite(factorise(matrix).inverse()).all()


# --- derivatives


def make_problem(kind: str, background: bool, n_outputs: int, seed: int = 3) -> Problem:
    masks = masks_of(kind, n_units=5, n_rows=40, seed=seed)
    masks = masks[masks.any(axis=1)]
    rng = np.random.default_rng(seed)
    rows = MaskRows.from_masks(masks, masks.max(axis=0), background=background)
    scores = rng.normal(size=(len(masks), n_outputs))
    return Problem(rows, scores, rng.random(len(masks)) + 0.5, background, scatter=0.7)


def some_importance(problem: Problem, n_heads: int) -> FloatArray:
    rng = np.random.default_rng(5)
    importance: FloatArray = rng.normal(size=(n_heads, problem.rows.n_columns))
    return importance


cases = pytest.mark.parametrize(
    ("kind", "background", "n_heads", "n_outputs"),
    [
        ("mixed", True, 1, 1),
        ("deletions", True, 1, 2),
        ("counts", False, 1, 1),
        ("counts", True, 2, 1),
        ("deletions", False, 2, 2),
        ("mixed", True, 3, 1),
    ],
)


def dense_jacobians(
    problem: Problem, importance: FloatArray, value: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Prediction (n,), J_v (n, p) and J_s (n, p) of one output from the formulas as they stand."""
    M = problem.rows.times(np.eye(problem.rows.n_columns), 0)
    weighted = M[:, None, :] * np.exp(importance)
    attention = weighted / weighted.sum(axis=2, keepdims=True)
    partial = (attention * value).sum(axis=2)
    by_importance = attention * (value - partial[:, :, None])
    n_rows = len(M)
    return partial.sum(axis=1), attention.reshape(n_rows, -1), by_importance.reshape(n_rows, -1)


@cases
def test_values_solve_their_normal_equations(
    kind: str, background: bool, n_heads: int, n_outputs: int
) -> None:
    problem = make_problem(kind, background, n_outputs)
    importance = some_importance(problem, n_heads)
    state = evaluate(problem, importance, PRIOR)
    penalty = importance_ridge(problem, importance.shape, PRIOR) @ importance.ravel() ** 2
    error = problem.scatter
    for o in range(n_outputs):
        predicted, J, _ = dense_jacobians(problem, importance, state.value[o])
        residual = problem.scores[:, o] - predicted
        pull = J.T @ (problem.weights * residual) - PRIOR.value * state.value[o].ravel()
        np.testing.assert_allclose(pull, 0, atol=1e-10)
        np.testing.assert_allclose(state.residual[o], residual, atol=TIGHT)
        error += float(problem.weights @ residual**2)
    assert state.error == pytest.approx(error, rel=TIGHT)
    expected = error + penalty + PRIOR.value * (state.value**2).sum()
    assert state.objective == pytest.approx(expected, rel=TIGHT)


@cases
def test_curvature_is_the_dense_one_with_values_projected_out(
    kind: str, background: bool, n_heads: int, n_outputs: int
) -> None:
    problem = make_problem(kind, background, n_outputs)
    importance = some_importance(problem, n_heads)
    state = evaluate(problem, importance, PRIOR)
    curvature = curve(problem, state, PRIOR)
    W = problem.weights[:, None]
    schur = np.diag(importance_ridge(problem, importance.shape, PRIOR))
    for o in range(n_outputs):
        _, J_v, J_s = dense_jacobians(problem, importance, state.value[o])
        cross = J_s.T @ (W * J_v)
        inner = J_v.T @ (W * J_v) + PRIOR.value * np.eye(J_v.shape[1])
        schur += J_s.T @ (W * J_s) - cross @ np.linalg.solve(inner, cross.T)
        np.testing.assert_allclose(curvature.cross[o], cross, atol=1e-10)
    np.testing.assert_allclose(curvature.schur, schur, atol=1e-9)


@cases
def test_gradient_is_that_of_the_objective_with_values_solved(
    kind: str, background: bool, n_heads: int, n_outputs: int
) -> None:
    problem = make_problem(kind, background, n_outputs)
    importance = some_importance(problem, n_heads)
    gradient = curve(problem, evaluate(problem, importance, PRIOR), PRIOR).gradient
    step = 1e-5  # central differences: error about step ** 2, rounding about 1e-15 * 50 / step
    for at in range(importance.size):
        change = np.zeros(importance.size)
        change[at] = step
        up, down = (
            evaluate(problem, importance + sign * change.reshape(importance.shape), PRIOR).objective
            for sign in (1, -1)
        )
        assert -(up - down) / (4 * step) == pytest.approx(gradient[at], abs=1e-7)


def test_values_carried_over_from_other_importances_come_out_the_same() -> None:
    problem = make_problem("counts", True, 2)
    near, far = some_importance(problem, 2), 3 * some_importance(problem, 2)[::-1]
    carried = evaluate(problem, near, PRIOR, evaluate(problem, far, PRIOR).value)
    np.testing.assert_allclose(carried.value, evaluate(problem, near, PRIOR).value, atol=1e-11)


@pytest.mark.parametrize("n_heads", [1, 2])
@both_ways
def test_centring_makes_the_mean_over_units_zero(n_heads: int, background: bool) -> None:
    problem = make_problem("mixed", background, 1)
    importance = some_importance(problem, n_heads)
    centred = (centring(problem, importance.shape) @ importance.ravel()).reshape(importance.shape)
    shift = importance[:, int(background) :].mean(axis=1, keepdims=True)
    np.testing.assert_allclose(centred, importance - shift, atol=TIGHT)


def test_pinning_solves_within_the_gauge_whatever_the_attention() -> None:
    # Weights from exp(-5) to exp(5): what the answers say of a unit goes with the square of its weight,
    # 2e-9 of the largest here, so that rounding, 1e-15 of sums, shows as 1e-6 at most.
    problem = make_problem("mixed", True, 1)
    importance = np.linspace(-5.0, 5.0, 6)[None]
    schur = curve(problem, evaluate(problem, importance, NO_PRIOR), NO_PRIOR).schur
    factor, units = pinned(schur, 1, 0.0)
    change = centring(problem, (1, 6)) @ np.random.default_rng(0).normal(size=6)
    found = centring(problem, (1, 6)) @ (factor.solve(schur @ change / units) / units)
    np.testing.assert_allclose(found, change, atol=1e-5)
