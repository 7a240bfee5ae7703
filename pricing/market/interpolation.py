"""Locate points between sorted pillars, for curves and surfaces."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Num

import jaxtape


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


@jaxtape.no_inline
def interpolate(
    x: Num[ArrayLike, "..."], pillars: Float[Array, " n"], values: Float[Array, "_ ..."]
) -> Float[Array, "..."]:
    """Return the values at `x`: linear between the pillars, and flat outside."""
    return jnp.tensordot(pillar_weights(x, pillars), values, 1, precision="highest")


@jax.jit
def pillar_weights(x: Num[ArrayLike, "..."], pillars: Float[Array, " n"]) -> Float[Array, "... n"]:
    """Return the interpolation weight of each pillar at `x`: linear between pillars, flat outside.

    All but two are 0. They are computed without indexing, because the derivative of a gather is a scatter,
    which is a loop on CPUs. At an inner pillar the derivative to `x` is that to the right; clipping the weight
    instead of `x` would halve it.
    """
    x = jnp.clip(as_floats(x), pillars[0], pillars[-1])[..., None]
    passed_at = jnp.append(pillars[1:-1], jnp.inf)[: pillars.size - 1]
    left, right, end = (
        jnp.expand_dims(part, tuple(range(x.ndim - 1)))
        for part in (pillars[:-1], pillars[1:], passed_at)
    )
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
