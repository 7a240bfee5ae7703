"""CVA, DVA and FVA beside closed forms, a grid and bumps; profiles, collateral, symmetry, refusals."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from calibration import fit
from pricing import (
    BermudanSwaption,
    BlackScholes,
    European,
    HullWhite,
    Market,
    Swap,
    Swaption,
    VolSurface,
    ZeroCurve,
    price,
)
from pricing.fbsde import CreditCurve, JointModel, NettingSet, xva
from pricing.sampling import Sobol

from ...cases import others_later

DATES, ACCRUALS = np.arange(1.0, 6.0), np.ones(5)
RATES = HullWhite(ZeroCurve([1.0, 3.0, 5.0], [0.02, 0.025, 0.03]), 0.05, 0.01)
CLIENT, BANK = CreditCurve([2.0, 5.0], [0.03, 0.05]), CreditCurve([5.0], [0.02], 0.3)
SWAP = Swap(0.028, 0.0, DATES, ACCRUALS, notional=100.0)
RIGHT = Swaption(0.03, 2.0, DATES[2:], ACCRUALS[2:], notional=100.0)
SPREADS = {"borrowing_spread": 0.01, "lending_spread": 0.004}
SMALL = {"num_dates": 20, "num_paths": 4096, "num_fit_paths": 2048}


def of(netting_set, rates=RATES, parties=(CLIENT, BANK), seed=0, **options):
    key = jax.random.key(seed)
    return xva(netting_set, JointModel(rates), *parties, key=key, **SMALL | options)


def lost(party: CreditCurve, edges: np.ndarray) -> np.ndarray:
    """Return (1 - R) times the chance of a default in each interval."""
    return (1.0 - float(party.recovery)) * -np.diff(np.asarray(party.survival(edges), float))


def is_near(estimate, value, errors=4.0):
    return abs(float(estimate.mean) - value) < errors * float(estimate.std_error)


# --- clean close-out, beside closed forms -------------------------------------------------------------------


@pytest.mark.costly
def test_a_swap_is_a_strip_of_swaptions():
    """EE of each date is a swaption's value in Hull-White, and the CVA their sum (Brigo and Mercurio 2006)."""
    found = of(NettingSet([SWAP]), parties=(CLIENT,))
    t, errors = np.asarray(found.times), np.asarray(found.ee.std_error)
    strip = np.array([
        price(Swaption(0.028, at, DATES[at < DATES], ACCRUALS[at < DATES], notional=100.0), RATES).value
        for at in t
    ])  # fmt: skip
    ee = np.asarray(found.ee.mean * RATES.discount(found.times))
    assert np.all(np.abs(ee - strip) < 4.5 * errors + 1e-9)
    assert is_near(found.cva, strip @ lost(CLIENT, np.linspace(0.0, 5.0, 21)))
    assert float(found.dva.mean) == 0.0
    # x ~ N(0, v) under the measure of the bond that matures on a date, and the payer's value rises in x
    for at, pfe in zip(t[:16], np.asarray(found.pfe), strict=False):
        due = DATES[at < DATES]
        v = 0.01**2 * (1.0 - np.exp(-0.1 * at)) / 0.1
        slope = (1.0 - np.exp(-0.05 * (due - at))) / 0.05
        bonds = np.asarray(RATES.discount(jnp.asarray(due)) / RATES.discount(jnp.asarray(at)))
        bonds = bonds * np.exp(-slope * 1.6449 * np.sqrt(v) - 0.5 * slope**2 * v)
        assert pfe == pytest.approx(100.0 * (1.0 - bonds[-1] - 0.028 * bonds.sum()), rel=0.1)


