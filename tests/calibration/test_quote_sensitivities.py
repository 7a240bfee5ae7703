"""What a fitted model says, differentiated to the quotes, against bumping a quote and calibrating again."""

import dataclasses
import functools
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration import Calibration, calibrate, fit, market_sensitivities, quote_sensitivities
from pricing import BermudanSwaption, European, HullWhite, Market, price
from tests.helpers import dax, double, first_difference, sample_market
from tests.pricing import quoted_market
from tests.references import dax_heston

pytestmark = double


@pytest.fixture(scope="module")
def found():
    return calibrate(dax().equities["DAX"].surface, dax_heston(), rtol=1e-14)


def worth(model):
    """A call between the quotes, and one beyond them."""
    values = [price(European(*of_one), model).value for of_one in ((4400.0, 0.7), (5800.0, 2.2))]
    return values[0] + 2.0 * values[1]


def bumped(place, step):
    """The value under the model that is fitted to the surface with one vol moved."""
    market = dax()
    vols = market.equities["DAX"].surface.vols.at[place].add(step)
    moved = eqx.tree_at(lambda m: m.equities["DAX"].surface.vols, market, vols)
    return float(worth(model_of(moved)["DAX"]))


model_of = fit(dax_heston())


@pytest.mark.costly
@pytest.mark.parametrize(
    "places", [[4, 33, 65, 103], pytest.param(range(104), marks=pytest.mark.slow)], ids=["4", "104"]
)
def test_they_are_those_of_a_bump_and_a_new_calibration(found, places):
    """The fits to bumped quotes end at the rounding of the gradient; differences of fourth order."""
    sensitivities = np.ravel(quote_sensitivities(found, worth))
    step, scale = 1e-4, np.max(np.abs(sensitivities))
    for place in places:
        ups, downs = (
            [bumped(np.unravel_index(place, (8, 13)), sign * n * step) for n in (1, 2)]
            for sign in (1.0, -1.0)
        )
        differences = [up - down for up, down in zip(ups, downs, strict=True)]
        quotient = (8.0 * differences[0] - differences[1]) / (12.0 * step)
        off = abs(quotient - sensitivities[place])
        assert off < 1e-5 * scale
        assert off < 1e-5 * abs(quotient) or abs(quotient) < 1e-2 * scale


@pytest.mark.costly
def test_they_are_those_of_the_differentiated_fit(found):
    """All 104 of them, by reverse mode through `fit`, which expands the loss by other means."""
    sensitivities = quote_sensitivities(found, worth)
    surface = lambda m: m.equities["DAX"].surface.vols

    def value(vols):
        return worth(model_of(eqx.tree_at(surface, dax(), vols))["DAX"])

    wanted = eqx.filter_jit(jax.grad(value))(surface(dax()))
    assert sensitivities.shape == wanted.shape == (8, 13)
    np.testing.assert_allclose(
        sensitivities, wanted, rtol=0.0, atol=1e-5 * float(jnp.max(jnp.abs(wanted)))
    )


@pytest.mark.costly
def test_gauss_newton_is_another_number_where_residuals_are_large(found):
    """The DAX leaves residuals of 1.3 vol points; a model's own vols leave none, and the two agree."""
    exact, approximate = (
        quote_sensitivities(found, worth, hessian=h) for h in ("exact", "gauss-newton")
    )
    scale = float(jnp.max(jnp.abs(exact)))
    assert float(jnp.max(jnp.abs(exact - approximate))) > 1e-3 * scale
    surface = dax().equities["DAX"].surface
    own = eqx.tree_at(lambda s: s.vols, surface, surface.vols + found.residuals)
    again = calibrate(own, dax_heston())
    exact, approximate = (
        quote_sensitivities(again, worth, hessian=h) for h in ("exact", "gauss-newton")
    )
    np.testing.assert_allclose(approximate, exact, atol=1e-6 * float(jnp.max(jnp.abs(exact))))


# --- of a Bermudan swaption, to the matrix and to the curve -----------------------------------------------

SWAPTION = BermudanSwaption(
    0.045, [1.0, 2.0, 3.0, 4.0], [2.0, 3.0, 4.0, 5.0], [1.0, 1.0, 1.0, 1.0], "payer", 100.0
)


def worth_of_swaption(model):
    return price(SWAPTION, model).value


@functools.cache
def rates_market():
    """The 25 vols of 15 February 2002, on a curve of deposits, futures and swaps."""
    vols = np.asarray(sample_market().swaption_vols.vols).tolist()
    years = list(range(1, 6))
    matrix = {"type": "lognormal", "expiries_years": years, "tenors_years": years}
    document = quoted_market.DOCUMENT | {"equities": {}}
    document["swaption_vols"] = matrix | {"vols_by_expiry": vols}
    return Market.from_text(json.dumps(document))


@functools.cache
def hull_white():
    """The fit to them."""
    market = rates_market()
    return calibrate(market.swaption_vols, HullWhite.starting_on(market, "EUR"), rtol=1e-14)


