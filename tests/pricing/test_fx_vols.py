"""Deltas of FX options by convention, their strikes, and surfaces from quotes by delta."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import QuantLib as ql
from jax.flatten_util import ravel_pytree

from pricing.market import DeltaConvention, DeltaQuotes, FxPair, ZeroCurve
from tests.helpers import double

CONVENTIONS = {
    ("spot", False): ql.DeltaVolQuote.Spot,
    ("forward", False): ql.DeltaVolQuote.Fwd,
    ("spot", True): ql.DeltaVolQuote.PaSpot,
    ("forward", True): ql.DeltaVolQuote.PaFwd,
}
SIDES = {1.0: ql.Option.Call, -1.0: ql.Option.Put}


@double
@pytest.mark.parametrize("words", CONVENTIONS, ids=str)
def test_deltas_and_strikes_are_those_of_quantlib(words):
    spot, domestic, foreign = 1.421, 0.9973, 0.9822
    convention, forward = DeltaConvention(*words), spot * foreign / domestic
    cases = np.array(list(itertools.product(SIDES, (0.02, 0.1, 0.35), (0.1, 0.25, 0.4))))
    side, deviation, delta = cases.T
    strikes = convention.strike(delta, side, forward, deviation, foreign)
    deltas = convention.delta_of(strikes, side, forward, deviation, foreign)
    np.testing.assert_allclose(deltas, side * delta, rtol=1e-13)
    for (sign, s, size), strike in zip(cases.tolist(), strikes.tolist(), strict=True):
        peer = ql.BlackDeltaCalculator(SIDES[sign], CONVENTIONS[words], spot, domestic, foreign, s)
        assert peer.deltaFromStrike(strike) == pytest.approx(sign * size, rel=1e-12)
        # QuantLib searches the strike of a premium-adjusted delta to 1e-10
        assert peer.strikeFromDelta(sign * size) == pytest.approx(strike, rel=1e-8)


@double
@pytest.mark.parametrize(
    ("at_the_money", "peer"),
    [("delta-neutral", ql.DeltaVolQuote.AtmDeltaNeutral), ("forward", ql.DeltaVolQuote.AtmFwd)],
)
@pytest.mark.parametrize("adjusted", [False, True])
def test_the_money_is_that_of_quantlib(at_the_money, adjusted, peer):
    convention = DeltaConvention("spot", adjusted, at_the_money)
    kind = CONVENTIONS["spot", adjusted]
    forward = 103.0 * 0.98508 / 0.99482
    calculator = ql.BlackDeltaCalculator(ql.Option.Call, kind, 103.0, 0.99482, 0.98508, 0.0725)
    strike = convention.money_strike(forward, jnp.asarray(0.0725))
    assert float(strike) == pytest.approx(calculator.atmStrike(peer), rel=1e-12)


@double
@pytest.mark.parametrize(
    ("words", "side", "spot", "domestic", "foreign", "deviation", "strike", "delta"),
    [  # Castagna, FX Options and Smile Risk (Wiley 2009), with the tolerance of QuantLib's test suite
        (("spot", False), -1.0, 103.0, 0.99482, 0.98508, 0.07247845, 97.47, 0.25),
        (("spot", True), -1.0, 103.0, 0.99482, 0.98508, 0.07247845, 97.22, 0.25),
        # Reiswich's own implementation, the values of QuantLib's test suite
        (("spot", False), 1.0, 1.421, 0.997306, 0.992266, 0.1180654, 1.608080, 0.15),
        (("spot", True), 1.0, 1.421, 0.997306, 0.992266, 0.1180654, 1.600545, 0.15),
        (("forward", False), 1.0, 1.421, 0.997306, 0.992266, 0.1180654, 1.609029, 0.15),
        (("forward", True), 1.0, 1.421, 0.997306, 0.992266, 0.1180654, 1.601550, 0.15),
        (("spot", True), 1.0, 122.121, 0.9695434, 0.9872347, 0.0887676, 117.7096, 0.67),
        (("forward", True), 1.0, 122.121, 0.9695434, 0.9872347, 0.0887676, 118.0532, 0.67),
        (("spot", True), -1.0, 3.4582, 0.99979, 0.9250616, 0.3199034, 3.778327, 0.821),
        (("forward", True), -1.0, 3.4582, 0.99979, 0.9250616, 0.3199034, 3.65728, 0.821),
    ],
)
def test_published_strikes(words, side, spot, domestic, foreign, deviation, strike, delta):
    forward = spot * foreign / domestic
    found = float(DeltaConvention(*words).strike(delta, side, forward, deviation, foreign))
    assert found == pytest.approx(strike, abs=0.01 if spot == 103.0 else 0.0, rel=2e-5)


def test_a_delta_that_no_strike_has_is_nan():
    """A premium-adjusted call of much vol has small deltas alone."""
    convention = DeltaConvention("spot", premium_adjusted=True)
    found = convention.strike(jnp.array([0.2, 0.5]), 1.0, 1.0, 1.5, 1.0)
    assert np.isfinite(found[0]) and np.isnan(found[1])


def quotes_of(convention=None) -> DeltaQuotes:
    return DeltaQuotes(
        [0.25, 1.0, 2.0],
        [0.1, 0.11, 0.12],
        [[-0.01, -0.018], [-0.012, -0.02], [-0.01, -0.02]],
        [[0.003, 0.01], [0.004, 0.012], [0.004, 0.012]],
        convention or DeltaConvention("spot", premium_adjusted=True),
    )


FORWARDS, DISCOUNTS = [1.3, 1.31, 1.33], [0.995, 0.98, 0.95]


@pytest.mark.costly
@double
def test_the_surface_has_the_quotes_at_the_strikes_of_their_deltas():
    quotes = quotes_of()
    surface = quotes.surface(FORWARDS, DISCOUNTS)
    ten_put, put, money, call, ten_call = surface.vol(surface.expiries[:, None], surface.strikes).T
    np.testing.assert_allclose(money, quotes.at_the_money, rtol=1e-13)
    wings = zip((call - put, ten_call - ten_put), quotes.risk_reversals.T, strict=True)
    for found, quoted in wings:
        np.testing.assert_allclose(found, quoted, rtol=1e-10)
    middles = zip((call + put, ten_call + ten_put), quotes.butterflies.T, strict=True)
    for found, quoted in middles:
        np.testing.assert_allclose(0.5 * found - money, quoted, rtol=1e-10)
    deviation = surface.vols * jnp.sqrt(surface.expiries)[:, None]
    side = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
    deltas = quotes.convention.delta_of(
        surface.strikes,
        side[None],
        surface.forwards[:, None],
        deviation,
        jnp.array(DISCOUNTS)[:, None],
    )
    np.testing.assert_allclose(deltas[:, [0, 1, 3, 4]], [[-0.1, -0.25, 0.25, 0.1]] * 3, rtol=1e-12)
    straddle = deltas[:, 2] + quotes.convention.delta_of(
        surface.strikes[:, 2], -1.0, surface.forwards, deviation[:, 2], jnp.array(DISCOUNTS)
    )
    np.testing.assert_allclose(straddle, 0.0, atol=1e-14)
    assert surface.first_fault() is None
    far = surface.vol(1.0, jnp.array([0.2, 0.5, 3.0, 9.0]))
    assert np.all((np.asarray(far) > 0.05) & (np.asarray(far) < 0.2))  # it does not run away


@double
def test_three_quotes_are_on_the_parabola_of_malz():
    """Beside a fit of NumPy, in x = N(log(F/K) / s)."""
    quotes = DeltaQuotes([1.0], [0.1], [[-0.01]], [[0.003]])
    surface = quotes.surface([1.3], [0.98])
    place = lambda k: jax.scipy.stats.norm.cdf(jnp.log(1.3 / k) / 0.1)
    parabola = np.polyfit(place(surface.strikes[0]), surface.vols[0], 2)
    strikes = jnp.linspace(1.0, 1.7, 9)
    np.testing.assert_allclose(
        surface.vol(1.0, strikes), np.polyval(parabola, place(strikes)), rtol=1e-12
    )


@pytest.mark.costly
@double
@pytest.mark.parametrize("words", [("spot", True)], ids=str)
def test_derivatives_to_quotes_are_those_of_bumps(words):
    """To each quote, and the second along a direction, through the search of premium-adjusted strikes."""
    leaves, structure = jax.tree.flatten(quotes_of(DeltaConvention(*words)))
    flat, unravel = ravel_pytree(leaves)

    @jax.jit
    def value(x):
        quotes = jax.tree.unflatten(structure, unravel(x))
        return quotes.surface(jnp.array(FORWARDS), jnp.array(DISCOUNTS)).vol(0.7, 1.2)

    slope = jax.jit(jax.grad(value))(flat)
    moved = np.asarray(flat)[None] + 1e-5 * np.concatenate([np.eye(flat.size), -np.eye(flat.size)])
    ups, downs = np.split(np.array([value(x) for x in moved]), 2)
    np.testing.assert_allclose(slope, (ups - downs) / 2e-5, rtol=1e-7, atol=1e-8)
    along = 0.01 * jnp.sin(jnp.arange(1.0, 1.0 + flat.size))
    on_line = lambda h: value(flat + h * along)
    curve = jax.jit(jax.jacfwd(jax.jacfwd(on_line)))(0.0)
    up, now, down = (on_line(h) for h in (1e-2, 0.0, -1e-2))
    assert float(curve) == pytest.approx(float(up - 2 * now + down) / 1e-4, rel=1e-4)


@pytest.mark.costly
@double
def test_derivatives_outside_of_programs_are_those_within_one():
    """A pair's asset reads a stored Jacobian outside of programs; a program differentiates the surface."""
    curves = {
        name: ZeroCurve([0.5, 2.0], [0.02, rate]) for name, rate in (("f", 0.03), ("d", 0.01))
    }
    pair = FxPair(1.3, "EUR", "USD", "f", "d", quotes_of())

    def value(pair, curves):
        asset = pair.asset(pair.spot, curves)
        return asset.surface.vol(0.7, 1.2)

    found, compiled = (run(pair, curves) for run in (jax.grad(value), jax.jit(jax.grad(value))))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-13), found, compiled
    )
    of_spot = lambda spot: value(eqx.tree_at(lambda pair: pair.spot, pair, spot), curves)
    up, down = (jax.grad(of_spot)(jnp.array(spot)) for spot in (1.3 + 1e-4, 1.3 - 1e-4))
    second = jax.grad(jax.grad(of_spot))(jnp.array(1.3))
    assert float(second) == pytest.approx(float(up - down) / 2e-4, rel=1e-5)
    spots = jnp.array([1.3, 1.31])
    np.testing.assert_allclose(jax.vmap(of_spot)(spots), [of_spot(s) for s in spots], rtol=1e-12)


