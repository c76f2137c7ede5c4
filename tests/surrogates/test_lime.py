"""Lime: exact recovery, the lime package and scikit-learn as references, selection, odd texts."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lime.lime_base import LimeBase
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.metrics import pairwise_distances
from sklearn.utils import estimator_checks

from piste._errors import InputError
from piste._typing import FloatArray
from piste.fitting.result import Status
from piste.surrogates._locality import locality_weights
from piste.surrogates.base import Surrogate
from piste.surrogates.lime import Lime

SELECTIONS = ["none", "auto", "forward_selection", "highest_weights", "lasso_path"]
# Scores are about 1; with LIME's weights the Gram matrix of a design that determines n units has a
# condition number of about 10 n at most, so that 1e-10 leaves several digits.
TIGHT = 1e-10


def all_masks(n_units: int) -> FloatArray:
    masks: FloatArray = ((np.arange(2**n_units)[:, None] >> np.arange(n_units)) & 1).astype(float)
    return masks


def uniform_size_masks(n_masks: int, n_units: int, seed: int = 0) -> FloatArray:
    """LIME's own law: full text first, then a uniform number of units removed."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, n_units + 1, n_masks)
    ranks = rng.random((n_masks, n_units)).argsort(axis=1).argsort(axis=1)
    masks: FloatArray = (ranks >= sizes[:, None]).astype(float)
    masks[0] = 1.0
    return masks


def black_box(masks: FloatArray, n_outputs: int = 2, seed: int = 0) -> FloatArray:
    """Something that is not linear: a softmax-weighted mean, as attention gives."""
    rng = np.random.default_rng(seed)
    n_units = masks.shape[1]
    value, weight = rng.normal(size=(n_units, n_outputs)), np.exp(rng.normal(size=n_units))
    scores: FloatArray = (masks @ (weight[:, None] * value)) / (1.0 + masks @ weight)[:, None]
    return scores


# --- exact oracles


@pytest.mark.parametrize("n_units", [1, 2, 20, 60, 150])
@pytest.mark.parametrize("n_outputs", [None, 3])
def test_recovers_a_linear_black_box(n_units: int, n_outputs: int | None) -> None:
    masks = all_masks(n_units) if n_units <= 2 else uniform_size_masks(4 * n_units, n_units)
    coef = np.random.default_rng(1).normal(
        size=(n_units,) if n_outputs is None else (n_outputs, n_units)
    )
    lime = Lime().fit(masks, masks @ coef.T + 0.25)
    assert lime.status_ is Status.OK
    np.testing.assert_allclose(lime.attributions(), coef, atol=1e-9)
    np.testing.assert_allclose(lime.base_value_, 0.25, atol=1e-9)
    np.testing.assert_allclose(lime.predict(masks), masks @ coef.T + 0.25, atol=1e-9)
    assert lime.score(masks, masks @ coef.T + 0.25) > 1 - 1e-12


def test_recovers_a_linear_function_of_counts() -> None:
    masks = np.random.default_rng(0).integers(0, 4, size=(60, 6)).astype(float)
    coef = np.arange(6.0)
    np.testing.assert_allclose(Lime().fit(masks, masks @ coef - 1.0).coef_, coef, atol=1e-9)


def test_n_plus_one_masks_suffice() -> None:
    masks = np.vstack([np.ones(8), 1.0 - np.eye(8)])
    lime = Lime().fit(masks, masks @ np.arange(8.0))
    assert len(masks) == lime.min_queries(8)
    assert lime.status_ is Status.OK
    np.testing.assert_allclose(lime.coef_, np.arange(8.0), atol=1e-9)
    assert Lime(fit_intercept=False).min_queries(8) == 8


# --- references


def by_lime(
    masks: FloatArray, scores: FloatArray, label: int, n_features: int, method: str
) -> tuple[FloatArray, float]:
    distances = pairwise_distances(masks, masks[:1], metric="cosine").ravel() * 100
    base = LimeBase(lambda d: np.sqrt(np.exp(-(d**2) / 25**2)), random_state=0)
    intercept, weights, _, _ = base.explain_instance_with_data(
        masks, scores, distances, label, n_features, feature_selection=method
    )
    coef = np.zeros(masks.shape[1])
    for unit, weight in weights:
        coef[unit] = weight
    return coef, intercept


