"""Relative errors of today's value, Delta and Gamma, and tolerances for them."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxtape import stored_jit

from ..solution import Solution
from .certificate import Certificate, Estimate
from .certificate_samples import cover
from .early_exercise_bounds import SIGNIFICANT


class Tolerance(NamedTuple):
    """Tolerances of today's value, Delta and Gamma, relative to the size of each, for every contract.

    Entries are compared in money, independent of the units of states: x_i Delta_i and x_i x_j Gamma_ij, where
    x_i is today's state if it is positive on all paths, else its standard deviation at maturity. If a Delta is
    small compared with value / dimension, it is measured relative to that; likewise a Gamma relative to Delta's
    size / dimension.

    Attributes:
        value: Tolerance of the value.
        delta: Tolerance relative to the largest x_i Delta_i.
        gamma: Tolerance relative to the largest x_i x_j Gamma_ij.
    """

    value: float = 0.002
    delta: float = 0.01
    gamma: float = 0.05


DEFAULT_TOLERANCE = Tolerance()


def as_tolerance(tolerance: "Tolerance | float") -> Tolerance:
    """Return the tolerance of each figure; a number is the tolerance of all three.

    Raises:
        TypeError: The argument is neither a `Tolerance` nor a number.
        ValueError: A tolerance is not above zero.
    """
    if isinstance(tolerance, (int, float)):
        tolerance = Tolerance(tolerance, tolerance, tolerance)
    if not isinstance(tolerance, Tolerance):
        raise TypeError(
            f"tolerance={tolerance!r}: give a Tolerance, or one number for value, Delta and Gamma."
        )
    for name, asked in zip(Tolerance._fields, tolerance, strict=True):
        if not asked > 0.0:
            raise ValueError(f"tolerance has {name}={asked}: give a number above zero.")
    return tolerance


class EntryErrors(NamedTuple):
    """The error of each entry, relative to the size of its figure in its contract.

    value: [*contracts]; delta: [*contracts, dim]; gamma: [*contracts, dim, dim].
    """

    value: np.ndarray
    delta: np.ndarray
    gamma: np.ndarray

    def worst(self) -> Tolerance:
        """Return the largest error of each figure, over entries and contracts."""
        return Tolerance(*(float(np.max(error)) for error in self))


class Rounding(NamedTuple):
    """Rounding errors of a solution.

    Attributes:
        of_steps: The sum of the relative rounding errors of a state and of u in all steps.
        of_gamma: Rounding errors of Gamma on the nodes of a grid, [*contracts, dim, dim].
    """

    of_steps: float
    of_gamma: np.ndarray

    @classmethod
    def of(cls, solution: Solution) -> "Rounding":
        """Return those of today's figures."""
        problem = solution.problem
        eps = float(jnp.finfo(problem.x0.dtype).eps)
        return cls(problem.num_steps * eps, np.asarray(_of_gamma(solution), float))

    def of_figures(self, found: Certificate, x: np.ndarray) -> EntryErrors:
        """Return those of value, Delta and Gamma in money, from states of sizes x, [dim].

        A state that is off by d x_i changes u by d x_i Delta_i, and x_i Delta_i by d x_i x_j Gamma_ij.
        """
        in_money = x, x[:, None] * x
        value = np.abs(np.asarray(found.value.mean))
        delta = np.abs(in_money[0] * np.asarray(found.delta.mean))
        gamma = np.abs(in_money[1] * np.asarray(found.gamma.mean))
        return EntryErrors(
            np.asarray(self.of_steps * (value + delta.sum(axis=-1))),
            self.of_steps * (delta + gamma.sum(axis=-1)),
            self.of_steps * gamma + in_money[1] * self.of_gamma,
        )


@stored_jit(quick_to_compile=True)
def _of_gamma(solution: Solution) -> Float[Array, "*contracts dim dim"]:
    return solution.approximation.hessian_rounding(0, solution.problem.x0)


def errors(
    found: Certificate,
    other: Certificate | None = None,
    upper: Estimate | None = None,
    *,
    scale: np.ndarray | None = None,
    rounding: Rounding | None = None,
    has_noise: bool = True,
) -> EntryErrors:
    """Return the relative errors of value, Delta and Gamma, by entry and contract.

    An error is the largest of: three standard errors (more for many entries, with the same joint coverage); the
    difference from another solution's certificate (with a nonlinear driver both have the square of their
    solution's error, and each has its discretization error), even if it may be noise; and, for the value, the
    gap to an upper bound, which a better exercise rule might earn. A difference without noise is added to the
    standard errors. The remainder from Gamma's squared error and rounding errors are added.

    scale: x_i of `Tolerance`, [dim]; None if states share one unit and Delta's size does not depend on the
    value. rounding: what rounding adds; None for nothing. has_noise: whether the difference has noise.
    """
    told, x = [], _units(found, scale)
    rounded = (0.0, 0.0, 0.0) if rounding is None else rounding.of_figures(found, x)
    sizes = _sizes(found, scale)
    for name, (unit, size), least in zip(Tolerance._fields, sizes, rounded, strict=True):
        one = getattr(found, name)
        noise = unit * np.asarray(one.std_error)
        error = cover(noise.size) * noise
        if other is not None:
            gap = np.asarray(one.mean) - np.asarray(getattr(other, name).mean)
            gap = unit * np.abs(gap)
            error = np.maximum(error, gap) if has_noise else error + gap
        if upper is not None and name == "value":
            most = np.asarray(upper.mean + SIGNIFICANT * upper.std_error - one.mean)
            error = np.where(np.isfinite(most), np.maximum(error, most), math.inf)
        told.append(_relative(error + least, size, found.left))
    return EntryErrors(*told)


