"""Greedy A-optimal choice against its definition."""

import numpy as np
import pytest

from piste.fitting.optimal import choose_rows


@pytest.mark.parametrize("seed", range(5))
def test_equals_the_definition_recomputed_at_each_pick(seed: int) -> None:
    rng = np.random.default_rng(seed)
    candidates, contrasts = rng.normal(size=(40, 6)), rng.normal(size=(3, 6))
    covariance = np.diag(rng.uniform(0.5, 2, 6))
    expected: list[int] = []
    known = covariance
    for _ in range(12):
        left = [row for row in range(40) if row not in expected]
        falls = [
            ((contrasts @ known @ candidates[row]) ** 2).sum()
            / (1 + candidates[row] @ known @ candidates[row])
            for row in left
        ]
        expected.append(left[int(np.argmax(falls))])
        x = candidates[expected[-1]]
        known = known - np.outer(known @ x, known @ x) / (1 + x @ known @ x)
    assert choose_rows(candidates, covariance, contrasts, 12).tolist() == expected


def test_chooses_every_candidate_once_when_asked_for_more() -> None:
    rng = np.random.default_rng(0)
    chosen = choose_rows(rng.normal(size=(7, 3)), np.eye(3), np.eye(3), 100)
    assert sorted(chosen.tolist()) == list(range(7))


def test_does_not_change_its_arguments() -> None:
    candidates, covariance = np.ones((4, 2)), np.eye(2)
    choose_rows(candidates, covariance, np.eye(2), 2)
    assert (candidates == 1).all()
    assert (covariance == np.eye(2)).all()
