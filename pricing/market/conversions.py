"""Equities paid in another currency: quanto, converted at a fixed rate of 1, and compo, at the spot rate."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from .correlations import Pair, quoted
from .equity import DerivedEquity, Equity
from .fx import FxPair

Times = Float[Array, "..."]

KINDS = ("quanto", "compo")


class Conversion(NamedTuple):
    """The underlying of a trade that pays in another currency than its equity.

    Attributes:
        asset: The name of the equity.
        kind: "quanto" or "compo".
        currency: The ISO code of the payments.
    """

    asset: str
    kind: str
    currency: str


def conversion_of(name: str) -> Conversion | None:
    """Return the parts of a name such as "SX5E quanto USD" or "SX5E compo USD"; None for other names.

    Args:
        name: The underlying of a trade.

    Returns:
        The equity, "quanto" or "compo", and the currency of the payments.

    Examples:
        >>> from pricing.market.conversions import conversion_of
        >>> conversion_of("SX5E quanto USD").currency
        'USD'
    """
    asset, _, rest = name.rpartition(" ")[0].rpartition(" ")
    return Conversion(asset, rest, name.rpartition(" ")[2]) if asset and rest in KINDS else None


def pair_between(pairs: Mapping[str, FxPair], one: str, other: str) -> str | None:
    """Return the name of the FX pair with vols for two currencies, in either direction, or None.

    Args:
        pairs: Name -> pair.
        one: The ISO code of a currency.
        other: The ISO code of the other.
    """
    same = ((name, {pair.foreign, pair.domestic}) for name, pair in pairs.items() if pair.vols)
    return next((name for name, both in same if both == {one, other}), None)


def missing_part(
    conversion: Conversion,
    own: str,
    equity: Equity,
    pairs: Mapping[str, FxPair],
    correlations: Mapping[Pair, Any],
) -> tuple[str, str] | None:
    """Return the quote that a market lacks for a conversion, in words, and the remedy, or None.

    Args:
        conversion: The underlying.
        own: The ISO code of the equity's currency.
        equity: The equity.
        pairs: Name -> FX pair.
        correlations: Pair of names -> correlation.
    """
    asset, kind, currency = conversion
    if equity.dividends is not None:
        message = f"a {kind} of an equity with dividends on known dates is not supported"
        return message, "give the dividends as a yield"
    if own == currency:
        return f"{asset} is in {currency} already", f"give {asset} as the underlying"
    pair = pair_between(pairs, own, currency)
    if pair is None:
        message = (
            f"the market has no vols of a pair of {own or 'an unnamed currency'} and {currency}"
        )
        return message, "give them, under fx in the market"
    if quoted(asset, pair, correlations) is None:
        message = f"the market has no correlation of {asset} and {pair}"
        return message, f"give {asset}|{pair}, under correlations in the market"
    return None


def converted(
    conversion: Conversion,
    equity: Equity,
    pair: tuple[str, FxPair],
    rate: Float[Array, ""],
    curves: Mapping[str, Any],
    correlations: Mapping[Pair, Float[Array, ""]],
) -> DerivedEquity:
    """Return an equity S paid in another currency; X is the price of its own currency in that currency.

    A quanto pays a function of S: under the measure of the payment currency, S has the forward F_S(t) exp(-rho
    sigma_S sigma_X t). A compo pays a function of S X, with the vol sqrt(sigma_S^2 + 2 rho sigma_S sigma_X +
    sigma_X^2). sigma_X, and sigma_S for a quanto, are at-the-money-forward vols; for a compo with strike K,
    sigma_S is read at K divided by the forward of X. (Reiner 1992, Risk 5, Quanto mechanics; Haug 2007, sec.
    5.16.)

    Args:
        conversion: The underlying.
        equity: The equity.
        pair: The name and the FX pair of the two currencies, in either direction.
        rate: The rate of the pair.
        curves: Name -> discount curve.
        correlations: Pair of names -> correlation. Reversing the pair changes the sign.
    """
    name, of_pair = pair
    is_direct = of_pair.domestic == conversion.currency
    place = quoted(conversion.asset, name, correlations)
    assert place is not None
    rho = correlations[place] if is_direct else -correlations[place]
    paid = of_pair.domestic_curve if is_direct else of_pair.foreign_curve
    rates = AtTheMoney.of(of_pair.asset(rate, curves), curves)
    if conversion.kind == "quanto":
        asset = AtTheMoney.of(equity, curves)
        yields = QuantoYield(asset, rates, rho, curves[paid].bootstrapped(), jnp.zeros_like(rho))
        return DerivedEquity(equity.spot, yields, equity.surface, paid, conversion.currency)
    spot = equity.spot * (rate if is_direct else 1.0 / rate)
    vols = CompoVols(equity.surface, rates, rho, is_direct, jnp.zeros_like(rho))
    return DerivedEquity(spot, equity.dividend_yield, vols, paid, conversion.currency)


class AtTheMoney(eqx.Module):
    """The forwards of an asset, and its at-the-money-forward vols."""

    spot: Float[Array, ""]
    dividend_yield: Any
    surface: Any
    rate: Any

    @classmethod
    def of(cls, asset: Equity, curves: Mapping[str, Any]) -> "AtTheMoney":
        """Return them for an asset of a market."""
        rate = curves[asset.curve].bootstrapped()
        return cls(asset.spot, asset.dividend_yield, asset.surface, rate)

    def growth(self, t: Times) -> Times:
        """Return the ratio of forward to spot."""
        q = self.dividend_yield
        kept = q.discount(t) if hasattr(q, "discount") else jnp.exp(-q * t)
        return kept / self.rate.discount(t)

    def forward(self, t: Times) -> Times:
        """Return the forward at t years."""
        return self.spot * self.growth(t)

    def vol(self, t: Times) -> Times:
        """Return the vol at t years, struck at the forward."""
        return self.surface.vol(t, self.forward(t))


class QuantoYield(eqx.Module):
    """The dividend yield that gives an equity, discounted on another curve, its quanto forward.

    asset: the equity; pair: the FX rate; correlation: of the equity and the value of its currency in the
    payment currency; paid: the discount curve of the payments; shift: added to the yield, per 1.00.
    """

    asset: AtTheMoney
    pair: AtTheMoney
    correlation: Float[Array, ""]
    paid: Any
    shift: Float[Array, ""]

    def discount(self, t: Times) -> Times:
        """Return the discount factor of the yield at t years."""
        drift = self.correlation * self.asset.vol(t) * self.pair.vol(t) + self.shift
        return self.asset.growth(t) * self.paid.discount(t) * jnp.exp(-drift * t)

    def shifted(self, rate: Num[Array, ""] | float) -> "QuantoYield":
        """Return the yield shifted by `rate` (per 1.00)."""
        return eqx.tree_at(lambda yields: yields.shift, self, self.shift + rate)


class CompoVols(eqx.Module):
    """The vols of the product of an equity and an FX rate; see `converted`.

    surface: that of the equity; pair: the FX rate; correlation: of the equity and the value of its currency;
    is_direct: whether the pair quotes that value instead of its inverse; shift: added to all vols.
    """

    surface: Any
    pair: AtTheMoney
    correlation: Float[Array, ""]
    is_direct: bool = eqx.field(static=True)
    shift: Float[Array, ""]

    @property
    def expiries(self) -> Float[Array, " expiries"]:
        return self.surface.expiries

    def vol(self, t: Times, strike: Times) -> Times:
        """Return the implied vol at t years and a strike in the payment currency."""
        forward = self.pair.forward(t)
        own = self.surface.vol(t, strike / forward if self.is_direct else strike * forward)
        rate = self.pair.vol(t)
        variance = own**2 + 2.0 * self.correlation * own * rate + rate**2
        return jnp.sqrt(variance) + self.shift

    def shifted(self, vol: Num[Array, ""] | float) -> "CompoVols":
        """Return the surface with every vol shifted by `vol` (per 1.00)."""
        return eqx.tree_at(lambda vols: vols.shift, self, self.shift + vol)
