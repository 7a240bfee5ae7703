"""The canonical form of autocallable notes with conditional coupons and a knock-in."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import Numeric, above_zero, between, dates, non_negative, positive
from .product import Padded, Real, extra_dates, idle, idle_dates


class CallableNote(Padded):
    """A note on the worst of some assets, with coupon levels and early-redemption levels.

    Let P_k be the minimum of scales[i] * (spot of asset i) at dates[k]. Until it is called, the note pays
    coupons[k] if P_k >= coupon_levels[k]; with memory, also all coupons missed before. If P_k >=
    call_levels[k], it pays the notional and ends. If it is never called, it pays at the last date the notional,
    or notional * (P + added) / initial if P < protection and the note was knocked in. Every autocallable note
    with coupons or a knock-in can be written in this form (`canonical`).

    Attributes:
        dates: The dates in years, non-decreasing, of shape (dates,); the last is the expiry and is not
            repeated.
        call_levels: The redemption level at each date, infinity for none, of shape (dates,).
        coupon_levels: The coupon level at each date, at most the call level, of shape (dates,).
        coupons: The coupon at each date, in currency, of shape (dates,).
        memory: 1 if missed coupons are paid with the next one, 0 if they are lost.
        missed: The coupons already missed, in currency.
        knock_in: The knock-in level at each date, below the call levels, 0 where not monitored, of shape
            (dates,).
        needs_knock_in: 1 if capital is lost only after a knock-in, else 0.
        protection: The level below which capital is lost on the last date.
        initial: The level from which the loss is measured.
        notional: The notional in currency.
        scales: The scale of each asset's spot, of shape (assets,).
        added: The value of the asset on the last date less P, for a note on X (`above_cash`).
        all_times: Whether `knock_in`, the same on all dates, is monitored continuously; for one asset only.
        multi_asset: Whether the note is on several assets.

    Examples:
        >>> from pricing import Autocallable
        >>> note = Autocallable([0.5, 1.0], [0.03, 0.03], 105.0, 80.0, 100.0, coupon_barrier=90.0)
        >>> note.canonical.coupon_levels.tolist()
        [90.0, 90.0]
    """

    dates: Numeric[Float[Array, "*batch dates"]] = dates("dates", repeated=True)
    call_levels: Numeric[Float[Array, "*batch dates"]] = above_zero("call_levels", core=1)
    coupon_levels: Numeric[Float[Array, "*batch dates"]] = above_zero("coupon_levels", core=1)
    coupons: Numeric[Float[Array, "*batch dates"]] = non_negative("coupons", core=1)
    memory: Numeric[Real] = between("memory", 0.0, 1.0)
    missed: Numeric[Real] = non_negative("missed")
    knock_in: Numeric[Float[Array, "*batch dates"]] = non_negative("knock_in", core=1)
    needs_knock_in: Numeric[Real] = between("needs_knock_in", 0.0, 1.0)
    protection: Numeric[Real] = positive("protection")
    initial: Numeric[Real] = positive("initial")
    notional: Numeric[Real] = positive("notional")
    scales: Numeric[Float[Array, "*batch assets"]] = positive("scales", core=1)
    added: Numeric[Real] = non_negative("added", default=0.0)
    all_times: bool = eqx.field(static=True, default=False, kw_only=True)
    multi_asset: bool = eqx.field(static=True, default=False, kw_only=True)  # pyright: ignore

    @property
    def smile_point(self) -> tuple[Real, Real]:
        return self.dates[..., -1], self.protection

    def padded(self, num_dates: int) -> "CallableNote":
        """Return the same note on `num_dates` dates, padded in front with `idle_dates`."""
        extra = extra_dates(self.dates, num_dates)
        levels = {name: idle(getattr(self, name), extra, x) for name, x in _NOTHING.items()}
        unwatched = 0.0
        if self.all_times or self.dates.shape[-1] > 1:  # the level also applies between dates
            unwatched = self.knock_in[..., :1]
        levels["knock_in"] = idle(self.knock_in, extra, unwatched)
        return replace(self, dates=idle_dates(self.dates, extra), **levels)

    def refined(self, times: Float[Array, " times"]) -> "CallableNote":
        """Return one note with an equal number of extra times before each date, for the knock-in only."""
        substeps = times.size // self.dates.size - 1

        def spread(level: Array, nothing: float) -> Array:
            idle = jnp.full((level.size, substeps), nothing, level.dtype)
            return jnp.concatenate([idle, level[:, None]], axis=1).ravel()

        decided = {name: spread(getattr(self, name), x) for name, x in _NOTHING.items()}
        watched = jnp.repeat(self.knock_in, substeps + 1)
        return replace(self, dates=times, knock_in=watched, **decided)


_NOTHING = {"call_levels": jnp.inf, "coupon_levels": jnp.inf, "coupons": 0.0}
