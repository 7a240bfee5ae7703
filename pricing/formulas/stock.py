"""The model of the part of a spot above its cash dividends, and its vols from quotes of the spot itself."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import Number
from ..market import VolSurface
from ..market.surface import vol_between
from ..models import WithDividends
from .black import black
from .implied_vol import implied_std


class StockVols(eqx.Module):
    """The implied vols of X, where the spot is S = X + b and b is the value of cash dividends to come.

    A quote is read as a vol of the raw spot: the call of strike K for T years is worth Black(F, K, vol sqrt(T))
    with F the forward of S. The vol of X at the strike K - b(T) gives the same price with the forward F - b(T).
    Between expiries the total variance of X is linear in time at the strike of X, as in `VolSurface`.

    Attributes:
        surface: The quoted vols of the spot.
        forwards: The forwards of X for its expiries, in currency, of shape (expiries,).
        cash: b at the expiries, in currency, of shape (expiries,).
    """

    surface: VolSurface
    forwards: Float[Array, " expiries"]
    cash: Float[Array, " expiries"]

    @property
    def expiries(self) -> Float[Array, " expiries"]:
        """The expiries of the quotes, in years."""
        return self.surface.expiries

    @property
    def is_flat(self) -> bool:
        """Whether there is one expiry, and so one vol of each strike at all times."""
        return self.surface.is_flat

    def vol(self, t: Float[Array, "..."], strike: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return the vol of X for `t` years at a strike of X: numbers, or arrays that broadcast."""
        t, strike = jnp.broadcast_arrays(jnp.asarray(t), jnp.asarray(strike))
        return vol_between(t, self.expiries, self._at_expiries(strike[..., None]))

    def _at_expiries(self, strike: Float[Array, "... 1"]) -> Float[Array, "... expiries"]:
        """Return the vols of X on the quoted expiries."""
        shape = (*strike.shape[:-1], self.expiries.size)
        strike, *rows = (
            jnp.broadcast_to(x, shape) for x in (strike, self.expiries, self.forwards, self.cash)
        )
        times, forwards, cash = rows
        raw_strike = strike + cash
        quoted = self.surface.vol(times, raw_strike) * jnp.sqrt(times)
        raw_forward = forwards + cash
        far = jnp.log(raw_forward / raw_strike)
        side = jnp.where(far > 0.0, -1.0, 1.0).astype(far.dtype)  # out of the money
        value = black(raw_forward, raw_strike, quoted, side) / jnp.sqrt(forwards * strike)
        k = jnp.log(forwards / strike)
        # where the price is lost to rounding, log-moneyness in deviations stays, its leading order
        known = value > 1e3 * jnp.finfo(value.dtype).tiny
        std = implied_std(
            jnp.where(known, value, 0.1), jnp.where(known, k, 0.0), jnp.where(known, side, 1.0)
        )
        lost = quoted * k / jnp.where(known | (far == 0.0), 1.0, far)
        return jnp.where(cash == 0.0, quoted, jnp.where(known, std, lost)) / jnp.sqrt(times)

    def shifted(self, vol: Number) -> "StockVols":
        """Return the same with every quoted vol up by `vol` (per 1.00)."""
        return StockVols(self.surface.shifted(vol), self.forwards, self.cash)


def stock_model(model: WithDividends) -> Any:
    """Return the model of X, of the kind of the model's base: the spot is X plus the cash dividends to come."""
    found, vol = model.stock, getattr(model.base, "vol", None)
    if not isinstance(vol, VolSurface) or model.dividends.cash is None:
        return found
    expiries = vol.expiries.astype(model.spot.dtype)
    forwards = found.spot * model.growth(expiries)
    return dataclasses.replace(found, vol=StockVols(vol, forwards, model.cash(expiries)))
