"""Present a calibration on the command line: as a line of text, and as JSON."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from pricing.market import Market
from pricing.models import Quotes

from ..calibration import Calibration
from ..results import REASONS, RESULTS
from ..surface_fits import parameter_table, squares_of, within_of

_SIDES = "num_bid_ask", "num_within_bid_ask"


def summary_of(calibration: Calibration, name: str, quotes: Quotes) -> str:
    """Return the model, the underlying and the result of a calibration in one line."""
    end = calibration.message
    if not calibration.has_failed:
        unit, squares = squares_of(calibration, quotes)
        held = f". {end}" if calibration.is_held else ""
        within = f", {words}" if (words := within_of(calibration)) else ""
        end = f"{int(calibration.stats['steps'])} steps, {squares:,.2f} {unit.words}²{within}{held}"
    return f"calibrated {calibration.label} to {name}: {end}"


def as_json(market: Market, name: str, calibration: Calibration) -> dict[str, Any]:
    """Return a calibration as plain values; residuals are model less market per 1.00 vol, by quote id."""
    table, stats = parameter_table(calibration), calibration.stats
    ids = _quoted(market.quote_ids(), name)
    unit, squares = squares_of(calibration, _quoted(market, name))
    residuals = np.asarray(calibration.residuals).ravel().tolist()
    return {
        "model": calibration.label.lower(),
        "underlying": name,
        "asof": str(market.asof),
        "parameters": {parameter: value for parameter, (value, _) in table.items()},
        "standard_errors": {parameter: error for parameter, (_, error) in table.items()},
        "condition_number": float(stats["condition_number"]),
        f"sum_squared_{unit.key}": squares,
        **{name: int(stats[name]) for name in _SIDES if name in stats},
        "result": RESULTS[calibration.result],
        "reason": REASONS[stats["reason"]],
        "not_identified": list(calibration.not_identified),
        "steps": int(stats["steps"]),
        "starts_at_optimum": int(stats["starts_at_optimum"]),
        "residuals": {
            quote: error
            for quote, error in zip(np.ravel(ids.vols), residuals, strict=True)
            if quote
        },
    }


def write_json(path: Path, value: object) -> None:
    """Write a value as JSON; a number that is not finite becomes null."""
    text = json.dumps(finite(value), indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def finite(value: object) -> object:
    """Return nested dictionaries, lists and plain data with None for each number that is not finite."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _quoted(market: Any, name: str) -> Any:
    """Return the quotes of an equity or a curve to which a model is fitted, or their ids."""
    return market.equities[name].surface if name in market.equities else market.swaption_vols
