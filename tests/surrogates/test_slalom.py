"""Slalom: published model, backgrounds, outputs, heads, equivariance, odd texts, estimator API."""

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.utils import estimator_checks

from piste._errors import InputError
from piste._typing import FloatArray
from piste.fitting.result import Status
from piste.surrogates.slalom import Slalom

# Exact answers about 1 are fitted to rounding; what is read off the fit loses a few digits.
TIGHT = 1e-9
# A search that stops at 1e-7 of its objective is within the square root of that, times the noise.
SEARCH = 2e-4


def uniform_size_masks(n_masks: int, n_units: int, seed: int = 0) -> FloatArray:
    """The full and the empty text, then uniform numbers of units removed."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, n_units + 1, n_masks)
    ranks = rng.random((n_masks, n_units)).argsort(axis=1).argsort(axis=1)
    masks: FloatArray = (ranks >= sizes[:, None]).astype(float)
    masks[:2] = [[1.0], [0.0]]
    return masks


def all_masks(n_units: int) -> FloatArray:
    masks: FloatArray = ((np.arange(2**n_units)[:, None] >> np.arange(n_units)) & 1).astype(float)
    return masks


def parameters(n_units: int, spread: float = 1.0, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    value, importance = rng.normal(size=n_units), spread * rng.normal(size=n_units)
    return value, importance - importance.mean()


def published(masks: FloatArray, value: FloatArray, importance: FloatArray) -> FloatArray:
    """The paper's formula, token by token: softmax over the tokens that are present."""
    scores = []
    for mask in masks.astype(int):
        tokens = np.repeat(np.arange(len(mask)), mask)
        attention = np.exp(importance[tokens])
        scores.append((attention / attention.sum()) @ value[tokens])
    return np.array(scores)


def with_background(masks: FloatArray, n_heads: int = 1, seed: int = 0) -> FloatArray:
    """A sum of SLALOMs, each with a background of value 0.3 and importance 1."""
    scores: FloatArray = np.zeros(len(masks))
    for head in range(n_heads):
        value, importance = parameters(masks.shape[1], seed=seed + 100 * head)
        w, w_0 = np.exp(importance), np.exp(1.0)
        scores = scores + (masks @ (w * value) + 0.3 * w_0) / (masks @ w + w_0)
    return scores


def noisy(masks: FloatArray, level: float = 0.2, seed: int = 0, n_heads: int = 1) -> FloatArray:
    scores = with_background(masks, n_heads, seed)
    noise: FloatArray = np.random.default_rng(seed).normal(size=len(scores))
    return scores + level * float(scores.std()) * noise


def r2(expected: FloatArray, predicted: FloatArray) -> float:
    return float(1 - ((expected - predicted) ** 2).sum() / ((expected - expected.mean()) ** 2).sum())


# --- the published model


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("background", [False, True])
def test_the_published_formula(counted: bool, background: bool) -> None:
    value, importance = parameters(6)
    masks = all_masks(6)[1:]
    if counted:
        masks = masks * np.random.default_rng(1).integers(1, 4, masks.shape)
    slalom = Slalom(background=background).fit(masks, published(masks, value, importance))
    np.testing.assert_allclose(slalom.value_, value, atol=TIGHT)
    np.testing.assert_allclose(slalom.importance_, importance, atol=TIGHT)
    assert slalom.background_importance_ == -np.inf
    other = np.random.default_rng(2).integers(0, 5, (50, 6)).astype(float) + np.eye(6)[[0] * 50]
    np.testing.assert_allclose(slalom.predict(other), published(other, value, importance), atol=TIGHT)


def test_repeating_a_unit_or_the_text_changes_nothing() -> None:
    value, importance = parameters(5)
    masks = all_masks(5)[1:]
    slalom = Slalom(background=False).fit(masks, published(masks, value, importance))
    for n in (1, 2, 50):
        np.testing.assert_allclose(slalom.predict(n * np.eye(5)), value, atol=TIGHT)
        np.testing.assert_allclose(slalom.predict(n * masks), slalom.predict(masks), atol=TIGHT)


def test_predictions_stay_between_the_values() -> None:
    masks = uniform_size_masks(200, 8)[2:]
    masks = masks[masks.any(axis=1)]
    slalom = Slalom(background=False).fit(masks, noisy(masks))
    predicted = slalom.predict(all_masks(8)[1:])
    assert slalom.value_.min() <= predicted.min() + TIGHT
    assert predicted.max() <= slalom.value_.max() + TIGHT


