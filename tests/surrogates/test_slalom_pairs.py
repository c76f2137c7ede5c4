"""SLALOM with pairs: exact where the answers are its own, Shapley values by enumeration, the contract."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import piste
from piste import InputError
from piste._typing import FloatArray
from piste.fitting import slalom_pairs
from piste.fitting._pair_shapley import pair_shapley
from piste.fitting.result import Status
from piste.fitting.shapley import exact_shapley
from piste.surrogates import Slalom, SlalomPairs
from piste.surrogates.base import Surrogate


def drawn(n_masks: int, n_units: int, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).integers(0, 2, (n_masks, n_units)).astype(float)


def everything(n_units: int) -> FloatArray:
    return np.array(list(product([0.0, 1.0], repeat=n_units)))


def symmetric(n_units: int, rng: np.random.Generator) -> FloatArray:
    upper = np.triu(rng.normal(size=(n_units, n_units)), 1)
    return upper + upper.T


def slalom_scores(masks: FloatArray, seed: int = 0) -> FloatArray:
    """An exact SLALOM with a background."""
    rng = np.random.default_rng(seed)
    value, weight = rng.normal(size=masks.shape[1]), np.exp(rng.normal(size=masks.shape[1]))
    scores: FloatArray = (masks @ (weight * value) + 0.7) / (masks @ weight + 2.0)
    return scores


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 9), st.sampled_from([-np.inf, -3.0, 0.0, 4.0]))
def test_shapley_values_of_attended_pairs_are_those_of_the_definition(
    seed: int, n_units: int, background: float
) -> None:
    rng = np.random.default_rng(seed)
    pairs, importance = symmetric(n_units, rng), rng.normal(scale=2.0, size=n_units)
    masks = everything(n_units)
    total = masks @ np.exp(importance) + np.exp(background)
    shares = masks * np.exp(importance) / np.where(total == 0, 1.0, total)[:, None]
    scores = ((shares @ pairs) * shares).sum(axis=1) / 2
    found = pair_shapley(pairs, importance, background)
    np.testing.assert_allclose(
        found, exact_shapley(scores, masks), atol=1e-13 * (1 + np.abs(pairs).max())
    )


def test_exact_slalom_has_no_pairs() -> None:
    masks = drawn(300, 8)
    scores = slalom_scores(masks)
    fitted = SlalomPairs().fit(masks, scores)
    assert not fitted.presence_pairs_.any()
    assert not fitted.attended_pairs_.any()
    np.testing.assert_allclose(fitted.predict(masks), scores, atol=1e-9)
    plain = Slalom().fit(masks, scores)
    np.testing.assert_allclose(fitted.attributions("shapley"), plain.attributions("shapley"), atol=1e-9)


def test_interactions_of_an_additive_game_come_back() -> None:
    masks, rng = drawn(400, 10), np.random.default_rng(1)
    pairs = symmetric(10, rng)
    test = drawn(200, 10, seed=2)

    def game(z: FloatArray) -> FloatArray:
        scores: FloatArray = z @ np.linspace(-1, 1, 10) + ((z @ pairs) * z).sum(axis=1) / 2
        return scores

    fitted = SlalomPairs().fit(masks, game(masks))
    truth = game(test)
    assert np.mean((fitted.predict(test) - truth) ** 2) < 1e-3 * truth.var()
    np.testing.assert_allclose(fitted.joint_removal(), pairs, atol=0.1)
    phi = np.linspace(-1, 1, 10) + pairs.sum(axis=1) / 2
    np.testing.assert_allclose(fitted.attributions("shapley"), phi, atol=0.05)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 7))
def test_shapley_values_are_those_of_the_prediction(seed: int, n_units: int) -> None:
    masks = drawn(80, n_units, seed)
    scores = np.random.default_rng(seed).normal(size=80) * 10.0 ** (seed % 9 - 4)
    fitted = SlalomPairs().fit(masks, scores)
    predicted = fitted.predict(everything(n_units))
    expected = exact_shapley(predicted, everything(n_units))
    scale = np.abs(predicted).max()
    np.testing.assert_allclose(fitted.attributions(), expected, atol=1e-10 * scale)


def test_removal_and_joint_removal_are_differences_of_predictions() -> None:
    masks = drawn(200, 5)
    fitted = SlalomPairs().fit(masks, np.tanh(masks @ np.arange(5.0) - 3 * masks[:, 0] * masks[:, 4]))
    full, without = fitted.predict(np.ones((1, 5)))[0], fitted.predict(1 - np.eye(5))
    np.testing.assert_allclose(fitted.attributions("removal"), full - without, atol=1e-12)
    both = fitted.predict(np.array([[0.0, 1, 1, 1, 0]]))[0]
    joint = fitted.joint_removal()
    assert joint[0, 4] == pytest.approx(full - without[0] - without[4] + both, abs=1e-12)
    np.testing.assert_array_equal(joint, joint.T)
    assert not np.diag(joint).any()


def test_predicts_unseen_masks_of_a_gated_game_better_than_one_head() -> None:
    def game(z: FloatArray) -> FloatArray:
        scores: FloatArray = z @ np.linspace(-1, 1, 12) * (1 - 1.5 * z[:, 3]) / (1 + z.sum(axis=1) / 6)
        return scores

    masks, test = drawn(500, 12), drawn(300, 12, seed=1)
    answers, truth = game(masks), game(test)
    one = np.mean((Slalom().fit(masks, answers).predict(test) - truth) ** 2)
    fitted = SlalomPairs().fit(masks, answers)
    assert np.mean((fitted.predict(test) - truth) ** 2) < 0.2 * one
    np.testing.assert_allclose(fitted.importance_.mean(), 0.0, atol=1e-12)


def test_each_output_is_fitted_as_if_alone() -> None:
    masks = drawn(120, 5)
    scores = np.column_stack([masks[:, 0] * masks[:, 1], masks @ np.arange(5.0)])
    both = SlalomPairs().fit(masks, scores)
    for output, column in enumerate(scores.T):
        alone = SlalomPairs().fit(masks, column)
        # Products of two columns round otherwise than of one, and the search for strengths follows.
        np.testing.assert_allclose(both.attributions()[output], alone.attributions(), atol=1e-7)
        np.testing.assert_allclose(both.predict(masks)[:, output], alone.predict(masks), atol=1e-7)
    assert both.joint_removal().shape == (2, 5, 5)
    assert both.base_value_.shape == (2,)  # type: ignore[union-attr]


def test_weight_counts_answers_and_none_leaves_a_row_out() -> None:
    masks = drawn(100, 5)
    scores = (
        masks[:, 0] * masks[:, 1] - masks[:, 2] + np.random.default_rng(3).normal(scale=0.1, size=100)
    )
    weights = np.ones(100)
    weights[:10] = 0.0
    left_out = SlalomPairs().fit(masks, scores, weights)
    np.testing.assert_array_equal(
        left_out.attributions(), SlalomPairs().fit(masks[10:], scores[10:]).attributions()
    )


def test_more_masks_than_are_solved_with_are_drawn_from(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = drawn(300, 6)
    scores = masks[:, 0] * masks[:, 1] - masks[:, 2]
    monkeypatch.setattr(slalom_pairs, "MOST_MASKS", 200)
    monkeypatch.setattr(slalom_pairs, "MOST_FOR_STRENGTHS", 100)
    fitted = SlalomPairs().fit(masks, scores)
    assert np.mean((fitted.predict(masks) - scores) ** 2) < 1e-2 * scores.var()
    again = SlalomPairs().fit(masks, scores)
    np.testing.assert_array_equal(fitted.attributions(), again.attributions())


def test_nothing_varies() -> None:
    fitted = SlalomPairs().fit(drawn(20, 3), np.full(20, 2.0))
    assert fitted.status_ is Status.NO_VARIATION
    np.testing.assert_allclose(fitted.attributions(), 0.0, atol=1e-12)
    np.testing.assert_allclose(fitted.predict(np.zeros((1, 3))), 2.0)


@pytest.mark.parametrize("n_units", [1, 2])
def test_very_short_texts(n_units: int) -> None:
    masks = everything(n_units)
    fitted = SlalomPairs().fit(masks, masks.sum(axis=1) ** 2)
    np.testing.assert_allclose(fitted.predict(masks), masks.sum(axis=1) ** 2, atol=1e-2)


def test_errors_are_infinite_and_say_so() -> None:
    fitted = SlalomPairs().fit(drawn(50, 3), drawn(50, 3) @ [1.0, 2.0, 3.0])
    assert np.isinf(fitted.std_errors()).all()
    low, high = fitted.confidence_interval("removal")
    assert np.isneginf(low).all()
    assert np.isposinf(high).all()


@pytest.mark.parametrize(
    ("masks", "options", "said"),
    [
        (np.array([[2.0, 1.0], [0.0, 1.0]]), {}, "0/1"),
        (np.eye(2), {"max_iter": 0}, "max_iter"),
        (np.eye(2), {"random_state": -1}, "random_state"),
    ],
)
def test_refuses_what_it_cannot_use(masks: FloatArray, options: dict[str, int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        SlalomPairs(**options).fit(masks, [0.0, 1.0])


def test_is_a_surrogate_like_the_others() -> None:
    surrogate = SlalomPairs(random_state=3)
    assert isinstance(surrogate, Surrogate)
    assert clone(surrogate).get_params() == {"max_iter": 100, "random_state": 3}
    assert surrogate.min_queries(10) == 21
    with pytest.raises(NotFittedError):
        surrogate.predict(np.ones((1, 2)))
    with pytest.raises(InputError, match="removal"):
        SlalomPairs().fit(drawn(30, 3), drawn(30, 3)[:, 0]).attributions("value")


def test_explains_a_text_by_its_name() -> None:
    study = piste.explain(
        lambda texts: [float("not good" in text) - float("bad" in text) for text in texts],
        "this is not good and it is bad",
        surrogates=("slalom", "slalom-pairs"),
        space="raw",
        budget=200,
    )
    table = study.attributions.set_index(["surrogate", "kind", "token"])["score"].sort_index()
    shapley = table["slalom-pairs", "shapley"]
    assert shapley["bad"] < -0.5
    assert shapley["not"] > 0.2
    r2 = study.fidelity.set_index("surrogate")["r2"]
    assert r2["slalom-pairs"] > r2["slalom"]
