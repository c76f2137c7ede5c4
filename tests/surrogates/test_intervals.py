"""Standard errors, intervals and summaries as the estimators offer them."""

import pickle
from itertools import product

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.exceptions import NotFittedError

from piste._errors import InputError
from piste._typing import FloatArray
from piste.fitting.linear_inference import LinearCovariance
from piste.fitting.result import Status
from piste.fitting.slalom_inference import SLALOM_COVARIANCES, SlalomCovariance
from piste.sampling.designs import draw, with_anchors
from piste.surrogates import KernelShap, Lime, Slalom
from piste.surrogates.base import Surrogate

TIGHT = 1e-10


def masks_and_scores(
    n_masks: int = 200, n_units: int = 6, seed: int = 0, law: str = "leverage"
) -> tuple[FloatArray, FloatArray]:
    """A SLALOM with background and noise .02, two outputs."""
    rng = np.random.default_rng(seed)
    n_masks = min(n_masks, 2**n_units)
    masks = with_anchors(draw(law, n_units, n_masks - 2, rng)).masks.astype(float)
    weight, value = np.exp(rng.normal(size=n_units)), 2 * rng.normal(size=(2, n_units))
    scores = (masks @ (weight * value).T + 0.3) / (masks @ weight + 1.0)[:, None]
    return masks, scores + 0.02 * rng.normal(size=scores.shape)


def all_masks(n_units: int) -> FloatArray:
    return np.array(list(product([0.0, 1.0], repeat=n_units)))


# --- LIME


