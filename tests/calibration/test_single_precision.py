"""Devices in single precision: their programs have no float64, and fits are the optima of double."""

import operator
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtape as jt
import pricing.samples
from benchmarks import many_surfaces
from calibration import (
    RESULTS,
    ImpliedVolError,
    Job,
    SwaptionVolError,
    calibrate,
    calibrate_many,
    calibration,
    market_models,
)
from calibration.least_squares_problem import at_optimum
from jaxtape.cli import main as command_line
from jaxtape.jax_settings import single_on_devices
from pricing import Book, Heston, HullWhite, MonteCarlo, risk
from pricing.market import SwaptionVols
from pricing.models.surface_models import black_scholes
from pricing.portfolio.sweep import fitted_models, rounding_errors
from pricing.reporting import positions_of
from pricing.valuation import mean_and_error
from tests.helpers import NUM_PLAIN, double

from .test_market_models import market

pytestmark = double
MATRIX = SwaptionVols(
    [1.0, 2.0, 5.0], [1.0, 2.0, 5.0], [[0.2, 0.19, 0.18], [0.19, 0.18, 0.17], [0.18, 0.17, 0.16]]
)
START = HullWhite(0.03, 0.05, 0.01)


@pytest.fixture(autouse=True)
def _usual_precision_after():
    yield
    jt.use_single_on_devices(False)
    jax.config.update("jax_enable_x64", True)


def parameters_at_optimum(found) -> np.ndarray:
    problem, model = found.problem, found.model
    search = eqx.filter_jit(at_optimum)(problem, problem.parameters.free(model))
    return np.asarray(problem.parameters.values(search.free))


def parameters_of(found) -> np.ndarray:
    parameters = found.problem.parameters
    return np.asarray(parameters.values(parameters.free(found.model)))


def texts_of(monkeypatch, module, name: str) -> list[str]:
    """Note the programs of a function as they are called, lowered for a TPU."""
    function, texts = getattr(module, name), []

    def noted(*args, **kwargs):
        arrays, static = eqx.partition((args, kwargs), eqx.is_array)

        def program(arrays):
            args, kwargs = eqx.combine(arrays, static)
            return eqx.filter(function.__wrapped__(*args, **kwargs), eqx.is_array)

        traced = jax.jit(program).trace(arrays)
        texts.append(traced.lower(lowering_platforms=("tpu",)).as_text())
        return function(*args, **kwargs)

    monkeypatch.setattr(module, name, noted)
    return texts


@pytest.mark.parametrize(
    ("platform", "expected"), [("tpu", "single"), ("cpu", "double"), ("gpu", "double")]
)
def test_a_tpu_computes_in_single_precision_and_says_so_once(
    monkeypatch, capsys, platform, expected
):
    monkeypatch.setattr(command_line, "add_flag", lambda *flag: None)
    monkeypatch.setattr(command_line, "use_cache", lambda job: lambda: None)
    devices = SimpleNamespace(
        devices=jax.devices, default_backend=lambda: platform, config=jax.config
    )
    monkeypatch.setattr(command_line, "jax", devices)
    command_line.configure()
    assert single_on_devices.devices_are_single() == (expected == "single")
    assert jax.config.jax_enable_x64
    assert capsys.readouterr().err.count("single precision") == (expected == "single")
    for precision in command_line.Precision:
        command_line.configure(precision)
        assert single_on_devices.devices_are_single() == (precision == "single")
    command_line.configure(command_line.Precision.single, hosts_too=True)
    assert not (jax.config.jax_enable_x64 or single_on_devices.devices_are_single())
    assert capsys.readouterr().err == ""


@pytest.mark.costly
def test_a_polished_fit_is_the_optimum_of_double_precision(monkeypatch):
    expected = parameters_at_optimum(calibrate(MATRIX, START))
    texts = texts_of(monkeypatch, calibration, "solved")
    jt.use_single_on_devices(True)
    found = calibrate(MATRIX, START)
    np.testing.assert_allclose(parameters_of(found), expected, rtol=1e-8)
    assert found.residuals.dtype == found.stats["covariance"].dtype == jnp.float64
    assert [("f32" in text, "f64" in text) for text in texts] == [(True, False)]


