"""Broken surfaces: each is calibrated or named with its reason; none crashes, hangs, or ends in nonsense."""

import collections
import functools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from calibration import Calibrations, Job, calibrate, calibrate_many
from calibration.objectives import model_vols
from pricing import Heston
from tests.calibration.hostile import BREAKS, hostile
from tests.helpers import double

pytestmark = double

FAILED, HELD = "failed: ", "not identified: "
NAMED = (
    *("vols not finite", "vols zero or below", "strikes bad", "expiries bad"),
    *("one", "batch", "spot bad", "rate bad"),
)


@functools.cache
def found(count: int) -> tuple[dict[str, str], Calibrations, list[Job]]:
    """What is wrong by id, what became of each, and the jobs."""
    pairs = list(hostile(count))
    jobs = [job for _, job in pairs]
    return {job.id: name for name, job in pairs}, calibrate_many(jobs, max_steps=25), jobs


counts = pytest.mark.parametrize(
    "count",
    [pytest.param(232, marks=pytest.mark.slow), pytest.param(10_005, marks=pytest.mark.slow)],
)


@counts
def test_each_is_calibrated_or_named_with_its_reason(count):
    _, result, jobs = found(count)
    assert result.ids == tuple(job.id for job in jobs)
    for place, status in enumerate(result.status):
        numbers = [column[place] for column in result.parameters.values()]
        has_failed = status.startswith(FAILED)
        assert np.all(np.isfinite(numbers)) == (not has_failed)
        assert np.all(np.isnan(numbers)) == has_failed
        kinds = [kind for kind in (FAILED, HELD) if status.startswith(kind)]
        assert status == "ok" or len(status) > len(kinds[0]) + 10


@counts
def test_what_has_one_reason_has_that(count):
    wrong, result, _ = found(count)
    reasons = collections.defaultdict(set)
    for name, status in zip(wrong.values(), result.status, strict=True):
        reasons[name].add(status == "ok")
    for name in NAMED:
        assert reasons[name] == {False}, name
    for name in ("sound", "vols missing", "strikes unsorted", "expiries unsorted"):
        assert True in reasons[name], name
    assert set(BREAKS) <= set(reasons)


@counts
def test_no_fit_is_nonsense(count):
    """Parameters are within their bounds, and the loss is that of the model, on other nodes."""
    _, result, jobs = found(count)
    for place, (job, status) in enumerate(zip(jobs, result.status, strict=True)):
        if status.startswith(FAILED):
            continue
        numbers = {name: column[place] for name, column in result.parameters.items()}
        assert abs(numbers.pop("correlation")) < 1.0
        assert min(numbers.values()) > 0.0
        assert all(column[place] >= 0.0 for column in result.std_errors.values())
        total = squared_vol_points(job, {n: c[place] for n, c in result.parameters.items()})
        said = result.sum_squared_vol_points[place]
        assert abs(total - said) <= 1e-3 * said + 1e-6, (job.id, total, said)


def squared_vol_points(job: Job, parameters: dict[str, float]) -> float:
    """The sum over the quotes of squared errors, on 192 nodes."""
    names = list(parameters)
    where = lambda model: [getattr(model, name) for name in names]
    model = eqx.tree_at(where, job.model, [jnp.asarray(parameters[name]) for name in names])
    return 1e4 * float(np.nansum((np.asarray(vols_of(model, job.quotes)) - job.quotes.vols) ** 2))


@eqx.filter_jit
def vols_of(model: Heston, quotes):
    return model_vols(model, quotes, 192)


@pytest.mark.costly
def test_calibrate_says_the_same():
    """Of a sample: an exception with a reason, or the same fit."""
    _, result, jobs = found(232)
    for place in range(len(BREAKS)):
        job, status = jobs[place], result.status[place]
        try:
            alone = calibrate(job.quotes, job.model, max_steps=25)
        except (ValueError, RuntimeError) as error:
            assert status != "ok", (job.id, error)
            assert len(str(error)) > 20
        else:
            assert status == "ok", (job.id, status)
            loss = float(alone.stats["sum_squared_vol_points"])
            np.testing.assert_allclose(loss, result.sum_squared_vol_points[place], rtol=1e-6)
