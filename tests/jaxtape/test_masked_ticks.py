"""Loops of masked ticks, which GPUs and TPUs run where the length is data: here they run on the CPU."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jax.experimental import checkify

import jaxtape as jt
import jaxtape.sweeps.indexed_executor
import jaxtape.sweeps.masked_executor
from jaxtape.sweeps import masked_ticks

from ..helpers_tape import assert_close
from . import test_edits as edits
from . import test_while_loop as loops
from .test_while_loop import LEVELS, MOST, PLAIN, RATE, X, grown, unrolled

pytestmark = pytest.mark.usefixtures("as_on_gpus")


@pytest.mark.parametrize("slots", [None, MOST, 4, 1])
def test_value_and_gradient_are_those_of_the_unrolled_loop(slots):
    loops.test_value_and_gradient_are_those_of_the_unrolled_loop(slots)


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_every_length(slots):
    loops.test_every_length_with_any_number_of_slots(slots)


@pytest.mark.parametrize(
    "derivative",
    [
        lambda f: jax.jvp(jax.grad(f), (RATE,), (1.0,)),
        lambda f: jax.linearize(jax.grad(f), RATE)[1](1.0),
        lambda f: jt.hvp(f, (RATE,), (jnp.float64(1.0),)),
        lambda f: jax.grad(jax.checkpoint(f))(RATE),
        lambda f: jax.lax.scan(lambda c, _: (c, jax.grad(f)(c)), RATE, length=2)[1],
        lambda f: jax.lax.cond(RATE > 0.0, jax.grad(f), jnp.sin, RATE),
    ],
    ids=["jvp", "linearize", "hvp", "checkpoint", "inside scan", "cond"],
)
def test_every_way_to_differentiate(derivative):
    assert_close(derivative(functools.partial(loops.LOSS, slots=3)), derivative(PLAIN), rtol=1e-11)


@pytest.mark.parametrize("slots", [None, 3])
def test_each_of_a_batch_stops_by_itself(slots):
    loops.test_each_of_a_batch_stops_by_itself(slots)


def test_a_batch_whose_step_has_no_derivative_where_it_stops():
    loops.test_a_batch_whose_step_has_no_derivative_where_it_stops()


def test_keys_ride_along():
    loops.test_keys_ride_along()


def test_devices_stop_by_themselves():
    loops.test_devices_stop_by_themselves(True)


def test_a_last_state_that_moves_along(monkeypatch):
    loops.test_a_last_state_that_moves_along(monkeypatch)


def test_side_effects_are_those_of_the_table():
    loops.test_work_is_what_is_said(3)


def test_checked():
    """A masked tick is at no state where the step has no derivative, so none is reported."""

    def fallen(x):
        return jt.while_loop(
            lambda x: x > 0.1, lambda x: x - 0.9 * jnp.sqrt(x - 0.1) - 0.05, x, 20, slots=2
        )

    error, found = checkify.checkify(jax.jit(jax.grad(fallen)), errors=checkify.nan_checks)(3.0)
    assert error.get() is None
    assert_close(found, jax.grad(fallen)(3.0))


@pytest.fixture
def looks(monkeypatch):
    """The number of times that the conditions of masked loops are looked at."""
    found = []
    masked_loop = masked_ticks.masked_loop

    def counted(lives, tick, start):
        def seen(carry):
            holds = lives(carry)
            return jax.pure_callback(lambda h: found.append(1) or h, holds, holds)

        return masked_loop(seen, tick, start)

    for module in (masked_ticks, jaxtape.sweeps.masked_executor, jaxtape.sweeps.indexed_executor):
        monkeypatch.setattr(module, "masked_loop", counted)
    return found


@pytest.mark.parametrize("slots", [MOST, 10, 4])
def test_the_host_looks_less_than_once_a_node(looks, slots):
    """Both sweeps together."""
    gradient = jax.jit(jax.grad(lambda r, level: grown(level, r, X, slots)[0]))
    for level, steps in LEVELS.items():
        looks.clear()
        found = jax.block_until_ready(gradient(RATE, level))
        assert_close(found, jax.grad(unrolled)(RATE, X, steps), rtol=1e-11)
        assert 2 <= len(looks) <= max(steps, 2)
        assert len(looks) <= 0.4 * steps + 4


NODES = [(0.9 - 0.1 * k, 0.05 * k) for k in range(edits.CAPACITY)]
EDITED = jt.Revolve(2), jt.Revolve(5), jt.Periodic(3), jt.Recursive(2), jt.StoreAll()


@pytest.fixture
def compiled_alone(monkeypatch):
    """The program of other tests was perhaps compiled for a table."""
    program = eqx.filter_jit(eqx.filter_value_and_grad(edits.loss))
    monkeypatch.setattr(edits, "value_and_bars", lambda tape, x: program((tape, x)))


@pytest.mark.parametrize("schedule", EDITED, ids=str)
def test_edited_tapes(schedule, compiled_alone, looks):
    """Marked, with nodes erased from the middle and the end, down to none; one program of each schedule."""
    tape = jt.Tape().with_schedule(schedule).append(edits.turn, edits.stacked(NODES)).mark(3)
    nodes = list(NODES)
    for erased in (slice(0, 0), slice(5, 7), slice(0, 2), slice(9, 12), slice(1, 9), slice(0, 1)):
        looks.clear()
        tape = tape.erase(erased.start, erased.stop)
        del nodes[erased]
        edits.assert_equals_list(tape, nodes)
        assert len(looks) <= max(0.7 * len(nodes), 4)
        assert looks or isinstance(schedule, jt.StoreAll)


@pytest.mark.costly
def test_both_modes_of_an_edited_tape():
    edits.test_both_modes_of_an_edited_tape()


def test_a_batch_of_tapes_shares_its_edits():
    edits.test_a_batch_of_tapes_shares_its_edits()


def _for_a_gpu(function, *args):
    try:
        return jt.compile_for(function, *args, target="gpu:h100")
    except ImportError:
        pytest.skip("pip install 'jaxtape[cuda]'")


def test_compiled_for_a_gpu():
    """A loop a sweep, of `TICKS` ticks a turn, and no copy of slots, which would double the states."""
    paths, slots = 65536, 26
    state = 2 * 8 * paths

    def step(a, state):
        s, v = state
        return s + a * jnp.sqrt(v**2 + 0.1) * jnp.sin(s), v + a * jnp.cos(v)

    def ended(a, s):
        level = lambda state: jnp.max(state[0]) < 50.0
        end = jt.while_loop(level, functools.partial(step, a), (s, 0.1 * s), 365, slots=slots)
        return jnp.sum(end[0] ** 2)

    def edited(tape, s):
        return jnp.sum(tape((s, 0.1 * s))[0] ** 2)

    s = jax.ShapeDtypeStruct((paths,), jnp.float64)
    tape = jt.Tape().with_schedule(jt.Revolve(slots)).append(step, jnp.linspace(0.1, 0.2, 365))
    tape = tape.erase(3, 5)
    for report in (
        _for_a_gpu(jax.grad(ended), jax.ShapeDtypeStruct((), jnp.float64), s),
        _for_a_gpu(eqx.filter_grad(edited), tape, s),
    ):
        unknown = [loop for loop in report.loops if loop.turns is None]
        assert len(unknown) == 2
        assert sum(loop.turns == masked_ticks.TICKS for loop in report.loops) == 2
        assert all(loop.kernels <= 1 for loop in unknown)
        assert report.temporary_bytes < (slots + 8) * state