@pytest.mark.parametrize("n_features", [1, 4, 8, 12])
@pytest.mark.parametrize("method", SELECTIONS)
def test_agrees_with_the_lime_package(method: Any, n_features: int) -> None:
    masks = uniform_size_masks(300, 12)
    scores = black_box(masks)
    lime = Lime(alpha=1.0, n_features=n_features, feature_selection=method).fit(masks, scores)
    assert isinstance(lime.intercept_, np.ndarray)
    for label in range(2):
        coef, intercept = by_lime(masks, scores, label, n_features, method)
        np.testing.assert_allclose(lime.coef_[label], coef, atol=TIGHT)
        np.testing.assert_allclose(lime.intercept_[label], intercept, atol=TIGHT)
        single = clone(lime).fit(masks, scores[:, label])
        np.testing.assert_allclose(single.coef_, coef, atol=TIGHT)
        np.testing.assert_array_equal(single.selected_, lime.selected_[label])


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_agrees_with_sklearn_ridge(alpha: float, fit_intercept: bool) -> None:
    masks, given_weights = uniform_size_masks(200, 10), np.random.default_rng(2).random(200)
    scores = black_box(masks)
    lime = Lime(alpha=alpha, fit_intercept=fit_intercept).fit(masks, scores, given_weights)
    ridge = Ridge(alpha=alpha, fit_intercept=fit_intercept, solver="svd")
    ridge.fit(masks, scores, given_weights * lime.weights_)
    np.testing.assert_allclose(lime.coef_, ridge.coef_, atol=TIGHT)
    np.testing.assert_allclose(lime.predict(masks), ridge.predict(masks), atol=TIGHT)


