"""What LIME tends to: the integral against quadrature by others, against all masks, and against piste."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

import piste
from piste import InputError
from piste._typing import FloatArray
from piste.evaluation.oracles import (
    AttentionClassifier,
    lime_limit,
    lime_limit_oracle,
    random_weights,
    three_halves,
)
from piste.evaluation.oracles.lime_limit import LimitParts
from piste.evaluation.oracles.records import enumerated
from piste.surrogates import Lime


def classifier(n_words: int, length: int | None = None, seed: int = 1) -> AttentionClassifier:
    words = tuple(f"word{number}" for number in range(n_words))
    return AttentionClassifier(words, random_weights(n_words + 2, seed=seed), length)


def relative(found: FloatArray, truth: FloatArray) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


def test_the_quadrature_is_that_of_scipy() -> None:
    model = classifier(7, 9)
    parts = model.limit_parts(" ".join(model.words))
    for word in range(7):

        def integrand(u: float, word: int = word) -> float:
            heads = []
            for g, w, h, m, rest, product in zip(*parts, strict=True):
                D = u * g.sum() + (1 - u) * h.sum() + rest
                mean = (u * g @ w + (1 - u) * h @ m + product) / D
                moved = g[word] * w[word] - h[word] * m[word] - mean * (g[word] - h[word])
                heads.append(6 * u * (1 - u) * moved / D)
            return float(np.mean(heads))

        expected, error = quad(integrand, 0, 1, epsabs=1e-13, epsrel=1e-12)
        assert lime_limit(parts)[word] == pytest.approx(expected, abs=error + 1e-12)


def test_a_linear_score_has_its_own_coefficients() -> None:
    rng = np.random.default_rng(0)
    attention, score, masked = rng.uniform(size=(3, 2, 5))
    parts = LimitParts(attention, score, attention, masked, np.ones(2), np.ones(2))
    total = attention.sum(axis=1, keepdims=True) + 1
    expected = (attention * (score - masked) / total).mean(axis=0)
    np.testing.assert_allclose(lime_limit(parts), expected, rtol=1e-13)
    np.testing.assert_allclose(three_halves(parts), 1.5 * expected, rtol=1e-13)


def test_three_halves_is_right_where_masks_get_two_fifths_of_the_attention() -> None:
    """With masks and the mean silent, the factor on alpha_j w_j is 6 int u (1 - u) / (H/G + (1 - H/G) u)."""
    for share, factor in ((1.0, 1.0), (0.4, 1.5), (1e-6, 3.0)):
        score = np.array([[1.0, -1.0]])  # the mean is 0 throughout
        parts = LimitParts(
            np.ones((1, 2)), score, np.full((1, 2), share), np.zeros((1, 2)), np.zeros(1), np.zeros(1)
        )
        assert lime_limit(parts)[0] == pytest.approx(factor / 2, rel=0.02)


def test_fits_to_all_masks_come_near_it_as_texts_grow() -> None:
    """The whole law, so that nothing is left to chance: what remains is the text's length."""
    found = {}
    for n_units in (6, 12):
        errors = []
        for seed in range(8):
            model = classifier(n_units, seed=seed)
            text = " ".join(model.words)
            scores, masks = enumerated(model.black_box(), text, "UNK")
            kept = masks.sum(axis=1)
            law = np.array([1 / math.comb(n_units, size) for size in range(n_units)] + [0.0])
            lime = Lime(kernel_width=None).fit(masks, scores, law[kept])
            errors.append(relative(lime_limit(model.limit_parts(text)), lime.coef_))
        found[n_units] = float(np.mean(errors))
    assert found[12] < 0.7 * found[6]  # 1/2 if the error were 1/n exactly
    assert found[12] < 1 / 12


@pytest.mark.parametrize("length", [None, 128])
def test_lime_meets_it(length: int | None) -> None:
    oracle = lime_limit_oracle([" ".join(classifier(60).words)], length=length, seed=1)
    study = piste.explain(
        oracle.model,
        oracle.texts[0],
        surrogates=oracle.estimators["lime"],
        masking=oracle.masking,
        design=oracle.design,
        budget=5556,  # 5,000 to fit to
    )
    fitted = study.surrogate(0, "lime")
    (limit,) = oracle.truth[0].answers
    error = np.linalg.norm(fitted.attributions() - limit)
    chance = np.linalg.norm(fitted.std_errors())
    # The root mean square of what is drawn, twice, and the order of what a text of 60 words leaves.
    assert error < 2 * chance + np.linalg.norm(limit) / 60
    assert error < 0.05 * np.linalg.norm(limit)
    model = classifier(60, length)
    assert relative(three_halves(model.limit_parts(oracle.texts[0])), fitted.attributions()) > 0.2


@pytest.mark.parametrize(
    "text", ["", "word0 word0", "word0 word1 word2 word3 word4", "word0 new other"]
)
def test_it_is_refused_where_it_does_not_hold(text: str) -> None:
    with pytest.raises(InputError, match="all different and known, within the length 5"):
        classifier(5, 5).limit_parts(text)
