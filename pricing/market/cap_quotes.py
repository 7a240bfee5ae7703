"""Cap quotes (flat vols or premiums), and the caplet vols that reprice them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxtape import stored_jit
from jaxtape.jax_settings.matmul_precision import full_matmul_precision

from ..fields import Converted, accruals, dates, non_negative, positive, real_vector, word
from ..numbers_shown import repr_with_numbers
from ..numerics.black import bachelier, black
from ..numerics.safe_math import nan_where, safe_sqrt
from ..time_order import check_accruals
from .caplet_vols import VOL_KINDS, CapletVols, check_strikes, row_of
from .curve import ZeroCurve

Periods = Float[Array, "caps periods"]
Real = Float[Array, "..."]

_LEAST, _MOST = float(np.log(1e-7)), float(np.log(20.0))  # bounds of the logarithm of a vol
_STEPS = 48  # 30 suffice from these bounds


class CapQuotes(eqx.Module):
    """Cap quotes by maturity and strike: a flat vol for all caplets of a cap, or its premium.

    Caps overlap: each has the periods of the caps before it, and more. A shorter cap is padded in front with
    periods of accrual 0. The rate of a period is fixed at its start.

    Attributes:
        starts: The starts of the periods in years (ACT/365), above 0, non-decreasing, of shape (caps, periods).
        ends: The ends of the periods, when they pay, of the same shape.
        accruals: The year fraction of each period, 0 for padding, of the same shape.
        strikes: The strikes, rates per year of any sign, strictly increasing, of shape (strikes,). None for
            caps at the money: the strike of each is the swap rate of its periods, which moves with the curves.
        quotes: Flat vols, or premiums per 1 of notional, above 0, of shape (caps, strikes); (caps, 1) at the
            money.
        shift: The shift of lognormal vols, a rate.
        kind: "lognormal" (Black) or "normal" (Bachelier): the type of the quoted or stripped vols.
        unit: The type of quotes: "vols", "cap premiums" or "floor premiums".

    Raises:
        ValueError: The shapes do not match, a cap does not end after the one before, strikes do not increase,
            or normal vols have a shift.

    Examples:
        >>> from pricing import CapQuotes, ZeroCurve, strip_caps
        >>> periods = [[0.5, 0.5], [0.5, 1.0]], [[0.5, 1.0], [1.0, 1.5]], [[0.0, 0.5], [0.5, 0.5]]
        >>> quotes = CapQuotes(*periods, [0.03], [[0.25], [0.24]])
        >>> [f"{vol:.4f}" for vol in strip_caps(quotes, ZeroCurve([1.0], [0.03])).vols[:, 0]]
        ['0.2500', '0.2328']
    """

    __repr__ = repr_with_numbers

    starts: Converted[Periods] = dates("starts", repeated=True)
    ends: Converted[Periods] = dates("ends", repeated=True)
    accruals: Converted[Periods] = accruals()
    strikes: Converted[Float[Array, " strikes"] | None] = real_vector("strikes", optional=True)
    quotes: Converted[Float[Array, "caps strikes"]] = positive("quotes")
    shift: Converted[Float[Array, ""]] = non_negative("shift", default=0.0)
    kind: str = word("kind", VOL_KINDS, default="lognormal")
    unit: str = word("unit", ("vols", "cap premiums", "floor premiums"), default="vols")

    def __check_init__(self):
        shapes = {x.shape for x in (self.starts, self.ends, self.accruals)}
        columns = (1,) if self.strikes is None else self.strikes.shape
        quoted = (*self.starts.shape[:-1], *columns)
        if self.starts.ndim != 2 or len(shapes) > 1 or self.quotes.shape != quoted:
            raise ValueError(
                f"starts, ends and accruals of shapes {self.starts.shape}, {self.ends.shape} and "
                f"{self.accruals.shape}, strikes of shape {columns} and quotes of shape {self.quotes.shape}: "
                "give a row of periods and a row of quotes for each cap, and a column for each strike"
            )
        check_strikes(self.strikes, self.shift, self.kind)
        times = self.times
        if not isinstance(times, Tracer) and np.any(np.diff(np.asarray(times)) <= 0.0):
            raise ValueError(
                f"the last rates of the caps are fixed at {times} years: order the caps by their maturities"
            )
        check_accruals(self.starts, self.ends, self.accruals)

    @property
    def times(self) -> Float[Array, " caps"]:
        """The last fixing of each cap in years: the times of the caplet vols."""
        return self.starts[:, -1]

    def strikes_of_caps(
        self, curve: ZeroCurve, forward_curve: ZeroCurve
    ) -> Float[Array, "caps strikes"]:
        """Return the strikes of each cap; at the money, the swap rate of its periods."""
        if self.strikes is not None:
            return jnp.broadcast_to(self.strikes, self.quotes.shape)
        growth = forward_curve.discount(self.starts) / forward_curve.discount(self.ends)
        paid = jnp.where(self.accruals > 0.0, curve.discount(self.ends), 0.0)
        floating, annuity = (jnp.sum(paid * x, axis=1) for x in (growth - 1.0, self.accruals))
        return (floating / annuity)[:, None]


@full_matmul_precision
def strip_caps(
    quotes: CapQuotes, curve: Any, forward_curve: Any = None, *, throw: bool = True
) -> CapletVols:
    r"""Return the caplet vols that reprice every quoted cap, bootstrapped by maturity.

    The periods that a cap adds to the cap before it share one vol for each strike, the root of

    $$\sum_{j \text{ new}} c(K, v) = C(K) - \sum_{j \text{ known}} c_j(K, v_j)$$

    with the price C of the cap and the values c of its caplets (Hull, *Options, Futures, and Other
    Derivatives*, section 29.2: spot against flat vols). Time values, the same for caps and floors, are matched
    instead of prices, to keep precision in the wings. The vols are differentiable up to third order in every
    quote and both curves; `jax.vmap` maps over quotes and curves.

    Args:
        quotes: The quotes of caps.
        curve: The discount curve, with a method `discount`: a `ZeroCurve`.
        forward_curve: The curve of the floating rates; None for the discount curve.
        throw: Whether to raise if a quote has no caplet vol. Otherwise, and under a trace, that vol and later
            ones at its strike are NaN.

    Returns:
        The vols, a row for each cap and a column for each strike. Caps at the money have one column: their
        vols do not depend on the strike.

    Raises:
        RuntimeError: No vol reprices a quote: it is below the value at zero volatility or that of the cap
            before it, or a rate or strike is not above -shift.

    Examples:
        >>> from pricing import CapQuotes, ZeroCurve, strip_caps
        >>> caps = [[0.5, 0.5], [0.5, 1.0]], [[0.5, 1.0], [1.0, 1.5]], [[0.0, 0.5], [0.5, 0.5]]
        >>> quotes = CapQuotes(*caps, [0.03], [[0.0008], [0.002]], kind="normal", unit="cap premiums")
        >>> [f"{1e4 * vol:.1f}" for vol in strip_caps(quotes, ZeroCurve([1.0], [0.03])).vols[:, 0]]
        ['54.3', '60.1']
    """
    forward_curve = curve if forward_curve is None else forward_curve
    strikes, vols = _stripped(quotes, curve, forward_curve)
    found = CapletVols(quotes.times, strikes[-1], vols, quotes.shift, quotes.kind)
    if throw and (unmet := first_unmet(found)) is not None:
        cap, strike = unmet
        raise RuntimeError(
            f"no caplet vol gives cap {cap + 1} its quote {quotes.quotes[cap, strike]:g} at the "
            f"strike {strikes[cap, strike]:g} after those before it: correct it, or a quote before it"
        )
    return found


def first_unmet(vols: CapletVols) -> tuple[int, int] | None:
    """Return the indices of the first cap and strike without a vol; None if there is none, or under a trace."""
    if isinstance(vols.vols, Tracer):
        return None
    places = np.argwhere(~np.isfinite(np.asarray(vols.vols)))
    return tuple(places[0].tolist()) if places.size else None


@stored_jit
def _stripped(quotes: CapQuotes, curve: ZeroCurve, forward_curve: ZeroCurve) -> tuple[Array, Array]:
    """Return the strikes of each cap and the caplet vols, [caps, strikes], cap by cap."""
    strikes = quotes.strikes_of_caps(curve, forward_curve)

    def strip(vols: Array, row: tuple) -> tuple[Array, None]:
        place, own, of_cap = row
        caplets = _Caplets(quotes, curve, forward_curve, *of_cap)
        rows = row_of(caplets.starts, quotes.times)
        is_new = rows[:, place]
        known = jnp.matmul(rows.astype(vols.dtype), vols, precision="highest")
        earlier = caplets.value(jnp.where(is_new[:, None], 1.0, known), ~is_new)
        target = caplets.target(own) - earlier
        found = _root(lambda log_vol: caplets.value(jnp.exp(log_vol)[None], is_new), target)
        found = nan_where(~caplets.has_law, found)
        is_here = (jnp.arange(vols.shape[0]) == place)[:, None]
        return jnp.where(is_here, found, vols), None

    caps = jnp.arange(quotes.quotes.shape[0])
    of_caps = strikes, quotes.starts, quotes.ends, quotes.accruals
    rows = caps, quotes.quotes, of_caps
    return strikes, jax.lax.scan(strip, jnp.zeros_like(quotes.quotes), rows)[0]


class _Caplets:
    """The caplets of one cap, at every strike: [periods, strikes]."""

    def __init__(self, quotes: CapQuotes, curve, forward_curve, strikes, starts, ends, accruals):
        accrues = accruals > 0.0
        accrual = jnp.where(accrues, accruals, 1.0)
        growth = forward_curve.discount(starts) / forward_curve.discount(ends)
        forward, strike = ((growth - 1.0) / accrual)[:, None], strikes[None, :]
        self.quotes, self.starts = quotes, starts
        self.weights = jnp.where(accrues, accruals * curve.discount(ends), 0.0)
        self.sides = jnp.where(strike >= forward, 1.0, -1.0)
        is_rate = (forward + quotes.shift > 0.0) & (strike + quotes.shift > 0.0)
        has_law = is_rate if quotes.kind == "lognormal" else jnp.ones_like(is_rate)
        self.has_law = jnp.all(has_law | ~accrues[:, None], axis=0)
        self.forward, self.strike = (
            jnp.where(has_law, x, one)
            for x, one in ((forward, 1.0 - quotes.shift), (strike, 2.0 - quotes.shift))
        )

    def value(self, vols: Real, chosen: Array) -> Array:
        """Return the time value of the chosen caplets, [strikes]."""
        std, shift = vols * safe_sqrt(self.starts)[:, None], self.quotes.shift
        if self.quotes.kind == "normal":
            values = bachelier(self.forward, self.strike, std, self.sides)
        else:
            values = black(self.forward + shift, self.strike + shift, std, self.sides)
        return jnp.sum(jnp.where(chosen[:, None], self.weights[:, None] * values, 0.0), axis=0)

    def target(self, quotes: Array) -> Array:
        """Return the time value of the quoted cap, [strikes]."""
        everything = jnp.ones_like(self.starts, bool)
        if self.quotes.unit == "vols":
            return self.value(jnp.broadcast_to(quotes, self.sides.shape), everything)
        side = 1.0 if self.quotes.unit == "cap premiums" else -1.0
        paid = jnp.where(self.sides == side, 0.0, side * (self.forward - self.strike))
        return quotes - jnp.sum(self.weights[:, None] * paid, axis=0)


def _root(value: Any, target: Array) -> Array:
    """Return the vol at each strike where `value`, increasing in log vol, equals the target; NaN if none does.

    Newton's method on the logarithms of value and vol, safeguarded by bisection. Two more steps outside the
    search give the derivatives of the root.
    """
    is_possible = target > jnp.finfo(target.dtype).tiny
    target = jnp.where(is_possible, target, 1.0)

    def missed(log_vol: Array) -> tuple[Array, Array]:
        log_value = lambda x: jnp.log(value(x)) - jnp.log(target)
        return jax.jvp(log_value, (log_vol,), (jnp.ones_like(log_vol),))

    def step(_, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        low, high, at = state
        miss, slope = map(jax.lax.stop_gradient, missed(at))
        low, high = jnp.where(miss < 0.0, at, low), jnp.where(miss < 0.0, high, at)
        newton = at - miss / slope
        is_within = (newton >= low) & (newton <= high)
        return low, high, jnp.where(is_within, newton, 0.5 * (low + high))

    low, high = (jnp.full_like(target, bound) for bound in (_LEAST, _MOST))
    state = jax.lax.stop_gradient((low, high, 0.5 * (low + high)))
    root = jax.lax.stop_gradient(jax.lax.fori_loop(0, _STEPS, step, state)[2])
    enough = float(jnp.finfo(target.dtype).eps) ** 0.5
    is_met = is_possible & (jnp.abs(jax.lax.stop_gradient(missed(root)[0])) < enough)
    root = jnp.where(is_met, root, -1.0)
    for _ in range(2):
        miss, slope = missed(root)
        root = root - jnp.where(is_met, miss / jnp.where(is_met, slope, 1.0), 0.0)
    return nan_where(~is_met, jnp.exp(root))
