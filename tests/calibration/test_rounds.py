"""A run over many surfaces that is kept as it goes, and what may be given to it."""

import functools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from calibration import (
    AbstractObjective,
    Calibrations,
    ImpliedVolError,
    Job,
    calibrate_many,
    levenberg_marquardt,
    read_jobs,
)
from calibration.many import workers
from calibration.many.job_blocks import blocks_of
from calibration.many.searches import Settings, searched
from calibration.parameters import FreeParameters
from pricing import BlackScholes, Heston, VolSurface
from tests.calibration.test_many import columns, jobs, start, surfaces
from tests.helpers import double

pytestmark = double


@functools.cache
def found() -> Calibrations:
    return calibrate_many(several())


def several() -> list[Job]:
    """Eight surfaces, one that cannot be fitted among them."""
    good = jobs()
    return [*good[:3], Job("bad", replace_vols(good[0].quotes, -0.1), start()), *good[3:7]]


def replace_vols(surface: VolSurface, value) -> VolSurface:
    return eqx.tree_at(lambda s: s.vols, surface, surface.vols * 0.0 + value)


@pytest.mark.costly
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    """Stopped after two of four rounds, by an exception in the middle of the third."""

    class Stopped(Exception):
        pass

    def stops(done, total, message):
        if done > 4:
            raise Stopped

    settings = {"resume": tmp_path / "run", "round_size": 2}
    with pytest.raises(Stopped):
        calibrate_many(several(), progress=stops, **settings)
    assert sorted(path.name for path in (tmp_path / "run" / "rounds").iterdir()) == [
        "2.npz",
        "4.npz",
    ]
    told = []
    again = calibrate_many(several(), progress=lambda *now: told.append(now[:2]), **settings)
    assert told[:2] == [(2, 8), (4, 8)]
    assert again.status == found().status and again.failed.keys() == {"bad"}
    np.testing.assert_array_equal(columns(again), columns(found()))
    assert again.num_quotes.tolist() == found().num_quotes.tolist()
    whole = calibrate_many(several(), **settings)  # nothing is left to fit
    whole.write_parquet(tmp_path / "whole.parquet")
    found().write_parquet(tmp_path / "found.parquet")
    assert (tmp_path / "whole.parquet").read_bytes() == (tmp_path / "found.parquet").read_bytes()


@pytest.mark.costly
def test_a_folder_of_another_run_is_refused(tmp_path):
    settings = {"resume": tmp_path, "round_size": 4, "max_steps": 1}
    calibrate_many(jobs()[:4], **settings)
    moved = [job._replace(quotes=replace_vols(job.quotes, 0.2)) for job in jobs()[:4]]
    with pytest.raises(ValueError, match=r"holds a run over other quotes: the jobs 1 to 4 were"):
        calibrate_many(moved, **settings)
    for changed in ({"rtol": 1e-3}, {"num_starts": 2}):
        with pytest.raises(ValueError, match=r"holds another run \(other: settings\)"):
            calibrate_many(jobs()[:4], **{**settings, **changed})
    with pytest.raises(ValueError, match=r"holds another run \(other: round\)"):
        calibrate_many(jobs()[:4], **{**settings, "round_size": 2})


class AtTheMoney(AbstractObjective):
    """An objective of a user's module, which reads a constant there."""

    def residuals(self, model, quotes):
        return SCALE * (jnp.sqrt(model.initial_variance) - quotes.vols)


SCALE = 1.0


@pytest.mark.costly
def test_a_folder_of_another_objective_is_refused(tmp_path, monkeypatch):
    """The class has the same name and fields, but computes something else."""

    def run():
        calibrate_many(jobs()[:1], resume=tmp_path, objective=AtTheMoney(), max_steps=1)

    run()
    run()
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    with pytest.raises(ValueError, match=r"holds another run \(other: settings\)"):
        run()


def test_an_objective_that_cannot_be_compared_is_not_resumed(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "SCALE", type("Scale", (float,), {})(1.0))
    with pytest.raises(ValueError, match="a run with this objective cannot be resumed"):
        calibrate_many(jobs()[:1], resume=tmp_path, objective=AtTheMoney(), max_steps=1)


