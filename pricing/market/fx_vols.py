"""FX option vols quoted by delta: at the money, risk reversals and butterflies for each expiry."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, ArrayLike, Bool, Float, Num

import jaxtape as jt

from ..fields import Converted, pillars, positive, real, word
from ..numerics.black import black
from ..numerics.safe_math import nan_where
from .fx_delta import DeltaConvention
from .interpolation import as_floats
from .surface import SmileQuotes, vol_between

DELTAS = (0.25, 0.10)
"""The deltas of quoted risk reversals and butterflies, in the order of their columns."""

STRANGLES = "smile", "market"
"""Types of butterflies."""

NO_SMILE = "have no smile: strikes do not increase, a vol is not above 0, or calls are not convex"
"""The faults of a surface, in words."""

_SIDES = -1.0, 1.0
"""Puts and calls."""

_CHECKED = np.linspace(0.005, 0.995, 199)
"""Points of a smile, as N(log(F/K) / s), at which its prices are checked."""


class DeltaSurface(eqx.Module):
    """Implied vols at strikes that differ by expiry, with a smooth smile through the quotes of each expiry.

    At an expiry the vol is the polynomial in x = N(log(F/K) / s) through the quotes, with s the at-the-money
    vol times sqrt(t): the parabola of Malz (1997, The Journal of Derivatives 5, eq. 9) for three quotes, of
    degree four for five. Beyond the quotes the vol stays bounded because x stays in [0, 1]. Between expiries
    the total variance vol^2 t is linear in time at fixed strike; outside them the vol is flat.

    Attributes:
        expiries: The expiries in years, increasing, of shape (expiries,).
        forwards: The forward F of each expiry, of shape (expiries,).
        deviations: s of each expiry, of shape (expiries,).
        strikes: The strikes, increasing at each expiry, of shape (expiries, quotes).
        vols: The implied vols, of shape (expiries, quotes).
        nodes: x of the strikes, of shape (expiries, quotes).
        terms: The coefficients of each polynomial in Newton form, of the same shape.
    """

    expiries: Float[Array, " expiries"]
    forwards: Float[Array, " expiries"]
    deviations: Float[Array, " expiries"]
    strikes: Float[Array, "expiries quotes"]
    vols: Float[Array, "expiries quotes"]
    nodes: Float[Array, "expiries quotes"]
    terms: Float[Array, "expiries quotes"]

    @property
    def is_flat(self) -> bool:
        """Whether the surface has a single expiry, and therefore constant vols in time."""
        return self.expiries.size == 1

    @property
    def quotes(self) -> SmileQuotes:
        """The vols as quotes for a calibration, with equal weights."""
        log_moneyness = jnp.log(self.forwards[:, None] / self.strikes)
        return SmileQuotes(self.expiries, log_moneyness, self.vols, jnp.ones_like(self.vols))

    def vol(self, t: Num[ArrayLike, "..."], strike: Num[ArrayLike, "..."]) -> Float[Array, "..."]:
        """Return the implied vol at time `t`, in years, and `strike`: numbers, or arrays that broadcast."""
        t, strike = jnp.broadcast_arrays(as_floats(t), as_floats(strike))
        return vol_between(t, self.expiries, self.vol_at(self._place(strike[..., None])))

    def struck(self, strike: Num[ArrayLike, ""]) -> "StruckVols":
        """Return the vols at one strike as a function of time."""
        return StruckVols(self.expiries, self.vol_at(self._place(as_floats(strike)[None])))

    def shifted(self, vol: Num[ArrayLike, ""]) -> "DeltaSurface":
        """Return the surface with every vol shifted by `vol` (per 1.00), at the same strikes."""
        first = jnp.zeros_like(self.terms).at[:, 0].set(vol)
        moved = self.vols + vol, self.terms + first
        return eqx.tree_at(lambda surface: (surface.vols, surface.terms), self, moved)

    def first_fault(self) -> int | None:
        """Return the index of the first expiry with a vol <= 0 or call prices that are not convex.

        None if there is none.
        """
        moneyness, vols, calls = map(np.asarray, _smiles(self))
        wrong = np.any(~(vols > 0.0), axis=0)
        slopes = np.diff(calls, axis=0) / np.diff(moneyness, axis=0)
        wrong |= np.any(np.diff(slopes, axis=0) > 1e-6, axis=0)  # strikes decrease along the axis
        return int(np.argmax(wrong)) if wrong.any() else None

    def _place(self, strike: Array) -> Array:
        """Return x of a strike at each expiry, on the last axis."""
        row = lambda pillars: jnp.expand_dims(pillars, tuple(range(strike.ndim - 1)))
        return ndtr(jnp.log(row(self.forwards) / strike) / row(self.deviations))

    def vol_at(self, x: Float[Array, "... expiries"]) -> Float[Array, "... expiries"]:
        """Return the vol at x at each expiry, by Horner's scheme."""
        row = lambda pillars: jnp.expand_dims(pillars, tuple(range(x.ndim - 1)))
        found = row(self.terms[:, -1])
        for place in range(self.terms.shape[1] - 2, -1, -1):
            found = found * (x - row(self.nodes[:, place])) + row(self.terms[:, place])
        return found


