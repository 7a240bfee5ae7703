"""The report's data of a calibration: parameters, residuals, and the model's vols beside the market's."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtape import stored_jit
from pricing.formulas.stock import stock_model, vols_above
from pricing.market import Market, SmileQuotes, VolSurface
from pricing.market.vol_unit import VOL_POINTS, VolUnit, vol_unit
from pricing.models import Quotes, WithDividends
from pricing.models.with_dividends import with_dividends_of
from pricing.reporting import SurfaceFit

from .calibration import Calibration
from .objectives import model_vols
from .parameters import FreeParameters

_CURVE_POINTS = 61
_READS = (
    "Nothing to calibrate: Black-Scholes values each trade at the surface's vols for its strike. "
    "Options and "
    "notes on one date use the distribution of the spot implied by the vols of all "
    "strikes. A trade on several "
    "dates uses another one, from the vols of one strike; a basket "
    "uses the vols at the forwards."
)


def squares_of(calibration: Calibration, quotes: Quotes) -> tuple[VolUnit, float]:
    """Return the unit of the residuals, and the sum of their squares in it."""
    unit, squares = vol_unit(quotes), float(calibration.stats["sum_squared_vol_points"])
    return unit, squares * (unit.per_one / VOL_POINTS.per_one) ** 2


def parameter_table(calibration: Calibration) -> dict[str, tuple[float, float]]:
    """Return parameter -> (value, standard error)."""
    parameters = FreeParameters.of(calibration.model)
    values = np.asarray(parameters.numbers(calibration.model))
    errors = np.sqrt(np.diag(np.asarray(calibration.stats["covariance"])))
    pairs = zip(values.tolist(), errors.tolist(), strict=True)
    return dict(zip(parameters.labels, pairs, strict=True))


def surface_fit(market: Market, name: str, calibration: Calibration | None) -> SurfaceFit:
    """Return the report's data of one underlying: from a calibration, or from Black-Scholes if it is None."""
    if calibration is not None and name not in market.equities:
        return _swaption_fit(market, name, calibration)
    equity = market.equities[name]
    surface: Any = equity.surface
    strikes = jnp.linspace(surface.all_strikes[0], surface.all_strikes[-1], _CURVE_POINTS)
    if calibration is None:
        curve = surface.vol(surface.expiries[:, None], strikes[None, :])
        residuals = jnp.zeros_like(surface.vols)
        outcome: dict[str, Any] = {"model": "Black-Scholes", "result": _READS}
    else:
        no_vols = jnp.full((surface.expiries.size, strikes.size), jnp.nan)
        grid = VolSurface(surface.expiries, strikes, no_vols)
        curve = _curve(with_dividends_of(market, name, calibration.model), grid)
        residuals, outcome = calibration.residuals, _outcome(calibration, surface)
    return SurfaceFit(
        underlying=name,
        spot=float(equity.spot),
        expiries=market.dates(surface.expiries),
        strikes=surface.all_strikes,
        market_vols=surface.by_strike(surface.vols),
        residuals=surface.by_strike(residuals),
        curve_strikes=np.asarray(strikes),
        curve_vols=np.asarray(curve),
        **outcome,
    )


def _swaption_fit(market: Market, name: str, calibration: Calibration) -> SurfaceFit:
    quotes: Any = market.swaption_vols
    market_vols, residuals = np.asarray(quotes.vols), np.asarray(calibration.residuals)
    return SurfaceFit(
        underlying=name,
        spot=None,
        expiries=tuple(f"{expiry:g}Y" for expiry in quotes.expiries.tolist()),
        strikes=np.asarray(quotes.tenors),
        market_vols=market_vols,
        residuals=residuals,
        curve_strikes=np.asarray(quotes.tenors),
        curve_vols=market_vols + residuals,
        across="tenor, in years",
        unit=vol_unit(quotes),
        **_outcome(calibration, quotes),
    )


@stored_jit(runs_briefly=True)
def _curve(model: Any, grid: VolSurface) -> jax.Array:
    """Return the vols of the spot; NaN for a strike below the value of the dividends."""
    if not isinstance(model, WithDividends):
        return model_vols(model, grid, 64)
    cash = model.cash(grid.expiries)[:, None]
    forwards = jax.vmap(model.forward)(grid.expiries)[:, None]
    is_there = grid.strikes[None, :] > cash
    strikes = jnp.where(is_there, grid.strikes[None, :], forwards)
    times, cash, forwards = (
        jnp.broadcast_to(x, strikes.shape) for x in (grid.expiries[:, None], cash, forwards)
    )
    k = jnp.log((forwards - cash) / (strikes - cash))
    quotes = SmileQuotes(grid.expiries, k, grid.vols, jnp.ones_like(k))
    of_stock = model_vols(stock_model(model), quotes, 64)
    return jnp.where(is_there, vols_above(of_stock, times, forwards, strikes, -cash), jnp.nan)


def within_of(calibration: Calibration) -> str:
    """Describe the number of quotes within bid and ask; return "" if there are no bids and asks."""
    stats = calibration.stats
    inside, all_two_sided = (int(stats.get(f"num_{x}bid_ask", 0)) for x in ("within_", ""))
    return f"{inside:,} of {all_two_sided:,} quotes within bid and ask" if all_two_sided else ""


def _within(calibration: Calibration) -> dict[str, str]:
    words = within_of(calibration)
    return {"model vols": words} if words else {}


def _outcome(calibration: Calibration, quotes: Quotes) -> dict[str, Any]:
    (unit, squares), count = squares_of(calibration, quotes), int(calibration.stats["num_quotes"])
    facts = {
        "sum of squared residuals": f"{squares:,.4f} {unit.words}²",
        "root mean square": f"{(squares / count) ** 0.5:.3f} {unit.words} over {count} quotes",
        **_within(calibration),
        "condition number": f"{float(calibration.stats['condition_number']):,.1f}",
        "steps": str(int(calibration.stats["steps"])),
    }
    model, result = calibration.label, calibration.message
    parameters = parameter_table(calibration)
    return {"model": model, "result": result, "parameters": parameters, "facts": facts}
