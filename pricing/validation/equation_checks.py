"""Published backward equations solved on a grid, named as in the catalogue of `pricing.fbsde`."""

from collections.abc import Sequence

import numpy as np

from jaxtape.cli.check import Check, Group, Source

_PROMISED = {"value": 1e-3, "delta": 1e-3, "gamma": 5e-3}  # tolerances relative to the figure
_SOURCE = Source(
    "Backward equations on a grid",
    "Merton's put: the series of Merton (1976). Down-and-out calls on fifty dates: a fine quadrature. The call "
    "spread under uncertain volatility (Avellaneda, Levy, Paras 1995): another grid",
    is_published=False,
    because="GridQuadrature is held to a thousandth of value and Delta, and to half a percent of Gamma.",
    left_out="Gamma under uncertain volatility, which the grid finds 1 % off; solvers that draw random "
    "numbers, for which `jaxtape solve` has means and spreads.",
)
_KNOWN = {
    "down-and-out-90": ("value", "delta", "gamma"),
    "down-and-out-95": ("value", "delta", "gamma"),
    "merton-put": ("value", "delta", "gamma"),
    "uncertain-volatility": ("value", "delta"),
}


def _checks() -> list[Check]:
    from ..fbsde import CATALOGUE

    found = []
    for problem, figures in _KNOWN.items():
        for figure in figures:
            known = float(getattr(CATALOGUE[problem], figure))
            allowed = _PROMISED[figure] * abs(known)
            cells = {"problem": problem}
            found.append(Check(problem, figure, known, allowed, _SOURCE, cells))
    return found


def _solved(checks: Sequence[Check]) -> list[Check]:
    """Return checks with the figures of solutions; each problem is solved once."""
    import jax

    from ..fbsde import CATALOGUE, solve

    solutions = {}
    for known in checks:
        entry = CATALOGUE[known.cells["problem"]]
        if known.name not in solutions:
            solutions[known.name] = solve(entry.problem(), entry.solver, key=jax.random.key(0))
    found = []
    for known in checks:
        solution = solutions[known.name]
        figure = getattr(solution, known.figure)(0.0, solution.problem.x0)
        method = type(CATALOGUE[known.name].solver).__name__
        found.append(known.found(float(np.squeeze(figure)), method))
    return found


equations = Group("Backward equations", _checks, _solved)
