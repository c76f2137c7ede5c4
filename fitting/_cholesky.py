"""Cholesky factors of small matrices that may be singular to rounding."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from piste._typing import FloatArray

# First addition to a unit diagonal where rounding has made a matrix indefinite: a few hundred units of
# rounding, which is what summing a few thousand products leaves.
JITTER = 1e-14


@dataclass(frozen=True)
class Cholesky:
    """``diag(scale) A diag(scale) = lower lower^T`` with a unit diagonal on the left.

    A row of zeros has scale zero: its unknown is set to zero.
    """

    scale: FloatArray
    lower: FloatArray

    def solve(self, right: FloatArray) -> FloatArray:
        """``A^-1 right`` for right of shape (n,) or (n, k)."""
        columns = right.reshape(len(right), -1)
        solution, _ = lapack.dpotrs(self.lower, self.scale[:, None] * columns, lower=1)
        solved: FloatArray = (self.scale[:, None] * solution).reshape(right.shape)
        return solved

    def half(self, right: FloatArray) -> FloatArray:
        """``H`` of shape (n, k) with ``H^T H = right^T A^-1 right``."""
        solution, _ = lapack.dtrtrs(self.lower, self.scale[:, None] * right, lower=1)
        half: FloatArray = solution
        return half

    def inverse(self) -> FloatArray:
        """``A^-1``, shape (n, n)."""
        return self.solve(np.eye(len(self.scale)))


def factorise(matrix: FloatArray, ridge: float = 0.0) -> Cholesky:
    """Factor of ``matrix + ridge * I``, symmetric, with just enough jitter to exist."""
    diagonal = np.diag(matrix) + ridge
    scale = np.where(diagonal > 0, 1 / np.sqrt(np.maximum(diagonal, 1e-300)), 0.0)
    scaled = scale[:, None] * matrix * scale
    jitter = 0.0
    while True:
        np.fill_diagonal(scaled, 1.0 + jitter)
        lower, failed = lapack.dpotrf(scaled.T, lower=1, clean=1)  # as LAPACK wants it in memory
        if not failed:
            return Cholesky(scale, lower)
        jitter = max(JITTER, jitter * 100)