@pytest.mark.costly
def test_a_batch_of_quotes_is_fitted_by_one_model_or_by_one_each():
    surface = surfaces()[0]
    vols = np.stack([surface.vols, surface.vols + 0.01])
    batch = eqx.tree_at(lambda s: s.vols, surface, vols)  # on the same expiries and strikes
    model = jobs()[0].model
    together = calibrate_many(batch, model)
    assert together.ids == ("0", "1")
    own = [VolSurface(surface.expiries, surface.strikes, of_one) for of_one in vols]
    apart = calibrate_many([Job("0", own[0], model), Job("1", own[1], model)])
    np.testing.assert_array_equal(columns(together), columns(apart))
    listed = calibrate_many(iter(own), [model, model])
    np.testing.assert_array_equal(columns(listed), columns(apart))
    stacked = jax.tree.map(lambda *x: np.stack(x), *own)
    np.testing.assert_array_equal(columns(calibrate_many(stacked, model)), columns(apart))
    with pytest.raises(ValueError, match=r"has vols of shape \(3, 5\): give many"):
        calibrate_many(surface, model)
    with pytest.raises(ValueError, match="there are 1 models for 2 sets of quotes"):
        calibrate_many(own, [model])


def test_a_mesh_of_other_axes_is_refused():
    mesh = Mesh(np.array(jax.devices()[:1]), ("paths",))
    with pytest.raises(
        ValueError, match=r"the mesh has axes \('paths',\): give one with only the axis"
    ):
        calibrate_many(jobs()[:1], mesh=mesh)


def test_two_rounds_with_one_id_are_refused():
    twice = [jobs()[0], jobs()[1], jobs()[0]]
    with pytest.raises(ValueError, match="several jobs have the id 'S0'"):
        calibrate_many(twice, round_size=2, max_steps=1)


@functools.cache
def rows_of() -> str:
    """The 15 rows of a surface of a table, but for its name."""
    job = jobs()[0]
    expiries, strikes = np.meshgrid(job.quotes.expiries, job.quotes.strikes, indexing="ij")
    quotes = zip(*map(np.ravel, (expiries, strikes, job.quotes.vols)), strict=True)
    return "".join(
        f"NAME,{job.model.spot},{job.model.rate},{t},{k},{vol}\n" for t, k, vol in quotes
    )


@pytest.mark.costly
def test_a_name_in_two_runs_of_rows_fails_by_name_with_file_and_line(tmp_path):
    """The others are fitted, also where the second run comes in another file, or hours later."""
    head = "surface,spot,rate,expiry,strike,vol\n"
    names = {"a.csv": "ABA", "b.csv": "CAD"}
    for file, of_file in names.items():
        text = "".join(rows_of().replace("NAME", name) for name in of_file)
        (tmp_path / file).write_text(head + text)
    found = calibrate_many(read_jobs(tmp_path, Heston), round_size=2, max_steps=30)
    assert found.ids == ("A", "B", "A (2)", "C", "A (3)", "D")
    assert found.failed.keys() == {"A", "A (2)", "A (3)"}
    good = [name for name, status in zip(found.ids, found.status, strict=True) if status == "ok"]
    assert good == ["B", "C", "D"]
    said = f"appears at {tmp_path / 'a.csv'}:2 and again at {tmp_path / 'a.csv'}:32: keep the rows"
    assert said in found.status[2]
    for place in (0, 2, 4):
        assert found.status[place].startswith("failed: 'A' appears at ")
    assert np.isnan(columns(found)).all(axis=0).tolist() == [True] * 3 + [False] * 3
    assert "b.csv:17" in found.status[4] and "b.csv:17" in found.failed["A"]
    assert (
        calibrate_many(read_jobs(tmp_path, Heston), round_size=6, max_steps=30).status
        == found.status
    )


@pytest.mark.costly
def test_a_job_of_another_type_or_that_breaks_a_program_fails_alone(monkeypatch):
    """Of an iterator: what the first tells cannot be known before the last is read."""
    good = jobs()[:2]
    other = good[1]._replace(id="other", model=BlackScholes(100.0, 0.02, 0.2))
    nowhere = Job("nowhere", good[0].quotes, None, unreadable="it is gone", place="x.csv:3")
    found = calibrate_many(iter([nowhere, good[0], other, good[1]]), max_steps=5)
    assert [status[:7] for status in found.status][::2] == ["failed:", "failed:"]
    assert "x.csv:3: it is gone" in found.status[0]
    assert "its model is a BlackScholes, and that of the first a Heston" in found.status[2]
    with pytest.raises(ValueError, match="calibrate one type at a time"):
        calibrate_many([*good, other])
    with pytest.raises(ValueError, match="no job can be calibrated: nowhere: it is gone"):
        calibrate_many([nowhere])

    def broken(device, block, *settings):
        raise ZeroDivisionError("of mine")

    monkeypatch.setattr(workers, "_ends_on", broken)
    lost = calibrate_many(iter(good))
    assert all(
        status == "failed: ZeroDivisionError: of mine" for status in map(first_words, lost.status)
    )


