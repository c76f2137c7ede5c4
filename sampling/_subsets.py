"""Distinct random subsets: how many of each size, and which ones; no loop over single masks."""

from itertools import chain, combinations
from math import comb

import numpy as np

from piste._typing import BoolArray, FloatArray, IntArray


def sample_by_size(
    weights: FloatArray, n_masks: int, forbidden: BoolArray, rng: np.random.Generator
) -> BoolArray:
    """Distinct subsets whose sizes follow given weights and which are uniform within a size.

    Parameters
    ----------
    weights
        Shape (n_units + 1,), non-negative: relative frequency of the sizes 0..n_units.
    n_masks
        How many are wanted; fewer come only when no allowed subset with a positive weight is left.
    forbidden
        Shape (n_forbidden, n_units), bool: rows that must not be drawn.
    rng
        The only source of randomness.

    Returns
    -------
    Shape (n_drawn, n_units), bool, in random order.
    """
    forbidden = forbidden[~repeated(forbidden, forbidden[:0])]
    used = np.bincount(forbidden.sum(axis=1), minlength=len(weights))
    existing = class_sizes(len(weights) - 1, 2 * (n_masks + len(forbidden)))
    counts = round_to_total(water_fill(weights, existing - used, n_masks), rng)
    # Where draws would meet taken subsets more often than not, all subsets are listed. The list is at
    # most twice as long as what is taken, so a class that was cut at the limit is never listed.
    listed = (counts > 0) & (2 * (counts + used) > existing)
    parts = [_draw_and_redraw(np.where(listed, 0, counts), forbidden, rng)]
    parts += [_pick_from_list(int(s), counts[s], forbidden, rng) for s in np.flatnonzero(listed)]
    masks: BoolArray = rng.permutation(np.concatenate(parts))
    return masks


def sample_pairs_by_size(
    weights: FloatArray, n_pairs: int, forbidden: BoolArray, rng: np.random.Generator
) -> BoolArray:
    """Distinct subsets, each followed by its complement, whose sizes follow symmetric weights.

    A pair is named by its member without the last unit, a subset of the other ``n - 1``. Of the
    ``C(n, b)`` subsets of size b, ``C(n - 1, b)`` lack the last unit, a share of ``(n - b) / n``:
    with weights ``w_b (n - b) / n`` the names are an ordinary sample, and half of an even number of
    units needs no case of its own.

    Parameters
    ----------
    weights
        Shape (n_units + 1,), ``weights[s] == weights[n_units - s]``, both ends 0.
    n_pairs
        How many pairs are wanted; fewer come only when no allowed pair is left.
    forbidden
        Shape (n_forbidden, n_units), bool: a pair is left out when either member is here.
    rng
        The only source of randomness.

    Returns
    -------
    Shape (2 * n_drawn, n_units), bool: row 2i + 1 complements row 2i; the pairs are in random order.
    """
    n_units = len(weights) - 1
    if n_units == 1:
        return np.zeros((0, 1), dtype=np.bool_)
    share = 1 - np.arange(n_units) / n_units
    names = sample_by_size(weights[:-1] * share, n_pairs, pair_names(forbidden), rng)
    return with_complements(np.pad(names, ((0, 0), (0, 1))))


def pair_names(masks: BoolArray) -> BoolArray:
    """The member without the last unit of each mask's pair, shape (n_masks, n_units - 1)."""
    return (masks ^ masks[:, -1:])[:, :-1]


def with_complements(masks: BoolArray) -> BoolArray:
    """Each row followed by its complement, shape (2 * n_masks, n_units)."""
    return np.stack([masks, ~masks], axis=1).reshape(-1, masks.shape[1])


def repeated(masks: BoolArray, known: BoolArray) -> BoolArray:
    """Which rows equal an earlier row or one of the known rows, shape (n_masks,)."""
    packed = np.concatenate([np.packbits(known, axis=1), np.packbits(masks, axis=1)])
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    again = np.ones(len(keys), dtype=np.bool_)
    again[np.unique(keys, return_index=True)[1]] = False
    return again[len(known) :]


