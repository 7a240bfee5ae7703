"""A calibration as a differentiable function of the market, by the implicit function theorem."""

import functools
from collections.abc import Callable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from jaxtape import stored_jit
from jaxtape.full_products import with_full_products
from pricing.market import Market
from pricing.models import AbstractModel, AbstractTransform, Quotes
from pricing.numerics.elimination import eliminate
from pricing.numerics.safe_math import nan_where
from pricing.numerics.singular_vectors import singular_vectors

from .calibration import room_for, solved
from .objectives import AbstractObjective, objective_of
from .optimizers import levenberg_marquardt
from .parameters import Parameters
from .prior import Prior
from .problem import Problem, least_gain
from .results import RESULTS

Vector = Float[Array, " parameters"]


def fit(
    *models: AbstractModel,
    optimizer: optax.GradientTransformation | None = None,
    objective: AbstractObjective | None = None,
    transform: Mapping[str, AbstractTransform] | None = None,
    prior: Mapping[str, Prior] | None = None,
    max_steps: int = 200,
    rtol: float = 1e-10,
    throw: bool = True,
) -> Callable[[Market], dict[str, AbstractModel]]:
    """Return market -> {underlying: model fitted to its quotes}, differentiable through the optimum.

    A model of equities is fitted to the surface of each equity, a model of rates to the swaption vols: its
    underlying is the curve that they belong to. Give one of each for a book on both; an objective or transforms
    are those of one model.

    The optimizer goes as far as comparing losses can see; two Newton steps on the gradient end it, at the
    gradient's rounding, so that a market bumped by little moves the fit by what it should. The derivative is
    that of the optimum, not of the steps: at a minimum of L(x, m) = |r(x, m)|^2 / 2,
    dx/dm = -(d2L/dx2)^{-1} d2L/dx dm, residuals' curvature included.

    Args:
        *models: The types and the starting parameters.
        optimizer: As in `calibrate`.
        objective: As in `calibrate`.
        transform: As in `calibrate`.
        prior: Underlying -> what is believed of its parameters, as in `calibrate`.
        max_steps: As in `calibrate`.
        rtol: As in `calibrate`.
        throw: Whether a fit that ends elsewhere than at a minimum raises a RuntimeError with the message of
            `RESULTS`, where it is known: not within `jax.jit` or `jax.vmap`. Otherwise its parameters are NaN.

    Returns:
        The function; `jax.vmap` maps it over markets.

    Raises:
        ValueError: Several models have one objective or transform.

    Examples:
        >>> from calibration import fit
        >>> from pricing import Heston, HullWhite
        >>> heston = Heston(100.0, 0.03, 0.04, 1.0, 0.04, 0.5, -0.5)
        >>> model_of = fit(heston, HullWhite(0.03, 0.05, 0.01))
        >>> callable(model_of)
        True
    """
    if len(models) > 1 and (objective is not None or transform is not None):
        kinds = ", ".join(type(model).__name__ for model in models)
        raise ValueError(
            f"one objective or transform for {kinds}: give each model a fit of its own"
        )
    free = [Parameters.of(model, transform) for model in models]
    optimizer = optimizer or levenberg_marquardt()
    settings = jnp.asarray(rtol), jnp.asarray(max_steps), room_for(max_steps)

    @with_full_products
    def fitted(market: Market) -> dict[str, AbstractModel]:
        return {
            name: fitted_to(name, quotes, model.on_market(market, name), model, parameters)
            for model, parameters in zip(models, free, strict=True)
            for name, quotes in model.quotes_in(market).items()
        }

    def fitted_to(
        name: str, quotes: Quotes, template, start, parameters: Parameters
    ) -> AbstractModel:
        believed = (prior or {}).get(name)
        problem = Problem(quotes, template, objective or objective_of(quotes), parameters, believed)
        guess = jax.lax.stop_gradient(_free(parameters, start))
        free, result = _optimum(problem, optimizer, guess, *settings)
        while (finer := _finer(problem, result)) is not None:
            problem = finer
            free, result = _optimum(problem, optimizer, jax.lax.stop_gradient(free), *settings)
        if throw and not result.is_traced() and result != RESULTS.converged:
            raise RuntimeError(RESULTS[result])
        return _model(problem, free, result)

    return fitted


