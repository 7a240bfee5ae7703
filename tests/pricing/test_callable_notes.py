"""Notes with coupons, memory, a knock-in or several assets, beside exact values and plain paths."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    Autocallable,
    Barrier,
    BlackScholes,
    ClosedForm,
    Dividends,
    FiniteDifference,
    MonteCarlo,
    Quadrature,
    WithDividends,
    ZeroCurve,
    greeks,
    price,
)
from pricing.methods.under_dividends import for_model
from pricing.products import DiscreteBarrier, Payoff
from pricing.sampling import Sobol
from tests.helpers import double, first_difference

pytestmark = double

DATES = np.array([0.25, 0.5, 0.75, 1.0])
COUPONS = np.array([0.02, 0.03, 0.0, 0.02])
TERMS = {"dates": DATES, "coupons": COUPONS, "call_level": 103.0, "protection": 95.0}
TERMS |= {"initial_spot": 100.0, "notional": 10.0}
STEPS = np.array([np.inf, 1.0, 0.98, 0.95])
PHOENIX = {"coupon_barrier": 90.0, "memory": "yes", "missed": 0.03, "call_steps": STEPS}
EQUITY = BlackScholes(100.0, 0.03, 0.25, 0.01)
PAYER = WithDividends(EQUITY, Dividends([0.3, 0.6, 1.2], cash=[2.0, 3.0, 1.5]))
CORRELATION = np.array([[1.0, 0.5, 0.3], [0.5, 1.0, -0.2], [0.3, -0.2, 1.0]])
THREE = BlackScholes(
    [100.0, 95.0, 105.0], 0.03, [0.2, 0.3, 0.25], 0.01, asset_correlation=CORRELATION
)
KEY = jax.random.key(1)
METHOD = MonteCarlo(2**14, 4, 2**13, sampler=Sobol())
FIGURES = ("value", "delta", "gamma", "vega", "rho")


def legs(memory, knock_in):
    """The note as a batch of barriers on dates: one for what it redeems, one a coupon, one for a knock-in.

    A coupon is paid on the first date at the barrier of the coupons from its own on; without memory on its own
    alone.
    """
    call, coupons = 103.0 * STEPS, 10.0 * np.append(0.03 * memory, COUPONS)
    level = np.where(COUPONS > 0.0, 90.0, call)
    rows = [(np.zeros(4), call, np.full(4, 10.0), 1.0)]
    for start, coupon in enumerate(coupons):
        own, date = max(start - 1, 0), np.arange(4)
        paid = np.where(date >= own if memory else date == own, coupon, 0.0)
        rows.append((np.zeros(4), np.where(date < own, call, level), paid, 0.0))
    rows.append((np.full(4, knock_in), call, np.zeros(4), -1.0 * (knock_in > 0.0)))
    lower, upper, paid, alive = map(np.array, zip(*rows, strict=True))
    one = np.ones_like(alive)
    nothing = 95.0 * one, one, 0.0 * one, 0.0 * one
    redeemed = np.where(alive > 0.0, 10.0, 0.0)
    # below the protection the note pays the spot, and its notional if it was never knocked in
    below = np.where(alive > 0.0, 0.1, 0.1 * alive), np.where(alive < 0.0, 10.0, 0.0)
    pieces = (95.0 * one, one, 0.0 * one, redeemed), (95.0 * one, -one, *below)
    return DiscreteBarrier(
        np.tile(DATES, (len(rows), 1)), lower, upper, np.zeros_like(paid), paid,
        alive=Payoff.sum(*map(_arrays, pieces)), always=Payoff.sum(_arrays(nothing)),
    )  # fmt: skip


def _arrays(numbers):
    return tuple(map(jnp.asarray, numbers))


CASES = {
    "coupons": ({"memory": "no", "missed": 0.0}, (0, 0.0)),
    "memory": ({}, (1, 0.0)),
    "knock-in on dates": ({"knock_in": 80.0}, (1, 80.0)),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("model", [EQUITY, PAYER], ids=["no dividends", "dividends"])
def test_value_and_greeks_are_those_of_the_note_s_barriers_on_dates(name, model):
    """Quadrature values the barriers to ten digits; Monte Carlo is within four of its errors, and sharp."""
    given, case = CASES[name]
    note = Autocallable(**TERMS, **(PHOENIX | given))
    exact = greeks(legs(*case), model, for_model(Quadrature(), model))
    found = greeks(note.canonical, model, for_model(METHOD, model), key=KEY)
    for figure in FIGURES:
        answer, error = jnp.sum(getattr(exact, figure)), getattr(found.std_errors, figure)
        assert abs(getattr(found, figure) - answer) < 4.0 * error
        assert error < 0.02 * abs(answer)


def never_called(model):
    """A note with nothing but a knock-in that is watched always, and the put that it is short of a bond."""
    terms = TERMS | {"coupons": np.zeros(4), "protection": 100.0}
    note = Autocallable(**terms, call_steps=np.full(4, np.inf), knock_in=80.0, watched="always")
    bond = 10.0 * model.discount(jnp.asarray(1.0))
    return note, bond, Barrier(100.0, 1.0, 80.0, "down-and-in", "put")


@pytest.mark.costly
def test_a_note_that_is_never_called_is_a_bond_less_a_knock_in():
    """Reiner and Rubinstein's put. The bridge is exact from date to date where the drift is constant."""
    note, bond, put = never_called(EQUITY)
    exact = greeks(put, EQUITY, ClosedForm())
    found = greeks(note.canonical, EQUITY, METHOD, key=KEY)
    assert abs(found.value - (bond - 0.1 * exact.value)) < 4.0 * found.std_errors.value < 0.02
    for figure in ("delta", "gamma", "vega"):
        error = getattr(found.std_errors, figure)
        assert abs(getattr(found, figure) + 0.1 * getattr(exact, figure)) < 4.0 * error
        assert error < 0.02 * abs(getattr(exact, figure))


