"""Where a SLALOM fit starts: the objective has local minima, so from several importances.

Only importances are needed, shape (n_columns,) with the background, if any, in front: the solver finds
the best values for them.
"""

import numpy as np

from piste._typing import BoolArray, FloatArray

# The background's share of attention on the full text at each start: nearly the published model,
# half way, and nearly the additive model (the family's two ends, design of the solver).
BACKGROUND_SHARES = (0.1, 0.5, 0.9)


def starting_importances(
    masks: FloatArray, scores: FloatArray, published: list[FloatArray], *, background: bool
) -> list[FloatArray]:
    """Importances to start from; masks (n_rows, n_units), scores (n_rows,) of one output.

    ``published`` holds importances (n_units,) of the model without a background, if they are known:
    the smallest background starts from them.
    """
    n_units = masks.shape[1]
    even = np.zeros(n_units)
    if background:
        units = [published[0] if published else even, even, even]
        starts = [
            np.concatenate([[np.log(np.exp(own).sum() * share / (1 - share))], own])
            for share, own in zip(BACKGROUND_SHARES, units, strict=True)
        ]
    else:
        starts = [even]
    solved = _from_short_texts(masks, scores, background=background)
    return starts if solved is None else [solved, *starts]


def _from_short_texts(masks: FloatArray, scores: FloatArray, *, background: bool) -> FloatArray | None:
    """Importances solved from single units and pairs, where the masks hold enough of them.

    With ``F_i`` the score of unit i alone, ``F_ij`` that of a pair and ``a_i = w_i / w_0``,

        without a background   log a_i - log a_j = log((F_ij - F_j) / (F_i - F_ij)),
        with one               a_i (F_ij - F_i) + a_j (F_ij - F_j) = F_i + F_j - F_ij - v_0,

    each a linear system over the pairs; the first is weighted by the inverse variance of its
    right-hand side, since it loses all precision where a pair's score meets a single one's.
    """
    n_units = masks.shape[1]
    size = masks.sum(axis=1)
    singles, pairs = np.flatnonzero(size == 1), np.flatnonzero(_is_pair(masks, size))
    alone = np.full(n_units, np.nan)
    alone[masks[singles].argmax(axis=1)] = scores[singles]
    empty = scores[size == 0]
    if np.isnan(alone).any() or len(pairs) < n_units - 1 or (background and len(empty) == 0):
        return None
    i, j = np.nonzero(masks[pairs])[1].reshape(-1, 2).T
    left, right, both = alone[i], alone[j], scores[pairs]
    at = np.arange(len(pairs))
    system = np.zeros((len(pairs), n_units))
    if background:
        system[at, i], system[at, j] = both - left, both - right
        ratio = np.linalg.lstsq(system, left + right - both - empty.mean(), rcond=None)[0]
        smallest = 1e-6 * max(np.abs(ratio).max(), 1e-300)
        return np.concatenate([[0.0], np.log(np.maximum(ratio, smallest))])
    up, down = both - right, left - both
    inside = up * down > 0
    system[at, i], system[at, j] = 1.0, -1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.where(inside, np.log(up / down), 0.0)
        precision = np.where(inside, np.abs(up * down / (left - right)), 0.0)
    log_ratio: FloatArray = np.linalg.lstsq(system * precision[:, None], odds * precision, rcond=None)[
        0
    ]
    return log_ratio


def _is_pair(masks: FloatArray, size: FloatArray) -> BoolArray:
    """Rows that keep exactly two different units, once each."""
    pair: BoolArray = (size == 2) & (masks.max(axis=1) == 1)
    return pair
