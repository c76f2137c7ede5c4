"""Metrics that erase units in the order of their scores: ERASER's two, insertion and deletion curves.

Everything here is arrays; `piste.evaluation.faithfulness` asks the model.
"""

from collections.abc import Sequence

import numpy as np

from piste._errors import InputError
from piste._typing import BoolArray, FloatArray, IntArray

BINS = (0.01, 0.05, 0.10, 0.20, 0.50)
"""ERASER's shares of a text that count as the rationale."""

_ROUNDING = 1e-12  # relative to the largest score: what a solve leaves of a difference that is none


def comparable(scores: FloatArray) -> FloatArray:
    """Scores in multiples of 1e-12 of the largest, rounded, so that rounding errors make no order.

    >>> comparable(np.array([1.0, 1.0 + 1e-16, -0.0])).tolist()
    [1000000000000.0, 1000000000000.0, 0.0]
    """
    largest = np.abs(scores).max(initial=0.0)
    if not largest > 0:
        return np.zeros_like(scores)
    rounded: FloatArray = np.rint(scores / largest / _ROUNDING) + 0.0  # no negative zero
    return rounded


def relevance_order(scores: FloatArray, rng: np.random.Generator) -> IntArray:
    """Positions of the units from the largest score to the smallest; ties are in random order.

    Parameters
    ----------
    scores
        Shape (n_units,), float64, finite; towards the target.
    rng
        Orders the ties: the same state gives the same order.

    >>> relevance_order(np.array([0.1, -2.0, 0.7]), np.random.default_rng(0)).tolist()
    [2, 0, 1]
    """
    shuffled = rng.permutation(len(scores))
    order: IntArray = shuffled[np.argsort(-comparable(scores)[shuffled], kind="stable")]
    return order


def tied_at(scores: FloatArray, counts: IntArray) -> BoolArray:
    """Whether a tie decides which units are the first ``counts`` of the order, shape of ``counts``.

    >>> tied_at(np.array([3.0, 1.0, 1.0]), np.array([0, 1, 2, 3])).tolist()
    [False, False, True, False]
    """
    falling = -np.sort(-comparable(scores))
    inside = (counts > 0) & (counts < len(scores))
    tied = np.zeros(len(counts), dtype=np.bool_)
    tied[inside] = falling[counts[inside] - 1] == falling[counts[inside]]
    return tied


def first_units(order: IntArray, counts: IntArray) -> BoolArray:
    """Masks of the first units of an order, shape (n_counts, n_units); ``~`` gives all the others.

    >>> first_units(np.array([2, 0, 1]), np.array([0, 2])).astype(int).tolist()
    [[0, 0, 0], [1, 0, 1]]
    """
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    first: BoolArray = ranks < counts[:, None]
    return first


def bin_sizes(n_units: int, bins: Sequence[float] = BINS) -> IntArray:
    """How many units are the rationale at each share of a text: ``ceil(share * n_units)``.

    Rounded up, as in ERASER's later code, so that a short text never has an empty rationale.

    Raises
    ------
    InputError
        If there is no share, or one outside (0, 1].

    References
    ----------
    DeYoung et al. 2020, arXiv:1911.03429.

    >>> bin_sizes(30).tolist()
    [1, 2, 3, 6, 15]
    """
    shares = np.asarray(bins, dtype=np.float64)
    if not shares.size or not ((shares > 0) & (shares <= 1)).all():
        raise InputError(f"Got bins {list(bins)}; expected shares of a text in (0, 1], such as 0.05.")
    # 0.1 * 30 is a float step above 3, which is no fourth unit.
    sizes: IntArray = np.ceil(shares * n_units - 1e-9).astype(np.int64)
    return sizes


def human_size(lengths: Sequence[int]) -> int:
    """ERASER's k for a data set: the mean length of its human rationales in units, at least 1.

    Parameters
    ----------
    lengths
        Units in the human rationale of each document; documents without one do not count.

    Raises
    ------
    InputError
        If no document has a rationale.

    References
    ----------
    DeYoung et al. 2020, arXiv:1911.03429; rounded to the nearest whole number.

    >>> human_size([2, 3, 0, 5])
    3
    """
    given = [length for length in lengths if length > 0]
    if not given:
        raise InputError(
            "Got no document with a human rationale; expected at least one. Leave rationales out."
        )
    return max(1, round(float(np.mean(given))))