@pytest.mark.costly
def test_on_a_curve_the_knock_in_is_watched_between_the_dates():
    model = BlackScholes(100.0, ZeroCurve([0.25, 0.5, 1.0], [0.0, 0.04, 0.03]), 0.25, 0.01)
    note, bond, put = never_called(model)
    exact = price(put, model, FiniteDifference())
    found = price(note, model, MonteCarlo(2**14, 32, 2**13, sampler=Sobol()), key=KEY)
    assert abs(found.value - (bond - 0.1 * exact.value)) < 4.0 * found.std_error < 0.02


@pytest.mark.costly
def test_coupons_above_a_barrier_that_is_always_met_are_those_of_a_bond():
    terms = TERMS | {"protection": 1e-3}
    note = Autocallable(**terms, call_steps=np.full(4, np.inf), coupon_barrier=1e-3)
    found = greeks(note.canonical, EQUITY, METHOD, key=KEY)
    bond = 10.0 * (np.exp(-0.03 * DATES) @ COUPONS + np.exp(-0.03))
    np.testing.assert_allclose(found.value, bond, rtol=1e-12)
    np.testing.assert_allclose([found.delta, found.gamma, found.vega], 0.0, atol=1e-12)


def plainly(model, note, watched_between=1, num_paths=200_000):
    """The cash flows of a note along plain paths, by NumPy: mean and standard error."""
    dice = np.random.default_rng(3)
    spots, vols = (np.atleast_1d(np.asarray(x)) for x in (model.spot, model.vol))
    factor = np.linalg.cholesky(np.asarray(model.residual_correlation)) if spots.size > 1 else 1.0
    others = () if note.other_initial_spots is None else np.asarray(note.other_initial_spots)
    scales = 100.0 / np.append(100.0, others)
    logs, before = np.zeros((num_paths, spots.size)), 0.0
    alive, knocked = np.ones(num_paths, bool), np.zeros(num_paths, bool)
    paid, missed = np.zeros(num_paths), np.full(num_paths, float(note.missed))
    for date, coupon, step in zip(DATES, COUPONS, np.asarray(note.call_steps), strict=True):
        dt = (date - before) / watched_between
        for _ in range(watched_between):
            noise = dice.normal(size=logs.shape) @ np.transpose(factor) if spots.size > 1 else None
            noise = dice.normal(size=logs.shape) if noise is None else noise
            logs = logs + (0.02 - 0.5 * vols**2) * dt + vols * np.sqrt(dt) * noise
            worst = np.min(spots * np.exp(logs) * scales, axis=1)
            knocked |= worst <= float(note.knock_in)
        before, discount = date, np.exp(-0.03 * date)
        called = alive & (worst >= 103.0 * step)
        pays = alive & (called | ((worst >= float(note.coupon_barrier)) & (coupon > 0.0)))
        paid += discount * 10.0 * (pays * (coupon + missed) + called)
        missed = np.where(pays, 0.0, missed + coupon)
        alive &= ~called
    loses = knocked & (worst < 95.0)
    paid += np.exp(-0.03) * alive * np.where(loses, 0.1 * worst, 10.0)
    return np.mean(paid), np.std(paid) / np.sqrt(num_paths)


WORST = PHOENIX | {"knock_in": 75.0, "other_initial_spots": [95.0, 102.0], "coupon_barrier": 80.0}


def test_the_worst_of_three_is_that_of_plain_paths():
    note = Autocallable(**TERMS, **WORST)
    found = price(note, THREE, METHOD, key=KEY)
    answer, error = plainly(THREE, note)
    assert abs(found.value - answer) < 4.0 * np.hypot(error, found.std_error)
    assert found.std_error < 0.003


