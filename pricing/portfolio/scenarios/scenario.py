"""A scenario: named moves of spots, vols, rates and FX rates."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Array

from ...ingestion.errors import listed, show
from ...ingestion.field_types import closest, wrong_number
from ...ingestion.validation import ValidationIssue
from ...market import Equity, Market
from ...market.fx import fx_rate
from ...market.fx_vols import NO_SMILE
from ...market.quote_bounds import rate_vol_slip

ALL = "all"
"""The key for every name that a scenario does not list."""

Moves = Mapping[str, float]

_RELATIVE = {"above": -1.0, "most": 3.0}
_OF_VOLS = {"least": -0.9, "most": 0.9}
BOUNDS = {
    "spots": _RELATIVE,
    "fx": _RELATIVE,
    "rates": {"least": -0.2, "most": 0.2},
    **dict.fromkeys(("vols", "swaption_vols", "cap_vols"), _OF_VOLS),
}
"""Field of moves -> the bounds of its numbers; larger ones are percentages, vol points or basis points."""


@dataclass(frozen=True)
class Scenario:
    """A named move of the market.

    First the quotes move and the models are fitted again, then the spots move with the models' parameters
    fixed. These are the conventions of `vega`, `rho` and `delta`, which therefore give the P&L of small moves.

    Attributes:
        name: The name of the scenario.
        spots: Equity -> relative move of its spot: -0.2 is 20 % down. `all` means those not listed.
        vols: Equity or FX pair -> parallel move of its implied vols, per 1.00: 0.05 is 5 points. `all` means
            equities. For a pair the at-the-money vols move; risk reversals and butterflies stay.
        rates: Curve -> parallel move of its zero rates, per 1.00: 0.01 is 100 bp.
        swaption_vols: The parallel move of the swaption vols, in their own unit.
        fx: FX pair, such as "EURUSD" -> relative move of its spot.
        cap_vols: Curve -> parallel move of the vols of caplets on its rates, in their own unit.

    Examples:
        >>> from pricing.portfolio.scenarios import Scenario
        >>> crash = Scenario("crash", spots={"all": -0.2, "DAX": -0.25})
        >>> crash.spot("DAX"), crash.spot("SX5E"), crash.vol("DAX")
        (-0.25, -0.2, 0.0)
    """

    name: str
    spots: Moves = field(default_factory=dict)
    vols: Moves = field(default_factory=dict)
    rates: Moves = field(default_factory=dict)
    swaption_vols: float = 0.0
    fx: Moves = field(default_factory=dict)
    cap_vols: Moves = field(default_factory=dict)

    def spot(self, name: str) -> float:
        """Return the relative move of an equity's spot."""
        return _move(self.spots, name)

    def vol(self, name: str) -> float:
        """Return the move of an equity's implied vols."""
        return _move(self.vols, name)

    def spot_move(self, market: Market, name: str) -> float:
        """Return the relative move of the spot of an underlying; 0 for a curve.

        Args:
            market: The market before.
            name: The name of the underlying.
        """
        if name in market.equities:
            return self.spot(name)
        if found := market.conversion(name):
            move = 1.0 + self.spot(found.asset)
            if found.kind == "quanto":
                return move - 1.0
            own = market.currency_of(found.asset)
            return move * self._rate_move(market, own, found.currency) - 1.0
        if name not in market.fx:
            return 0.0
        return self._rate_move(market, market.fx[name].foreign, market.fx[name].domestic) - 1.0

    def _rate_move(self, market: Market, source: str, target: str) -> float:
        """Return the ratio of the FX rate after the move to the rate before."""
        return self.fx_rate(market, source, target) / float(market.fx_rate(source, target))

    def rate(self, name: str) -> float:
        """Return the move of a curve's zero rates."""
        return _move(self.rates, name)

    def fx_rate(self, market: Market, source: str, target: str) -> float:
        """Return the units of `target` that one unit of `source` costs after the move.

        Args:
            market: The market before.
            source: The ISO code of the currency to convert from.
            target: The ISO code of the currency to convert to.
        """
        pairs = {
            name: replace(pair, spot=pair.spot * (1.0 + _move(self.fx, name)))
            for name, pair in market.fx.items()
            if pair.spot is not None
        }
        return float(fx_rate(pairs, source, target))

    def moved(self, market: Market) -> Market:
        """Return the market with vols and rates moved, as caplet vols and zero rates; spots do not move.

        Args:
            market: The market before.
        """
        market = market.bootstrapped(throw=False)
        curves = {name: c.shifted(self.rate(name)) for name, c in market.curves.items()}
        equities = {
            name: replace(equity, surface=equity.surface.shifted(self.vol(name)))
            for name, equity in market.equities.items()
        }
        pairs = {}
        for name, pair in market.fx.items():
            vols = pair.vols
            if vols is not None and (move := self.vols.get(name)):
                vols = replace(vols, at_the_money=vols.at_the_money + move)
            pairs[name] = replace(pair, vols=vols)
        quoted = market.swaption_vols
        if quoted is not None:
            quoted = replace(quoted, vols=quoted.vols + self.swaption_vols)
        caplets: Any = market.cap_vols
        of_caps = {name: vols.shifted(_move(self.cap_vols, name)) for name, vols in caplets.items()}
        moved = {"curves": curves, "equities": equities, "fx": pairs, "cap_vols": of_caps}
        return replace(market, **moved, swaption_vols=quoted)

    def problems(self, market: Market) -> Iterator[ValidationIssue]:
        """Yield the problems of the moves in a market.

        Args:
            market: The market that would move.
        """
        sections = {"spots": market.equities, "vols": market.underlyings, "rates": market.curves}
        kinds = {"rates": "a curve", "fx": "a pair of currencies", "cap_vols": "a curve with caps"}
        for section, known in {**sections, "fx": market.fx, "cap_vols": market.cap_vols}.items():
            for name in getattr(self, section):
                if name not in (ALL, *known):
                    what = kinds.get(section, "an equity")
                    message = f"{show(name)} is not {what} of the market"
                    remedy = f"{closest(name, known)}give {ALL} or one of {listed(known)}"
                    yield ValidationIssue((section, name), show(name), message, remedy)
        for section, bounds in BOUNDS.items():
            moves = getattr(self, section)
            for name, move in (moves if isinstance(moves, Mapping) else {"": moves}).items():
                if wrong := wrong_number("move", move, **bounds):
                    yield ValidationIssue(
                        (section, name) if name else (section,), show(move), *wrong
                    )
        for name, equity in market.equities.items():
            path = "vols", name if name in self.vols else ALL
            yield from _too_low(path, self.vol(name), equity.surface.vols, f"of {name}")
            yield from self._below_dividends(name, equity)
        for name, pair in market.fx.items():
            if pair.vols is not None and (move := self.vols.get(name)):
                vols = pair.vols.at_the_money
                low = list(_too_low(("vols", name), move, vols, f"of {name}"))
                yield from low or _no_smile(name, move, market)
        for name in market.cap_vols if self.cap_vols else ():
            path = "cap_vols", name if name in self.cap_vols else ALL
            caplets, move = market.caplet_vols(name), _move(self.cap_vols, name)
            yield from _too_low(path, move, caplets.vols, f"of caplets on {name}")
            yield from _in_other_unit(path, move, caplets.vols, caplets.kind)
        if market.swaption_vols is not None:
            vols = market.swaption_vols.vols
            path, move = ("swaption_vols",), self.swaption_vols
            yield from _too_low(path, move, vols, "of the swaptions")
            yield from _in_other_unit(path, move, vols, market.swaption_vols.kind)
        elif self.swaption_vols:
            value, message = f"{self.swaption_vols:g}", "the market has no swaption vols"
            yield ValidationIssue(("swaption_vols",), value, message, "leave the move out")

    def _below_dividends(self, name: str, equity: Equity) -> Iterator[ValidationIssue]:
        """Yield the problem of a spot that falls below the value of its future dividends, if it does."""
        move, paid = self.spot(name), equity.dividends
        if move and paid is not None and float(equity.spot * (1.0 + move)) <= float(paid.owed):
            path = "spots", name if name in self.spots else ALL
            message = f"{move:g} takes the spot of {name}, {equity.spot:g}, below its dividends"
            least = float(paid.owed / equity.spot) - 1.0
            remedy = f"give a move above {least:.3g}: {paid.owed:g} of cash is to come"
            yield ValidationIssue(path, f"{move:g}", message, remedy)


