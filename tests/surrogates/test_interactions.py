"""Interactions: games of pairs from few masks, enumeration, shapiq's coalitions, degenerate texts."""

import pickle
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from piste._errors import InputError
from piste._typing import FloatArray
from piste.fitting.interactions import PairIndex, exact_pairs
from piste.fitting.result import Status
from piste.fitting.shapley import exact_shapley
from piste.sampling.designs import draw, with_anchors
from piste.surrogates import Interactions, KernelShap, Slalom
from piste.surrogates.base import Surrogate

INDICES: list[PairIndex] = ["faith-shap", "k-sii"]


def all_masks(n_units: int) -> FloatArray:
    masks: FloatArray = ((np.arange(2**n_units)[:, None] >> np.arange(n_units)) & 1).astype(float)
    return masks


def pool(n_masks: int, n_units: int, seed: int = 0) -> FloatArray:
    """Leverage sampling in pairs, with the full and the empty mask."""
    if 2**n_units <= n_masks:
        return all_masks(n_units)
    ends = np.array([[True] * n_units, [False] * n_units])
    drawn = draw("leverage", n_units, n_masks - 2, np.random.default_rng(seed), exclude=ends)
    return with_anchors(drawn).masks.astype(float)


def codes(masks: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return (masks @ (1 << np.arange(masks.shape[1]))).astype(np.int64)


def pair_game(n_units: int, n_outputs: int, seed: int) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    pairs = np.triu(rng.normal(size=(n_outputs, n_units, n_units)), 1)
    return rng.normal(size=(n_outputs, n_units)), pairs + pairs.transpose(0, 2, 1)


def play(masks: FloatArray, main: FloatArray, pairs: FloatArray) -> FloatArray:
    scores: FloatArray = (
        0.2 + masks @ main.T + np.einsum("ri,oij,rj->ro", masks, pairs, masks, optimize=True) / 2
    )
    return scores


# --- exact oracles


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize(("n_units", "n_masks"), [(1, 2), (2, 4), (5, 24), (12, 160), (25, 700)])
def test_recovers_a_game_of_pairs(n_units: int, n_masks: int, index: PairIndex) -> None:
    main, pairs = pair_game(n_units, 2, seed=n_units)
    masks = pool(n_masks, n_units)
    fitted = Interactions(index=index).fit(masks, play(masks, main, pairs))
    assert fitted.status_ is Status.OK
    np.testing.assert_allclose(fitted.values_, main, atol=1e-9)
    np.testing.assert_allclose(fitted.pair_values_, pairs, atol=1e-9)
    np.testing.assert_allclose(fitted.attributions("total"), main + pairs.sum(axis=2) / 2, atol=1e-8)
    fresh = np.random.default_rng(9).integers(0, 2, (50, n_units)).astype(float)
    np.testing.assert_allclose(fitted.predict(fresh), play(fresh, main, pairs), atol=1e-8)


@pytest.mark.parametrize("index", INDICES)
def test_linear_black_boxes_have_no_pairs(index: PairIndex) -> None:
    masks, coef = pool(200, 10), np.arange(10.0)
    fitted = Interactions(index=index).fit(masks, masks @ coef - 1.0)
    np.testing.assert_allclose(fitted.pair_values_, 0.0, atol=1e-11)
    np.testing.assert_allclose(fitted.values_, coef, atol=1e-10)
    assert fitted.base_value_ == -1.0


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("n_units", [1, 2, 3, 6, 9])
def test_all_masks_give_the_exact_indices(n_units: int, index: PairIndex) -> None:
    masks = all_masks(n_units)
    game = np.random.default_rng(n_units).normal(size=(2**n_units, 2))
    fitted = Interactions(index=index).fit(masks, game)
    expected = exact_pairs(game, masks, index)
    np.testing.assert_allclose(fitted.pair_values_, expected, atol=1e-10)
    np.testing.assert_allclose(fitted.attributions("total"), exact_shapley(game, masks).T, atol=1e-10)
    np.testing.assert_allclose(fitted.std_errors("total"), 0.0, atol=1e-10)


def test_k_sii_of_a_sample_is_nearer_with_the_residuals() -> None:
    """The correction takes most of what separates the two indices off; median of ten pools."""
    masks, rng = all_masks(9), np.random.default_rng(0)
    weight, value = np.exp(rng.normal(size=9)), rng.normal(size=9)
    game = 3.0 * masks @ (weight * value) / (0.5 + masks @ weight)
    truth = exact_pairs(game, masks, "k-sii")
    errors: dict[str, list[float]] = {index: [] for index in INDICES}
    for seed in range(10):
        drawn = pool(320, 9, seed)
        for index in INDICES:
            pairs = Interactions(index=index).fit(drawn, game[codes(drawn)]).pair_values_
            errors[index].append(float(np.square(pairs - truth).sum()))
    assert np.median(errors["k-sii"]) < 0.5 * np.median(errors["faith-shap"])


# --- references


@pytest.mark.filterwarnings("ignore:The set_:PendingDeprecationWarning")
def test_agrees_with_shapiq_on_its_coalitions() -> None:
    from shapiq.approximator import RegressionFSII

    game = np.random.default_rng(0).normal(size=2**7)
    approximator = RegressionFSII(7, random_state=0)
    reference = approximator.approximate(90, lambda z: game[codes(z.astype(float))])
    sampler = approximator._sampler
    masks = sampler.coalitions_matrix.astype(float)
    kernel = approximator._init_kernel_weights(1)
    weights = kernel[masks.sum(axis=1).astype(int)] * sampler.sampling_adjustment_weights
    fitted = Interactions().fit(masks, game[codes(masks)], weights)
    # shapiq imposes the end points by large weights: see the same test of KernelShap.
    for i in range(7):
        assert fitted.values_[i] == pytest.approx(reference[(i,)], abs=1e-5)
    for i, j in combinations(range(7), 2):
        assert fitted.pair_values_[i, j] == pytest.approx(reference[(i, j)], abs=1e-5)


@pytest.mark.parametrize("index", INDICES)
def test_totals_of_pairs_of_masks_are_those_of_kernel_shap(index: PairIndex) -> None:
    """Pairs are even up to additive parts: on complementary masks they cannot move Shapley values."""
    masks = pool(150, 10)
    scores = np.random.default_rng(2).normal(size=len(masks))
    total = Interactions(index=index).fit(masks, scores).attributions("total")
    np.testing.assert_allclose(total, KernelShap().fit(masks, scores).values_, atol=1e-9)


# --- properties


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(0, 60), st.sampled_from(INDICES))
@settings(max_examples=80, deadline=None)
def test_always_adds_up_and_is_finite(seed: int, n: int, n_masks: int, index: PairIndex) -> None:
    rng = np.random.default_rng(seed)
    masks = np.vstack([rng.integers(0, 2, (n_masks, n)), np.ones(n), np.zeros(n)])
    scores = 10.0 * rng.normal(size=(len(masks), 2))
    fitted = Interactions(index=index).fit(masks, scores)
    assert np.isfinite(fitted.pair_values_).all()
    np.testing.assert_array_equal(fitted.pair_values_, fitted.pair_values_.transpose(0, 2, 1))
    assert (np.einsum("oii->oi", fitted.pair_values_) == 0).all()
    gain = np.subtract(fitted.full_value_, fitted.base_value_)
    size = max(1.0, float(np.abs(fitted.pair_values_).max()))
    np.testing.assert_allclose(fitted.attributions("total").sum(axis=1), gain, atol=1e-10 * size)
    ends = np.array([[0.0] * n, [1.0] * n])
    expected = np.array([fitted.base_value_, fitted.full_value_])
    np.testing.assert_allclose(fitted.predict(ends), expected, atol=1e-10 * size)


