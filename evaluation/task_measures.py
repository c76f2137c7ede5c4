"""How well each kind of attribution does what it is for, from answers that a study has."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from piste._typing import BoolArray, FloatArray
from piste.surrogates.base import Surrogate
from piste.surrogates.records import Explained

PREDICTION = "(prediction)"
"""The surrogate's own prediction, in the place of a sum of its attributions."""
_ROUNDING = 1e-9


def removal_errors(explained: Sequence[Explained]) -> pd.DataFrame:
    """Squared error of predicted falls of the score on held-out masks.

    ``mean_S (sum_{i not in S} a_i - (f(text) - f(S)))^2`` for attributions a; for the kind
    ``(prediction)`` the surrogate's own difference takes the place of the sum. The masks are those of
    `Study.fidelity`; where every mask was asked, all of them.
    """
    return _table("mse", (row for text in explained for row in _removal_rows(text)))


def efficiency_gaps(explained: Sequence[Explained]) -> pd.DataFrame:
    """How far attributions are from adding up: ``|sum_i a_i - d| / |d|``, ``d = f(text) - f(nothing)``.

    Undefined where the text without any units scores as the text does, or was not asked.
    """
    return _table("efficiency gap", (row for text in explained for row in _gap_rows(text)))


def judged(explained: Explained) -> tuple[BoolArray, FloatArray]:
    """Masks that no fit saw and their scores, or where there are none those of the fit; finite ones."""
    held_out = explained.held_out
    masks = explained.responses.masks if held_out is None else held_out.masks
    scores = explained.scores if held_out is None else explained.held_out_scores
    finite = np.isfinite(scores).all(axis=1)
    return masks[finite], scores[finite]


def predicted(explained: Explained, surrogate: Surrogate, masks: BoolArray) -> FloatArray:
    """A surrogate's predictions, shape (n_masks, n_targets)."""
    found = surrogate.predict(explained.masks_for(surrogate, masks))
    return found.reshape(len(masks), len(explained.targets))


def _removal_rows(explained: Explained) -> Iterator[tuple[dict[str, object], float]]:
    masks, scores = judged(explained)
    falls = _at(explained, whole=True) - scores
    full = np.ones((1, masks.shape[1]), dtype=np.bool_)
    for name, surrogate in explained.fits.items():
        sums = {kind: ~masks @ _per_unit(explained, surrogate, kind).T for kind in surrogate.kinds}
        both = predicted(explained, surrogate, full) - predicted(explained, surrogate, masks)
        for kind, expected in (sums | {PREDICTION: both}).items():
            errors = ((expected - falls) ** 2).mean(axis=0) if len(masks) else [np.nan] * falls.shape[1]
            for target, error in zip(explained.targets, errors, strict=True):
                yield _key(explained, target, name, kind), float(error)


def _gap_rows(explained: Explained) -> Iterator[tuple[dict[str, object], float]]:
    total = _at(explained, whole=True) - _at(explained, whole=False)
    scale = np.abs(_at(explained, whole=True)) + np.abs(_at(explained, whole=False))
    defined = np.abs(total) > _ROUNDING * scale
    for name, surrogate in explained.fits.items():
        for kind in surrogate.kinds:
            sums = _per_unit(explained, surrogate, kind).sum(axis=1)
            gaps = np.abs(sums - total) / np.where(defined, np.abs(total), np.nan)
            for target, gap in zip(explained.targets, gaps, strict=True):
                yield _key(explained, target, name, kind), float(gap)


def _per_unit(explained: Explained, surrogate: Surrogate, kind: str) -> FloatArray:
    """Attributions of the seen units, shape (n_targets, n_seen)."""
    return np.atleast_2d(explained.per_unit(surrogate, surrogate.attributions(kind)))


def _at(explained: Explained, *, whole: bool) -> FloatArray:
    """Scores of the full or the empty text, shape (n_targets,); NaN where it was not asked."""
    masks = explained.responses.masks
    row = np.flatnonzero(masks.all(axis=1) if whole else ~masks.any(axis=1))
    if not len(row):
        return np.full(len(explained.targets), np.nan)
    scores: FloatArray = explained.scores[row[0]]
    return scores


def _key(explained: Explained, target: str, surrogate: str, kind: str) -> dict[str, object]:
    return {"text": explained.text_id, "target": target, "surrogate": surrogate, "kind": kind}


def _table(metric: str, rows: Iterator[tuple[dict[str, object], float]]) -> pd.DataFrame:
    listed = [
        key | {"metric": metric, "value": value, "status": "undefined" if np.isnan(value) else "ok"}
        for key, value in rows
    ]
    columns = ["text", "target", "surrogate", "kind", "metric", "value", "status"]
    return pd.DataFrame(listed, columns=columns)
