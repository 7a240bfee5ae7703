"""Solutions on disk: loaded and exported ones say what the first one said."""

from pathlib import Path

import chex
import equinox as eqx
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from pricing.fbsde import GradientRegression, Hermite, export, load, problems, save, solve

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
    with pytest.raises(ValueError, match="holds no solution, and is left as it is"):
        save(solution, tmp_path / "mine.v2")
    with pytest.raises(ValueError, match="is a URL; give a path of this machine"):
        save(solution, Path("gs://bucket/first.eqx"))
    assert (tmp_path / "mine.v2").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.eqx", "mine.v2"]


def test_another_solver_is_told(solution, tmp_path):
    save(solution, tmp_path / "call.eqx")
    with pytest.raises(ValueError, match="holds another solution"):
        load(tmp_path / "call.eqx", PROBLEM, GradientRegression(4096, (Hermite(4),)))


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
