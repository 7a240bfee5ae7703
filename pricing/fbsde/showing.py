"""Display of solutions as text tables and plots."""

from collections.abc import Iterator
from dataclasses import InitVar, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from .dynamics.forward_paths import sampled_states

Solution = Any  # `.solution.Solution`, which imports this module

_FIGURES = ("value", "delta", "gamma")
_MOST_ROWS = 10  # most rows of a figure
_PATHS = 1024  # paths whose states set the range of a plot
_RANGE = 0.05, 0.95  # quantiles of these states
_POINTS = 101
_LINES = 8  # most contracts in a plot


@jax.tree_util.register_static
@dataclass(frozen=True)
class RunNote:
    """A note of a run's solver and time. All notes compare equal, so they do not affect programs."""

    solver: InitVar[str]
    seconds: InitVar[float | None]

    def __post_init__(self, solver: str, seconds: float | None):
        time = "" if seconds is None else f", {seconds:.3g} s"
        object.__setattr__(self, "text", f"{solver}{time}")


def summary_of(solution: Solution) -> str:
    """Return `Solution.summary`."""
    problem = solution.problem
    _require_one_key(solution)
    certificate = solution.stats.get("certificate")
    rows: list[tuple[str, ...]] = []
    for name in _FIGURES:
        if certificate is not None:
            estimate, error = getattr(certificate, name), solution.stats["absolute_errors"]
            rows += _rows(name, estimate.mean, getattr(error, name), estimate.std_error)
            continue
        try:
            figure = np.asarray(getattr(solution, name)(0.0, problem.x0))
        except (RuntimeError, TypeError):
            rows.append((name, "not known by this solver"))
        else:
            rows += _rows(name, figure)
    heading = "t = 0, x0", "estimate", *("error", "std error") * (certificate is not None)
    width = max(len(label) for label, *_ in rows)
    columns = [
        (f"{label:<{width}}", *(f"{n:>13}" for n in row)) for label, *row in (heading, *rows)
    ]
    lines = ["  ".join(row).rstrip() for row in columns]
    return "\n".join([_title(solution), *lines, *_remarks(solution)])


def _require_one_key(solution: Solution) -> None:
    """Refuse solutions for several keys.

    Raises:
        ValueError: The solution is for several keys.
    """
    if solution.problem.x0.ndim > 1:
        raise ValueError("the solution is for several keys: select one")


def _title(solution: Solution) -> str:
    problem = solution.problem
    contracts = f", contracts {problem.contracts}" if problem.contracts else ""
    run = solution.run.text
    return f"dimension {problem.dim}{contracts}, {problem.num_steps} steps; {run}"


def _rows(name: str, mean: ArrayLike, *errors: ArrayLike) -> Iterator[tuple[str, ...]]:
    """Yield label, estimate and errors of a figure's first entries; no error of 0.

    A figure without sampling noise, of a grid, has no standard error.
    """
    mean = np.asarray(mean)
    total = mean.size
    if name == "gamma":
        total = total * (mean.shape[-1] + 1) // (2 * mean.shape[-1])
    for count, index in enumerate(_entries(name, mean.shape)):
        if count == _MOST_ROWS:
            yield (f"{name}: {total - count} entries more",)
            return
        label = f"{name}{[*index]}" if index else name
        of_entry = [float(np.asarray(error)[index]) for error in errors]
        yield label, f"{mean[index]:.6g}", *("" if e == 0.0 else f"{e:.2g}" for e in of_entry)


def _entries(name: str, shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the indices of a figure's entries; those of Gamma once, by their distance from the diagonal."""
    if name != "gamma":
        yield from np.ndindex(shape)
        return
    *contracts, dim, _ = shape
    for contract in np.ndindex(*contracts):
        for apart in range(dim):
            yield from ((*contract, i, i + apart) for i in range(dim - apart))


def _remarks(solution: Solution) -> list[str]:
    """Return remarks on the errors."""
    errors, upper = solution.stats.get("errors"), solution.stats.get("upper")
    if errors is None:
        return ["no standard errors yet: certify(solution, key=key)"]
    shares = ", ".join(
        f"{name} {100.0 * float(error):.2g} %" for name, error in zip(_FIGURES, errors, strict=True)
    )
    lines = [
        f"largest error of an entry, from all sources, relative to its figure's size: {shares}"
    ]
    certificate = solution.stats["certificate"]
    size = np.max(np.abs(certificate.value.mean))
    missed = float(np.max(np.abs(certificate.missed)) / size) if size else 0.0
    if missed > float(errors[0]):
        lines.append(
            f"the solution's own value today is up to {100 * missed:.2g} % from this estimate"
        )
    if upper is not None:
        pairs = zip(np.ravel(upper.mean), np.ravel(upper.std_error), strict=True)
        bounds = [f"{most:.6g} (standard error {error:.2g})" for most, error in pairs]
        numbers = ", ".join(bounds[:_MOST_ROWS])
        lines.append(f"the value under any exercise rule is at most {numbers}")
    return lines


def draw(solution: Solution, axis: int, t: float | None, axes: Any) -> Any:
    """Return `Solution.plot`.

    Raises:
        ValueError: There is no such coordinate.
    """
    import matplotlib.pyplot as plt  # slow to import

    problem = solution.problem
    _require_one_key(solution)
    if not 0 <= axis < problem.dim:
        raise ValueError(f"axis={axis}: give a coordinate of the state, 0 to {problem.dim - 1}.")
    if axes is None:
        _, axes = plt.subplots(2, 2, figsize=(9, 6), layout="constrained")
    panels = list(np.ravel(axes))
    date = problem.num_steps // 2 if t is None else round(t / float(problem.dt))
    t = float(problem.times[date]) if t is None else t
    line, states = _along(solution, axis, min(max(date, 1), problem.num_steps))
    cuts = {"value": (...,), "delta": (..., axis), "gamma": (..., axis, axis)}
    for panel, (name, cut) in zip(panels, cuts.items(), strict=False):
        panel.set(xlabel=f"x[{axis}]", title=f"{name} at t = {t:.3g}")
        try:
            figures = _on_line(solution, name, t, states)[cut].reshape(len(line), -1)
        except (RuntimeError, TypeError):
            figures = np.full((len(line), 1), np.nan)
        panel.plot(line, figures[:, :_LINES])
        if np.all(np.isnan(figures)):
            panel.text(0.5, 0.5, "not known by this solver", transform=panel.transAxes, ha="center")
    losses = np.asarray(solution.stats["losses"]).reshape(-1)
    panels[3].plot(np.arange(1, losses.size + 1), losses)
    panels[3].set(
        xlabel="iteration", title="loss", yscale="log" if np.any(losses > 0.0) else "linear"
    )
    return panels[0].figure


def _along(solution: Solution, axis: int, date: int) -> tuple[np.ndarray, jax.Array]:
    """Return the range of a coordinate on paths at a date, and states with the others at medians."""
    problem = solution.problem
    reached = np.asarray(sampled_states(problem, _PATHS, key=jax.random.key(0))[date])
    low, high = np.quantile(reached[:, axis], _RANGE)
    line = np.linspace(low, high, _POINTS)
    states = np.tile(np.median(reached, axis=0), (_POINTS, 1))
    states[:, axis] = line
    return line, jnp.asarray(states, problem.x0.dtype)


def _on_line(solution: Solution, name: str, t: float, states: jax.Array) -> np.ndarray:
    """Return a figure at each state; a figure that the solver does not learn raises an error."""
    figure = getattr(solution, name)
    figure(t, states[0])  # within vmap it would be NaN
    return np.asarray(jax.lax.map(lambda x: figure(t, x), states))
