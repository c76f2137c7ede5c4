"""Exact Shapley values: against enumeration, closed forms, limits and the axioms."""

from itertools import permutations
from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config

from piste._errors import InputError
from piste._typing import BoolArray, FloatArray
from piste.fitting import _shapley_kernels, shapley
from piste.fitting.shapley import (
    exact_shapley,
    slalom_shapley,
    slalom_shapley_heads,
    slalom_shapley_jacobian,
)

NONE = -np.inf  # the importance of no background
JIT_DISABLED = getattr(config, "DISABLE_JIT", False)
LONG = [
    pytest.param(n, marks=pytest.mark.skipif(JIT_DISABLED, reason="takes minutes without Numba"))
    for n in (200, 1000)
]


def tolerance(n_units: int) -> float:
    """Of the range of the game: 40 times the n roundings that every product and sum over units has.

    9e-12 at 1,000 units, 1e-13 at 12; the bounds on the quadrature are a few 1e-15.
    """
    return 40 * n_units * float(np.finfo(float).eps)


def all_masks(n_units: int) -> BoolArray:
    masks: BoolArray = (np.arange(2**n_units)[:, None] >> np.arange(n_units)) & 1 == 1
    return masks


def play(
    masks: BoolArray, value: FloatArray, importance: FloatArray, empty: float, anchor: float
) -> FloatArray:
    """F of every mask, real or complex; weights relative to the largest, so that none overflows."""
    reference = max(np.max(np.real(importance)), np.real(anchor))
    weights, background = np.exp(importance - reference), np.exp(anchor - reference)
    total = background + masks @ weights
    answers: FloatArray = empty + masks @ (weights * (value - empty)) / np.where(total == 0, 1, total)
    return answers


def sample(seed: int, n_units: int, spread: float = 2.0) -> tuple[FloatArray, FloatArray, float]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=n_units), spread * rng.uniform(-0.5, 0.5, n_units), rng.normal()


def span(value: FloatArray, empty: float) -> float:
    return float(np.abs(value - empty).max())


# Against enumeration


@pytest.mark.parametrize("anchor", [NONE, -40.0, -12.0, 0.0, 12.0])
@pytest.mark.parametrize("spread", [0.0, 3.0, 25.0, 60.0])
@pytest.mark.parametrize("n_units", [1, 2, 3, 7, 12])
def test_equals_enumeration(n_units: int, spread: float, anchor: float) -> None:
    value, importance, empty = sample(n_units, n_units, spread)
    masks = all_masks(n_units)
    expected = exact_shapley(play(masks, value, importance, empty, anchor), masks)
    got = slalom_shapley(value, importance, empty, anchor)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance(n_units) * span(value, empty))


finite = st.floats(-10, 10, allow_subnormal=False)


@settings(max_examples=30, deadline=None)
@given(
    units=st.lists(st.tuples(finite, finite), min_size=1, max_size=6),
    empty=finite,
    anchor=st.one_of(st.just(NONE), finite),
)
def test_equals_enumeration_of_any_game(
    units: list[tuple[float, float]], empty: float, anchor: float
) -> None:
    value, importance = np.array(units).T
    masks = all_masks(len(units))
    expected = exact_shapley(play(masks, value, importance, empty, anchor), masks)
    got = slalom_shapley(value, importance, empty, anchor)
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance(len(units)) * span(value, empty))


# Closed forms and limits


@pytest.mark.parametrize("n_units", [1, 2, 3, 30, *LONG])
def test_constant_importance_has_a_closed_form(n_units: int) -> None:
    value, _, _ = sample(0, n_units)
    others = (value.sum() - value) / max(n_units - 1, 1)
    harmonic = np.sum(1 / np.arange(1, n_units + 1))
    expected = (value + (harmonic - 1) * (value - others)) / n_units
    got = slalom_shapley(value, np.full(n_units, 1.5), 0.0, NONE)
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance(n_units) * span(value, 0.0))


@pytest.mark.parametrize("n_units", [1, 4, 50])
def test_copies_of_one_unit_share_its_value(n_units: int) -> None:
    got = slalom_shapley(np.full(n_units, 3.0), np.full(n_units, -2.0), 0.0, NONE)
    np.testing.assert_allclose(got, 3.0 / n_units, rtol=0, atol=tolerance(n_units) * 3.0)