def test_outputs_are_fitted_alone() -> None:
    masks, rng = pool(120, 8), np.random.default_rng(1)
    scores = rng.normal(size=(len(masks), 2))
    both = Interactions(index="k-sii").fit(masks, scores)
    one = Interactions(index="k-sii").fit(masks, scores[:, 1])
    assert one.pair_values_.shape == (8, 8)
    assert both.pair_values_.shape == (2, 8, 8)
    np.testing.assert_allclose(both.pair_values_[1], one.pair_values_, atol=1e-12)
    np.testing.assert_allclose(both.std_errors("total")[1], one.std_errors("total"))
    np.testing.assert_allclose(both.predict(masks)[:, 1], one.predict(masks), atol=1e-12)


def test_design_errors_match_the_spread_of_estimates() -> None:
    """Root mean square over units of 150 pools against the mean error told: within a fifth."""
    masks, rng = all_masks(8), np.random.default_rng(4)
    weight, value = np.exp(rng.normal(size=8)), rng.normal(size=8)
    game = masks @ (weight * value) / (0.3 + masks @ weight)
    found, told = [], []
    for seed in range(150):
        drawn = pool(120, 8, seed)
        fitted = Interactions().fit(drawn, game[codes(drawn)])
        found.append(fitted.attributions("total"))
        told.append(fitted.std_errors("total"))
    spread = np.sqrt(np.var(found, axis=0, ddof=1).mean())
    assert np.sqrt(np.square(told).mean()) == pytest.approx(spread, rel=0.2)