def test_importances_are_shift_invariant_and_centred() -> None:
    value, importance = parameters(5)
    masks = all_masks(5)[1:]
    fits = [
        Slalom().fit(masks, published(masks, value, importance + shift)) for shift in (0.0, 7.0, -300.0)
    ]
    for slalom in fits:
        np.testing.assert_allclose(slalom.importance_, importance, atol=TIGHT)


@pytest.mark.parametrize("counts", [np.ones(4), np.array([3.0, 1.0, 2.0, 1.0])])
@pytest.mark.parametrize("background", [False, True])
def test_removal_is_the_difference_and_has_the_closed_form(
    counts: FloatArray, background: bool
) -> None:
    masks = np.vstack([all_masks(4), all_masks(4) * counts])
    scores = with_background(masks)
    if not background:
        masks = masks[masks.any(axis=1)]
        scores = published(masks, *parameters(4))
    slalom = Slalom(background=background).fit(masks, scores)
    # alpha: attention of one occurrence; removing it takes alpha (v - F) / (1 - alpha) away.
    weight = np.exp(slalom.importance_)
    alpha = weight / (np.exp(slalom.background_importance_) + counts @ weight)
    full = slalom.predict(counts[None])[0]
    expected = alpha * (slalom.value_ - full) / (1 - alpha)
    np.testing.assert_allclose(slalom.attributions("removal"), expected, atol=TIGHT)
    left = slalom.predict(counts - np.eye(4))
    np.testing.assert_allclose(slalom.attributions("removal"), full - left, atol=TIGHT)


def test_the_other_kinds() -> None:
    masks = uniform_size_masks(300, 6)
    slalom = Slalom().fit(masks, noisy(masks))
    assert slalom.attributions().tobytes() == slalom.value_.tobytes()
    np.testing.assert_array_equal(slalom.attributions("importance"), slalom.importance_)
    linear = slalom.value_ * np.exp(slalom.importance_)
    np.testing.assert_array_equal(slalom.attributions("linear"), linear)


# --- backgrounds


@pytest.mark.parametrize("n_units", [3, 12, 40])
def test_a_background_is_recovered_and_defines_the_empty_text(n_units: int) -> None:
    masks = uniform_size_masks(10 * n_units + 10, n_units)
    slalom = Slalom().fit(masks, with_background(masks))
    value, importance = parameters(n_units)
    np.testing.assert_allclose(slalom.value_, value, atol=TIGHT)
    np.testing.assert_allclose(slalom.importance_, importance, atol=TIGHT)
    assert slalom.background_value_ == pytest.approx(0.3, abs=TIGHT)
    assert slalom.background_importance_ == pytest.approx(1.0, abs=TIGHT)
    assert slalom.base_value_ == pytest.approx(0.3, abs=TIGHT)


def test_without_a_background_the_empty_text_keeps_its_answer() -> None:
    masks = all_masks(4)
    scores = np.concatenate([[-2.0], published(masks[1:], *parameters(4))])
    slalom = Slalom(background=False).fit(masks, scores)
    np.testing.assert_allclose(slalom.value_, parameters(4)[0], atol=TIGHT)
    assert slalom.base_value_ == pytest.approx(-2.0)
    np.testing.assert_allclose(slalom.predict(masks), scores, atol=TIGHT)


def test_an_additive_black_box_is_the_limit_of_a_large_background() -> None:
    masks = uniform_size_masks(500, 20)
    coef = np.random.default_rng(0).normal(size=20)
    slalom = Slalom().fit(masks, masks @ coef + 5.0)
    assert slalom.status_ is Status.OK
    assert np.isfinite(slalom.value_).all()
    test = uniform_size_masks(300, 20, seed=1)
    assert r2(test @ coef + 5.0, slalom.predict(test)) > 0.999
    np.testing.assert_allclose(slalom.attributions("removal"), coef, atol=0.1)


# --- noise


