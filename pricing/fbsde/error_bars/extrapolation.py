"""Extrapolation of today's figures in the number of dates, by three grids whose numbers differ by halves."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .certificate import Certificate, Estimate
from .relative_errors import Tolerance

_ORDERS = (1, 2)
_NEAR = 0.3  # relative distance of the ratio of two differences from that of an order
_LEAST = 0.25  # smallest error of an extrapolated figure, as a fraction of its correction


def extrapolated(
    found: Certificate, upper: Estimate | None, grids: Sequence[tuple[int, Certificate]]
) -> tuple[Certificate, Certificate, Estimate | None]:
    """Return figures on all dates, those of a second grid, and an upper bound, without their leading error.

    If the error of a figure on n dates is c / n^p, with p = 1 (Euler steps) or p = 2 (a driver at both ends of
    a step), the figures of three grids determine c, and their differences confirm p. Entries whose differences
    have another ratio are unchanged, and so are figures from paths that are farther from the grid's than its
    correction. The two results differ by the error that remains (Richardson), and by the distance of paths
    and grid.

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
        left, apart = on_all + fine - (on_second + coarse), mean(found) - on_all
        correction = jnp.where(jnp.abs(apart) <= jnp.abs(fine), fine, 0.0)
        error = jnp.maximum(jnp.abs(left), _LEAST * jnp.abs(fine))
        error = error + jnp.abs(apart - (fine - correction))
        found = eqx.tree_at(mean, found, mean(found) + correction)
        other = eqx.tree_at(mean, other, mean(found) - jnp.where(left < 0.0, -error, error))
        if name == "value":
            found = eqx.tree_at(lambda c: c.missed, found, found.missed + correction)
            upper = None if upper is None else Estimate(upper.mean + correction, upper.std_error)
    return found, other, upper


def without_dates(
    found: Certificate, other: Certificate, num_steps: int, of_other: int
) -> Certificate:
    """Return the figures of a second solution; on more dates, without an error c / n of n dates.

    Then their difference from the first is this error, as it is if the second has half of the dates.
    """
    if of_other <= num_steps:
        return other
    share = num_steps / (of_other - num_steps)
    means = lambda c: [getattr(c, name).mean for name in Tolerance._fields]
    pairs = zip(means(found), means(other), strict=True)
    return eqx.tree_at(means, other, [mean + share * (mean - first) for first, mean in pairs])


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
