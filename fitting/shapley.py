"""Exact Shapley values of a fitted SLALOM, and of any game whose every coalition is known.

**The game.** The units are the players, ``w = exp(s)``, and the background ``w_0`` always takes part:

    F(S) = (w_0 v_0 + sum_{i in S} w_i v_i) / W_S,      W_S = w_0 + sum_{i in S} w_i.

Without a background ``w_0 = 0`` and F(empty) = b is set by hand. In both cases subtract the answer to
the empty text: with ``d = v - F(empty)``, called lift below, ``F(S) - F(empty) = sum_{i in S} w_i d_i
/ W_S`` for every S (0/0 counting as 0), so one formula serves both, and only differences enter it.

**From 2^n coalitions to two integrals.** Let every unit j be present with its own probability p_j,
independently. The expected answer f(p_1 ... p_n) is linear in each p_j, and the Shapley value is its
slope along the diagonal (Owen 1972), ``phi_i = int_0^1 df/dp_i (p, ..., p) dp``. A quotient has no
easy expectation but ``1 / W = int_0^inf exp(-t W) dt`` turns it into products over the units:

    f = int exp(-t w_0) sum_k p_k w_k d_k e_k prod_{j != k} q_j dt,
    e_j = exp(-t w_j),  x_j = 1 - e_j,  q_j = E[exp(-t w_j [j present])] = 1 - p_j x_j.

Write ``P = exp(-t w_0) prod_j q_j``, ``c_k = w_k d_k e_k / q_k`` and ``A = sum_k c_k``, so that f is
``int P sum_k p_k c_k dt``. As ``dq_i/dp_i = -x_i`` and ``d(p_i c_i)/dp_i = c_i / q_i``,

    phi_i = int_0^1 int_0^inf (P / q_i) (c_i - p x_i A) dt dp.

No term exceeds the range of the game, for P / q_i <= 1 and ``exp(-t W) w_i`` integrates to at most 1.
Every node costs O(n_units), and about sqrt(n_units) nodes of p are needed: O(n^1.5) altogether.

**Nodes of p.** The integrand is a polynomial of degree n - 1 in p, for which ceil(n/2) Gauss-Legendre
nodes are exact. Fewer do for long texts. With ``p = (1 + z) / 2`` each factor is a mixture,
``1 - p x = (1 - x/2) 1 + (x/2) (-z)``, so a product of them is the mean of ``(-z)^K`` for a random K
that counts n - 1 independent trials of chance <= 1/2; and ``z^K`` is the mean of the Chebyshev
polynomial ``T_|Y|(z)`` over a simple random walk Y of K steps (Sachdeva & Vishnoi 2014). Y is thus a
sum of n - 1 independent steps of size <= 1 and variance <= 1/2, Bernstein's inequality bounds
``P(|Y| >= d) <= 2 exp(-d^2 / (n + 2 d / 3))``, and m nodes are exact for every T_k with k < 2m: their
error is at most twice that probability at d = 2m.

**Nodes of t.** In ``u = log t`` the integrand is analytic for ``|Im u| < pi/2`` (every q_j stays within
the unit disc, as Re t > 0), and there its absolute integral is at most the range over cos(Im u). The
trapezoid rule of step h therefore errs by no more than about ``(8 pi e / h) exp(-pi^2 / h)`` times the
range (Trefethen & Weideman 2014). On the right, ``exp(-t (w_0 + min w))`` ends it. On the left, below
``t W = 3e-9`` (W of all units), the integrand is t times a constant up to a relative 3e-9, and what is
left of it is that small as well: the infinite rest of the trapezoid sum is a geometric series.

Sources: Owen (1972), doi:10.1287/mnsc.18.5.64; Sachdeva & Vishnoi (2014), doi:10.1561/0400000065,
theorem 3.3; Trefethen & Weideman (2014), doi:10.1137/130932132, theorem 5.1. The formula is piste's.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from piste._errors import InputError
from piste._typing import BoolArray, FloatArray
from piste.fitting import _shapley_kernels as kernels

# Errs by at most 1e-17 of the range (0.23 would give 7e-17).
LOG_TIME_STEP = 0.22
# exp(-40) = 4e-18 of the range is cut off on the right; the derivatives' y^2 exp(-y), 2e-16.
LAST_EXPONENT = 40.0
# Errs by (3e-9)^2 = 1e-17 of the range, on the left.
FIRST_EXPONENT = 3e-9
# What Gauss-Legendre in p may err by, relative to the range.
SHARE_ERROR = 1e-15
MOST_ENUMERATED = 20


@dataclass(frozen=True)
class ShapleyJacobian:
    """Derivatives of a SLALOM's Shapley values with respect to its parameters.

    Row ``i`` belongs to the Shapley value of unit ``i``; all arrays are float64.

    Parameters
    ----------
    value, importance
        Shape (n_units, n_units): column ``k`` is the derivative with respect to ``v_k`` or ``s_k``.
    background_value
        Shape (n_units,): with respect to the background's value or, without one, to F(empty).
    background_importance
        Shape (n_units,): with respect to the background's importance; zero (to rounding) without one.
    """

    value: FloatArray
    importance: FloatArray
    background_value: FloatArray
    background_importance: FloatArray


class Nodes(NamedTuple):
    """Nodes and weights of both integrals, each of shape (n_nodes,), float64; the shares p ascend."""

    log_times: FloatArray
    time_weights: FloatArray
    shares: FloatArray
    share_weights: FloatArray


def slalom_shapley(
    value: ArrayLike, importance: ArrayLike, background_value: float, background_importance: float
) -> FloatArray:
    """Exact Shapley values of the units of a SLALOM, without a single model query.

    The game is ``F(S) = (w_0 v_0 + sum_{i in S} w_i v_i) / (w_0 + sum_{i in S} w_i)``, ``w = exp(s)``;
    the values sum to F(all units) - F(empty). Accurate to about 1e-14 of ``max |v - F(empty)|``; a
    constant added to all importances changes nothing. Copies of a unit are players of their own.

    Parameters
    ----------
    value, importance
        ``v`` and ``s``, shape (n_units,), finite; ``v`` in the unit of the model's scores, ``s`` in
        log weights. The cost grows with the range of ``s``: 4.5 time nodes per unit of it.
    background_value
        ``v_0``, which is F(empty); without a background, F(empty) itself.
    background_importance
        ``s_0``, or ``-inf`` for no background.

    Returns
    -------
    Shape (n_units,), float64, in the unit of ``value``.

    Raises
    ------
    InputError
        If the shapes differ, no unit is given, or a parameter is not finite.

    References
    ----------
    The derivation stands at the top of this module.

    Examples
    --------
    >>> slalom_shapley([3.0, 3.0, 0.0], [0.0, 0.0, 0.0], 0.0, -np.inf)  # all importances equal
    array([ 1.41666667,  1.41666667, -0.83333333])
    """
    lift, importance = lifts(value, importance, background_value, background_importance)
    nodes = quadrature_nodes(importance, background_importance)
    return kernels.shapley(lift, importance, float(background_importance), *nodes)


def slalom_shapley_heads(
    value: ArrayLike,
    importance: ArrayLike,
    background_value: ArrayLike,
    background_importance: ArrayLike,
) -> FloatArray:
    """Exact Shapley values of a sum of SLALOMs (heads), for one or several outputs.

    ``phi = sum_h phi(head h)``, because Shapley values are linear in the game; they sum to F(all
    units) - F(empty), where F(empty) is the sum of the background values.

    Parameters
    ----------
    value, importance
        Shape (..., n_heads, n_units); they are broadcast, so outputs may share their importances.
    background_value, background_importance
        Shape (..., n_heads), broadcast likewise; see `slalom_shapley`.

    Returns
    -------
    Shape (..., n_units), float64.

    Raises
    ------
    InputError
        As `slalom_shapley`.
    ValueError
        If the shapes do not fit together.

    Examples
    --------
    >>> slalom_shapley_heads([[1.0, 3.0], [0.0, 2.0]], np.zeros((2, 2)), 0.0, -np.inf)
    array([-0.5,  3.5])
    """
    over_heads = np.vectorize(slalom_shapley, signature="(n),(n),(),()->(n)")
    by_head: FloatArray = over_heads(value, importance, background_value, background_importance)
    total: FloatArray = by_head.sum(axis=-2)
    return total


# With y = t w and log t as the variable, every symbol below carries its own factor t.
#
# phi_i is linear in d. Collecting what multiplies d_k, with h_k = y_k e_k / q_k (so c_k = h_k d_k):
#
#     dphi_i/dv_i = ∫∫ P h_i,       dphi_i/dv_k = -∫∫ P (p x_i / q_i) h_k        (k != i),
#
# and dphi_i/dF(empty) = -sum_k dphi_i/dv_k, because only differences of values matter.
#
# As dF/ds_k = [k in S] w_k (d_k / W - N / W^2) with N = sum_S w d, the derivative of phi in s_k is the
# Shapley value of that game. With 1 / W^2 = ∫ t exp(-t W) dt its multilinear extension is
#
#     f = ∫ P p_k h_k g_k,      g_k = d_k (1 - y_k) - sum_{j != k} p_j c_j,
#
# which is differentiated by p_i as above, g_k now containing p_i c_i as well:
#
#     dphi_i/ds_i = ∫∫ P h_i g_i,   dphi_i/ds_k = -∫∫ P (p / q_i) (x_i h_k g_k + c_i h_k)   (k != i),
#
# and dphi_i/ds_0 = -sum_k dphi_i/ds_k, because a constant added to all importances changes nothing.
def slalom_shapley_jacobian(
    value: ArrayLike, importance: ArrayLike, background_value: float, background_importance: float
) -> ShapleyJacobian:
    """Derivatives of `slalom_shapley` with respect to each of its arguments.

    Analytic, by the quadrature that gives the values: ``phi = J_v (v - F(empty))`` with ``J_v`` its
    derivative in ``v``. The cost is O(n_units^2.5).

    Parameters
    ----------
    value, importance, background_value, background_importance
        As `slalom_shapley`; the derivatives count each copy of a tied unit on its own, so sum the
        columns of the copies.

    Returns
    -------
    A `ShapleyJacobian`; derivatives in importances have the unit of ``value``, the others none.

    Raises
    ------
    InputError
        As `slalom_shapley`.

    References
    ----------
    The derivation stands above this function.

    Examples
    --------
    >>> jacobian = slalom_shapley_jacobian([1.0, 3.0], [0.0, 0.0], 0.0, -np.inf)
    >>> jacobian.value
    array([[ 0.75, -0.25],
           [-0.25,  0.75]])
    """
    lift, importance = lifts(value, importance, background_value, background_importance)
    nodes = quadrature_nodes(importance, background_importance)
    by_value, by_importance = kernels.jacobian(lift, importance, float(background_importance), *nodes)
    return ShapleyJacobian(by_value, by_importance, -by_value.sum(axis=1), -by_importance.sum(axis=1))


def exact_shapley(scores: ArrayLike, masks: ArrayLike) -> FloatArray:
    """Exact Shapley values of a game from the answers to all of its coalitions.

    ``phi_i = sum_{S without i} |S|! (n - 1 - |S|)! / n! [F(S + i) - F(S)]``, each answer entering once:
    with ``1 / (n C(n - 1, |S| - 1))`` if S contains i, with ``-1 / (n C(n - 1, |S|))`` if not.

    Parameters
    ----------
    scores
        ``F``, shape (2^n_units,) or (2^n_units, n_outputs), finite.
    masks
        Shape (2^n_units, n_units), bool or 0/1: every coalition once, in any order.

    Returns
    -------
    Shape (n_units,) or (n_units, n_outputs), float64; sums to F(all) - F(empty) to rounding.

    Raises
    ------
    InputError
        If there are more than 20 units, or the masks are not all coalitions, or the shapes differ.

    References
    ----------
    Shapley (1953), "A value for n-person games", doi:10.1515/9781400881970-018.

    Examples
    --------
    >>> exact_shapley([0.0, 1.0, 3.0, 6.0], [[0, 0], [1, 0], [0, 1], [1, 1]])
    array([2., 4.])
    """
    answers, present = np.asarray(scores, np.float64), np.asarray(masks) != 0
    check_enumerated(answers, present)
    n_units = present.shape[1]
    sizes = present.sum(axis=1)
    answers = answers - answers[sizes == 0]
    # 1 / (n C(n - 1, k)) for k others present; no unit is absent from the full text (k = n).
    shares = np.array([1.0 / (n_units * math.comb(n_units - 1, k)) for k in range(n_units)] + [0.0])
    with_unit, without_unit = shares[sizes - 1], shares[sizes]
    column = (slice(None),) + (None,) * (answers.ndim - 1)
    gain, loss = with_unit[column] * answers, without_unit[column] * answers
    return np.array(
        [gain[unit].sum(axis=0) - loss[~unit].sum(axis=0) for unit in present.T], dtype=np.float64
    )


def lifts(
    value: ArrayLike, importance: ArrayLike, background_value: float, background_importance: float
) -> tuple[FloatArray, FloatArray]:
    """The values less F(empty), and the importances, both contiguous."""
    values = np.asarray(value, dtype=np.float64)
    importances = np.ascontiguousarray(importance, dtype=np.float64)
    if values.ndim != 1 or values.shape != importances.shape or not len(values):
        raise InputError(
            "values and importances need one and the same shape (n_units,) with at least one unit, got "
            f"{values.shape} and {importances.shape}"
        )
    if not (np.isfinite(values).all() and np.isfinite(importances).all()):
        raise InputError("values and importances must be finite: leave out units that were not fitted")
    if not (math.isfinite(background_value) and background_importance < math.inf):
        raise InputError(
            "the background needs a finite value and an importance that is finite, or -inf for none; "
            f"got {background_value} and {background_importance}"
        )
    return values - background_value, importances


def quadrature_nodes(
    importance: FloatArray, background_importance: float, *, more_shares: int = 0
) -> Nodes:
    """Nodes that reach full accuracy by the bounds at the top of this module.

    Each of ``more_shares`` raises by two the degree in p that is integrated exactly.
    """
    n_units = len(importance)
    bound = math.log(4.0 * n_units / SHARE_ERROR)
    degree = bound / 3.0 + math.sqrt(bound**2 / 9.0 + n_units * bound)
    n_shares = min((n_units + 1) // 2, math.ceil(degree / 2.0)) + more_shares
    legendre, share_weights = np.polynomial.legendre.leggauss(n_shares)

    all_units = np.logaddexp.reduce(importance, initial=background_importance)
    least = np.logaddexp(importance.min(), background_importance)
    first, last = math.log(FIRST_EXPONENT) - all_units, math.log(LAST_EXPONENT) - least
    log_times = first + LOG_TIME_STEP * np.arange(math.ceil((last - first) / LOG_TIME_STEP) + 1)
    time_weights = np.full(len(log_times), LOG_TIME_STEP)
    time_weights[0] /= -math.expm1(-LOG_TIME_STEP)  # 1 + exp(-h) + exp(-2 h) + ...
    return Nodes(log_times, time_weights, (1.0 + legendre) / 2.0, share_weights / 2.0)


def check_enumerated(answers: FloatArray, present: BoolArray) -> None:
    """Refuse anything but one answer to each coalition."""
    if present.ndim != 2 or not 1 <= present.shape[1] <= MOST_ENUMERATED:
        raise InputError(
            f"enumeration needs masks of shape (2^n_units, n_units) with 1 to {MOST_ENUMERATED} units, "
            f"got {present.shape}"
        )
    expected = 2 ** present.shape[1]
    codes = present @ (1 << np.arange(present.shape[1]))
    if (
        answers.ndim not in (1, 2)
        or not len(answers) == len(np.unique(codes)) == len(codes) == expected
    ):
        raise InputError(
            f"enumeration needs {expected} scores and each of the {expected} masks once, got scores "
            f"{answers.shape} and {len(np.unique(codes))} different masks in {len(codes)} rows"
        )
    if not np.isfinite(answers).all():
        raise InputError("enumeration needs finite scores: ask the model again where it gave none")
