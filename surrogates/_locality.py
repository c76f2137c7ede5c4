"""How near a mask is to the full text, as the lime package sees it."""

import numpy as np

from piste._typing import FloatArray


def locality_weights(masks: FloatArray, kernel_width: float | None) -> FloatArray:
    r"""Exponential kernel of the cosine distance to the full text, in [0, 1].

    .. math:: \pi(z) = \sqrt{e^{-d^2 / \sigma^2}}, \quad d = 100 (1 - \cos(z, z_{\text{full}}))

    Parameters
    ----------
    masks
        Shape (n_masks, n_units), float64, non-negative; the full text is their column-wise maximum.
    kernel_width
        :math:`\sigma`; None or infinity gives ones.

    Returns
    -------
    array
        Shape (n_masks,), float64.

    Examples
    --------
    >>> import numpy as np
    >>> locality_weights(np.array([[1.0, 1.0], [1.0, 0.0]]), 25.0).round(4)
    array([1.    , 0.5034])
    """
    if kernel_width is None:
        return np.ones(len(masks))
    full = masks.max(axis=0)
    lengths = np.sqrt(np.einsum("ij,ij->i", masks, masks) * (full @ full))
    cosine = np.divide(masks @ full, lengths, out=np.zeros(len(masks)), where=lengths > 0)
    weights: FloatArray = np.exp(-0.5 * np.square(100.0 * (1.0 - cosine) / kernel_width))
    return weights
