"""Sweeps in lockstep, which GPUs and TPUs follow: here they run on the CPU, under every transformation."""

import functools
import itertools

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import checkify

import jaxtape as jt
from benchmarks.compiled_sweeps import row_of
from benchmarks.problems import HESTON, Problem
from benchmarks.ways import Way, by_tape
from jaxtape.schedules.lockstep import LockstepRun, lockstep_plan, lockstep_run
from jaxtape.sweeps import state_store
from jaxtape.sweeps.static_executor import StaticExecutor

from ..cases import others_later
from ..helpers_scan import XS, A, check
from ..helpers_tape import assert_close, mixed_arguments, mixed_loss
from .test_scan import (
    TRANSFORMATIONS,
    lax_value_and_gradients,
    transformed,
    transformed_without_schedule,
    value_and_gradients,
)
from .test_scan_transformations import FIRST, applied

BLOCKS = jt.MultiStage(device=1, host=2)  # of 7 nodes: two blocks of 2, and a tail of 3
IN_LOCKSTEP = jt.Revolve(5), jt.Periodic(5), jt.Recursive(3), jt.MultiStage(2, 3), jt.Budget(2**14)


def steps_of(run: LockstepRun) -> int:
    """The steps of both sweeps, each of which reads the state that its slot holds."""
    held = dict(zip(run.keep.tolist(), range(len(run)), strict=False))
    steps = len(run) - 1
    for k in reversed(range(len(run))):
        assert held[run.slot[k]] == k
        if run.first <= k < len(run) - run.late:
            source = run.source[k]
            assert held[run.slot[source]] == source
            held[run.slot[k]] = source + 1
            steps += 1
    return steps


def test_a_run_takes_the_steps_of_revolve():
    """As many slots, of which one is for the state before the last node, and at most one step more."""
    for length, slots in itertools.product(range(2, 60), range(2, 60)):
        if slots < length <= slots * (slots + 1) // 2:
            run = lockstep_run(length, slots)
            assert steps_of(run) - (2 * length - slots - 1) in (0, 1)
            assert max(run.slot) < slots
            assert max(run.keep) < slots
    table = jt.Revolve(26).table(365)
    plan = lockstep_plan(365, table.slots, 0)
    assert (table.slots, plan.count_advances(), table.count_advances()) == (27, 703, 702)


def test_a_plan_of_blocks():
    for length, slots, host in itertools.product(range(1, 40), range(1, 12), range(4)):
        plan = lockstep_plan(length, slots, host) if slots > host else None
        if plan is None:
            continue
        steps = plan.starts * (len(plan.block) + steps_of(plan.block)) + steps_of(plan.tail)
        assert steps == plan.count_advances()
        assert plan.starts * len(plan.block) + len(plan.tail) == length
        assert plan.starts <= (host or slots - 1)
        assert max(*plan.block.slot, *plan.tail.slot, 0) < slots - (host or plan.starts)


def test_a_plan_of_blocks_takes_hardly_more_steps_than_revolve():
    for length, slots in ((365, 16), (365, 20), (4096, 38), (4096, 47)):
        plan, best = lockstep_plan(length, slots, 0), jt.advances(length, slots - 1)
        assert best <= plan.count_advances() < 1.02 * best


@pytest.mark.parametrize(
    ("schedule", "length", "follows"),
    [
        (jt.Revolve(26), 365, True),
        (jt.Periodic(20), 365, True),
        (jt.Recursive(3), 365, True),
        (jt.MultiStage(4, 28), 365, True),
        (jt.Revolve(12), 365, False),
        (jt.Revolve(365), 365, False),
        (jt.Revolve(26, checkpoint_dtype=jnp.bfloat16), 365, False),
        (jt.Weighted(26, range(365)), 365, False),
    ],
    ids=str,
)
def test_which_schedules_have_a_plan(schedule, length, follows):
    assert (StaticExecutor.of(schedule, length).plan is not None) == follows


def test_it_is_chosen_when_a_program_is_lowered():
    """A program for a GPU has loops of known length alone; the same trace for a CPU has the table's."""
    gradient = jax.grad(
        lambda x: jt.scan(
            lambda c, x: (jnp.sin(c) + x, None), x, jnp.ones(40), schedule=jt.Revolve(9)
        )[0]
    )
    traced = jax.jit(gradient).trace(0.5)
    loops = {
        p: traced.lower(lowering_platforms=(p,)).as_text().count("stablehlo.while")
        for p in ("cpu", "cuda", "tpu")
    }
    assert loops["cuda"] == loops["tpu"] == 3
    assert loops["cpu"] > 5


