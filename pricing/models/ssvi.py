"""SSVI: an arbitrage-free vol surface with few parameters (Gatheral and Jacquier 2014)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..fields import FlatOr, Number, Numeric, inside, positive
from ..market import Market, SwaptionVols, VolCurve, VolSurface
from .at_the_money import AtTheMoney
from .free_parameters import Calibratable, ForwardVols, FreeParameter, Logistic, Tanh
from .model import AbstractEquityModel, BlackVol, Discounts, Quotes, Scalar, flat_or_curve


class Ssvi(BlackVol, Calibratable):
    """One asset with a vol surface that is free of arbitrage for all parameters.

    The total variance vol^2 t at k = log(strike / forward(t)) is

        w = theta / 2 (1 + rho phi k + sqrt((phi k + rho)^2 + 1 - rho^2)),
        phi = eta theta^-power (1 + theta)^(power - 1),   eta = 2 curvature / (1 + |rho|),

    with theta the total variance at the forward: Gatheral and Jacquier (2014), eq. 4.1 and 4.5. If theta
    increases, power <= 1/2 and curvature <= 1, there is no calendar or butterfly arbitrage (their theorems 4.1
    and 4.2). Delta and Gamma keep the parameters fixed: the smile moves with the forward.

    A payoff of the spot at a single time is valued under the implied distribution. For path payoffs use
    `surface`, the vols as quotes, as the vol of `BlackScholes` or the surface of `LocalVol`; this smooths
    quotes that have an arbitrage.

    Attributes:
        spot: The price of the asset, in currency.
        rate: The interest rate per year, continuous, a number or a curve.
        at_the_money: The at-the-money-forward vol by time, with increasing total variance: a number or a
            `VolCurve`.
        rho: The skew, in (-1, 1).
        curvature: The curvature as a fraction of the largest arbitrage-free curvature, in (0, 1).
        power: The power of the decay of the curvature with theta, in (0, 1/2).
        dividend_yield: The dividend yield less the cost of borrow per year, continuous, a number or a curve.

    Examples:
        >>> from pricing import Ssvi, VolCurve
        >>> model = Ssvi(100.0, 0.0, VolCurve([0.5, 1.0], [0.22, 0.2]), -0.6, 0.5, 0.4)
        >>> " ".join(f"{model.black_vol(0.5, strike):.4f}" for strike in (80.0, 100.0, 120.0))
        '0.2610 0.2200 0.1910'
    """

    spot: Numeric[Float[Array, ""]] = positive("spot")
    rate: FlatOr[Discounts] = flat_or_curve("rate")
    at_the_money: FlatOr[VolCurve] = flat_or_curve("at_the_money", VolCurve, positive)
    rho: Numeric[Float[Array, ""]] = inside("rho", -1.0, 1.0)
    curvature: Numeric[Float[Array, ""]] = inside("curvature", 0.0, 1.0)
    power: Numeric[Float[Array, ""]] = inside("power", 0.0, 0.5)
    dividend_yield: FlatOr[Discounts] = flat_or_curve("dividend_yield", default=0.0)

    label: ClassVar[str] = "SSVI"
    free_parameters: ClassVar[Mapping[str, FreeParameter]] = {
        "at_the_money": FreeParameter(ForwardVols(), start=0.2, low=0.05, high=0.6),
        "rho": FreeParameter(Tanh(), start=-0.5, low=-0.9, high=0.5),
        "curvature": FreeParameter(Logistic(), start=0.5, low=0.1, high=0.9),
        "power": FreeParameter(Logistic(0.0, 0.5), start=0.3, low=0.1, high=0.45),
    }

    @property
    def is_constant(self) -> bool:
        return False

    def total_variance(self, t: Scalar, k: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return vol^2 t at t years and k = log(strike / forward(t))."""
        terms = self.at_the_money
        theta = terms.total_variance(t) if isinstance(terms, VolCurve) else terms**2 * t
        rho, eta = self.rho, 2.0 * self.curvature / (1.0 + jnp.abs(self.rho))
        scaled = k * eta * theta**-self.power * (1.0 + theta) ** (self.power - 1.0)
        root = jnp.sqrt((scaled + rho) ** 2 + 1.0 - rho**2)
        return 0.5 * theta * (1.0 + rho * scaled + root)

    def black_vol(self, t: Scalar, strike: Scalar) -> Scalar:
        return jnp.sqrt(self.total_variance(t, jnp.log(strike / self.forward(t))) / t)

    def surface(self, expiries: Number, strikes: Number) -> VolSurface:
        """Return the vols at expiries (years) and strikes, as arbitrage-free quotes.

        Args:
            expiries: The expiries in years, of shape (expiries,).
            strikes: The strikes in units of the spot, of shape (strikes,).

        Returns:
            The surface, for use in place of quotes.
        """
        times, levels = (jnp.asarray(x, self.spot.dtype) for x in (expiries, strikes))
        at_strikes = jax.vmap(self.black_vol, in_axes=(None, 0))
        return VolSurface(times, levels, jax.vmap(at_strikes, in_axes=(0, None))(times, levels))

    def with_vol_shift(self, vol: Number) -> AbstractEquityModel:
        """Return the model with the at-the-money-forward vol shifted by `vol` at all times."""
        terms = self.at_the_money
        moved = terms.shifted(vol) if isinstance(terms, VolCurve) else terms + vol
        return replace(self, at_the_money=moved)

    @classmethod
    def starting_on(cls, market: Market, name: str) -> "Ssvi":
        """Return the model on the quoted expiries as a starting point."""
        starts = {field: free.start for field, free in cls.free_parameters.items()}
        expiries = market.equities[name].surface.expiries
        starts["at_the_money"] = VolCurve(expiries, jnp.full_like(expiries, 0.2))  # pyright: ignore
        model = cls.from_market(market, name, **starts)
        return model.starting_for(market.equities[name].surface)

    def starting_for(self, quotes: Quotes) -> "Ssvi":
        """Return the model with the quoted at-the-money vols, raised where total variance would decrease."""
        found = AtTheMoney.of(quotes, self) if not isinstance(quotes, SwaptionVols) else None
        if found is None:
            return self
        totals = np.maximum.accumulate(found.vols**2 * found.expiries)
        if not isinstance(self.at_the_money, VolCurve):
            vol = float(np.sqrt(totals[-1] / found.expiries[-1]))
            return replace(self, at_the_money=vol)
        times = np.asarray(self.at_the_money.times)
        at = np.interp(times, np.append(0.0, found.expiries), np.append(0.0, totals))
        at = np.maximum(at, totals[-1] * np.minimum(times / found.expiries[-1], 1.0) * 1e-3)
        rising = at + 1e-6 * totals[-1] * np.arange(1, times.size + 1)
        return replace(self, at_the_money=VolCurve(times, np.sqrt(rising / times)))
