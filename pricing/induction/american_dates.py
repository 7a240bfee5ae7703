"""American options as the extrapolated limit of Bermudan options on more and more dates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxtape import AbstractSchedule

from ..models import LognormalSpots
from ..products import SpotOption
from .exercise import cash_flows, induction, nothing_later

Scalar = Float[Array, ""]

CROWDING = 3  # dates at expiry * (k / n)^3: steps are short near today
COARSEST = 4  # ratio of the longest to the shortest of the three lists of dates
_ORDERS = (1.0, 1.5)  # orders in 1 / n of the two leading error terms


def american_dates(expiry: Scalar, num_dates: int) -> Float[Array, " dates"]:
    """Return exercise dates in years, dense towards today."""
    shares = jnp.arange(1, num_dates + 1, dtype=expiry.dtype) / num_dates
    return expiry * shares**CROWDING


def american_by_dates(
    product: SpotOption,
    model: LognormalSpots,
    dates: Float[Array, " dates"],
    num_nodes: int,
    schedule: AbstractSchedule,
) -> Scalar:
    """Return the value in currency, max(exercised now, held), held = V_n + a / n + b / n^{3/2} + ...

    V_n is the value of the right to exercise on n dates, with n all, a half and a quarter of `dates`. Each list
    is part of the one before, so one program with some dates disabled serves all. The error of V_n is of order
    1 / n, then n^{-3/2} (Howison and Steinberg, Appl. Math. Finance 14, 2007; a matched expansion).

    dates: the dates of `american_dates`, a multiple of 4 of them; num_nodes: the nodes of each (`Quadrature`).
    """
    flows = cash_flows(product, model, dates)
    lists = np.array([1, 2, COARSEST])

    def held(is_open):
        never = jnp.broadcast_to(-product.strike, flows.exercise_value.shape)
        value = jnp.where(is_open[:, None], flows.exercise_value, never)
        part = eqx.tree_at(lambda flows: flows.exercise_value, flows, value)
        tape = induction(model, part, num_nodes, schedule)
        return tape(nothing_later(model, num_nodes)).value_today()

    latest_first = np.arange(dates.size, 0, -1)
    values = jax.vmap(held)(jnp.asarray(latest_first[None, :] % lists[:, None] == 0))
    now = product.side * (model.spot - product.strike)
    later = jnp.asarray(_extrapolation(lists), values.dtype) @ values
    return jnp.where(later < now, now, later)


def _extrapolation(lists: np.ndarray) -> np.ndarray:
    """Return weights of the values on n / lists dates that sum to 1 and cancel the leading error terms."""
    terms = lists[None, :] ** np.array([0.0, *_ORDERS])[:, None]
    return np.linalg.solve(terms, np.eye(lists.size)[0])
