"""Which answers to ask for next: greedy A-optimal design."""

import numpy as np

from piste._typing import FloatArray, IntArray


def choose_rows(
    candidates: FloatArray, covariance: FloatArray, contrasts: FloatArray, n_rows: int
) -> IntArray:
    r"""Candidates that shrink the variances of some contrasts most, one after the other.

    With the parameters' covariance ``C`` (per unit of noise variance), an answer with gradient ``x``
    makes it ``C - C x x^T C / (1 + x^T C x)``, so the summed variance of the contrasts ``L`` falls by

        |L C x|^2 / (1 + x^T C x);

    the candidate with the largest fall is taken, the covariance is updated, and so on (A-optimality;
    Fedorov 1972, Theory of Optimal Experiments). Each pick costs one pass over the candidates.

    Parameters
    ----------
    candidates
        Shape (n_candidates, n_parameters): the prediction's gradient at each candidate mask.
    covariance
        Shape (n_parameters, n_parameters), symmetric, finite.
    contrasts
        Shape (n_contrasts, n_parameters): each row's product with the parameters is to be estimated.
    n_rows
        How many to choose, at most n_candidates.

    Returns
    -------
    Shape (n_rows,), int64: indices of distinct candidates, in the order chosen.

    Examples
    --------
    >>> choose_rows(np.array([[1.0, 0.0], [0.0, 1.0]]), np.diag([1.0, 9.0]), np.eye(2), 1)
    array([1])
    """
    n_rows = min(n_rows, len(candidates))
    spread = candidates @ covariance
    effect = spread @ contrasts.T
    variance = np.einsum("cp,cp->c", spread, candidates)
    free = np.ones(len(candidates), dtype=np.bool_)
    chosen = np.empty(n_rows, dtype=np.int64)
    for at in range(n_rows):
        fall = np.einsum("cl,cl->c", effect, effect) / (1 + variance)
        best = int(np.where(free, fall, -np.inf).argmax())
        free[best], chosen[at] = False, best
        shared = spread @ candidates[best] / (1 + variance[best])
        # Copies: the pick's own row changes during its update.
        own_spread, own_effect = spread[best].copy(), effect[best].copy()
        variance = np.maximum(variance - shared**2 * (1 + variance[best]), 0.0)
        spread -= np.outer(shared, own_spread)
        effect -= np.outer(shared, own_effect)
    return chosen