@pytest.mark.parametrize("kind", ["classical", "HC0", "HC1", "HC2", "HC3"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_lime_is_statsmodels_wls(kind: LinearCovariance, fit_intercept: bool) -> None:
    masks, scores = masks_and_scores(n_units=8)
    given = np.random.default_rng(1).random(len(masks)) + 0.5
    lime = Lime(fit_intercept=fit_intercept).fit(masks, scores, given)
    design = sm.add_constant(masks, prepend=True) if fit_intercept else masks
    first = int(fit_intercept)
    for output in range(2):
        wls = sm.WLS(scores[:, output], design, weights=given * lime.weights_).fit()
        reference = wls if kind == "classical" else wls.get_robustcov_results(kind, use_t=True)
        np.testing.assert_allclose(lime.attributions()[output], reference.params[first:], atol=TIGHT)
        errors = lime.std_errors(covariance=kind)[output]
        np.testing.assert_allclose(errors, reference.bse[first:], rtol=TIGHT)
        low, high = lime.confidence_interval(level=0.9, covariance=kind)
        expected = np.asarray(reference.conf_int(0.1))[first:]
        np.testing.assert_allclose(np.column_stack([low[output], high[output]]), expected, atol=1e-9)


def test_lime_with_a_penalty_has_the_errors_of_the_penalised_fit() -> None:
    """Influence by refitting: d coefficients / d score of one row, no bias term."""
    masks, scores = masks_and_scores(n_units=5, n_masks=30)
    lime = Lime(alpha=2.0, kernel_width=None).fit(masks, scores[:, 0])
    e = scores[:, 0] - lime.predict(masks)
    influence = np.empty((5, len(masks)))
    for row in range(len(masks)):
        bumped = scores[:, 0].copy()
        bumped[row] += 1.0
        influence[:, row] = Lime(alpha=2.0, kernel_width=None).fit(masks, bumped).coef_ - lime.coef_
    expected = np.sqrt((influence**2) @ e**2)
    np.testing.assert_allclose(lime.std_errors(covariance="HC0"), expected, rtol=1e-8)


def test_units_that_were_not_selected_have_no_error() -> None:
    masks, scores = masks_and_scores(n_units=8)
    lime = Lime(n_features=3).fit(masks, scores)
    errors = lime.std_errors()
    np.testing.assert_array_equal(np.isnan(errors), ~lime.selected_)
    low, high = lime.confidence_interval()
    assert np.isnan(low[~lime.selected_]).all()
    assert (low[lime.selected_] < high[lime.selected_]).all()


def test_pairs_cancel_what_a_linear_model_misses() -> None:
    """Products of two units are even under complement: the pairs' errors know, single rows' do not.

    150 draws of 100 masks: the actual error is known to 6 % per unit, 2 % on average.
    """
    kinds: tuple[LinearCovariance, ...] = ("CR2", "HC2")
    values, variances = [], []
    for seed in range(150):
        rng = np.random.default_rng([2, seed])
        masks = with_anchors(draw("leverage", 8, 98, rng)).masks.astype(float)
        centred = masks - 0.5
        scores = masks @ np.arange(8.0) + 4 * centred[:, ::2] @ np.ones(4) * (
            centred[:, 1::2] @ np.ones(4)
        )
        lime = Lime(kernel_width=None).fit(masks, scores + 0.1 * rng.normal(size=len(masks)))
        values.append(lime.coef_)
        variances.append([lime.std_errors(covariance=kind) ** 2 for kind in kinds])
    actual = np.sqrt(np.var(values, axis=0).mean())
    by_pair, by_row = np.sqrt(np.mean(variances, axis=(0, 2)))
    assert by_pair == pytest.approx(actual, rel=0.25)
    assert by_row > 1.5 * actual


# --- KernelShap


@pytest.mark.parametrize("n_units", range(1, 8))
@pytest.mark.parametrize("kind", ["design", "bootstrap"])
def test_enumerated_shapley_values_have_no_error(n_units: int, kind: LinearCovariance) -> None:
    masks = all_masks(n_units)
    scores = np.random.default_rng(3).normal(size=(len(masks), 2))
    shap = KernelShap().fit(masks, scores)
    np.testing.assert_allclose(shap.std_errors(covariance=kind), 0.0, atol=1e-12)
    low, high = shap.confidence_interval(covariance=kind)
    np.testing.assert_allclose(low, high, atol=1e-11)
    np.testing.assert_allclose(low, shap.values_, atol=1e-11)


def test_shapley_errors_bear_the_constraint() -> None:
    """What one value gains the others lose: for two units both errors are alike."""
    masks = np.repeat([[0.0, 0], [1, 0], [0, 1], [1, 1]], [1, 5, 5, 1], axis=0)
    scores = np.random.default_rng(4).normal(size=12)
    errors = KernelShap().fit(masks, scores).std_errors(covariance="HC3")
    assert errors[0] == pytest.approx(errors[1], rel=1e-9)


def test_bootstrap_and_design_agree_on_shapley_values() -> None:
    """1,000 resamples: 2 % each; the formula corrects for leverage, the bootstrap does not: 15 %."""
    masks, scores = masks_and_scores(n_masks=400, n_units=12)
    shap = KernelShap().fit(masks, scores[:, 0])
    np.testing.assert_allclose(
        shap.std_errors(covariance="bootstrap"), shap.std_errors(covariance="design"), rtol=0.2
    )


# --- SLALOM


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("kind", Slalom.kinds)
@pytest.mark.parametrize("covariance", SLALOM_COVARIANCES)
def test_slalom_errors_have_the_shape_of_attributions(
    background: bool, kind: str, covariance: SlalomCovariance
) -> None:
    masks, scores = masks_and_scores()
    fitted = Slalom(background=background).fit(masks, scores)
    errors = fitted.std_errors(kind, covariance)
    assert errors.shape == fitted.attributions(kind).shape == (2, 6)
    assert (errors > 0).all()
    low, high = fitted.confidence_interval(kind, covariance=covariance)
    assert (low <= fitted.attributions(kind)).all()
    assert (fitted.attributions(kind) <= high).all()


def test_slalom_shapley_values_add_up_and_so_do_copies() -> None:
    masks, scores = masks_and_scores()
    fitted = Slalom().fit(masks, scores)
    full, empty = fitted.predict(np.vstack([np.ones(6), np.zeros(6)]))
    np.testing.assert_allclose(fitted.attributions("shapley").sum(axis=1), full - empty, atol=1e-9)
    tied = Slalom().fit(np.column_stack([masks[:, 0] + masks[:, 1], masks[:, 2:]]), scores)
    counts = np.array([2.0, 1, 1, 1, 1])
    full, empty = tied.predict(np.vstack([counts, np.zeros(5)]))
    np.testing.assert_allclose(tied.attributions("shapley") @ counts, full - empty, atol=1e-9)
    assert np.isfinite(tied.std_errors("shapley")).all()


def test_slalom_errors_are_those_of_repeated_fits() -> None:
    """80 noisy copies of one data set: 8 % per unit, 3 % on average; HC3 is 5 % on the large side."""
    masks, _ = masks_and_scores(n_masks=64)
    rng = np.random.default_rng(5)
    weight, value = np.exp(rng.normal(size=6)), rng.choice([-1, 1], 6) * rng.uniform(1, 3, 6)
    masks = np.tile(masks, (4, 1))
    clean = (masks @ (weight * value) + 0.3) / (masks @ weight + 1.0)
    fits = [Slalom().fit(masks, clean + 0.01 * rng.normal(size=len(masks))) for _ in range(80)]
    for kind in Slalom.kinds:
        actual = np.std([fit.attributions(kind) for fit in fits], axis=0)
        claimed = np.sqrt(np.mean([fit.std_errors(kind) ** 2 for fit in fits], axis=0))
        assert np.mean(claimed / actual) == pytest.approx(1.05, abs=0.15)


def test_unidentifiable_importances_have_infinite_errors() -> None:
    masks, _ = masks_and_scores()
    scores = np.zeros(len(masks))
    scores[masks[:, 0] == 1] = 1.0
    scores += 0.01 * np.random.default_rng(6).normal(size=len(masks))
    fitted = Slalom().fit(masks, scores)
    for kind in ("importance", "linear"):
        flagged = np.array(fitted.unit_status(kind)) == Status.IMPORTANCE_NOT_IDENTIFIABLE
        assert np.isinf(fitted.std_errors(kind)[flagged]).all()


def test_constant_scores_determine_no_importance() -> None:
    masks, _ = masks_and_scores()
    fitted = Slalom().fit(masks, np.full(len(masks), 2.0))
    assert fitted.status_ is Status.NO_VARIATION
    assert np.isinf(fitted.std_errors("importance")).all()
    np.testing.assert_array_equal(fitted.std_errors("removal"), 0.0)


def test_too_few_answers_determine_nothing() -> None:
    masks, scores = masks_and_scores(n_masks=8)
    fitted = Slalom(prior=(0.01, 0.1)).fit(masks, scores[:, 0])
    assert fitted.status_ is Status.UNDERDETERMINED
    assert np.isinf(fitted.std_errors("importance")).all()


def two_heads(masks: FloatArray, seed: int) -> tuple[FloatArray, FloatArray]:
    """Scores of two SLALOMs with backgrounds, and the removal effects of their sum."""
    rng = np.random.default_rng(seed)
    n = masks.shape[1]
    weight, value = np.exp(0.8 * rng.normal(size=(2, n))), rng.normal(size=(2, n))

    def score(rows: FloatArray) -> FloatArray:
        scores: FloatArray = ((rows @ (weight * value).T + 0.5) / (rows @ weight.T + 3.0)).sum(axis=1)
        return scores

    return score(masks), score(np.ones((1, n))) - score(1.0 - np.eye(n))


def test_intervals_of_several_heads_cover_what_adds_up() -> None:
    """160 intervals of 95 %: below 138 with less than one chance in 1,000 were they independent and 92 %."""
    covered = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        masks = with_anchors(draw("leverage", 8, 198, rng)).masks.astype(float)
        truth, removal = two_heads(masks, seed)
        fitted = Slalom(heads=2).fit(masks, truth + 0.05 * truth.std() * rng.normal(size=len(truth)))
        low, high = fitted.confidence_interval("removal")
        covered.append((low <= removal) & (removal <= high))
    assert np.sum(covered) >= 138


def test_only_what_adds_up_over_heads_has_errors() -> None:
    masks, scores = masks_and_scores()
    fitted = Slalom(heads=2).fit(masks, scores)
    for kind in ("removal", "shapley"):
        assert np.isfinite(fitted.std_errors(kind)).all()
        assert (fitted.std_errors(kind) > 0).all()
    for kind in ("value", "importance", "linear"):
        assert np.isnan(fitted.std_errors(kind)).all()
    with pytest.raises(InputError, match="a fit of 2 heads"):
        fitted.additivity()


# --- all of them


@pytest.fixture(params=[Lime, KernelShap, Slalom])
def surrogate(request: pytest.FixtureRequest) -> Surrogate:
    made: Surrogate = request.param()
    return made


def test_every_surrogate_offers_intervals(surrogate: Surrogate) -> None:
    assert isinstance(surrogate, Surrogate)
    masks, scores = masks_and_scores(n_masks=50)
    for of_outputs, shape in ((scores, (2, 6)), (scores[:, 0], (6,))):
        surrogate.fit(masks, of_outputs)
        for kind in surrogate.kinds:
            errors = surrogate.std_errors(kind)
            low, high = surrogate.confidence_interval(kind, 0.9)
            wide, _ = surrogate.confidence_interval(kind, 0.99)
            assert errors.shape == low.shape == high.shape == shape
            assert (wide < low).all()
            assert np.isfinite(errors).all()
            np.testing.assert_allclose((low + high) / 2, surrogate.attributions(kind), atol=1e-9)
    np.testing.assert_array_equal(surrogate.std_errors(), surrogate.std_errors(surrogate.kinds[0]))


def test_refitting_and_pickling_keep_nothing_old(surrogate: Surrogate) -> None:
    masks, scores = masks_and_scores()
    first = surrogate.fit(masks, scores).std_errors()
    surrogate.fit(masks, 2 * scores).std_errors()
    np.testing.assert_array_equal(surrogate.fit(masks, scores).std_errors(), first)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(surrogate)).std_errors(), first)


