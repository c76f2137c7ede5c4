"""Small dense algebra runs fastest on one thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    """The BLAS libraries of this process; looking them up costs a millisecond, so once."""
    return ThreadpoolController()


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Run the block with one BLAS thread, then restore the caller's setting.

    Matrices here have a few hundred rows: waking a second thread costs more than it saves, and on a
    busy machine the threads' spinning was measured to slow a fit down ten times.
    """
    with _controller().limit(limits=1, user_api="blas"):
        yield
