"""What is not finite says why, and which contract of a batch it is."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import (
    RESULTS,
    American,
    Autocallable,
    Barrier,
    BlackScholes,
    Digital,
    DoubleBarrier,
    European,
    Heston,
    LocalVol,
    VolSurface,
    greeks,
    price,
)
from tests.helpers import double

pytestmark = double

STILL = BlackScholes(102.0, 0.03, 0.0, 0.01)


def test_without_volatility_a_payoff_at_expiry_is_that_of_the_forward():
    t, bond, share = 1.5, np.exp(-0.03 * 1.5), 102.0 * np.exp(-0.01 * 1.5)
    call, put = (greeks(European(100.0, t, option), STILL) for option in ("call", "put"))
    np.testing.assert_allclose(call.value, share - 100.0 * bond, rtol=1e-13)
    np.testing.assert_allclose(call.delta, share / 102.0, rtol=1e-13)
    np.testing.assert_allclose(call.rho, t * 100.0 * bond, rtol=1e-13)
    np.testing.assert_allclose(call.theta, 0.01 * share - 0.03 * 100.0 * bond, rtol=1e-13)
    assert [float(x) for x in (call.gamma, call.vega, call.vanna, call.volga)] == [0.0] * 4
    assert [float(x) for x in (put.value, put.delta, put.vega)] == [0.0] * 3
    np.testing.assert_allclose(price(Digital(100.0, t), STILL).value, bond, rtol=1e-13)


def test_at_the_kink_it_has_a_value_and_no_derivatives():
    model, option = BlackScholes(100.0, 0.0, 0.0), European(100.0, 1.0)
    assert float(price(option, model).value) == 0.0
    with pytest.raises(RuntimeError, match="struck at the forward has no derivatives"):
        greeks(option, model)
    usual = greeks(option, BlackScholes(100.0, 0.0, 0.2))
    assert np.isfinite(usual.gamma)


@pytest.mark.parametrize(
    ("product", "model"),
    [
        (American(100.0, 1.0, "put"), STILL),
        (Barrier(100.0, 1.0, 90.0), STILL),
        (DoubleBarrier(100.0, 80.0, 120.0, [0.5, 1.0]), STILL),
        (European(100.0, 1.0), Heston(100.0, 0.03, 0.0, 1.0, 0.0, 0.5, -0.7)),
    ],
    ids=["American", "barrier", "barrier on dates", "Heston"],
)
def test_other_methods_name_the_volatility_that_is_zero(product, model):
    with pytest.raises(RuntimeError, match="the volatility is zero"):
        price(product, model)
    assert price(product, model, throw=False).result == RESULTS.no_volatility


@pytest.mark.costly
def test_a_surface_with_an_arbitrage_says_so():
    surface = VolSurface([0.5, 1.0], [90.0, 100.0, 110.0], [[0.4, 0.4, 0.4], [0.2, 0.2, 0.2]])
    model = LocalVol(100.0, 0.0, surface)
    assert {each.kind for each in model.arbitrages()} == {"calendar"}
    with pytest.raises(RuntimeError, match=r"arbitrage.*model.arbitrages\(\) lists where"):
        price(European(100.0, 1.0), model)
    assert price(European(100.0, 1.0), model, throw=False).result == RESULTS.arbitrage


def test_a_batch_says_which_of_its_contracts_it_is():
    batch = European([[90.0, 100.0, 110.0], [95.0, 105.0, 115.0]], 1.0)
    at = lambda product: product.strike
    hopeless = eqx.tree_at(at, batch, batch.strike.at[1, 2].set(jnp.nan))
    model = BlackScholes(100.0, 0.03, 0.2)
    for verb in (price, greeks):
        with pytest.raises(RuntimeError, match=r"of the batch of 6, .*: contract \(1, 2\)\)"):
            verb(hopeless, model)
    many = European(jnp.full(10, 100.0), 1.0)
    many = eqx.tree_at(at, many, many.strike.at[jnp.arange(1, 9)].set(jnp.nan))
    with pytest.raises(RuntimeError, match=r"contract 1, 2, 3, 4, 5 and 3 more\)"):
        price(many, model)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Autocallable([0.5, 1.0], [0.02, 0.04], [105.0, 100.0], 80.0, 100.0),
        lambda: Barrier(100.0, 1.0, [80.0, 90.0], dates=[0.5, 1.0]),
        lambda: DoubleBarrier(100.0, [80.0, 85.0], 120.0, [0.5, 1.0]),
    ],
)
def test_a_level_for_each_date_is_no_batch(make):
    with pytest.raises(ValueError, match="of 2 numbers beside 2 dates"):
        make()


def test_levels_of_a_batch_have_dates_of_a_batch():
    dates = [[0.5, 1.0], [0.5, 1.0]]
    found = price(DoubleBarrier(100.0, [80.0, 85.0], 120.0, dates), BlackScholes(100.0, 0.03, 0.2))
    assert found.value[0] > found.value[1]


def test_a_mistake_in_swaption_vols_is_what_the_command_says(tmp_path):
    import json

    from tests.test_command_line import MARKET, run

    market = json.loads(MARKET.read_text())
    vols = market["swaption_vols"]
    vols["type"], vols["vols_by_expiry"] = (
        "normal",
        [[85.0 for _ in row] for row in vols["vols_by_expiry"]],
    )
    (tmp_path / "market.json").write_text(json.dumps(market))
    arguments = (
        "--market",
        tmp_path / "market.json",
        "--underlying",
        "EUR",
        "--out",
        tmp_path / "out",
    )
    outcome = run("calibrate", *arguments)
    assert outcome.exit_code == 2
    assert "swaption_vols" in outcome.stderr and "85" in outcome.stderr
    assert "there are no vols" not in outcome.stderr