@pytest.mark.parametrize("level", [0.05, 0.3])
def test_noise_shrinks_with_the_number_of_answers(level: float) -> None:
    test = uniform_size_masks(400, 15, seed=9)
    truth = with_background(test)
    errors = []
    for n_masks in (60, 240, 960, 3840):
        masks = uniform_size_masks(n_masks, 15, seed=1)
        errors.append(1 - r2(truth, Slalom().fit(masks, noisy(masks, level)).predict(test)))
    assert all(later < earlier for earlier, later in pairwise(errors))
    assert errors[-1] < 30 / 3840 * level**2 * 3  # parameters / answers * noise, with room


# --- equivariance


@settings(deadline=None, max_examples=15)
@given(
    st.integers(0, 100), st.floats(-1e3, 1e3), st.sampled_from([1e-8, 0.1, 30.0, 1e8]), st.booleans()
)
def test_scores_shifted_and_scaled(seed: int, shift: float, scale: float, exact: bool) -> None:
    masks = uniform_size_masks(120, 6, seed)
    scores = with_background(masks, seed=seed) if exact else noisy(masks, seed=seed)
    slalom, moved = Slalom().fit(masks, scores), Slalom().fit(masks, scale * (scores + shift))
    # A shift of 1,000 leaves 13 digits of the scores.
    np.testing.assert_allclose(moved.importance_, slalom.importance_, atol=SEARCH)
    np.testing.assert_allclose(moved.value_ / scale - shift, slalom.value_, atol=SEARCH)
    assert moved.base_value_ / scale - shift == pytest.approx(slalom.base_value_, abs=SEARCH)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 100), st.booleans(), st.booleans())
def test_units_may_come_in_any_order(seed: int, exact: bool, background: bool) -> None:
    masks = uniform_size_masks(120, 6, seed)
    scores = with_background(masks, seed=seed) if exact else noisy(masks, seed=seed)
    order = np.random.default_rng(seed).permutation(6)
    slalom = Slalom(background=background).fit(masks, scores)
    permuted = Slalom(background=background).fit(masks[:, order], scores)
    np.testing.assert_allclose(permuted.value_, slalom.value_[order], atol=SEARCH)
    np.testing.assert_allclose(permuted.importance_, slalom.importance_[order], atol=SEARCH)


def test_rows_may_come_in_any_order() -> None:
    masks = uniform_size_masks(200, 9)
    scores, order = noisy(masks), np.random.default_rng(1).permutation(200)
    slalom, permuted = Slalom().fit(masks, scores), Slalom().fit(masks[order], scores[order])
    np.testing.assert_allclose(permuted.value_, slalom.value_, atol=SEARCH)


def test_identical_units_share_what_they_are_worth() -> None:
    masks = uniform_size_masks(300, 6)
    masks[:, 5] = masks[:, 4]
    slalom = Slalom().fit(masks, noisy(masks))
    assert slalom.value_[4] == pytest.approx(slalom.value_[5], abs=1e-6)
    assert slalom.importance_[4] == pytest.approx(slalom.importance_[5], abs=1e-6)


# --- weights


def test_weights_count_answers() -> None:
    masks = uniform_size_masks(100, 6)
    scores, times = noisy(masks), np.random.default_rng(0).integers(0, 3, 100)
    weighted = Slalom().fit(masks, scores, times)
    repeated = Slalom().fit(np.repeat(masks, times, axis=0), np.repeat(scores, times))
    dropped = Slalom().fit(masks[times > 0], scores[times > 0], times[times > 0])
    np.testing.assert_allclose(weighted.value_, repeated.value_, atol=SEARCH)
    np.testing.assert_allclose(weighted.importance_, repeated.importance_, atol=SEARCH)
    assert weighted.value_.tobytes() == dropped.value_.tobytes()


def test_an_answer_without_weight_is_not_seen() -> None:
    masks = uniform_size_masks(100, 6)
    masks[5] = 9.0
    scores, weights = noisy(masks), np.ones(100)
    weights[5], scores[5] = 0.0, 1e9
    slalom = Slalom().fit(masks, scores, weights)
    assert slalom.full_counts_.tolist() == [1.0] * 6
    assert abs(slalom.value_).max() < 100


# --- several outputs


