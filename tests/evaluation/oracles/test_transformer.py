"""Repeating a word changes nothing for a Transformer without positions, whatever its weights."""

from typing import Any

import numpy as np
import pytest

import piste
from piste.evaluation.oracles import position_free_transformer, transformer_scores

WORDS = ("good", "bad", "film")
PADDING = len(WORDS)


@pytest.mark.parametrize("n_layers", [1, 2, 4])
def test_a_repeated_token_says_the_same(torch: Any, n_layers: int) -> None:
    module = position_free_transformer(3, n_layers, seed=n_layers).eval().double()
    answers = []
    with torch.no_grad():
        for token in range(3):
            rows = np.full((30, 30), PADDING)
            for n, row in enumerate(rows, start=1):
                row[:n] = token
            answers.append(module(torch.from_numpy(rows)).numpy())
    for same in answers:
        # Float64 sums over 30 positions and 4 layers of numbers around 1.
        np.testing.assert_allclose(same, same[0], rtol=0, atol=1e-13 * n_layers)
    assert np.ptp([same[0] for same in answers]) > 1e-2  # and yet the words differ


def test_learned_positions_are_a_way_out(torch: Any) -> None:
    module = position_free_transformer(3, 1, max_positions=8, seed=1).eval()
    scores = transformer_scores(module, WORDS)(["good", "good " * 8])
    assert abs(scores[1] - scores[0]) > 1e-2


def test_order_and_padding_do_not_matter(torch: Any) -> None:
    scores = transformer_scores(position_free_transformer(3, 2, seed=3).eval(), WORDS)
    together = scores(["good bad film film", "film good film bad", "good", "unheard good", ""])
    alone = np.concatenate([scores([text]) for text in ("good bad film film", "good", "")])
    # float32 sums over a handful of positions
    np.testing.assert_allclose(together[0], together[1], atol=1e-6)
    np.testing.assert_allclose(together[[0, 2, 4]], alone, atol=1e-6)
    np.testing.assert_array_equal(together[2], together[3])


def test_seeds_are_its_own(torch: Any) -> None:
    before = torch.random.get_rng_state()
    one, same, other = (position_free_transformer(3, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    tokens = torch.tensor([[0, 1, 2]])
    assert one(tokens) == same(tokens) != other(tokens)


def test_it_can_be_explained(torch: Any) -> None:
    scores = transformer_scores(position_free_transformer(3, seed=1).eval(), WORDS)
    model = piste.load_model(scores, kind="logit")
    shap = piste.explain(model, "bad film good", surrogates="shap").surrogate(0, "shap")
    full, empty = scores(["bad film good", ""])
    assert shap.attributions().sum() == pytest.approx(full - empty, abs=1e-12)
