"""The attention classifier against plain code, torch's automatic derivatives and finite differences."""

from typing import Any

import numpy as np
import pytest

from piste import InputError
from piste._typing import FloatArray
from piste.evaluation.oracles import (
    AttentionClassifier,
    AttentionWeights,
    attention_oracle,
    random_weights,
)
from piste.evaluation.oracles.attention import sinusoidal_positions
from piste.evaluation.oracles.records import enumerated

WORDS = ("a", "gripping", "film", "not", "bad")
TEXT = "not a gripping film not bad unheard"


def classifier(length: int | None = None, n_heads: int = 3) -> AttentionClassifier:
    weights = random_weights(7, n_heads=n_heads, width=10, head_width=4, sharpness=3.0, seed=5)
    return AttentionClassifier(WORDS, weights, length)


def plain_score(weights: AttentionWeights, e: FloatArray) -> float:
    """The formula of the paper, one head and one position at a time."""
    scores = []
    for W_q, W_k, W_v, w_l in zip(
        weights.query, weights.key, weights.value, weights.readout, strict=True
    ):
        q = W_q @ e[0]
        g = [np.exp(q @ (W_k @ each) / np.sqrt(len(q))) for each in e]
        scores.append(sum(g_t * (w_l @ (W_v @ each)) for g_t, each in zip(g, e, strict=True)) / sum(g))
    return float(np.mean(scores))


@pytest.mark.parametrize("length", [None, 12, 5])
def test_scores_follow_the_formula(length: int | None) -> None:
    model = classifier(length)
    texts = [TEXT, "film", "", "bad bad"]
    expected = [plain_score(model.weights, model.embedded(text)) for text in texts]
    # Sums of 12 positions by 10 dimensions, of numbers around 1.
    np.testing.assert_allclose(model(texts), expected, rtol=1e-12, atol=1e-13)


def test_tokens_are_filled_up_and_cut() -> None:
    assert classifier().tokens("film unheard a").tolist() == [0, 4, 1, 2]
    assert classifier(6).tokens("film").tolist() == [0, 4, 1, 1, 1, 1]
    assert classifier(3).tokens("film not bad").tolist() == [0, 4, 5]
    assert classifier().tokens("").tolist() == [0]


def test_positions_are_attended_to() -> None:
    first, second = classifier()(["not bad", "bad not"])
    assert abs(first - second) > 1e-3
    np.testing.assert_array_equal(sinusoidal_positions(1, 5), [[0, 1, 0, 1, 0]])


@pytest.mark.parametrize("length", [None, 12])
def test_gradient_is_that_of_automatic_differentiation(torch: Any, length: int | None) -> None:
    model = classifier(length)
    weights = model.weights
    e = torch.tensor(model.embedded(TEXT), requires_grad=True)
    W_q, W_k, W_v, w_l = map(torch.tensor, (weights.query, weights.key, weights.value, weights.readout))
    logits = torch.einsum("ha,haw,tw->ht", W_q @ e[0], W_k, e) / W_k.shape[1] ** 0.5
    score = (logits.softmax(1) * torch.einsum("hv,hvw,tw->ht", w_l, W_v, e)).sum() / len(w_l)
    score.backward()
    # Entries are around 0.1; each sums some 100 products.
    np.testing.assert_allclose(model.gradient(TEXT), e.grad.numpy(), rtol=1e-10, atol=1e-14)
    assert score.item() == pytest.approx(model([TEXT])[0], rel=1e-12)


def test_gradient_is_that_of_finite_differences() -> None:
    model = classifier()
    e = model.embedded(TEXT)
    step = 1e-5  # the cube root of eps: truncation step^2 and rounding eps / step are both near 1e-10
    slopes = np.empty_like(e)
    for at in np.ndindex(*e.shape):
        up, down = e.copy(), e.copy()
        up[at] += step
        down[at] -= step
        slopes[at] = (plain_score(model.weights, up) - plain_score(model.weights, down)) / (2 * step)
    np.testing.assert_allclose(model.gradient(TEXT), slopes, atol=1e-9)


def test_the_way_through_the_query_counts() -> None:
    """Position 0 has the general term and the query's: the former alone is off."""
    model = classifier(n_heads=1)
    weights, e = model.weights, model.embedded(TEXT)
    alpha = model.attention(TEXT)[0]
    u = e @ (weights.value[0].T @ weights.readout[0])
    by_key = weights.key[0].T @ (weights.query[0] @ e[0]) / 2.0
    general = alpha[0] * ((u[0] - alpha @ u) * by_key + weights.value[0].T @ weights.readout[0])
    missing = weights.query[0].T @ weights.key[0] @ (e.T @ (alpha * (u - alpha @ u))) / 2.0
    np.testing.assert_allclose(model.gradient(TEXT)[0], general + missing, rtol=1e-10, atol=1e-14)
    assert np.linalg.norm(missing) > 0.1 * np.linalg.norm(general)


def test_attention_scores() -> None:
    model = classifier(9)
    attention = model.attention(TEXT)
    assert attention.shape == (3, 9)
    np.testing.assert_allclose(attention.sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(model.mean_attention(TEXT), attention.sum(axis=0) / 3, rtol=1e-14)
    np.testing.assert_array_equal(model.max_attention(TEXT), attention.max(axis=0))


def test_filling_up_is_the_unknown_word_and_leaves_nothing_else() -> None:
    assert classifier(6)(["film bad"]) == classifier()(["film bad UNK UNK UNK"])
    assert classifier(6)(["film bad"]) != classifier(7)(["film bad"])


def test_the_oracle_is_masked_by_the_unknown_word() -> None:
    oracle = attention_oracle(["not a gripping film"], length=8, seed=3)
    scores, masks = enumerated(oracle.model, oracle.texts[0], oracle.masking)
    row = int(np.flatnonzero((masks == [True, False, True, False]).all(axis=1))[0])
    assert scores[row] == oracle.model.score(["not UNK gripping UNK"]).values[0, 0]
    again, other = (attention_oracle(oracle.texts, length=8, seed=seed) for seed in (3, 4))
    assert again.model.fingerprint == oracle.model.fingerprint != other.model.fingerprint
    assert oracle.exact == {"shap", "interactions"}


def test_weights_must_fit_each_other() -> None:
    weights = random_weights(4, n_heads=2, width=6, head_width=3)
    with pytest.raises(InputError, match="4 embeddings for 5 words; expected two more"):
        AttentionClassifier(WORDS, weights)
    with pytest.raises(InputError, match=r"Got value of shape .* expected \(2, 3, 6\)"):
        AttentionWeights(
            weights.embedding, weights.query, weights.key, weights.value[:, :2], weights.readout
        )
