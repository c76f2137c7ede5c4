"""Inner products of products of columns: pairs of units in ranges of their distance, never listed.

For the columns ``x_i`` of a matrix X (n_rows, n_units), the pairs at distances of one range have
``K = sum_{i<j} (x_i * x_j)(x_i * x_j)^T``. Over all pairs this is ``((X X^T)^2 - X^2 (X^2)^T) / 2``, powers
elementwise: the last range, of the far pairs, is all less the nearer ones, and only those are multiplied out.
"""

from collections.abc import Iterator

import numpy as np

from piste._typing import FloatArray

# Distances at which a new range begins.
STARTS = (1, 2, 4, 9)
# Pairs whose products are less than this share of the columns' own are lost in the rounding of differences.
LEAST_SHARE = 1e-9


def ranges(n_units: int) -> list[tuple[int, int]]:
    """Nearest distance of each range, and the first beyond it; none for a single unit."""
    ends = (*STARTS[1:], n_units)
    return [(near, min(end, n_units)) for near, end in zip(STARTS, ends, strict=True) if near < n_units]


def pair_grams(columns: FloatArray) -> FloatArray:
    """``K`` of each range, shape (n_ranges, n_rows, n_rows)."""
    near = list(_near_grams(columns))
    grams: FloatArray = np.stack([*near, _full_gram(columns) - sum(near)])
    return grams


def weighted_gram(columns: FloatArray, variances: FloatArray) -> FloatArray:
    """``sum_r v_r K_r``, shape (n_rows, n_rows), with no more than three such matrices in memory."""
    far = variances[-1]
    total: FloatArray = far * _full_gram(columns)
    for variance, gram in zip(variances[:-1], _near_grams(columns), strict=True):
        gram *= variance - far
        total += gram
    return total


def _full_gram(columns: FloatArray) -> FloatArray:
    """``K`` of all pairs."""
    gram: FloatArray = (columns @ columns.T) ** 2
    gram -= columns**2 @ columns.T**2
    gram /= 2
    return gram


def _near_grams(columns: FloatArray) -> Iterator[FloatArray]:
    """``K`` of each range but the last."""
    for start, end in ranges(columns.shape[1])[:-1]:
        gram = np.zeros((len(columns), len(columns)))
        for distance in range(start, end):
            products = columns[:, :-distance] * columns[:, distance:]
            gram += products @ products.T
        yield gram


def slope_by_columns(columns: FloatArray, slopes: FloatArray) -> FloatArray:
    """Slope (n_rows, n_units) of ``sum_r <S_r, K_r>``, with slopes S (n_ranges, n_rows, n_rows), symmetric."""
    far = slopes[-1]
    slope: FloatArray = 2 * ((far * (columns @ columns.T)) @ columns - columns * (far @ columns**2))
    for (start, end), each in zip(ranges(columns.shape[1])[:-1], slopes, strict=False):
        beyond = 2 * (each - far)
        for distance in range(start, end):
            left, right = columns[:, :-distance], columns[:, distance:]
            by_product = beyond @ (left * right)
            slope[:, :-distance] += by_product * right
            slope[:, distance:] += by_product * left
    return slope


def by_range(n_units: int, numbers: FloatArray) -> FloatArray:
    """The number (n_ranges,) of each pair's range, shape (n_units, n_units), with a zero diagonal."""
    at = np.arange(n_units)
    which = np.digitize(np.abs(at[:, None] - at), STARTS)
    pairs: FloatArray = np.concatenate([[0.0], numbers])[which]
    return pairs


def centred(gram: FloatArray) -> FloatArray:
    """Inner products (..., n_rows, n_rows) of features less their means."""
    rows = gram.mean(axis=-1, keepdims=True)
    inner: FloatArray = (
        gram - rows - gram.mean(axis=-2, keepdims=True) + rows.mean(axis=-2, keepdims=True)
    )
    return inner


def mean_squares(columns: FloatArray, grams: FloatArray) -> FloatArray:
    """Of each range's features, (n_ranges,), from their inner products; no less than rounding lets be seen."""
    squares = np.trace(grams, axis1=1, axis2=2) / len(columns)
    least = LEAST_SHARE * float(np.mean((columns**2).sum(axis=1) ** 2))
    floored: FloatArray = np.maximum(squares, least) if least > 0 else np.ones(len(squares))
    return floored
