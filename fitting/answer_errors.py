"""What noise of the answers themselves adds to the errors of a fit.

Residuals of a fit hold it already, and so does every covariance made of them. It is missing where
residuals count for nothing: in the masks that were enumerated, whose misfit is no chance.
"""

import numpy as np

from piste._typing import FloatArray
from piste.fitting.inference import Linearisation


def answer_variance(
    fit: Linearisation,
    gradients: FloatArray,
    std_errors: FloatArray,
    share: FloatArray | None = None,
) -> FloatArray:
    r"""Variance of numbers that are linear in answers of known, independent errors.

    .. math:: \sum_r f_r \Big(\frac{\partial g}{\partial y_r}\Big)^2 \sigma_r^2, \qquad
        \frac{\partial g}{\partial y_r} = D B J_r' w_r

    Parameters
    ----------
    fit
        The geometry; B is its bread.
    gradients
        Shape (n_numbers, n_parameters): D, derivatives of the numbers with respect to the parameters.
    std_errors
        Shape (n_rows, n_outputs): :math:`\sigma`, in units of the answers.
    share
        Shape (n_rows,), in [0, 1]: f, how much of each answer's noise is to be counted; by default all.
        With a covariance that counts residuals with ``1 - f``, as that for masks drawn without
        replacement does, noise is counted once.

    Returns
    -------
    array
        Shape (n_outputs, n_numbers).

    Examples
    --------
    The mean of four answers:

    >>> from piste.fitting.inference import linearise
    >>> fit = linearise(np.ones((4, 1)), np.ones(4))
    >>> answer_variance(fit, np.eye(1), np.full((4, 1), 0.2)).round(12)
    array([[0.01]])
    """
    moves = (np.sqrt(fit.weights)[:, None] * fit.influence) @ gradients.T
    variances = std_errors**2 if share is None else share[:, None] * std_errors**2
    variance: FloatArray = variances.T @ moves**2
    return variance
