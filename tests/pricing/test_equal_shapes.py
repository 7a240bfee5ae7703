"""Models whose curves and dividends differ in length share programs, with the same figures."""

import dataclasses

import jax
import numpy as np
import pytest

from pricing import Book, Dividends, ZeroCurve, risk
from pricing.models.surface_models import black_scholes
from pricing.portfolio.sweep import fitted_models
from pricing.portfolio.sweep.equal_shapes import of_equal_shapes
from tests.helpers import desk_market, double, kinds_of_sweeps

pytestmark = double

BOOK = Book.from_text(
    "id,type,underlying,option,strike,expiry\n"
    "D,european,DAX,call,4500,2003-03-18\nS,european,SX5E,call,3200,2003-06-17\n"
    "R,european,RHEIN,call,60,2003-06-17\n"
)


def market():
    """Return the sample market with a shorter curve, and two payers."""
    found = desk_market()
    euro, equities = found.curves["EUR"], dict(found.equities)
    short = dataclasses.replace(euro, times=euro.times[2:6], zero_rates=euro.zero_rates[2:6])
    for name, paid in (("SX5E", [40.0]), ("RHEIN", [1.0, 1.2, 1.0, 1.3, 1.1])):
        times = 0.3 + 0.5 * np.arange(len(paid))
        equities[name] = dataclasses.replace(equities[name], dividends=Dividends(times, cash=paid))
    equities["SX5E"] = dataclasses.replace(equities["SX5E"], curve="short")
    curves = {**found.curves, "short": short}
    return dataclasses.replace(
        found, equities=equities, curves=curves, fx={}, correlations={}, labels=()
    )


def swept(monkeypatch, lengthen):
    """Return the risk of the book, and the kinds of arguments of its sweeps."""
    kinds = kinds_of_sweeps(monkeypatch)
    if not lengthen:
        monkeypatch.setattr(fitted_models, "of_equal_shapes", lambda models: models)
    found = risk(BOOK, market(), black_scholes)
    monkeypatch.undo()
    return found, set(kinds)


@pytest.mark.costly
def test_payers_on_two_curves_share_a_program_and_keep_their_figures(monkeypatch):
    usual, kinds = swept(monkeypatch, lengthen=True)
    alone, more = swept(monkeypatch, lengthen=False)
    assert (len(kinds), len(more)) == (2, 3)  # the share without dividends has a program of its own
    assert usual.models["SX5E"].dividends.cash.tolist() == [40.0]
    for figure in ("value", "delta", "gamma", "vega", "rho", "theta"):
        for one, other in zip(alone.trades, usual.trades, strict=True):
            pairs = (jax.tree.leaves(getattr(x.position, figure)) for x in (other, one))
            np.testing.assert_allclose(*pairs, rtol=1e-11)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10),
        alone.gradient, usual.gradient,
    )  # fmt: skip


@pytest.mark.parametrize("t", [0.2, 0.5, 0.6, 1.0, 1.7, 2.0, 3.0])
def test_a_longer_curve_has_the_same_values_and_slopes(t):
    curve = ZeroCurve([0.5, 1.0, 2.0], [0.02, 0.03, 0.01])
    longest = ZeroCurve(np.arange(1.0, 8.0), np.arange(1.0, 8.0))
    longer = of_equal_shapes([curve, longest])[0]
    assert longer.times.size == 7
    both = jax.value_and_grad(lambda curve, t: curve.zero_rate(t), argnums=1)
    np.testing.assert_allclose(both(longer, t), both(curve, t), rtol=1e-13, atol=1e-16)


def test_flat_curves_and_the_longest_stay_as_they_are():
    flat, long = ZeroCurve([1.0], [0.02]), ZeroCurve([1.0, 2.0], [0.02, 0.03])
    models = {("a",): flat, ("b",): long, ("c",): Dividends([0.5], cash=[1.0])}
    found = of_equal_shapes(models)
    assert found[("a",)] is flat and found[("b",)] is long
    assert found[("c",)].cash.tolist() == [0.0, 0.0, 0.0, 1.0]