def _divided(nodes: Array, vols: Array) -> Array:
    """Return Newton's divided differences of each row: the coefficients of its polynomial."""
    terms = list(vols.T)
    for order in range(1, len(terms)):
        for i in range(len(terms) - 1, order - 1, -1):
            terms[i] = (terms[i] - terms[i - 1]) / (nodes[:, i] - nodes[:, i - order])
    return jnp.stack(terms, axis=1)


class StruckVols(eqx.Module):
    """The vols of a surface at one strike, read once for all times.

    Attributes:
        expiries: The expiries in years, of shape (expiries,).
        vols: The implied vol at each expiry, of the same shape.
    """

    expiries: Float[Array, " expiries"]
    vols: Float[Array, " expiries"]

    def vol(self, t: Num[ArrayLike, "..."], strike: Num[ArrayLike, "..."]) -> Float[Array, "..."]:
        """Return the implied vol at time `t`, in years; the argument `strike` is ignored."""
        del strike
        return vol_between(as_floats(t), self.expiries, self.vols)

    def shifted(self, vol: Num[ArrayLike, ""]) -> "StruckVols":
        """Return the vols shifted by `vol` (per 1.00)."""
        return StruckVols(self.expiries, self.vols + vol)


@jt.stored_jit
def _smiles(surface: DeltaSurface) -> tuple[Array, Array, Array]:
    """Return strikes and undiscounted calls over the forward, and vols, [points, expiries]."""
    x = jnp.asarray(_CHECKED, surface.vols.dtype)[:, None] + 0.0 * surface.expiries[None]
    moneyness, vols = jnp.exp(-ndtri(x) * surface.deviations[None]), surface.vol_at(x)
    s = vols * jnp.sqrt(surface.expiries)[None]
    d = -jnp.log(moneyness) / s + 0.5 * s
    return moneyness, vols, ndtr(d) - moneyness * ndtr(d - s)


