"""The swaps underlying a matrix of swaption quotes: their start dates and fixed-leg payments."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pricing.fields import Converted
from pricing.market import SwaptionVols, advance, leg, year_fraction
from pricing.market.interpolation import as_leaf
from pricing.numerics.safe_math import larger, nan_where

from ..results import RESULTS

MOST_PAYMENTS = 60  # RESULTS.too_many_payments names it


class SwapLegs(eqx.Module):
    """Fixed legs of the swaps in a matrix of expiries and tenors; times in years, as in the curve.

    A shorter leg is padded in front, with payments at its start that accrue nothing. A swap ends with its last
    payment.

    Attributes:
        exercise: Exercise time of each option, of shape (expiries,).
        start: Start of the interest accrual, of shape (expiries,).
        payment_dates: Payment dates in years, of shape (expiries, tenors, payments).
        accruals: Year fractions, of shape (expiries, tenors, payments).

    Examples:
        >>> import datetime as dt
        >>> from calibration import SwapLegs
        >>> SwapLegs.on_calendar(dt.date(2024, 1, 15), [12, 24], [12, 60]).accruals.shape
        (2, 2, 5)
    """

    exercise: Converted[Float[Array, " expiries"]] = eqx.field(converter=as_leaf)
    start: Converted[Float[Array, " expiries"]] = eqx.field(converter=as_leaf)
    payment_dates: Converted[Float[Array, "expiries tenors payments"]] = eqx.field(
        converter=as_leaf
    )
    accruals: Converted[Float[Array, "expiries tenors payments"]] = eqx.field(converter=as_leaf)

    @classmethod
    def plain(cls, quotes: SwaptionVols, months: int = 12) -> "SwapLegs":
        """Return legs in whole years from the expiry, paid every `months` months counted back from the end.

        Raises:
            RuntimeError: If a swap has more than 60 payments; under a trace, times are NaN instead.
        """
        period, result = months / 12.0, plain_result(quotes, months)
        failed = result != RESULTS.successful
        if not result.is_traced() and failed:
            raise RuntimeError(RESULTS[result])
        tenors = nan_where(failed, quotes.tenors)
        start = quotes.expiries[:, None, None]
        before_end = period * jnp.arange(MOST_PAYMENTS - 1, -1, -1, dtype=tenors.dtype)
        dates = larger(tenors[None, :, None] + start - before_end[None, None, :], start)
        first = jnp.broadcast_to(start, (*dates.shape[:-1], 1))
        accruals = jnp.diff(jnp.concatenate([first, dates], axis=-1))
        return cls(quotes.expiries, quotes.expiries, dates, accruals)

    @classmethod
    def on_calendar(
        cls,
        asof: dt.date,
        expiries: Sequence[int],
        tenors: Sequence[int],
        months: int = 12,
        *,
        lag: int = 2,
        calendar: str = "XECB",
        roll: str = "modifiedfollowing",
        day_count: str = "30E/360",
    ) -> "SwapLegs":
        """Return legs on real dates: `expiries` and `tenors` in months, `lag` business days after exercise.

        Other arguments are those of `pricing.market.leg`; times are ACT/365 from `asof`.
        """
        rules: dict[str, Any] = {"calendar": calendar, "roll": roll}
        exercise = [advance(asof, months=expiry, **rules) for expiry in expiries]
        start = [advance(date, business_days=lag, **rules) for date in exercise]
        ends = [[advance(date, months=tenor, roll=None) for tenor in tenors] for date in start]
        legs = [
            [leg(asof, date, end, months, day_count=day_count, **rules) for end in row]
            for date, row in zip(start, ends, strict=True)
        ]
        most = max(found.accruals.size for row in legs for found in row)

        def filled(values: np.ndarray, value: float) -> np.ndarray:
            return np.pad(values, (most - values.size, 0), constant_values=value)

        dates = [[filled(found.payment_dates, found.start) for found in row] for row in legs]
        accruals = [[filled(found.accruals, 0.0) for found in row] for row in legs]
        ends_at, starts_at = (
            np.array([year_fraction(asof, date, "ACT/365") for date in row])
            for row in (exercise, start)
        )
        return cls(ends_at, starts_at, np.array(dates), np.array(accruals))


def plain_result(quotes: SwaptionVols, months: int) -> RESULTS:
    """Return `RESULTS.too_many_payments` if the legs of `SwapLegs.plain` cannot hold all payments."""
    too_many = jnp.any(quotes.tenors * 12.0 > MOST_PAYMENTS * months)
    return RESULTS.where(too_many, RESULTS.too_many_payments, RESULTS.successful)  # pyright: ignore[reportArgumentType]