def test_what_single_precision_does_not_find_is_searched_in_double(monkeypatch):
    lost = SimpleNamespace(result=RESULTS.max_steps_reached)
    expected = parameters_of(calibrate(MATRIX, START))
    monkeypatch.setattr(calibration, "device_program", lambda function: lambda *args: (None, lost))
    jt.use_single_on_devices(True)
    np.testing.assert_array_equal(parameters_of(calibrate(MATRIX, START)), expected)


@pytest.mark.costly
def test_many_polished_fits_are_the_optima_of_double_precision():
    """A matrix of two quotes is met exactly: its standard errors are 0 but for rounding."""
    dice = np.random.default_rng(20261127)
    noise = dice.normal(0.0, 2e-3, (10, 3, 3))
    matrices = [eqx.tree_at(lambda m: m.vols, MATRIX, MATRIX.vols + each) for each in noise]
    flat = jnp.full((3, 3), jnp.nan).at[0, :2].set(0.2)
    matrices[7] = eqx.tree_at(lambda m: m.vols, MATRIX, flat)
    jobs = [Job(str(place), each, START) for place, each in enumerate(matrices)]
    expected = calibrate_many(jobs)
    jt.use_single_on_devices(True)
    found = calibrate_many(jobs)
    assert found.status == expected.status
    sound = np.array(found.status) == "ok"
    assert sound.sum() >= 9
    for place in (0, 1):
        jt.use_single_on_devices(False)
        at = calibrate(matrices[place], START, objective=SwaptionVolError())
        optimum = dict(zip(at.problem.parameters.names, parameters_at_optimum(at), strict=True))
        for name, value in optimum.items():
            np.testing.assert_allclose(found.parameters[name][place], value, rtol=1e-8)
    for name, errors in found.std_errors.items():
        exact = expected.std_errors[name]
        np.testing.assert_allclose(errors[sound], exact[sound], rtol=1e-3, atol=1e-8)


@pytest.mark.slow
def test_a_thousand_polished_surfaces_are_the_optima_of_double_precision():
    """Some integrals are too coarse for double precision, whose optimum is then that of a finer one."""
    dax = many_surfaces.sample()
    with jax.numpy_rank_promotion("allow"):
        jobs = many_surfaces.jobs_of(dax, many_surfaces.vols_of(dax, 1000))
    jt.use_single_on_devices(True)
    found = calibrate_many(jobs)
    jt.use_single_on_devices(False)
    off = []
    for place in np.flatnonzero(np.array(found.status) == "ok"):
        objective = ImpliedVolError(num_nodes=64)
        at = calibrate(jobs[place].quotes, jobs[place].model, objective=objective)
        own = np.array([found.parameters[name][place] for name in at.problem.parameters.names])
        off.append(np.max(np.abs(own / parameters_at_optimum(at) - 1.0)))
    assert len(off) >= 999
    assert max(off) <= 1e-8


@pytest.mark.costly
def test_the_fit_to_the_dax_is_the_optimum_of_double_precision():
    start = market_models.standard_start(market(), "DAX")
    expected = parameters_at_optimum(market_models.calibrate_precisely(*start))
    jt.use_single_on_devices(True)
    found = market_models.calibrate_precisely(*start)
    assert isinstance(found.model, Heston)
    np.testing.assert_allclose(parameters_of(found), expected, rtol=1e-8)


@pytest.mark.costly
@pytest.mark.parametrize("most_tiles", [4, 1])
def test_each_figure_states_its_rounding_error(monkeypatch, most_tiles):
    """Europeans and digitals of the sample book, also where few of a group are swept in double precision."""
    text = (Path(pricing.samples.__file__).parent / "dax_book.csv").read_text()
    head, *rows = text.splitlines(keepends=True)
    rows = [r for r in rows[:NUM_PLAIN] if r.split(",")[1] in _CLOSED_FORM]
    book = Book.from_text("".join([head, *rows]))
    exact = risk(book, market(), black_scholes)
    jt.use_single_on_devices(True)
    monkeypatch.setattr(rounding_errors, "_MOST_TILES", most_tiles)
    found = risk(book, market(), black_scholes, rounding_errors=True)
    assert not found.failed
    for figure in _FIGURES:
        of_single, of_double = figures_of(found, figure), figures_of(exact, figure)
        differences = np.abs(of_single - of_double)
        stated = np.array([figure(trade.rounding_errors) for trade in found.trades])
        assert np.median(differences) > 0.0
        assert np.all(differences <= stated + 1e-9 * np.maximum(1.0, np.abs(of_double)))
    position = lambda trade: abs(trade.quantity) * trade.rounding_errors.value
    largest = max(found.trades, key=position)
    assert found.notes[-1].endswith(f", of trade {largest.id}")
    columns, first = positions_of(found, book, market())[0].figures, found.trades[0]
    assert columns["rounding_error"] == position(first)
    errors = first.rounding_errors.scaled(abs(first.quantity))
    assert columns["rounding_error:delta"] == errors.delta["DAX"]
    assert columns["rounding_error:vega"] == errors.vega