@pytest.mark.costly
def test_an_option_loses_the_chance_of_default_of_its_value():
    equities = BlackScholes(
        [100.0, 90.0], 0.03, [0.2, 0.3], asset_correlation=[[1.0, 0.4], [0.4, 1.0]]
    )
    model = JointModel(HullWhite(0.03, 0.05, 0.015), equities, [0.3, -0.2])
    trades = [European(95.0, 2.0), European(100.0, 3.0, "put")]
    options = SMALL | {"sampler": Sobol(16)}
    key = jax.random.key(0)
    found = xva(NettingSet(trades, [2.0, 1.0], assets=[0, 1]), model, CLIENT, key=key, **options)
    each = [
        xva(NettingSet([trade], [q], assets=[a]), model, CLIENT, key=key, **options)
        for trade, q, a in zip(trades, (2.0, 1.0), (0, 1), strict=True)
    ]
    assert float(found.value) == pytest.approx(sum(float(one.value) for one in each), rel=1e-12)
    for one, trade in zip(each, trades, strict=True):
        default = 0.6 * (1.0 - float(CLIENT.survival(trade.expiry)))
        assert float(one.cva.mean) == pytest.approx(float(one.value) * default, rel=2e-3)
    # without moving rates the value is that of Black and Scholes
    still = JointModel(HullWhite(0.03, 0.05, 1e-7), equities, [0.3, -0.2])
    plain = xva(NettingSet(trades[:1]), still, CLIENT, key=key, **options)
    alone = price(trades[0], BlackScholes(100.0, 0.03, 0.2)).value
    assert float(plain.value) == pytest.approx(float(alone), rel=1e-6)


@pytest.mark.costly
def test_rights_are_worth_what_other_methods_find():
    """By splines on 257 nodes, whose kinks cost 1e-4 of the values that are added and taken off."""
    bermudan = BermudanSwaption(0.03, [1.0, 2.0, 3.0], DATES, ACCRUALS, notional=100.0)
    trades, quantities = [bermudan, RIGHT, SWAP], np.array([1.0, -2.0, 0.5])
    found = of(NettingSet(trades, quantities))
    known = quantities * [float(price(trade, RATES).value) for trade in trades]
    assert float(found.value) == pytest.approx(known.sum(), abs=2e-4 * np.abs(known).sum())


@pytest.mark.costly
def test_parties_change_places():
    trades, quantities = [SWAP, RIGHT], np.array([1.0, -0.7])
    ours = of(NettingSet(trades, quantities), parties=(CLIENT, BANK))
    theirs = of(NettingSet(trades, -quantities), parties=(BANK, CLIENT))
    np.testing.assert_allclose(ours.cva.mean, theirs.dva.mean, rtol=1e-12)
    np.testing.assert_allclose(ours.dva.mean, theirs.cva.mean, rtol=1e-12)
    np.testing.assert_allclose(ours.ee.mean, theirs.ene.mean, rtol=1e-12)


@pytest.mark.costly
def test_collateral_has_its_limits():
    sets = (NettingSet([SWAP, RIGHT], threshold=x) for x in (0.0, 2.0, 1e9, np.inf))
    none, some, much, free = (of(one, **SPREADS) for one in sets)
    for estimate in (none.cva, none.dva, none.fva, none.total):
        assert float(estimate.mean) == 0.0
    assert float(much.cva.mean) == pytest.approx(float(free.cva.mean), rel=1e-12)
    assert 0.0 < float(some.cva.mean) < float(free.cva.mean)
    assert np.all(np.asarray(some.pfe) <= 2.0 + 1e-9)


@pytest.mark.costly
def test_standard_errors_cover():
    """Of 40 seeds, at least 35 are within two standard errors of the strip's CVA; 38 are expected."""
    t = np.linspace(0.0, 5.0, 21)[:-1] + 0.125
    strip = [
        price(Swaption(0.028, at, DATES[at < DATES], ACCRUALS[at < DATES], notional=100.0), RATES).value
        for at in t
    ]  # fmt: skip
    known = np.array(strip) @ lost(CLIENT, np.linspace(0.0, 5.0, 21))
    found = [of(NettingSet([SWAP]), parties=(CLIENT,), seed=seed).cva for seed in range(40)]
    assert sum(is_near(one, known, 2.0) for one in found) >= 35


# --- close-out on the risky value ---------------------------------------------------------------------------


