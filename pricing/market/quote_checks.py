"""Checks of the columns of a surface in a table: numbers, bounds, and units."""

import numpy as np

from ..ingestion.field_types import wrong_number
from .option_list import Fault, odd_vol
from .quote_bounds import BOUNDS, days_slip, far_from, outside, slip_of
from .quote_tables import DATED, EXPIRY, LEVELS, NAME, OPTION, PRICES, Columns, is_plain_table

_MARKET = ("spot", "rate", "dividend_yield")


def first_fault(columns: Columns) -> Fault | None:
    """Return the first mistake that is visible in the raw numbers of a surface, or None.

    Tables with bids and asks, prices or deltas are also checked by `listed_vols`.
    """
    if not columns[NAME][0].strip():
        return Fault(0, NAME, "is empty", "give each surface a name")
    last = (_doubled, _slip) if is_plain_table(columns) else (_days_slip,)
    checks = (_no_number, _ambiguous, _out_of_bounds, *last)
    return next((found for check in checks if (found := check(columns))), None)


def _out_of_bounds(columns: Columns) -> Fault | None:
    """Return the first row with a number out of bounds, or with a strike far from the spot."""
    spot, found = float(columns["spot"][0]), []
    for name in (name for name in BOUNDS if name in columns):
        values = columns[name] if name not in _MARKET else columns[name][:1]
        if np.any(rows := outside(name, values)):
            row = int(np.argmax(rows))
            what = "number of years" if name == EXPIRY else name.replace("_", " ")
            value = float(values[row])
            shown = int(value) if value.is_integer() else value
            wrong = wrong_number(what, shown, **BOUNDS[name])
            assert wrong is not None
            found.append(Fault(row, name, *wrong))
    for row, strike in enumerate(columns["strike"].tolist()):
        if far_from(spot, strike):
            message = f"{strike:g} is far from the spot {spot:g}"
            remedy = "give strikes as prices in the currency of the spot"
            found.append(Fault(row, "strike", message, remedy))
            break
    return min(found, key=lambda fault: fault.row, default=None)


def _ambiguous(columns: Columns) -> Fault | None:
    """Return the first row whose strike or spot has a point that may be a thousands separator.

    A price with another number of decimals resolves the ambiguity. If all have three, the scale does not
    matter.
    """
    names = [name for name in PRICES if f"{name} as text" in columns]
    if not names:
        return None
    readings = np.stack([columns[f"{name} as text"] for name in names])
    if np.any(readings < 0.0) or np.all(readings > 0.0) or not np.any(readings > 0.0):
        return None
    row = int(np.argmax(np.any(readings > 0.0, axis=0)))
    name = names[int(np.argmax(readings[:, row]))]
    value = float(columns[name][row])
    message = f"{value:.3f} may be {value:g} or {1000.0 * value:,.0f}"
    return Fault(row, name, message, f"write {value:.4f}, or {1000.0 * value:.0f}")


def _doubled(columns: Columns) -> Fault | None:
    """Return the first row with the expiry and strike of an earlier row."""
    pairs = np.stack([columns[EXPIRY], columns["strike"]], axis=1)
    _, first, which = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    rows = np.flatnonzero(first[which.ravel()] != np.arange(len(pairs)))
    if not rows.size:
        return None
    row = int(rows[0])
    expiry, strike = pairs[row]
    message = f"the quote of expiry {expiry:g} at strike {strike:g} appears twice"
    return Fault(row, "", message, "keep one of them")


def _slip(columns: Columns) -> Fault | None:
    """Return a mistake visible only in all quotes of a surface, at its first row, or None."""
    slip = slip_of(float(columns["spot"][0]), columns["strike"], columns["vol"])
    return (
        _days_slip(columns)
        or (slip and Fault(0, slip.field, slip.message, slip.remedy))
        or odd_vol(*(columns[name] for name in (EXPIRY, "strike", "vol")))
    )


def _days_slip(columns: Columns) -> Fault | None:
    slip = None if np.any(columns[DATED]) else days_slip(columns[EXPIRY])
    return slip and Fault(0, slip.field, slip.message, slip.remedy)


def _no_number(columns: Columns) -> Fault | None:
    """Return the fault of the first row with a cell that is not a number, or None."""
    needed = (EXPIRY, "strike", "weight") if is_plain_table(columns) else (EXPIRY,)
    others = ("strike", "delta", "weight", *LEVELS, OPTION)
    bad = {name: ~np.isfinite(columns[name]) for name in needed}
    bad |= {n: np.isinf(columns[n]) for n in others if n in columns and n not in needed}
    bad |= {name: ~np.isfinite(columns[name][:1]) for name in _MARKET}
    places = {name: int(np.argmax(rows)) for name, rows in bad.items() if np.any(rows)}
    if not places:
        return None
    name = min(places, key=lambda name: places[name])
    if name == OPTION:
        return Fault(places[name], name, "is neither call nor put", "give call or put")
    remedy = "years, or a date beside one in asof" if name == EXPIRY else "a number"
    return Fault(places[name], name, "holds no number", f"give {remedy}")
