"""Solutions on disk: loaded and exported ones say what the first one said."""

from pathlib import Path

import chex
import equinox as eqx
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from pricing.fbsde import (
    GradientRegression,
    Hermite,
    Problem,
    export,
    functions,
    load,
    problems,
    save,
    solve,
)

PROBLEM = problems.different_rates_call(4)
SOLVER = GradientRegression(4096, (Hermite(3),))


@pytest.fixture(scope="module")
def solution():
    return solve(PROBLEM, SOLVER, key=jax.random.key(0))


def test_what_is_loaded_is_what_was_saved(solution, tmp_path):
    save(solution, tmp_path / "call.eqx")
    found = load(tmp_path / "call.eqx", PROBLEM, SOLVER)
    x = jnp.array([104.0])
    for figure in ("value", "delta", "gamma"):
        again, first = (getattr(s, figure)(0.25, x) for s in (found, solution))
        np.testing.assert_array_equal(again, first)
    chex.assert_trees_all_equal(*(eqx.filter(one, eqx.is_array) for one in (found, solution)))


def test_a_solution_takes_the_place_of_a_solution_alone(solution, tmp_path):
    save(solution, tmp_path / "first")
    save(solution, tmp_path / "first.eqx")
    (tmp_path / "mine.v2").write_text("mine")
    with pytest.raises(ValueError, match="holds no solution, and is left unchanged"):
        save(solution, tmp_path / "mine.v2")
    with pytest.raises(ValueError, match="is a URL; give a local path"):
        save(solution, Path("gs://bucket/first.eqx"))
    assert (tmp_path / "mine.v2").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.eqx", "mine.v2"]


def test_another_solver_is_refused(solution, tmp_path):
    save(solution, tmp_path / "call.eqx")
    with pytest.raises(ValueError, match="holds a solution by another solver"):
        load(tmp_path / "call.eqx", PROBLEM, GradientRegression(4096, (Hermite(4),)))


LEVEL = 100.0


def put(rate=0.02, strike=100.0, vol=0.2, **options) -> Problem:
    """A put whose rate, strike and vol are numbers in closures: no array of the problem has them."""
    given = {
        "drift": lambda t, x: rate * x,
        "diffusion": lambda t, x: vol * x,
        "driver": lambda t, x, y, z: -rate * y,
        "terminal": lambda x: jnp.maximum(strike - x[0], 0.0),
        "num_steps": 4,
    }
    return Problem(1, 1.0, 100.0, **(given | options))


def put_at_level(x):
    return jnp.maximum(LEVEL - x[0], 0.0)


OTHERS = {
    "driver, drift": put(rate=0.1),
    "terminal": put(strike=60.0),
    "diffusion": put(vol=0.3),
    "settings, exercise_value": put(exercise_times=[0.5], exercise_value=lambda t, x: 1.0 * x[0]),
    "x0": Problem.replace(put(), x0=90.0),
    "maturity": Problem.replace(put(), maturity=2.0),
    "step": put(step=lambda t, dt, x, dw: x * jnp.exp(0.2 * dw)),
}


@pytest.mark.parametrize("parts", OTHERS)
def test_a_solution_of_another_problem_is_refused(parts, tmp_path):
    """Every part that differs is named."""
    save(solve(put(), SOLVER, key=jax.random.key(0)), tmp_path / "put.eqx")
    with pytest.raises(ValueError, match="of another problem") as refusal:
        load(tmp_path / "put.eqx", OTHERS[parts], SOLVER)
    assert all(part in str(refusal.value) for part in parts.split(", "))
    load(tmp_path / "put.eqx", put(), SOLVER)  # functions that compute the same, made again


def test_a_checkpoint_of_another_problem_is_refused(tmp_path):
    """A folder of one strike and rate once gave its values to another: 5.70 in place of 45.7."""
    solve(put(), SOLVER, key=jax.random.key(0), resume=tmp_path)
    with pytest.raises(ValueError, match=r"another run \(different: terminal, drift, driver\)"):
        solve(put(rate=0.1, strike=60.0), SOLVER, key=jax.random.key(0), resume=tmp_path)
    other = GradientRegression(4096, (Hermite(3),), initial_dispersion=0.1)
    with pytest.raises(ValueError, match=r"another run \(different: solver\)"):
        solve(put(), other, key=jax.random.key(0), resume=tmp_path)
    solve(put(), SOLVER, key=jax.random.key(0), resume=tmp_path)


def test_a_global_that_a_function_reads_is_part_of_the_problem(tmp_path, monkeypatch):
    save(solve(put(terminal=put_at_level), SOLVER, key=jax.random.key(0)), tmp_path / "put.eqx")
    monkeypatch.setitem(globals(), "LEVEL", 90.0)
    with pytest.raises(ValueError, match=r"different: terminal\)"):
        load(tmp_path / "put.eqx", put(terminal=put_at_level), SOLVER)


def test_functions_compiled_by_another_version_give_a_warning(tmp_path, monkeypatch):
    """Their programs may differ while they compute the same; numbers are compared all the same."""
    save(solve(put(), SOLVER, key=jax.random.key(0)), tmp_path / "put.eqx")
    monkeypatch.setattr(functions, "version", lambda name: "9.9")
    load(tmp_path / "put.eqx", put(), SOLVER)
    with pytest.warns(UserWarning, match="these functions still compute the same: terminal"):
        load(tmp_path / "put.eqx", put(strike=60.0), SOLVER)
    with pytest.raises(ValueError, match=r"different: x0\)"):
        load(tmp_path / "put.eqx", OTHERS["x0"], SOLVER)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]\n", b"\x93NUMPY\x01\x00v\x00{'descr'"])
def test_a_file_of_something_else_is_refused(content, tmp_path):
    (tmp_path / "x.eqx").write_bytes(content)
    with pytest.raises(ValueError, match="is not a solution written by this version of save"):
        load(tmp_path / "x.eqx", PROBLEM, SOLVER)


def test_a_file_that_is_cut_off_is_refused(solution, tmp_path):
    path = tmp_path / "call.eqx"
    save(solution, path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match="or a part of one"):
        load(path, PROBLEM, SOLVER)


def test_an_exported_program_needs_nothing_else(solution):
    t, x = jnp.asarray(0.25), jnp.array([97.0])
    for figure in ("value", "gamma"):
        program = jax.export.deserialize(bytearray(export(solution, figure)))
        np.testing.assert_allclose(program.call(t, x), getattr(solution, figure)(t, x), rtol=1e-12)
        products = [
            line for line in program.mlir_module().splitlines() if "stablehlo.dot_general" in line
        ]
        assert products and all("HIGHEST" in line for line in products)  # also on a GPU
    with pytest.raises(ValueError, match="figure='vega'"):
        export(solution, "vega")


def test_a_solution_of_many_keys_is_saved_key_by_key(tmp_path):
    several = solve(PROBLEM, SOLVER, key=jax.random.split(jax.random.key(0), 2))
    with pytest.raises(ValueError, match="the solution is for several keys"):
        save(several, tmp_path / "all.eqx")
    arrays, rest = eqx.partition(several, eqx.is_array)
    one = eqx.combine(jax.tree.map(lambda x: x[1], arrays), rest)
    save(one, tmp_path / "second.eqx")
    second = load(tmp_path / "second.eqx", PROBLEM, SOLVER)
    np.testing.assert_array_equal(second.stats["losses"], several.stats["losses"][1])
