"""Residuals as if each sampling unit had not bent the fit towards itself."""

import numpy as np

from piste._typing import FloatArray
from piste.fitting._sampling_units import SamplingUnits

FULL_LEVERAGE = 1.0 - 1e-8
"""From here on a fit goes through an answer, and its residual says nothing."""


# A fit bends towards each answer and so shrinks its residual. Leaving unit g out, its residuals would
# be (I - H_gg)^-1 e_g, which is what CR3 uses; with (I - H_gg)^-1/2 the variance of even noise comes
# out right on average, which is CR2. Where a share f of a stratum has been asked, the fit to all of it
# has the same bend for that share: only 1 - f of H_gg is due to the draw.
def without_own_pull(
    residuals: FloatArray,
    influence: FloatArray,
    design: FloatArray,
    units: SamplingUnits,
    share_open: FloatArray,
    *,
    power: float,
) -> tuple[FloatArray, FloatArray]:
    """Residuals times ``(I - (1 - f) H_gg)^-power``, and the moves of what is fitted exactly.

    Parameters
    ----------
    residuals
        Shape (n_rows,), whitened.
    influence, design
        Shape (n_rows, n_parameters), as in `piste.fitting.inference.Linearisation`.
    units
        What was drawn at once.
    share_open
        Shape (n_units,), in [0, 1]: ``1 - f``.
    power
        1 for leaving out, 1/2 for even noise.

    Returns
    -------
    adjusted : shape (n_rows,); 0 in directions of full leverage
    moves : shape (n_moves, n_parameters), how the parameters follow answers of full leverage
    """
    adjusted = np.zeros(len(residuals))
    moves = [np.empty((0, influence.shape[1]))]
    for rows in units.rows_by_count():
        hat = np.einsum("gkp,glp->gkl", influence[rows], design[rows])
        values, vectors = np.linalg.eigh(hat)
        still_open = share_open[units.unit[rows[:, 0]], None]
        held = (values > FULL_LEVERAGE) & (still_open > 0)
        left = np.where(held, np.inf, 1.0 - values * still_open)
        inside = np.einsum("gkv,gk->gv", vectors, residuals[rows])
        adjusted[rows] = np.einsum("gkv,gv->gk", vectors, inside / left**power)
        moves.append(np.einsum("gkv,gkp->gvp", vectors, influence[rows])[held])
    return adjusted, np.concatenate(moves)