def by_grid(swaps, quantities, spreads, steps=200) -> float:
    """Return U_0 of -dU = [a (V - U)^+ - b (V - U)^-] dt - Z dW by quadrature of a cubic spline.

    Under the money market's measure, r = f + x, with values that are not deflated: nothing is shared with the
    library but bonds.
    """
    a, sigma, dt = 0.05, 0.01, 5.0 / steps
    z, weights = np.polynomial.hermite_e.hermegauss(9)
    weights = weights / weights.sum()
    x = np.linspace(-0.1, 0.1, 401)
    u = np.zeros_like(x)
    discount = lambda t: np.asarray(RATES.discount(jnp.asarray(t)))
    survival = lambda party, t: np.asarray(party.survival(t))
    for k in reversed(range(steps)):
        t, middle = k * dt, (k + 0.5) * dt
        variance = lambda t: sigma**2 * (1.0 - np.exp(-2.0 * a * t)) / (2.0 * a)
        mean = lambda t: 0.5 * (sigma * (1.0 - np.exp(-a * t)) / a) ** 2
        later = np.exp(-a * dt) * (x - mean(t)) + mean(t + dt)
        later = later[:, None] + np.sqrt(variance(dt)) * z[None]
        forward = -np.log(discount(t + dt) / discount(t))
        ahead = CubicSpline(x, u)(later) @ weights * np.exp(-forward - x * dt)
        value = np.zeros_like(x)
        for swap, quantity in zip(swaps, quantities, strict=True):
            due = np.asarray(swap.payment_dates)
            if not (due := due[due > middle]).size:
                continue
            slope = (1.0 - np.exp(-a * (due - middle))) / a
            bonds = discount(due) / discount(middle)
            bonds = bonds * np.exp(-slope * x[:, None] - 0.5 * slope**2 * variance(middle))
            sign = float(swap.sign) * float(swap.notional) * quantity
            value += sign * (1.0 - bonds[:, -1] - float(swap.fixed_rate) * bonds.sum(1))
        cost = 0.6 * np.log(survival(CLIENT, t) / survival(CLIENT, t + dt)) + spreads[0] * dt
        gain = 0.7 * np.log(survival(BANK, t) / survival(BANK, t + dt)) + spreads[1] * dt
        owed = value - ahead
        u = ahead + cost * np.maximum(owed, 0.0) - gain * np.maximum(-owed, 0.0)
    return float(u[200])


@pytest.mark.costly
def test_a_risky_close_out_is_that_of_a_grid():
    other = Swap(0.02, 0.0, DATES[:3], ACCRUALS[:3], "receiver", notional=100.0)
    known = by_grid((SWAP, other), (1.0, 1.5), (0.01, 0.004))
    options = SPREADS | {"num_paths": 32768, "sampler": Sobol(16), "close_out": "risky"}
    found = of(NettingSet([SWAP, other], [1.0, 1.5]), **options | {"num_dates": 80})
    assert float(found.total.mean) == pytest.approx(known, rel=2e-3)
    parts = float(found.cva.mean - found.dva.mean + found.fva.mean)
    assert parts == pytest.approx(float(found.total.mean), rel=1e-12)


# --- derivatives --------------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("close_out", others_later(["clean", "risky"], ["risky"]))
def test_derivatives_to_quotes_are_those_of_bumps(close_out):
    """One adjoint sweep through the calibration and both bootstraps, beside bumps that calibrate again."""
    quotes = {
        "asof": "2026-01-02",
        "curves": {"EUR": {"days": [365, 1095, 2190], "zero_rates": [0.02, 0.025, 0.03]}},
        "swaption_vols": {
            "curve": "EUR",
            "expiries_years": [1, 3],
            "tenors_years": [2, 3],
            "vols_by_expiry": [[0.3, 0.28], [0.27, 0.25]],
        },
    }
    market = Market.from_text(json.dumps(quotes))
    fitted = fit(HullWhite.starting_on(market, "EUR"))
    netting_set = NettingSet([SWAP, RIGHT], [1.0, 1.0])
    options = SMALL | SPREADS | {"close_out": close_out, "num_paths": 32768, "block": 4096}

    @eqx.filter_jit
    def total(market, spreads, key):
        rates = fitted(market)["EUR"]
        client = CreditCurve.from_spreads([2.0, 5.0], spreads, rates.curve)
        found = xva(netting_set, JointModel(rates), client, BANK, key=key, **options)
        return found.total.mean

    spreads, key = jnp.array([0.02, 0.03]), jax.random.key(1)
    slopes = eqx.filter_jit(eqx.filter_grad(lambda both, key: total(*both, key)))(
        (market, spreads), key
    )
    moves = {
        "rates": (lambda both: both[0].curves["EUR"].zero_rates, 2e-4),
        "vols": (lambda both: both[0].swaption_vols.vols, 2e-3),
        "spreads": (lambda both: both[1], 2e-4),
    }
    for name, (where, by) in moves.items():
        up, down = (
            total(*eqx.tree_at(where, (market, spreads), where((market, spreads)) + sign * by), key)
            for sign in (1.0, -1.0)
        )
        bumped = float(up - down) / (2.0 * by)
        assert float(jnp.sum(where(slopes))) == pytest.approx(bumped, rel=1e-2), name


