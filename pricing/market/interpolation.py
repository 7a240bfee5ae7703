"""Locate points between sorted pillars, for curves and surfaces."""

import functools

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, ArrayLike, Float, Num

import jaxtape

from ..numerics.safe_math import clipped


def as_floats(values: Num[ArrayLike, "..."] | list | tuple) -> Float[Array, "..."]:
    """Return an array of floats in the precision of the values; Python numbers stay weakly typed."""
    array = jnp.asarray(values)
    if jnp.issubdtype(array.dtype, jnp.floating):
        return array
    return array * 1.0 if array.weak_type else array.astype(float)


def as_leaf(values: Num[ArrayLike, "..."] | list | tuple) -> Float[Array, "..."]:
    """Return an array of floats with a definite precision, for a pytree leaf."""
    array = as_floats(values)
    return array.astype(array.dtype) if array.weak_type else array


def interpolate(
    x: Num[ArrayLike, "..."], pillars: Float[Array, " n"], values: Float[Array, "_ ..."]
) -> Float[Array, "..."]:
    """Return the values at `x`: linear between the pillars, and flat outside."""
    return _interpolated(as_floats(x), pillars, values)


@jax.custom_jvp
@jaxtape.no_inline
def _interpolated(
    x: Float[Array, "..."], pillars: Float[Array, " n"], values: Float[Array, "_ ..."]
) -> Float[Array, "..."]:
    return jnp.tensordot(pillar_weights(x, pillars), values, 1, precision="highest")


@functools.partial(_interpolated.defjvp, symbolic_zeros=True)
def _interpolated_jvp(primals, tangents):
    """Differentiate; a move of the pillars acts like the opposite move of x, by its interpolated size."""
    (x, pillars, values), (dx, dpillars, dvalues) = primals, tangents
    is_known = lambda tangent: not isinstance(tangent, SymbolicZero)
    moves = [dx] if is_known(dx) else []
    if is_known(dpillars):
        moves.append(-_interpolated(x, pillars, dpillars))
    parts = [_interpolated(x, pillars, dvalues)] if is_known(dvalues) else []
    if moves:
        move = sum(moves[1:], moves[0]).reshape(*x.shape, *(1,) * (values.ndim - 1))
        parts.append(_slope(x, pillars, values) * move)
    return _interpolated(*primals), sum(parts[1:], parts[0])


@jaxtape.no_inline
def _slope(
    x: Float[Array, "..."], pillars: Float[Array, " n"], values: Float[Array, "_ ..."]
) -> Float[Array, "..."]:
    """Return the derivative to `x`: that to the right at an inner pillar, that inside at an end."""
    x = x[..., None]
    left, end = _broadcast(x, pillars[:-1], _ends(pillars))
    weight = ((left <= x) & (x < end) & (x <= pillars[-1])).astype(x.dtype)
    widths = jnp.diff(pillars).reshape(-1, *(1,) * (values.ndim - 1))
    return jnp.tensordot(weight, jnp.diff(values, axis=0) / widths, 1, precision="highest")


def _broadcast(x: Float[Array, "..."], *parts: Float[Array, " n"]) -> list[Float[Array, "..."]]:
    """Return vectors with as many axes as x, theirs the last."""
    return [jnp.expand_dims(part, tuple(range(x.ndim - 1))) for part in parts]


def _ends(pillars: Float[Array, " n"]) -> Float[Array, " intervals"]:
    """Return the end of each interval between pillars; infinity for the last."""
    return jnp.append(pillars[1:-1], jnp.inf)[: pillars.size - 1]


@jax.jit
def pillar_weights(x: Num[ArrayLike, "..."], pillars: Float[Array, " n"]) -> Float[Array, "... n"]:
    """Return the interpolation weight of each pillar at `x`: linear between pillars, flat outside.

    All but two are 0. They are computed without indexing, because the derivative of a gather is a scatter,
    which is a loop on CPUs. At an inner pillar the derivative to `x` is that to the right, and at an end
    that inside; clipping the weight instead of `x` would halve them.
    """
    x = clipped(as_floats(x), pillars[0], pillars[-1])[..., None]
    left, right, end = _broadcast(x, pillars[:-1], pillars[1:], _ends(pillars))
    share = jnp.where(x < left, 0.0, jnp.where(x < end, (x - left) / (right - left), 1.0))
    passed = jnp.concatenate([jnp.ones_like(x), share, jnp.zeros_like(x)], axis=-1)
    return passed[..., :-1] - passed[..., 1:]


def check_shape(what: str, name: str, values: Array, **axes: Array) -> None:
    """Check that `values` has one entry for each pillar of its axes.

    Raises:
        ValueError: The shapes do not match.
    """
    wanted = tuple(axis.size for axis in axes.values())
    if values.shape != wanted or 0 in wanted or any(axis.ndim != 1 for axis in axes.values()):
        given = " and ".join(f"{label} of shape {axis.shape}" for label, axis in axes.items())
        raise ValueError(
            f"{what} with {given} has {name}s of shape {values.shape}: give axes of one dimension, "
            f"with at least one pillar, and one {name} for each of them, here in an array of shape {wanted}"
        )
