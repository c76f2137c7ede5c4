"""Numba kernels over sparse mask rows.

A row keeps a list of units or removes it from the full text, whichever list is shorter, and rows of the
same list share it, as a mask and its complement do, which designs draw together. So the cost of every
kernel grows with the units that different masks change and not with the length of the text. In symbols,
with ``full`` the counts of the whole text, ``L`` the listed part and ``e`` the background alone (column
0, where there is one),

    M_r = e + L_r        where ``removed[r]`` is False
    M_r = full - L_r     where ``removed[r]`` is True (sparse plus rank one).
"""

from typing import TYPE_CHECKING

import numpy as np

from piste._typing import FloatArray, IntArray
from piste.fitting._jit import jit

if TYPE_CHECKING:
    from piste.fitting._rows import MaskRows

# A removal row is summed afresh once this little of the full sum is left: the difference of two
# nearly equal numbers would lose as many digits as their ratio has.
CANCELLATION = 1e-6


@jit
def times(rows: "MaskRows", right: FloatArray, n_weights: int) -> FloatArray:
    """``M @ right``, shape (n_rows, n_columns).

    The first ``n_weights`` columns of ``right`` are positive weights; where one of them nearly cancels
    in a removal row, the row is summed over what it keeps.
    """
    indptr, listed, counts, full = rows.indptr, rows.listed, rows.counts, rows.full
    n_lists, n_rows, n_columns = len(indptr) - 1, len(rows.lists), right.shape[1]
    total = np.zeros(n_columns)
    for unit in range(len(full)):
        for column in range(n_columns):
            total[column] += full[unit] * right[unit, column]
    part = np.zeros((n_lists, n_columns))
    for one in range(n_lists):
        for at in range(indptr[one], indptr[one + 1]):
            for column in range(n_columns):
                part[one, column] += counts[at] * right[listed[at], column]
    out = np.empty((n_rows, n_columns))
    for row in range(n_rows):
        one = rows.lists[row]
        cancels = False
        for column in range(n_columns):
            if rows.removed[row]:
                out[row, column] = total[column] - part[one, column]
                cancels |= column < n_weights and out[row, column] < CANCELLATION * total[column]
            elif rows.background:
                out[row, column] = right[0, column] + part[one, column]
            else:
                out[row, column] = part[one, column]
        if cancels:
            _sum_kept(
                out[row], listed[indptr[one] : indptr[one + 1]], counts[indptr[one] :], full, right
            )
    return out


@jit
def _sum_kept(
    out: FloatArray, listed: IntArray, counts: FloatArray, full: FloatArray, right: FloatArray
) -> None:
    """One removal row of ``M @ right`` summed over the units it keeps; lists are in order."""
    out[:] = 0.0
    at = 0
    for unit in range(len(full)):
        kept = full[unit]
        if at < len(listed) and listed[at] == unit:
            kept -= counts[at]
            at += 1
        if kept > 0.0:
            for column in range(right.shape[1]):
                out[column] += kept * right[unit, column]


@jit
def transposed_times(rows: "MaskRows", right: FloatArray) -> FloatArray:
    """``M.T @ right``, shape (n_units, n_columns)."""
    indptr, full = rows.indptr, rows.full
    n_lists, n_columns = len(indptr) - 1, right.shape[1]
    out = np.zeros((len(full), n_columns))
    of_list = np.zeros((n_lists, n_columns))
    total = np.zeros(n_columns)
    for row in range(len(rows.lists)):
        for column in range(n_columns):
            if rows.removed[row]:
                of_list[rows.lists[row], column] -= right[row, column]
                total[column] += right[row, column]
            else:
                of_list[rows.lists[row], column] += right[row, column]
                if rows.background:
                    out[0, column] += right[row, column]
    for one in range(n_lists):
        for at in range(indptr[one], indptr[one + 1]):
            for column in range(n_columns):
                out[rows.listed[at], column] += rows.counts[at] * of_list[one, column]
    for unit in range(len(full)):
        for column in range(n_columns):
            out[unit, column] += full[unit] * total[column]
    return out


