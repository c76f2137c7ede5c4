"""The mathematics of the fits: arrays in, records out, no text and no model."""

from piste.fitting import _linear_kernels, _rows, _shapley_kernels


def warm_up() -> None:
    """Compile every kernel now, or load it from Numba's cache on disk.

    The first fit on a machine does the same by itself and takes some seconds longer for it; call this
    where that first fit should not wait, such as before a timing or when a service starts.
    """
    _linear_kernels.warm_up()
    _shapley_kernels.warm_up()
    _rows.warm_up()
