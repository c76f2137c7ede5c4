"""What a design draws at once: a mask with its complement, from the masks of its size."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from piste._typing import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class SamplingUnits:
    """Rows grouped into what was drawn at once, units grouped into strata.

    Parameters
    ----------
    unit
        Shape (n_rows,), int64: the unit of each row, 0 ... n_units - 1.
    stratum
        Shape (n_units,), int64: the stratum of each unit.
    fraction
        Shape (n_units,), float64, in [0, 1]: share of the unit's stratum that was drawn.
    """

    unit: IntArray
    stratum: IntArray
    fraction: FloatArray

    @property
    def n_units(self) -> int:
        """How many units were drawn."""
        return len(self.stratum)

    def totals(self, terms: FloatArray) -> FloatArray:
        """Sums over each unit's rows: (n_rows, k) to (n_units, k)."""
        return _sums(terms, self.unit, self.n_units)

    def stratum_counts(self) -> IntArray:
        """How many units each unit's stratum has, shape (n_units,)."""
        counts: IntArray = np.bincount(self.stratum)[self.stratum]
        return counts

    def stratum_means(self, totals: FloatArray) -> FloatArray:
        """Mean over each unit's stratum, shape of ``totals`` (n_units, k)."""
        sums = _sums(totals, self.stratum, int(self.stratum.max(initial=-1)) + 1)
        means: FloatArray = sums[self.stratum] / self.stratum_counts()[:, None]
        return means

    def rows_by_count(self) -> Iterator[IntArray]:
        """Row numbers of the units with k rows, shape (n_units_with_k, k), for each k that occurs."""
        order = np.argsort(self.unit, kind="stable")
        counts = np.bincount(self.unit, minlength=self.n_units)
        starts = np.cumsum(counts) - counts
        for count in np.unique(counts[counts > 0]):
            first = starts[counts == count]
            yield order[first[:, None] + np.arange(count)]


def mask_pairs(masks: FloatArray, full: FloatArray) -> SamplingUnits:
    """Masks with their complements as units, sizes as strata.

    Whether a design drew pairs need not be known. Pairs that it drew vary as wholes; those that came
    about by chance are independent, so that their terms add up no worse than apart. Strata are the
    sizes of a unit's masks; those with a single unit are put together, so that its spread can be told
    (it comes out too large rather than too small). Repeated masks belong to the same unit. The drawn
    share of a size is the number of distinct masks over ``C(n, s)``.

    Parameters
    ----------
    masks
        Shape (n_masks, n_features), float64, non-negative. With counts, sizes are the numbers of
        occurrences and no share is known to be positive.
    full
        Shape (n_features,): the unmasked text; a complement is what a mask leaves of it.

    Examples
    --------
    >>> import numpy as np
    >>> mask_pairs(np.array([[1.0, 0, 0], [0, 1, 1], [0, 1, 0], [0, 1, 0]]), np.ones(3)).unit
    array([1, 1, 0, 0])
    """
    n_masks = len(masks)
    missing = full - masks
    # A pair is named by the member with less of the first unit on which the two differ.
    difference = masks - missing
    first = (difference != 0).argmax(axis=1)
    turned = difference[np.arange(n_masks), first] > 0
    names = np.where(turned[:, None], missing, masks)
    unit, _ = _labels(names)
    n_units = int(unit.max(initial=-1)) + 1
    sizes, size = np.unique(masks.sum(axis=1), return_inverse=True)
    present = np.zeros((n_units, len(sizes)), dtype=np.bool_)
    present[unit, size.reshape(-1)] = True
    stratum, _ = _labels(present)
    single = np.bincount(stratum)[stratum] == 1
    stratum[single] = stratum.max(initial=-1) + 1
    _, stratum = np.unique(stratum, return_inverse=True)
    drawn = _drawn_share(masks, sizes, size.reshape(-1))
    fraction = np.ones(n_units)
    np.minimum.at(fraction, unit, drawn)
    return SamplingUnits(unit, stratum.reshape(-1).astype(np.int64), fraction)


def _drawn_share(masks: FloatArray, sizes: FloatArray, size: IntArray) -> FloatArray:
    """Distinct masks over existing ones of each mask's size, shape (n_masks,); 0 where counts occur."""
    n_features = masks.shape[1]
    if not ((masks == 0) | (masks == 1)).all():
        return np.zeros(len(masks))
    _, first = _labels(masks)
    n_distinct = np.bincount(size[first], minlength=len(sizes))
    log_existing = gammaln(n_features + 1) - gammaln(sizes + 1) - gammaln(n_features - sizes + 1)
    existing = np.where(log_existing < 40, np.rint(np.exp(np.minimum(log_existing, 40))), np.inf)
    share: FloatArray = np.minimum(n_distinct / existing, 1.0)[size]
    return share


def _labels(rows: FloatArray | BoolArray) -> tuple[IntArray, IntArray]:
    """Equal numbers for equal rows, shape (n_rows,), and where each number occurs first.

    Rows are compared as bytes, ten times faster than `numpy.unique` along an axis; adding zero makes
    negative zeros positive.
    """
    if not rows.size:
        return np.zeros(len(rows), np.int64), np.zeros(min(len(rows), 1), np.int64)
    kept = np.ascontiguousarray(rows + np.zeros((), rows.dtype))
    keys = kept.view(np.dtype((np.void, kept.strides[0]))).reshape(-1)
    _, first, labels = np.unique(keys, return_index=True, return_inverse=True)
    return labels.reshape(-1).astype(np.int64), first


def _sums(terms: FloatArray, group: IntArray, n_groups: int) -> FloatArray:
    sums = np.zeros((n_groups, terms.shape[1]))
    np.add.at(sums, group, terms)
    return sums
