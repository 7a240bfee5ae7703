"""Error bars of a solution: a certificate on as many paths as needed, a check, and an upper bound."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ..dynamics.driver_form import ErrorSources
from ..solution import Solution
from ..solve_limits import SolveLimits
from .certificate import Certificate, figures_on_paths, on_grids, without_noise
from .certificate_samples import cover
from .early_exercise_bounds import bounds_to_tolerance, with_middle_of_bounds
from .extrapolation import extrapolated, without_dates
from .relative_errors import (
    EntryErrors,
    Rounding,
    Tolerance,
    errors,
    excess,
    in_units,
    unknown_errors,
)

_PILOT_PATHS = 8192
_PATHS_OF_GRIDS = 32768  # paths that cost as much as two coarser grids, or more
_MARGIN = 1.2  # margin over the number of paths implied by a pilot's noise


def error_bars(
    solution: Solution,
    checks: Sequence[Solution],
    sources: ErrorSources,
    keys: list[PRNGKeyArray],
    tolerance: Tolerance,
    scale: np.ndarray,
    limits: SolveLimits,
    coarser: Callable[[], list[Solution]] | None = None,
) -> tuple[dict[str, Any], EntryErrors]:
    """Return the error bars of today's figures, as `stats` of the solution, and the errors of all entries.

    If a pilot shows that a grid needs many paths, or more than `max_paths`, or if its figures are extrapolated,
    the error of a figure is its difference from coarser grids where that is smaller, unless the pilot
    contradicts the grid. Where neither paths nor a second solution give errors, it always is.

    checks: the other solutions: none, one that checks the first, or two of a grid on other dates, which also
    extrapolate today's figures; scale: x_i of `Tolerance`, [dim]; coarser: for a grid, returns the solutions on
    coarser grids.
    """
    other = upper = grids = None
    is_extrapolated = len(checks) > 1
    solutions = (solution, *checks) if is_extrapolated else ()
    by_dates = [(one.problem.num_steps, without_noise(one)) for one in solutions]
    with_grids = partial(_with_grids, scale=scale, of_dates=[found for _, found in by_dates[:2]])
    rounding = Rounding.of(solution)
    above = partial(excess, tolerance=tolerance, scale=scale, rounding=rounding)
    if is_extrapolated:
        on_grid, other_grid, _ = extrapolated(by_dates[0][1], None, by_dates)
        of_dates = errors(on_grid, other_grid, scale=scale, has_noise=False).worst()
        above = partial(above, of_dates=of_dates)
    if sources.has_defects:
        pilot = figures_on_paths(solution, keys.pop(0), _PILOT_PATHS)
        wanted = _MARGIN * _PILOT_PATHS * above(pilot) ** 2
        seconds = limits.seconds_left / (1 + sources.needs_check + sources.has_bound)
        started, key = time.perf_counter(), keys.pop(0)
        if limits.max_seconds is not None:  # compiles and times its program
            figures_on_paths(solution, key, _PILOT_PATHS)
        affordable = seconds * _PILOT_PATHS / (time.perf_counter() - started)
        paths = limits.certificate_paths(wanted, _PILOT_PATHS, affordable)
        is_costly = wanted > min(limits.max_paths, _PATHS_OF_GRIDS)
        if coarser is not None and (is_costly or is_extrapolated):
            grids = on_grids(solution, coarser())
        found = with_grids(pilot, grids)
        if grids is not None and above(found) <= 1.0:
            paths = _PILOT_PATHS
        if paths > _PILOT_PATHS:
            found = figures_on_paths(solution, keys.pop(0), paths)
            found = with_grids(found, grids)
        if checks and not is_extrapolated:
            other = figures_on_paths(checks[0], keys.pop(), paths)
            dates = solution.problem.num_steps, checks[0].problem.num_steps
            other = without_dates(found, other, *dates)
    else:
        if coarser is not None and not sources.needs_check:
            grids = on_grids(solution, coarser())
        found = without_noise(solution) if grids is None else grids
    if sources.has_bound:
        asked = tolerance.value
        both = bounds_to_tolerance(
            solution, found, keys, tolerance=asked, seconds=limits.seconds_left
        )
        if both is not None:
            found, upper = with_middle_of_bounds(found, *both, asked), both[1]
    if is_extrapolated:
        found, other, upper = extrapolated(found, upper, by_dates)
    if not sources.needs_other_dates:
        found = eqx.tree_at(lambda c: c.left, found, found.left + sources.of_dates)
    has_noise = not is_extrapolated
    known = errors(found, other, upper, scale=scale, rounding=rounding, has_noise=has_noise)
    has_errors = sources.has_defects or grids is not None
    if other is None and (sources.needs_check or not has_errors):
        known = unknown_errors(known)
    # as arrays: Python numbers would recompile every program that takes the solution
    own = in_units(known, found, scale)
    worst, entries, own = jax.tree.map(jnp.asarray, (known.worst(), known, own))
    stats = {"certificate": found, "checked_by": other, "upper": upper}
    return stats | {"errors": worst, "entry_errors": entries, "absolute_errors": own}, known


def _with_grids(
    found: Certificate,
    grids: Certificate | None,
    *,
    scale: np.ndarray,
    of_dates: Sequence[Certificate] = (),
) -> Certificate:
    """Return the figures of paths, or of grids where these are more accurate.

    No figure is that of grids if the errors of grids and paths do not overlap. Where two grids on different
    dates are given, their difference is an error of both.
    """
    if grids is None:
        return found
    for name in Tolerance._fields:
        one, other = getattr(grids, name), getattr(found, name)
        widths = cover(one.mean.size) * (one.std_error + other.std_error)
        if of_dates:
            on_first, on_second = (getattr(figures, name).mean for figures in of_dates)
            widths = widths + jnp.abs(on_first - on_second)
        if not bool(jnp.all(jnp.abs(one.mean - other.mean) <= widths)):
            return found
    worst = errors(grids, scale=scale).worst(), errors(found, scale=scale).worst()
    better = {
        name: getattr(grids, name)
        for name, of_grids, of_paths in zip(Tolerance._fields, *worst, strict=True)
        if of_grids < of_paths
    }
    if "value" in better:
        better["missed"] = grids.missed
    return dataclasses.replace(found, **better)