def test_faint_background_is_no_background() -> None:
    value, importance, empty = sample(1, 9)
    faint = slalom_shapley(value, importance, empty, -60.0)  # its weight is e-59 of the smallest: 2e-26
    none = slalom_shapley(value, importance, empty, NONE)
    np.testing.assert_allclose(faint, none, rtol=0, atol=tolerance(9) * span(value, empty))


def test_dominant_background_gives_the_additive_model() -> None:
    value, importance, empty = sample(2, 9)
    got = slalom_shapley(value, importance, empty, 40.0)
    # Relative even where the values are 1e-17 of the range: what is left out is W / w_0 = 4e-17 * 9.
    np.testing.assert_allclose(got, np.exp(importance - 40.0) * (value - empty), rtol=tolerance(9))


def test_weightless_unit_is_a_null_player() -> None:
    value, importance, empty = sample(3, 8)
    importance[0] = -60.0
    got = slalom_shapley(value, importance, empty, 0.0)
    rest = slalom_shapley(value[1:], importance[1:], empty, 0.0)
    np.testing.assert_allclose(got, [0, *rest], rtol=0, atol=tolerance(8) * span(value, empty))


def test_importances_may_be_apart_beyond_the_range_of_floats() -> None:
    got = slalom_shapley([1.0, 5.0], [0.0, 2000.0], 0.0, NONE)
    np.testing.assert_allclose(got, [0.5, 4.5], rtol=0, atol=tolerance(2) * 5)  # F = 0, 1, 5, 5


# Axioms


@pytest.mark.parametrize("anchor", [NONE, -20.0, 0.0, 5.0])
@pytest.mark.parametrize("kind", ["flat", "normal", "wide normal", "one dominant", "one faint"])
@pytest.mark.parametrize("n_units", [1, 2, 3, 50, *LONG])
def test_efficiency(n_units: int, kind: str, anchor: float) -> None:
    rng = np.random.default_rng(n_units)
    value, empty = rng.normal(size=n_units), rng.normal()
    importance = {
        "flat": np.zeros(n_units),
        "normal": rng.normal(size=n_units),
        "wide normal": 3 * rng.normal(size=n_units),
        "one dominant": np.append(np.zeros(n_units - 1), 12.0),
        "one faint": np.append(np.zeros(n_units - 1), -12.0),
    }[kind]
    full = play(np.ones((1, n_units), bool), value, importance, empty, anchor)[0]
    got = slalom_shapley(value, importance, empty, anchor)
    assert abs(got.sum() - (full - empty)) <= tolerance(n_units) * span(value, empty)


@pytest.mark.parametrize("anchor", [NONE, 0.5])
def test_equal_units_get_equal_values(anchor: float) -> None:
    value, importance, empty = sample(4, 5)
    counts = [1, 3, 2, 1, 4]
    got = slalom_shapley(np.repeat(value, counts), np.repeat(importance, counts), empty, anchor)
    first = got[np.cumsum([0, *counts[:-1]])]
    np.testing.assert_allclose(
        got, np.repeat(first, counts), rtol=0, atol=tolerance(11) * span(value, empty)
    )


@pytest.mark.parametrize("anchor", [NONE, 0.5])
def test_order_of_units_does_not_matter(anchor: float) -> None:
    value, importance, empty = sample(5, 40)
    order = np.random.default_rng(0).permutation(40)
    got = slalom_shapley(value[order], importance[order], empty, anchor)
    expected = slalom_shapley(value, importance, empty, anchor)[order]
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance(40) * span(value, empty))


@pytest.mark.parametrize("anchor", [NONE, 0.5])
def test_only_differences_of_values_and_of_importances_matter(anchor: float) -> None:
    value, importance, empty = sample(6, 20)
    got = slalom_shapley(value + 3.0, importance - 2.0, empty + 3.0, anchor - 2.0)
    expected = slalom_shapley(value, importance, empty, anchor)
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance(20) * span(value, empty))


def test_answer_to_the_empty_text_is_shared_equally() -> None:
    value, importance, empty = sample(7, 20)
    got = slalom_shapley(value, importance, empty + 5.0, NONE)
    expected = slalom_shapley(value, importance, empty, NONE) - 5.0 / 20
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance(20) * span(value, empty + 5.0))


