"""A calibration as a differentiable function of the market, by the implicit function theorem."""

from collections.abc import Callable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from pricing.market import Market
from pricing.models import AbstractModel

from .calibrate import advance, start
from .levenberg_marquardt import levenberg_marquardt
from .objectives import AbstractObjective, ImpliedVolError
from .problem import Problem
from .transforms import AbstractTransform, parameters_of

Vector = Float[Array, " parameters"]


def fit(
    model: AbstractModel,
    *,
    optimizer: optax.GradientTransformation | None = None,
    objective: AbstractObjective | None = None,
    transform: Mapping[str, AbstractTransform] | None = None,
    max_steps: int = 200,
    rtol: float = 1e-15,
) -> Callable[[Market], dict[str, AbstractModel]]:
    """Market -> {underlying: model fitted to its surface}; `model` gives the type and the starting parameters.

    The derivative is that of the optimum, not of the optimizer's steps: at a minimum of
    L(x, m) = |r(x, m)|^2 / 2, dx/dm = -(d2L/dx2)^{-1} d2L/dx dm, residuals' curvature included. Other
    arguments as in `calibrate`; the tolerance is tight because the theorem holds at the optimum only.
    """
    parameters = parameters_of(model, transform)
    objective = objective or ImpliedVolError()
    optimizer = optimizer or levenberg_marquardt()

    def fitted(market: Market) -> dict[str, AbstractModel]:
        return {name: fitted_to(market, name) for name in market.equities}

    def fitted_to(market: Market, name: str) -> AbstractModel:
        template = market_model(model, market, name)
        quotes = market.equities[name].surface
        problem = Problem(quotes, template, objective, parameters)
        guess = jax.lax.stop_gradient(parameters.free(model))
        return problem.model(_optimum(problem, optimizer, guess, max_steps, rtol))

    return fitted


def market_model(model: AbstractModel, market: Market, name: str) -> AbstractModel:
    """`model` on the spot, curve and dividend yield of an underlying of the market."""
    equity = market.equities[name]
    return eqx.tree_at(
        lambda m: (m.spot, m.rate, m.dividend_yield),
        model,
        (equity.spot, market.curves[equity.curve], equity.dividend_yield),
    )


@eqx.filter_custom_jvp
def _optimum(problem: Problem, optimizer, guess: Vector, max_steps: int, rtol: float) -> Vector:
    """Where the gradient of the loss vanishes."""
    searches = start(problem, optimizer, guess[None])
    searches = advance(problem, optimizer, searches, jnp.asarray(rtol), jnp.asarray(max_steps))
    return searches.free[0]


@_optimum.def_jvp
def _optimum_jvp(primals, tangents):
    problem, optimizer, guess, max_steps, rtol = primals
    free = _optimum(problem, optimizer, guess, max_steps, rtol)
    return free, _contracted(_sensitivity(problem, free), tangents[0])


@eqx.filter_jit
def _sensitivity(problem: Problem, free: Vector) -> Problem:
    """dx/dm, [parameters, ...] for each number m of the problem: one linear solve.

    The gradient of each slope dL/dx_i, in x and in m, holds a row of both second derivatives.
    """

    def slope(at, direction):
        problem, free = at
        return jax.jvp(problem.loss, (free,), (direction,))[1]

    basis = jnp.eye(free.size, dtype=free.dtype)
    mixed, hessian = jax.vmap(lambda e: eqx.filter_grad(slope)((problem, free), e))(basis)
    inverse = jnp.linalg.inv(hessian)
    return jax.tree.map(lambda leaf: -jnp.tensordot(inverse, leaf, 1), mixed)


@eqx.filter_jit
def _contracted(sensitivity: Problem, problem_dot: Problem) -> Vector:
    """The derivative along a tangent of the problem (None: a number that stands still)."""
    leaves, structure = jax.tree.flatten(sensitivity)
    dots = structure.flatten_up_to(problem_dot)
    pairs = [(leaf, dot) for leaf, dot in zip(leaves, dots, strict=True) if dot is not None]
    return sum(jnp.tensordot(leaf, dot, dot.ndim) for leaf, dot in pairs)
