"""Implied-volatility quotes: of equity options by expiry and strike, of swaptions by tenor."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Num

from .interpolation import as_floats, as_leaf, interpolate, pillar_weights


class VolSurface(eqx.Module):
    """Black–Scholes implied vols at pillar expiries and strikes.

    The vol is linear in strike on each expiry. Between expiries the total variance vol^2 t is linear in time
    at the strike. The vol is flat outside the pillars. Shapes that do not fit raise ValueError.

    Attributes:
        expiries: Years (ACT/365), above 0, strictly increasing, of shape (expiries,).
        strikes: In the currency of the spot, strictly increasing, of shape (strikes,).
        vols: Decimals per square root of a year (0.2 is 20 %), of shape (expiries, strikes).

    Examples:
        >>> from pricing import VolSurface
        >>> surface = VolSurface([0.5, 1.0], [90.0, 110.0], [[0.24, 0.2], [0.23, 0.21]])
        >>> f"{surface.vol(1.0, 100.0):.2f} {surface.vol(0.75, 90.0):.4f}"
        '0.22 0.2334'
    """

    expiries: Float[Array, " expiries"] = eqx.field(converter=as_leaf)
    strikes: Float[Array, " strikes"] = eqx.field(converter=as_leaf)
    vols: Float[Array, "expiries strikes"] = eqx.field(converter=as_leaf)

    def __check_init__(self):
        _check_matrix("surface", self.vols, expiries=self.expiries, strikes=self.strikes)

    def vol(self, t: Num[ArrayLike, "..."], strike: Num[ArrayLike, "..."]) -> Float[Array, "..."]:
        """Return the implied vol at time `t`, in years, and `strike`: numbers, or arrays that broadcast."""
        t, strike = jnp.broadcast_arrays(as_floats(t), as_floats(strike))
        t = jnp.clip(t, self.expiries[0], self.expiries[-1])
        smile = interpolate(strike, self.strikes, self.vols.T)  # at the strike, of each expiry
        in_time = pillar_weights(t, self.expiries)
        variance = jnp.tensordot(in_time * smile**2, self.expiries, 1, precision="highest")
        return jnp.sqrt(variance / t)

    def shifted(self, vol: Num[ArrayLike, ""]) -> "VolSurface":
        """Return the surface with every vol up by `vol` (per 1.00)."""
        return VolSurface(self.expiries, self.strikes, self.vols + vol)


class SwaptionVols(eqx.Module):
    """Quoted vols of at-the-money European swaptions.

    Shapes that do not fit raise ValueError.

    Attributes:
        expiries: Years to exercise, of shape (expiries,).
        tenors: Years of the swap, of shape (tenors,).
        vols: Decimals per square root of a year, of shape (expiries, tenors).
        kind: "lognormal" (Black) or "normal" (Bachelier).
        curve: The name of the curve that the swaps are on.

    Examples:
        >>> from pricing.market import SwaptionVols
        >>> SwaptionVols([1.0, 2.0], [5.0], [[0.2], [0.19]], curve="EUR").vols.shape
        (2, 1)
    """

    expiries: Float[Array, " expiries"] = eqx.field(converter=as_leaf)
    tenors: Float[Array, " tenors"] = eqx.field(converter=as_leaf)
    vols: Float[Array, "expiries tenors"] = eqx.field(converter=as_leaf)
    kind: str = eqx.field(static=True, default="lognormal")
    curve: str = eqx.field(static=True, default="")

    def __check_init__(self):
        _check_matrix("swaption matrix", self.vols, expiries=self.expiries, tenors=self.tenors)


def _check_matrix(what: str, vols: Array, **axes: Array):
    """Check that `vols` has one row and one column for each pillar of its axes.

    Raises:
        ValueError: It has not.
    """
    (rows, columns), wanted = axes, tuple(axis.size for axis in axes.values())
    if vols.shape != wanted or 0 in wanted or any(axis.ndim != 1 for axis in axes.values()):
        raise ValueError(
            f"a {what} with vols of shape {vols.shape} for {wanted[0]} {rows} and {wanted[1]} "
            f"{columns}: give one vol for each pair, in an array of shape {wanted}"
        )