@pytest.mark.parametrize(
    ("shape", "count"), [((38, 4, 1), 8), ((38, 16, 256), 4), ((3, 4, 1), 3), ((3, 1, 256), 3)]
)
def test_small_tiles_are_sampled_until_they_hold_enough_trades(shape, count):
    places = np.arange(np.prod(shape)).reshape(shape)
    tiles = rounding_errors._sampled(places)
    assert len(set(tiles)) == count
    assert tiles[0] == 0
    assert tiles[-1] == shape[0] - 1


_CLOSED_FORM = "european", "digital"
_FIGURES = (
    operator.attrgetter("value"),
    lambda figures: figures.delta["DAX"],
    lambda figures: figures.gamma["DAX", "DAX"],
    operator.attrgetter("vega"),
    operator.attrgetter("theta"),
    operator.attrgetter("rho"),
)


def figures_of(found, figure) -> np.ndarray:
    return np.array([figure(trade.figures) for trade in found.trades])


@pytest.mark.slow
def test_a_book_is_valued_in_single_precision_alone(monkeypatch):
    """Value and Delta agree with double precision to 1e-4 of strike and of 1, also on grids and paths.

    Derivatives to quotes agree to 1e-3 of the largest: 2e-4 was measured, of a barrier on a grid.
    """
    rows = (
        "id,type,underlying,quantity,option,strike,expiry,barrier,barrier_type,monitoring_dates\n"
        "E1,european,DAX,1,call,4500,2003-03-18,,,\n"
        "B1,barrier,DAX,1,call,4500,2003-03-18,3400,down-and-out,\n"
        "M1,barrier,DAX,1,call,4650,2003-03-05,3400,down-and-out,2002-09-05|2002-12-05|2003-03-05\n"
    )
    book = Book.from_text(rows)
    models = market_models.calibrate_market(market(), book)
    expected = risk(book, models.market, models.fit)
    assert not expected.failed
    texts = texts_of(monkeypatch, fitted_models, "tile_sweep")
    jt.use_single_on_devices(True)
    found = risk(book, models.market, models.fit, rounding_errors=True)
    in_single = [text for text in texts if "f64" not in text]
    assert len(in_single) == 3  # the others are the host's, for rounding errors
    assert len(texts) == 6
    for one, other in zip(found.trades, expected.trades, strict=True):
        difference = abs(one.figures.value - other.figures.value)
        assert difference < 1e-4 * 4500.0
        assert one.rounding_errors.value == pytest.approx(difference, abs=1e-8)
        assert abs(one.figures.delta["DAX"] - other.figures.delta["DAX"]) < 1e-4
    assert found.value == pytest.approx(expected.value, rel=1e-4)
    largest = max(map(abs, expected.sensitivities.values()))
    for quote, slope in expected.sensitivities.items():
        assert found.sensitivities[quote] == pytest.approx(slope, rel=1e-6, abs=1e-3 * largest)


def test_a_mean_over_a_million_paths_keeps_its_digits():
    samples = np.random.default_rng(7).normal(100.0, 1.0, 2**20 + 3).astype(np.float32)
    mean, error = mean_and_error(jnp.asarray(samples), MonteCarlo())
    exact = samples.astype(float)
    assert mean.dtype == jnp.float32
    assert abs(float(mean) - exact.mean()) < 1e-7 * 100.0
    expected = exact.std(ddof=1) / len(samples) ** 0.5
    assert float(error) == pytest.approx(expected, rel=1e-6)
    *_, with_small_first = mean_and_error(jnp.sort(samples), MonteCarlo())
    assert float(with_small_first) == pytest.approx(expected, rel=1e-4)