def test_strikes_are_found_in_single_precision():
    convention = DeltaConvention("forward", premium_adjusted=True)
    delta, side, forward, deviation = (jnp.float32(x) for x in (0.25, 1.0, 1.3, 0.1))
    strike = convention.strike(delta, side, forward, deviation, jnp.float32(1.0))
    assert strike.dtype == jnp.float32
    found = convention.delta_of(strike, side, forward, deviation, jnp.float32(1.0))
    assert float(found) == pytest.approx(0.25, rel=2e-5)


@pytest.mark.parametrize(
    ("rows", "wings"),
    [([0.1], ([[0.01]] * 2, [[0.01]] * 2)), ([0.1] * 2, ([[0.01]] * 2, [[0.01]] * 3))],
)
def test_quotes_of_wrong_shapes_are_refused(rows, wings):
    with pytest.raises(ValueError, match="give one number for each expiry"):
        DeltaQuotes([0.5, 1.0], rows, *wings)


# --- market strangles ---------------------------------------------------------------------------------


def market_quotes(words=("spot", True)) -> DeltaQuotes:
    own = quotes_of(DeltaConvention(*words))
    return DeltaQuotes(
        own.expiries,
        own.at_the_money,
        own.risk_reversals,
        own.butterflies,
        own.convention,
        "market",
    )


