"""Derivatives of a value of the fitted model with respect to the quotes and the market, through the fit."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from jaxtape.jax_settings.matmul_precision import full_matmul_precision
from pricing.market import Market

from .calibration import Calibration
from .least_squares_problem import LeastSquaresProblem, pseudo_inverse

Vector = Float[Array, " parameters"]
_HESSIANS = "exact", "gauss-newton"
ValueOf = Callable[[Any], Float[Array, ""]]


@full_matmul_precision
def quote_sensitivities(
    calibration: Calibration,
    value_fn: ValueOf,
    *,
    hessian: str = "exact",
) -> Float[Array, "..."]:
    """Return the derivative of a value of the fitted model with respect to every quoted vol, through the fit.

    At a minimum of L(x, m) = |r(x, m)|^2 / 2 in the parameters x, with quotes m, the implicit function theorem
    gives dV/dm = -lambda d2L/dx dm, lambda = H^{-1} dV/dx. H is d2L/dx2 ("exact"), or J'J ("gauss-newton"),
    which leaves out the curvature of the residuals: it needs no second derivatives, and its error grows with
    the residuals.

    The derivatives are those at the point where the search ended, accurate to 1e-5 of the largest. With
    `rtol=1e-14`, a search ends closer to the minimum, and small derivatives have five digits, too.

    Args:
        calibration: A result of `calibrate`.
        value_fn: Model -> a number, such as the price of a contract, differentiable in the model's parameters.
        hessian: Second derivative of the loss: "exact" or "gauss-newton".

    Returns:
        The derivatives per 1.00 of vol, in the shape of the quotes.

    Raises:
        ValueError: If `hessian` is neither of the two, or the calibration does not hold its problem.

    Examples:
        >>> from calibration import calibrate, quote_sensitivities
        >>> from pricing import HullWhite, Market
        >>> market = Market.from_text('''{"asof": "2002-02-15", "curves": {"EUR": {"zero_rate": 0.04}},
        ...     "swaption_vols": {"curve": "EUR", "expiries_years": [1, 2], "tenors_years": [1, 2],
        ...     "vols_by_expiry": [[0.15, 0.13], [0.13, 0.12]]}}''')
        >>> found = calibrate(market.swaption_vols, HullWhite.starting_on(market, "EUR"))
        >>> reversion = lambda model: model.mean_reversion
        >>> quote_sensitivities(found, reversion).shape
        (2, 2)
    """
    problem = calibration.solved_problem
    if hessian not in _HESSIANS:
        raise ValueError(f"hessian must be 'exact' or 'gauss-newton', got {hessian!r}")
    return _adjoint(problem, calibration.model, value_fn, _quoted_alone, hessian).quoted


@full_matmul_precision
def market_sensitivities(
    calibration: Calibration,
    value_fn: ValueOf,
    market: Market,
    underlying: str | None = None,
    *,
    hessian: str = "exact",
) -> Market:
    """Return the derivative of a value of the fitted model with respect to all market numbers, through the fit.

    A curve affects the value twice: the model uses it, and the model is fitted on it. The theorem behind
    `quote_sensitivities` holds for every number m of the problem: dV/dm is the partial derivative of V at fixed
    parameters, less the slope of dL/dm along lambda. Both are pulled back from the quotes and the model to the
    market; for a curve that is bootstrapped (`CurveQuotes`), to its deposits, futures and swaps.

    Args:
        calibration: The result of `calibrate` for these quotes, on this market.
        value_fn: Model -> a number, such as the price of a contract, differentiable in the model's parameters.
        market: Source of the quotes and of the model's spot, dividends and curve.
        underlying: The name of the equity or the curve; None if the market has quotes of only one.
        hessian: Second derivative of the loss: "exact" or "gauss-newton".

    Returns:
        The derivatives per 1.00 of each number, as a tree like the market: `market.by_quote(...)` gives them by
        quote id.

    Raises:
        ValueError: If the calibration is for other quotes or another market, it does not hold its problem, or
            `hessian` is neither of the two.

    Examples:
        >>> from calibration import calibrate, market_sensitivities
        >>> from pricing import HullWhite, Market
        >>> market = Market.from_text('''{"asof": "2002-02-15", "curves": {"EUR": {"zero_rate": 0.04}},
        ...     "swaption_vols": {"curve": "EUR", "expiries_years": [1, 2], "tenors_years": [1, 2],
        ...     "vols_by_expiry": [[0.15, 0.13], [0.13, 0.12]]}}''')
        >>> found = calibrate(market.swaption_vols, HullWhite.starting_on(market, "EUR"))
        >>> zero_coupon = lambda model: model.discount(5.0)
        >>> slopes = market.by_quote(market_sensitivities(found, zero_coupon, market))
        >>> f"{slopes['ZERO/RATE/EUR/2002-02-15']:.2f}"
        '-4.09'
    """
    problem = calibration.solved_problem
    if hessian not in _HESSIANS:
        raise ValueError(f"hessian must be 'exact' or 'gauss-newton', got {hessian!r}")
    known = problem.template.quotes_in(market)
    names = list(known) if underlying is None else [underlying]
    if len(names) != 1 or names[0] not in known:
        kind, listed = type(problem.template).__name__, ", ".join(known) or "nothing"
        raise ValueError(
            f"the market has quotes for {kind} of {listed}, and underlying is {underlying!r}: name one of them"
        )

    def problem_on(market: Market) -> LeastSquaresProblem:
        template = problem.template.on_market(market, names[0])
        quotes = problem.template.quotes_in(market)[names[0]]
        return dataclasses.replace(problem, quotes=quotes, template=template)

    here, pull = eqx.filter_vjp(lambda market: _numbers(problem_on(market)), market)
    here = eqx.combine(here, problem_on(market))
    if not _is_same(problem, here, calibration.model):
        raise ValueError(
            f"the calibration is not that of {names[0]} in this market, where its residuals "
            f"differ; give "
            "the market from which the quotes and the model were taken"
        )
    (slopes,) = pull(_adjoint(here, calibration.model, value_fn, _all_numbers, hessian))
    return slopes


def _quoted_alone(problem: LeastSquaresProblem) -> PyTree:
    nothing = jax.tree.map(lambda _: False, problem)
    return eqx.tree_at(lambda p: p.quoted, nothing, True)


def _all_numbers(problem: LeastSquaresProblem) -> PyTree:
    return jax.tree.map(eqx.is_inexact_array, problem)


def _numbers(problem: LeastSquaresProblem) -> PyTree:
    return eqx.filter(problem, eqx.is_inexact_array)


@eqx.filter_jit
def _residual(problem: LeastSquaresProblem, model: Any) -> Array:
    return problem.residual(problem.parameters.free(model))


def _is_same(problem: LeastSquaresProblem, other: LeastSquaresProblem, model: Any) -> bool:
    """Return True if the model has the same residuals in both problems, or if they are traced."""
    if problem.quoted.shape != other.quoted.shape:
        return False
    one, two = _residual(problem, model), _residual(other, model)
    if isinstance(one, Tracer) or isinstance(two, Tracer):
        return True
    return bool(np.allclose(one, two, rtol=0.0, atol=jnp.finfo(one.dtype).eps ** 0.5))


@eqx.filter_jit
def _adjoint(
    problem: LeastSquaresProblem, model: Any, value_fn: Callable, which: Callable, hessian: str
):
    """Return dV/dm for the numbers m of the problem that `which` picks, and None for the others.

    One sweep, forward over reverse, gives the Hessian and the mixed second derivatives of the loss.
    """
    free = problem.parameters.free(model)
    numbers, rest = eqx.partition(problem, which(problem))
    problem_of = lambda numbers: eqx.combine(numbers, rest)
    value = lambda x, numbers: value_fn(problem_of(numbers).model(x))
    slope, direct = jax.grad(value, (0, 1))(free, numbers)
    if hessian == "exact":
        slopes = jax.grad(lambda x, numbers: problem_of(numbers).loss(x), (0, 1))
        curvature, mixed = jax.jacfwd(lambda x: slopes(x, numbers))(free)
        direction = jnp.linalg.solve(curvature, slope)
        indirect = jax.tree.map(lambda leaf: leaf @ direction, mixed)
    else:
        _, jacobian = problem.linearized(free)
        direction = pseudo_inverse(jacobian) @ slope
        along = lambda numbers: jax.jvp(problem_of(numbers).loss, (free,), (direction,))[1]
        indirect = jax.grad(along)(numbers)
    return jax.tree.map(jnp.subtract, direct, indirect)
