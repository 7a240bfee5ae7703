"""Single precision on the devices, double precision on their host: for TPUs, which have no float64.

The costly programs are `device_program`s. If devices compute in single precision, such a program takes 32-bit
numbers, and holds none of 64 bits. All else is computed in double precision on the host's CPU.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..jax_private import is_tracing

P = ParamSpec("P")
R = TypeVar("R")

_device: Any = None
"""The devices that run single-precision programs; None if everything has one precision."""


def use_single_on_devices(is_single: bool) -> None:
    """Let devices compute in single precision from now on, and the host in double precision.

    The tiles of `risk` and the searches of `calibrate` and `calibrate_many` then run on the devices in 32 bits.
    Each fit is polished in 64 bits on the host's CPU, which also computes everything else.

    Args:
        is_single: Whether devices do so; it sets `jax_enable_x64` and `jax_default_device`. If False,
            everything is computed on JAX's default device again, in double precision. JAX raises RuntimeError
            if `JAX_PLATFORMS` leaves out the CPU.

    Examples:
        >>> import jaxtape as jt
        >>> jt.use_single_on_devices(False)
    """
    global _device
    if is_single:
        host = jax.local_devices(backend="cpu")[0]
        _device = jax.local_devices()[0]
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_default_device", host)
    elif _device is not None:
        _device = None
        jax.config.update("jax_default_device", None)


def devices_are_single() -> bool:
    """Return True if devices compute in single precision, and the host in double."""
    return _device is not None


def is_on_host() -> bool:
    """Return True in code that the host runs in double precision while devices compute in single precision."""
    return _device is not None and _is_double()


def precision_in_use() -> str:
    """Return "single" if devices, or everything, compute in single precision; "double" otherwise."""
    return "double" if _is_double() and _device is None else "single"


def _is_double() -> bool:
    return jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]


@contextlib.contextmanager
def on_devices() -> Iterator[None]:
    """Within the block, compute on the device in single precision, if devices do."""
    if _device is None:
        yield
        return
    with jax.enable_x64(False), jax.default_device(_device):
        yield


def device_program(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function `on_devices`, with its numbers in 32 bits; within a traced function it is unchanged."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        if _device is None or is_tracing():
            return function(*args, **kwargs)
        with on_devices():
            args, kwargs = in_device_precision((args, kwargs))
            return function(*args, **kwargs)

    return wrapped


def in_device_precision(tree: PyTree) -> PyTree:
    """Return a tree with its 64-bit numbers in 32 bits, if devices compute in single precision.

    A single-device array may move to another device; an array sharded over several stays where it is.
    """
    if _device is None:
        return tree
    with on_devices():
        return jax.tree.map(_narrowed, tree)


def in_host_precision(tree: PyTree) -> PyTree:
    """Return a tree with its 32-bit floats in 64 bits on the host, if devices compute in single precision."""
    if _device is None:
        return tree
    is_single = lambda x: isinstance(x, jax.Array) and x.dtype == jnp.float32
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x, float)) if is_single(x) else x, tree)


def _narrowed(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
        return leaf
    if isinstance(leaf, jax.Array):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        if (
            is_key
            or len(leaf.devices()) > 1
            or (leaf.devices() == {_device} and not _is_wide(leaf))
        ):
            return leaf
    return jnp.asarray(np.asarray(leaf))


def _is_wide(leaf: jax.Array) -> bool:
    return leaf.dtype.itemsize > 4 and not jnp.iscomplexobj(leaf)
