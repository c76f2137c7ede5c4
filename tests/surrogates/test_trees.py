"""Trees: values by enumeration and by shap, the estimator's contract, what is left out."""

import builtins
import sys
import warnings
from itertools import product
from math import factorial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import piste
from piste import InputError
from piste._typing import FloatArray
from piste.fitting.result import Status
from piste.surrogates import KernelShap, Trees
from piste.surrogates.base import Surrogate
from piste.surrogates.control import fit_control

pytest.importorskip("lightgbm")


def answers(n_masks: int = 200, n_units: int = 6, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Masks, and scores with interactions of three orders."""
    rng = np.random.default_rng(seed)
    masks = rng.integers(0, 2, (n_masks, n_units)).astype(float)
    z = masks.T
    return masks, 2 * z[0] - z[1] + 3 * z[1] * z[2] - 2 * z[3] * z[4] * z[5] + 0.5


def enumerated(trees: Trees) -> FloatArray:
    """Shapley values by their definition, from all masks."""
    n = trees.n_features_in_
    masks = np.array(list(product([0.0, 1.0], repeat=n)))
    scores = trees.predict(masks)
    place = 2 ** np.arange(n)[::-1]
    values = np.zeros(n)
    for unit in range(n):
        without = masks[masks[:, unit] == 0]
        size = without.sum(axis=1).astype(int)
        share = np.array([factorial(s) * factorial(n - s - 1) / factorial(n) for s in size])
        before = (without @ place).astype(int)
        values[unit] = share @ (scores[before + place[unit]] - scores[before])
    return values


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 7))
def test_shapley_values_are_those_of_the_definition(seed: int, n_units: int) -> None:
    rng = np.random.default_rng(seed)
    masks = rng.integers(0, 2, (60, n_units)).astype(float)
    trees = Trees(max_rounds=20).fit(masks, rng.normal(size=60) * 10.0 ** rng.integers(-9, 9))
    scale = np.abs(trees.predict(masks)).max()
    np.testing.assert_allclose(trees.attributions(), enumerated(trees), atol=1e-12 * scale)


def test_shapley_values_are_those_of_shap_to_single_precision() -> None:
    with warnings.catch_warnings():  # its plots warn about matplotlib when they are imported
        warnings.simplefilter("ignore")
        shap = pytest.importorskip("shap")
    trees = Trees(max_rounds=100).fit(*answers())
    fitted = trees._fits[0]
    explainer = shap.TreeExplainer(
        fitted.booster, data=np.zeros((1, 6)), feature_perturbation="interventional"
    )
    by_shap = fitted.spread * explainer.shap_values(np.ones((1, 6)), check_additivity=False)[0]
    np.testing.assert_allclose(trees.attributions(), by_shap, atol=1e-6)


def test_learns_interactions_of_every_order() -> None:
    masks, scores = answers(400)
    test, truth = answers(200, seed=1)
    trees = Trees(max_rounds=200).fit(masks, scores)
    assert np.mean((trees.predict(test) - truth) ** 2) < 0.01 * truth.var()
    assert trees.status_ is Status.OK


def test_left_out_predictions_do_not_depend_on_the_answer_itself() -> None:
    masks, scores = answers()
    noise = np.random.default_rng(3).normal(size=len(scores))
    trees = Trees(max_rounds=50).fit(masks, noise)  # nothing to learn: unseen answers stay unknown
    assert abs(np.corrcoef(trees.left_out_, noise)[0, 1]) < 0.3
    assert np.corrcoef(trees.predict(masks), noise)[0, 1] > 0.3
    assert Trees(max_rounds=50).fit(masks, scores, np.arange(200) > 0).left_out_[1:].all()


def test_outputs_are_fitted_each_on_its_own() -> None:
    masks, scores = answers()
    both = Trees(max_rounds=30).fit(masks, np.column_stack([scores, -2 * scores + 1]))
    alone = Trees(max_rounds=30).fit(masks, scores)
    np.testing.assert_array_equal(both.attributions()[0], alone.attributions())
    np.testing.assert_array_equal(both.predict(masks)[:, 0], alone.predict(masks))
    assert both.attributions("removal").shape == both.std_errors().shape == (2, 6)


def test_a_weight_of_zero_leaves_the_row_out() -> None:
    masks, scores = answers()
    kept = np.arange(len(masks)) % 4 > 0
    weighted = Trees(max_rounds=30).fit(masks, np.where(kept, scores, 99.0), kept.astype(float))
    alone = Trees(max_rounds=30).fit(masks[kept], scores[kept])
    np.testing.assert_array_equal(weighted.predict(masks), alone.predict(masks))
    assert np.isnan(weighted.left_out_[~kept]).all()


def test_removal_is_the_drop_of_the_prediction() -> None:
    trees = Trees(max_rounds=30).fit(*answers())
    left = 1.0 - np.eye(6)
    drop = trees.predict(np.ones((1, 6))) - trees.predict(left)
    np.testing.assert_array_equal(trees.attributions("removal"), drop)


@pytest.mark.parametrize("n_masks", [1, 2, 4, 9])
def test_few_masks_are_underdetermined(n_masks: int) -> None:
    masks, scores = answers(n_masks, 9 if n_masks > 8 else 6)
    trees = Trees().fit(masks, scores)
    assert np.isfinite(trees.attributions()).all()
    assert trees.status_ in (Status.UNDERDETERMINED, Status.NO_VARIATION)


def test_a_constant_has_nothing_to_attribute() -> None:
    masks, _ = answers()
    trees = Trees().fit(masks, np.full(len(masks), 7.0))
    assert trees.status_ is Status.NO_VARIATION
    assert not trees.attributions().any()
    np.testing.assert_array_equal(trees.predict(masks), 7.0)


def test_is_a_surrogate_and_a_sklearn_estimator() -> None:
    trees = Trees(max_rounds=7, random_state=3)
    assert isinstance(trees, Surrogate)
    assert clone(trees).get_params() == {"max_rounds": 7, "random_state": 3}
    with pytest.raises(NotFittedError):
        trees.predict(np.ones((1, 2)))


def test_errors_are_infinite_for_nothing_is_known_of_them() -> None:
    trees = Trees(max_rounds=5).fit(*answers())
    low, high = trees.confidence_interval("removal", 0.9)
    assert np.isinf(trees.std_errors()).all()
    assert (low == -np.inf).all()
    assert (high == np.inf).all()


def test_a_seed_of_numpy_is_one() -> None:
    masks, scores = answers()
    number: Any = np.int64(3)
    given, plain = (Trees(max_rounds=5, random_state=seed).fit(masks, scores) for seed in (number, 3))
    np.testing.assert_array_equal(given.predict(masks), plain.predict(masks))


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({"max_rounds": 0}, {}, "max_rounds=0"),
        ({"random_state": np.random.RandomState(0)}, {}, "random_state=RandomState.*a whole number"),
        ({"random_state": -1}, {}, "random_state=-1"),
        ({"random_state": True}, {}, "random_state=True"),
        ({"random_state": None}, {}, "random_state=None"),
        ({}, {"masks": 2 * np.ones((3, 2)), "scores": np.arange(3.0)}, "entries other than 0 and 1"),
        ({}, {"sample_weight": np.zeros(200)}, "zeros only"),
    ],
)
def test_what_cannot_be_used_is_refused(
    options: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    masks, scores = answers()
    with pytest.raises(InputError, match=message):
        Trees(**options).fit(**{"masks": masks, "scores": scores} | arguments)


def test_without_lightgbm_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any, **more: Any) -> Any:
        if name == "lightgbm":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "lightgbm", raising=False)
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(InputError, match=r"pip install 'piste\[trees\]'"):
        Trees().fit(*answers())


def test_explains_a_text_by_name() -> None:
    def model(texts: list[str]) -> list[float]:
        return [len(text.split()) + 5.0 * ("good" in text and "not" in text) for text in texts]

    study = piste.explain(model, "not a good film at all", surrogates="trees", budget=60, space="raw")
    frame = study.attributions
    assert set(frame["kind"]) == {"shapley", "removal"}
    values = frame[frame["kind"] == "shapley"].set_index("token")["score"]
    assert values["not"] > values["film"]


def test_as_a_control_it_changes_no_shapley_value_of_all_masks() -> None:
    masks = np.array(list(product([0.0, 1.0], repeat=6)))
    z = masks.T
    scores = z[0] + z[1] * z[2] - 2 * z[3] * z[4] * z[5]
    plain = KernelShap().fit(masks, scores)
    controlled = KernelShap(control=Trees(max_rounds=100)).fit(masks, scores)
    np.testing.assert_allclose(controlled.attributions(), plain.attributions(), atol=1e-9)


def test_as_a_control_it_tells_errors_from_masks_that_it_has_not_seen() -> None:
    masks, scores = answers(80)
    masks = np.vstack([np.ones(6), np.zeros(6), masks])
    scores = np.concatenate([[2.5, 0.5], scores])[:, None]
    trees = Trees(max_rounds=60).fit(masks, scores[:, 0])
    control = fit_control(trees, masks, scores)
    inner = (masks.sum(axis=1) > 0) & (masks.sum(axis=1) < 6)
    unseen = (control.left_out - control.beyond)[:, 0] + trees.predict(masks)
    np.testing.assert_allclose(unseen[inner], trees.left_out_[inner], atol=1e-12)
    np.testing.assert_array_equal(control.left_out[~inner], control.beyond[~inner])
