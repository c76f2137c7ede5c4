r"""Pairwise Shapley interactions: of any masks and answers, of a full table, and of a fitted SLALOM.

Both indices here average the same thing. How much two units add together beyond what each adds alone
is the discrete derivative ``D_ij(T) = F(T+i+j) - F(T+i) - F(T+j) + F(T)``. With f the multilinear
extension of the game (every unit present with its own probability p_k), its average over the sets T in
which every unit is present with probability p is the second derivative of f on the diagonal, so

    pair_ij = int_0^1 b(p) d^2 f / dp_i dp_j (p, ..., p) dp = sum_T c_t D_ij(T),   t = |T|,
    k-SII:       b(p) = 1,             c_t = int p^t (1 - p)^(n-2-t) dp        = 1 / ((n - 1) C(n-2, t))
    Faith-SHAP:  b(p) = 6 p (1 - p),   c_t = 6 int p^(t+1) (1 - p)^(n-1-t) dp  = 6 / ((n + 1) C(n, t+1))

(Owen 1972; Grabisch & Roubens 1999; the second is theorem 19 of Tsai et al. 2023 at order two, read as
a Beta integral). Main effects follow from the Shapley values phi in both: ``main_i = phi_i - 1/2 sum_j
pair_ij``. For k-SII that is its definition; for Faith-SHAP it says that projecting the game on pairs
and then on single units is projecting it on single units, as the Shapley kernel defines both
projections. Main effects and pairs together add up to F(full) - F(empty).

Sources: Owen (1972), doi:10.1287/mnsc.18.5.64; Grabisch & Roubens (1999), doi:10.1007/s001820050125;
Tsai, Yeh & Ravikumar (2023), arXiv:2203.00870; Bordt & von Luxburg (2023), arXiv:2209.04012 (n-SII,
here k-SII at order two). The quadrature for SLALOM is piste's.
"""

from dataclasses import dataclass
from math import comb
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from piste._typing import BoolArray, FloatArray
from piste.fitting.linear import solve_constrained
from piste.fitting.shapley import Nodes, check_enumerated, lifts, quadrature_nodes

PairIndex = Literal["faith-shap", "k-sii"]


@dataclass(frozen=True)
class PairFit:
    """Main effects and pairs, ``F(S) ≈ F(empty) + sum_{i in S} main_i + sum_{i<j in S} pair_ij``.

    Parameters
    ----------
    main
        Shape (n_outputs, n_units), float64, in the unit of the scores.
    pairs
        Shape (n_outputs, n_units, n_units), float64, symmetric with zero diagonal.
    main_identified
        Shape (n_units,), bool: whether the answers determine the main effect.
    pairs_identified
        Shape (n_units, n_units), bool, likewise; True on the diagonal.
    """

    main: FloatArray
    pairs: FloatArray
    main_identified: BoolArray
    pairs_identified: BoolArray

    def predict(self, masks: FloatArray) -> FloatArray:
        """What the units of each mask add to F(empty), shape (n_masks, n_outputs)."""
        return pair_model(masks, self.main, self.pairs)


def fit_pairs(masks: FloatArray, gains: FloatArray, weights: FloatArray, total: FloatArray) -> PairFit:
    r"""Faith-SHAP of order two by weighted least squares that adds up exactly.

    .. math::

        \min \sum_z w_z \Big(g_z - \sum_i z_i a_i - \sum_{i<j} z_i z_j a_{ij}\Big)^2
        \quad\text{subject to}\quad \sum_i a_i + \sum_{i<j} a_{ij} = t

    The constraint is eliminated. Of equally good solutions the one nearest to equal main effects
    ``t / n`` and no pairs is returned. All masks under the Shapley kernel give Faith-SHAP.

    Parameters
    ----------
    masks
        Shape (n_masks, n_units), float64, 0/1, without empty and full rows.
    gains
        Shape (n_masks, n_outputs), float64: scores minus the empty text's.
    weights
        Shape (n_masks,), float64, non-negative.
    total
        Shape (n_outputs,), float64: the full text's gain.

    References
    ----------
    Tsai, Yeh & Ravikumar (2023), Faith-Shap, arXiv:2203.00870.
    """
    n_units = masks.shape[1]
    share = total / n_units
    beyond = gains - np.outer(masks.sum(axis=1), share)
    fit = solve_constrained(pair_features(masks), beyond, weights, total=np.zeros_like(total))
    return PairFit(
        main=fit.coef[:, :n_units] + share[:, None],
        pairs=_symmetric(fit.coef[:, n_units:], n_units),
        main_identified=fit.identified[:n_units],
        pairs_identified=_symmetric(fit.identified[n_units:], n_units)
        | np.eye(n_units, dtype=np.bool_),
    )


