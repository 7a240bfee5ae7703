"""Calibrate the underlyings of a market for a command, and tell what came of it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from pricing.ingestion.errors import InputError
from pricing.market import Market, VolSurface
from pricing.models import AbstractModel, AbstractRateModel, Calibratable, Heston, HullWhite
from pricing.reporting import SurfaceFit, pillar_dates
from pricing.sweep.fitted_models import Fit

from ..calibration import Calibration, calibrate
from ..market_fit import fit
from ..objectives import model_vols
from ..parameters import Parameters
from ..results import RESULTS

_CURVE_POINTS = 61
_MODELS: tuple[type[Calibratable], ...] = (Heston, HullWhite)
"""What commands calibrate: the first that the market has quotes of the underlying for."""

_READS = "Nothing to calibrate: Black-Scholes reads the surface at each trade's expiry and strike."


def standard_start(market: Market, name: str) -> Calibratable:
    """Return the model that one underlying is fitted by, where its search starts."""
    kind = next(kind for kind in _MODELS if name in kind.quotes_in(market))
    return kind.starting_on(market, name)


def label_of(calibration: Calibration) -> str:
    """Return the name that a reader knows the model by."""
    model = calibration.model
    return model.label if isinstance(model, Calibratable) else type(model).__name__


def calibrated(market: Market, name: str, **settings: Any) -> Calibration:
    """The model of one underlying calibrated to its quotes, from the standard start."""
    start = standard_start(market, name)
    quotes = start.quotes_in(market)[name]
    rtol = max(1e-10, 100.0 * float(jnp.finfo(quotes.vols.dtype).eps))
    return calibrate(quotes, start, rtol=rtol, throw=False, **settings)


def has_failed(calibration: Calibration) -> bool:
    """Whether the parameters are not those of an optimum."""
    return bool(calibration.result != RESULTS.converged)


def message_of(calibration: Calibration) -> str:
    """Why the calibration ended."""
    return RESULTS[calibration.result]


def summary_of(calibration: Calibration) -> str:
    """How the calibration ended, in a few words."""
    if has_failed(calibration):
        return message_of(calibration)
    steps, squares = (calibration.stats[name] for name in ("steps", "sum_squared_vol_points"))
    return f"{int(steps)} steps, {float(squares):,.2f} vol points²"


def only(market: Market, names: tuple[str, ...]) -> Market:
    """The market with some of its equities."""
    kept = {name: equity for name, equity in market.equities.items() if name in names}
    return replace(market, equities=kept)


def too_few(market: Market, name: str, file: str) -> InputError | None:
    """Why there is nothing to calibrate: fewer quotes than free parameters leave some of them unknown."""
    start = standard_start(market, name)
    count, free = start.quotes_in(market)[name].vols.size, len(Parameters.of(start).names)
    if count >= free:
        return None
    why = f"the {free} free parameters of {start.label} need as many quotes, and there are {count}"
    return _error(start, name, str(count), why, f"give at least {free}", file)


def failure(market: Market, name: str, calibration: Calibration, file: str) -> InputError | None:
    """Why a calibration cannot be what a book is valued under, if it cannot.

    Parameters that the quotes do not tell apart have no derivative; a search may end there all the same.
    """
    if has_failed(calibration):
        why = message_of(calibration)
    else:
        fitted = fit(calibration.model, throw=False)(only(market, (name,)))[name]
        names = Parameters.of(fitted).names
        if all(jnp.isfinite(getattr(fitted, parameter)) for parameter in names):
            return None
        why = RESULTS[RESULTS.not_a_minimum]
    why = f"{label_of(calibration)} could not be calibrated: {why}".rstrip(".")
    return _error(calibration.model, name, "", why, "check the quotes", file)


def _error(
    model: AbstractModel, name: str, value: str, why: str, remedy: str, file: str
) -> InputError:
    if isinstance(model, AbstractRateModel):
        field, other = "swaption_vols", "leave out the trades on the curve"
    else:
        field, other = f"equities.{name}.implied_vols", "take --model black-scholes"
    return InputError(file, None, None, field, value, why, f"{remedy}, or {other}")


def without(market: Market, name: str, error: InputError) -> Market:
    """The market without the quotes to which no model could be calibrated, and the error that says so."""
    if name in market.equities:
        rest = only(market, tuple(set(market.equities) - {name}))
    else:
        rest = replace(market, swaption_vols=None)
    return replace(rest, errors=(*market.errors, error))


def fit_each(calibrations: Mapping[str, Calibration]):
    """Market -> {underlying: model}, each fitted from where its calibration ended."""

    def fitted(market: Market) -> dict[str, AbstractModel]:
        return {
            name: fit(calibration.model)(only(market, (name,)))[name]
            for name, calibration in calibrations.items()
        }

    return fitted


def both(first: Fit, second: Fit) -> Fit:
    """Market -> the models of two fits; where both have one, the second's."""
    return lambda market: {**first(market), **second(market)}


