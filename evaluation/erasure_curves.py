"""Deletion and insertion curves of a corpus: medians over texts on a common grid of shares."""

import numpy as np
import pandas as pd

from piste.evaluation.paired import median_curve

AT = " @ "
"""Between order and share in the settings of `piste.evaluation.measures.Curve` with ``keep_points``."""
GRID = np.linspace(0, 1, 21)


def is_point(table: pd.DataFrame) -> "pd.Series[bool]":
    """Which rows of a faithfulness table are points of a curve, not metrics."""
    return table["setting"].str.contains(AT, regex=False)


def erasure_curve(
    table: pd.DataFrame,
    metric: str,
    *,
    order: str = "most first",
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Median score against the share of units deleted or inserted, one curve per surrogate and kind.

    Each text's curve is read at 21 shares from 0 to 1 by linear interpolation, so that texts of all lengths
    count alike.

    Parameters
    ----------
    table
        From `piste.evaluation.faithfulness.faithfulness` with ``Curve(metric, keep_points=True)``; of several
        spaces the first is taken.
    metric, order
        ``deletion`` or ``insertion``; ``most first`` or ``least first``.
    confidence, seed
        Of the bootstrap intervals over texts.

    Returns
    -------
    pandas.DataFrame
        Columns surrogate (with its kind), x, y, low, high; empty where there are no points.
    """
    rows = table[is_point(table) & (table["metric"] == metric)]
    rows = rows[rows["setting"].str.startswith(order + AT)]
    rows = rows[rows["space"] == rows["space"].iloc[0]] if len(rows) else rows
    shares = rows["setting"].str.split(AT, regex=False).str[-1].astype(float)
    rows = rows.assign(share=shares).dropna(subset=["value"])
    points = (
        (" ".join(map(str, method)), x, at_x)
        for method, own in rows.groupby(["surrogate", "kind"], sort=False)
        for x, at_x in zip(GRID, _on_grid(own).T, strict=True)
    )
    return median_curve(points, confidence, seed)


def _on_grid(rows: pd.DataFrame) -> np.ndarray:
    """Every text's curve at the shares of the grid, the mean over its targets, shape (n_texts, n_shares)."""
    by_text: dict[object, list[np.ndarray]] = {}
    for (text, _), own in rows.sort_values("share").groupby(["text", "target"], sort=False):
        by_text.setdefault(text, []).append(np.interp(GRID, own["share"], own["value"]))
    return np.array([np.mean(curves, axis=0) for curves in by_text.values()])
