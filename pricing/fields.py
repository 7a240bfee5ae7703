"""Dataclass fields for models and products: numbers become arrays, words become codes, bad input is named.

Every number is an array leaf of the working precision, so that a new strike or a new spot never
retraces; every option word ("call", "down-and-out") is a small integer leaf, so that contracts of
both kinds stack in one batch.
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

Number = (
    Any  # what a user may type where a real is asked for: a Python number, a NumPy or JAX array
)


def as_real(value: Number) -> Array:
    """`value` as an array of floating type: a float array keeps its type, all else gets the default's."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        dtype = jnp.result_type(float)
    return jnp.asarray(value, dtype=jax.dtypes.canonicalize_dtype(dtype))


def _bounded(name: str, lower: float, upper: float, remedy: str, strict: bool):
    def convert(value: Number):
        if isinstance(value, Tracer):  # known at run time only
            return as_real(value)
        try:
            real = np.asarray(value, dtype=float)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} must be {remedy}, got {value!r}") from error
        above = real > lower if strict else real >= lower
        below = real < upper if strict else real <= upper
        if not np.all(above & below):
            raise ValueError(f"{name} must be {remedy}, got {value}")
        return as_real(value)

    return convert


def real(name: str, **kwargs: Any) -> Any:
    """A field holding any finite real."""
    finite = np.finfo(float).max
    return eqx.field(converter=_bounded(name, -finite, finite, "a finite number", False), **kwargs)


def positive(name: str, **kwargs: Any) -> Any:
    """A field holding a finite real above zero."""
    return eqx.field(
        converter=_bounded(name, 0.0, np.inf, "a finite number above 0", True), **kwargs
    )


def non_negative(name: str, **kwargs: Any) -> Any:
    """A field holding a finite real that is not below zero."""
    finite = np.finfo(float).max
    return eqx.field(
        converter=_bounded(name, 0.0, finite, "a finite number, not below 0", False), **kwargs
    )


def between(name: str, lower: float, upper: float, **kwargs: Any) -> Any:
    """A field holding a real in [lower, upper]."""
    remedy = f"a number in [{lower:g}, {upper:g}]"
    return eqx.field(converter=_bounded(name, lower, upper, remedy, False), **kwargs)


def choice(name: str, codes: Mapping[str, int], **kwargs: Any) -> Any:
    """A field holding one of the words of `codes` (or a list of them), kept as its integer code."""

    def code(word: str) -> int:
        if word not in codes:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, codes))}, got {word!r}")
        return codes[word]

    def convert(value: Any):
        if isinstance(value, str):
            value = code(value)
        elif isinstance(value, (list, tuple)):
            value = [code(word) for word in value]
        return jnp.asarray(value, dtype=jnp.int8)

    return eqx.field(converter=convert, **kwargs)
