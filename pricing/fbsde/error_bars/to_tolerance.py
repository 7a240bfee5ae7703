"""Error bars of a solution: a certificate on as many paths as needed, a check, and an upper bound."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ..dynamics.driver_form import ErrorSources
from ..solution import Solution
from ..solve_limits import SolveLimits
from .certificate import figures_on_paths, without_noise
from .early_exercise_bounds import upper_bound
from .relative_errors import EntryErrors, Tolerance, errors, excess, unknown_errors

_PILOT_PATHS = 8192
_MARGIN = 1.2  # margin over the number of paths implied by a pilot's noise


def error_bars(
    solution: Solution,
    second: Solution | None,
    sources: ErrorSources,
    keys: list[PRNGKeyArray],
    tolerance: Tolerance,
    scale: np.ndarray,
    limits: SolveLimits,
) -> tuple[dict[str, Any], EntryErrors]:
    """Return the error bars of today's figures, as `stats` of the solution, and the errors of all entries.

    second: another solution, if one checks the first; scale: x_i of `Tolerance`, [dim].
    """
    other = upper = None
    if sources.has_defects:
        pilot = figures_on_paths(solution, keys.pop(0), _PILOT_PATHS)
        wanted = _MARGIN * _PILOT_PATHS * excess(pilot, tolerance, scale) ** 2
        seconds = limits.seconds_left / (1 + sources.needs_check + sources.has_bound)
        started, key = time.perf_counter(), keys.pop(0)
        if limits.max_seconds is not None:  # compiles and times its program
            figures_on_paths(solution, key, _PILOT_PATHS)
        affordable = seconds * _PILOT_PATHS / (time.perf_counter() - started)
        paths, found = limits.certificate_paths(wanted, _PILOT_PATHS, affordable), pilot
        if paths > _PILOT_PATHS:
            found = figures_on_paths(solution, keys.pop(0), paths)
        if second is not None:
            other = figures_on_paths(second, keys.pop(), paths)
    else:
        found = without_noise(solution)
        other = None if second is None else without_noise(second)
    if sources.has_bound:
        upper = upper_bound(
            solution, found, keys, tolerance=tolerance.value, seconds=limits.seconds_left
        )
    known = errors(found, other, upper, scale=scale)
    if sources.needs_check and other is None:
        known = unknown_errors(known)
    # as arrays: Python numbers would recompile every program that takes the solution
    worst, entries = jax.tree.map(jnp.asarray, (known.worst(), known))
    stats = {"certificate": found, "checked_by": other, "upper": upper}
    return stats | {"errors": worst, "entry_errors": entries}, known
