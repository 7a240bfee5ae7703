"""Implied vols of equity options by expiry and strike, of swaptions by expiry and tenor, or by time only."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Num

from ..fields import Converted, are_known, is_traced, non_negative, pillars, positive, real, word
from ..numbers_shown import repr_with_numbers
from ..numerics.safe_math import clipped, larger
from .interpolation import as_floats, check_shape, interpolate, pillar_weights


class VolSurface(eqx.Module):
    """Black–Scholes implied vols at pillar expiries and strikes.

    The vol is linear in strike at each expiry. Between expiries the total variance vol^2 t is linear in time at
    fixed strike. The vol is flat outside the pillars. If strikes differ by expiry, like those of listed
    options, there is a row of strikes for each expiry; `option_quotes` builds such a surface from a list of
    quotes.

    Attributes:
        expiries: The expiries in years (ACT/365), above 0, strictly increasing, of shape (expiries,).
        strikes: The strikes in the currency of the spot, above 0, strictly increasing, of shape (strikes,); or
            by expiry, of shape (expiries, strikes).
        vols: Implied vols, decimals per square root of a year (0.2 is 20 %), above 0, of shape (expiries,
            strikes). NaN is a missing quote. With one row of strikes, a calibration ignores it and a model that
            reads the surface refuses it. With a row for each expiry, NaN pads the row after the last quote, and
            the strikes there are ignored.
        weights: The factors of the quotes' errors in a fit, of the shape of the vols; None for 1.
        bids: The bid vols, of the shape of the vols, NaN where unknown; None if all are unknown.
        asks: The ask vols, likewise.

    Raises:
        ValueError: The shapes do not match, expiries or strikes do not increase, a vol is not above 0, or, with
            strikes by expiry, an expiry has no quote, or one after a gap.

    Examples:
        >>> from pricing import VolSurface
        >>> surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.24, 0.2], [0.23, 0.21]])
        >>> f"{surface.vol(1.0, 100.0):.2f} {surface.vol(0.75, 90.0):.4f}"
        '0.22 0.2334'
    """

    __repr__ = repr_with_numbers

    expiries: Converted[Float[Array, " expiries"]] = pillars("expiries", "in years")
    strikes: Converted[Float[Array, "*rows strikes"]] = pillars("strikes", "in units of the spot")
    vols: Converted[Float[Array, "expiries strikes"]] = positive("vols", missing=True)
    weights: Converted[Float[Array, "expiries strikes"] | None] = non_negative(
        "weights", optional=True, default=None
    )
    bids: Converted[Float[Array, "expiries strikes"] | None] = non_negative(
        "bids", optional=True, missing=True, default=None
    )
    asks: Converted[Float[Array, "expiries strikes"] | None] = positive(
        "asks", optional=True, missing=True, default=None
    )

    def __check_init__(self):
        if self.strikes.ndim == 2:
            _check_rows(self)
        else:
            check_shape("a surface", "vol", self.vols, expiries=self.expiries, strikes=self.strikes)
        check_beside_vols(self, "weights", "bids", "asks")

    @property
    def is_flat(self) -> bool:
        """Whether the surface has a single expiry, and therefore constant vols in time."""
        return self.expiries.size == 1

    @property
    def as_read(self) -> "VolSurface":
        """The surface for models: the vols of an expiry are flat beyond its last quote."""
        vols = self.rows[1] if self.strikes.ndim == 2 else self.vols
        return VolSurface(self.expiries, self.strikes, vols)

    @property
    def rows(self) -> tuple[Float[Array, "expiries strikes"], Float[Array, "expiries strikes"]]:
        """The strikes and vols of each expiry, padded by repeating its last quote."""
        strikes = jnp.broadcast_to(self.strikes, self.vols.shape)
        if self.strikes.ndim == 1:
            return strikes, self.vols
        is_there = ~jnp.isnan(self.vols)
        is_last = is_there & ~jnp.pad(is_there[:, 1:], ((0, 0), (0, 1)))

        def filled(numbers: Array) -> Array:
            last = jnp.sum(jnp.where(is_last, numbers, 0.0), axis=1, keepdims=True)
            return jnp.where(is_there, numbers, last)

        return filled(strikes), filled(self.vols)

    @property
    def all_strikes(self) -> np.ndarray:
        """The distinct strikes of all expiries, in increasing order."""
        if self.strikes.ndim == 1:
            return np.asarray(self.strikes)
        return np.unique(np.asarray(self.strikes)[~np.isnan(np.asarray(self.vols))])

    def by_strike(self, numbers: Any, missing: Any = np.nan) -> np.ndarray:
        """Return numbers of the quotes as a table with one row per expiry and one column per `all_strikes`.

        Args:
            numbers: One for each quote, of the shape of the vols.
            missing: The entry for a missing quote.
        """
        numbers, columns = np.asarray(numbers), self.all_strikes
        if self.strikes.ndim == 1:
            return numbers
        found = np.full((len(numbers), columns.size), missing, numbers.dtype)
        row, column = np.nonzero(~np.isnan(np.asarray(self.vols)))
        found[row, np.searchsorted(columns, np.asarray(self.strikes)[row, column])] = numbers[
            row, column
        ]
        return found

    def vol(self, t: Num[ArrayLike, "..."], strike: Num[ArrayLike, "..."]) -> Float[Array, "..."]:
        """Return the implied vol at time `t`, in years, and `strike`: numbers, or arrays that broadcast."""
        t, strike = jnp.broadcast_arrays(as_floats(t), as_floats(strike))
        if self.strikes.ndim == 2:
            by_expiry = jax.vmap(interpolate, (None, 0, 0), -1)
            smile = by_expiry(strike, self.strikes, self.rows[1])
        else:
            smile = interpolate(strike, self.strikes, self.vols.T)  # at the strike, for each expiry
        return vol_between(t, self.expiries, smile)

    def shifted(self, vol: Num[ArrayLike, ""]) -> "VolSurface":
        """Return the surface with every vol, bid and ask shifted by `vol` (per 1.00)."""
        moved = {
            name: getattr(self, name) + vol
            for name in ("vols", "bids", "asks")
            if getattr(self, name) is not None
        }
        return replace(self, **moved)


def _check_rows(surface: VolSurface) -> None:
    """Check a surface whose strikes differ by expiry.

    Raises:
        ValueError: The shapes differ, an expiry has no quote, or one after a gap.
    """
    if surface.strikes.shape != surface.vols.shape or surface.expiries.shape != (
        len(surface.vols),
    ):
        raise ValueError(
            f"{surface.expiries.size} expiries have strikes of shape {surface.strikes.shape} and vols of shape "
            f"{surface.vols.shape}: give a row of strikes and of vols for each expiry"
        )
    if not are_known(surface.vols):
        return
    is_there = ~np.isnan(np.asarray(surface.vols))
    wrong = ~is_there[:, 0] | np.any(is_there[:, 1:] & ~is_there[:, :-1], axis=1)
    if np.any(wrong):
        raise ValueError(
            f"the expiry {surface.expiries[int(np.argmax(wrong))]:g} has no quote, or one after a gap: give "
            "its quotes first and NaN after them, or make the surface with option_quotes"
        )


def check_beside_vols(quotes: Any, *names: str) -> None:
    """Check that fields, where given, have the shape of the vols.

    Raises:
        ValueError: A field has another shape.
    """
    for name in names:
        numbers = getattr(quotes, name)
        if numbers is not None and numbers.shape != quotes.vols.shape:
            raise ValueError(
                f"{name} have shape {numbers.shape} and the vols {quotes.vols.shape}: give one for each quote"
            )


class SmileQuotes(eqx.Module):
    """Implied vols of options whose strikes differ by expiry; quotes may be missing.

    Attributes:
        expiries: The expiries in years (ACT/365), above 0, strictly increasing, of shape (expiries,).
        log_moneyness: k = log(F / K) with the forward F at the expiry and the strike K, of shape (expiries,
            strikes).
        vols: Implied vols, decimals per square root of a year, above 0, NaN where a quote is missing, of shape
            (expiries, strikes).
        weights: The factors of the quotes' errors in a fit, 0 for a missing quote, of the same shape.
        bids: The bid vols, of the same shape, NaN where unknown; None if all are unknown.
        asks: The ask vols, likewise.

    Raises:
        ValueError: The shapes do not match, the expiries do not increase, a vol is not above 0, a weight is
            negative, or another number is not finite.

    Examples:
        >>> from pricing.market import SmileQuotes
        >>> SmileQuotes([0.5], [[0.1, -0.1]], [[0.22, 0.2]], [[1.0, 0.0]]).vols.shape
        (1, 2)
    """

    __repr__ = repr_with_numbers

    expiries: Converted[Float[Array, " expiries"]] = pillars("expiries", "in years")
    log_moneyness: Converted[Float[Array, "expiries strikes"]] = real("log_moneyness")
    vols: Converted[Float[Array, "expiries strikes"]] = positive("vols", missing=True)
    weights: Converted[Float[Array, "expiries strikes"]] = non_negative("weights")
    bids: Converted[Float[Array, "expiries strikes"] | None] = non_negative(
        "bids", optional=True, missing=True, default=None
    )
    asks: Converted[Float[Array, "expiries strikes"] | None] = positive(
        "asks", optional=True, missing=True, default=None
    )

    def __check_init__(self):
        check_beside_vols(self, "bids", "asks")
        shapes = self.log_moneyness.shape, self.vols.shape, self.weights.shape
        if len(set(shapes)) > 1 or self.vols.shape[:-1] != self.expiries.shape:
            raise ValueError(
                f"smiles of {self.expiries.shape} expiries have log-moneyness, vols and weights of shapes "
                f"{shapes}: give three of shape (expiries, strikes)"
            )


class SwaptionVols(eqx.Module):
    """Quoted vols of at-the-money European swaptions.

    Attributes:
        expiries: The years to exercise, above 0, strictly increasing, of shape (expiries,).
        tenors: The years of the swap, above 0, strictly increasing, of shape (tenors,).
        vols: Implied vols, decimals per square root of a year, above 0, NaN where a quote is missing, of shape
            (expiries, tenors).
        kind: "lognormal" (Black) or "normal" (Bachelier).
        curve: The name of the curve of the swaps.

    Raises:
        ValueError: The shapes do not match, expiries or tenors do not increase, or a vol is not above 0.

    Examples:
        >>> from pricing.market import SwaptionVols
        >>> SwaptionVols([1.0, 2.0], [5.0], [[0.2], [0.19]], curve="EUR").vols.shape
        (2, 1)
    """

    __repr__ = repr_with_numbers

    expiries: Converted[Float[Array, " expiries"]] = pillars("expiries", "in years")
    tenors: Converted[Float[Array, " tenors"]] = pillars("tenors", "in years")
    vols: Converted[Float[Array, "expiries tenors"]] = positive("vols", missing=True)
    kind: str = word("kind", ("lognormal", "normal"), default="lognormal")
    curve: str = eqx.field(static=True, default="")

    def __check_init__(self):
        check_shape("a matrix", "vol", self.vols, expiries=self.expiries, tenors=self.tenors)


class VolCurve(eqx.Module):
    """A term structure of implied vols at pillar times, the same for every strike.

    The total variance vol^2 t is linear in time between the pillars and from zero today; beyond the last
    pillar the vol is flat.

    Attributes:
        times: The times of the pillars in years (ACT/365), above 0, strictly increasing, of shape (pillars,).
        vols: Implied vols, decimals per square root of a year, above 0, of shape (pillars,).

    Raises:
        ValueError: The shapes do not match, the times do not increase, a vol is not above 0, or the total
            variance decreases, which is an arbitrage.

    Examples:
        >>> from pricing import VolCurve
        >>> curve = VolCurve([1.0, 2.0], [0.2, 0.25])
        >>> f"{curve.total_variance(1.5):.4f}"
        '0.0825'
    """

    __repr__ = repr_with_numbers

    times: Converted[Float[Array, " pillars"]] = pillars("times", "in years")
    vols: Converted[Float[Array, " pillars"]] = positive("vols", core=1)

    def __check_init__(self):
        check_shape("a term structure", "vol", self.vols, times=self.times)
        known = not is_traced((self.times, self.vols))
        totals = np.asarray(self.vols) ** 2 * np.asarray(self.times) if known else np.zeros(1)
        if np.any(np.diff(totals, prepend=0.0) < 0.0):
            raise ValueError(
                f"the total variance vol^2 t falls between the times {self.times}, it is {totals}: such "
                "quotes have an arbitrage; correct the vol that is too low"
            )

    @property
    def is_flat(self) -> bool:
        """Whether the term structure has a single pillar, and therefore a constant vol."""
        return self.times.size == 1

    def total_variance(self, t: Num[ArrayLike, "..."]) -> Float[Array, "..."]:
        """Return the variance of the log-spot from today to `t`, in years, in the shape of `t`."""
        zero = jnp.zeros_like(self.times[:1])
        pillars = jnp.concatenate([zero, self.times])
        totals = jnp.concatenate([zero, self.vols**2 * self.times])
        between = interpolate(t, pillars, totals)
        beyond = larger(0.0, as_floats(t) - self.times[-1])  # at a tie its slope is 0
        return between + self.vols[-1] ** 2 * beyond

    def shifted(self, vol: Num[ArrayLike, ""]) -> "VolCurve":
        """Return the term structure with every vol shifted by `vol` (per 1.00)."""
        return VolCurve(self.times, self.vols + vol)


def vol_between(
    t: Float[Array, "..."], expiries: Float[Array, " expiries"], vols: Float[Array, "... expiries"]
) -> Float[Array, "..."]:
    """Return the vol at `t` years: linear total variance between expiries, flat vol outside."""
    t = clipped(t, expiries[0], expiries[-1])
    in_time, vols = jnp.broadcast_arrays(pillar_weights(t, expiries), vols)
    variance = jnp.tensordot(in_time * vols**2, expiries, 1, precision="highest")
    return jnp.sqrt(variance / t)
