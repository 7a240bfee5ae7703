"""Contracts on a spot S = X + b(t) as contracts on X: levels and strikes are reduced by b(t)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import real_vector
from ..market.state import MarketState
from ..numerics.safe_math import larger
from .average import AverageClaim
from .average_forward import AverageForward
from .callable_note import CallableNote
from .discrete_barrier import DiscreteBarrier, Payoff
from .exercise_rights import EarlyExercise, SpotOption
from .fixed_payments import FixedPayments
from .product import AbstractProduct, Real
from .terminal import Claim, TerminalClaim

Times = Float[Array, "..."]
Cash = Callable[[Times], Times]

_LEAST = 1e-6  # relative to a level: X is certain to be above


def above_cash(product: AbstractProduct, cash: Cash) -> AbstractProduct | None:
    """Return a contract on S as one on X, or None if this library has no such contract.

    Args:
        product: The contract on the spot, or a batch.
        cash: The function b of times in years, of any shape.
    """
    # columns of a book are NumPy arrays
    product = jax.tree.map(jnp.asarray, product).canonical.broadcast()
    if isinstance(product, TerminalClaim):
        asset, units = product.units
        then = cash(product.expiry)
        strike = _above(product.strike, then)
        return Claim(strike, product.expiry, product.side, asset, units + asset * then)
    if isinstance(product, DiscreteBarrier):
        return _barrier(product, cash)
    if isinstance(product, AverageClaim) and product.average == "arithmetic":
        then = jnp.sum(product.weights * cash(product.dates), axis=-1)
        strike = _above(product.strike, then)
        # if b alone exceeds the strike, a call is certain to be exercised, and a put is worthless
        added = jnp.where(product.side > 0.0, strike - (product.strike - then), 0.0)
        return replace(product, strike=strike, added=added)
    if isinstance(product, AverageForward):
        owed = product.strike - jnp.sum(product.weights * cash(product.dates), axis=-1)
        return replace(product, strike=owed)
    # a knock-in watched always is left out: on X its level moves between the dates, with b
    if isinstance(product, CallableNote) and not (product.multi_asset or product.all_times):
        return _note(product, cash)
    if isinstance(product, FixedPayments):
        return product
    bermudan = isinstance(product, EarlyExercise) and not product.any_time
    if bermudan and isinstance(product, SpotOption) and not product.multi_asset:
        dates = product.exercise_times()
        then = cash(dates)
        return RightAboveCash(product.strike, product.side, dates, then)
    return None


class RightAboveCash(EarlyExercise):
    """The right to receive side * (X + b(t) - strike) on one of some dates.

    strike: in units of the spot; side: +1 for a call, -1 for a put; dates: years; cash: b on the dates.
    """

    strike: Real
    side: Real
    dates: Float[Array, "*#batch dates"] = real_vector("dates")
    cash: Float[Array, "*#batch dates"] = real_vector("cash")

    @property
    def smile_point(self) -> tuple[Real, Real]:
        return self.dates[..., -1], _above(self.strike, self.cash[..., -1])

    def exercise_times(self, num_dates: int = 1) -> Float[Array, "*batch dates"]:
        del num_dates
        return self.dates

    def exercise_value(self, t: Float[Array, ""], market: MarketState) -> Float[Array, ""]:
        """Return the payoff at one of the dates; NaN at any other time."""
        is_date = self.dates == t
        then = jnp.where(jnp.any(is_date), self.cash[jnp.argmax(is_date)], jnp.nan)
        assert market.spot is not None
        return self.side * (market.spot + then - self.strike)


def _barrier(product: DiscreteBarrier, cash: Cash) -> DiscreteBarrier:
    then = cash(product.dates)
    last = then[..., -1:]

    def payoff(of: Payoff) -> Payoff:
        units = of.cash_units + of.asset_units * last
        return Payoff(_above(of.strike, last), of.side, of.asset_units, units)

    lower = larger(product.lower - then, 0.0)
    upper = _above(product.upper, then)
    alive, always = payoff(product.alive), payoff(product.always)
    return replace(product, lower=lower, upper=upper, alive=alive, always=always)


def _note(note: CallableNote, cash: Cash) -> CallableNote:
    """Return a note on one asset, whose levels are in units of the scaled spot."""
    then = note.scales * cash(note.dates)
    last = then[..., -1]
    return replace(
        note,
        call_levels=_above(note.call_levels, then),
        coupon_levels=_above(note.coupon_levels, then),
        knock_in=larger(note.knock_in - then, 0.0),
        protection=_above(note.protection, last),
        added=note.added + last,
    )


def _above(level: Any, cash: Any) -> Any:
    """Return level - cash, or a tiny positive level, which X is certain to exceed, if that is not above 0."""
    reduced = larger(level - cash, _LEAST * level)
    return jnp.where(jnp.isinf(level), level, reduced)
