"""Compare fits of models to quotes of the sample market with published ones."""

import datetime as dt
import functools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any

from jaxtape.cli.check import Check, Group
from jaxtape.cli.reference_tables import read_tables

_TABLES = files("calibration.validation") / "tables"
_HESTON = ("initial_variance", "mean_reversion", "long_run_variance", "vol_of_vol", "correlation")
_FIGURES = frozenset({*_HESTON, "vol", "model_vol", "squared_vol_points"})
_FIT = "levenberg_marquardt"
_HULL_WHITE = 0.1, 0.01  # mean reversion and vol at the start of the search
Settings = Mapping[str, Any]
Figures = dict[str, tuple[float, str]]  # each with the method that gives it


def _found(checks: Sequence[Check]) -> list[Check]:
    """Return checks with figures of fits, by column or by swaption; each fit is made once."""
    made: dict[str, Figures] = {}
    found = []
    for known in checks:
        settings = known.source.settings
        problem = settings["problem"]
        if problem not in made:
            made[problem] = _PROBLEMS[problem](settings)
        value, method = made[problem][known.cells.get("swaption", known.figure)]
        found.append(known.found(value, method))
    return found


def _dax(settings: Settings) -> tuple[Any, Any]:
    """Return the DAX's surface, and Heston at the start of the search."""
    from pricing import Heston

    equity, curve = _market().equities["DAX"], _market().curves["EUR"]
    yields = {"dividend_yield": equity.dividend_yield}
    return equity.surface, Heston(equity.spot, curve, **settings["start"], **yields)


@functools.cache
def _market() -> Any:
    from pricing import Market

    file = files("pricing.samples") / "dax_2002-07-05.json"
    return Market.from_text(file.read_text(encoding="utf-8"), file.name)


def _dax_fit(settings: Settings) -> Figures:
    from ..calibration import calibrate

    fitted = calibrate(*_dax(settings))
    values = {name: getattr(fitted.model, name) for name in _HESTON}
    values["squared_vol_points"] = fitted.stats["sum_squared_vol_points"]
    return {name: (float(value), _FIT) for name, value in values.items()}


def _dax_start(settings: Settings) -> Figures:
    import equinox as eqx
    import numpy as np

    from ..objectives import ImpliedVolError

    quotes, model = _dax(settings)
    objective = ImpliedVolError()
    errors = np.asarray(eqx.filter_jit(objective.residuals)(model, quotes))
    squares = float(np.sum((100.0 * errors) ** 2))
    return {"squared_vol_points": (squares, type(objective).__name__)}


def _swaption_fit(settings: Settings) -> Figures:
    """Return the Hull-White parameters, and the vol that they give each swaption."""
    import equinox as eqx
    import numpy as np

    from pricing import HullWhite
    from pricing.market import SwaptionVols

    from .. import SwapLegs, SwaptionVolError, calibrate

    years = np.arange(1.0, 6.0)
    today, settlement = (dt.date.fromisoformat(settings[day]) for day in ("today", "settlement"))
    months = [12 * int(year) for year in years]
    rules = {"months": settings["months"], "day_count": settings["day_count"]}
    legs = SwapLegs.on_calendar(settlement, months, months, **rules)
    exercise: Any = legs.exercise
    expiries = exercise + (settlement - today).days / 365.0  # variances count from today
    quotes = SwaptionVols(expiries, years, _market().swaption_vols.vols, "lognormal")
    coterminal = np.fliplr(np.eye(5))
    objective = SwaptionVolError(coterminal, legs, error="relative price")
    start: Any = HullWhite(settings["rate"], *_HULL_WHITE)  # pyright: ignore[reportArgumentType]
    model: Any = calibrate(quotes, start, objective=objective).model
    vols = np.asarray(eqx.filter_jit(objective.vols)(model, quotes))
    figures = {"mean_reversion": model.mean_reversion, "vol": model.vol}
    figures |= {f"{n}x{6 - n}": vols[n - 1, 5 - n] for n in range(1, 6)}
    return {name: (float(figure), _FIT) for name, figure in figures.items()}


_PROBLEMS: Mapping[str, Callable[[Settings], Figures]] = {
    "dax fit": _dax_fit,
    "dax start": _dax_start,
    "hull-white": _swaption_fit,
}
fits = Group("Calibrations", partial(read_tables, _TABLES / "fits.toml", _FIGURES), _found)
