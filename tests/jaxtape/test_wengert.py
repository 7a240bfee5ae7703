"""The Wengert list of a recording, detached tapes, and the diagnosis of a gradient that is zero."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtape as jt

PARAMS = jnp.linspace(0.5, 1.0, 6)


def step(params, state):
    return jnp.sin(params * state)


def chain(schedule=None):
    return jt.Tape().with_schedule(schedule or jt.StoreAll()).append(step, PARAMS)


def test_the_list_has_the_states_and_the_adjoints():
    lines = chain(jt.Revolve(2)).record(1.0).table(1.0).splitlines()
    assert lines[0].split() == ["position", "state", "adjoint", "operation", "saves"]
    rows = [line.split() for line in lines[1:]]
    states = [1.0]
    for p in PARAMS:
        states.append(float(jnp.sin(p * states[-1])))
    adjoints = [float(jax.grad(lambda x, k=k: chain()[k:](x))(states[k])) for k in range(6)] + [1.0]
    np.testing.assert_allclose([float(row[1]) for row in rows], states, rtol=1e-5)
    np.testing.assert_allclose([float(row[2]) for row in rows], adjoints, rtol=1e-5)
    assert all(row[3:] == ["step", "24", "B"] for row in rows[:-1])  # params, state, and the cosine


def test_the_list_of_a_long_tape_of_arrays_shows_both_ends():
    params = jnp.arange(40.0)
    tape = jt.Tape().append(lambda p, s: {"x": s["x"] + p, "n": s["n"] + 1}, params)
    shown = tape.record({"x": jnp.array([1.0, -3.0]), "n": jnp.array(0)}).table()
    assert len(shown.splitlines()) == 1 + 10 + 1 + 10 + 1
    assert "20 more" in shown and "0, [2] <= 3" in shown
    assert re.search(r" 0 B$", shown.splitlines()[1])  # a sum reads nothing back


@pytest.mark.parametrize("schedule", [jt.StoreAll(), jt.Revolve(2), jt.Budget(10_000)], ids=str)
def test_no_cotangent_passes_a_detached_position(schedule):
    tape = chain(schedule)
    cut = tape.detach(3)
    value, bar = eqx.filter_value_and_grad(lambda tape: tape(1.0))(cut)
    np.testing.assert_allclose(value, tape(1.0), rtol=1e-15)
    state = tape[:3](1.0)
    later = eqx.filter_grad(lambda tail: tail(state))(tape[3:]).segments[0].params
    assert not np.any(bar.segments[0].params)
    np.testing.assert_allclose(bar.segments[-1].params[3:], later[3:], rtol=1e-12)
    assert np.all(later[3:] != 0.0)
    assert cut.table().splitlines()[4].split()[:2] == ["3", "detach"]
    assert cut.erase(3, 4) == tape[:3] + tape[3:]
    assert jax.grad(lambda x: cut(x))(1.0) == 0.0


def test_a_state_of_any_kind_is_detached_at_either_end():
    tape = jt.Tape().append(lambda p, s: {"x": s["x"] * p, "key": s["key"]}, PARAMS)
    start = {"x": jnp.ones(2), "key": jax.random.key(0)}
    for k in (0, -6, len(tape)):
        np.testing.assert_allclose(tape.detach(k)(start)["x"], tape(start)["x"])
    with pytest.raises(IndexError, match="not on a tape"):
        tape.detach(7)


def test_a_diagnosis_names_the_node_that_stops_the_gradient():
    assert chain().record(1.0).diagnose(1.0) is None
    assert chain().detach(3).record(1.0).diagnose(1.0) == (3, "zero cotangent", "state")
    payoff = lambda strike, spot: jnp.maximum(spot - strike, 0.0)
    knocked = chain().append(payoff, jnp.ones(1)).record(1.0)
    assert knocked.diagnose(1.0) == (6, "zero cotangent", "state")