def _move(moves: Moves, name: str) -> float:
    return moves.get(name, moves.get(ALL, 0.0))


def _too_low(
    path: tuple[str, ...], move: float, vols: Array, whose: str
) -> Iterator[ValidationIssue]:
    """Yield the problem of a move that takes a vol to 0 or below, if it does."""
    if move and (least := float(np.nanmin(vols))) + move <= 0.0:
        message = f"{move:g} takes the smallest vol {whose}, {least:g}, to 0 or below"
        yield ValidationIssue(path, f"{move:g}", message, f"give a move above {-least:g}")


def _no_smile(name: str, move: float, market: Market) -> Iterator[ValidationIssue]:
    """Yield the problem of a move of the vols of an FX pair after which it has no smile, if it has none."""
    surface: Any = Scenario("", vols={name: move}).moved(market).asset(name).surface
    if surface.first_fault() is not None:
        message = f"with {move:g}, the quotes of {name} {NO_SMILE}"
        yield ValidationIssue(("vols", name), f"{move:g}", message, "give a smaller move")


def _in_other_unit(
    path: tuple[str, ...], move: float, vols: Array, kind: str
) -> Iterator[ValidationIssue]:
    """Yield the problem of a move of the vols of rates that is in another unit than they, if it is."""
    if move and (slip := rate_vol_slip(kind, np.asarray(vols) + move)):
        yield ValidationIssue(path, f"{move:g}", f"with {move:g}, {slip.message}", slip.remedy)
