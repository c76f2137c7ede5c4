"""Infidelity, sensitivity-n and max-sensitivity: by hand, against captum and scipy, on additive models."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr

from piste._errors import InputError
from piste.evaluation import perturbation
from piste.evaluation.perturbation import infidelity, max_sensitivity, sensitivity_n


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_infidelity_by_hand() -> None:
    """Sums 1, 2, 3 against drops 2, 2, 5: (1 + 0 + 4) / 3; best factor 21 / 14."""
    scores, removed = np.array([1.0, 2.0]), np.array([[1, 0], [0, 1], [1, 1]], dtype=bool)
    drops = np.array([2.0, 2.0, 5.0])
    assert infidelity(scores, removed, drops) == pytest.approx(5 / 3)
    assert infidelity(scores, removed, drops, scaled=True) == pytest.approx((0.25 + 1 + 0.25) / 3)


def test_the_zero_explanation_has_the_mean_squared_drop() -> None:
    removed, drops = np.eye(2, dtype=bool), np.array([1.0, 3.0])
    for scaled in (False, True):
        assert infidelity(np.zeros(2), removed, drops, scaled=scaled) == 5.0


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 50), st.floats(0.1, 10))
def test_the_best_factor_forgives_the_scale_alone(seed: int, factor: float) -> None:
    rng = generator(seed)
    scores, drops = rng.normal(size=6), rng.normal(size=20)
    removed = perturbation.draw_removals(6, 20, rng)
    one = infidelity(scores, removed, drops, scaled=True)
    assert one == pytest.approx(infidelity(scores * factor, removed, drops, scaled=True))
    assert one <= infidelity(scores, removed, drops) + 1e-12
    assert infidelity(scores, removed, removed @ scores) == pytest.approx(0, abs=1e-24)


@pytest.mark.parametrize("scaled", [False, True])
def test_infidelity_against_captum(scaled: bool, torch: Any) -> None:
    captum = pytest.importorskip("captum.metrics")
    rng = generator(3)
    n_units, n_masks = 7, 25
    removed = perturbation.draw_removals(n_units, n_masks, rng)[:n_masks]
    weights, scores = rng.normal(size=n_units), rng.normal(size=n_units)

    def model(kept: Any) -> Any:
        hidden = kept @ torch.tensor(weights)
        return torch.tanh(hidden) + hidden**2

    def perturb(kept: Any) -> Any:
        step = torch.tensor(removed.astype(float))
        return step, kept - step

    whole = torch.ones(1, n_units, dtype=torch.float64)
    expected = captum.infidelity(
        model,
        perturb,
        whole,
        torch.tensor(scores)[None],
        n_perturb_samples=len(removed),
        normalize=scaled,
    )
    answers = model(torch.tensor((~removed).astype(float))).numpy()
    found = infidelity(scores, removed, model(whole).item() - answers, scaled=scaled)
    assert found == pytest.approx(expected.item(), rel=1e-10)


def test_sensitivity_n_against_scipy() -> None:
    rng = generator(1)
    scores, removed = rng.normal(size=9), perturbation.draw_subsets(9, 3, 30, rng)
    drops = rng.normal(size=len(removed))
    expected = pearsonr(removed @ scores, drops).statistic
    assert sensitivity_n(scores, removed, drops) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 30), st.integers(1, 7))
def test_true_effects_of_an_additive_model_correlate_perfectly(seed: int, size: int) -> None:
    rng = generator(seed)
    effects = rng.normal(size=8)
    removed = perturbation.draw_subsets(8, size, 50, rng)
    assert sensitivity_n(effects, removed, removed @ effects) == pytest.approx(1)
    assert sensitivity_n(-3 * effects, removed, removed @ effects) == pytest.approx(-1)


@pytest.mark.parametrize(
    ("scores", "drops"),
    [
        ([0.0, 0.0, 0.0], [1.0, 2.0, 3.0]),
        ([0.1, 0.1, 0.1], [1.0, 2.0, 3.0]),
        ([1.0, 2.0, 3.0], [0.5, 0.5, 0.5]),
        ([1.0, 2.0, 3.0], [np.nan, 0.5, 0.7]),
    ],
)
def test_sensitivity_n_is_undefined_without_variation(scores: list[float], drops: list[float]) -> None:
    assert np.isnan(sensitivity_n(np.array(scores), np.eye(3, dtype=bool), np.array(drops)))
    assert np.isnan(sensitivity_n(np.ones(1), np.ones((1, 1), dtype=bool), np.ones(1)))


def test_sums_that_cancel_are_constant() -> None:
    """0.1 + 0.2 - 0.3 is 5.6e-17, not 0."""
    scores = np.array([0.1, 0.2, -0.3, 0.0])
    removed = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], dtype=bool)
    assert np.isnan(sensitivity_n(scores, removed, np.array([1.0, 2.0])))


def test_removals_follow_their_law() -> None:
    removed = perturbation.draw_removals(40, 1000, generator(), most=10)
    sizes = np.bincount(removed.sum(axis=1), minlength=11)
    assert sizes[0] == 0
    # 1 .. 10 uniform, but there are only 40 single units.
    assert sizes[1] == 40
    assert np.ptp(sizes[2:]) <= 1


def test_few_units_are_enumerated() -> None:
    assert len(perturbation.draw_removals(3, 100, generator())) == 7
    assert perturbation.draw_removals(1, 100, generator()).tolist() == [[True]]
    assert len(perturbation.draw_subsets(5, 2, 50, generator())) == 10


def test_max_sensitivity_by_hand() -> None:
    scores, others = np.array([3.0, 4.0]), np.array([[3.0, 4.0], [0.0, 0.0], [3.0, 3.0]])
    assert max_sensitivity(scores, others) == 1.0
    assert max_sensitivity(scores, scores[None]) == 0.0
    assert np.isnan(max_sensitivity(np.zeros(2), others))
    assert np.isnan(max_sensitivity(scores, np.array([[np.nan, 1.0]])))
    with pytest.raises(InputError, match="no other explanations"):
        max_sensitivity(scores, others[:0])


def test_max_sensitivity_against_captum(torch: Any) -> None:
    captum = pytest.importorskip("captum.metrics")
    rng = generator(5)
    steps = rng.normal(scale=0.1, size=(10, 4))
    point = torch.tensor(rng.normal(size=(1, 4)))

    def gradient_times_input(inputs: Any) -> Any:
        with torch.enable_grad():
            moved = inputs.detach().clone().requires_grad_(True)
            (torch.tanh(moved) ** 2).sum().backward()
        return moved.grad * moved.detach()

    expected = captum.sensitivity_max(
        lambda inputs: tuple(map(gradient_times_input, inputs)),
        (point,),
        perturb_func=lambda inputs, _: (inputs[0] + torch.tensor(steps),),
        n_perturb_samples=10,
    )
    others = gradient_times_input(point + torch.tensor(steps)).numpy()
    found = max_sensitivity(gradient_times_input(point).numpy()[0], others)
    assert found == pytest.approx(expected.item(), rel=1e-10)
