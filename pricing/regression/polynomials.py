"""Multivariate Hermite polynomials with known means over Gaussian steps: heat polynomials."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Indices = tuple[tuple[int, ...], ...]


@functools.cache
def multi_indices(dim: int, degree: int) -> Indices:
    """Return the exponents of all monomials of total degree 0 to `degree`, lower degrees first."""
    factors = (
        chosen
        for total in range(degree + 1)
        for chosen in itertools.combinations_with_replacement(range(dim), total)
    )
    return tuple(tuple(chosen.count(i) for i in range(dim)) for chosen in factors)


def heat_polynomials(
    x: Float[Array, "dim paths"], spread: Array | Sequence[Sequence[Any]], indices: Indices
) -> Float[Array, "functions paths"]:
    """Return h_a(x, S) = H_a(x, S) / sqrt(a!), sum_a l^a H_a(x, S) / a! = exp(l . x - l . S l / 2).

    Their mean over a Gaussian step with any covariance Q is again a heat polynomial:
    E[h_a(x + e, S)] = h_a(x, S - Q), e ~ N(0, Q). With S the identity they are orthonormal under N(0, I).

    spread: S, symmetric, with entries numbers or [paths]; a Python zero costs nothing. indices: exponents from
    `multi_indices`, including all lower ones.
    """
    table = {(0,) * len(x): jnp.ones_like(x[0])}
    for index in indices:
        if index not in table:
            table[index] = _next(x, spread, index, table)
    return jnp.stack([table[index] for index in indices])


def _next(x, spread, index: tuple[int, ...], table: dict) -> Float[Array, " paths"]:
    """Return the next polynomial by sqrt(b_i + 1) h_{b + e_i} = x_i h_b - sum_j S_ij sqrt(b_j) h_{b - e_j}."""
    i = int(np.flatnonzero(index)[0])
    below = _lowered(index, i)
    total = x[i] * table[below]
    for j, power in enumerate(below):
        coefficient = spread[i][j]
        if power and not (isinstance(coefficient, float) and coefficient == 0.0):
            total = total - coefficient * float(np.sqrt(power)) * table[_lowered(below, j)]
    return total / float(np.sqrt(index[i]))


def _lowered(index: tuple[int, ...], i: int) -> tuple[int, ...]:
    return tuple(power - (place == i) for place, power in enumerate(index))


def hermite_polynomials(
    x: Float[Array, "dim paths"], degree: int
) -> Float[Array, "functions paths"]:
    """Return all Hermite polynomials up to a total degree, orthonormal under N(0, I), the constant first.

    The polynomials of a degree whose first coordinate is i follow in one product from those of the previous
    degree without earlier coordinates: a few operations per degree and coordinate, also in derivatives.
    """
    dim, one = len(x), jnp.ones_like(x[:1])
    levels = [
        [one],
        [x[i : i + 1] for i in range(dim)],
    ]  # of a degree, by first coordinate
    powers = [np.ones(1) for _ in range(dim)]  # powers of that coordinate
    for k in range(2, degree + 1):
        blocks, of_blocks = [], []
        for i in range(dim):
            above = jnp.concatenate(levels[k - 1][i:])
            lowered = jnp.concatenate(levels[k - 2][i:]) if k > 2 else one
            power = np.concatenate([powers[i], np.zeros(len(above) - len(powers[i]))])
            correction = np.sqrt(powers[i])[:, None].astype(x.dtype) * lowered
            block = x[i : i + 1] * above - jnp.pad(
                correction, ((0, len(above) - len(correction)), (0, 0))
            )
            blocks.append(block * np.sqrt(1.0 / (power + 1.0))[:, None].astype(x.dtype))
            of_blocks.append(power + 1.0)
        levels.append(blocks)
        powers = of_blocks
    return jnp.concatenate([block for level in levels[: degree + 1] for block in level])


def identity(dim: int) -> list[list[float]]:
    """Return the spread of orthonormal polynomials."""
    return [[float(i == j) for j in range(dim)] for i in range(dim)]