def _finer(problem: Problem, result: RESULTS) -> Problem | None:
    """Return the problem to solve in its place, where the integral of this one was too coarse."""
    is_coarse = not result.is_traced() and result == RESULTS.inaccurate_integral
    return problem.finer if is_coarse else None


@stored_jit
def _free(parameters: Parameters, model: AbstractModel) -> Vector:
    return parameters.free(model)


@stored_jit
def _model(problem: Problem, free: Vector, result: RESULTS) -> AbstractModel:
    """Return the model at the end of a search, of NaN if it has failed."""
    return problem.model(nan_where(result != RESULTS.converged, free))


@eqx.filter_custom_jvp
def _optimum(problem: Problem, *search) -> tuple[Vector, RESULTS]:
    """Return where the gradient of the loss vanishes, or where the search for it ended, and why."""
    return _found(problem, *search)[:2]


@_optimum.def_jvp
def _optimum_jvp(primals, tangents):
    free, result, sensitivity = _found(*primals)
    free_dot = _contracted(sensitivity, tangents[0])
    return (free, result), (free_dot, jax.tree.map(lambda _: None, result))


def _found(
    problem: Problem, optimizer, guess: Vector, rtol, max_steps, num_trials: int
) -> tuple[Vector, RESULTS, Problem]:
    calibration = solved(problem, optimizer, guess[None], rtol, max_steps, num_trials)
    return _polished(problem, calibration.model, calibration.result)


_NEWTON_STEPS = 2  # from 1e-6 of the optimum, where losses no longer tell, to 1e-12 and to rounding


class _Expansion(eqx.Module):
    """A loss to second order, at a point x of the free space and in the numbers m of its problem.

    newton: (d2L/dx2)^{-1} dL/dx; sensitivity: dx/dm, [parameters, ...] for each m; both by one linear solve.
    """

    newton: Vector
    sensitivity: Problem
    is_at_minimum: Bool[Array, ""]


@stored_jit
def _polished(
    problem: Problem, model: AbstractModel, result: RESULTS
) -> tuple[Vector, RESULTS, Problem]:
    """Return the minimum near a search's end, what became of the search, and dx/dm."""

    def step(at, _):
        free, newton = at
        expansion = _expanded(problem, free - newton)
        return (free - newton, expansion.newton), expansion

    start = problem.parameters.free(model)
    at = start, jnp.zeros_like(start)
    (free, _), expansions = jax.lax.scan(step, at, length=_NEWTON_STEPS + 1)
    expansion = jax.tree.map(lambda x: x[-1], expansions)
    at_minimum = RESULTS.where(expansion.is_at_minimum, result, RESULTS.not_a_minimum)
    result = RESULTS.where(result == RESULTS.converged, at_minimum, result)
    return free, result, expansion.sensitivity


def _expanded(problem: Problem, free: Vector) -> _Expansion:
    """Expand the loss: the gradient of each slope dL/dx_i, in x and in m, holds a row of second derivatives."""

    def slope(at, direction):
        problem, free = at
        loss, along = jax.jvp(problem.loss, (free,), (direction,))
        return along, loss

    basis = jnp.eye(free.size, dtype=free.dtype)
    row = eqx.filter_value_and_grad(slope, has_aux=True)
    (gradient, losses), (mixed, hessian) = jax.vmap(lambda e: row((problem, free), e))(basis)
    inverse = eliminate(hessian, basis)
    newton = inverse @ gradient
    least = least_gain(losses[0], problem.quoted.size, float(jnp.finfo(free.dtype).eps))
    is_small = 0.5 * gradient @ newton <= least
    vectors = singular_vectors(hessian).vectors
    is_convex = jnp.all(jnp.sum(vectors * (hessian @ vectors), axis=0) > 0.0)
    sensitivity = jax.tree.map(lambda leaf: -jnp.tensordot(inverse, leaf, 1), mixed)
    return _Expansion(newton, sensitivity, is_small & is_convex)


@stored_jit
def _contracted(sensitivity: Problem, problem_dot: Problem) -> Vector:
    """Return the derivative along a tangent of the problem (None: a number that stands still)."""
    leaves, structure = jax.tree.flatten(sensitivity)
    dots = structure.flatten_up_to(problem_dot)
    pairs = [(leaf, dot) for leaf, dot in zip(leaves, dots, strict=True) if dot is not None]
    return functools.reduce(jnp.add, (jnp.tensordot(leaf, dot, dot.ndim) for leaf, dot in pairs))
