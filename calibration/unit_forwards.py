"""Quotes and models on a market with forwards 1: the fits of all equities share their programs.

A model's law of log(S / F) does not depend on the forward F, nor do vols in log-moneyness.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from jaxtape import stored_jit
from pricing.market import SmileQuotes, VolSurface
from pricing.models import AbstractModel, CharacteristicFunction

from .least_squares_problem import LeastSquaresProblem
from .objectives import AbstractObjective


def is_of_forwards(objective: AbstractObjective, model: Any) -> bool:
    """Return True if residuals of a model depend on its market only through the log-moneyness of quotes."""
    return objective.is_of_moneyness and isinstance(model, CharacteristicFunction)


def on_unit_forwards(quotes: Any, model: Any) -> tuple[SmileQuotes, AbstractModel]:
    """Return quotes as smiles, and the model on a market with forwards 1."""
    smiles = _smiles(quotes, model) if isinstance(quotes, VolSurface) else quotes
    one, zero = jnp.ones((), model.spot.dtype), jnp.zeros((), model.spot.dtype)
    return smiles, eqx.tree_at(_market_of, model, (one, zero, zero))


def solved_on_unit_forwards(problem: LeastSquaresProblem) -> LeastSquaresProblem:
    """Return the same problem on forwards 1; the problem itself if its residuals are of another kind."""
    if not is_of_forwards(problem.objective, problem.template):
        return problem
    quotes, template = on_unit_forwards(problem.quotes, problem.template)
    return dataclasses.replace(problem, quotes=quotes, template=template)


def on_market_of(model: Any, template: Any) -> Any:
    """Return the model with the spot, rate and dividend yield of another; rate models as they are."""
    if not isinstance(model, CharacteristicFunction):
        return model
    return eqx.tree_at(_market_of, model, _market_of(template))


def _market_of(model: Any) -> tuple[Any, Any, Any]:
    return model.spot, model.rate, model.dividend_yield


@stored_jit(runs_briefly=True)
def _smiles(surface: VolSurface, model: Any) -> SmileQuotes:
    """Return the quotes of a surface in log-moneyness, with weights."""
    forwards = jax.vmap(model.forward)(surface.expiries)
    strikes = jnp.broadcast_to(surface.strikes, surface.vols.shape)
    log_moneyness = jnp.log(forwards[:, None] / strikes)
    weights = jnp.ones_like(surface.vols) if surface.weights is None else surface.weights
    sides = surface.bids, surface.asks
    return SmileQuotes(surface.expiries, log_moneyness, surface.vols, weights, *sides)