def test_separate_outputs_are_independent_fits() -> None:
    masks = uniform_size_masks(200, 8)
    scores = np.column_stack([noisy(masks, seed=1), noisy(masks, seed=2), np.full(200, 3.0)])
    slalom = Slalom().fit(masks, scores)
    for output in range(2):
        alone = Slalom().fit(masks, scores[:, output])
        assert slalom.value_[output].tobytes() == alone.value_.tobytes()
        assert slalom.importance_[output].tobytes() == alone.importance_.tobytes()
    np.testing.assert_array_equal(slalom.value_[2], 3.0)
    assert slalom.predict(masks).shape == (200, 3)
    assert slalom.attributions("removal").shape == (3, 8)
    assert np.shape(slalom.unit_status("importance")) == (3, 8)


@pytest.mark.parametrize("level", [0.0, 0.3])
def test_shared_importances(level: float) -> None:
    masks = uniform_size_masks(200, 8)
    values, importance = np.random.default_rng(1).normal(size=(3, 8)), parameters(8)[1]
    w, w_0 = np.exp(importance), np.exp(1.0)
    scores = (masks @ (w * values).T + 0.3 * w_0) / (masks @ w + w_0)[:, None]
    scores = scores + level * scores.std() * np.random.default_rng(0).normal(size=scores.shape)
    slalom = Slalom(shared_importance=True).fit(masks, scores)
    assert slalom.importance_.tobytes() == np.tile(slalom.importance_[0], (3, 1)).tobytes()
    if not level:
        np.testing.assert_allclose(slalom.importance_[0], importance, atol=TIGHT)
        np.testing.assert_allclose(slalom.value_, values, atol=TIGHT)
        return
    shared = np.abs(slalom.importance_[0] - importance).mean()
    separate = np.abs(Slalom().fit(masks, scores).importance_ - importance).mean()
    assert shared < separate  # three outputs know more about them than one


def test_a_constant_output_shares_importances_without_harm() -> None:
    masks = uniform_size_masks(200, 8)
    scores = np.column_stack([with_background(masks), np.full(200, -4.0)])
    slalom = Slalom(shared_importance=True).fit(masks, scores)
    np.testing.assert_allclose(slalom.importance_[0], parameters(8)[1], atol=TIGHT)
    np.testing.assert_allclose(slalom.predict(masks), scores, atol=TIGHT)


def test_a_constant_output_has_as_many_heads_as_the_others() -> None:
    masks = uniform_size_masks(100, 5)
    scores = np.column_stack([with_background(masks), np.full(100, -4.0)])
    slalom = Slalom(heads=2).fit(masks, scores)
    np.testing.assert_allclose(slalom.value_[1], -4.0)
    np.testing.assert_allclose(slalom.predict(masks)[:, 1], -4.0)


# --- heads


@pytest.mark.parametrize("heads", [2, 4])
def test_heads_fit_a_model_with_two_heads(heads: int) -> None:
    masks, test = uniform_size_masks(600, 8), uniform_size_masks(200, 8, seed=1)
    scores = with_background(masks, n_heads=2, seed=3)
    slalom = Slalom(heads=heads).fit(masks, scores)
    truth = with_background(test, n_heads=2, seed=3)
    assert r2(truth, slalom.predict(test)) > 0.99
    assert r2(truth, slalom.predict(test)) > r2(truth, Slalom().fit(masks, scores).predict(test))
    assert abs(slalom.importance_.mean()) < TIGHT
    full = slalom.predict(np.ones((1, 8)))[0]
    weight = np.exp(np.append(slalom.importance_, slalom.background_importance_))
    value = np.append(slalom.value_, slalom.background_value_)
    assert weight @ value / weight.sum() == pytest.approx(full)  # summed up on the full text


@pytest.mark.parametrize("background", [True, False])
def test_one_of_several_heads_alone_is_a_slalom(background: bool) -> None:
    masks = uniform_size_masks(300, 6)
    slalom = Slalom(background=background, heads=2, prior=(1e-3, 1e-2)).fit(masks, noisy(masks))
    assert np.isfinite(slalom.predict(masks)).all()
    assert np.isfinite(slalom.value_).all()
    assert (slalom.background_importance_ == -np.inf) is not background


