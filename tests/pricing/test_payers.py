"""Equities without dividends take part in the programs of those that pay."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from pricing import Book, Dividends, Heston, risk
from pricing.models.with_dividends import with_dividends_of
from pricing.numerics.slopes import contracted, with_slopes
from tests.helpers import desk_market, kinds_of_sweeps

BOOK = Book.from_text(
    "id,type,underlying,option,strike,expiry\n"
    "E,european,DAX,call,4500,2003-03-18\nP,european,DAX,put,4200,2003-06-17\n"
    "R,european,SX5E,call,3200,2003-06-17\n"
)
FIGURES = "value", "delta", "gamma", "vega", "rho", "theta"


def heston(market):
    """Return a Heston model of each equity; its level follows the vols."""
    found = {}
    for name, equity in market.equities.items():
        variance = 0.1 * equity.surface.vols[3, 6]
        model = Heston(equity.spot, market.curve("EUR"), variance, 2.0, variance, 0.5, -0.6)
        found[name] = with_dividends_of(market, name, model)
    return found


def market_of(*names):
    """Return the sample market with some equities, of which SX5E pays dividends."""
    equities = {name: desk_market().equities[name] for name in names}
    if "SX5E" in names:
        paid = Dividends([-0.1, 0.5, 1.5], cash=[40.0, 50.0, 60.0], proportions=[0.0, 0.01, 0.0])
        equities["SX5E"] = dataclasses.replace(equities["SX5E"], dividends=paid)
    return dataclasses.replace(desk_market(), equities=equities, fx={}, correlations={})


def swept(names, monkeypatch) -> tuple:
    """Return the risk of the trades on some equities, and the kinds of arguments of its sweeps."""
    kinds = kinds_of_sweeps(monkeypatch)
    rows = tuple(row for row in BOOK.rows if row.raw.values["underlying"] in names)
    found = risk(dataclasses.replace(BOOK, rows=rows), market_of(*names), heston)
    monkeypatch.undo()
    return found, kinds


def test_an_equity_beside_a_payer_shares_its_program_and_keeps_its_figures(monkeypatch):
    beside, kinds = swept(("DAX", "SX5E"), monkeypatch)
    alone, (own,) = swept(("DAX",), monkeypatch)
    assert len(kinds) == 2 and len(set(kinds)) == 1 and own not in kinds
    for one, other in zip(alone.trades, beside.trades, strict=False):
        for figure in FIGURES:
            figures = jax.tree.leaves(getattr(other.position, figure))
            expected = jax.tree.leaves(getattr(one.position, figure))
            np.testing.assert_allclose(figures, expected, rtol=1e-12)
    for quote, slope in alone.sensitivities.items():
        if "DAX" in quote:
            np.testing.assert_allclose(beside.sensitivities[quote], slope, rtol=1e-12)
    past, before, after = beside.gradient.equities["SX5E"].dividends.cash
    assert past == 0.0 and before < 0.0 and after != 0.0


def test_slopes_give_the_tangents_of_a_function():
    def function(numbers, rate):
        return {"discounted": numbers["paid"] * jnp.exp(-rate), "rate": rate**2}

    at = {"paid": jnp.asarray([[1.0, 2.0, 3.0]]), "unread": 3}, jnp.asarray(0.5)
    dots = {"paid": jnp.asarray([[0.1, 0.2, -0.3]]), "unread": None}, jnp.asarray(0.7)
    found, slopes = with_slopes(function, *at)
    paid = lambda x, rate: function({"paid": x}, rate)
    value, expected = jax.jvp(paid, (at[0]["paid"], at[1]), (dots[0]["paid"], dots[1]))
    for one, other in ((found, value), (contracted(slopes, dots, found), expected)):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-14), one, other)
