"""Deep splitting: a network for Y only, fitted to its mean one step later, the latest date first."""

from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..path_shares import PathRows
from ..problem import Problem
from ..solver import beyond_networks
from .backward_dp import (
    BackwardParameters,
    NetworkRegression,
    Targets,
    y_alone,
)
from .backward_regression import (
    FIXED_POINT_ITERATIONS,
    AbstractBackwardSolver,
    AbstractDateRegression,
    Columns,
    normal_equations,
    quadratic_features,
)


class SplittingRegression(NetworkRegression):
    """The regression of Y at one date on the even part over pairs of steps; the odd part is noise."""

    def loss(
        self, parameters: BackwardParameters, batch: Targets
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        even, _ = jax.vmap(self.residuals, (None, 0))(parameters, batch)
        return jnp.sum(batch.weight * jnp.mean(even**2, axis=1)), jnp.sum(batch.weight)

    def linear_solver(
        self, like: BackwardParameters, targets: PathRows
    ) -> Callable[[BackwardParameters], BackwardParameters]:
        rows = targets.map(lambda part: (part, self._columns_of_y(part)))
        active = self.active(1, 2 * self.problem.dim)
        fit = normal_equations(rows.sum(lambda part: part[1].gram()), active)

        def improve(_, parameters: BackwardParameters):
            def right(part: tuple[Targets, Columns]) -> Array:
                even, _ = jax.vmap(self.residuals, (None, 0))(parameters, part[0])
                return part[1].with_targets(even)

            return parameters._replace(y=parameters.y + fit(rows.sum(right)))

        return lambda start: jax.lax.fori_loop(0, FIXED_POINT_ITERATIONS, improve, start)

    def _columns_of_y(self, targets: Targets) -> Columns:
        x = jax.vmap(self.standardized)(targets.x)
        return Columns.of(quadratic_features(x), targets.weight)


class DeepSplitting(AbstractBackwardSolver):
    """Deep splitting: u at every date, a network plus a parabola fitted to the mean of the next step.

    With Z = s^T grad Y, Y_n is the least squares fit of

        Y_{n+1} + f_{n+1} dt / 2 + f_n dt / 2,

    without a martingale Z dW: no derivative of u is fitted, and today's derivatives, where all states are x0,
    are taken from the next date. It serves to check solvers that fit Z: if f does not read z, it has no error
    from Z. It treats exercise and stops like `BackwardDP`; `certify` estimates Delta and Gamma.

    Beck, Becker, Cheridito, Jentzen, Neufeld, SIAM J. Sci. Comput. 43 (2021).

    Attributes:
        num_paths: The number of paths stored at every date. The other settings, by keyword, are those of
            `BackwardDP`: `num_iterations`, `batch_size`, `num_pairs`, `learning_rate`, `architecture`.
    """

    date_regression: ClassVar[type[AbstractDateRegression]] = SplittingRegression

    def unsupported_reason(self, problem: Problem) -> str | None:
        if problem.num_steps == 1:
            return (
                "a single step, today's, at which no derivative is fitted: use more, or BackwardDP"
            )
        return beyond_networks(problem)

    def init_parameters(
        self, problem: Problem, num_contracts: int, *, key: PRNGKeyArray
    ) -> BackwardParameters:
        return y_alone(self.architecture, problem, num_contracts, key=key)