def class_sizes(n_units: int, limit: int) -> IntArray:
    """``min(C(n_units, s), limit)`` for s = 0..n_units, exact however large the binomials are."""
    sizes = np.full(n_units + 1, limit, dtype=np.int64)
    binomial = 1
    for s in range(n_units // 2 + 1):
        if binomial >= limit:  # they grow towards the middle, so all that follow are cut too
            break
        sizes[s] = sizes[n_units - s] = binomial
        binomial = binomial * (n_units - s) // (s + 1)
    return sizes


def water_fill(weights: FloatArray, room: IntArray, total: int) -> FloatArray:
    """``min(room, c * weights)`` with the c that makes them add up to ``total``, or to all there is.

    What does not fit into a full size goes to the open ones in proportion to their weights. That only
    raises c, so a size once full stays full, and each round but the last closes at least one.
    """
    targets = np.zeros(len(weights))
    is_open = (weights > 0) & (room > 0)
    left = min(total, int(room[is_open].sum()))
    while left > 0:
        share = weights * (left / weights[is_open].sum())
        full = is_open & (share >= room)
        if not full.any():
            targets[is_open] = share[is_open]
            break
        targets[full] = room[full]
        left -= int(room[full].sum())
        is_open &= ~full
    return targets


def round_to_total(targets: FloatArray, rng: np.random.Generator) -> IntArray:
    """Whole numbers with the targets as expectations, each its target rounded up or down.

    Systematic sampling (Madow 1949, Ann. Math. Statist. 20:333-354): the fractional parts are laid end
    to end and hit by a comb of unit spacing with a random offset. A part is shorter than the spacing,
    so it is hit at most once, with a probability equal to its length; the sum never varies.

    The same holds for neighbours taken together. They are laid from the ends to the middle with b next
    to ``len(targets) - b``: where the subsets name pairs (`sample_pairs_by_size`), these two name pairs
    of the same two sizes, whose number is therefore an expectation rounded up or down, too.
    """
    whole = np.floor(targets + 1e-9)  # a target off a whole number by rounding errors is that number
    parts = np.maximum(targets - whole, 0.0)
    order = np.argsort(-np.abs(np.arange(len(targets)) - len(targets) / 2), kind="stable")
    edges = np.cumsum(parts[order])
    n_hits = round(float(targets.sum() - whole.sum()))
    # Teeth lie in (0, edges[-1]]: a part of length 0 is never hit, and no tooth is off the end.
    offset = (1.0 - rng.random()) * (edges[-1] - n_hits + 1)
    teeth = np.minimum(np.arange(n_hits) + offset, edges[-1])
    whole[order[np.searchsorted(edges, teeth)]] += 1
    return whole.astype(np.int64)


def all_subsets(n_units: int, size: int) -> BoolArray:
    """Every subset of one size, shape (C(n_units, size), n_units)."""
    if 2 * size > n_units:
        return ~all_subsets(n_units, n_units - size)
    n_subsets = comb(n_units, size)
    members = chain.from_iterable(combinations(range(n_units), size))
    columns = np.fromiter(members, np.int64, n_subsets * size).reshape(n_subsets, size)
    masks = np.zeros((n_subsets, n_units), dtype=np.bool_)
    np.put_along_axis(masks, columns, True, axis=1)
    return masks


def _pick_from_list(size: int, count: int, forbidden: BoolArray, rng: np.random.Generator) -> BoolArray:
    """A uniform choice among all the allowed subsets of one size."""
    subsets = all_subsets(forbidden.shape[1], size)
    allowed = subsets[~repeated(subsets, forbidden)]
    return allowed[rng.choice(len(allowed), size=count, replace=False)]


def _draw_and_redraw(counts: IntArray, forbidden: BoolArray, rng: np.random.Generator) -> BoolArray:
    """Uniform subsets of given sizes, redrawn until all are new.

    Independent draws without their repeats are a uniform sample without replacement.
    """
    sizes = np.repeat(np.arange(len(counts)), counts)
    masks = _random_subsets(sizes, len(counts) - 1, rng)
    while (again := repeated(masks, forbidden)).any():
        masks[again] = _random_subsets(sizes[again], len(counts) - 1, rng)
    return masks


def _random_subsets(sizes: IntArray, n_units: int, rng: np.random.Generator) -> BoolArray:
    """One independent uniform subset per size."""
    masks: BoolArray = np.arange(n_units) < sizes[:, None]
    rng.permuted(masks, axis=1, out=masks)
    return masks
