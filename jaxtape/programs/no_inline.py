"""Functions that are compiled apart: their results are kept in memory, not computed again by each reader."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar, overload

import jax
from jax.experimental.xla_metadata import set_xla_metadata

Function = TypeVar("Function", bound=Callable)

_is_on: ContextVar[bool] = ContextVar("outlining", default=True)


@overload
def outlined(function: Function) -> Function: ...


@overload
def outlined(*, static_argnames: str | Sequence[str]) -> Callable[[Function], Function]: ...


def outlined(function: Any = None, *, static_argnames: str | Sequence[str] = ()) -> Any:
    """Compile a function apart from its callers, on CPUs; elsewhere it is `jax.jit(function)`.

    XLA for CPUs fuses sums and products into each of their readers, and so computes again, in every kernel, an
    expression that many results share: a program of 2,000 operations became one of 15,000. An outlined function
    is a call that is not inlined. Use it for functions of many operations whose results have several readers.

    Args:
        function: A function of pytrees of arrays. Without it, a decorator.
        static_argnames: The names of arguments that are no arrays, as for `jax.jit`.

    Returns:
        The function, to be differentiated and batched like any other: its derivatives are outlined too.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> import jaxtape as jt
        >>> square = jt.outlined(lambda x: x * x)
        >>> float(jax.grad(square)(3.0))
        6.0
    """
    if function is None:
        return functools.partial(outlined, static_argnames=static_argnames)

    @functools.wraps(function)
    def inside(*args, **kwargs):
        # functions called in here are inlined, also where transformations trace them again
        with set_xla_metadata(inlineable="true"):
            return function(*args, **kwargs)

    apart = jax.jit(inside, static_argnames=static_argnames)
    as_usual = jax.jit(function, static_argnames=static_argnames)

    @functools.wraps(function)
    def call(*args, **kwargs):
        if not _is_on.get() or jax.default_backend() != "cpu":
            return as_usual(*args, **kwargs)
        with set_xla_metadata(inlineable="false"):
            return apart(*args, **kwargs)

    return call


@contextlib.contextmanager
def nothing_outlined() -> Iterator[None]:
    """Trace for other platforms: no call is kept."""
    token = _is_on.set(False)
    jax.clear_caches()  # traces made for this platform are not those
    try:
        yield
    finally:
        _is_on.reset(token)
        jax.clear_caches()
