"""Implied-vol errors of at-the-money swaptions, for Gaussian short-rate models."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import erf, erf_inv
from jaxtyping import Array, Float

from pricing.fields import word
from pricing.formulas.jamshidian import right_to_payments
from pricing.market import SwaptionVols
from pricing.models import GaussianFactors

from ..results import RESULTS
from .objective import AbstractObjective, as_weights, weighted
from .swap_legs import SwapLegs, plain_result

Matrix = Float[Array, "expiries tenors"]


_ERRORS = ("vol", "price", "vega-weighted price", "relative price")


class SwaptionVolError(AbstractObjective):
    """Model vol less quoted vol of at-the-money European swaptions, lognormal or normal like the quotes.

    The model, one of `GaussianFactors`, prices by Jamshidian's sum of bond options. At the money, with the
    forward F, the annuity A and the expiry T of the quotes, a vol is
    (2 / sqrt(T)) N^{-1}((1 + price / (A F)) / 2) if it is lognormal, which requires F > 0, and
    sqrt(2 pi / T) price / A if it is normal.

    Attributes:
        usual_for: Matrices of swaption vols.
        weights: Factors of the residuals, of shape (expiries, tenors); 0 or False to ignore a quote, None for
            all 1.
        legs: Fixed legs of the underlying swaps; None for payments every `months` months, without calendars.
        months: Months between fixed payments, if `legs` is None.
        error: "vol", per 1.00; "price", divided by A F (by A for normal vols); "vega-weighted price", the same
            divided by the vega of the quote; or "relative price": model over quote, less 1.

    Examples:
        >>> from calibration import SwaptionVolError
        >>> SwaptionVolError(weights=[[1.0, 0.0]], error="relative price").weights.shape
        (1, 2)
    """

    usual_for: ClassVar[tuple[type, ...]] = (SwaptionVols,)

    weights: Matrix | None = eqx.field(converter=as_weights, default=None)
    legs: SwapLegs | None = None
    months: int = eqx.field(static=True, default=12)
    error: str = word("error", _ERRORS, default="vol")

    def residuals(self, model: GaussianFactors, quotes: SwaptionVols) -> Matrix:
        return weighted(self._errors(model, quotes), self.weights)

    def _errors(self, model: GaussianFactors, quotes: SwaptionVols) -> Matrix:
        if self.error == "vol":
            return self.vols(model, quotes) - quotes.vols
        root = _root_of_expiry(quotes)
        quoted, per_std = jax.jvp(
            lambda std: _price_of(std, quotes.kind),
            (quotes.vols * root,),
            (jnp.ones_like(quotes.vols),),
        )
        prices = self._prices(model, quotes)
        if self.error == "relative price":
            return prices / quoted - 1.0
        errors = prices - quoted
        return errors / (per_std * root) if self.error == "vega-weighted price" else errors

    def result(self, quotes: SwaptionVols) -> RESULTS:
        return RESULTS.successful if self.legs else plain_result(quotes, self.months)  # pyright: ignore[reportReturnType]

    def vols(self, model: GaussianFactors, quotes: SwaptionVols) -> Matrix:
        """Return the model's vols of the quoted swaptions."""
        return _std_of(self._prices(model, quotes), quotes.kind) / _root_of_expiry(quotes)

    def _prices(self, model: GaussianFactors, quotes: SwaptionVols) -> Matrix:
        """Return the model's prices divided by A F, or by A for normal vols."""
        legs = SwapLegs.plain(quotes, self.months) if self.legs is None else self.legs

        def of_one(exercise, start, dates, accruals):
            bonds = model.discount(dates)
            received, annuity = model.discount(start) - bonds[-1], accruals @ bonds
            coupons = -received / annuity * accruals * bonds
            amounts = jnp.append(model.discount(start), coupons.at[-1].add(-bonds[-1]))
            times, payer = jnp.append(start, dates), jnp.ones_like(annuity)
            price = right_to_payments(amounts, times, payer, exercise, model)
            return price / (received if quotes.kind == "lognormal" else annuity)

        of_row = jax.vmap(of_one, in_axes=(None, None, 0, 0))
        return jax.vmap(of_row)(legs.exercise, legs.start, legs.payment_dates, legs.accruals)


def _root_of_expiry(quotes: SwaptionVols) -> Float[Array, "expiries 1"]:
    return jnp.sqrt(quotes.expiries)[:, None]


def _price_of(std: Matrix, kind: str) -> Matrix:
    """Return at-the-money prices over A F (Black) or A (Bachelier) from standard deviations to expiry."""
    return erf(std / np.sqrt(8.0)) if kind == "lognormal" else std / np.sqrt(2.0 * np.pi)


def _std_of(price: Matrix, kind: str) -> Matrix:
    """Return the inverse of `_price_of`."""
    return np.sqrt(8.0) * erf_inv(price) if kind == "lognormal" else np.sqrt(2.0 * np.pi) * price