@pytest.mark.parametrize("n_units", [50, LONG[0]])
def test_more_nodes_change_nothing(n_units: int, monkeypatch: pytest.MonkeyPatch) -> None:
    value, importance, empty = sample(8, n_units, 10.0)
    got = slalom_shapley(value, importance, empty, -2.0)
    monkeypatch.setattr(shapley, "SHARE_ERROR", 1e-300)  # as many nodes of p as are exact
    monkeypatch.setattr(shapley, "LOG_TIME_STEP", 0.1)
    monkeypatch.setattr(shapley, "FIRST_EXPONENT", 1e-16)
    monkeypatch.setattr(shapley, "LAST_EXPONENT", 100.0)
    refined = slalom_shapley(value, importance, empty, -2.0)
    np.testing.assert_allclose(got, refined, rtol=0, atol=tolerance(n_units) * span(value, empty))


# Heads


def test_heads_add_up_and_outputs_share_importances() -> None:
    rng = np.random.default_rng(9)
    value, importance = rng.normal(size=(2, 3, 6)), rng.normal(size=(3, 6))  # outputs, heads, units
    empty, anchor = rng.normal(size=(2, 3)), np.array([0.0, NONE, 2.0])
    got = slalom_shapley_heads(value, importance, empty, anchor)
    masks = all_masks(6)
    for output in range(2):
        heads = zip(value[output], importance, empty[output], anchor, strict=True)
        answers = np.sum([play(masks, *head) for head in heads], axis=0)
        # Six units, three heads, and a range of at most 20.
        np.testing.assert_allclose(got[output], exact_shapley(answers, masks), rtol=0, atol=1e-12)
        np.testing.assert_array_equal(
            got[output], slalom_shapley_heads(value[output], importance, empty[output], anchor)
        )


def test_heads_of_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="inconsistent size"):
        slalom_shapley_heads(np.zeros((2, 3)), np.zeros((2, 4)), 0.0, 0.0)


# Derivatives


def derivative(
    value: FloatArray, importance: FloatArray, empty: float, anchor: float, name: str, unit: int = 0
) -> FloatArray:
    """Complex-step derivative of the enumerated values: exact to rounding, no step to choose."""
    point: dict[str, np.ndarray] = {
        "value": value.astype(complex),
        "importance": importance.astype(complex),
        "empty": np.array([empty], complex),
        "anchor": np.array([anchor], complex),
    }
    point[name][unit] += 1e-30j
    masks = all_masks(len(value))
    answers = play(masks, point["value"], point["importance"], point["empty"][0], point["anchor"][0])
    return exact_shapley(np.imag(answers) / 1e-30, masks)


@pytest.mark.parametrize("anchor", [NONE, -3.0, 1.0, 8.0])
@pytest.mark.parametrize(("n_units", "spread"), [(1, 0.0), (2, 3.0), (5, 0.0), (8, 3.0), (8, 25.0)])
def test_jacobian_equals_that_of_enumeration(n_units: int, spread: float, anchor: float) -> None:
    value, importance, empty = sample(10, n_units, spread)
    got = slalom_shapley_jacobian(value, importance, empty, anchor)
    point = (value, importance, empty, anchor)
    units = range(n_units)
    atol = tolerance(n_units) * max(span(value, empty), 1.0)
    for name, ours in {"value": got.value, "importance": got.importance}.items():
        expected = np.transpose([derivative(*point, name, unit) for unit in units])
        np.testing.assert_allclose(ours, expected, rtol=0, atol=atol)
    expected = derivative(*point, "empty")
    np.testing.assert_allclose(got.background_value, expected, rtol=0, atol=n_units * atol)
    expected = np.zeros(n_units) if anchor == NONE else derivative(*point, "anchor")
    np.testing.assert_allclose(got.background_importance, expected, rtol=0, atol=n_units * atol)


