from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from piste._typing import BoolArray, FloatArray
from piste.evaluation.sets import EMPTY, find_set, prefix_set


def additive(*weights: float) -> Callable[[BoolArray], FloatArray]:
    return lambda masks: masks.astype(np.float64) @ np.array(weights, dtype=np.float64)


class Game:
    """Scores masks by a table of all of them, and counts."""

    def __init__(self, n_units: int, seed: int) -> None:
        self.n_units = n_units
        self.table = np.random.default_rng(seed).normal(size=2**n_units)
        self.n_asked = 0

    def __call__(self, masks: BoolArray) -> FloatArray:
        self.n_asked += len(masks)
        scores: FloatArray = self.table[masks @ (1 << np.arange(self.n_units))]
        return scores

    def smallest(self, goal: str, threshold: float) -> int | None:
        for size in range(self.n_units + 1):
            for members in combinations(range(self.n_units), size):
                mask = np.zeros((1, self.n_units), dtype=np.bool_)
                mask[0, list(members)] = True
                score = self(mask if goal == "sufficient" else ~mask)[0]
                if score >= threshold if goal == "sufficient" else score < threshold:
                    return size
        return None


@given(
    st.integers(1, 6), st.integers(0, 1000), st.floats(-2, 2), st.sampled_from(["sufficient", "flip"])
)
def test_on_a_perfect_surrogate_the_set_is_the_smallest(
    n: int, seed: int, threshold: float, goal: str
) -> None:
    game = Game(n, seed)
    found = find_set(game, game, n, goal, threshold)  # type: ignore[arg-type]
    expected = game.smallest(goal, threshold)
    if expected is None:
        assert found.status == "not found"
    else:
        status = "verified" if expected else f"verified: {EMPTY[goal]}"
        assert (len(found.units), found.status, found.exact) == (expected, status, True)
        assert found.score == found.predicted
        assert (found.score >= threshold) == (goal == "sufficient")


def test_sets_that_the_model_denies_are_not_returned() -> None:
    surrogate = additive(5.0, 1.0, 1.0)
    model = additive(0.0, 3.0, 2.0)

    found = find_set(surrogate, model, 3, "sufficient", 2.5, slack=2)
    assert found.units == (1,)  # not unit 0, which the surrogate prefers
    assert found.n_calls <= 4


def test_without_a_model_the_surrogate_is_believed_and_that_is_said() -> None:
    weights = np.array([1.0, 3.0, 2.0])
    found = find_set(lambda masks: masks @ weights, None, 3, "flip", 3.5)
    assert (found.units, found.status, found.predicted) == ((1,), "unverified", 3.0)
    assert np.isnan(found.score)


def test_calls_are_bounded() -> None:
    model = Game(10, 0)

    def hopeless(masks: BoolArray) -> FloatArray:
        model(masks)
        return np.full(len(masks), -1.0)

    found = find_set(lambda masks: np.ones(len(masks)), hopeless, 10, "sufficient", 0.0, max_calls=12)
    assert (found.status, found.n_calls, model.n_asked) == ("not found: max_calls used up", 12, 12)
    assert not found.found


@pytest.mark.parametrize(
    ("max_calls", "status"),
    # 1 + 3 + 3 + 1 sets of 3 units, all of which the surrogate gives a chance
    [(0, "not found: max_calls used up"), (7, "not found: max_calls used up"), (8, "not found")],
)
def test_calls_used_up_are_told_from_none_that_exists(max_calls: int, status: str) -> None:
    asked: list[int] = []

    def hopeless(masks: BoolArray) -> FloatArray:
        asked.append(len(masks))
        return np.full(len(masks), -1.0)

    found = find_set(
        lambda masks: np.ones(len(masks)), hopeless, 3, "sufficient", 0.0, max_calls=max_calls
    )
    assert (found.status, found.n_calls, sum(asked)) == (status, max_calls, max_calls)


def test_what_the_surrogate_gives_no_chance_uses_no_calls_up() -> None:
    model = additive(-1, -1, -1)
    found = find_set(model, model, 3, "sufficient", 0.5, max_calls=0)
    assert (found.status, found.n_calls) == ("not found", 0)


def test_without_a_model_there_are_no_calls_to_use_up() -> None:
    assert find_set(additive(1, 3), None, 2, "sufficient", 3, max_calls=0).status == "unverified"


def test_long_texts_are_searched_greedily() -> None:
    weights = np.random.default_rng(1).normal(size=60)
    model = additive(*weights)

    threshold = np.sort(weights)[-8:].sum() - 1e-9
    found = find_set(model, model, 60, "sufficient", threshold)
    assert set(found.units) == set(np.argsort(weights)[-8:])
    assert not found.exact


@given(st.integers(0, 1000), st.sampled_from(["sufficient", "flip"]))
def test_a_prefix_of_the_right_ranking_is_the_smallest_set_of_an_additive_model(
    seed: int, goal: str
) -> None:
    weights = np.random.default_rng(seed).exponential(size=7)
    threshold = weights.sum() * 0.6
    model = additive(*weights)
    prefix = prefix_set(np.argsort(-weights), model, goal, threshold)  # type: ignore[arg-type]
    smallest = find_set(model, model, 7, goal, threshold)  # type: ignore[arg-type]
    assert len(prefix.units) == len(smallest.units)
    assert prefix.n_calls <= 4  # bisection over 8 sizes


@pytest.mark.parametrize(("goal", "threshold"), [("sufficient", 9.0), ("flip", -9.0)])
def test_a_goal_out_of_reach_is_not_found(goal: str, threshold: float) -> None:
    model = additive(1, 1, 1, 1)
    assert prefix_set(np.arange(4), model, goal, threshold).status == "not found"  # type: ignore[arg-type]
    assert find_set(model, model, 4, goal, threshold).status == "not found"  # type: ignore[arg-type]


def test_nothing_can_be_enough() -> None:
    found = find_set(lambda m: np.ones(len(m)), lambda m: np.ones(len(m)), 3, "sufficient", 0.0)
    assert (found.units, found.status) == ((), "verified: the empty text suffices")
    alone = find_set(lambda m: np.ones(len(m)), None, 3, "sufficient", 0.0)
    assert (alone.units, alone.status) == ((), "unverified: the empty text suffices")


@pytest.mark.parametrize(("goal", "threshold"), [("sufficient", 0.0), ("flip", 9.0)])
def test_an_empty_prefix_says_what_it_means(goal: str, threshold: float) -> None:
    found = prefix_set(np.arange(4), additive(1, 1, 1, 1), goal, threshold)  # type: ignore[arg-type]
    assert (found.units, found.status, found.found) == ((), f"verified: {EMPTY[goal]}", True)
