"""How far off are value, Delta and Gamma of today, as shares of their sizes, and is that what was asked?"""

import math
from statistics import NormalDist
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from .certificate import Certificate, Estimate
from .solution import Solution

_SIGNIFICANT = 3.0  # standard errors by which two numbers differ
_OUTSIDE = 0.00135  # chance of a figure above its error, and below: three standard errors


class Tolerance(NamedTuple):
    """What is asked of value, Delta and Gamma of today, relative to the size of each.

    A Delta that is small beside value over state is measured by that, a Gamma by Delta over state.

    Attributes:
        value: Of the largest value.
        delta: Of the largest entry of Delta.
        gamma: Of the largest entry of Gamma.

    Examples:
        >>> from pricing.fbsde import Tolerance
        >>> Tolerance(gamma=0.1).value
        0.002
    """

    value: float = 0.002
    delta: float = 0.01
    gamma: float = 0.05


ASKED = Tolerance()


def tolerance_of(rtol: "Tolerance | float") -> Tolerance:
    """Return the tolerance of each figure; a number is that of all three.

    Raises:
        TypeError: It is neither a `Tolerance` nor a number.
        ValueError: A tolerance is not above zero.
    """
    if isinstance(rtol, (int, float)):
        rtol = Tolerance(rtol, rtol, rtol)
    if not isinstance(rtol, Tolerance):
        raise TypeError(
            f"rtol={rtol!r}: give a Tolerance, or one number for value, Delta and Gamma."
        )
    for name, asked in zip(Tolerance._fields, rtol, strict=True):
        if not asked > 0.0:
            raise ValueError(f"rtol has {name}={asked}: give a number above zero.")
    return rtol


def errors(
    found: Certificate,
    other: Certificate | None = None,
    upper: Estimate | None = None,
    *,
    scale: float = math.inf,
) -> Tolerance:
    """Return the errors of value, Delta and Gamma, as multiples of the size of each.

    An error is three standard errors, of many entries more, so that all of them are within as often. Or it is
    by what another solution's certificate differs, beyond noise: where the driver bends both keep the square of
    their solution's error, and each has the error of its dates. Or it is, of the value, what lies between it
    and an upper bound: a better rule of exercise may earn that. What the square of Gamma's error may leave
    comes on top.
    """
    sizes = [float(np.max(np.abs(found.value.mean)))]
    for derivative in (found.delta, found.gamma):
        sizes.append(max(float(np.max(np.abs(derivative.mean))), sizes[-1] / scale))
    told, left = [], float(np.max(found.left))
    for name, size in zip(Tolerance._fields, sizes, strict=True):
        one = getattr(found, name)
        noise = one.std_error
        error = _cover(noise.size) * float(np.max(noise))
        if other is not None:
            both = getattr(other, name)
            noise = np.sqrt(np.asarray(noise) ** 2 + np.asarray(both.std_error) ** 2)
            gap = np.abs(np.asarray(one.mean) - np.asarray(both.mean))
            error = max(error, float(np.max(np.where(gap > _SIGNIFICANT * noise, gap, 0.0))))
        if upper is not None and name == "value":
            most = float(np.max(upper.mean + _SIGNIFICANT * upper.std_error - one.mean))
            error = max(error, most) if math.isfinite(most) else math.inf
        told.append(error / size + left if size > 0.0 else math.inf)
    return Tolerance(*told)


def without_noise(solution: Solution) -> Certificate:
    """Return the solution's own figures of today, of a grid: their noise is none."""
    t, x0 = solution.problem.times[0], solution.problem.x0
    own = solution.value(t, x0), solution.delta(t, x0), solution.gamma(t, x0)
    figures = [Estimate(figure, jnp.zeros_like(figure)) for figure in own]
    return Certificate(*figures, missed=jnp.zeros_like(own[0]), left=jnp.zeros_like(own[0]))


def _cover(entries: int) -> float:
    """Return the standard errors within which all entries are in 997 of 1,000 cases, by Bonferroni's rule."""
    return NormalDist().inv_cdf(1.0 - _OUTSIDE / entries)


def shortcomings(solution: Solution, rtol: Tolerance) -> str:
    """Return which figures are not known to what is asked, in words; empty if all are."""
    trios = zip(Tolerance._fields, solution.stats["errors"], rtol, strict=True)
    return ", ".join(
        f"{name} is {_known_to(float(error))} ({100 * asked:g} % is asked)"
        for name, error, asked in trios
        if not error <= asked
    )


def _known_to(error: float) -> str:
    if not math.isfinite(error):
        return "not known"
    return f"known to {100 * error:.2g} % of its size"