class DeltaQuotes(eqx.Module):
    """Quotes of FX options by delta.

    With the at-the-money vol A, and the risk reversal R and butterfly B of a delta, the call with that delta
    has the vol A + B + R/2 and the put A + B - R/2: B is the mean of the two vols less A, the smile strangle.
    Brokers quote the market strangle M: a call and a put, each with that delta on the vol A + M, cost as much
    on the vol A + M as on the smile, whose B is the root of this equation (Reiswich and Wystup, *FX Volatility
    Smile Construction*, CPQF Working Paper 20, 2010).

    Attributes:
        expiries: The expiries in years (ACT/365), above 0, increasing, of shape (expiries,).
        at_the_money: The at-the-money vols, above 0, of shape (expiries,).
        risk_reversals: The vol of the call less that of the put, for deltas 0.25 and 0.10 in this order, of
            shape (expiries, deltas), with one or two deltas.
        butterflies: The smile strangles B, or the market strangles M, of the same shape.
        convention: The conventions for deltas and at-the-money strikes.
        strangles: "smile" or "market": the type of `butterflies`.

    Raises:
        ValueError: The shapes do not match, or the expiries do not increase.

    Examples:
        >>> from pricing.market import DeltaQuotes
        >>> quotes = DeltaQuotes([0.25, 1.0], [0.1, 0.11], [[-0.01], [-0.012]], [[0.003], [0.004]])
        >>> surface = quotes.surface([1.3, 1.31], [0.995, 0.98])
        >>> f"{surface.vol(1.0, surface.strikes[1, 2]):.3f}"
        '0.108'
    """

    expiries: Converted[Float[Array, " expiries"]] = pillars("expiries", "in years")
    at_the_money: Converted[Float[Array, " expiries"]] = positive("at_the_money")
    risk_reversals: Converted[Float[Array, "expiries deltas"]] = real("risk_reversals")
    butterflies: Converted[Float[Array, "expiries deltas"]] = real("butterflies")
    convention: DeltaConvention = DeltaConvention()
    strangles: str = word("strangles", STRANGLES, default="smile")

    def __check_init__(self):
        shape = self.expiries.shape
        wings = self.risk_reversals.shape, self.butterflies.shape
        if (
            self.at_the_money.shape != shape
            or {(*shape, 1), (*shape, 2)}.isdisjoint(wings)
            or len(set(wings)) > 1
        ):
            raise ValueError(
                f"{shape[0]} expiries with vols at the money of shape {self.at_the_money.shape}, risk "
                f"reversals and butterflies of shapes {wings}: give one number for each expiry, and each "
                "delta"
            )

    @property
    def quotes(self) -> tuple[Any, ...]:
        """All quotes as a tuple; in a gradient, the derivatives to them."""
        leaves = self.at_the_money, self.risk_reversals, self.butterflies
        return tuple(x for leaf in leaves for x in np.ravel(leaf))

    def surface(
        self,
        forwards: Num[ArrayLike, " expiries"] | list,
        discounts: Num[ArrayLike, " expiries"] | list,
    ) -> DeltaSurface:
        """Return the surface of vols at the strikes of the quotes, differentiable in all inputs.

        Strikes that do not increase, because quotes are inconsistent, become NaN.

        Args:
            forwards: The forward at each expiry.
            discounts: The foreign discount factor to each expiry.
        """
        forwards, discounts = as_floats(forwards), as_floats(discounts)
        butterflies = self.butterflies
        if self.strangles == "market":
            rows = forwards[:, None], discounts[:, None]
            expiries = jax.tree.map(lambda leaf: leaf[:, None], self)
            butterflies = jax.vmap(DeltaQuotes._of_market)(expiries, *rows)[:, 0]
        vols = self._wings(butterflies)
        return self._through(self._strikes(vols, forwards, discounts), vols, forwards)

    @property
    def _deltas(self) -> Float[Array, "1 deltas"]:
        return jnp.asarray(DELTAS[: self.butterflies.shape[-1]], self.at_the_money.dtype)[None]

    @property
    def _sides(self) -> Float[Array, "2 1"]:
        return jnp.asarray(_SIDES, self.at_the_money.dtype)[:, None]

    def _wings(self, butterflies: Array) -> Array:
        """Return the vols of puts and calls, [expiries, 2, deltas], for smile strangles [expiries, deltas]."""
        skews = 0.5 * self._sides[None] * self.risk_reversals[:, None]
        return self.at_the_money[:, None, None] + butterflies[:, None] + skews

    def _strikes(self, vols: Array, forwards: Array, discounts: Array) -> Array:
        """Return the strikes at which puts and calls on some vols have the quoted deltas."""
        root, forward, discount = (
            x[:, None, None] for x in (jnp.sqrt(self.expiries), forwards, discounts)
        )
        deltas, sides = self._deltas[None], self._sides[None]
        return self.convention.strike(deltas, sides, forward, vols * root, discount)

    def _through(self, strikes: Array, vols: Array, forwards: Array) -> DeltaSurface:
        """Return the surface through the vols of puts and calls at their strikes, [expiries, 2, deltas]."""
        money = self.at_the_money
        deviations = money * jnp.sqrt(self.expiries)
        at_money = self.convention.money_strike(forwards, deviations)
        strikes, vols = (
            jnp.concatenate([wings[:, 0, ::-1], middle[:, None], wings[:, 1]], axis=1)
            for wings, middle in ((strikes, at_money), (vols, money))
        )
        strikes = nan_where(~_increases(strikes)[:, None], strikes)
        nodes = ndtr(jnp.log(forwards[:, None] / strikes) / deviations[:, None])
        terms = _divided(nodes, vols)
        return DeltaSurface(self.expiries, forwards, deviations, strikes, vols, nodes, terms)

    def _of_market(self, forward: Array, discount: Array) -> Array:
        """Return the smile strangles that match the market strangles of one expiry, [1, deltas].

        The unknowns are the smile strangles, with the vol at the money added, and the strikes of the smile.
        """
        root, money = jnp.sqrt(self.expiries), self.at_the_money
        deltas, sides = self._deltas, self._sides
        vols = jnp.broadcast_to(money[None] + self.butterflies, (2, deltas.size))
        strikes = self._strikes(vols[None], forward, discount)[0]

        def cost(vols: Array) -> Array:
            options = black(forward[None], strikes, vols * root[None], sides)
            return jnp.sum(options, axis=0) / (forward * root)

        paid = cost(vols)

        def missed(at: tuple[Array, Array]) -> tuple[Array, Array]:
            middles, own = at
            wings = self._wings((middles - money)[None])
            smile = self._through(own[None], wings, forward)
            of_market = forward[None], wings[0] * root[None], discount[None]
            found = self.convention.delta_of(own, sides, *of_market)
            return cost(smile.vol(self.expiries[None], strikes)) - paid, found - sides * deltas

        guess = self._wings(self.butterflies)
        own = jax.lax.stop_gradient(self._strikes(guess, forward, discount)[0])
        middles, _ = jt.root(missed, (vols[0], own))
        return (middles - money)[None]


def _increases(strikes: Float[Array, "expiries quotes"]) -> Bool[Array, " expiries"]:
    return jnp.all(jnp.diff(strikes, axis=1) > 0.0, axis=1)