# --- status, options, contract


def test_too_few_masks_are_said_so() -> None:
    masks = pool(20, 6)
    fitted = Interactions().fit(masks, masks @ np.arange(6.0))
    assert fitted.min_queries(6) == 22
    assert fitted.status_ is Status.UNDERDETERMINED
    assert Status.UNDERDETERMINED in fitted.unit_status("total")
    assert np.isinf(fitted.std_errors("total")).any()
    low, high = fitted.confidence_interval("total")
    assert (low <= high).all()


def test_anchors_alone_share_equally_without_pairs() -> None:
    fitted = Interactions().fit([[1, 1, 1, 1], [0, 0, 0, 0]], [1.0, 0.2])
    np.testing.assert_allclose(fitted.values_, 0.2, atol=1e-15)
    np.testing.assert_array_equal(fitted.pair_values_, np.zeros((4, 4)))


def test_constant_model() -> None:
    fitted = Interactions(index="k-sii").fit(all_masks(4), np.full(16, 0.7))
    assert fitted.status_ is Status.NO_VARIATION
    np.testing.assert_array_equal(fitted.values_, np.zeros(4))
    assert fitted.unit_status("main") == (Status.NO_VARIATION,) * 4


@pytest.mark.parametrize(
    ("options", "message"),
    [({"order": 3}, "expected 2"), ({"index": "sii"}, "'faith-shap' or 'k-sii'")],
)
def test_refuses_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Interactions(**options).fit(all_masks(2), np.arange(4.0))  # type: ignore[arg-type]


def test_refuses_counts_and_missing_ends() -> None:
    with pytest.raises(InputError, match="other than 0 and 1"):
        Interactions().fit([[2, 0], [0, 0]], [1.0, 0.0])
    with pytest.raises(InputError, match="without the empty row"):
        Interactions().fit([[1, 1], [1, 0]], [1.0, 0.0])
    with pytest.raises(InputError, match="expected one of 'main', 'total'"):
        Interactions().fit(all_masks(2), np.arange(4.0)).attributions("value")


def test_is_a_surrogate_and_a_sklearn_estimator() -> None:
    fitted = Interactions(index="k-sii").fit(all_masks(3), np.arange(8.0))
    assert isinstance(fitted, Surrogate)
    assert clone(fitted).get_params() == {"order": 2, "index": "k-sii"}
    copy = pickle.loads(pickle.dumps(fitted))
    assert copy.attributions("total").tobytes() == fitted.attributions("total").tobytes()
    with pytest.raises(NotFittedError):
        clone(fitted).predict(all_masks(3))


@pytest.mark.parametrize("index", ["faith-shap", "k-sii"])
@pytest.mark.parametrize("heads", [1, 2])
def test_pairs_of_a_fitted_slalom_are_those_of_its_own_predictions(
    index: PairIndex, heads: int
) -> None:
    """The regression on all masks knows nothing of the quadrature."""
    masks = all_masks(6)
    rng = np.random.default_rng(0)
    fitted = Slalom(heads=heads).fit(masks, rng.normal(size=len(masks)))
    enumerated = Interactions(index=index).fit(masks, fitted.predict(masks))
    spread = np.ptp(fitted.predict(masks))
    assert np.abs(fitted.pair_values(index) - enumerated.pair_values_).max() <= 1e-9 * max(spread, 1.0)
