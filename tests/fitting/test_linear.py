"""Linear fits: against scikit-learn, dense algebra and brute force; degenerate designs; properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, Ridge

from piste._errors import InputError
from piste._typing import FloatArray, IntArray
from piste.fitting import _linear_kernels as kernels
from piste.fitting.linear import (
    forward_selection,
    solve_constrained,
    solve_ridge,
    weighted_deviations,
)
from piste.fitting.result import Status

# Numbers here are about 1 and condition numbers of Gram matrices below 1e4, so that solving costs at
# most 1e4 * 1e-16 * (a few); 1e-10 leaves two digits.
TIGHT = 1e-10


def sample(
    n_rows: int, n_features: int, n_outputs: int = 2, seed: int = 0
) -> tuple[FloatArray, FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    X = (rng.random((n_rows, n_features)) < rng.random((n_rows, 1))).astype(float)
    return X, rng.normal(size=(n_rows, n_outputs)), rng.random(n_rows)


def greedy_by_refitting(X: FloatArray, y: FloatArray, weights: FloatArray, n_chosen: int) -> list[int]:
    chosen: list[int] = []
    for _ in range(n_chosen):
        r2 = {
            j: LinearRegression()
            .fit(X[:, [*chosen, j]], y, weights)
            .score(X[:, [*chosen, j]], y, weights)
            for j in range(X.shape[1])
            if j not in chosen
        }
        chosen.append(max(r2, key=lambda j: r2[j]))
    return chosen


# --- ridge


@pytest.mark.parametrize("alpha", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_ridge_agrees_with_sklearn(alpha: float, intercept: bool) -> None:
    X, Y, weights = sample(200, 12)
    fit = solve_ridge(X, Y, weights, alpha=alpha, intercept=intercept)
    reference = Ridge(alpha=alpha, fit_intercept=intercept, solver="svd").fit(X, Y, weights)
    np.testing.assert_allclose(fit.coef, reference.coef_, atol=TIGHT)
    np.testing.assert_allclose(fit.intercept, reference.intercept_ * np.ones(2), atol=TIGHT)
    assert (fit.rank, fit.status) == (12, Status.OK)
    assert fit.identified.all()


@pytest.mark.parametrize("n_features", [1, 2, 20, 60, 150])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_exactly_linear_data_are_recovered_to_rounding(n_features: int, offset: float) -> None:
    X, _, weights = sample(5000, n_features)
    coef = np.random.default_rng(1).normal(size=(3, n_features))
    fit = solve_ridge(X, X @ coef.T + offset, weights)
    # The data themselves carry a rounding error of 1e-16 * offset.
    np.testing.assert_allclose(fit.coef, coef, atol=1e-12 + 1e-14 * offset)
    np.testing.assert_allclose(fit.intercept, offset, atol=1e-12 + 1e-14 * offset)


def test_columns_far_from_zero_lose_no_more_than_their_own_rounding() -> None:
    X, _, weights = sample(300, 5)
    coef = np.arange(1.0, 6.0)
    fit = solve_ridge(X + 1e6, (X @ coef)[:, None], weights)
    assert fit.status is Status.OK
    np.testing.assert_allclose(fit.coef[0], coef, atol=1e-8)  # 1e6 * 1e-16, times condition 1e2


@pytest.mark.parametrize("apart", [1e-5, 1e-7, 1e-9, 1e-11])
def test_nearly_collinear_columns_are_told_apart(apart: float) -> None:
    # Two columns whose difference is squared in the Gram matrix, which cannot see less than 1e-8.
    X, _, weights = sample(300, 5)
    noise = np.random.default_rng(1).normal(size=300)
    X = np.column_stack([X, X[:, 0] + apart * noise])
    coef = np.array([1.0, 2.0, 3.0, 4.0, 5.0, -1.0])
    fit = solve_ridge(X, (X @ coef)[:, None], weights)
    assert fit.status is Status.OK
    # The difference of the two is known to 1e-16 / apart, times the norms of rows and weights.
    np.testing.assert_allclose(fit.coef[0], coef, atol=1e-12 + 1e-14 / apart)
    np.testing.assert_allclose(X @ fit.coef[0] + fit.intercept, X @ coef, atol=1e-10)


@pytest.mark.parametrize("shape", [(5, 12), (12, 12), (1, 3), (2, 2)])
def test_too_few_rows_give_the_smallest_solution(shape: tuple[int, int]) -> None:
    X, Y, weights = sample(*shape)
    fit = solve_ridge(X, Y, weights)
    roots = np.sqrt(weights)[:, None]
    A, B = (roots * (array - np.average(array, axis=0, weights=weights)) for array in (X, Y))
    smallest, _, rank, _ = np.linalg.lstsq(A, B, rcond=1e-12)
    np.testing.assert_allclose(fit.coef, smallest.T, atol=1e-9)
    assert fit.rank == rank < shape[1]
    assert fit.status is Status.UNDERDETERMINED


def test_equal_and_constant_columns() -> None:
    X, _, weights = sample(100, 4)
    X = np.column_stack([X, X[:, 0], np.ones(100), np.zeros(100)])
    fit = solve_ridge(X, (X[:, :4] @ [2.0, 1.0, -1.0, 0.5])[:, None] + 3.0, weights)
    np.testing.assert_allclose(fit.coef[0], [1.0, 1.0, -1.0, 0.5, 1.0, 0.0, 0.0], atol=TIGHT)
    np.testing.assert_array_equal(fit.coef[0, 5:], 0.0)
    np.testing.assert_array_equal(fit.identified, [False, True, True, True, False, False, False])
    assert (fit.rank, fit.status) == (4, Status.UNDERDETERMINED)


def test_constant_response_is_exactly_its_own_intercept() -> None:
    X, _, weights = sample(37, 5)
    fit = solve_ridge(X, np.full((37, 1), 0.7), weights)
    np.testing.assert_array_equal(fit.coef, 0.0)
    assert fit.intercept[0] == 0.7


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_one_positive_weight(alpha: float) -> None:
    X, Y, _ = sample(20, 5)
    weights = np.zeros(20)
    weights[7] = 0.3
    fit = solve_ridge(X, Y, weights, alpha=alpha)
    np.testing.assert_array_equal(fit.coef, 0.0)
    np.testing.assert_array_equal(fit.intercept, Y[7])
    assert (fit.rank, fit.status) == (0, Status.UNDERDETERMINED)


@pytest.mark.parametrize("weight", [0.0, 1e-310])
def test_no_positive_weight(weight: float) -> None:
    X, Y, _ = sample(20, 5)
    with pytest.raises(InputError, match="weights that are all zero; expected a positive one"):
        solve_ridge(X, Y, np.full(20, weight))


def test_bread_is_the_inverse_that_covariances_need() -> None:
    X, Y, weights = sample(100, 4)
    design = np.column_stack([np.ones(100), X])
    inverse = np.linalg.inv(design.T @ (weights[:, None] * design))
    np.testing.assert_allclose(solve_ridge(X, Y, weights).bread, inverse[1:, 1:], atol=TIGHT)
    gram = X.T @ (weights[:, None] * X) + 2.0 * np.eye(4)
    ridge = solve_ridge(X, Y, weights, alpha=2.0, intercept=False)
    np.testing.assert_allclose(ridge.bread, np.linalg.inv(gram), atol=TIGHT)


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 6), st.sampled_from([0.0, 1.0]))
@settings(max_examples=60, deadline=None)
def test_whole_weights_equal_repeated_rows(
    seed: int, n_rows: int, n_features: int, alpha: float
) -> None:
    X, Y, _ = sample(n_rows, n_features, seed=seed)
    times = np.random.default_rng(seed).integers(0, 4, n_rows)
    times[0] += 1
    once = solve_ridge(X, Y, times.astype(float), alpha=alpha)
    often = solve_ridge(X.repeat(times, 0), Y.repeat(times, 0), np.ones(times.sum()), alpha=alpha)
    # Gram matrices of up to 6 columns of 0/1 entries: condition below 1e3.
    np.testing.assert_allclose(once.coef, often.coef, atol=TIGHT)
    assert (once.rank, once.status) == (often.rank, often.status)
    np.testing.assert_array_equal(once.identified, often.identified)


# --- fixed total


def by_lagrange(X: FloatArray, Y: FloatArray, weights: FloatArray, total: FloatArray) -> FloatArray:
    n = X.shape[1]
    left = np.block(
        [[X.T @ (weights[:, None] * X), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]]
    )
    right = np.vstack([X.T @ (weights[:, None] * Y), total])
    solution: FloatArray = np.linalg.solve(left, right)[:n].T
    return solution


@pytest.mark.parametrize("n_features", [2, 3, 20, 60])
def test_fixed_total_solves_the_lagrange_equations(n_features: int) -> None:
    X, Y, weights = sample(400, n_features)
    total = np.array([2.0, -1.0])
    fit = solve_constrained(X, Y, weights, total=total)
    np.testing.assert_allclose(fit.coef, by_lagrange(X, Y, weights, total), atol=TIGHT)
    np.testing.assert_allclose(fit.coef.sum(axis=1), total, atol=1e-13)
    assert (fit.rank, fit.status) == (n_features - 1, Status.OK)
    assert fit.identified.all()


def test_fixed_total_with_too_few_rows_is_nearest_to_equal_shares() -> None:
    X, Y, weights = sample(4, 9)
    total = np.array([2.0, -1.0])
    fit = solve_constrained(X, Y, weights, total=total)
    # Leverage SHAP's formula: the pseudo-inverse of the projected design, plus equal shares.
    roots = np.sqrt(weights)[:, None]
    projected = roots * (X - X.mean(axis=1, keepdims=True))
    target = roots * (Y - np.outer(X.sum(axis=1), total / 9))
    expected = (np.linalg.pinv(projected, rcond=1e-12) @ target + total / 9).T
    np.testing.assert_allclose(fit.coef, expected, atol=TIGHT)
    assert (fit.rank, fit.status) == (4, Status.UNDERDETERMINED)


def test_fixed_total_names_the_columns_that_stay_open() -> None:
    # Units 0 and 1 always go together: their sum is known, the two are not.
    X = np.array([[1.0, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 0], [1, 1, 0, 1]])
    coef = np.array([0.2, 0.4, 1.0, -1.0])
    fit = solve_constrained(X, (X @ coef)[:, None], np.ones(4), total=np.array([coef.sum()]))
    np.testing.assert_allclose(fit.coef[0], [0.3, 0.3, 1.0, -1.0], atol=TIGHT)
    np.testing.assert_array_equal(fit.identified, [False, False, True, True])
    assert (fit.rank, fit.status) == (2, Status.UNDERDETERMINED)


@pytest.mark.parametrize("weight", [0.0, 1e-310])
@pytest.mark.parametrize("n_rows", [0, 3])
def test_fixed_total_without_information_is_equal_shares(n_rows: int, weight: float) -> None:
    X, Y, _ = sample(n_rows, 4)
    fit = solve_constrained(X, Y, np.full(n_rows, weight), total=np.array([1.0, 2.0]))
    np.testing.assert_allclose(fit.coef, np.outer([1.0, 2.0], np.full(4, 0.25)), atol=1e-15)
    assert (fit.rank, fit.status) == (0, Status.UNDERDETERMINED)
    assert not fit.identified.any()


def test_fixed_total_of_one_column_leaves_nothing_open() -> None:
    fit = solve_constrained(np.ones((0, 1)), np.ones((0, 1)), np.ones(0), total=np.array([0.7]))
    assert fit.coef[0, 0] == 0.7
    assert (fit.rank, fit.status) == (0, Status.OK)
    assert fit.identified.all()


def test_fixed_total_bread_is_the_inverse_on_vectors_that_sum_to_zero() -> None:
    X, Y, weights = sample(100, 5)
    fit = solve_constrained(X, Y, weights, total=np.zeros(2))
    projection = np.eye(5) - 0.2
    gram = projection @ X.T @ (weights[:, None] * X) @ projection
    np.testing.assert_allclose(fit.bread, np.linalg.pinv(gram, rcond=1e-12), atol=TIGHT)


@given(st.integers(0, 2**32 - 1), st.integers(0, 30), st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_fixed_total_holds_for_any_design(seed: int, n_rows: int, n_features: int) -> None:
    X, Y, weights = sample(n_rows, n_features, seed=seed)
    total = 100.0 * np.random.default_rng(seed).normal(size=2)
    fit = solve_constrained(X, Y, weights**20, total=total)
    assert np.isfinite(fit.coef).all()
    # Badly conditioned designs have large coefficients: the sum is exact to their rounding.
    scale = max(1.0, np.abs(fit.coef).max())
    np.testing.assert_allclose(fit.coef.sum(axis=1), total, atol=1e-14 * n_features * scale)


# --- forward selection


@pytest.mark.parametrize("seed", range(5))
def test_forward_selection_equals_refitting_every_candidate(seed: int) -> None:
    X, Y, weights = sample(60, 8, seed=seed)
    order = forward_selection(X, Y[:, 0], weights, 5)
    assert order.tolist() == greedy_by_refitting(X, Y[:, 0], weights, 5)


def test_forward_selection_takes_one_of_two_equal_columns_and_lower_indices_first() -> None:
    X, _, weights = sample(60, 3)
    X = np.column_stack([X[:, 0], X[:, 0], X[:, 1], np.ones(60)])
    y = X @ [3.0, 0.0, 1.0, 0.0]
    assert forward_selection(X, y, weights, 9).tolist() == [0, 2, 1, 3]
    assert forward_selection(X, np.ones(60), weights, 2).tolist() == [0, 1]


# --- kernels


def greedy_twin(gram: FloatArray, cross: FloatArray, n_chosen: int, floor: float) -> IntArray:
    gram, cross = gram.copy(), cross.copy()
    smallest = floor * np.diag(gram)
    chosen: list[int] = []
    for _ in range(n_chosen):
        left = np.diag(gram) > smallest
        gain = np.where(left, np.square(cross) / np.where(left, np.diag(gram), 1.0), 0.0)
        gain[chosen] = -1.0
        best = int(gain.argmax())
        chosen.append(best)
        if left[best]:
            column = gram[:, best] / gram[best, best]
            cross, gram = cross - column * cross[best], gram - np.outer(column, gram[best])
    return np.array(chosen, dtype=np.int64)


def test_kernels_agree_with_their_numpy_twins() -> None:
    kernels.warm_up()
    X, Y, weights = sample(80, 10)
    centre = X.mean(axis=0)
    np.testing.assert_array_equal(
        kernels.scaled_rows(X, centre, weights), weights[:, None] * (X - centre)
    )
    A = weighted_deviations(np.column_stack([X, X[:, 0]]), weights)
    gram, cross = A.T @ A, A.T @ Y[:, 0]
    np.testing.assert_array_equal(
        kernels.greedy_columns(gram, cross, 11, 1e-10), greedy_twin(gram, cross, 11, 1e-10)
    )
