"""Smallest sets of units that keep or flip a prediction: searched on a surrogate, verified by the model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Literal

import numpy as np

from piste._typing import BoolArray, FloatArray, IntArray

Goal = Literal["sufficient", "flip"]
"""``sufficient``: keeping the set alone keeps the prediction; ``flip``: removing it changes the prediction."""

Scored = Callable[[BoolArray], FloatArray]
"""From masks, shape (n_masks, n_units), to scores, shape (n_masks,)."""

MOST_LISTED = 20_000  # sets of one size that are all looked at; beyond, the best of the last size grow
BEAM = 50
PER_SIZE = 5  # sets of one size that the model is asked about

VERIFIED = "verified"
UNVERIFIED = "unverified"
NOT_FOUND = "not found"
CALLS_USED_UP = f"{NOT_FOUND}: max_calls used up"
EMPTY = {"sufficient": "the empty text suffices", "flip": "the full text does not keep the prediction"}
"""What it means that an empty set reaches the goal."""


@dataclass(frozen=True)
class FoundSet:
    """A set of units that reaches a goal, or the news that none was found.

    Parameters
    ----------
    units
        Column numbers, rising; empty also where nothing was found (see ``status``).
    predicted, score
        What the surrogate and the model give where the set is kept alone (``sufficient``) or removed
        (``flip``); NaN where not asked.
    status
        ``verified`` by the model, ``unverified`` where there was none to ask, both followed by what that
        means where the set is empty: ``verified: the empty text suffices``. ``not found``: there is none
        among the sets that were looked at, on the surrogate all of each size up to 20,000, and by the model
        those of them with a chance, the five best of each size. ``not found: max_calls used up``: the model
        could not be asked about all of those.
    exact
        Whether the surrogate was asked about every smaller set; beyond 20,000 of a size it was not.
    n_calls
        Masks that the model was asked about.
    """

    units: tuple[int, ...]
    predicted: float
    score: float
    status: str
    exact: bool
    n_calls: int

    @property
    def found(self) -> bool:
        """Whether there is a set; it may be empty."""
        return not self.status.startswith(NOT_FOUND)


def find_set(
    predict: Scored,
    ask: Scored | None,
    n_units: int,
    goal: Goal,
    threshold: float,
    *,
    slack: float = 0.0,
    max_calls: int = 100,
) -> FoundSet:
    """The smallest set that a surrogate thinks reaches the goal and the model confirms.

    Sets are looked at by rising size: all of a size while there are at most 20,000, then those that
    grow from the 50 best of the size before. The model is asked about the five best of each size of
    those that the surrogate gives a chance, within ``slack`` of the threshold.

    Parameters
    ----------
    predict
        The surrogate.
    ask
        The model; None takes the surrogate's word.
    n_units
        Units of the text.
    goal, threshold
        ``sufficient``: a score of at least the threshold; ``flip``: one below it.
    slack
        How wrong the surrogate may be, in units of the score, such as its held-out root mean squared
        error.
    max_calls
        The most masks to ask the model about.

    Examples
    --------
    >>> def model(masks): return masks @ np.array([1.0, 3.0, 2.0]) - 3.5
    >>> find_set(model, model, 3, "sufficient", 0.0).units
    (1, 2)
    """
    n_calls, exact, cut = 0, True, False
    for sets, listed in _by_size(predict, n_units, goal):
        exact_before, exact = exact, exact and listed
        masks = _masks(sets, goal)
        gains = _gains(predict(masks), goal, threshold)
        hopeful = np.flatnonzero(gains >= -slack)
        best = hopeful[np.argsort(-gains[hopeful], kind="stable")][:PER_SIZE]
        if ask is None:
            sure = best[gains[best] >= 0]
            if len(sure):
                return _found(sets[sure[0]], predict, goal, exact_before)
            continue
        cut = cut or len(best) > max_calls - n_calls
        best = best[: max_calls - n_calls]
        if not len(best):
            if cut:
                break
            continue
        scores = ask(masks[best])
        n_calls += len(best)
        reached = np.flatnonzero(_gains(scores, goal, threshold) >= 0)
        if len(reached):
            # Of those that do, the one that does it best.
            at = reached[np.argmax(_gains(scores[reached], goal, threshold))]
            chosen = sets[best[at]]
            predicted = float(predict(_masks(chosen[None], goal))[0])
            units = tuple(np.flatnonzero(chosen).tolist())
            status = _status(VERIFIED, units, goal)
            return FoundSet(units, predicted, float(scores[at]), status, exact_before, n_calls)
    return FoundSet((), np.nan, np.nan, CALLS_USED_UP if cut else NOT_FOUND, exact, n_calls)


def prefix_set(order: IntArray, ask: Scored, goal: Goal, threshold: float) -> FoundSet:
    """The smallest prefix of a ranking that reaches the goal, found by bisection and so by few calls.

    Parameters
    ----------
    order
        Shape (n_units,): units, the first to be kept or removed first.
    ask
        The model.
    goal, threshold
        As for `find_set`.
    """
    n_units, n_calls = len(order), 0
    low, high, best = 0, n_units, (np.nan, -1)
    while low <= high:
        size = (low + high) // 2
        chosen = np.zeros((1, n_units), dtype=np.bool_)
        chosen[0, order[:size]] = True
        score = float(ask(_masks(chosen, goal))[0])
        n_calls += 1
        if _gains(np.array([score]), goal, threshold)[0] >= 0:
            best, high = (score, size), size - 1
        else:
            low = size + 1
    score, size = best
    units = tuple(sorted(order[: max(size, 0)].tolist()))
    status = _status(VERIFIED, units, goal) if size >= 0 else NOT_FOUND
    return FoundSet(units, np.nan, score, status, False, n_calls)


def _status(by: str, units: tuple[int, ...], goal: Goal) -> str:
    """By whom a set is confirmed, and what it means where it is empty."""
    return by if units else f"{by}: {EMPTY[goal]}"


def _by_size(predict: Scored, n_units: int, goal: Goal) -> Iterator[tuple[BoolArray, bool]]:
    """Sets of each size from none to all, and whether they are all there are."""
    last = np.zeros((1, n_units), dtype=np.bool_)
    yield last, True
    for size in range(1, n_units + 1):
        listed = comb(n_units, size) <= MOST_LISTED
        last = _all_sets(n_units, size) if listed else _grown(last, predict, goal)
        yield last, listed


def _all_sets(n_units: int, size: int) -> BoolArray:
    members = np.array(list(combinations(range(n_units), size)), dtype=np.int64)
    sets = np.zeros((len(members), n_units), dtype=np.bool_)
    np.put_along_axis(sets, members, True, axis=1)
    return sets


def _grown(sets: BoolArray, predict: Scored, goal: Goal) -> BoolArray:
    """The best sets with each other unit added, each once."""
    gains = _gains(predict(_masks(sets, goal)), goal, 0.0)
    best = sets[np.argsort(-gains, kind="stable")[:BEAM]]
    grown = best[:, None, :] | np.eye(sets.shape[1], dtype=np.bool_)
    larger = grown[~best].reshape(-1, sets.shape[1])
    return np.unique(larger, axis=0)


def _masks(sets: BoolArray, goal: Goal) -> BoolArray:
    """What is kept."""
    return sets if goal == "sufficient" else ~sets


def _gains(scores: FloatArray, goal: Goal, threshold: float) -> FloatArray:
    """How far on the right side of the threshold; a score on it counts as keeping the prediction."""
    if goal == "sufficient":
        return scores - threshold
    return np.where(scores < threshold, threshold - scores, np.minimum(threshold - scores, -1e-300))


def _found(chosen: BoolArray, predict: Scored, goal: Goal, exact: bool) -> FoundSet:
    predicted = float(predict(_masks(chosen[None], goal))[0])
    units = tuple(np.flatnonzero(chosen).tolist())
    return FoundSet(units, predicted, np.nan, _status(UNVERIFIED, units, goal), exact, 0)