def test_auto_takes_as_many_heads_as_the_answers_show() -> None:
    masks, test = uniform_size_masks(300, 8), uniform_size_masks(200, 8, seed=1)
    scores = np.column_stack([noisy(masks), noisy(masks, 0.02, seed=3, n_heads=2)])
    slalom = Slalom(heads="auto").fit(masks, scores)
    assert slalom.n_heads_.tolist() == [1, 2]
    truth = np.column_stack([with_background(test), with_background(test, n_heads=2, seed=3)])
    one = Slalom().fit(masks, scores)
    errors, errors_of_one = (
        ((fitted.predict(test) - truth) ** 2).mean(axis=0) for fitted in (slalom, one)
    )
    assert errors[0] == pytest.approx(errors_of_one[0])  # the same fit
    assert errors[1] < 0.5 * errors_of_one[1]
    sums = slalom.attributions("shapley").sum(axis=1)
    np.testing.assert_allclose(sums, slalom.predict(np.ones((1, 8)))[0] - slalom.base_value_)


@pytest.mark.parametrize("background", [True, False])
def test_auto_finds_the_published_model_where_that_is_exact(background: bool) -> None:
    masks = uniform_size_masks(100, 5)
    weight, value = np.exp(np.arange(5.0) / 3), np.arange(5.0)
    kept = masks[masks.any(axis=1)]
    scores = kept @ (weight * value) / (kept @ weight)
    slalom = Slalom(background=background, heads="auto").fit(kept, scores)
    assert slalom.n_heads_.tolist() == [1]
    np.testing.assert_allclose(slalom.value_, value, atol=1e-7)


@pytest.mark.parametrize("n_masks", [2, 3, 8, 20])
@pytest.mark.parametrize("heads", [2, "auto"])
def test_heads_of_few_answers_are_finite(n_masks: int, heads: Any) -> None:
    masks = uniform_size_masks(n_masks, 4)
    slalom = Slalom(heads=heads).fit(masks, noisy(masks))
    for kind in slalom.kinds:
        assert np.isfinite(slalom.attributions(kind)).all()


@pytest.mark.parametrize("prior", ["cv", (1e-3, 1e-2)])
def test_auto_goes_with_every_prior(prior: Any) -> None:
    masks, test = uniform_size_masks(200, 6), uniform_size_masks(200, 6, seed=1)
    slalom = Slalom(heads="auto", prior=prior).fit(masks, noisy(masks, 0.02, n_heads=2))
    assert r2(with_background(test, 2), slalom.predict(test)) > 0.9


# --- priors and randomness


@pytest.mark.parametrize("prior", ["evidence", "cv", (1e-3, 1e-2)])
def test_every_prior_fits(prior: Any) -> None:
    masks, test = uniform_size_masks(300, 8), uniform_size_masks(200, 8, seed=1)
    slalom = Slalom(prior=prior).fit(masks, noisy(masks))
    assert r2(with_background(test), slalom.predict(test)) > 0.9
    assert slalom.status_ is Status.OK


def test_a_strong_prior_shrinks_towards_the_mean() -> None:
    masks = uniform_size_masks(300, 8)
    scores = noisy(masks)
    slalom = Slalom(prior=(1e9, 1e9)).fit(masks, scores)
    np.testing.assert_allclose(slalom.value_, scores.mean(), atol=1e-5)
    np.testing.assert_allclose(slalom.importance_, 0, atol=1e-5)


def test_the_same_fit_twice_gives_the_same_bytes() -> None:
    masks = uniform_size_masks(200, 8)
    for options in ({}, {"heads": 2}, {"prior": "cv"}, {"background": False}):
        one, two = (Slalom(**options).fit(masks, noisy(masks)) for _ in range(2))
        assert one.value_.tobytes() == two.value_.tobytes()
        assert one.importance_.tobytes() == two.importance_.tobytes()


@pytest.mark.parametrize("options", [{}, {"heads": 2}])
def test_the_seed_only_matters_where_there_is_chance(options: dict[str, Any]) -> None:
    masks = uniform_size_masks(200, 8)
    one, two = (Slalom(**options, random_state=seed).fit(masks, noisy(masks)) for seed in (0, 1))
    assert one.value_.tobytes() == two.value_.tobytes()


# --- odd texts: never a warning, an exception or NaN


def assert_finite(slalom: Slalom, masks: FloatArray) -> None:
    for kind in Slalom.kinds:
        assert np.isfinite(slalom.attributions(kind)).all(), kind
    assert np.isfinite(slalom.predict(np.vstack([masks, np.zeros(masks.shape[1])]))).all()
    assert np.isfinite(slalom.base_value_)
    assert np.isfinite(slalom.noise_)


