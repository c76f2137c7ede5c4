"""Mask rows in the sparse form that the SLALOM kernels work on."""

from dataclasses import dataclass

import numpy as np

from piste._typing import BoolArray, FloatArray, IntArray
from piste.fitting import _slalom_kernels as kernels


@dataclass(frozen=True)
class MaskRows:
    """The matrix of masks ``M``, each row stored as what it keeps or what it removes.

    Parameters
    ----------
    indptr
        Shape (n_rows + 1,), int64: row ``r`` lists entries ``indptr[r]:indptr[r + 1]``.
    listed, counts
        Shape (n_entries,): listed columns, ascending within a row, and their counts.
    removed
        Shape (n_rows,), bool: whether the row lists what is missing from the full text.
    full
        Shape (n_columns,), float64: counts of the full text.
    """

    indptr: IntArray
    listed: IntArray
    counts: FloatArray
    removed: BoolArray
    full: FloatArray

    @classmethod
    def from_masks(cls, masks: FloatArray, *, background: bool) -> "MaskRows":
        """Rows of ``masks`` (n_rows, n_units); a background column, always present, goes in front."""
        full = masks.max(axis=0)
        if background:
            masks = np.column_stack([np.ones(len(masks)), masks])
            full = np.concatenate([[1.0], full])
        missing = full - masks
        removed = (missing != 0).sum(axis=1) < (masks != 0).sum(axis=1)
        entries = np.where(removed[:, None], missing, masks)
        rows, listed = np.nonzero(entries)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(masks)))])
        return cls(indptr, listed, entries[rows, listed], removed, full)

    @property
    def _arrays(self) -> tuple[IntArray, IntArray, FloatArray, BoolArray, FloatArray]:
        return self.indptr, self.listed, self.counts, self.removed, self.full

    @property
    def n_columns(self) -> int:
        """Units, and the background where there is one."""
        return len(self.full)

    def times(self, right: FloatArray, n_weights: int) -> FloatArray:
        """``M @ right`` for right of shape (n_columns, k), its first ``n_weights`` columns positive."""
        return kernels.times(*self._arrays, np.ascontiguousarray(right), n_weights)

    def transposed_times(self, right: FloatArray) -> FloatArray:
        """``M.T @ right`` for right of shape (n_rows, k)."""
        return kernels.transposed_times(*self._arrays, np.ascontiguousarray(right))

    def weighted_gram(self, weights: FloatArray) -> FloatArray:
        """``M.T @ diag(weights[k]) @ M`` for each k; weights (k, n_rows)."""
        return kernels.weighted_gram(*self._arrays, np.ascontiguousarray(weights))