def comprehensiveness(full: float, without: FloatArray) -> FloatArray:
    """What is lost when the rationale is erased: ``y(x) - y(x without r)``; higher is better.

    Parameters
    ----------
    full
        The model's score of the whole text for the target; a probability in ERASER, or log-odds.
    without
        Shape (n_bins,), float64, in the same units: scores of the text without each rationale.

    References
    ----------
    DeYoung et al. 2020, arXiv:1911.03429.

    >>> comprehensiveness(0.75, np.array([0.5, 0.125])).tolist()
    [0.25, 0.625]
    """
    return full - without


def sufficiency(full: float, only: FloatArray) -> FloatArray:
    """What is lost when only the rationale stays: ``y(x) - y(r)``; lower is better, may be negative.

    Parameters
    ----------
    full
        The model's score of the whole text for the target; a probability in ERASER, or log-odds.
    only
        Shape (n_bins,), float64, in the same units: scores of each rationale, in the text's own order.

    References
    ----------
    DeYoung et al. 2020, arXiv:1911.03429.

    >>> sufficiency(0.75, np.array([0.5, 1.0])).tolist()
    [0.25, -0.25]
    """
    return full - only


def aopc(values: FloatArray) -> float:
    """Area over the perturbation curve: the mean over the listed bins.

    The convention of ERASER's code. Equation 3 of the paper can be read as dividing by one more, for an
    empty rationale, which makes five bins 5/6 of this.

    >>> aopc(np.array([0.0, 0.25, 0.5]))
    0.25
    """
    return float(np.mean(values))


def curve_counts(n_units: int, points: int = 20) -> IntArray:
    """At how many units a curve is read: every count up to ``points`` units, else about as many.

    From 0 to ``n_units``, and symmetric: with ``c`` it has ``n_units - c``.

    >>> curve_counts(3).tolist(), curve_counts(100, 4).tolist()
    ([0, 1, 2, 3], [0, 25, 50, 75, 100])
    """
    if points < 1:
        raise InputError(f"Got points={points}; expected at least 1 step of a curve.")
    counts = np.rint(np.linspace(0, n_units, min(points, n_units) + 1)).astype(np.int64)
    both: IntArray = np.union1d(counts, n_units - counts)
    return both


def insertion_masks(order: IntArray, counts: IntArray, *, most_first: bool = True) -> BoolArray:
    """Masks that add units one after another to the empty text, shape (n_counts, n_units).

    ``most_first`` adds the most relevant first (a faithful explanation has a large area), otherwise the
    least relevant (small). Adding the least relevant first passes through the same texts as deleting
    the most relevant first, so each insertion has the area of the opposite deletion.
    """
    return first_units(order if most_first else order[::-1], counts)


def deletion_masks(order: IntArray, counts: IntArray, *, most_first: bool = True) -> BoolArray:
    """Masks that take units one after another from the whole text, shape (n_counts, n_units).

    ``most_first`` deletes the most relevant first (a faithful explanation has a small area), otherwise
    the least relevant (large).
    """
    return ~first_units(order if most_first else order[::-1], counts)


def curve_area(counts: IntArray, values: FloatArray) -> float:
    """Area under a curve over the share of units, ``0 <= c / n <= 1``, by the trapezoid rule.

    The mean height, so texts of all lengths compare. In the units of the values.

    Parameters
    ----------
    counts
        Shape (n_counts,), int64, increasing from 0 to the number of units.
    values
        Shape (n_counts,), float64: the model's score at each count.

    References
    ----------
    Petsiuk et al. 2018, arXiv:1806.07421.

    >>> curve_area(np.array([0, 1, 2]), np.array([0.0, 1.0, 1.0]))
    0.75
    """
    return float(np.trapezoid(values, counts / counts[-1]))