def pair_model(masks: FloatArray, main: FloatArray, pairs: FloatArray) -> FloatArray:
    """``sum_i z_i a_i + sum_{i<j} z_i z_j a_ij``, shape (n_masks, n_outputs); see `PairFit`."""
    joint: FloatArray = np.einsum("ri,oij,rj->ro", masks, pairs, masks, optimize=True)
    return masks @ main.T + 0.5 * joint


def pair_features(masks: FloatArray) -> FloatArray:
    """The masks and, for i < j, the products of their columns: (n_masks, n_units (n_units + 1) / 2)."""
    first, second = np.triu_indices(masks.shape[1], 1)
    return np.hstack([masks, masks[:, first] * masks[:, second]])


def pair_sums(
    masks: FloatArray, scores: FloatArray, shares: FloatArray, index: PairIndex = "k-sii"
) -> FloatArray:
    """Estimates of ``pair_ij = sum_T c_t D_ij(T)``, each answer entering once.

    The sum runs over sizes; within a size over all its masks, whose mean the given ones estimate. It is
    exact for sizes of which every mask is given.

    Parameters
    ----------
    masks
        Shape (n_masks, n_units), float64, 0/1.
    scores
        Shape (n_masks, n_outputs), float64.
    shares
        Shape (n_masks,), float64: what each row counts in the mean of its size; they sum to 1 in each.

    Returns
    -------
    Shape (n_outputs, n_units, n_units), float64, symmetric with zero diagonal.
    """
    n_units = masks.shape[1]
    sizes = masks.sum(axis=1).astype(np.int64)
    # By how many of i and j a mask keeps, an answer enters with c_{s-2}, -c_{s-1} or c_s. As a
    # polynomial in z_i and z_j that is (both + 2 one + none) z_i z_j - (one + none) (z_i + z_j) + none.
    none, one, both = (
        shares * np.array([_mass(index, n_units, s, k) for s in range(n_units + 1)])[sizes]
        for k in range(3)
    )
    pairs = []
    for answers in scores.T:
        products = masks.T @ ((answers * (both + 2.0 * one + none))[:, None] * masks)
        singles = masks.T @ (answers * (one + none))
        pairs.append(products - singles[:, None] - singles + answers @ none)
    return _without_diagonal(np.array(pairs))


def exact_pairs(scores: ArrayLike, masks: ArrayLike, index: PairIndex = "faith-shap") -> FloatArray:
    """Exact pairwise interactions of a game from the answers to all of its coalitions.

    Parameters
    ----------
    scores
        Shape (2^n_units,) or (2^n_units, n_outputs), finite.
    masks
        Shape (2^n_units, n_units), bool or 0/1: every coalition once, in any order.

    Returns
    -------
    Shape (n_units, n_units) or (n_outputs, n_units, n_units), float64, symmetric with zero diagonal;
    the main effects are ``exact_shapley(...) - pairs.sum(axis=-1) / 2``.

    Raises
    ------
    InputError
        As `piste.fitting.shapley.exact_shapley`.

    Examples
    --------
    >>> exact_pairs([0.0, 1.0, 3.0, 6.0], [[0, 0], [1, 0], [0, 1], [1, 1]])
    array([[0., 2.],
           [2., 0.]])
    """
    answers, present = np.asarray(scores, np.float64), np.asarray(masks) != 0
    check_enumerated(answers, present)
    n_units, sizes = present.shape[1], present.sum(axis=1)
    columns = answers.reshape(len(answers), -1)
    columns = columns - columns[sizes == 0]
    shares = 1.0 / np.array([comb(n_units, s) for s in range(n_units + 1)])[sizes]
    pairs = pair_sums(present.astype(np.float64), columns, shares, index)
    return pairs[0] if answers.ndim == 1 else pairs


