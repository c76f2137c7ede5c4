"""Frequencies among sampled answers: their counts, their errors, and the log-odds made of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from piste.sampling.models._samples import (
    frequencies,
    of_samples,
    sampling_errors,
    sampling_std_error,
)
from piste.sampling.space import to_space


@given(st.lists(st.integers(0, 40), min_size=2, max_size=5), st.integers(0, 10))
def test_the_samples_that_counted_are_told_by_the_frequencies(counts: list[int], lost: int) -> None:
    """The variance is that of a number of samples that explains the frequencies, at least the true one."""
    total, half = sum(counts), len(counts) / 2
    n_samples = total + lost
    values = frequencies(np.array([counts]))
    if total == 0:
        assert np.isnan(values).all()
        return
    errors = sampling_std_error(values, n_samples)
    counted = (values * (1 - values) / errors**2)[0] - half
    assert np.ptp(counted) < 1e-6
    assert total - 1e-6 < counted[0] < n_samples + 1e-6
    explained = values * (counted[0] + half) - 0.5
    np.testing.assert_allclose(explained, np.rint(explained), atol=1e-5)
    if lost == 0:
        assert counted[0] == pytest.approx(total)


@pytest.mark.parametrize("hits", [0, 1, 10, 20])
def test_log_odds_have_the_variance_of_gart_and_zweifel(hits: int) -> None:
    values = frequencies(np.array([[hits, 20 - hits]]))
    found = to_space(values, "probability", errors=sampling_std_error(values, 20))
    assert found.errors is not None
    expected = np.sqrt(1 / (hits + 0.5) + 1 / (20 - hits + 0.5))
    np.testing.assert_allclose(found.errors, [[expected] * 2])
    np.testing.assert_allclose(found.scores[0, 0], np.log((hits + 0.5) / (20.5 - hits)))


@pytest.mark.parametrize("p", [0.2, 0.5, 0.7])
def test_errors_are_those_of_the_binomial_law(p: float) -> None:
    """Mean and variance over all outcomes of 30 samples; log-odds are unbiased to .02 = O(1 / 30^2)."""
    counts = np.arange(31)
    chance = binom.pmf(counts, 30, p)
    values = frequencies(np.column_stack([counts, 30 - counts]))
    found = to_space(values, "probability", errors=sampling_std_error(values, 30))
    for numbers, errors, truth in (
        (values[:, 0], sampling_std_error(values, 30)[:, 0], (30 * p + 0.5) / 31),
        (found.scores[:, 0], found.errors[:, 0], np.log(p / (1 - p))),  # type: ignore[index]
    ):
        mean = chance @ numbers
        assert mean == pytest.approx(truth, abs=0.02)
        assert chance @ errors**2 == pytest.approx(chance @ (numbers - mean) ** 2, rel=0.15)


def test_only_a_fingerprint_that_says_so_means_samples() -> None:
    values = np.array([[0.7, 0.3]])
    assert sampling_errors("openai:m", values, "probability") is None
    assert sampling_errors("openai:9 samples#a", values, "probability") is None
    assert sampling_errors(of_samples("openai:m", 4), values, "logit") is None
    found = sampling_errors(of_samples("openai:m", 4), values, "probability")
    np.testing.assert_allclose(found, [[np.sqrt(0.21 / 5)] * 2])  # type: ignore[arg-type]
