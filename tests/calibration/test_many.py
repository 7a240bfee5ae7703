"""Many sets of quotes: each gets the fit that it has alone, and one that cannot be fitted is named."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration import ImpliedVolError, Job, SwaptionVolError, calibrate, calibrate_many
from calibration.many import rounds
from calibration.objectives import model_vols
from pricing import Heston, HullWhite, Sabr, VolSurface, ZeroCurve
from pricing.market import SmileQuotes, SwaptionVols
from tests.helpers import dax, double

pytestmark = double

CURVE = ZeroCurve([0.5, 2.0], [0.02, 0.03])


def start(spot: float = 100.0, rate=0.02) -> Heston:
    return Heston(spot, rate, 0.05, 2.0, 0.05, 0.5, -0.5, 0.01)


@functools.cache
def truths() -> tuple[Heston, ...]:
    """On markets of their own; every other one can reach a variance of zero."""
    dice = np.random.default_rng(20261124)
    rates = [0.01, CURVE]
    return tuple(
        Heston(
            float(dice.uniform(50.0, 200.0)), rates[i % 2], *dice.uniform((0.02, 1.0, 0.03), (0.09, 3.0, 0.08)),
            (0.25, 0.9)[i % 2], float(dice.uniform(-0.8, -0.3)), 0.01,
        )
        for i in range(8)
    )  # fmt: skip


own_vols = eqx.filter_jit(model_vols)


@functools.cache
def surfaces() -> tuple[VolSurface, ...]:
    """Of unequal shapes; the vols of the models, a little off."""
    dice = np.random.default_rng(20021118)
    found = []
    for place, model in enumerate(truths()):
        expiries = np.array([0.1, 0.25, 0.5, 1.0, 2.0])[: (3, 5)[place % 2]]
        strikes = float(model.spot) * np.linspace(0.8, 1.25, (5, 7)[place % 2])
        blank = VolSurface(expiries, strikes, np.full((expiries.size, strikes.size), 0.2))
        vols = np.asarray(own_vols(model, blank, 64))
        noise = dice.normal(0.0, 5e-4, vols.shape)
        found.append(VolSurface(expiries, strikes, vols + noise))
    return tuple(found)


def jobs() -> list[Job]:
    pairs = zip(surfaces(), truths(), strict=True)
    return [
        Job(f"S{i}", surface, start(float(truth.spot), truth.rate))
        for i, (surface, truth) in enumerate(pairs)
    ]


@functools.cache
def found():
    return calibrate_many(jobs(), num_slots=4)


@pytest.mark.costly
def test_each_fit_is_that_of_its_quotes_alone():
    together = found()
    assert together.status == ("ok",) * 8
    for place in (0, 5):  # of unequal shapes, on a flat rate and on a curve
        job = jobs()[place]
        alone = calibrate(job.quotes, job.model, objective=ImpliedVolError(num_nodes=64))
        errors = np.sqrt(np.diag(alone.stats["covariance"]))
        for index, name in enumerate(together.parameters):
            wanted = float(getattr(alone.model, name))
            np.testing.assert_allclose(together.parameters[name][place], wanted, rtol=1e-6)
            np.testing.assert_allclose(together.std_errors[name][place], errors[index], rtol=1e-5)
        total = float(alone.stats["sum_squared_vol_points"])
        np.testing.assert_allclose(together.sum_squared_vol_points[place], total, rtol=1e-9)
        assert together.num_quotes[place] == job.quotes.vols.size


@pytest.mark.costly
def test_an_integral_a_little_coarse_is_mended_by_the_same_program(monkeypatch):
    """Parameters are those of many nodes, though some fits by 32 are off by more than is let pass."""
    calls, rounds_ends = [], rounds._ends
    monkeypatch.setattr(rounds, "_ends", lambda *args: calls.append(args) or rounds_ends(*args))
    objective = ImpliedVolError(num_nodes=32)
    together = calibrate_many(jobs(), num_slots=4, objective=objective)
    assert together.status == ("ok",) * 8 and len(calls) == 1
    off = []
    for place, job in enumerate(jobs()):
        exact = calibrate(job.quotes, job.model, objective=ImpliedVolError(num_nodes=96))
        few, many = (own_vols(exact.model, job.quotes, n) for n in (32, 96))
        off.append(float(jnp.max(jnp.abs(few - many))))
        for name in together.parameters:
            wanted = float(getattr(exact.model, name))
            np.testing.assert_allclose(together.parameters[name][place], wanted, rtol=1e-5)
    assert max(off) > 2e-7


@pytest.mark.costly
def test_errors_cover_the_truth():
    """Within four standard errors, and not all within a hundredth of one."""
    together = found()
    off = [
        (together.parameters[name][i] - float(getattr(truth, name))) / together.std_errors[name][i]
        for name in together.parameters
        for i, truth in enumerate(truths())
    ]
    assert np.max(np.abs(off)) < 4.0
    assert np.max(np.abs(off)) > 0.5


def columns(result) -> np.ndarray:
    rows = [*result.parameters.values(), *result.std_errors.values(), result.sum_squared_vol_points]
    return np.stack(rows)[:, np.argsort(result.ids)]


@pytest.mark.costly
def test_a_fit_has_the_same_bits_in_any_company():
    backwards = calibrate_many(jobs()[::-1], num_slots=4)
    np.testing.assert_array_equal(columns(backwards), columns(found()))
    few = calibrate_many(jobs()[2:], num_slots=4, block_size=4)
    np.testing.assert_array_equal(columns(few), columns(found())[:, 2:])


@pytest.mark.costly
def test_a_missing_quote_does_not_count():
    """A surface with a strike too many, whose vols are missing, is the surface without it; so are smiles."""
    surface = surfaces()[0]
    strikes = np.append(surface.strikes, 2.0 * surface.strikes[-1])
    vols = np.pad(surface.vols, ((0, 0), (0, 1)), constant_values=np.nan)
    model = jobs()[0].model
    forwards = np.array([float(model.forward(t)) for t in surface.expiries])
    k = np.log(forwards[:, None] / strikes)
    weights = np.isfinite(vols).astype(float)
    several = calibrate_many(
        [
            Job("as it is", surface, model),
            Job("with a hole", VolSurface(surface.expiries, strikes, vols), model),
        ],
        num_slots=2,
    )
    smiles = SmileQuotes(surface.expiries, k, vols, weights)
    of_smiles = calibrate_many([Job("smiles", smiles, model)])
    for name, (wanted, hole) in several.parameters.items():
        np.testing.assert_allclose(hole, wanted, rtol=1e-9)
        np.testing.assert_allclose(of_smiles.parameters[name], wanted, rtol=1e-9)
    assert several.num_quotes.tolist() == [surface.vols.size] * 2
    assert of_smiles.num_quotes.tolist() == [surface.vols.size]


def bad(name: str) -> tuple:
    surface, model = surfaces()[0], jobs()[0].model
    vols, strikes, expiries = (
        np.array(x) for x in (surface.vols, surface.strikes, surface.expiries)
    )
    if name == "negative":
        vols[1, 2] = -0.2
    if name == "zero":
        vols[0, 0] = 0.0
    if name == "infinite":
        vols[0, 0] = np.inf
    if name == "empty":
        vols[:] = np.nan
    if name == "one quote":
        vols[1:], vols[0, 1:] = np.nan, np.nan
    if name == "past":
        expiries[0] = -0.1
    if name == "strike":
        strikes[0] = -5.0
    if name == "arbitrage":
        vols = np.where(np.indices(vols.shape).sum(0) % 2, 3.0, 0.01)
    unchecked = jax.tree.structure(surface)  # the constructor refuses most of these
    return unchecked.unflatten(map(jnp.asarray, (expiries, strikes, vols))), model


REASONS = {
    "negative": "is -0.2: give one above 0, or NaN where there is none",
    "zero": "is 0: give one above 0",
    "infinite": "is inf: give one above 0",
    "empty": "it has 0 quotes for 5 parameters: give at least as many",
    "one quote": "it has 1 quotes for 5 parameters",
    "past": "an expiry is -0.1: give years above 0",
    "strike": "a strike is -5: give prices above 0",
}


def test_a_set_that_cannot_be_fitted_is_named_and_stops_no_other():
    names = [*REASONS, "arbitrage"]
    batch = stacked_surface()
    mixed = [
        *jobs()[:2],
        *(Job(name, *bad(name)) for name in names),
        Job("batch", batch, start()),
        jobs()[2],
    ]
    result = calibrate_many(mixed, num_slots=4)
    for name, reason in REASONS.items():
        assert reason in result.failed[name]
    assert "give each set of quotes its own job" in result.failed["batch"]
    fine = [i for i, name in enumerate(result.ids) if name in ("S0", "S1", "S2")]
    np.testing.assert_allclose(columns_of(result, fine), columns(found())[:, :3], rtol=1e-9)
    place = result.ids.index("arbitrage")
    if result.status[place] == "ok":  # a fit as good as it gets, and it says how bad that is
        assert result.sum_squared_vol_points[place] > 1e4
    for place, status in enumerate(result.status):
        is_found = status == "ok" or status.startswith("not identified")
        assert is_found == np.isfinite(result.parameters["vol_of_vol"][place])


def stacked_surface() -> VolSurface:
    surface = surfaces()[0]
    return eqx.tree_at(lambda s: s.vols, surface, jnp.stack([surface.vols] * 2))


def columns_of(result, places) -> np.ndarray:
    rows = [*result.parameters.values(), *result.std_errors.values(), result.sum_squared_vol_points]
    return np.stack(rows)[:, places]


def test_a_search_that_ends_too_early_says_so():
    result = calibrate_many(jobs(), num_slots=4, max_steps=2)
    assert all(status.startswith("failed: Stopped at max_steps") for status in result.status)
    assert np.all(np.isnan(result.parameters["correlation"]))
    assert result.steps.tolist() == [2.0] * 8


@pytest.mark.costly
def test_matrices_of_swaptions_are_fitted_on_curves_of_their_own():
    blank = SwaptionVols([1.0, 2.0, 5.0], [1.0, 3.0], np.full((3, 2), 0.1), curve="EUR")
    several = []
    for i, (mean_reversion, vol) in enumerate(((0.08, 0.009), (0.03, 0.012))):
        curve = ZeroCurve([1.0, 5.0], [0.03, 0.04 + 0.01 * i])
        truth = HullWhite(curve, mean_reversion, vol)
        vols = eqx.filter_jit(SwaptionVolError().vols)(truth, blank)
        quotes = eqx.tree_at(lambda q: q.vols, blank, vols)
        several.append(Job(f"M{i}", quotes, HullWhite(curve, 0.02, 0.02)))
    result = calibrate_many(several)
    np.testing.assert_allclose(result.parameters["mean_reversion"], [0.08, 0.03], rtol=1e-5)
    np.testing.assert_allclose(result.parameters["vol"], [0.009, 0.012], rtol=1e-6)


def test_jobs_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match="there is no job to calibrate"):
        calibrate_many([])
    with pytest.raises(ValueError, match="several jobs have the id 'S0'"):
        calibrate_many([jobs()[0], jobs()[0]])
    other = Job("R", jobs()[0].quotes, HullWhite(0.03, 0.05, 0.01))
    smile = Sabr(100.0, 0.0, [0.5, 1.0], [0.2, 0.2], [-0.5, -0.4], [0.8, 0.6])
    with pytest.raises(ValueError, match=r"Sabr has arrays as parameters \(alpha, rho, nu\)"):
        calibrate_many([Job("S", jobs()[0].quotes, smile)])
    with pytest.raises(ValueError, match="models of Heston, HullWhite: calibrate one type"):
        calibrate_many([jobs()[0], other])


@pytest.mark.costly
def test_progress_is_told_by_blocks():
    told = []
    quotes, model = dax().equities["DAX"].surface, start(4468.17, 0.03)
    many = [Job(str(i), quotes, model) for i in range(18)]
    calibrate_many(many, block_size=8, num_slots=4, progress=lambda *now: told.append(now))
    assert told == [(8, 18, ""), (16, 18, ""), (18, 18, "")]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"round_size": 0}, "round_size must be at least 1, got 0"),
        ({"block_size": 0}, "block_size must be at least 1, got 0"),
        ({"num_slots": -1}, "num_slots must be at least 1, got -1"),
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
        ({"rtol": -1.0}, "rtol must be a finite number of at least 0, got -1"),
        ({"rtol": float("nan")}, "rtol must be a finite number of at least 0, got nan"),
    ],
)
def test_settings_without_sense_are_refused(setting, said):
    """A round of no jobs dropped them all, without a word."""
    with pytest.raises(ValueError, match=said):
        calibrate_many([Job("S", VolSurface([0.5], [100.0], [[0.2]]), start())], **setting)
