"""Numba kernels over sparse mask rows.

A row lists either the units that it keeps or, where they are fewer, those that it removes from the
full text, so that the cost of every kernel grows with the units that a mask changes and not with the
length of the text. In symbols, with ``full`` the counts of the whole text and ``L`` the listed part,

    M_r = L_r            where ``removed[r]`` is False
    M_r = full - L_r     where ``removed[r]`` is True (sparse plus rank one).
"""

import numpy as np

from piste._typing import BoolArray, FloatArray, IntArray
from piste.fitting._jit import jit

# A removal row is summed afresh once this little of the full sum is left: the difference of two
# nearly equal numbers would lose as many digits as their ratio has.
CANCELLATION = 1e-6


@jit
def list_rows(
    masks: FloatArray, full: FloatArray, background: bool
) -> tuple[IntArray, IntArray, FloatArray, BoolArray]:
    """Each row as what it keeps or what it removes: ``indptr, listed, counts, removed``.

    The background, where there is one, is column 0: every row keeps it and the units follow.
    """
    n_rows, n_units = masks.shape
    first = 1 if background else 0
    removed = np.empty(n_rows, dtype=np.bool_)
    indptr = np.zeros(n_rows + 1, dtype=np.int64)
    for row in range(n_rows):
        kept, missing = first, 0
        for unit in range(n_units):
            kept += masks[row, unit] != 0.0
            missing += masks[row, unit] != full[unit]
        removed[row] = missing < kept
        indptr[row + 1] = indptr[row] + (missing if removed[row] else kept)
    listed = np.empty(indptr[-1], dtype=np.int64)
    counts = np.empty(indptr[-1])
    at = 0
    for row in range(n_rows):
        if background and not removed[row]:
            listed[at], counts[at] = 0, 1.0
            at += 1
        for unit in range(n_units):
            count = full[unit] - masks[row, unit] if removed[row] else masks[row, unit]
            if count != 0.0:
                listed[at], counts[at] = first + unit, count
                at += 1
    return indptr, listed, counts, removed


@jit
def times(
    indptr: IntArray,
    listed: IntArray,
    counts: FloatArray,
    removed: BoolArray,
    full: FloatArray,
    right: FloatArray,
    n_weights: int,
) -> FloatArray:
    """``M @ right``, shape (n_rows, n_columns).

    The first ``n_weights`` columns of ``right`` are positive weights; where one of them nearly cancels
    in a removal row, the row is summed over what it keeps.
    """
    n_rows, n_columns = len(removed), right.shape[1]
    total = np.zeros(n_columns)
    for unit in range(len(full)):
        for column in range(n_columns):
            total[column] += full[unit] * right[unit, column]
    out = np.empty((n_rows, n_columns))
    for row in range(n_rows):
        sign = -1.0 if removed[row] else 1.0
        for column in range(n_columns):
            out[row, column] = total[column] if removed[row] else 0.0
        for at in range(indptr[row], indptr[row + 1]):
            for column in range(n_columns):
                out[row, column] += sign * counts[at] * right[listed[at], column]
        if removed[row]:
            cancels = False
            for column in range(n_weights):
                cancels |= out[row, column] < CANCELLATION * total[column]
            if cancels:
                _sum_kept(row, indptr, listed, counts, full, right, out)
    return out


@jit
def _sum_kept(
    row: int,
    indptr: IntArray,
    listed: IntArray,
    counts: FloatArray,
    full: FloatArray,
    right: FloatArray,
    out: FloatArray,
) -> None:
    """One removal row of ``M @ right`` summed over the units it keeps; rows list units in order."""
    out[row, :] = 0.0
    at = indptr[row]
    for unit in range(len(full)):
        kept = full[unit]
        if at < indptr[row + 1] and listed[at] == unit:
            kept -= counts[at]
            at += 1
        if kept > 0.0:
            for column in range(right.shape[1]):
                out[row, column] += kept * right[unit, column]


@jit
def transposed_times(
    indptr: IntArray,
    listed: IntArray,
    counts: FloatArray,
    removed: BoolArray,
    full: FloatArray,
    right: FloatArray,
) -> FloatArray:
    """``M.T @ right``, shape (n_units, n_columns)."""
    n_columns = right.shape[1]
    out = np.zeros((len(full), n_columns))
    total = np.zeros(n_columns)
    for row in range(len(removed)):
        sign = -1.0 if removed[row] else 1.0
        if removed[row]:
            for column in range(n_columns):
                total[column] += right[row, column]
        for at in range(indptr[row], indptr[row + 1]):
            for column in range(n_columns):
                out[listed[at], column] += sign * counts[at] * right[row, column]
    for unit in range(len(full)):
        for column in range(n_columns):
            out[unit, column] += full[unit] * total[column]
    return out


@jit
def weighted_gram(
    indptr: IntArray,
    listed: IntArray,
    counts: FloatArray,
    removed: BoolArray,
    full: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """``M.T @ diag(weights[k]) @ M`` for every row of weights, shape (n_weights, n_units, n_units).

    For removal rows, ``sum c (full - L)(full - L)^T`` expands into ``(sum c) full full^T`` minus the
    two rank-one terms with ``d = sum c L`` plus the listed pairs.
    """
    n_units = len(full)
    out = np.zeros((len(weights), n_units, n_units))
    for k in range(len(weights)):
        gram = out[k]  # one after the other, so that a whole matrix stays in cache
        changed = np.zeros(n_units)
        total = 0.0
        for row in range(len(removed)):
            weight = weights[k, row]
            if removed[row]:
                total += weight
            for at in range(indptr[row], indptr[row + 1]):
                scaled = weight * counts[at]
                gram_row = gram[listed[at]]
                if removed[row]:
                    changed[listed[at]] += scaled
                for other in range(indptr[row], at + 1):
                    gram_row[listed[other]] += scaled * counts[other]
        for i in range(n_units):
            for j in range(i + 1):
                gram[i, j] += total * full[i] * full[j] - changed[i] * full[j] - full[i] * changed[j]
                gram[j, i] = gram[i, j]
    return out


def warm_up() -> None:
    """Compile every kernel, or load it from Numba's cache on disk."""
    row = (
        np.array([0, 1], dtype=np.int64),
        np.zeros(1, dtype=np.int64),
        np.ones(1),
        np.ones(1, dtype=np.bool_),
        np.ones(2),
    )
    list_rows(np.ones((1, 2)), np.ones(2), True)
    times(*row, np.ones((2, 1)), 1)
    transposed_times(*row, np.ones((1, 1)))
    weighted_gram(*row, np.ones((1, 1)))
