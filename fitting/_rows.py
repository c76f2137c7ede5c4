"""Mask rows in the sparse form that the SLALOM kernels work on."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from piste._typing import BoolArray, FloatArray, IntArray
from piste.fitting import _slalom_kernels as kernels


@dataclass(frozen=True)
class Answers:
    """What was answered to distinct masks.

    Parameters
    ----------
    masks
        Shape (n_rows, n_units), float64, no two rows alike.
    scores
        Shape (n_rows, n_outputs): mean answers.
    weights
        Shape (n_rows,), positive: how many answers each row stands for.
    scatter
        Shape (n_rows, n_outputs): weighted squared deviations of a row's answers from their mean, which
        no model of masks can explain.
    full
        Shape (n_units,): counts of the full text.
    """

    masks: FloatArray
    scores: FloatArray
    weights: FloatArray
    scatter: FloatArray
    full: FloatArray

    @property
    def asked(self) -> BoolArray:
        """Whether a row keeps any unit, shape (n_rows,)."""
        some: BoolArray = np.any(self.masks != 0, axis=1)
        return some

    def take(self, kept: BoolArray) -> "Answers":
        """The answers to some of the masks."""
        return Answers(
            self.masks[kept], self.scores[kept], self.weights[kept], self.scatter[kept], self.full
        )


def merge_repeats(masks: FloatArray, scores: FloatArray, weights: FloatArray) -> Answers:
    """One row per distinct mask: a weight means the same as that many repetitions of the row.

    Rows come out in an order of their own, whatever order they were given in.
    """
    first, row = _distinct(masks)
    total = _summed(row, weights[:, None])[:, 0]
    mean = _summed(row, weights[:, None] * scores) / total[:, None]
    scatter = _summed(row, weights[:, None] * (scores - mean[row]) ** 2)
    return Answers(masks[first], mean, total, scatter, masks.max(axis=0))


def _distinct(masks: FloatArray) -> tuple[IntArray, IntArray]:
    """Of the different rows of non-negative numbers: where each is first, and which every row is."""
    keys = small(masks)
    if keys.dtype == np.uint8 and keys.max(initial=0) <= 1:
        keys = np.packbits(keys, axis=1)
    as_bytes = keys.view(f"V{keys.strides[0]}").ravel()
    _, first, row = np.unique(as_bytes, return_index=True, return_inverse=True)
    return first, row


def small(masks: FloatArray) -> np.ndarray:
    """Masks in one byte an entry where they are such whole numbers, as nearly always; contiguous."""
    if masks.max(initial=0) < 256:
        in_bytes = masks.astype(np.uint8, order="C")
        if (in_bytes == masks).all():
            return in_bytes
    return np.ascontiguousarray(masks)


def _summed(row: IntArray, terms: FloatArray) -> FloatArray:
    """Sums of terms (n_masks, n_outputs) over the masks of each row."""
    return np.column_stack([np.bincount(row, column) for column in terms.T])


class MaskRows(NamedTuple):
    """The matrix of masks ``M``, each row stored as the list of what it keeps or of what it removes.

    Parameters
    ----------
    indptr
        Shape (n_lists + 1,), int64: list ``l`` has the entries ``indptr[l]:indptr[l + 1]``.
    listed, counts
        Shape (n_entries,): listed columns, ascending within a list, and their counts.
    lists
        Shape (n_rows,), int64: the list of each row; no two are alike.
    removed
        Shape (n_rows,), bool: whether the row lists what is missing from the full text.
    full
        Shape (n_columns,), float64: counts of the full text.
    background
        Whether column 0 is one that every row keeps and none lists.
    """

    indptr: IntArray
    listed: IntArray
    counts: FloatArray
    lists: IntArray
    removed: BoolArray
    full: FloatArray
    background: bool

    @classmethod
    def from_masks(cls, masks: FloatArray, full: FloatArray, *, background: bool) -> "MaskRows":
        """Rows of ``masks`` (n_rows, n_units), none above ``full`` (n_units,), the counts of the text.

        A background column, always present, goes in front.
        """
        kept, missing = (masks != 0).sum(axis=1), (masks != full).sum(axis=1)
        # Of two halves that complement each other the same is listed for both.
        removed = (missing < kept) | ((missing == kept) & (masks[:, 0] == 0))
        listed = np.where(removed[:, None], full - masks, masks)
        first, lists = _distinct(listed)
        distinct = listed[first]
        row, unit = np.nonzero(distinct)
        return cls(
            np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(distinct)))]),
            unit + int(background),
            distinct[row, unit],
            lists,
            removed,
            np.concatenate([[1.0], full]) if background else full,
            background,
        )

    @property
    def n_columns(self) -> int:
        """Units, and the background where there is one."""
        return len(self.full)

    def times(self, right: FloatArray, n_weights: int) -> FloatArray:
        """``M @ right`` for right of shape (n_columns, k), its first ``n_weights`` columns positive."""
        return kernels.times(self, np.ascontiguousarray(right), n_weights)

    def transposed_times(self, right: FloatArray) -> FloatArray:
        """``M.T @ right`` for right of shape (n_rows, k)."""
        return kernels.transposed_times(self, np.ascontiguousarray(right))

    def weighted_gram(self, weights: FloatArray) -> FloatArray:
        """``M.T @ diag(weights[k]) @ M`` for each k; weights (k, n_rows)."""
        return kernels.weighted_gram(self, np.ascontiguousarray(weights))


def warm_up() -> None:
    """Compile the kernels, or load them from Numba's cache on disk."""
    rows = MaskRows.from_masks(np.eye(2), np.ones(2), background=True)
    rows.times(np.ones((3, 1)), 1)
    rows.transposed_times(np.ones((2, 1)))
    rows.weighted_gram(np.ones((1, 2)))
