"""Metrics of random removals and of repeated explanations: infidelity, sensitivity-n, max-sensitivity.

Everything here is arrays; `piste.evaluation.faithfulness` and `piste.evaluation.stability` ask.
"""

import numpy as np

from piste._errors import InputError
from piste._typing import BoolArray, FloatArray, IntArray
from piste.sampling.designs import draw, draw_of_size

_ROUNDING = 1e-9  # relative: numbers closer than that are the same


def draw_removals(n_units: int, n_masks: int, rng: np.random.Generator, *, most: int = 10) -> BoolArray:
    """What multi-removal takes away, shape (n_drawn, n_units), bool, True where a unit is removed.

    The number removed is uniform on 1 .. min(most, n_units), the units are uniform given the number, and
    rows are distinct: a short text has fewer of them.

    References
    ----------
    Leemann et al. 2025, arXiv:2405.13536, section on multi-removal fidelity.

    >>> draw_removals(2, 100, np.random.default_rng(0)).shape
    (3, 2)
    """
    most = min(most, n_units)
    return ~draw("deletions", n_units, n_masks, rng, max_units=most).masks


def draw_subsets(n_units: int, size: int, n_subsets: int, rng: np.random.Generator) -> BoolArray:
    """Distinct random subsets of one size, or all of them, shape (n_drawn, n_units), bool.

    >>> draw_subsets(4, 3, 100, np.random.default_rng(0)).sum(axis=1).tolist()
    [3, 3, 3, 3]
    """
    none = np.zeros((0, n_units), dtype=np.bool_)
    return ~draw_of_size(n_units - size, n_subsets, rng, exclude=none)


def grid_sizes(n_units: int, n_sizes: int = 5) -> IntArray:
    """Subset sizes on a logarithmic grid from 1 to ``n_units - 1``.

    All units at once is one subset only, and one number has no correlation.

    >>> grid_sizes(33).tolist(), grid_sizes(3).tolist(), grid_sizes(1).tolist()
    ([1, 2, 6, 13, 32], [1, 2], [])
    """
    if n_units < 2:
        return np.zeros(0, dtype=np.int64)
    sizes: IntArray = np.unique(np.rint(np.geomspace(1, n_units - 1, n_sizes)).astype(np.int64))
    return sizes


def infidelity(
    scores: FloatArray, removed: BoolArray, drops: FloatArray, *, scaled: bool = False
) -> float:
    """How far summed scores are from what the model loses: ``mean_I (I . s - (y(x) - y(x - I)))^2``.

    Lower is better. The zero explanation has the mean squared drop, which is what to beat. Scaled, the
    scores are multiplied by ``beta = sum (I . s) d / sum (I . s)^2`` with d the drops, the best factor;
    it is 1 where the sum below is 0.

    Parameters
    ----------
    scores
        Shape (n_units,), float64: effects on y, in the units of y unless scaled.
    removed
        Shape (n_masks, n_units), bool, True where a unit is removed.
    drops
        Shape (n_masks,), float64: ``y(x) - y(x - I)``.

    Returns
    -------
    float
        In squared units of y.

    References
    ----------
    Yeh et al. 2019, arXiv:1901.09392; the factor as in captum's ``normalize``.

    >>> removed = np.array([[True, False], [True, True]])
    >>> infidelity(np.array([1.0, 1.0]), removed, np.array([1.0, 4.0]))
    2.0
    """
    predicted = removed @ scores
    if scaled:
        size = float(predicted @ predicted)
        predicted = predicted * (float(predicted @ drops) / size if size > 0 else 1.0)
    return float(np.mean((predicted - drops) ** 2))


def sensitivity_n(scores: FloatArray, removed: BoolArray, drops: FloatArray) -> float:
    """Pearson correlation of summed scores with the model's losses over subsets of one size.

    ``corr_S (sum_{i in S} s_i, y(x) - y(x without S))``, in [-1, 1]; NaN, for undefined, where either
    does not vary (beyond rounding) or there are fewer than two subsets.

    Parameters
    ----------
    scores
        Shape (n_units,), float64, in any units.
    removed
        Shape (n_subsets, n_units), bool, rows of the same sum.
    drops
        Shape (n_subsets,), float64.

    References
    ----------
    Ancona et al. 2018, arXiv:1711.06104.

    >>> sensitivity_n(np.array([1.0, 2.0, 4.0]), np.eye(3, dtype=bool), np.array([0.5, 1.0, 2.0]))
    1.0
    """
    if len(removed) < 2 or not np.isfinite(drops).all():
        return np.nan
    both = np.stack([removed @ scores, drops])
    largest = np.abs(both).max(axis=1)
    largest[0] = np.abs(scores).sum()  # a sum may cancel to 0, but its rounding error does not
    if (np.ptp(both, axis=1) <= _ROUNDING * largest).any():
        return np.nan
    return float(np.clip(np.corrcoef(both)[0, 1], -1, 1))


def max_sensitivity(scores: FloatArray, others: FloatArray) -> float:
    """The largest relative change of an explanation: ``max_j |s_j - s| / |s|``, Euclidean norms.

    Parameters
    ----------
    scores
        Shape (n_units,), float64: the explanation.
    others
        Shape (n_others, n_units), float64: explanations of perturbed inputs, or with other seeds.

    Returns
    -------
    float
        0 for one that never changes; NaN, for undefined, where the explanation is all zero, which has
        no relative change (captum divides by 1 there), or a number is not finite.

    Raises
    ------
    InputError
        If there are no others.

    References
    ----------
    Yeh et al. 2019, arXiv:1901.09392.

    >>> max_sensitivity(np.array([3.0, 4.0]), np.array([[3.0, 4.0], [3.0, 9.0]]))
    1.0
    """
    if not len(others):
        raise InputError("Got no other explanations; expected at least one to compare with.")
    largest = float(np.abs(scores).max(initial=0.0))
    if not largest > 0:
        return np.nan
    # In units of the largest score: squares of tiny ones would vanish.
    changes = np.linalg.norm((others - scores) / largest, axis=1)
    return float(np.max(changes / np.linalg.norm(scores / largest)))
