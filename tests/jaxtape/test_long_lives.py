"""A tape of a million nodes, and a life of ten thousand edits."""

import functools
import gc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxtape as jt
import jaxtape.schedules.layout
import jaxtape.schedules.table

from ..helpers_tape import assert_close

MILLION = 10**6


def decay(params, state):
    return state * params["keep"] + params["add"]


def million():
    k = jnp.arange(MILLION)
    wave = jnp.sin(k.astype(float))
    return {"keep": 1.0 - 1e-6 * (1.0 + wave), "add": 1e-6 * wave}


def by_scan(params, x):
    return lax.scan(lambda state, p: (decay(p, state), None), x, params)[0]


def test_a_million_nodes_are_planned():
    tape = jt.Tape().append(decay, million())
    plan = jt.plan(tape, jnp.float64(1.0), slots=12)
    assert plan.schedule == jt.Revolve(slots=12)
    assert plan.advanced == jt.advances(MILLION, 12) + 1
    assert plan.taped == MILLION
    assert plan.peak_bytes < 10_000


@pytest.mark.slow
def test_a_million_nodes_run_and_are_edited():
    """Beside `lax.scan` on the nodes that are left."""
    params, x = million(), jnp.float64(1.0)
    tape = jt.Tape().with_schedule(jt.Revolve(12)).append(decay, params)

    def check(tape, left):
        value, (tape_bar, x_bar) = eqx.filter_jit(eqx.filter_value_and_grad(on_both))((tape, x))
        desired, (bars, desired_x_bar) = jax.jit(jax.value_and_grad(by_scan, (0, 1)))(left, x)
        assert_close((value, x_bar), (desired, desired_x_bar), rtol=1e-10)
        (segment,) = tape.segments
        found = jax.tree.map(lambda bar: bar[segment.places], tape_bar.segments[0].params)
        assert_close(found, bars, rtol=1e-9)

    on_both = lambda both: both[0](both[1])
    check(tape, params)
    more = {"keep": jnp.array([0.5]), "add": jnp.array([0.25])}
    edited = tape.drop(7).erase(400_000, 600_000).mark(5).append(decay, more)
    edited = edited.replace(10, 11, more)
    left = jax.tree.map(lambda p: np.delete(p, np.s_[400_007:600_007])[7:], params)
    left = jax.tree.map(lambda p, new: jnp.append(p, new).at[10].set(new[0]), left, more)
    check(edited, left)


@pytest.mark.costly
def test_a_million_nodes_are_recorded_and_the_last_are_pulled_back():
    params, x = million(), jnp.float64(1.0)
    rec = jt.Tape().with_schedule(jt.Revolve(12)).append(decay, params).record(x)
    assert len(rec.kept) <= 16
    bar, _ = rec.pullback(1.0, stop=MILLION - 100)
    assert_close(bar, jnp.prod(params["keep"][-100:]))
    assert_close(rec.drop(3).truncate(-9).value, rec.state(MILLION - 9))


def cached():
    """Every table and row that is remembered, in all caches."""
    kind = type(functools.lru_cache(len))
    ours = jaxtape.schedules.table.__name__, jaxtape.schedules.layout.__name__
    caches = [f for f in gc.get_objects() if type(f) is kind and f.__module__ in ours]
    return sum(cache.cache_info().currsize for cache in caches)


def one_edit(rng, edit, tape):
    """One more edit of a tape or a recording of about a hundred nodes with a few marks."""
    is_tape = isinstance(tape, jt.Tape)
    whole = tape if is_tape else tape.tape
    n, i = len(whole), int(rng.integers(0, len(whole) - 2))
    params = {"keep": rng.uniform(0.5, 1.0, 2), "add": rng.uniform(-1.0, 1.0, 2)}
    if edit == "append" or n < 90:
        return tape.append(decay, jax.tree.map(jnp.asarray, params))
    if edit == "replace":
        return tape.replace(i, i + 2, jax.tree.map(jnp.asarray, params))
    if edit == "mark" and is_tape and len(tape.marks) < 4:
        return tape.mark(i)
    return tape.drop(1) if edit == "drop" else tape.erase(i, i + 1)


def live_through(start, edits, seed):
    """(objects of Python, cached tables, live arrays, bytes in them) after a life of edits."""
    rng = np.random.default_rng(seed)
    tape = start
    for edit in rng.choice(["append", "drop", "erase", "mark", "replace"], edits):
        tape = one_edit(rng, edit, tape)
        if len(tape if isinstance(tape, jt.Tape) else tape.tape) > 120:
            tape = tape.drop(20)
    del tape
    gc.collect()
    arrays = jax.live_arrays()
    return len(gc.get_objects()), cached(), len(arrays), sum(array.nbytes for array in arrays)


def start(n=100):
    params = jax.tree.map(lambda p: p[:n], million())
    return jt.Tape().with_schedule(jt.Revolve(5)).append(decay, params).mark(3)


def assert_no_leak(tape, edits):
    """A life leaves no more behind than one before it that filled the caches."""
    before, after = live_through(tape, max(edits // 10, 300), 1), live_through(tape, edits, 2)
    assert after[2:] == before[2:]
    assert before[1] <= after[1] <= 4 * 256  # tables, of marked pieces, their rows, and room
    assert after[0] - before[0] < 2000


@pytest.mark.costly
def test_a_life_of_edits_leaks_nothing():
    assert_no_leak(start(), 300)


@pytest.mark.slow
def test_a_life_of_ten_thousand_edits_leaks_nothing():
    assert_no_leak(start(), 10_000)


@pytest.mark.slow
def test_a_recording_with_a_life_of_edits_leaks_nothing():
    assert_no_leak(start().record(jnp.float64(1.0)), 1000)