every_background = pytest.mark.parametrize("background", [True, False])


@every_background
def test_one_unit(background: bool) -> None:
    masks = np.array([[1.0], [0.0]])
    slalom = Slalom(background=background).fit(masks, np.array([2.0, 0.5]))
    assert_finite(slalom, masks)
    np.testing.assert_allclose(slalom.predict(masks), [2.0, 0.5], atol=1e-6)
    np.testing.assert_allclose(slalom.attributions("removal"), [1.5], atol=1e-6)
    assert slalom.unit_status("importance") == [Status.IMPORTANCE_NOT_IDENTIFIABLE]


@every_background
def test_one_unit_in_copies(background: bool) -> None:
    masks = np.array([[0.0], [1.0], [2.0], [5.0]])
    slalom = Slalom(background=background).fit(masks, np.array([0.0, 1.0, 1.4, 1.7]))
    assert_finite(slalom, masks)


@every_background
def test_two_units(background: bool) -> None:
    masks = all_masks(2)
    scores = np.array([0.5, 2.0, -1.0, 1.5])
    slalom = Slalom(background=background).fit(masks, scores)
    assert_finite(slalom, masks)
    np.testing.assert_allclose(slalom.predict(masks), scores, atol=1e-6)


@every_background
@pytest.mark.parametrize(
    ("masks", "scores"),
    [
        (np.ones((1, 4)), np.array([3.0])),
        (np.zeros((1, 4)), np.array([3.0])),
        (np.zeros((3, 4)), np.array([3.0, 4.0, 5.0])),
        (np.ones((3, 4)), np.array([3.0, 4.0, 5.0])),
        (all_masks(4), np.full(16, -7.0)),
        (all_masks(4), np.zeros(16)),
        (all_masks(4), 1e8 + 1e-9 * np.arange(16)),
    ],
)
def test_answers_that_do_not_vary(background: bool, masks: FloatArray, scores: FloatArray) -> None:
    slalom = Slalom(background=background).fit(masks, scores)
    assert slalom.status_ is Status.NO_VARIATION
    assert slalom.unit_status("importance") == [Status.NO_VARIATION] * 4
    assert_finite(slalom, masks)
    np.testing.assert_allclose(slalom.predict(masks), scores.mean())


@every_background
@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1.0, 1e8, 1e30])
@pytest.mark.parametrize("n_masks", [2, 3, 8, 40])
def test_any_scale_and_number_of_answers(background: bool, scale: float, n_masks: int) -> None:
    masks = uniform_size_masks(n_masks, 7)
    slalom = Slalom(background=background).fit(masks, scale * noisy(masks))
    assert_finite(slalom, masks)
    if n_masks < slalom.min_queries(7):
        assert slalom.status_ in (Status.UNDERDETERMINED, Status.NO_VARIATION)


@every_background
@pytest.mark.parametrize("column", [0.0, 1.0])
def test_a_unit_that_never_varies(background: bool, column: float) -> None:
    masks = uniform_size_masks(100, 6)
    masks[:, 2] = column
    slalom = Slalom(background=background).fit(masks, noisy(masks))
    assert_finite(slalom, masks)
    if background or not column:
        assert slalom.status_ is Status.UNDERDETERMINED


@every_background
def test_a_step_a_tie_and_an_outlier(background: bool) -> None:
    masks = uniform_size_masks(150, 7)
    jump = np.where(masks[:, 0] > 0, 1.0, -1.0)
    outlier = noisy(masks)
    outlier[7] = 1e6
    for scores in (jump, np.round(noisy(masks)), outlier, masks.prod(axis=1)):
        assert_finite(Slalom(background=background).fit(masks, scores), masks)