@pytest.mark.costly
def test_assets_that_are_never_the_worst_leave_the_note_of_one():
    given = PHOENIX | {"knock_in": 80.0}
    pair = BlackScholes([100.0, 95.0], 0.03, [0.25, 0.3], 0.01, asset_correlation=[[1, 0], [0, 1]])
    note = Autocallable(**TERMS, **given, other_initial_spots=[1e-2])
    found = greeks(note, pair, METHOD, key=KEY)
    exact = greeks(legs(1, 80.0), EQUITY, Quadrature())
    assert abs(found.value - jnp.sum(exact.value)) < 4.0 * found.std_errors.value
    assert abs(found.delta[0] - jnp.sum(exact.delta)) < 4.0 * found.std_errors.delta[0]
    assert abs(found.delta[1]) < 1e-12
    assert found.gamma is None


@pytest.mark.costly
def test_the_gradient_of_the_worst_of_three_is_that_of_central_differences():
    method = MonteCarlo(256, 4, 256)

    @jax.jit
    def value(by):
        vols = jnp.asarray([0.2, 0.3, 0.25]) * (1.0 + 0.1 * by)
        spots = jnp.asarray([100.0, 95.0, 105.0]) + by * jnp.asarray([1.0, -2.0, 3.0])
        correlation = jnp.eye(3) + (jnp.asarray(CORRELATION) - jnp.eye(3)) * (1.0 - 0.1 * by)
        model = BlackScholes(spots, 0.03 + 0.01 * by, vols, asset_correlation=correlation)
        terms = TERMS | WORST | {"protection": 95.0 + by, "knock_in": 75.0 + by}
        terms |= {"dates": jnp.asarray(DATES) * (1.0 + 0.1 * by)}
        return price(Autocallable(**terms), model, method, key=KEY).value

    slope = jax.jit(jax.grad(value))(0.0)
    np.testing.assert_allclose(slope, first_difference(value, 1e-5), rtol=1e-6)
    with pytest.raises(TypeError, match="two of them are equal"):
        jax.eval_shape(jax.grad(jax.grad(value)), 0.0)


@pytest.mark.costly
def test_a_date_that_decides_nothing_changes_nothing():
    """A knock-in on daily dates is a list of dates with coupon 0 and no redemption; padding adds such dates."""
    note = Autocallable(**TERMS, **PHOENIX, knock_in=80.0)
    exact = jnp.sum(price(legs(1, 80.0), EQUITY, Quadrature()).value)
    padded = note.canonical.padded(6)
    idle = Autocallable(
        **TERMS | PHOENIX
        | {"dates": np.insert(DATES, 2, 0.6), "coupons": np.insert(COUPONS, 2, 0.0)}
        | {"call_steps": np.insert(STEPS, 2, np.inf), "knock_in": 1e-3}
    )  # fmt: skip
    never = jnp.sum(price(legs(1, 0.0), EQUITY, Quadrature()).value)
    bond = 10.0 * np.exp(-0.03)
    for found, least, most in (
        (price(padded, EQUITY, METHOD, key=KEY), exact, exact),
        (price(idle, EQUITY, METHOD, key=KEY), never, never + bond),
    ):
        assert least - 4.0 * found.std_error < found.value < most + 4.0 * found.std_error


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coupon_barrier": 99.0}, "coupon_barrier must be not above the call level of each date"),
        ({"knock_in": 103.0, "call_steps": None}, "knock_in must be below the call level"),
        ({"call_steps": [1.0, 1.0]}, "give one step for each date"),
        ({"coupon_barrier": None}, "memory needs a coupon_barrier"),
        ({"memory": "no"}, "missed coupons need memory"),
        (
            {"knock_in": 80.0, "watched": "always", "other_initial_spots": [95.0]},
            "cannot be watched always",
        ),
        ({"watched": "never"}, "watched must be one of 'dates', 'always'"),
    ],
)
def test_terms_that_contradict_each_other_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Autocallable(**TERMS | PHOENIX | change)


def test_a_spot_below_a_knock_in_watched_always_has_touched_it():
    terms = TERMS | {"call_steps": np.full(4, np.inf), "coupons": np.zeros(4)}
    model = eqx.tree_at(lambda model: model.spot, EQUITY, jnp.asarray(79.0))
    always, without = (
        price(Autocallable(**terms, **given).canonical, model, METHOD, key=KEY)
        for given in ({"knock_in": 80.0, "watched": "always"}, {"coupon_barrier": 1e-6})
    )
    assert abs(always.value - without.value) < 4.0 * (always.std_error + without.std_error)
