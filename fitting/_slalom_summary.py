"""What several heads together attend to, and what they say of it."""

import numpy as np

from piste._typing import FloatArray
from piste.fitting.slalom import Slaloms


def summed_heads(fit: Slaloms, full: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Values (background first), importances and the background's importance, heads summed up.

    A unit's weight is its attention on the full text summed over heads, its value the attention-weighted
    sum of its values; one head comes through unchanged.

    Parameters
    ----------
    fit
        The heads.
    full
        Shape (n_units,): counts of the full text.

    Returns
    -------
    tuple of arrays
        Shapes (n_outputs, 1 + n_units), (n_outputs, n_units) and (n_outputs,).
    """
    log_w = np.concatenate([fit.background_importance[..., None], fit.importance], axis=2)
    value = np.concatenate([fit.background_value[..., None], fit.value], axis=2)
    w = np.exp(log_w - log_w.max(axis=2, keepdims=True))
    share = w / (w[..., :1] + (w[..., 1:] * full).sum(axis=2, keepdims=True))
    summed = []
    for n_heads, a, v, log_a in zip(fit.n_heads, share, value, log_w, strict=True):
        if n_heads == 1:
            summed.append((v[0], log_a[0]))
            continue
        a, v = a[:n_heads], v[:n_heads]
        attention = a.sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            mixed = np.where(attention > 0, n_heads * (a * v).sum(axis=0) / attention, v.sum(axis=0))
            summed.append((mixed, np.log(attention)))
    values, importance = (np.stack(rows) for rows in zip(*summed, strict=True))
    centre = importance[:, 1:].mean(axis=1, keepdims=True)
    return values, importance[:, 1:] - centre, importance[:, 0] - centre[:, 0]