@double
@pytest.mark.parametrize("words", CONVENTIONS, ids=str)
def test_market_strangles_have_their_prices_on_the_smile(words):
    """By QuantLib's strikes and Black's formula; the butterflies are found from the smile's own strikes."""
    quotes, spot = market_quotes(words), 1.3
    surface = quotes.surface(FORWARDS, DISCOUNTS)
    for row, (forward, foreign) in enumerate(zip(FORWARDS, DISCOUNTS, strict=True)):
        t, domestic = float(quotes.expiries[row]), foreign * spot / forward
        for place, delta in enumerate((0.25, 0.1)):
            vol = float(quotes.at_the_money[row] + quotes.butterflies[row, place])
            prices = []
            for side, option in SIDES.items():
                given = spot, domestic, foreign, vol * t**0.5
                peer = ql.BlackDeltaCalculator(option, CONVENTIONS[words], *given)
                strike = peer.strikeFromDelta(side * delta)
                vols = vol, float(surface.vol(t, strike))
                prices.append([ql.blackFormula(option, strike, forward, v * t**0.5) for v in vols])
            np.testing.assert_allclose(*np.sum(prices, axis=0), rtol=1e-9)
    _, put, money, call, _ = surface.vols.T
    np.testing.assert_allclose(call - put, quotes.risk_reversals[:, 0], rtol=1e-10)
    assert np.all(np.abs(0.5 * (call + put) - money - quotes.butterflies[:, 0]) > 1e-5)