# The multilinear extension of a SLALOM, in the symbols at the top of `shapley`, seen as a function of
# p_i and p_j alone, with B what the other units contribute to sum_k p_k c_k:
#
#     f = int P / (q_i q_j) [q_i q_j B + p_i w_i d_i e_i q_j + p_j w_j d_j e_j q_i] dt
#     d^2 f / dp_i dp_j = int P / (q_i q_j) [x_i x_j B - w_i d_i e_i x_j - w_j d_j e_j x_i] dt.
#
# On the diagonal B = p (A - c_i - c_j). With y = x / q and h = c / q, for which 1 + p y = 1 / q,
#
#     d^2 f / dp_i dp_j = int P [p A y_i y_j - h_i y_j - y_i h_j] dt:
#
# three matrix products over the nodes. The integrand is of degree n - 2 in p, n with the factor
# 6 p (1 - p) of Faith-SHAP, so one node more than Shapley values need is always enough.
def slalom_pairs(
    value: ArrayLike,
    importance: ArrayLike,
    background_value: float,
    background_importance: float,
    index: PairIndex = "faith-shap",
) -> FloatArray:
    """Exact pairwise interactions of a SLALOM with any number of units, without a model query.

    Accurate to about 1e-13 of ``max |v - F(empty)|``; the work is O(n_units^2.5) matrix products.

    Parameters
    ----------
    value, importance, background_value, background_importance
        As `piste.fitting.shapley.slalom_shapley`.
    index
        ``faith-shap`` or ``k-sii``.

    Returns
    -------
    Shape (n_units, n_units), float64, symmetric with zero diagonal, in the unit of ``value``; the main
    effects are ``slalom_shapley(...) - pairs.sum(axis=1) / 2``.

    Raises
    ------
    InputError
        As `piste.fitting.shapley.slalom_shapley`.

    References
    ----------
    The derivation stands above this function.

    Examples
    --------
    >>> slalom_pairs([1.0, 3.0], [0.0, 0.0], 0.0, -np.inf)  # F = 2 for both, 1 and 3 alone
    array([[ 0., -2.],
           [-2.,  0.]])
    """
    lift, log_weights = lifts(value, importance, background_value, background_importance)
    nodes = quadrature_nodes(log_weights, background_importance, more_shares=1)
    pairs = np.zeros((len(lift), len(lift)))
    for share, share_weight in zip(nodes.shares, nodes.share_weights, strict=True):
        density = 6.0 * share * (1.0 - share) if index == "faith-shap" else 1.0
        slope = _second_slopes(lift, log_weights, background_importance, nodes, share)
        pairs += share_weight * density * slope
    return _without_diagonal(pairs)


def slalom_pairs_heads(
    value: ArrayLike,
    importance: ArrayLike,
    background_value: ArrayLike,
    background_importance: ArrayLike,
    index: PairIndex = "faith-shap",
) -> FloatArray:
    """Exact pairwise interactions of a sum of SLALOMs: those of its heads, added up.

    Parameters
    ----------
    value, importance
        Shape (..., n_heads, n_units), broadcast.
    background_value, background_importance
        Shape (..., n_heads), broadcast likewise.

    Returns
    -------
    Shape (..., n_units, n_units), float64.

    Examples
    --------
    >>> slalom_pairs_heads([[1.0, 3.0], [0.0, 2.0]], np.zeros((2, 2)), 0.0, -np.inf)
    array([[ 0., -3.],
           [-3.,  0.]])
    """

    def of_head(v: FloatArray, s: FloatArray, v_0: float, s_0: float) -> FloatArray:
        return slalom_pairs(v, s, v_0, s_0, index)

    over_heads = np.vectorize(of_head, signature="(n),(n),(),()->(n,n)")
    by_head: FloatArray = over_heads(value, importance, background_value, background_importance)
    total: FloatArray = by_head.sum(axis=-3)
    return total


def _second_slopes(
    lift: FloatArray, log_weights: FloatArray, log_background: float, nodes: Nodes, share: float
) -> FloatArray:
    """Integral over t of d^2 f / dp_i dp_j at one p, shape (n_units, n_units); diagonal meaningless."""
    times = np.exp(nodes.log_times[:, None] + log_weights)  # t w, shape (n_times, n_units)
    absent = -np.expm1(-times)
    q = 1.0 - share * absent
    y = absent / q
    c = times * np.exp(-times) * lift / q
    background = np.exp(nodes.log_times + log_background)
    product = nodes.time_weights * np.exp(np.log(q).sum(axis=1) - background)
    crossed = (product[:, None] * c / q).T @ y
    slopes: FloatArray = (y * (product * share * c.sum(axis=1))[:, None]).T @ y - crossed - crossed.T
    return slopes


def _mass(index: PairIndex, n_units: int, size: int, n_kept: int) -> float:
    """``C(n, size) c_t`` for masks that keep ``n_kept`` of a pair, so t = size - n_kept others."""
    n_others, n_masks = size - n_kept, comb(n_units, size)
    if not 0 <= n_others <= n_units - 2:
        return 0.0
    if index == "faith-shap":
        return 6 * n_masks / ((n_units + 1) * comb(n_units, n_others + 1))
    return n_masks / ((n_units - 1) * comb(n_units - 2, n_others))


def _symmetric(of_pairs: NDArray[Any], n_units: int) -> NDArray[Any]:
    """One entry per pair i < j, shape (..., n_pairs), as matrices with a zero diagonal."""
    first, second = np.triu_indices(n_units, 1)
    full = np.zeros((*of_pairs.shape[:-1], n_units, n_units), dtype=of_pairs.dtype)
    full[..., first, second] = full[..., second, first] = of_pairs
    return full


def _without_diagonal(pairs: FloatArray) -> FloatArray:
    """The same with zeros on the diagonals and exact symmetry."""
    first, second = np.triu_indices(pairs.shape[-1], 1)
    return _symmetric(pairs[..., first, second], pairs.shape[-1])