def test_locality_weights_of_shares_and_counts() -> None:
    masks = np.array([[1.0, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    expected = np.exp(-((100 * (1 - np.sqrt([1.0, 0.5, 0.25, 0.0]))) ** 2) / 1250)
    # The distance, up to 100, carries 100 * 1e-16; the exponent twice its square.
    np.testing.assert_allclose(locality_weights(masks, 25.0), expected, rtol=1e-12)
    np.testing.assert_array_equal(locality_weights(masks, None), np.ones(4))
    np.testing.assert_array_equal(locality_weights(masks, np.inf), np.ones(4))
    counts = np.array([[2.0, 1.0], [1.0, 1.0]])
    assert locality_weights(counts, 25.0)[1] == pytest.approx(
        np.exp(-((100 * (1 - 3 / np.sqrt(10))) ** 2) / 1250), rel=1e-12
    )
    np.testing.assert_array_equal(locality_weights(np.zeros((2, 3)), 25.0), np.exp(-8.0) * np.ones(2))


# --- selection


@pytest.mark.parametrize("method", SELECTIONS[1:])
def test_selection_finds_the_units_that_matter_and_zeroes_the_rest(method: Any) -> None:
    masks = uniform_size_masks(200, 10)
    coef = np.zeros((2, 10))
    coef[0, [2, 7]] = 1.0, -2.0
    coef[1, [3, 7]] = -1.0, 0.5
    lime = Lime(n_features=2, feature_selection=method).fit(masks, masks @ coef.T)
    np.testing.assert_array_equal(lime.selected_, coef != 0)
    np.testing.assert_array_equal(lime.coef_[coef == 0], 0.0)
    np.testing.assert_allclose(lime.coef_, coef, atol=1e-9)


@pytest.mark.parametrize("method", SELECTIONS[1:])
def test_selection_among_equal_constant_and_silent_units(method: Any) -> None:
    masks = uniform_size_masks(60, 5)
    masks = np.column_stack([masks, masks[:, 0], np.ones(60)])
    lime = Lime(n_features=2, feature_selection=method).fit(masks, masks[:, 0] + 0.5 * masks[:, 3])
    assert lime.selected_.sum() == 2
    assert np.isfinite(lime.coef_).all()
    silent = Lime(n_features=2, feature_selection=method).fit(masks, np.full(60, 0.7))
    assert silent.selected_.sum() <= 2
    np.testing.assert_array_equal(silent.coef_, 0.0)
    assert (silent.base_value_, silent.status_) == (0.7, Status.NO_VARIATION)


# --- cases and degenerate texts


def test_t01_one_and_two_words() -> None:
    one = Lime().fit([[1], [0]], [0.9, 0.2])
    np.testing.assert_allclose(one.coef_, [0.7], atol=1e-12)
    two = Lime().fit(all_masks(2), [0.1, 0.4, 0.2, 0.9])  # masks 00, 10, 01, 11
    assert (two.coef_ > 0).all()
    assert two.status_ is Status.OK


def test_t03_repeated_word_by_position() -> None:
    masks = all_masks(3)  # good good bad: only the second counts
    np.testing.assert_allclose(
        Lime().fit(masks, np.where(masks[:, 1] == 1, 1.0, 0.2)).coef_, [0.0, 0.8, 0.0], atol=1e-12
    )


def test_t08_constant_model() -> None:
    lime = Lime().fit(all_masks(4), np.full(16, 0.7))
    np.testing.assert_array_equal(lime.coef_, np.zeros(4))
    assert (lime.base_value_, lime.status_) == (0.7, Status.NO_VARIATION)
    assert lime.unit_status("coefficient") == (Status.NO_VARIATION,) * 4


def test_t09_each_label_on_its_own() -> None:
    masks = all_masks(3)
    lime = Lime().fit(masks, 0.9 * masks)
    np.testing.assert_allclose(lime.coef_, 0.9 * np.eye(3), atol=1e-12)


def test_one_mask_only() -> None:
    lime = Lime().fit(np.ones((1, 3)), [0.4])
    np.testing.assert_array_equal(lime.coef_, np.zeros(3))
    assert (lime.base_value_, lime.status_) == (0.4, Status.UNDERDETERMINED)


@pytest.mark.parametrize("method", SELECTIONS)
def test_fewer_masks_than_units(method: Any) -> None:
    masks = uniform_size_masks(6, 20)
    masks[:, 0] = 1.0  # nothing is known of this unit, selected or not
    lime = Lime(n_features=8, feature_selection=method).fit(masks, black_box(masks))
    assert np.isfinite(lime.coef_).all()
    assert lime.status_ is Status.UNDERDETERMINED
    for row in lime.unit_status("coefficient"):
        assert row[0] is Status.UNDERDETERMINED


def test_units_are_open_one_by_one() -> None:
    masks = uniform_size_masks(60, 4)
    masks[:, 3] = masks[:, 0]
    lime = Lime().fit(masks, np.column_stack([masks[:, 0], np.ones(60)]))
    half_open = (Status.UNDERDETERMINED, Status.OK, Status.OK, Status.UNDERDETERMINED)
    assert lime.unit_status("coefficient") == (half_open, (Status.NO_VARIATION,) * 4)
    assert lime.status_ is Status.UNDERDETERMINED
    np.testing.assert_allclose(lime.coef_, [[0.5, 0.0, 0.0, 0.5], [0.0] * 4], atol=1e-12)


@pytest.mark.parametrize("method", SELECTIONS)
def test_one_positive_weight(method: Any) -> None:
    masks, weights = uniform_size_masks(20, 8), np.zeros(20)
    weights[3] = 1.0
    scores = black_box(masks)
    lime = Lime(n_features=2, feature_selection=method).fit(masks, scores, weights)
    np.testing.assert_array_equal(lime.coef_, 0.0)
    np.testing.assert_array_equal(lime.base_value_, scores[3])
    assert lime.status_ is Status.UNDERDETERMINED


# --- properties


@given(st.integers(0, 2**32 - 1), st.integers(1, 7), st.sampled_from([0.0, 1.0]))
@settings(max_examples=50, deadline=None)
def test_weights_equal_repeated_rows_and_units_have_no_order(seed: int, n: int, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    masks = uniform_size_masks(12, n, seed)
    scores, times, order = rng.normal(size=12), rng.integers(1, 4, 12), rng.permutation(n)
    lime = Lime(alpha=alpha).fit(masks, scores, times)
    repeated = Lime(alpha=alpha).fit(masks.repeat(times, 0), scores.repeat(times))
    # 12 masks of up to 7 units with weights down to 3e-4: condition below 1e6, and 1e-16 * 1e6 * a few.
    scale = max(1.0, np.abs(lime.coef_).max())
    np.testing.assert_allclose(lime.coef_, repeated.coef_, atol=1e-9 * scale)
    assert lime.status_ == repeated.status_
    shuffled = Lime(alpha=alpha).fit(masks[:, order], scores, times)
    np.testing.assert_allclose(shuffled.coef_, lime.coef_[order], atol=1e-9 * scale)


# --- estimator contract


def test_is_a_surrogate_and_a_sklearn_estimator() -> None:
    lime = Lime(kernel_width=None, alpha=0.5, n_features=3)
    assert isinstance(lime.fit(all_masks(4), np.arange(16.0)), Surrogate)
    assert clone(lime).get_params() == lime.get_params()
    assert lime.set_params(alpha=2.0).alpha == 2.0
    with pytest.raises(NotFittedError):
        clone(lime).predict(all_masks(4))


# Those of scikit-learn's checks that do not presume its own wording of errors, arguments named X and y,
# sparse input or complex numbers.
@pytest.mark.parametrize(
    "check",
    [
        "dict_unchanged",
        "estimators_dtypes",
        "estimators_fit_returns_self",
        "estimators_overwrite_params",
        "estimators_pickle",
        "f_contiguous_array_estimator",
        "fit2d_1feature",
        "fit2d_1sample",
        "fit_idempotent",
        "methods_sample_order_invariance",
        "methods_subset_invariance",
        "n_features_in",
        "no_attributes_set_in_init",
        "parameters_default_constructible",
        "readonly_memmap_input",
        "regressor_multioutput",
        "sample_weights_list",
        "sample_weights_not_overwritten",
        "sample_weights_pandas_series",
        "set_params",
    ],
)
def test_sklearn_checks(check: str) -> None:
    getattr(estimator_checks, f"check_{check}")("Lime", Lime())


def test_refit_and_pickle_give_the_same_bytes() -> None:
    masks = uniform_size_masks(100, 9)
    lime = Lime(n_features=4).fit(masks, black_box(masks))
    coef = lime.attributions().tobytes()
    assert pickle.loads(pickle.dumps(lime)).attributions().tobytes() == coef
    assert lime.fit(masks, black_box(masks)).attributions().tobytes() == coef
    lime.attributions()[:] = 0.0
    assert lime.attributions().tobytes() == coef


def test_shapes_follow_the_scores() -> None:
    masks = all_masks(3)
    flat, column = Lime().fit(masks, masks.sum(axis=1)), Lime().fit(masks, masks.sum(axis=1)[:, None])
    assert (flat.coef_.shape, column.coef_.shape) == ((3,), (1, 3))
    assert isinstance(flat.base_value_, float)
    assert np.shape(column.base_value_) == (1,)
    assert (flat.predict(masks).shape, column.predict(masks).shape) == ((8,), (8, 1))
    assert (flat.n_features_in_, flat.weights_.shape) == (3, (8,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel_width": 0.0}, "kernel_width=0.0; expected a number > 0"),
        ({"kernel_width": np.nan}, "kernel_width=nan; expected a number > 0"),
        ({"alpha": -1.0}, "alpha=-1.0; expected a finite number >= 0"),
        ({"alpha": np.inf}, "alpha=inf; expected a finite number >= 0"),
        ({"n_features": 0}, "n_features=0; expected a number >= 1"),
        ({"feature_selection": "best"}, "'best'; expected 'none', 'auto', 'forward_selection'"),
    ],
)
def test_refuses_impossible_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Lime(**options).fit(all_masks(2), np.arange(4.0))


def test_refuses_what_it_cannot_use() -> None:
    lime = Lime().fit(all_masks(3), np.arange(8.0))
    with pytest.raises(InputError, match=r"shape \(4, 2\); expected \(n_masks, 3\)"):
        lime.predict(all_masks(2))
    with pytest.raises(InputError, match="kind 'shapley'; expected one of 'coefficient'"):
        lime.attributions("shapley")
    with pytest.raises(InputError, match="all zero; expected a mask of positive sample weight near"):
        Lime(kernel_width=0.5).fit(all_masks(3)[:4], np.arange(4.0), [1, 0, 0, 0])