@eqx.filter_jit
def recalibrated(market):
    """The value under the model at the zero of the gradient, by Newton's method from the old optimum."""
    problem = hull_white().problem
    template = problem.template.on_market(market, "EUR")
    problem = dataclasses.replace(problem, quotes=market.swaption_vols, template=template)
    slope = jax.grad(problem.loss)
    newton = lambda _, x: x - jnp.linalg.solve(jax.jacfwd(slope)(x), slope(x))
    start = problem.parameters.free(hull_white().model)
    return worth_of_swaption(problem.model(jax.lax.fori_loop(0, 5, newton, start)))


@functools.cache
def bumped_market():
    """Quote id -> the quotient of a bump of each quote and of a new calibration."""
    market, found = rates_market(), {}
    for quote, level in market.flat_quotes():
        step = 1e-2 if "FUTURE" in quote else 1e-4
        of = lambda h, q=quote, x=level: float(recalibrated(market.with_quotes({q: x + h})))
        found[quote] = first_difference(of, step)
    return found


@functools.cache
def to_the_market():
    slopes = market_sensitivities(hull_white(), worth_of_swaption, rates_market())
    return rates_market().by_quote(slopes)


def assert_are_those_of_bumps(found: dict[str, float], bumped: dict[str, float]):
    """To 1e-5 of the largest, and of itself where a quote is not negligible."""
    one, two = np.array(list(found.values())), np.array(list(bumped.values()))
    largest = np.max(np.abs(two))
    assert list(found) == list(bumped)
    np.testing.assert_allclose(one, two, rtol=0.0, atol=1e-5 * largest)
    matters = np.abs(two) > 1e-3 * largest
    np.testing.assert_allclose(one[matters], two[matters], rtol=1e-5)


@pytest.mark.costly
def test_of_a_bermudan_swaption_to_the_25_quotes_of_a_matrix():
    slopes = quote_sensitivities(hull_white(), worth_of_swaption)
    assert slopes.shape == (5, 5)
    vols = {quote: x for quote, x in bumped_market().items() if quote.startswith("SWAPTION")}
    assert_are_those_of_bumps(dict(zip(vols, slopes.ravel().tolist(), strict=True)), vols)


@pytest.mark.costly
def test_of_a_bermudan_swaption_to_deposits_futures_and_swaps():
    """Through the curve that the model stands on, and through the fit on that curve."""
    is_vol = lambda quote: quote.startswith("SWAPTION")
    curve, vols = (
        [{q: x for q, x in of.items() if is_vol(q) == wanted} for of in (to_the_market(), bumped_market())]
        for wanted in (False, True)
    )  # fmt: skip
    assert len(curve[0]) == 11
    assert_are_those_of_bumps(*curve)
    assert_are_those_of_bumps(*vols)


@pytest.mark.costly
def test_the_refit_is_a_part_of_the_sensitivity_to_the_curve():
    """At parameters that are held, the same quotes say something else."""
    held = jax.grad(lambda market: worth_of_swaption(hull_white().model.on_market(market, "EUR")))(
        rates_market()
    )
    quote = "IR_SWAP/RATE/EUR/5Y"
    held, through = rates_market().by_quote(held)[quote], to_the_market()[quote]
    assert abs(held - through) > 1e-2 * abs(through)


@pytest.mark.costly
def test_of_the_dax_to_vols_spot_and_rates(found):
    """One call; against reverse mode through `fit`."""
    slopes = market_sensitivities(found, worth, dax())
    wanted = eqx.filter_jit(jax.grad(lambda market: worth(model_of(market)["DAX"])))(dax())
    one, two = dax().by_quote(slopes), dax().by_quote(wanted)
    families = {quote.split("/")[0] for quote in one}
    assert families == {"EQUITY", "EQUITY_DIVIDEND", "EQUITY_OPTION", "ZERO"}
    for family in families:
        pairs = [(one[quote], two[quote]) for quote in one if quote.startswith(f"{family}/")]
        got, expected = np.array(pairs).T
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.max(np.abs(expected)))


def test_another_market_than_that_of_the_fit_is_refused(found):
    other = dax().with_quotes({"EQUITY/PRICE/DAX": 4400.0})
    with pytest.raises(ValueError, match="is not that of DAX in this market"):
        market_sensitivities(found, worth, other)
    with pytest.raises(ValueError, match="has quotes for Heston of DAX, and underlying is 'SX5E'"):
        market_sensitivities(found, worth, dax(), "SX5E")


def test_what_cannot_be_differentiated_says_so(found):
    bare = Calibration(found.model, found.residuals, found.result, found.stats)
    with pytest.raises(ValueError, match="does not hold its problem: give what calibrate returned"):
        quote_sensitivities(bare, worth)
    with pytest.raises(ValueError, match="hessian must be 'exact' or 'gauss-newton', got 'bfgs'"):
        quote_sensitivities(found, worth, hessian="bfgs")
