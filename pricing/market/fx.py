"""FX pairs: the rate between any two currencies that quoted pairs link, and pairs as option underlyings."""

import functools
import operator
from collections.abc import Iterator, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from jaxtape import stored_jit
from pricing.ingestion.errors import listed

from ..fields import Converted, is_traced, positive
from ..numbers_shown import repr_with_numbers
from .bootstrap import CurveQuotes
from .curve import ZeroCurve
from .equity import Equity
from .fx_vols import DeltaQuotes, DeltaSurface


class MissingRate(ValueError):
    """No chain of quoted pairs leads from one currency to another."""


class FxPair(eqx.Module):
    """An FX pair: one unit of the foreign currency costs `spot` units of the domestic currency.

    EURUSD at 1.08: one euro (foreign) costs 1.08 dollars (domestic). The spot is treated as the rate for an
    exchange today; the settlement lag of two days is ignored.

    Attributes:
        spot: Units of the domestic currency for one of the foreign currency, above 0; None if other pairs imply
            the rate.
        foreign: The ISO code of the currency that is bought and sold, the first in the pair's name.
        domestic: The ISO code of the currency of payment, the second in the name.
        foreign_curve: The name of the foreign currency's discount curve in the market.
        domestic_curve: The name of the domestic currency's discount curve.
        vols: The quotes of its options, or None.

    Examples:
        >>> from pricing.market import FxPair
        >>> FxPair(1.08, "EUR", "USD").domestic
        'USD'
    """

    __repr__ = repr_with_numbers

    spot: Converted[Float[Array, ""] | None] = positive("spot", optional=True)
    foreign: str = eqx.field(static=True)  # pyright: ignore[reportGeneralTypeIssues]
    domestic: str = eqx.field(static=True)  # pyright: ignore[reportGeneralTypeIssues]
    foreign_curve: str = eqx.field(static=True, default="")
    domestic_curve: str = eqx.field(static=True, default="")
    vols: DeltaQuotes | None = None

    def asset(
        self, spot: Float[Array, ""], curves: Mapping[str, ZeroCurve | CurveQuotes]
    ) -> Equity:
        """Return the foreign currency as an asset whose yield is its interest (Garman and Kohlhagen 1983).

        Args:
            spot: The rate of the pair.
            curves: Name -> curve.

        Raises:
            ValueError: The pair has no vols.
        """
        if self.vols is None:
            raise ValueError(
                f"{self.foreign}{self.domestic} has no vols: give them under fx in the market"
            )
        foreign, domestic = (curves[name] for name in (self.foreign_curve, self.domestic_curve))
        foreign, domestic = foreign.bootstrapped(), domestic.bootstrapped()
        surface = _surface(self.vols, spot, foreign, domestic)
        return Equity(spot, foreign, surface, self.domestic_curve, self.domestic)


def _read(
    vols: DeltaQuotes, spot: Float[Array, ""], foreign: ZeroCurve, domestic: ZeroCurve
) -> DeltaSurface:
    grown = foreign.discount(vols.expiries)
    return vols.surface(spot * grown / domestic.discount(vols.expiries), grown)


_stored_surface = stored_jit(runs_briefly=True)(_read)
_surface = eqx.filter_custom_jvp(lambda *quotes: _stored_surface(*quotes))


@_surface.def_jvp
def _surface_jvp(quotes: tuple, dots: tuple) -> tuple[DeltaSurface, DeltaSurface]:
    """Return the surface and its derivative along a tangent of the quotes.

    Outside of a compiled function, `jax.linearize` runs a stored program for the Jacobian, rather than trace
    the surface each time.
    """
    if is_traced(quotes):
        return eqx.filter_jvp(_read, quotes, dots)
    surface, jacobian = _stored_surface(*quotes), _jacobian(*quotes)
    still = jax.tree.map(jnp.zeros_like, quotes)
    dot = ravel_pytree(eqx.combine(dots, still))[0]
    along = jnp.matmul(jacobian, dot, precision="highest")
    return surface, ravel_pytree(surface)[1](along)


@stored_jit(runs_briefly=True)
def _jacobian(*quotes) -> Float[Array, "outputs quotes"]:
    """Return the derivatives of the surface's numbers to the quotes'; 0 for a number that is NaN."""
    flat, tree_of = ravel_pytree(quotes)
    numbers = lambda flat: ravel_pytree(_read(*tree_of(flat)))[0]
    return jnp.where(jnp.isnan(numbers(flat))[:, None], 0.0, jax.jacfwd(numbers)(flat))


def fx_rate(pairs: Mapping[str, FxPair], source: str, target: str) -> Float[Array, ""]:
    """Return the units of `target` that one unit of `source` costs, by chaining quoted pairs.

    Args:
        pairs: The quoted pairs, with at most one chain between any two currencies.
        source: The ISO code of the currency to convert from.
        target: The ISO code of the currency to convert to.

    Raises:
        MissingRate: No chain of pairs links them.
    """
    way = _way(pairs, source, target)
    if way is None:
        known = listed(pairs) if pairs else "no pairs"
        raise MissingRate(
            f"there is no FX rate from {source or 'an unnamed currency'} to {target or 'an unnamed currency'}: "
            f"the market quotes {known}; give a pair that links them, under fx in the market"
        )
    rates = [spot if is_forward else 1.0 / spot for spot, is_forward in way]
    return functools.reduce(operator.mul, rates) if rates else jnp.ones(())


def are_linked(pairs: Mapping[str, FxPair], source: str, target: str) -> bool:
    """Return True if a chain of pairs links two currencies."""
    return _way(pairs, source, target) is not None


def _way(
    pairs: Mapping[str, FxPair], source: str, target: str
) -> list[tuple[Float[Array, ""], bool]] | None:
    """Return the spots on the chain between two currencies, and whether each multiplies or divides; or None."""
    ways: dict[str, list[tuple[Float[Array, ""], bool]]] = {source: []}
    ends = [source]
    for at in ends:  # grows during the loop
        for spot, is_forward, to in _steps(pairs, at):
            if to not in ways:
                ways[to] = [*ways[at], (spot, is_forward)]
                ends.append(to)
    return ways.get(target)


def _steps(pairs: Mapping[str, FxPair], at: str) -> Iterator[tuple[Float[Array, ""], bool, str]]:
    """Yield, for each pair of a currency, the spot, whether it is the foreign one, and the other currency."""
    for pair in pairs.values():
        if pair.spot is None:
            continue
        if pair.foreign == at:
            yield pair.spot, True, pair.domestic
        elif pair.domestic == at:
            yield pair.spot, False, pair.foreign
