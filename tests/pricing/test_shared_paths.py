"""One set of paths for a batch of contracts, and blocks of paths on several devices."""

import json
from dataclasses import replace

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pricing import Asian, Barrier, BlackScholes, European, Heston, MonteCarlo, price
from pricing.numerics.mixing import mixed, unmixed
from pricing.portfolio.sweep.groups import Tile
from pricing.portfolio.sweep.tile_sweep import tile_sweep, tile_values
from pricing.sampling import PseudoRandom, Sobol, refined
from pricing.sampling.time_grid import between, grid_through
from tests.eight_devices import run_on_eight_devices
from tests.helpers import double

KEY = jax.random.key(3)
HESTON = Heston(100.0, 0.02, 0.04, 1.5, 0.04, 0.5, -0.7)
BLACK_SCHOLES = BlackScholes(100.0, 0.05, 0.2)
DATES = [0.2, 0.5, 0.6]
FEW = MonteCarlo(512, 12, block=256)


@pytest.mark.costly
@double
@pytest.mark.parametrize(
    ("product", "model", "num_steps"),
    [
        (European(100.0, 1.0), BLACK_SCHOLES, 1),
        (Asian(100.0, np.arange(1, 11) / 10), BLACK_SCHOLES, 1),
    ],
    ids=["European", "Asian"],
)
def test_errors_of_sobol_points_fall_as_they_should(product, model, num_steps):
    """At least as n^-.8, where those of pseudo-random paths fall as n^-.5."""

    few, many = 2**7, 2**13

    def slope(sampler, replicates):
        methods = (MonteCarlo(n * replicates, num_steps, sampler=sampler) for n in (few, many))
        large, small = (price(product, model, by, key=KEY).std_error for by in methods)
        return np.log(small / large) / np.log(many / few)

    assert slope(Sobol(32), 32) < -0.8
    assert -0.6 < slope(PseudoRandom(), 1) < -0.4


def test_a_grid_holds_all_dates_and_no_long_step():
    dates = np.asarray([0.3, 0.31, 0.9, 2.0])
    grid = np.asarray(grid_through(dates, 20))
    assert set(dates.astype(grid.dtype)) <= set(grid) and grid.size % 16 == 0
    assert np.all(np.diff(grid, prepend=0.0) <= 0.1 + 1e-6) and np.all(np.diff(grid) > 0.0)


def test_steps_between_dates_are_sums_of_the_grids():
    grid = grid_through(np.asarray(DATES), 6)
    steps = jnp.arange(1.0, grid.size + 1.0)[:, None]
    found = between(grid, jnp.asarray(DATES, grid.dtype), steps)
    place = [int(np.argmin(np.abs(np.asarray(grid) - date))) for date in DATES]
    totals = np.cumsum(np.asarray(steps), axis=0)[place]
    np.testing.assert_allclose(found, np.diff(totals, axis=0, prepend=0.0), rtol=1e-6)


@double
@pytest.mark.parametrize(
    "product",
    [Asian(100.0, DATES), Barrier(100.0, 0.6, 85.0, dates=DATES)],
    ids=["Asian", "Barrier"],
)
def test_a_contract_on_its_own_grid_is_the_contract_alone(product):
    """The same normals over the same times: to rounding."""
    shared = replace(FEW, grid=refined(jnp.asarray(DATES), 4))
    alone, beside = (method.samples(product, HESTON, key=KEY) for method in (FEW, shared))
    np.testing.assert_allclose(beside, alone, rtol=1e-9, atol=1e-9)


@double
def test_a_batch_on_one_grid_is_unbiased():
    dates = np.stack([np.linspace(0.25, 1.0, 4) * scale for scale in (0.5, 0.8, 1.0)])
    batch = Asian([95.0, 100.0, 105.0], dates).broadcast()
    method = MonteCarlo(2**14, 16, sampler=Sobol(16))
    prepared = method.prepared(batch, HESTON)
    assert prepared.grid is not None
    alone, beside = (price(batch, HESTON, m, key=KEY) for m in (method, prepared))
    error = np.hypot(alone.std_error, beside.std_error)
    assert np.all(np.abs(alone.value - beside.value) < 4.0 * error)


@pytest.mark.costly
@double
def test_a_method_with_a_grid_is_an_ordinary_argument_of_a_compiled_price():
    """And gives what it gives outside: its times are an array, which JAX does not take as static."""
    batch = Asian([100.0, 105.0], [[0.25, 0.5], [0.5, 1.0]])
    method = FEW.prepared(batch, HESTON)
    assert method.grid is not None
    outside, inside = (f(batch, HESTON, method, key=KEY) for f in (price, jax.jit(price)))
    np.testing.assert_allclose(inside.value, outside.value, rtol=1e-12)
    np.testing.assert_allclose(inside.std_error, outside.std_error, rtol=1e-12)
    with pytest.raises(ValueError, match=r"(?i)non-hashable static arguments"):
        jax.jit(price, static_argnums=2)(batch, HESTON, method, key=KEY)
    static = jax.jit(price, static_argnums=2)(batch, HESTON, FEW, key=KEY)
    np.testing.assert_allclose(static.value, price(batch, HESTON, FEW, key=KEY).value, rtol=1e-12)


STRIKES = [100.0, 110.0, 105.0]


