"""SABR at each expiry: dF = a F^beta dW, da = nu a dB, d<W, B> = rho dt, for the forward F to that expiry."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..fields import FlatOr, Number, Numeric, between, dates, inside, non_negative, positive
from ..market import Market, SwaptionVols
from ..market.interpolation import check_shape
from ..market.surface import vol_between
from .at_the_money import AtTheMoney, with_parameters
from .free_parameters import Calibratable, Exp, FreeParameter, Tanh
from .model import AbstractEquityModel, BlackVol, Discounts, Quotes, Scalar, flat_or_curve
from .sabr_formula import sabr_vol

Expiries = Float[Array, " expiries"]


class Sabr(BlackVol, Calibratable):
    """One asset with a SABR smile and its own parameters at each expiry.

    dF = a F^beta dW, da = nu a dB, a_0 = alpha, d<W, B> = rho dt, by the implied vol of Hagan et al. (2002),
    eq. 2.17a, with the leading term of Obloj (2008), eq. 3 (`sabr_vol`). Between expiries the total variance
    vol^2 t is linear in time at fixed moneyness, strike / forward; before the first and after the last expiry
    the vol is flat in time. Delta and Gamma keep alpha, beta, rho and nu fixed: the smile moves with the
    forward.

    A payoff of the spot at a single time is valued under the implied distribution, a digital with the slope of
    the smile at its strike. Continuous barriers, path payoffs and early exercise are not priced. Where the
    expansion is not above 0, the vol is NaN.

    Attributes:
        spot: The price of the asset, in currency.
        rate: The interest rate per year, continuous, a number or a curve.
        expiries: The expiries in years, above 0, increasing, of shape (expiries,).
        alpha: The initial volatility of F^beta for each expiry, in units of currency to the power 1 - beta; of
            shape (expiries,), as are rho and nu.
        rho: The correlation of forward and volatility, in (-1, 1).
        nu: The volatility of volatility per square root of a year.
        beta: The exponent, in [0, 1], for all expiries; 1 is lognormal, 0 normal. A calibration keeps it fixed.
        dividend_yield: The dividend yield less the cost of borrow per year, continuous, a number or a curve.

    Raises:
        ValueError: alpha, rho or nu does not have one number for each expiry.

    Examples:
        >>> from pricing import Digital, Sabr, price
        >>> model = Sabr(100.0, 0.0, [0.5, 1.0], [0.2, 0.2], [-0.5, -0.4], [0.8, 0.6])
        >>> " ".join(f"{model.black_vol(0.5, strike):.4f}" for strike in (80.0, 100.0, 120.0))
        '0.2553 0.2013 0.1810'
        >>> f"{price(Digital(110.0, 1.0), model).value:.4f}"
        '0.3003'
    """

    spot: Numeric[Float[Array, ""]] = positive("spot")
    rate: FlatOr[Discounts] = flat_or_curve("rate")
    expiries: Numeric[Expiries] = dates("expiries")
    alpha: Numeric[Expiries] = positive("alpha", core=1)
    rho: Numeric[Expiries] = inside("rho", -1.0, 1.0, core=1)
    nu: Numeric[Expiries] = non_negative("nu", core=1)
    beta: Numeric[Float[Array, ""]] = between("beta", 0.0, 1.0, default=1.0)
    dividend_yield: FlatOr[Discounts] = flat_or_curve("dividend_yield", default=0.0)

    label: ClassVar[str] = "SABR"
    free_parameters: ClassVar[Mapping[str, FreeParameter]] = {
        "alpha": FreeParameter(Exp(), start=0.2, low=0.05, high=0.6),
        "rho": FreeParameter(Tanh(), start=-0.5, low=-0.9, high=0.5),
        "nu": FreeParameter(Exp(), start=0.8, low=0.2, high=3.0),
    }

    def __check_init__(self):
        for name in self.free_parameters:
            check_shape("a SABR model", name, getattr(self, name), expiries=self.expiries)

    @property
    def is_constant(self) -> bool:
        return False

    def black_vol(self, t: Scalar, strike: Scalar) -> Scalar:
        forwards, moneyness = self._forwards, strike / self.forward(t)
        times, alpha, rho, nu = self.expiries, self.alpha, self.rho, self.nu
        smile = sabr_vol(forwards, moneyness * forwards, times, alpha, self.beta, rho, nu)
        return vol_between(t, times, smile)

    def with_vol_shift(self, vol: Number) -> AbstractEquityModel:
        """Return the model with alpha F^(beta - 1), the leading at-the-money vol, shifted by `vol`."""
        per_vol = self._forwards ** (1.0 - self.beta)
        return replace(self, alpha=self.alpha + vol * per_vol)

    @classmethod
    def starting_on(cls, market: Market, name: str) -> "Sabr":
        """Return the lognormal model (beta = 1) on the quoted expiries as a starting point."""
        expiries = market.equities[name].surface.expiries
        starts = {
            field: jnp.full_like(expiries, parameter.start)
            for field, parameter in cls.free_parameters.items()
        }
        model = cls.from_market(market, name, expiries=expiries, **starts)
        return model.starting_for(market.equities[name].surface)

    def starting_for(self, quotes: Quotes) -> "Sabr":
        """Return the model with alpha F^(beta - 1) equal to the at-the-money vol at each expiry."""
        found = AtTheMoney.of(quotes, self) if not isinstance(quotes, SwaptionVols) else None
        if found is None:
            return self
        vols = np.interp(np.asarray(self.expiries), found.expiries, found.vols)
        per_vol = np.asarray(self._forwards) ** (1.0 - float(self.beta))
        return with_parameters(self, alpha=vols * per_vol)

    @property
    def _forwards(self) -> Expiries:
        return jax.vmap(self.forward)(self.expiries)