def in_units(known: EntryErrors, found: Certificate, scale: np.ndarray) -> EntryErrors:
    """Return relative errors of entries as errors in the units of the entries; infinite if a size is zero."""

    def of_figure(error: np.ndarray, unit: ArrayLike, size: ArrayLike) -> np.ndarray:
        size = _on_entries(size, error) / np.where(np.greater(unit, 0.0), unit, np.inf)
        return np.where(size > 0.0, error * np.where(size > 0.0, size, 1.0), math.inf)

    pairs = zip(known, _sizes(found, scale), strict=True)
    return EntryErrors(*(of_figure(error, *of_size) for error, of_size in pairs))


def _units(found: Certificate, scale: np.ndarray | None) -> np.ndarray:
    dim = np.asarray(found.delta.mean).shape[-1]
    return np.ones(dim) if scale is None else np.asarray(scale, float)


def _sizes(found: Certificate, scale: np.ndarray | None) -> Iterator[tuple[ArrayLike, np.ndarray]]:
    """Yield for each figure the factor that makes an entry money, and the size of every contract's figure."""
    x = _units(found, scale)
    share = 0.0 if scale is None else 1.0 / x.size
    size, contracts = np.zeros(()), np.ndim(found.value.mean)
    for name, unit in zip(Tolerance._fields, (1.0, x, x[:, None] * x), strict=True):
        entries = np.abs(unit * np.asarray(getattr(found, name).mean))
        axes = tuple(range(contracts, entries.ndim))
        size = np.asarray(np.maximum(np.max(entries, axis=axes, initial=0.0), share * size))
        yield unit, size


def excess(
    pilot: Certificate,
    tolerance: Tolerance,
    scale: np.ndarray,
    rounding: Rounding,
    of_dates: Sequence[float] = (0.0, 0.0, 0.0),
) -> float:
    """Return the largest noise of a figure, as a multiple of what its tolerance leaves beside other errors.

    At least a quarter of the tolerance is left: more paths do not help where other errors are larger.
    of_dates: the errors of the dates of a grid.
    """
    at_noise = lambda c: [getattr(c, name).std_error for name in Tolerance._fields]
    quiet = eqx.tree_at(at_noise, pilot, [jnp.zeros_like(noise) for noise in at_noise(pilot)])
    noisy = eqx.tree_at(lambda c: c.left, pilot, jnp.zeros_like(pilot.left))
    others = errors(quiet, scale=scale, rounding=rounding)
    worst = (
        np.max(noise / np.maximum(asked - other - dates, asked / 4.0))
        for noise, other, dates, asked in zip(
            errors(noisy, scale=scale), others, of_dates, tolerance, strict=True
        )
    )
    return float(max(worst))


def _on_entries(of_contract: ArrayLike, entries: np.ndarray) -> np.ndarray:
    """Return a number of each contract with axes for the entries of a figure."""
    number = np.asarray(of_contract, float)
    return number.reshape((*number.shape, *(1,) * (entries.ndim - number.ndim)))


def _relative(error: ArrayLike, size: ArrayLike, left: ArrayLike) -> np.ndarray:
    """Return errors divided by the size of their contract (infinite if it is zero), plus `left`."""
    error = np.asarray(error, float)
    size, left = _on_entries(size, error), _on_entries(left, error)
    safe = np.where(size > 0.0, size, 1.0)
    return np.where(size > 0.0, error / safe + left, math.inf)


def unknown_errors(like: EntryErrors) -> EntryErrors:
    """Return infinite errors, for when errors are unknown."""
    return EntryErrors(*(np.full_like(error, math.inf) for error in like))


def unmet_tolerances(known: EntryErrors, tolerance: Tolerance, contracts: Sequence[int]) -> str:
    """Return the figures that miss their tolerances, in words; "" if there are none."""
    trios = zip(Tolerance._fields, known, tolerance, strict=True)
    return ", ".join(
        f"{name} is {known_to(error, contracts)} ({100 * asked:g} % is asked)"
        for name, error, asked in trios
        if not np.max(error) <= asked
    )


def known_to(error: np.ndarray, contracts: Sequence[int]) -> str:
    """Return the accuracy of a figure, in words, and the entry that is known least accurately."""
    if not np.all(np.isfinite(error)):
        return "not known"
    entry = [int(i) for i in np.unravel_index(np.argmax(error), error.shape)]
    own, contract = entry[len(contracts) :], entry[: len(contracts)]
    places = [f"entry {own}"] * (error.size > 1 and bool(own)) + [f"contract {contract}"] * bool(
        contract
    )
    where = f", least in {' of '.join(places)}" if places else ""
    return f"known to {100 * np.max(error):.2g} % of its size{where}"