@pytest.mark.parametrize(
    ("schedule", "reverse"), [(s, i % 2 == 1) for i, s in enumerate(IN_LOCKSTEP)], ids=str
)
def test_value_and_gradients(schedule, reverse, as_on_gpus):
    found = value_and_gradients(mixed_loss(schedule, reverse))
    assert_close(found, lax_value_and_gradients(reverse))


LARGE = "hessian", "reverse over forward", "scan in scan", "vmap of checkpoint", "grad of vmap"
SMALL = [name for name in TRANSFORMATIONS if name not in LARGE]


@pytest.mark.parametrize("name", others_later(TRANSFORMATIONS, SMALL, LARGE))
def test_transformation(name, as_on_gpus):
    assert_close(transformed(name, BLOCKS), transformed_without_schedule(name))


@pytest.mark.parametrize(
    "name", others_later(TRANSFORMATIONS, ["vmap of grad"], ["hessian", "cond", "scan in scan"])
)
def test_transformation_with_slots_on_the_host(name, as_on_gpus, monkeypatch):
    monkeypatch.setattr(state_store, "host_is_separate", lambda: True)
    assert_close(transformed(name, BLOCKS), transformed_without_schedule(name))


def test_each_transformation(as_on_gpus):
    """Beside `lax.scan`, without blocks."""
    check(applied([(name,) for name in FIRST]), jt.Revolve(2), A, XS)


def test_shard_map(as_on_gpus):
    def loss(a, xs, schedule=BLOCKS):
        step = lambda c, x: (jnp.sin(c) * x, None)
        return jnp.sum(jt.scan(step, a, xs, schedule=schedule)[0])

    a, xs = jnp.linspace(0.1, 0.9, 4), jnp.ones((9, 4))
    gradient = jax.grad(loss, (0, 1))
    expected = jax.grad(functools.partial(loss, schedule=None), (0, 1))(a, xs)
    each = jax.P("paths"), jax.P(None, "paths")
    mesh = jax.make_mesh((1,), ("paths",), axis_types=(jax.sharding.AxisType.Auto,))
    found = jax.shard_map(gradient, mesh=mesh, in_specs=each, out_specs=each)(a, xs)
    assert_close(jax.device_get(found), expected)


def test_checked(as_on_gpus):
    """Under `checkify`, a step that makes a NaN is reported."""
    loss = lambda x: jt.scan(lambda c, z: (jnp.log(c) + z, None), x, jnp.ones(7), schedule=BLOCKS)[
        0
    ]
    check_nan = checkify.checkify(jax.jit(jax.grad(loss)), errors=checkify.nan_checks)
    error, found = check_nan(1.5)
    assert error.get() is None
    assert_close(
        found, jax.grad(lambda x: functools.reduce(lambda c, _: jnp.log(c) + 1.0, range(7), x))(1.5)
    )
    assert "nan" in str(check_nan(-1.5)[0].get())


@pytest.mark.costly
def test_many_slots_of_a_long_chain(as_on_gpus):
    """A plan of both kinds of pullbacks without a step, and of blocks, on arguments of many paths."""
    _, init, xs = mixed_arguments(n=60)
    expected = jax.grad(lambda a: mixed_loss(None)(a, init, xs)[0])(0.7)
    for slots in (45, 8):
        found = jax.grad(lambda a, s=slots: mixed_loss(jt.Revolve(s))(a, init, xs)[0])(0.7)
        assert_close(found, expected)


def test_compiled_for_a_gpu():
    """Fewer kernels than two nested `jax.checkpoint` start, in fewer bytes; no loop of unknown length."""
    problem, double = Problem(HESTON, 365, 262144, "given"), jnp.dtype("float64")
    ways = [Way("", "", functools.partial(by_tape, jt.Revolve(slots))) for slots in (26, 15)]
    try:
        row, few = (row_of(way, problem, double, "gpu:h100") for way in ways)
    except ImportError:
        pytest.skip("pip install 'jaxtape[cuda]'")
    assert row["states"] <= 18.5
    assert row["kernels"] <= 2600
    assert (row["of unknown length"], row["copies"]) == (0, 0)
    assert few["states"] <= 12.5
    assert few["kernels"] <= 9700
    assert few["of unknown length"] == 0