@pytest.mark.parametrize("anchor", [NONE, 0.5])
@pytest.mark.parametrize("n_units", [1, 20, LONG[0]])
def test_jacobian_agrees_with_the_values_and_with_efficiency(n_units: int, anchor: float) -> None:
    value, importance, empty = sample(11, n_units, 8.0)
    jacobian = slalom_shapley_jacobian(value, importance, empty, anchor)
    lift, atol = value - empty, tolerance(n_units) * span(value, empty)
    weights = np.exp(importance)
    shares = weights / (weights.sum() + np.exp(anchor))
    # A column sums to the derivative of F(all) - F(empty): n entries, each with its rounding.
    slopes = shares * (lift - shares @ lift)
    np.testing.assert_allclose(jacobian.value.sum(axis=0), shares, rtol=0, atol=tolerance(n_units))
    np.testing.assert_allclose(jacobian.importance.sum(axis=0), slopes, rtol=0, atol=n_units * atol)
    phi = slalom_shapley(value, importance, empty, anchor)
    np.testing.assert_allclose(jacobian.value @ lift, phi, rtol=0, atol=atol)


# Enumeration


def test_enumeration_equals_the_mean_over_all_orders() -> None:
    rng = np.random.default_rng(12)
    masks, scores = all_masks(4), rng.normal(size=(16, 3))
    answer = {tuple(mask): score for mask, score in zip(masks.tolist(), scores, strict=True)}
    expected = np.zeros((4, 3))
    for order in permutations(range(4)):
        present = [False] * 4
        for unit in order:
            before = answer[tuple(present)]
            present[unit] = True
            expected[unit] += (answer[tuple(present)] - before) / factorial(4)
    shuffled = rng.permutation(16)
    got = exact_shapley(scores[shuffled], masks[shuffled])
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-14)  # 24 sums of numbers below 3
    np.testing.assert_allclose(exact_shapley(scores[:, 1], masks), expected[:, 1], rtol=0, atol=1e-14)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_enumeration_of_an_additive_game(offset: float) -> None:
    coefficients = np.random.default_rng(13).normal(size=10)
    masks = all_masks(10)
    got = exact_shapley(offset + masks @ coefficients, masks)
    # The offset costs the scores eps * 1e6 = 2e-10 each, and nothing beyond that.
    np.testing.assert_allclose(got, coefficients, rtol=0, atol=1e-14 + 5e-16 * offset)


@pytest.mark.parametrize(
    ("scores", "masks", "message"),
    [
        (np.zeros(3), all_masks(2), r"4 scores .* got scores \(3,\) and 4 different"),
        (np.zeros(4), all_masks(2)[[0, 1, 2, 2]], "3 different masks in 4 rows"),
        (np.zeros(4), all_masks(3)[:4], "8 scores"),
        (np.zeros((4, 1, 1)), all_masks(2), "4 scores"),
        (np.array([0, 1, np.nan, 2]), all_masks(2), "finite scores"),
        (np.zeros(1), np.zeros((1, 21)), "1 to 20 units"),
        (np.zeros(1), np.zeros((1, 0)), "1 to 20 units"),
        (np.zeros(1), np.zeros(1), "1 to 20 units"),
    ],
)
def test_enumeration_refuses(scores: FloatArray, masks: BoolArray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        exact_shapley(scores, masks)


# Refusals


@pytest.mark.parametrize(
    ("value", "importance", "empty", "anchor", "message"),
    [
        ([], [], 0.0, 0.0, "at least one unit"),
        ([1.0], [1.0, 2.0], 0.0, 0.0, r"got \(1,\) and \(2,\)"),
        ([[1.0]], [[1.0]], 0.0, 0.0, "one and the same shape"),
        ([np.nan], [1.0], 0.0, 0.0, "must be finite"),
        ([1.0], [-np.inf], 0.0, 0.0, "must be finite"),
        ([1.0], [1.0], np.inf, 0.0, "the background needs a finite value"),
        ([1.0], [1.0], 0.0, np.inf, "-inf for none"),
        ([1.0], [1.0], 0.0, np.nan, "-inf for none"),
    ],
)
def test_refuses(
    value: list[float], importance: list[float], empty: float, anchor: float, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        slalom_shapley(value, importance, empty, anchor)
    with pytest.raises(InputError, match=message):
        slalom_shapley_jacobian(value, importance, empty, anchor)


def test_warm_up_compiles() -> None:
    _shapley_kernels.warm_up()
