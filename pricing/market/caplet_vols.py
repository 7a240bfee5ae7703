"""Implied vols of caplets by fixing time and strike."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Num

from ..fields import Converted, is_traced, non_negative, pillars, positive, real_vector, word
from ..numbers_shown import repr_with_numbers
from .interpolation import as_floats, check_shape, interpolate

VOL_KINDS = "lognormal", "normal"
"""Black vols, optionally shifted, and Bachelier vols."""

_HALF_A_DAY = 0.5 / 365.0
_CAPS = " caps"


class CapletVols(eqx.Module):
    """Implied vols of caplets: piecewise constant in time between quoted caps, linear in strike.

    A rate fixed after times[i - 1] and up to times[i] has the vols of row i; later rates have those of the last
    row. Beyond the strikes the vol is flat. Times within half a day of each other count as equal.

    Attributes:
        times: The last fixing of each quoted cap, in years (ACT/365), above 0, strictly increasing, of shape
            (caps,).
        strikes: The strikes, rates per year of any sign, strictly increasing, of shape (strikes,).
        vols: Implied vols per square root of a year, above 0, of shape (caps, strikes); normal vols are in
            units of the rate (0.0085 is 85 bp). NaN where no vol reprices the quote.
        shift: The shift of lognormal vols, a rate: F + shift is lognormal.
        kind: "lognormal" (Black) or "normal" (Bachelier).

    Raises:
        ValueError: The shapes do not match, times or strikes do not increase, a vol is not above 0, or normal
            vols have a shift.

    Examples:
        >>> from pricing.market import CapletVols
        >>> vols = CapletVols([1.0, 2.0], [0.01, 0.03], [[0.3, 0.2], [0.28, 0.18]])
        >>> f"{vols.vol(1.5, 0.02):.2f} {vols.vol(0.5, 0.05):.2f}"
        '0.23 0.20'
    """

    __repr__ = repr_with_numbers

    times: Converted[Float[Array, " caps"]] = pillars("times", "in years")
    strikes: Converted[Float[Array, " strikes"]] = real_vector("strikes")
    vols: Converted[Float[Array, "caps strikes"]] = positive("vols", missing=True)
    shift: Converted[Float[Array, ""]] = non_negative("shift", default=0.0)
    kind: str = word("kind", VOL_KINDS, default="lognormal")

    def __check_init__(self):
        check_shape("caplets", "vol", self.vols, times=self.times, strikes=self.strikes)
        check_strikes(self.strikes, self.shift, self.kind)

    @property
    def quotes(self) -> Any:
        """The leaf of quotes, the vols; in a gradient, the derivatives to them."""
        return self.vols

    def vol(self, t: Num[ArrayLike, "..."], strike: Num[ArrayLike, "..."]) -> Float[Array, "..."]:
        """Return the vol of a rate fixed at `t`, in years, at `strike`: numbers, or arrays that broadcast."""
        t, strike = jnp.broadcast_arrays(as_floats(t), as_floats(strike))
        smiles = interpolate(strike, self.strikes, self.vols.T)  # at the strike, for each row
        return jnp.sum(jnp.where(row_of(t, self.times), smiles, 0.0), axis=-1)

    def shifted(self, vol: Num[ArrayLike, ""]) -> "CapletVols":
        """Return the vols shifted by `vol` (per 1.00)."""
        return CapletVols(self.times, self.strikes, self.vols + vol, self.shift, self.kind)


def row_of(t: Float[Array, "..."], times: Float[Array, " caps"]) -> Bool[Array, "... caps"]:
    """Return the row of a rate fixed at `t`, as a one-hot mask."""
    ends_of_rows = jnp.expand_dims(times[:-1] + _HALF_A_DAY, tuple(range(t.ndim)))
    passed = t[..., None] > ends_of_rows
    ends = jnp.ones_like(passed, shape=(*t.shape, 1))
    after = jnp.concatenate([ends, passed], axis=-1)
    return after & ~jnp.concatenate([passed, ~ends], axis=-1)


def check_strikes(
    strikes: Float[Array, " strikes"] | None, shift: Float[Array, ""], kind: str
) -> None:
    """Check that strikes increase, and that only lognormal vols have a shift.

    Raises:
        ValueError: Strikes do not increase, or normal vols have a shift.
    """
    if is_traced((strikes, shift)):
        return
    if strikes is not None and np.any(np.diff(np.asarray(strikes)) <= 0.0):
        raise ValueError(
            f"strikes must increase, each once, got {strikes}: sort them, with the vols"
        )
    if kind == "normal" and float(shift) != 0.0:
        raise ValueError(
            f"normal vols with the shift {float(shift):g}: leave it out, or use lognormal vols"
        )


def caps_of(name: str) -> str:
    """Return the name of the model of a curve's rates fitted to cap quotes, such as "EUR6M caps"."""
    return name + _CAPS


def curve_of_caps(name: str) -> str | None:
    """Return the curve of a name made by `caps_of`; None for other names."""
    return name.removesuffix(_CAPS) if name.endswith(_CAPS) else None
