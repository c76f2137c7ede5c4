"""The one way in which kernels are compiled."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def jit(kernel: Kernel) -> Kernel:
    """Compile on the first call, for the types of that call.

    ``cache``: compiled once per machine, not once per process. ``error_model="numpy"``: a division by
    zero gives inf or NaN as in numpy, so kernel and numpy twin agree, and loops stay free of branches
    that would keep them from being vectorised. ``nogil``: texts can be fitted in threads. No
    ``fastmath``: the same inputs have to give the same bytes on every machine. No signatures: importing
    must not compile; ``piste.fitting.warm_up`` compiles on demand.
    """
    return cast("Kernel", numba.njit(cache=True, error_model="numpy", nogil=True)(kernel))