@pytest.mark.parametrize("prior", ["evidence", "cv", (0.0, 0.0), (1e6, 0.0), (0.0, 1e3)])
@pytest.mark.parametrize("heads", [1, 2])
def test_random_answers_to_random_counts(prior: Any, heads: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(10):
        shape = int(rng.integers(1, 30)), int(rng.integers(1, 8))
        masks = rng.integers(0, 3, shape).astype(float)
        slalom = Slalom(background=bool(rng.integers(2)), heads=heads, prior=prior, max_iter=30)
        assert_finite(slalom.fit(masks, rng.standard_cauchy(len(masks))), masks)


def test_a_unit_whose_importance_has_no_effect_is_named() -> None:
    # All values are alike but one unit's in a pair: only the pair's ratio can be known.
    masks = all_masks(3)[1:]
    scores = published(masks, np.array([1.0, 1.0, 1.0]) * 2, np.zeros(3))
    assert Slalom().fit(masks, scores).status_ is Status.NO_VARIATION
    masks = np.eye(3)
    slalom = Slalom(background=False).fit(masks, np.array([1.0, 2.0, 3.0]))
    assert slalom.status_ is Status.UNDERDETERMINED
    assert slalom.unit_status("importance") == [Status.IMPORTANCE_NOT_IDENTIFIABLE] * 3
    # Three answers for five parameters: values are drawn to their mean as by .3 of an answer more.
    np.testing.assert_allclose(slalom.value_, 2 + np.array([-1.0, 0.0, 1.0]) / 1.3, rtol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_fewer_answers_than_parameters_are_not_followed_into_noise(seed: int) -> None:
    masks = uniform_size_masks(290, 60, seed)
    scores = noisy(masks, 1.0, seed)
    slalom = Slalom().fit(masks[:90], scores[:90])
    assert slalom.status_ is Status.UNDERDETERMINED
    assert r2(scores[90:], slalom.predict(masks[90:])) > 0


# --- the estimator


def test_clone_parameters_and_pickle() -> None:
    slalom = Slalom(False, 2, shared_importance=True, prior=(0.1, 0.2), max_iter=7, random_state=3)
    assert clone(slalom).get_params() == slalom.get_params()
    assert clone(slalom).set_params(heads=1).heads == 1
    masks = uniform_size_masks(100, 5)
    slalom = Slalom().fit(masks, noisy(masks))
    again = pickle.loads(pickle.dumps(slalom))
    assert again.predict(masks).tobytes() == slalom.predict(masks).tobytes()
    assert slalom.score(masks, noisy(masks)) > 0.9


@pytest.mark.parametrize(
    "check",
    [
        "get_params_invariance",
        "mixin_order",
        "no_attributes_set_in_init",
        "parameters_default_constructible",
        "sample_weights_list",
        "sample_weights_not_overwritten",
        "sample_weights_pandas_series",
        "set_params",
    ],
)
def test_sklearn_checks(check: str) -> None:
    getattr(estimator_checks, f"check_{check}")("Slalom", Slalom())


def test_arguments_are_not_changed() -> None:
    masks, weights = uniform_size_masks(60, 5), np.ones(60)
    scores = noisy(masks)
    before = masks.copy(), scores.copy(), weights.copy()
    for array in (masks, scores, weights):
        array.flags.writeable = False
    Slalom().fit(masks, scores, weights)
    for array, copy in zip((masks, scores, weights), before, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"heads": 0}, "heads=0"),
        ({"heads": "two"}, "or heads='auto'"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"prior": "none"}, "expected 'evidence', 'cv' or two strengths"),
        ({"prior": (-1.0, 0.1)}, "two non-negative strengths"),
        ({"prior": (1.0,)}, "two non-negative strengths"),
    ],
)
def test_options_without_meaning_are_refused(options: dict[str, Any], match: str) -> None:
    masks = uniform_size_masks(20, 3)
    with pytest.raises(InputError, match=match):
        Slalom(**options).fit(masks, masks @ np.arange(3.0))


def test_weights_of_zero_only_are_refused() -> None:
    with pytest.raises(InputError, match="expected a positive one"):
        Slalom().fit(np.eye(3), np.ones(3), np.zeros(3))


def test_unknown_kinds_and_other_widths_are_refused() -> None:
    slalom = Slalom().fit(np.eye(3), np.arange(3.0))
    with pytest.raises(InputError, match="kind 'shap'"):
        slalom.attributions("shap")
    with pytest.raises(InputError, match=r"expected \(n_masks, 3\)"):
        slalom.predict(np.ones((1, 4)))


def test_min_queries() -> None:
    assert Slalom().min_queries(10) == 21
    assert Slalom(background=False).min_queries(10) == 19
    assert Slalom(heads=3).min_queries(10) == 63
    assert Slalom(heads="auto").min_queries(10) == 21
