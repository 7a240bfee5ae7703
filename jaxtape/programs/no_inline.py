"""Compile a function as a call that XLA does not inline, so that all uses share its results."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import jax
from jax.experimental.xla_metadata import set_xla_metadata

from ..jax_settings.platform import platforms_in_use

Function = TypeVar("Function", bound=Callable)


@overload
def no_inline(function: Function) -> Function: ...


@overload
def no_inline(*, static_argnames: str | Sequence[str]) -> Callable[[Function], Function]: ...


def no_inline(function: Any = None, *, static_argnames: str | Sequence[str] = ()) -> Any:
    """Compile a function separately from its callers, on CPUs; elsewhere it is `jax.jit(function)`.

    On CPUs, XLA fuses sums and products into each of their uses, and so recomputes in every kernel an
    expression that many results share: a program of 2,000 operations became one of 15,000. A `no_inline`
    function stays a call. Use it for functions of many operations whose results are used several times.

    Args:
        function: A function of pytrees of arrays. Without it, a decorator.
        static_argnames: The names of static arguments, as for `jax.jit`.

    Returns:
        The function, which can be differentiated and batched like any other; its derivatives are not inlined
        either.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> import jaxtape as jt
        >>> square = jt.no_inline(lambda x: x * x)
        >>> float(jax.grad(square)(3.0))
        6.0
    """
    if function is None:
        return functools.partial(no_inline, static_argnames=static_argnames)

    @functools.wraps(function)
    def inside(*args, **kwargs):
        # functions called in here are inlined, also when transformations trace them again
        with set_xla_metadata(inlineable="true"):
            return function(*args, **kwargs)

    apart = jax.jit(inside, static_argnames=static_argnames)
    as_usual = jax.jit(function, static_argnames=static_argnames)

    @functools.wraps(function)
    def call(*args, **kwargs):
        if platforms_in_use() != {"cpu"}:
            return as_usual(*args, **kwargs)
        with set_xla_metadata(inlineable="false"):
            return apart(*args, **kwargs)

    return call