# --- credit curves ------------------------------------------------------------------------------------------


@pytest.mark.costly
def test_spreads_are_repriced_and_differentiated():
    times, spreads = np.array([1.0, 3.0, 5.0]), np.array([0.01, 0.015, 0.02])
    curve = ZeroCurve([1.0, 5.0], [0.02, 0.03])
    found = CreditCurve.from_spreads(times, spreads, curve, 0.35)
    for end, spread in zip(times, spreads, strict=True):
        t = np.arange(0.0, end + 0.1, 0.25)
        s = np.asarray(found.survival(t))
        protection = 0.65 * np.asarray(curve.discount(0.5 * (t[1:] + t[:-1]))) @ -np.diff(s)
        premium = np.asarray(curve.discount(t[1:])) @ (0.125 * (s[1:] + s[:-1]))
        assert protection / premium == pytest.approx(spread, rel=1e-10)
    rates = lambda spreads: CreditCurve.from_spreads(times, spreads, curve).hazard_rates
    slopes, by = jax.jacrev(rates)(jnp.asarray(spreads)), 1e-6
    for i in range(3):
        move = by * np.eye(3)[i]
        bumped = (rates(spreads + move) - rates(spreads - move)) / (2.0 * by)
        np.testing.assert_allclose(slopes[:, i], bumped, rtol=1e-6, atol=1e-6)


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: NettingSet([]), "trades is empty"),
        (lambda: NettingSet([SWAP], [1.0, 2.0]), "give one for each trade"),
        (lambda: NettingSet([SWAP], threshold=-1.0), "threshold must be a number in"),
        (lambda: NettingSet([European([90.0, 100.0], 1.0)]), "one by one"),
        (lambda: CreditCurve([1.0], [-0.1]), "hazard_rates must be"),
        (lambda: CreditCurve([1.0, 2.0], [0.1]), "one hazard rate for each"),
        (lambda: CreditCurve([1.0], [0.1], 1.5), "recovery must be a number in"),
        (lambda: CreditCurve.from_spreads([1.0, 2.0], [0.05, 0.01], 0.02), "correct the spread"),
        (lambda: CreditCurve.from_spreads([1.0], [0.05], 0.02, 1.0), "below 1"),
        (lambda: of(NettingSet([SWAP]), close_out="mid"), "'clean' or 'risky'"),
        (lambda: of(NettingSet([SWAP]), num_dates=0), "num_dates must be at least 1"),
        (lambda: of(NettingSet([SWAP]), quantile=1.0), "quantile must be between"),
        (lambda: of(NettingSet([SWAP]), borrowing_spread=-0.1), "borrowing_spread must be"),
        (lambda: of(NettingSet([European(100.0, 1.0)])), "equities=BlackScholes"),
        (lambda: JointModel(RATES, BlackScholes(100.0, 0.0, 0.2), [0.1, 0.2]), "one for each asset"),
        (lambda: JointModel(RATES, BlackScholes(100.0, 0.0, 0.2), [1.0]), "closer to 0"),
        (
            lambda: JointModel(
                RATES, BlackScholes(100.0, 0.0, VolSurface([1.0], [90.0, 110.0], [[0.2, 0.2]]))
            ),
            "surface",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_other_kinds_are_refused():
    with pytest.raises(TypeError, match="give Swap, Swaption"):
        NettingSet([HullWhite(0.03, 0.05, 0.01)])

    class Squared(European):
        """A payoff of its own, which a call's value would not be."""

    with pytest.raises(TypeError, match="trade 1 is a Squared: give Swap, Swaption"):
        NettingSet([Squared(100.0, 1.0)])
    with pytest.raises(TypeError, match="give a model, such as JointModel"):
        xva(NettingSet([SWAP]), RATES, CLIENT, key=jax.random.key(0))
    with pytest.raises(ValueError, match="close over the netting set"):
        eqx.filter_jit(lambda one: one.flows.swaps)(NettingSet([SWAP]))


def test_profiles_are_drawn():
    import matplotlib

    matplotlib.use("agg")
    figure = of(NettingSet([SWAP]), parties=(CLIENT,)).plot()
    assert [line.get_label() for line in figure.axes[0].lines[:3]] == ["EE", "-ENE", "PFE"]
    matplotlib.pyplot.close(figure)
