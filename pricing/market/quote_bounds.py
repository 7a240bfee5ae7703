"""The bounds of quotes in files, and unit mistakes that only several numbers together reveal."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from pricing.ingestion.field_types import LARGEST, LEAST_POSITIVE

Numbers = Float[np.ndarray, "..."]

BOUNDS: dict[str, dict[str, float]] = {
    "spot": {"above": 0.0},
    "rate": {"least": -0.2, "most": 1.0},
    "spread": {"least": -0.05, "most": 0.05},
    "dividend_yield": {"least": -1.0, "most": 1.0},
    "strike": {"above": 0.0},
    "vol": {"above": 0.0, "most": 10.0, "likely": 5.0},
    "bid": {"least": 0.0, "most": 10.0, "likely": 5.0},
    "ask": {"above": 0.0, "most": 10.0, "likely": 5.0},
    "price": {"least": 0.0},
    "bid_price": {"least": 0.0},
    "ask_price": {"least": 0.0},
    "delta": {"least": -1.0, "most": 1.0},
    "weight": {"least": 0.0},
    "expiry": {"above": 0.0, "most": 30.0},
}
"""Name of a column or field -> the bounds of its numbers, as arguments of `number` in `field_types`."""

MOST_NORMAL_VOL = 0.1
"""The largest normal vol of a rate, per square root of a year: 1,000 bp."""

LEAST_LOGNORMAL_VOL = 0.02
"""A lognormal vol of a rate, per square root of a year: a normal vol of 60 bp at a rate of 3 %."""

_LEAST_OF_ALL = 1.5  # no surface has all vols above 1.5, while 1.5 % is a low vol of an FX pair
_FACTOR = 10.0  # a surface has a strike within this factor of the spot
_YEARS = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    12,
    15,
)  # common expiries in whole years
_FEWEST_DAYS = 7


class Slip(NamedTuple):
    """A mistake in a combination of quotes.

    Attributes:
        field: The kind of number that is wrong.
        message: A description of the mistake.
        remedy: The way to correct it.
    """

    field: str
    message: str
    remedy: str


def outside(name: str, values: Numbers) -> np.ndarray:
    """Return the mask of numbers outside the bounds of their kind; NaN counts as inside."""
    bounds = BOUNDS[name]
    above, least = bounds.get("above", -np.inf), bounds.get("least", -np.inf)
    most = min(bounds.get("likely", np.inf), bounds.get("most", np.inf), LARGEST)
    wrong = (values <= above) | (values < least) | (values > most) | (values < -LARGEST)
    return wrong | (values < LEAST_POSITIVE) if above == 0.0 else wrong


def slip_of(spot: float, strikes: Any, vols: Any) -> Slip | None:
    """Return a slip if the vols of a surface cannot be decimals or its strikes prices, or None.

    Args:
        spot: The spot.
        strikes: All strikes.
        vols: All vols; NaN for a missing one.
    """
    strikes, vols = np.ravel(strikes), np.ravel(vols)
    vols = vols[~np.isnan(vols)]
    if vols.size and (least := float(np.min(vols))) >= _LEAST_OF_ALL:
        message = f"every vol is {least:g} or more, which is {least:.0%}"
        return Slip("vol", message, f"give vols as decimals: {least:g} % is {least / 100:g}")
    if not strikes.size:
        return None
    low, high = float(np.min(strikes)), float(np.max(strikes))
    if high * _FACTOR < spot or low > spot * _FACTOR:
        message = f"the strikes are from {low:g} to {high:g} and the spot is {spot:g}"
        return Slip("strike", message, "give strikes as prices in the currency of the spot")
    if far := [k for k in strikes.tolist() if far_from(spot, k)]:
        message = f"the strike {far[0]:g} is far from the spot {spot:g}"
        return Slip("strike", message, "give strikes as prices in the currency of the spot")
    return None


def rate_vol_slip(kind: str, vols: Any) -> Slip | None:
    """Return a slip if the vols of rates, of swaptions or caps, are in another unit, or None.

    Args:
        kind: "lognormal" or "normal".
        vols: All vols; NaN for a missing one.
    """
    vols = np.ravel(vols)
    most = float(np.nanmax(vols, initial=0.0))
    if kind == "normal" and most > MOST_NORMAL_VOL:
        message = f"{most:g} is a normal vol of {1e4 * most:,.0f} bp"
        return Slip("vol", message, "give normal vols as decimals: 85 bp are 0.0085")
    if kind == "lognormal" and 0.0 < most < LEAST_LOGNORMAL_VOL:
        message = f"no vol is above {most:g}, which would be a normal vol of rates"
        return Slip("vol", message, "give type normal, or lognormal vols such as 0.2")
    return slip_of(1.0, [], vols) if kind == "lognormal" else None


def days_slip(expiries: Any) -> Slip | None:
    """Return a slip if the expiries of a surface look like days (large whole numbers), or None."""
    found = np.unique(expiries)
    if not found.size or np.any(found != np.round(found)):
        return None
    if found[0] < _FEWEST_DAYS and np.all(np.isin(found, _YEARS)):
        return None
    message = f"expiries of {found[0]:g} to {found[-1]:g} look like days"
    return Slip("expiry", message, "give years (30 days are 0.0822), or dates beside one in asof")


def far_from(spot: float, level: float) -> bool:
    """Return True if a price is so far from the spot that it must be in another unit.

    A price below a millionth of the spot means 0, as for a forward written as a call.
    """
    return 1e-6 * spot < level < 1e-2 * spot or level > 1e2 * spot