@pytest.mark.costly
@double
def test_without_risk_reversals_market_and_smile_strangles_are_one():
    wings = [[0.0]] * 3, [[0.003], [0.004], [0.004]]
    one, other = (
        DeltaQuotes([0.25, 1.0, 2.0], [0.1, 0.11, 0.12], *wings, strangles=strangles)
        for strangles in ("smile", "market")
    )
    strikes = jnp.linspace(1.0, 1.7, 9)
    found = (quotes.surface(FORWARDS, DISCOUNTS).vol(1.0, strikes) for quotes in (one, other))
    np.testing.assert_allclose(*found, rtol=1e-10)


@pytest.mark.costly
@double
def test_derivatives_through_market_strangles_are_those_of_differences():
    @jax.jit
    def vol(given):
        money, reversal, butterfly, forward, discount = given[:, None]
        quotes = DeltaQuotes([1.0], [0.1], [[0.0]], [[0.0]], strangles="market")
        leaves = lambda q: (q.at_the_money, q.risk_reversals, q.butterflies)
        quotes = eqx.tree_at(leaves, quotes, (money, reversal[None], butterfly[None]))
        return quotes.surface(forward, discount).vol(1.0, 1.45)

    given = jnp.array([0.11, -0.012, 0.004, 1.31, 0.98])
    steps = 1e-5 * jnp.eye(5)
    both = [jax.vmap(lambda step, by=by: vol(given + by * step))(steps) for by in (1.0, -1.0)]
    slope = jax.jit(jax.grad(vol))
    np.testing.assert_allclose(slope(given), (both[0] - both[1]) / 2e-5, rtol=1e-6, atol=1e-8)
    second = jax.jit(jax.jacfwd(jax.grad(vol)))(given)
    bent = (jax.vmap(slope)(given[None] + steps) - jax.vmap(slope)(given[None] - steps)) / 2e-5
    np.testing.assert_allclose(second, bent, rtol=1e-5, atol=1e-5)


@pytest.mark.costly
def test_market_strangles_in_single_precision():
    def vols():
        return market_quotes().surface(FORWARDS, DISCOUNTS).vol(1.2, jnp.array([1.1, 1.5]))

    with jax.enable_x64(True):
        exact = vols()
    with jax.enable_x64(False):
        found = vols()
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, exact, rtol=2e-5)


@pytest.mark.costly
def test_a_market_strangle_without_a_smile_is_found():
    quotes = DeltaQuotes([1.0], [0.1], [[-0.19]], [[0.001]], strangles="market")
    assert quotes.surface([1.3], [0.98]).first_fault() == 0
