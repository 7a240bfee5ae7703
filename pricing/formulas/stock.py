"""The model of the spot less its future cash dividends, with vols converted from quotes of the spot."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxtape
from jaxtape import stored_jit

from ..fields import Number
from ..market import Equity, Market, SmileQuotes, VolSurface, ZeroCurve
from ..market.equity import DerivedEquity
from ..market.surface import vol_between
from ..models import BlackScholes, WithDividends
from ..models.with_dividends import stock_yield
from ..numerics.black import black
from ..numerics.implied_vol import implied_std
from ..numerics.slopes import contracted, with_slopes

_MOST = 1.0 - 1e-6  # fraction of the largest possible price of an option on X


class StockVols(eqx.Module):
    """The implied vols of X, where the spot is S = X + b and b is the value of future cash dividends.

    A quote is a vol of the raw spot: the call with strike K and expiry T is worth Black(F, K, vol sqrt(T)),
    with F the forward of S. The vol of X at the strike K - b(T) gives the same price with the forward F - b(T).
    Between expiries the total variance of X is linear in time at the strike of X, as in `VolSurface`.

    Attributes:
        surface: The quoted vols of the spot.
        forwards: The forwards of X at the expiries, in currency, of shape (expiries,).
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
        """Whether there is a single expiry, and therefore constant vols in time."""
        return self.surface.is_flat

    def vol(self, t: Float[Array, "..."], strike: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return the vol of X at `t` years and a strike of X: numbers, or arrays that broadcast."""
        t, strike = jnp.broadcast_arrays(jnp.asarray(t), jnp.asarray(strike))
        return vol_between(t, self.expiries, self._at_expiries(strike[..., None]))

    def _at_expiries(self, strike: Float[Array, "... 1"]) -> Float[Array, "... expiries"]:
        """Return the vols of X at the quoted expiries."""
        shape = (*strike.shape[:-1], self.expiries.size)
        strike, *rows = (
            jnp.broadcast_to(x, shape) for x in (strike, self.expiries, self.forwards, self.cash)
        )
        times, forwards, cash = rows
        quoted = self.surface.vol(times, strike + cash)
        return vols_above(quoted, times, forwards, strike, cash)

    def shifted(self, vol: Number) -> "StockVols":
        """Return the same with every quoted vol shifted by `vol` (per 1.00)."""
        return StockVols(self.surface.shifted(vol), self.forwards, self.cash)


def stock_model(model: WithDividends) -> Any:
    """Return the model of X, of the type of the model's base; the spot is X plus future cash dividends."""
    found, vol = model.stock, getattr(model.base, "vol", None)
    if not isinstance(vol, VolSurface) or model.dividends.cash is None:
        return found
    expiries = vol.expiries.astype(model.spot.dtype)
    forwards = found.spot * model.growth(expiries)
    return dataclasses.replace(found, vol=StockVols(vol, forwards, model.cash(expiries)))


@jaxtape.no_inline
def vols_above(vols: Array, times: Array, forwards: Array, strikes: Array, cash: Array) -> Array:
    """Return the vols of X at which options on X have the prices of options on S = X + cash.

    A negative `cash` converts in the other direction, from vols of X to those of S.

    Args:
        vols: The vols of S at the strikes of S, which are `strikes` + `cash`.
        times: The expiries in years.
        forwards: The forwards of X.
        strikes: The strikes of X.
        cash: The cash b at the expiries; all five arguments have one shape.
    """
    raw_forward, raw_strike, quoted = forwards + cash, strikes + cash, vols * jnp.sqrt(times)
    far = jnp.log(raw_forward / raw_strike)
    side = jnp.where(far > 0.0, -1.0, 1.0).astype(far.dtype)  # out of the money
    value = black(raw_forward, raw_strike, quoted, side) / jnp.sqrt(forwards * strikes)
    k = jnp.log(forwards / strikes)
    # where the price underflows, keep log-moneyness in standard deviations, the leading order
    known = value > 1e3 * jnp.finfo(value.dtype).tiny
    std = implied_std(
        jnp.where(known, value, 0.1), jnp.where(known, k, 0.0), jnp.where(known, side, 1.0)
    )
    lost = quoted * k / jnp.where(known | (far == 0.0), 1.0, far)
    return jnp.where(cash == 0.0, quoted, jnp.where(known, std, lost)) / jnp.sqrt(times)


def market_above_cash(market: Market, name: str | None = None) -> Market:
    """Return the market of X for equities with dividends on known dates: S = X + b, as in `WithDividends`.

    Spot, yield and vols are those of X, so that a model fitted to them has the parameters of X, and
    `with_dividends_of` turns it into a model of S. The vols are `SmileQuotes` at the strikes K - b(T). The
    weight of a quote is the derivative of its vol of S to that of X, so that to first order residuals are those
    of vols of S. If X cannot reproduce the price of an out-of-the-money option, its quote is missing: the
    strike is at or below b(T), or only slightly above.

    Args:
        market: The market of the raw spots.
        name: The only underlying needed; None for all.
    """
    of_name = market.equities if name is None else {name: market.equities.get(name)}
    payers = {n: e for n, e in of_name.items() if e is not None and e.dividends is not None}
    if not payers:
        return market
    above = {name: _stock(market, name, equity) for name, equity in payers.items()}
    return eqx.tree_at(lambda m: m.equities, market, {**market.equities, **above})


def _stock(market: Market, name: str, equity: Equity) -> DerivedEquity:
    """Return the market data of X."""
    curve = market.curve(equity.curve)
    spot, quotes = _spot_and_quotes(equity, curve)
    assert equity.dividends is not None
    yields = stock_yield(_base(equity, curve), equity.dividends)
    return DerivedEquity(spot, yields, quotes, equity.curve, equity.currency)


def _base(equity: Equity, curve: ZeroCurve) -> BlackScholes:
    """Return a model of the spot without dividends on known dates; its vol has no meaning."""
    return BlackScholes(equity.spot, curve, 1.0, equity.dividend_yield)


@eqx.filter_custom_jvp
def _spot_and_quotes(equity: Equity, curve: ZeroCurve) -> tuple[Array, SmileQuotes]:
    """Return X_0 and the quotes of X."""
    return _found_above(equity, curve)[0]


@_spot_and_quotes.def_jvp
def _spot_and_quotes_jvp(primals, tangents):
    found, slopes = _found_above(*primals)
    return found, contracted(slopes, tangents, found)


@stored_jit(runs_briefly=True)
def _found_above(equity: Equity, curve: ZeroCurve) -> tuple[Any, Any]:
    """Return X_0 and the quotes of X, with their derivatives to all numbers of the market."""

    def found(equity: Equity, curve: ZeroCurve) -> tuple[Array, SmileQuotes]:
        model = WithDividends(_base(equity, curve), equity.dividends)
        surface: Any = equity.surface
        start, expiries = model.stock.spot, surface.expiries.astype(model.spot.dtype)
        forwards, cash = start * model.growth(expiries), model.cash(expiries)
        return start, _quotes_above(surface, forwards[:, None], cash[:, None])

    return with_slopes(found, equity, curve)


def _quotes_above(surface: VolSurface, forwards: Array, cash: Array) -> SmileQuotes:
    """Return the quotes of X; forwards (of X) and cash have shape (expiries, 1)."""
    quoted, root = surface.vols, jnp.sqrt(surface.expiries)[:, None]
    raw_strikes, raw_forwards = jnp.broadcast_to(surface.strikes, quoted.shape), forwards + cash
    above = raw_strikes - cash
    side = jnp.where(raw_strikes < raw_forwards, -1.0, 1.0).astype(quoted.dtype)
    known = jnp.where(jnp.isnan(quoted), 0.2, quoted)
    prices = black(raw_forwards, raw_strikes, known * root, side)
    is_there = ~jnp.isnan(quoted) & (prices < _MOST * jnp.minimum(above, forwards))
    strikes, vols = jnp.where(is_there, above, forwards), jnp.where(is_there, known, 0.2)
    times, forwards, cash = (
        jnp.broadcast_to(x, vols.shape) for x in (surface.expiries[:, None], forwards, cash)
    )
    found = vols_above(vols, times, forwards, strikes, cash)
    k, raw = jnp.log(forwards / strikes), jnp.log((forwards + cash) / (strikes + cash))
    d, raw_d = (x / s + 0.5 * s for x, s in ((k, found * root), (raw, vols * root)))
    slopes = jnp.exp(0.5 * (raw_d**2 - d**2)) * forwards / (forwards + cash)  # of vols of S
    slopes = slopes if surface.weights is None else slopes * surface.weights

    def of_side(quoted: Array | None) -> Array | None:
        if quoted is None:
            return None
        is_known = is_there & ~jnp.isnan(quoted)
        of_stock = vols_above(jnp.where(is_known, quoted, 0.2), times, forwards, strikes, cash)
        return jnp.where(is_known, of_stock, jnp.nan)

    return SmileQuotes(
        *(surface.expiries, k),
        jnp.where(is_there, found, jnp.nan),
        jnp.where(is_there, slopes, 0.0),
        *(of_side(surface.bids), of_side(surface.asks)),
    )