def first_words(status: str) -> str:
    return status.partition(" (")[0]


@pytest.mark.costly
def test_a_block_that_is_short_of_memory_is_fitted_in_halves_to_the_same_bits(monkeypatch):
    """Twenty jobs in one block of 32, of which the memory holds eight."""
    fitted, sizes = workers._ends_on, []

    def of_eight(device, block, *settings):
        sizes.append(block.size)
        if block.size > 8:
            raise MemoryError if block.size > 16 else out_of_memory()
        return fitted(device, block, *settings)

    alike = jobs()[::2]
    many = [job._replace(id=f"{job.id}/{n}") for n in range(5) for job in alike]
    monkeypatch.setattr(workers, "_ends_on", of_eight)
    several = calibrate_many(many, block_size=32)
    assert sorted(sizes, reverse=True) == [32, 16, 16, 8, 8, 8]
    assert several.status == ("ok",) * 20
    monkeypatch.setattr(workers, "_ends_on", fitted)
    alone = columns(calibrate_many(alike))
    np.testing.assert_array_equal(columns(several), np.repeat(alone, 5, axis=1))  # in order of id


def out_of_memory():
    return jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes.")


@pytest.mark.costly
def test_a_surface_that_no_memory_holds_fails_alone(monkeypatch):
    """512 TiB for the large surfaces, which the machine itself refuses; a lost device ends the run."""
    small, large = jobs()[0], jobs()[1]
    found = calibrate_many([large, small], objective=OfMuchMemory(), max_steps=5)
    assert found.status[0].startswith("failed: not enough memory for 8 searches with 8 by 8 quotes")
    assert "RESOURCE_EXHAUSTED: Out of memory" in found.status[0]
    assert "memory" not in found.status[1]

    def lost(*_):
        raise jax.errors.JaxRuntimeError("UNAVAILABLE: the device is gone")

    monkeypatch.setattr(workers, "_ends_on", lost)
    (status,) = calibrate_many([small]).status
    assert first_words(status) == "failed: JaxRuntimeError: UNAVAILABLE: the device is gone"
    monkeypatch.setattr(workers, "_require_alive", lost)
    with pytest.raises(jax.errors.JaxRuntimeError, match="the device is gone"):
        calibrate_many([small])


class OfMuchMemory(AtTheMoney):
    def residuals(self, model, quotes):
        wide = jnp.sort(jnp.zeros(2**46 if quotes.vols.shape == (8, 8) else 1) + model.spot)
        return super().residuals(model, quotes) + 0.0 * wide[-1]


def test_a_callback_that_raises_fails_its_jobs_by_what_it_says():
    found = calibrate_many(jobs()[:1], objective=CallsBack())
    assert first_words(found.status[0]) == "failed: ValueError: no such desk"


class CallsBack(AtTheMoney):
    def residuals(self, model, quotes):
        def raises(vols):
            raise ValueError("no such desk")

        shape = jax.ShapeDtypeStruct(quotes.vols.shape, quotes.vols.dtype)
        vols = jax.pure_callback(raises, shape, quotes.vols, vmap_method="sequential")
        return super().residuals(model, quotes) + jax.lax.stop_gradient(vols)


@pytest.mark.costly
def test_columns_are_the_table_of_all():
    again = Calibrations.of_columns(found().columns)
    assert replace(again, num_quotes=found().num_quotes).ids == found().ids
    np.testing.assert_array_equal(columns(again), columns(found()))
    assert list(found().columns)[:3] == ["id", "status", "initial_variance"]


@pytest.mark.costly
def test_searches_do_not_communicate():
    """The compiled program of a device has no collective, and so no device waits for another."""
    parameters = FreeParameters.of(start())
    (block,) = blocks_of(jobs(), [0], 8)
    nowhere = jnp.zeros((0, len(parameters.names)))
    settings = Settings(
        ImpliedVolError(), parameters, levenberg_marquardt(), nowhere, jnp.asarray(1e-10), jnp.asarray(9)
    )  # fmt: skip
    inputs = jax.tree.map(jnp.asarray, block.inputs)
    program = eqx.filter_jit(searched.__wrapped__)
    compiled = program.lower(inputs, jnp.asarray(1), settings, num_slots=8).compile()
    text = compiled.compiled.as_text()
    assert " while(" in text
    for name in ("all-reduce", "all-gather", "all-to-all", "collective", "send(", "recv("):
        assert name not in text
