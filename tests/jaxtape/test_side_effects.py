"""What a step does besides its values it does again whenever it is run: as often as is said beforehand."""

import collections

import jax
import jax.numpy as jnp
import pytest
from jax._src import compilation_cache
from jax.experimental import io_callback

import jaxtape as jt

from ..helpers_tape import all_schedules

N = 12


@pytest.fixture(autouse=True)
def _own_programs(monkeypatch):
    """A program tells those whom it was compiled with: none is taken from another test."""
    monkeypatch.setattr(compilation_cache, "get_executable_and_time", lambda *_, **__: (None, None))


def tell_debug(heard, x):
    jax.debug.callback(lambda x: heard.append(int(x)), x)


def tell_in_order(heard, x):
    io_callback(lambda x: heard.append(int(x)), None, x, ordered=True)


each_way = pytest.mark.parametrize("tell", [tell_debug, tell_in_order])


@each_way
@pytest.mark.parametrize("schedule", all_schedules, ids=str)
def test_of_a_scan(schedule, tell):
    heard = []

    def f(carry, x):
        tell(heard, x)
        return jnp.sin(carry), carry

    def run(a):
        return jt.scan(f, a, jnp.arange(N), schedule=schedule)[0]

    jax.block_until_ready(jax.jit(run)(0.5))
    jax.effects_barrier()
    assert heard == list(range(N))  # a value alone runs each once, in order
    heard.clear()
    jax.block_until_ready(jax.jit(jax.value_and_grad(run))(0.5))
    jax.effects_barrier()
    tape = jt.Tape().append(lambda x, c: jnp.sin(c), jnp.arange(float(N))).with_schedule(schedule)
    plan = jt.plan(tape, jnp.float64(0.5))
    if isinstance(schedule, jt.StoreAll) and tell is tell_in_order:
        assert len(heard) in {0, N}  # JAX leaves callbacks out of the gradient of its own scan
        return
    assert len(heard) == plan.evaluations
    assert max(collections.Counter(heard).values()) == plan.repetition + 1
    if isinstance(schedule, jt.Revolve):
        assert len(heard) == jt.advances(N, schedule.slots) + 1 + N or plan.repetition == 0
    if tell is tell_in_order:
        assert heard[:N] == list(range(N))


@each_way
@pytest.mark.parametrize("slots", [1, 2, 4, 30])
def test_of_a_loop(slots, tell):
    heard = []

    def body(state):
        x, k = state
        tell(heard, k)
        return jnp.sin(x), k + 1

    def run(a, n):
        loop = jt.while_loop(lambda s: s[1] < n, body, (a, jnp.int32(0)), 30, slots=slots)
        return loop[0]

    gradient = jax.jit(jax.value_and_grad(run))
    for n in (0, 1, 5, N):
        heard.clear()
        jax.block_until_ready(gradient(0.5, n))
        jax.effects_barrier()
        assert len(heard) == jt.loop_advances(n, slots) + n
        assert set(heard) == set(range(n))
        if tell is tell_in_order:
            assert heard[:n] == list(range(n))
