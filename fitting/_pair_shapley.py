"""Exact Shapley values of products of attention shares, with the symbols of `piste.fitting.shapley`.

    F(S) = sum_{i < j in S} u_ij a_i a_j,      a_i = w_i / W_S.

``1 / W^2`` is ``int t exp(-t W) dt``, and so the multilinear extension is, in log t,

    f = int P sum_{i < j} u_ij (p_i h_i) (p_j h_j),      h = y exp(-y) / q,

where P holds ``q_i = 1 - p_i x_i`` for every unit. Its slope along the diagonal gives, with ``B = U h`` and
``A`` half of ``h B``,

    phi_i = int int P (p h_i B_i - p^2 (x_i / q_i) (A - h_i B_i)).
"""

import numpy as np

from piste._typing import FloatArray
from piste.fitting.shapley import quadrature_nodes

# See `piste.fitting._shapley_kernels`: nothing is left of y exp(-y) beyond.
LARGEST_LOG_EXPONENT = 6.5


def pair_shapley(pairs: FloatArray, importance: FloatArray, background_importance: float) -> FloatArray:
    """Shapley values (n_units,) of ``sum_{i < j} u_ij a_i a_j``, in the unit of ``u``.

    Parameters
    ----------
    pairs
        ``u``, shape (n_units, n_units), symmetric with a zero diagonal.
    importance
        Log weights, shape (n_units,); a constant added to all of them changes nothing.
    background_importance
        The background's, or ``-inf`` for none; without any unit F is 0.
    """
    nodes = quadrature_nodes(importance, background_importance, more_shares=1)
    phi = np.zeros(len(importance))
    p, by_share = nodes.shares[:, None], nodes.share_weights
    for log_time, by_time in zip(nodes.log_times, nodes.time_weights, strict=True):
        y = np.exp(np.minimum(log_time + importance, LARGEST_LOG_EXPONENT))
        x = -np.expm1(-y)
        q = 1.0 - p * x  # (n_shares, n_units)
        product = np.exp(np.log(q).sum(axis=1) - np.exp(log_time + background_importance))
        h = y * np.exp(-y) / q
        with_unit = h * (h @ pairs)
        without = with_unit.sum(axis=1, keepdims=True) / 2 - with_unit
        phi += by_time * (by_share * product) @ (p * with_unit - p**2 * (x / q) * without)
    return phi
