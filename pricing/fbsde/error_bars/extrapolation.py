"""Extrapolation of today's figures in the number of dates, by three grids whose numbers differ by halves."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .certificate import Certificate, Estimate
from .relative_errors import Tolerance

_ORDERS = (1, 2)
_NEAR = 0.3  # relative distance of the ratio of two differences from that of an order
_LEAST = 0.125  # smallest error of an extrapolated figure, as a fraction of its correction


def extrapolated(
    found: Certificate, upper: Estimate | None, grids: Sequence[tuple[int, Certificate]]
) -> tuple[Certificate, Certificate, Estimate | None]:
    """Return figures on all dates, those of a second grid, and an upper bound, without their leading error.

    If the error of a figure on n dates is c / n^p, with p = 1 (Euler steps) or p = 2 (a driver at both ends of
    a step), the figures of three grids determine c, and their differences confirm p. Entries whose differences
    have another ratio are unchanged. The two results differ by the error that remains (Richardson).

    Args:
        found: The figures on all dates, from paths or a grid.
        upper: An upper bound of the value on all dates, with the error of the value; or None.
        grids: The numbers of dates of three grids with the grids' own figures: all, half and a quarter, or all,
            twice and four times as many.
    """
    steps, other = [1.0 / num_steps for num_steps, _ in grids], found
    for name in Tolerance._fields:
        mean = lambda c, name=name: getattr(c, name).mean
        on_all, on_second, on_third = (mean(figures) for _, figures in grids)
        fine, coarse = _corrections((on_all, on_second, on_third), steps)
        left, least = on_all + fine - (on_second + coarse), _LEAST * jnp.abs(fine)
        left = jnp.where(jnp.abs(left) < least, least, left)
        other = eqx.tree_at(mean, other, mean(found) + fine - left)
        found = eqx.tree_at(mean, found, mean(found) + fine)
        if name == "value":
            found = eqx.tree_at(lambda c: c.missed, found, found.missed + fine)
            upper = None if upper is None else Estimate(upper.mean + fine, upper.std_error)
    return found, other, upper


def _corrections(figures: Sequence[Array], steps: Sequence[float]) -> tuple[Array, Array]:
    """Return the corrections of the leading error of a figure on the first two of three grids, 0 if unknown."""
    first, second = figures[0] - figures[1], figures[1] - figures[2]
    fine, coarse = jnp.zeros_like(first), jnp.zeros_like(first)
    for order in _ORDERS:
        one, two, three = (step**order for step in steps)
        expected = first * (three - two) / (two - one)
        is_of_order = jnp.abs(second - expected) <= _NEAR * jnp.abs(expected)
        fine = jnp.where(is_of_order, first * one / (two - one), fine)
        coarse = jnp.where(is_of_order, second * two / (three - two), coarse)
    return fine, coarse
