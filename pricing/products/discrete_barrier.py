"""The canonical form of contracts that end on the first date with the spot outside a corridor."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import Numeric, above_zero, between, dates, non_negative, positive, real
from .product import Padded, Real, extra_dates, idle, idle_dates


class Payoff(eqx.Module):
    """A sum of terminal claims with one expiry; see `TerminalClaim`.

    Attributes:
        strike: The strikes in units of the spot, above 0, of shape (claims,).
        side: +1 where a claim pays above its strike, -1 below, of shape (claims,).
        asset_units: The units of the asset that each claim pays, of shape (claims,).
        cash_units: The cash that each claim pays, in currency, of shape (claims,).

    Examples:
        >>> Payoff.sum((100.0, 1.0, 1.0, -100.0), (100.0, -1.0, 0.0, 5.0)).side.tolist()
        [1.0, -1.0]
    """

    strike: Numeric[Float[Array, "*batch claims"]] = positive("strike", core=1)
    side: Numeric[Float[Array, "*batch claims"]] = between("side", -1.0, 1.0, core=1)
    asset_units: Numeric[Float[Array, "*batch claims"]] = real("asset_units", core=1)
    cash_units: Numeric[Float[Array, "*batch claims"]] = real("cash_units", core=1)

    @classmethod
    def sum(cls, *claims: tuple[Real, Real, Real, Real]) -> "Payoff":
        """Return the sum of claims (strike, side, asset_units, cash_units), each a number or a batch."""
        columns = zip(*(jnp.broadcast_arrays(*claim) for claim in claims), strict=True)
        return cls(*(jnp.stack(jnp.broadcast_arrays(*column), axis=-1) for column in columns))


class DiscreteBarrier(Padded):
    """A contract that ends, with a payment, on the first date with the spot outside a corridor.

    Every barrier contract with dates can be written in this form (`canonical`). At the last date it pays
    `always` in any case, and `alive` if it has not ended. Both are payoffs of the spot at the last date.

    Attributes:
        dates: The monitoring dates in years, non-decreasing, of shape (dates,); the last is the expiry and is
            not repeated.
        lower: The lower barriers in units of the spot, 0 for none, of shape (dates,).
        upper: The upper barriers in units of the spot, infinity for none, of shape (dates,).
        paid_below: The payment for an exit below at each date, in currency, of shape (dates,).
        paid_above: The payment for an exit above at each date, in currency, of shape (dates,).
        alive: The payoff if the spot never left the corridor.
        always: The payoff in any case.

    Examples:
        >>> from pricing import Barrier
        >>> Barrier(100.0, 1.0, 80.0, dates=[0.5, 1.0]).canonical.lower.tolist()
        [80.0, 80.0]
    """

    dates: Numeric[Float[Array, "*batch dates"]] = dates("dates", repeated=True)
    lower: Numeric[Float[Array, "*batch dates"]] = non_negative("lower", core=1)
    upper: Numeric[Float[Array, "*batch dates"]] = above_zero("upper", core=1)
    paid_below: Numeric[Float[Array, "*batch dates"]] = real("paid_below", core=1)
    paid_above: Numeric[Float[Array, "*batch dates"]] = real("paid_above", core=1)
    alive: Payoff  # pyright: ignore[reportGeneralTypeIssues]
    always: Payoff  # pyright: ignore[reportGeneralTypeIssues]

    @property
    def smile_point(self) -> tuple[Real, Real]:
        return self.dates[..., -1], self.alive.strike[..., 0]

    def padded(self, num_dates: int) -> "DiscreteBarrier":
        """Return the same contract on `num_dates` dates, padded in front with `idle_dates` (no barrier)."""
        extra = extra_dates(self.dates, num_dates)
        nothing = {"lower": 0.0, "upper": jnp.inf, "paid_below": 0.0, "paid_above": 0.0}
        levels = {name: idle(getattr(self, name), extra, x) for name, x in nothing.items()}
        return replace(self, dates=idle_dates(self.dates, extra), **levels)


def discrete_barrier(
    when: Float[Array, "*batch dates"],
    *,
    alive: Payoff,
    always: Payoff,
    **levels: Float[Array, "..."],
) -> DiscreteBarrier:
    """Return the contract with one corridor and one set of payments for all dates."""
    on_dates = lambda level: jnp.broadcast_to(level[..., None], (*level.shape, when.shape[-1]))
    return DiscreteBarrier(when, **jax.tree.map(on_dates, levels), alive=alive, always=always)