@jit
def weighted_gram(rows: "MaskRows", weights: FloatArray) -> FloatArray:
    """``M.T @ diag(weights[k]) @ M`` for every row of weights, shape (n_weights, n_units, n_units).

    ``sum c (full - L)(full - L)^T`` over removal rows is ``(sum c) full full^T`` minus the two rank-one
    terms with ``d = sum c L`` plus the listed pairs; ``sum c (e + L)(e + L)^T`` likewise.
    """
    full = rows.full
    n_weights, n_columns, n_lists = len(weights), len(full), len(rows.indptr) - 1
    out = np.empty((n_weights, n_columns, n_columns))
    for first in range(0, n_weights, 4):
        n_now = min(4, n_weights - first)
        kept, gone = np.zeros((n_lists, 4)), np.zeros((n_lists, 4))
        for k in range(n_now):
            for row in range(len(rows.lists)):
                if rows.removed[row]:
                    gone[rows.lists[row], k] += weights[first + k, row]
                else:
                    kept[rows.lists[row], k] += weights[first + k, row]
        if n_now == 1:
            pairs = _listed_pairs(rows, kept[:, 0] + gone[:, 0])
        else:
            pairs = _four_listed_pairs(rows, kept + gone)
        for k in range(n_now):
            changed = _listed_sums(rows, gone[:, k])
            total, gram = gone[:, k].sum(), out[first + k]
            for i in range(n_columns):
                for j in range(i + 1):
                    beside = total * full[i] * full[j] - changed[i] * full[j] - full[i] * changed[j]
                    gram[i, j] = pairs[i, j, k] + beside
            if rows.background:
                gram[:, 0] += _listed_sums(rows, kept[:, k])
                gram[0, 0] += kept[:, k].sum()
            for i in range(n_columns):
                for j in range(i):
                    gram[j, i] = gram[i, j]
    return out


@jit
def _listed_sums(rows: "MaskRows", weights: FloatArray) -> FloatArray:
    """``sum weight L`` over the lists, shape (n_columns,)."""
    indptr, listed, counts = rows.indptr, rows.listed, rows.counts
    out = np.zeros(len(rows.full))
    for one in range(len(weights)):
        for at in range(indptr[one], indptr[one + 1]):
            out[listed[at]] += weights[one] * counts[at]
    return out


@jit
def _listed_pairs(rows: "MaskRows", weights: FloatArray) -> FloatArray:
    """Lower triangle of ``sum weight L L^T`` over the lists, shape (n_columns, n_columns, 1)."""
    indptr, listed, counts = rows.indptr, rows.listed, rows.counts
    out = np.zeros((len(rows.full), len(rows.full), 1))
    for one in range(len(weights)):
        for at in range(indptr[one], indptr[one + 1]):
            scaled = weights[one] * counts[at]
            of_unit = out[listed[at]]
            for other in range(indptr[one], at + 1):
                of_unit[listed[other], 0] += scaled * counts[other]
    return out


@jit
def _four_listed_pairs(rows: "MaskRows", weights: FloatArray) -> FloatArray:
    """The same for four weights a list side by side, shape (n_columns, n_columns, 4).

    What a pair costs is finding its place, so that four take little longer than one.
    """
    indptr, listed, counts = rows.indptr, rows.listed, rows.counts
    out = np.zeros((len(rows.full), len(rows.full), 4))
    for one in range(len(weights)):
        a, b, c, d = weights[one, 0], weights[one, 1], weights[one, 2], weights[one, 3]
        for at in range(indptr[one], indptr[one + 1]):
            of_unit = out[listed[at]]
            for other in range(indptr[one], at + 1):
                both = counts[at] * counts[other]
                sums = of_unit[listed[other]]
                sums[0] += a * both
                sums[1] += b * both
                sums[2] += c * both
                sums[3] += d * both
    return out