def test_underdetermined_units_have_infinite_errors(surrogate: Surrogate) -> None:
    masks, scores = masks_and_scores()
    masks = np.column_stack([masks, masks[:, 0]])  # two units that always come together
    surrogate.fit(masks, scores[:, 0])
    kind = surrogate.kinds[0]
    assert np.isinf(surrogate.std_errors(kind)[[0, 6]]).all()
    assert np.isfinite(surrogate.std_errors(kind)[1:6]).all()
    low, high = surrogate.confidence_interval(kind)
    np.testing.assert_array_equal([low[0], high[0]], [-np.inf, np.inf])


@pytest.mark.parametrize("additive", [Lime(), KernelShap()])
def test_errors_are_infinite_exactly_where_the_status_says_underdetermined(
    additive: Lime | KernelShap,
) -> None:
    masks, scores = masks_and_scores()
    fitted = additive.fit(np.column_stack([masks, masks[:, 0]]), scores)
    flagged = np.array(fitted.unit_status(fitted.kinds[0])) == Status.UNDERDETERMINED
    np.testing.assert_array_equal(np.isinf(fitted.std_errors()), flagged)


def test_a_summary_reads_like_statsmodels(surrogate: Surrogate) -> None:
    masks, scores = masks_and_scores()
    surrogate.fit(masks, scores[:, 0])
    names = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
    text = str(surrogate.summary(level=0.9, names=names))  # type: ignore[attr-defined]
    for word in (*names, "std err", "[0.05", "0.95]", "P>|t|", "Covariance", "ok"):
        assert word in text
    assert "unit 5" in str(surrogate.summary())  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="one per unit"):
        surrogate.summary(names=["alpha"])  # type: ignore[attr-defined]


