"""Implied-volatility quotes: of equity options by expiry and strike, of swaptions by tenor."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Num

from .interpolation import as_floats, as_leaf, bracket


class VolSurface(eqx.Module):
    """Black–Scholes implied vols at pillar expiries and strikes.

    Linear in strike on each expiry, then linear in total variance `vol² t` in time at the strike;
    the vol is flat outside the pillars.

    `expiries`: years (ACT/365), positive, strictly increasing, shape `[expiries]`.
    `strikes`: strictly increasing, shape `[strikes]`.
    `vols`: decimals per square root of a year (0.2 is 20 %), shape `[expiries, strikes]`.
    All are differentiable leaves. Raises `ValueError` when the shapes do not belong together.
    """

    expiries: Float[Array, " expiries"] = eqx.field(converter=as_leaf)
    strikes: Float[Array, " strikes"] = eqx.field(converter=as_leaf)
    vols: Float[Array, "expiries strikes"] = eqx.field(converter=as_leaf)

    def __check_init__(self):
        _check_matrix("surface", self.vols, expiries=self.expiries, strikes=self.strikes)

    def vol(self, t: Num[ArrayLike, "..."], strike: Num[ArrayLike, "..."]) -> Float[Array, "..."]:
        """The implied vol at time `t` (years) and `strike`; scalars or arrays that broadcast."""
        t, strike = jnp.broadcast_arrays(as_floats(t), as_floats(strike))
        t = jnp.clip(t, self.expiries[0], self.expiries[-1])
        early, late, in_time = bracket(t, self.expiries)
        low, high, in_strike = bracket(strike, self.strikes)

        def total_variance(row):
            vol = (1 - in_strike) * self.vols[row, low] + in_strike * self.vols[row, high]
            return vol**2 * self.expiries[row]

        variance = (1 - in_time) * total_variance(early) + in_time * total_variance(late)
        return jnp.sqrt(variance / t)

    def shifted(self, vol: Num[ArrayLike, ""]) -> "VolSurface":
        """The surface with every vol up by `vol` (per 1.00)."""
        return VolSurface(self.expiries, self.strikes, self.vols + vol)


class SwaptionVols(eqx.Module):
    """Quoted vols of at-the-money European swaptions.

    `expiries`, `tenors`: years to exercise and of the swap, shapes `[expiries]` and `[tenors]`.
    `vols`: decimals, shape `[expiries, tenors]`; `kind` is "lognormal" (Black) or "normal"
    (Bachelier); `curve` names the curve that the swaps are on. Raises `ValueError` when the shapes do
    not belong together.
    """

    expiries: Float[Array, " expiries"] = eqx.field(converter=as_leaf)
    tenors: Float[Array, " tenors"] = eqx.field(converter=as_leaf)
    vols: Float[Array, "expiries tenors"] = eqx.field(converter=as_leaf)
    kind: str = eqx.field(static=True, default="lognormal")
    curve: str = eqx.field(static=True, default="")

    def __check_init__(self):
        _check_matrix("swaption matrix", self.vols, expiries=self.expiries, tenors=self.tenors)


def _check_matrix(what: str, vols: Array, **axes: Array):
    """Raise `ValueError` unless `vols` has one row and one column for each pillar of its axes."""
    (rows, columns), wanted = axes, tuple(axis.size for axis in axes.values())
    if vols.shape != wanted or 0 in wanted or any(axis.ndim != 1 for axis in axes.values()):
        raise ValueError(
            f"a {what} with vols of shape {vols.shape} for {wanted[0]} {rows} and {wanted[1]} "
            f"{columns}: give one vol for each pair, in an array of shape {wanted}"
        )
