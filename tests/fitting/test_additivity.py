"""The additivity index at both ends and between, and the tests against the ends."""

import numpy as np
import pytest

from piste import InputError
from piste._typing import FloatArray
from piste.surrogates import Slalom

N_UNITS, N_MASKS, NOISE = 10, 250, 0.05


def answers(background: float | None, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Masks and noisy scores of a SLALOM with this background importance, or of an additive model."""
    rng = np.random.default_rng(seed)
    masks = (rng.random((N_MASKS, N_UNITS)) < 0.5).astype(np.float64)
    masks[0] = 1.0
    value, importance = 2 * rng.normal(size=N_UNITS), 0.7 * rng.normal(size=N_UNITS)
    w = np.exp(importance - importance.mean())
    if background is None:
        scores = masks @ value
    else:
        w_0 = np.exp(background)
        scores = (masks @ (w * value) + 0.3 * w_0) / np.maximum(masks @ w + w_0, 1e-300)
    return masks, scores + NOISE * rng.normal(size=N_MASKS)


def true_index(background: float, seed: int = 0) -> float:
    rng = np.random.default_rng(seed)
    rng.random((N_MASKS, N_UNITS))
    rng.normal(size=N_UNITS)
    importance = 0.7 * rng.normal(size=N_UNITS)
    attention = np.exp(importance - importance.mean()).sum()
    return float(np.exp(background) / (np.exp(background) + attention))


@pytest.mark.parametrize("background", [0.5, 1.5, 2.5])
def test_the_interval_holds_the_true_share(background: float) -> None:
    found = Slalom().fit(*answers(background)).additivity()[0]
    assert found.low < found.index < found.high
    assert found.low <= true_index(background) <= found.high


def test_the_ends() -> None:
    assert Slalom().fit(*answers(-np.inf)).additivity()[0].high < 0.2
    assert Slalom().fit(*answers(None)).additivity()[0].index > 0.9
    assert Slalom(background=False).fit(*answers(1.5)).additivity()[0].index == 0.0


def test_a_model_between_is_told_from_both_ends() -> None:
    found = Slalom().fit(*answers(1.5)).compare_ends(n_bootstrap=19)[0]
    assert found.p_additive == found.p_published == 1 / 20
    assert found.mse_between < min(found.mse_additive, found.mse_published)


def test_an_end_is_not_rejected() -> None:
    """Probability of p = 1/20 under an end is 1/20 by construction; the seed is fixed."""
    additive = Slalom().fit(*answers(None)).compare_ends(n_bootstrap=19)[0]
    published = Slalom().fit(*answers(-np.inf, seed=1)).compare_ends(n_bootstrap=19)[0]
    assert additive.p_additive > 1 / 20
    assert additive.p_published == 1 / 20
    assert published.p_published > 1 / 20
    assert published.p_additive == 1 / 20


def test_one_record_per_output() -> None:
    masks, scores = answers(1.5)
    found = Slalom().fit(masks, np.column_stack([scores, -scores])).additivity()
    assert len(found) == 2
    assert found[0].index == pytest.approx(found[1].index, abs=1e-4)


def test_several_heads_are_refused() -> None:
    with pytest.raises(InputError, match="expected one head"):
        Slalom(heads=2).fit(*answers(1.5)).additivity()
