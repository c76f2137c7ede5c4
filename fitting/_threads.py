"""Small dense algebra runs fastest on one thread, and in memory that the process keeps."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
from threadpoolctl import ThreadpoolController

LARGEST_KEPT = 30 * 2**20  # bytes; glibc adapts to 32 MiB at most


@contextmanager
def small_algebra() -> Iterator[None]:
    """Run the block with one BLAS thread, then restore the caller's setting.

    Matrices here have a few hundred rows: waking a second thread costs more than it saves, and on a
    busy machine the threads' spinning was measured to slow a fit down ten times.
    """
    _keep_freed_memory()
    with _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    """The BLAS libraries of this process; looking them up costs a millisecond, so once."""
    return ThreadpoolController()


@cache
def _keep_freed_memory() -> None:
    """Have glibc keep up to 64 MiB of what is freed; elsewhere this does nothing.

    A fit makes and drops arrays of some megabytes. By default each goes back to the kernel, which clears
    its pages again for the next: a quarter to two fifths of a fit. Freeing one large block, which is never
    written to, raises the threshold (mallopt(3), M_MMAP_THRESHOLD).
    """
    np.empty(LARGEST_KEPT, dtype=np.uint8)