def tile(strikes, weights):
    """A tile, and the method that its dates share: the same program for every three strikes."""
    good = Asian(STRIKES, DATES).broadcast()
    batch = eqx.tree_at(lambda p: p.strike, good, jnp.asarray(strikes))
    row = jax.tree.map(lambda x: x[None], batch), np.array([weights])
    return Tile(*row, count=jnp.asarray(len(weights))), FEW.prepared(good, HESTON)


def swept(strikes, weights):
    of, method = tile(strikes, weights)
    still = jax.tree.map(jnp.zeros_like, HESTON)
    return tile_sweep(of, HESTON, method, still, still, key=KEY)


@pytest.mark.costly
@double
def test_values_alone_are_those_of_the_sweep_with_their_errors():
    weights = [1.0, 5.0, 2.0]
    figures, errors, *_ = swept(STRIKES, weights)
    of, method = tile(STRIKES, weights)
    values, errors_alone, _, bar = tile_values(of, HESTON, method, key=KEY)
    np.testing.assert_allclose(values["value"], figures["value"], rtol=1e-12)
    np.testing.assert_allclose(errors_alone["value"], errors["value"], rtol=1e-12)
    assert float(errors_alone["value"].min()) > 0.0
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(bar))


@double
def test_a_trade_that_is_not_finite_does_not_reach_the_others():
    """The gradient is that of a tile in which a trade without weight is in its place."""
    with_it = swept([100.0, jnp.nan, 105.0], [1.0, 5.0, 2.0])
    without = swept(STRIKES, [1.0, 0.0, 2.0])
    assert not np.isfinite(with_it[0]["value"][1])
    for found, expected in zip(with_it[0].values(), without[0].values(), strict=True):
        np.testing.assert_allclose(*(np.asarray(x)[[0, 2]] for x in (found, expected)), rtol=1e-12)
    for found, expected in zip(*map(jax.tree.leaves, (with_it[-1], without[-1])), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.costly
@double
def test_rows_of_a_tile_are_like_one_row_and_empty_ones_are_left_out():
    """Four trades in the first two rows of three, against four in one row."""
    strikes, weights = [*STRIKES, 95.0], [1.0, 5.0, 2.0, 3.0]
    good = Asian(strikes, DATES).broadcast()
    method = FEW.prepared(good, HESTON)
    still = jax.tree.map(jnp.zeros_like, HESTON)

    def found(places, count):
        rows = jax.tree.map(lambda x: x[np.array(places)], (good, np.array(weights)))
        of = Tile(*rows, count=jnp.asarray(count))
        return tile_sweep(of, HESTON, method, still, still, key=KEY)

    *of_rows, _, bar = found([[0, 1], [2, 3], [0, 0]], 4)
    *of_one, _, expected = found([[0, 1, 2, 3]], 4)
    for measures, wanted in zip(of_rows, of_one, strict=True):
        for name, figures in measures.items():
            np.testing.assert_allclose(figures[:4], wanted[name], rtol=1e-11, atol=1e-14)
            assert not np.any(figures[4:])
    chex.assert_trees_all_close(bar, expected, rtol=1e-11)


@double
@pytest.mark.parametrize("model", [HESTON, BLACK_SCHOLES])
def test_no_walk_depends_on_the_spot(model):
    """Steps are relative to the forward: what a sweep relies on that takes Gamma through the spot alone."""
    times, noise = jnp.array(DATES), jnp.ones((3, 5))

    def walk(shift):
        return model.shifted(underlying=shift).walk(noise, times, FEW.schedule)

    _, moved = jax.jvp(walk, (0.0,), (1.0,))
    assert not any(np.any(leaf) for leaf in moved)


@double
@pytest.mark.parametrize("count", [2, 9])
def test_few_motions_are_mixed_as_many_are(count):
    square, motions = jax.random.normal(KEY, (count, count)), jax.random.normal(KEY, (count, 6))
    factor = jnp.linalg.cholesky(square @ square.T + jnp.eye(count))
    np.testing.assert_allclose(mixed(square, motions), square @ motions, rtol=1e-12)
    np.testing.assert_allclose(unmixed(factor, mixed(factor, motions)), motions, rtol=1e-11)
    steps = jnp.stack([motions, 2.0 * motions])
    np.testing.assert_allclose(mixed(square, steps)[1], 2.0 * square @ motions, rtol=1e-12)


ON_DEVICES = """
import json, jax, numpy as np
jax.config.update("jax_enable_x64", True)
from jax.sharding import Mesh
from dataclasses import replace
from tests.pricing.test_shared_paths import value_and_delta, FEW
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("paths", "trades"))
print(json.dumps(value_and_delta(replace(FEW, num_paths=1500, mesh=mesh))))
"""


def value_and_delta(method: MonteCarlo) -> list[float]:
    def value(spot):
        model = Heston(spot, 0.02, 0.04, 1.5, 0.04, 0.5, -0.7)
        return price(Asian(100.0, DATES), model, method, key=KEY, throw=False).value

    return [float(x) for x in jax.jit(jax.value_and_grad(value))(100.0)]


@double
@pytest.mark.costly
def test_devices_that_share_the_paths_do_not_change_them():
    """Six blocks on four devices, and on one."""
    printed = run_on_eight_devices("-c", ON_DEVICES)
    alone = value_and_delta(replace(FEW, num_paths=1500))
    np.testing.assert_allclose(json.loads(printed), alone, rtol=1e-12)
