"""Early exercise under Heston on an asset that pays dividends on known dates."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    American,
    Bermudan,
    BlackScholes,
    Dividends,
    European,
    FiniteDifference,
    Heston,
    WithDividends,
    price,
)
from pricing.methods.under_dividends import for_model

TIMES = np.array([90, 270]) / 365.0
PAYS = Dividends(TIMES, cash=[2.0, 3.0], proportions=[0.01, 0.02])
HESTON = Heston(100.0, 0.05, 0.06, 1.5, 0.07, 0.5, -0.6, 0.01)
GRID, SMALL = FiniteDifference(80, 30, 40), FiniteDifference(30, 8, 10)


def valued(product, model, method):
    return price(product, model, method).value


@pytest.mark.costly
@pytest.mark.parametrize("option", ["put", "call"])
def test_a_variance_that_stays_gives_the_values_of_one_dimension(option):
    """The grid of the raw spot under Black-Scholes is another equation, with jumps on ex-dates."""
    calm = Heston(100.0, 0.05, 0.0625, 1.0, 0.0625, 1e-3, 0.0, 0.01)
    product = American(95.0, 1.0, option)
    found = valued(product, WithDividends(calm, PAYS), GRID)
    flat = WithDividends(BlackScholes(100.0, 0.05, 0.25, 0.01), PAYS)
    assert np.isclose(found, valued(product, flat, FiniteDifference(60, 4, 20)), atol=8e-3)


@pytest.mark.costly
def test_a_single_right_is_a_european_option():
    model = WithDividends(HESTON, PAYS)
    strikes = np.array([80.0, 100.0])
    options = European(strikes, 1.0, "put")
    found = valued(Bermudan(options, np.array([[1.0]] * 2)), model, FiniteDifference())
    np.testing.assert_allclose(found, valued(options, model, None), atol=5e-3)


@pytest.mark.costly
def test_a_call_is_exercised_on_the_eve_of_a_dividend_or_never():
    """Where the asset has no yield it is better held at all other times (Merton 1973)."""
    base = dataclasses.replace(HESTON, dividend_yield=0.0)
    model = WithDividends(base, PAYS)
    call = European(90.0, 1.0, "call")
    eves = valued(Bermudan(call, [*(TIMES - 1e-6), 1.0]), model, GRID)
    found = valued(American(90.0, 1.0, "call"), model, GRID)
    assert np.isclose(found, eves, atol=2e-3)
    assert found > valued(call, model, None) + 0.1


def simulated(dates: np.ndarray, strike: float) -> tuple[float, float]:
    """Return the put on dates by Longstaff and Schwartz (2001), on paths of X plus dividends, and its error."""
    model = WithDividends(HESTON, PAYS)
    rng, paths, steps = np.random.default_rng(3), 60_000, 120
    v0, speed, mean, vol_of_vol, rho = (float(getattr(HESTON, n)) for n in Heston.free_parameters)
    dt, log_x, variance = 1.0 / steps, np.zeros(paths), np.full(paths, v0)
    spots, variances = [], []
    for step in range(1, steps + 1):
        z, w = rng.standard_normal((2, paths))
        v = np.maximum(variance, 0.0)
        log_x += (0.04 - 0.5 * v) * dt + np.sqrt(v * dt) * (rho * z + np.sqrt(1.0 - rho**2) * w)
        variance += speed * (mean - v) * dt + vol_of_vol * np.sqrt(v * dt) * z
        if np.any(np.isclose(dates * steps, step)):
            t = jnp.asarray(step * dt)
            start = float(model.stock.spot) * float(PAYS.kept(t))
            spots.append(start * np.exp(log_x) + float(model.cash(t)))
            variances.append(v.copy())
    value = np.maximum(strike - spots[-1], 0.0)
    for place in range(dates.size - 2, -1, -1):
        value *= np.exp(-0.05 * (dates[place + 1] - dates[place]))
        s, v, now = spots[place] / strike, variances[place], np.maximum(strike - spots[place], 0.0)
        live = now > 0.0
        basis = np.stack([np.ones_like(s), s, s**2, s**3, v, v * s, v**2], axis=1)
        weights = np.linalg.lstsq(basis[live], value[live], rcond=None)[0]
        value = np.where(live & (now > basis @ weights), now, value)
    value *= np.exp(-0.05 * dates[0])
    return value.mean(), value.std() / np.sqrt(paths)


@pytest.mark.costly
def test_rights_on_dates_are_those_of_a_simulation():
    """A rule that is fitted exercises a little worse than the best, and the grid finds the best."""
    dates = np.array([0.25, 0.5, 0.75, 1.0])
    found = valued(Bermudan(European(105.0, 1.0, "put"), dates), WithDividends(HESTON, PAYS), GRID)
    lower, error = simulated(dates, 105.0)
    assert lower - 3.0 * error < found < lower + 3.0 * error + 0.03


@pytest.mark.costly
def test_derivatives_are_central_differences():
    """To the raw spot, the rate, the variance, each dividend and its time, and the age of all dates."""
    model, product = WithDividends(HESTON, PAYS), American(100.0, 1.0, "put")
    method = for_model(SMALL, model)

    @jax.jit
    def value(model):
        return method.samples(product, model)

    slopes = jax.jit(jax.grad(value))(model)
    h = 1e-5
    for name in ("spot", "rate", "initial_variance", "correlation"):
        at = lambda x, name=name: dataclasses.replace(
            model, base=dataclasses.replace(HESTON, **{name: getattr(HESTON, name) + x})
        )
        expected = (value(at(h)) - value(at(-h))) / (2.0 * h)
        assert np.isclose(getattr(slopes.base, name), expected, rtol=1e-5, atol=1e-5), name
    for name in ("cash", "proportions", "times"):
        for place in range(2):
            at = lambda x, name=name, place=place: dataclasses.replace(
                model,
                dividends=dataclasses.replace(PAYS, **{name: getattr(PAYS, name).at[place].add(x)}),
            )
            expected = (value(at(h)) - value(at(-h))) / (2.0 * h)
            found = getattr(slopes.dividends, name)[place]
            assert np.isclose(found, expected, rtol=1e-5, atol=1e-5), (name, place)


@pytest.mark.costly
def test_dividends_of_one_day_add_up_and_those_of_the_past_do_not_count():
    product = American(95.0, 1.0, "put")
    value = lambda times, cash: valued(
        product, WithDividends(HESTON, Dividends(times, cash, [0.0, 0.0])), GRID
    )
    assert np.isclose(value([0.4, 0.4], [1.0, 2.0]), value([0.4, 0.9], [3.0, 0.0]), atol=5e-3)
    assert np.isclose(value([-0.1, 0.0], [5.0, 5.0]), value([0.3, 0.6], [0.0, 0.0]), atol=5e-3)


def test_a_spot_that_falls_below_its_dividends_has_no_value():
    at = jax.jit(
        lambda spot: (
            price(
                American(100.0, 1.0, "put"),
                WithDividends(dataclasses.replace(HESTON, spot=spot), PAYS),
                SMALL,
                throw=False,
            ).value
        )
    )
    assert np.isnan(at(jnp.asarray(4.0)))
    assert np.isfinite(at(jnp.asarray(40.0)))
