"""One BLAS thread for programs on CPUs."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from threadpoolctl import threadpool_limits

P = ParamSpec("P")
R = TypeVar("R")


def single_blas_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function with BLAS limited to one thread: OpenBLAS threads spin on cores that XLA needs.

    CPU programs call SciPy's BLAS for factorizations and triangular solves; XLA computes matrix products
    itself.
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        import scipy.linalg.cython_lapack  # noqa: F401, jaxlib loads it too, but when it compiles

        with threadpool_limits(1, user_api="blas"):
            return function(*args, **kwargs)

    return wrapped