def parameter_table(calibration: Calibration) -> dict[str, tuple[float, float]]:
    """Parameter to (value, standard error)."""
    names = Parameters.of(calibration.model).names
    errors = np.sqrt(np.diag(np.asarray(calibration.stats["covariance"])))
    return {
        name: (float(getattr(calibration.model, name)), float(error))
        for name, error in zip(names, errors, strict=True)
    }


def surface_fit(market: Market, name: str, calibration: Calibration | None) -> SurfaceFit:
    """What the report shows of one underlying: a calibration, or None for Black-Scholes."""
    if calibration is not None and name not in market.equities:
        return _swaption_fit(market, name, calibration)
    equity = market.equities[name]
    surface = equity.surface
    strikes = jnp.linspace(surface.strikes[0], surface.strikes[-1], _CURVE_POINTS)
    if calibration is None:
        result, curve = _READS, surface.vol(surface.expiries[:, None], strikes[None, :])
        residuals, parameters, facts = jnp.zeros_like(surface.vols), {}, {}
    else:
        grid = VolSurface(
            surface.expiries, strikes, jnp.zeros((surface.expiries.size, strikes.size))
        )
        result, curve = message_of(calibration), _curve(calibration.model, grid)
        residuals, parameters = calibration.residuals, parameter_table(calibration)
        facts = _facts(calibration)
    return SurfaceFit(
        underlying=name,
        model=label_of(calibration) if calibration else "Black-Scholes",
        spot=float(equity.spot),
        expiries=pillar_dates(surface.expiries, market),
        strikes=np.asarray(surface.strikes),
        market_vols=np.asarray(surface.vols),
        residuals=np.asarray(residuals),
        curve_strikes=np.asarray(strikes),
        curve_vols=np.asarray(curve),
        result=result,
        parameters=parameters,
        facts=facts,
    )


def _swaption_fit(market: Market, name: str, calibration: Calibration) -> SurfaceFit:
    """The swaption vols, by expiry and tenor."""
    quotes: Any = market.swaption_vols
    market_vols, residuals = np.asarray(quotes.vols), np.asarray(calibration.residuals)
    return SurfaceFit(
        underlying=name,
        model=label_of(calibration),
        spot=None,
        expiries=tuple(f"{expiry:g}Y" for expiry in quotes.expiries.tolist()),
        strikes=np.asarray(quotes.tenors),
        market_vols=market_vols,
        residuals=residuals,
        curve_strikes=np.asarray(quotes.tenors),
        curve_vols=market_vols + residuals,
        result=message_of(calibration),
        parameters=parameter_table(calibration),
        facts=_facts(calibration),
        across="tenor, in years",
    )


@eqx.filter_jit
def _curve(model: Any, grid: VolSurface) -> jax.Array:
    return model_vols(model, grid, 64)


def _facts(calibration: Calibration) -> dict[str, str]:
    squares, count = float(calibration.stats["sum_squared_vol_points"]), calibration.residuals.size
    return {
        "sum of squared residuals": f"{squares:,.4f} vol points²",
        "root mean square": f"{(squares / count) ** 0.5:.3f} vol points over {count} quotes",
        "condition number": f"{float(calibration.stats['condition_number']):,.1f}",
        "steps": str(int(calibration.stats["steps"])),
    }


def as_json(market: Market, name: str, calibration: Calibration) -> dict[str, Any]:
    """A calibration in plain values. `residuals`: model less market per 1.00 vol, by quote id."""
    table, stats = parameter_table(calibration), calibration.stats
    ids = calibration.model.quotes_in(market.quote_ids())[name].vols
    residuals = np.asarray(calibration.residuals).ravel().tolist()
    return {
        "model": label_of(calibration).lower(),
        "underlying": name,
        "asof": str(market.asof),
        "parameters": {parameter: value for parameter, (value, _) in table.items()},
        "standard_errors": {parameter: error for parameter, (_, error) in table.items()},
        "condition_number": float(stats["condition_number"]),
        "sum_squared_vol_points": float(stats["sum_squared_vol_points"]),
        "result": message_of(calibration),
        "steps": int(stats["steps"]),
        "starts_at_optimum": int(stats["starts_at_optimum"]),
        "residuals": dict(zip(np.ravel(ids), residuals, strict=True)),
    }


def write_json(path: Path, value: object) -> None:
    """A value as JSON; a number that is not finite becomes null."""
    text = json.dumps(_finite(value), indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not np.isfinite(value) else value