def test_unknown_covariances_and_kinds_are_refused(surrogate: Surrogate) -> None:
    surrogate.fit(*masks_and_scores())
    with pytest.raises(InputError, match="'HC3'"):
        surrogate.std_errors(covariance="HC9")  # type: ignore[call-arg]
    with pytest.raises(InputError, match="expected one of"):
        surrogate.std_errors("colour")


@pytest.mark.parametrize("estimator", [Lime(), KernelShap()])
def test_errors_need_a_fit(estimator: Lime | KernelShap) -> None:
    with pytest.raises(NotFittedError):
        estimator.__class__().std_errors()


@pytest.mark.parametrize("kind", ["classical", "HC0", "HC1", "HC2", "HC3", "CR2", "CR3"])
def test_linear_intervals_cover(kind: LinearCovariance) -> None:
    """120 data sets of 10 units: coverage of exact 95 % intervals is off by .6 % (one sigma)."""
    covered = []
    for seed in range(120):
        rng = np.random.default_rng([7, seed])
        masks = with_anchors(draw("leverage", 10, 198, rng)).masks.astype(float)
        scores = masks @ np.arange(10.0) + rng.normal(size=len(masks))
        low, high = Lime(kernel_width=None).fit(masks, scores).confidence_interval(covariance=kind)
        covered.append((low <= np.arange(10.0)) & (np.arange(10.0) <= high))
    assert 0.92 < np.mean(covered) < 0.98
