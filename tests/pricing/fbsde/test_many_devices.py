"""Devices that share a solver's paths: the work of each, what they send, and the same results as on one."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh

from pricing.fbsde import BackwardDP, DeepBSDE, GradientRegression, Hermite, problems, solve
from pricing.fbsde.path_shares import ALL_PATHS, check_shares
from pricing.fbsde.stages import init, step
from pricing.sampling import normals
from tests.eight_devices import run_on_eight_devices

from .shared_paths import ITERATIONS, SOLVERS, solver_of

KEY = jax.random.key(0)
WITHIN_BUDGET = "BackwardDP=4e6"


@pytest.mark.costly
def test_eight_devices_share_the_work_of_every_solver():
    """Each has an eighth of the operations; in an iteration gradients alone are sent, in one all-reduce."""
    printed = run_on_eight_devices(
        *("-m", "tests.pricing.fbsde.many_devices", *SOLVERS, WITHIN_BUDGET),
        JAXTAPE_TEST_COMPILER="optimizing",
    )
    solvers = json.loads(printed.splitlines()[-1])
    assert set(solvers) == {*SOLVERS, WITHIN_BUDGET}
    for name, found in solvers.items():
        assert found["error"] < 1e-9, name
        if name == WITHIN_BUDGET:  # columns are computed again for each sum
            continue
        assert 0.1 < found["share"] < 1.15 / 8, (name, found)
        assert found["collectives"], f"{name}: eight devices sent nothing"
        of_iterations = [sent for sent in found["collectives"] if sent[1] == ITERATIONS]
        if hasattr(solver_of(name), "num_iterations"):  # of an optimizer
            assert of_iterations == [["all-reduce", ITERATIONS, 1]], name


def test_equal_parts_of_rows_are_drawn_alone():
    whole = normals(KEY, (3, 48, 5))
    parts = [normals(KEY, (3, 48, 5), part=(index, 4)) for index in range(4)]
    halves = [[part[:, :6], part[:, 6:]] for part in parts]
    first, second = (np.concatenate(half, axis=1) for half in zip(*halves, strict=True))
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), whole, atol=1e-6)
    with pytest.raises(ValueError, match="no 4 equal parts"):
        normals(KEY, (3, 20, 5), part=(0, 4))


def test_rows_of_paths_are_drawn_alone():
    draw = lambda shape, **options: normals(KEY, shape, **options)
    whole = np.asarray(ALL_PATHS.rows(draw, (16, 3)))
    share = ALL_PATHS.micro_batch(1, 4).rows(draw, (16, 3))
    np.testing.assert_allclose(share, whole[[2, 3, 10, 11]], atol=1e-6)


def test_a_mesh_that_cannot_share_the_paths_is_refused():
    trades = Mesh(np.array(jax.devices()[:1]), ("trades",))
    with pytest.raises(ValueError, match=r"axes \('trades',\): give one with an axis 'paths'"):
        solve(problems.allen_cahn(2), DeepBSDE(mesh=trades), key=KEY)
    eight = AbstractMesh((8, 2), ("paths", "trades"))
    check_shares(eight, batch_size=64)
    with pytest.raises(ValueError, match=r"batch_size=100 over 8 equal shares .* multiple of 16"):
        check_shares(eight, batch_size=100)


def trained(problem, solver):
    """Return the outputs and losses of a stage, and the bytes of its program's temporaries."""
    training = init(problem, solver, key=KEY)

    def further(problem, training, stages):
        return step.__wrapped__(problem, solver, training, stages, key=KEY)

    arguments = problem, training, jnp.int32(1)
    program = eqx.filter_jit(further).lower(*arguments).compile()
    after = program(*arguments)
    size = program.compiled.memory_analysis().temp_size_in_bytes
    return jax.tree.leaves((after.outputs, after.losses)), size


def test_a_stage_returns_no_copy_of_the_stored_paths():
    problem = problems.max_call(2, num_steps=9)
    solver = GradientRegression(64, bases=(Hermite(1),), block=64)
    training = init(problem, solver, key=KEY)
    after = step(problem, solver, training, jnp.int32(1), key=KEY)
    kept = {name for name, found in after.state._asdict().items() if found is None}
    assert kept >= {"states", "increments", "alive", "floor"}
    assert eqx.combine(after, training).state.states is training.state.states


@pytest.mark.costly
def test_gradients_of_micro_batches_are_those_of_all_paths():
    """Within a budget: fewer bytes, by the compiler too, and the same losses."""
    problem = problems.allen_cahn(4)
    losses, sizes = [], []
    for budget in (None, 2e6, 3e5):
        solver = DeepBSDE(3, 2048, iterations_per_stage=3, num_pilot_paths=64, budget=budget)
        (loss,), size = trained(problem, solver)
        losses.append(loss)
        sizes.append(size)
        assert budget is None or size < 1.5 * budget
    assert sizes[0] > 4.0 * sizes[1] > 12.0 * sizes[2]
    for found in losses[1:]:
        np.testing.assert_allclose(found, losses[0], rtol=1e-4)
    with pytest.raises(ValueError, match=r"budget=1000 bytes do not hold the gradient of 2 paths"):
        solve(problem, DeepBSDE(3, 2048, budget=1000), key=KEY)


@pytest.mark.costly
@pytest.mark.parametrize("name", ["BackwardDP", "DeepSplitting", "OneStepMalliavin"])
def test_parts_of_the_paths_give_what_all_paths_give(name):
    """Within a budget: the same parameters, and fewer bytes than it, by the compiler too."""
    problem, budget = problems.max_call(2), 4e6
    sizes = {"num_paths": 8192, "num_iterations": 3, "first_stages": 1, "num_pairs": 2}
    whole, size = trained(problem, solver_of(name, **sizes))
    parts, size_of_parts = trained(problem, solver_of(name, budget=budget, **sizes))
    assert size_of_parts < budget < size
    for found, known in zip(parts, whole, strict=True):
        np.testing.assert_allclose(found, known, rtol=1e-9, atol=1e-9 * np.max(np.abs(known)))


def test_a_budget_that_does_not_hold_the_targets_is_refused():
    with pytest.raises(ValueError, match=r"budget=1000 bytes do not hold the targets of 64 paths"):
        solve(problems.max_call(2), BackwardDP(num_paths=64, budget=1000), key=KEY)
