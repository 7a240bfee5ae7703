"""Presentation of a calibration: a line, a table, JSON, and a comparison with the market's vols."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtape import stored_jit
from pricing.market import Market, VolSurface
from pricing.market.vol_unit import VOL_POINTS, VolUnit, vol_unit
from pricing.models import Calibratable, Quotes
from pricing.reporting import SurfaceFit
from pricing.reporting.tables import FitSection

from ..calibration import Calibration
from ..objectives import model_vols
from ..parameters import Parameters
from ..results import REASONS, RESULTS

_CURVE_POINTS = 61
_READS = (
    "Nothing to calibrate: Black-Scholes values each trade at the surface's vols of its strike. Options and "
    "notes of one date have the law of the spot that the vols of all strikes imply. What reads the spot on "
    "several dates has another one, of the vols of one strike; a basket has that of the vols at the forwards."
)


def label_of(calibration: Calibration) -> str:
    """Return the name that a reader knows the model by."""
    model = calibration.model
    return model.label if isinstance(model, Calibratable) else type(model).__name__


def has_failed(calibration: Calibration) -> bool:
    """Return True if the parameters are not those of an optimum; one that a weak prior holds is an optimum."""
    return bool(calibration.result != RESULTS.converged) and not is_held(calibration)


def is_held(calibration: Calibration) -> bool:
    """Return True if a weak prior holds parameters that the quotes do not identify."""
    return bool(calibration.result == RESULTS.not_identified)


def message_of(calibration: Calibration) -> str:
    """Return the result of the calibration in words: the held parameters, or the reason of a failure."""
    if is_held(calibration):
        names = ", ".join(not_identified_of(calibration)) or "all parameters together"
        return f"{RESULTS[calibration.result]} Held: {names}."
    reason = calibration.stats.get("reason")
    if reason is None or not has_failed(calibration):
        return RESULTS[calibration.result]
    return REASONS[reason]


def not_identified_of(calibration: Calibration) -> list[str]:
    """Return the parameters that the quotes do not identify."""
    labels = Parameters.of(calibration.model).labels
    is_open = np.asarray(calibration.stats["not_identified"]).tolist()
    return [label for label, open_ in zip(labels, is_open, strict=True) if open_]


def summary_of(calibration: Calibration, name: str, quotes: Quotes) -> str:
    """Return the model, the underlying and the result of a calibration in one line."""
    end = message_of(calibration)
    if not has_failed(calibration):
        unit, squares = _squares(calibration, quotes)
        held = f". {end}" if is_held(calibration) else ""
        end = f"{int(calibration.stats['steps'])} steps, {squares:,.2f} {unit.words}²{held}"
    return f"calibrated {label_of(calibration)} to {name}: {end}"


def _squares(calibration: Calibration, quotes: Quotes) -> tuple[VolUnit, float]:
    """Return the unit of the residuals, and the sum of their squares in it."""
    unit, squares = vol_unit(quotes), float(calibration.stats["sum_squared_vol_points"])
    return unit, squares * (unit.per_one / VOL_POINTS.per_one) ** 2


def parameter_table(calibration: Calibration) -> dict[str, tuple[float, float]]:
    """Return parameter -> (value, standard error)."""
    parameters = Parameters.of(calibration.model)
    values = np.concatenate(
        [np.ravel(getattr(calibration.model, name)) for name in parameters.names]
    )
    errors = np.sqrt(np.diag(np.asarray(calibration.stats["covariance"])))
    pairs = zip(values.tolist(), errors.tolist(), strict=True)
    return dict(zip(parameters.labels, pairs, strict=True))


def fit_sections(market: Market, fits: Mapping[str, Calibration | None]) -> list[FitSection]:
    """Return the report's section of each underlying, drawn: see `surface_fit`."""
    from pricing.reporting.page import fit_section  # matplotlib: not before it is needed

    return [fit_section(surface_fit(market, name, found)) for name, found in fits.items()]


