"""A calibration as a differentiable function of the market, by the implicit function theorem."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from jaxtape import stored_jit
from jaxtape.jax_settings.matmul_precision import full_matmul_precision
from pricing.formulas.stock import market_above_cash
from pricing.market import Market
from pricing.models import AbstractModel, AbstractTransform, Quotes
from pricing.models.with_dividends import with_dividends_of
from pricing.numerics.elimination import eliminate
from pricing.numerics.safe_math import nan_where
from pricing.numerics.singular_vectors import singular_vectors
from pricing.numerics.slopes import along

from .calibration import Calibration, identified, search_settings
from .least_squares_problem import LeastSquaresProblem, least_gain
from .objectives import AbstractObjective, objective_of
from .optimizers import levenberg_marquardt
from .parameters import FreeParameters
from .prior import Prior
from .results import RESULTS
from .unit_forwards import on_market_of, solved_on_unit_forwards
from .weak_prior import weak_prior

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

    A model of equities is fitted to the surface of each equity, a model of rates to the swaption vols; its
    underlying is their curve. Give one of each for a book on both; an objective or transforms apply to a single
    model.

    The optimizer stops where rounding hides differences in the loss; two Newton steps on the gradient then
    reach the gradient's rounding error, so that the fit responds correctly to a small bump of the market. The
    derivative is taken at the optimum, not through the steps: at a minimum of L(x, m) = |r(x, m)|^2 / 2,
    dx/dm = -(d2L/dx2)^{-1} d2L/dx dm, including the residuals' curvature. Parameters that the quotes do not
    identify are held by a weak prior about the start, as in `calibrate`; L then includes its residuals.

    For an equity with discrete dividends, the model is fitted to the vols of the spot less their present value
    (`pricing.WithDividends`), and returned with the dividends.

    Args:
        *models: The types and the starting parameters.
        optimizer: Any optax transformation; the default is Levenberg-Marquardt.
        objective: The residuals; by default, of implied vols with equal weights.
        transform: Field -> bounds of each free parameter; the default is the model's own.
        prior: Underlying -> prior of its parameters.
        max_steps: Maximum number of steps; doubled if a weak prior holds parameters.
        rtol: A search stops once a step would lower the loss by less than this fraction of it.
        throw: Whether a fit that does not end at a minimum raises a RuntimeError with the message of `RESULTS`.
            Otherwise, and within `jax.jit` or `jax.vmap`, its parameters are NaN.

    Returns:
        The function; `jax.vmap` maps it over markets.

    Raises:
        ValueError: If several models share an objective or transform.

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
        raise ValueError(f"one objective or transform for {kinds}: give each model its own fit")
    free = [FreeParameters.of(model, transform) for model in models]
    settings = search_settings(optimizer or levenberg_marquardt(), rtol, max_steps)

    @full_matmul_precision
    def fitted(market: Market) -> dict[str, AbstractModel]:
        above = market_above_cash(market)
        found = {
            name: fitted_to(name, quotes, model.on_market(above, name), model, parameters)
            for model, parameters in zip(models, free, strict=True)
            for name, quotes in model.quotes_in(above).items()
        }
        return {name: with_dividends_of(market, name, model) for name, model in found.items()}

    def fitted_to(
        name: str, quotes: Quotes, template, start, parameters: FreeParameters
    ) -> AbstractModel:
        residuals_of = objective or objective_of(quotes)
        about = jax.lax.stop_gradient(weak_prior(parameters, start))
        believed = (prior or {}).get(name)
        problem = LeastSquaresProblem(
            quotes, template, residuals_of, parameters, believed, weak_prior=about
        )
        return _fitted(problem, about.start, settings, throw=throw)

    return fitted


def fit_again(
    calibration: Calibration, *, max_steps: int = 200, rtol: float = 1e-10
) -> Callable[[Market, str], AbstractModel]:
    """Return (market, underlying) -> the refitted model, starting from the end of a calibration.

    It solves the same problem on another market, priors included: parameters that the quotes do not identify
    stay where the calibration holds them. It is differentiable like `fit`; parameters of a fit that does not
    end at a minimum are NaN.
    """
    solved_problem, model = calibration.solved_problem, calibration.model
    guess = weak_prior(solved_problem.parameters, model).start
    settings = search_settings(levenberg_marquardt(), rtol, max_steps)

    def fitted(market: Market, name: str) -> AbstractModel:
        above = market_above_cash(market, name)
        template, quotes = model.on_market(above, name), model.quotes_in(above)[name]
        problem = dataclasses.replace(solved_problem, template=template, quotes=quotes)
        found = _fitted(solved_on_unit_forwards(problem), guess, settings, throw=False)
        return with_dividends_of(market, name, on_market_of(found, template))

    return full_matmul_precision(fitted)


def _fitted(
    problem: LeastSquaresProblem, guess: Vector, settings: tuple, *, throw: bool
) -> AbstractModel:
    """Return the model at the minimum found by a search from the guess.

    Raises:
        RuntimeError: If the search is known not to end at a minimum, and `throw`.
    """
    free, result = _optimum(problem, jax.lax.stop_gradient(guess), *settings)
    while (finer := _finer(problem, result)) is not None:
        problem = finer
        free, result = _optimum(problem, jax.lax.stop_gradient(free), *settings)
    if throw and not result.is_traced() and not _is_minimum(result):
        raise RuntimeError(RESULTS[result])
    return _model(problem, free, result)


def _is_minimum(result: RESULTS) -> Any:
    return (result == RESULTS.converged) | (result == RESULTS.not_identified)


def _finer(problem: LeastSquaresProblem, result: RESULTS) -> LeastSquaresProblem | None:
    """Return the problem to solve instead if the integral of this one was too coarse."""
    is_coarse = not result.is_traced() and result == RESULTS.inaccurate_integral
    return problem.finer if is_coarse else None


@stored_jit(runs_briefly=True)
def _model(problem: LeastSquaresProblem, free: Vector, result: RESULTS) -> AbstractModel:
    """Return the model at the end of a search, with NaN parameters if it has failed."""
    return problem.model(nan_where(~_is_minimum(result), free))


@eqx.filter_custom_jvp
def _optimum(problem: LeastSquaresProblem, *search) -> tuple[Vector, RESULTS]:
    """Return the point where the gradient of the loss vanishes, or where the search ended, and the result."""
    return _found(problem, *search)[:2]


@_optimum.def_jvp
def _optimum_jvp(primals, tangents):
    free, result, sensitivity = _found(*primals)
    free_dot = along(sensitivity, tangents[0])
    return (free, result), (free_dot, jax.tree.map(lambda _: None, result))


def _found(
    problem: LeastSquaresProblem,
    guess: Vector,
    optimizer,
    rtol: Array,
    max_steps: Array,
    num_trials: int,
) -> tuple[Vector, RESULTS, LeastSquaresProblem]:
    settings = optimizer, rtol, max_steps, num_trials
    problem, calibration = identified(problem, guess[None], *settings)
    return _polished(problem, calibration.model, calibration.result)


_NEWTON_STEPS = 2  # from 1e-6, where losses are equal to rounding, to 1e-12 and to rounding
_MOST_NEWTON_STEPS = 8  # from the end of a search that a weak prior holds


class _Expansion(eqx.Module):
    """A loss to second order, at a point x of the free space and in the numbers m of its problem.

    `newton` is (d2L/dx2)^{-1} dL/dx. `sensitivity` is dx/dm, [parameters, ...] for each m. One linear solve
    gives both.
    """

    newton: Vector
    sensitivity: LeastSquaresProblem
    is_at_minimum: Bool[Array, ""]


@stored_jit(quick_to_compile=True, runs_briefly=True)
def _polished(
    problem: LeastSquaresProblem, model: AbstractModel, result: RESULTS
) -> tuple[Vector, RESULTS, LeastSquaresProblem]:
    """Return the minimum near a search's end, the result of the search, and dx/dm."""

    def step(at):
        count, free, expansion = at
        free = free - expansion.newton
        return count + 1, free, _expanded(problem, free)

    def goes_on(at):
        count, _, expansion = at
        return (count <= _NEWTON_STEPS) | (~expansion.is_at_minimum & (count < _MOST_NEWTON_STEPS))

    start = problem.parameters.free(model)
    shapes = eqx.filter_eval_shape(_expanded, problem, start)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    _, free, expansion = jax.lax.while_loop(goes_on, step, (0, start, nothing))
    at_minimum = RESULTS.where(expansion.is_at_minimum, result, RESULTS.not_a_minimum)
    result = RESULTS.where(_is_minimum(result), at_minimum, result)
    return free, result, expansion.sensitivity


def _expanded(problem: LeastSquaresProblem, free: Vector) -> _Expansion:
    """Expand the loss: the gradient of each slope dL/dx_i in x and m is a row of second derivatives."""

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