def surface_fit(market: Market, name: str, calibration: Calibration | None) -> SurfaceFit:
    """Return the report's data of one underlying: from a calibration, or, where it is None, Black-Scholes."""
    if calibration is not None and name not in market.equities:
        return _swaption_fit(market, name, calibration)
    equity = market.equities[name]
    surface = equity.surface
    strikes = jnp.linspace(surface.strikes[0], surface.strikes[-1], _CURVE_POINTS)
    if calibration is None:
        curve = surface.vol(surface.expiries[:, None], strikes[None, :])
        residuals = jnp.zeros_like(surface.vols)
        said: dict[str, Any] = {"model": "Black-Scholes", "result": _READS}
    else:
        no_vols = jnp.full((surface.expiries.size, strikes.size), jnp.nan)
        grid = VolSurface(surface.expiries, strikes, no_vols)
        curve = _curve(calibration.model, grid)
        residuals, said = calibration.residuals, _said(calibration, surface)
    return SurfaceFit(
        underlying=name,
        spot=float(equity.spot),
        expiries=market.dates(surface.expiries),
        strikes=np.asarray(surface.strikes),
        market_vols=np.asarray(surface.vols),
        residuals=np.asarray(residuals),
        curve_strikes=np.asarray(strikes),
        curve_vols=np.asarray(curve),
        **said,
    )


def _swaption_fit(market: Market, name: str, calibration: Calibration) -> SurfaceFit:
    """Return the swaption vols, by expiry and tenor."""
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
        **_said(calibration, quotes),
    )


@stored_jit
def _curve(model: Any, grid: VolSurface) -> jax.Array:
    return model_vols(model, grid, 64)


def _said(calibration: Calibration, quotes: Quotes) -> dict[str, Any]:
    """Return the calibration's fields of `SurfaceFit`."""
    (unit, squares), count = _squares(calibration, quotes), calibration.residuals.size
    facts = {
        "sum of squared residuals": f"{squares:,.4f} {unit.words}²",
        "root mean square": f"{(squares / count) ** 0.5:.3f} {unit.words} over {count} quotes",
        "condition number": f"{float(calibration.stats['condition_number']):,.1f}",
        "steps": str(int(calibration.stats["steps"])),
    }
    model, result = label_of(calibration), message_of(calibration)
    parameters = parameter_table(calibration)
    return {"model": model, "result": result, "parameters": parameters, "facts": facts}


def as_json(market: Market, name: str, calibration: Calibration) -> dict[str, Any]:
    """Return a calibration in plain values; the residuals are model less market per 1.00 vol, by quote id."""
    table, stats = parameter_table(calibration), calibration.stats
    ids = calibration.model.quotes_in(market.quote_ids())[name].vols
    unit, squares = _squares(calibration, calibration.model.quotes_in(market)[name])
    residuals = np.asarray(calibration.residuals).ravel().tolist()
    return {
        "model": label_of(calibration).lower(),
        "underlying": name,
        "asof": str(market.asof),
        "parameters": {parameter: value for parameter, (value, _) in table.items()},
        "standard_errors": {parameter: error for parameter, (_, error) in table.items()},
        "condition_number": float(stats["condition_number"]),
        f"sum_squared_{unit.key}": squares,
        "result": RESULTS[calibration.result],
        "reason": REASONS[stats["reason"]],
        "not_identified": not_identified_of(calibration),
        "steps": int(stats["steps"]),
        "starts_at_optimum": int(stats["starts_at_optimum"]),
        "residuals": dict(zip(np.ravel(ids), residuals, strict=True)),
    }


def write_json(path: Path, value: object) -> None:
    """Write a value as JSON; a number that is not finite becomes null."""
    text = json.dumps(finite(value), indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def finite(value: object) -> object:
    """Return a value of dictionaries, lists and plain data with None for each number that is not finite."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
