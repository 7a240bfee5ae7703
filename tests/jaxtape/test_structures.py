"""A tape whose state changes its structure: from a vector to a dict of two, and to a scalar."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtape as jt

from ..cases import others_later
from ..helpers_tape import assert_close

X = jnp.array([0.3, -0.8])
LENGTH = 13


def turn(params, state):
    return jnp.sin(state) * params["a"] + params["b"]


def fork(params, state):
    return {"x": state * params, "y": jnp.sum(state) * params}


def mix(params, state):
    return {"x": jnp.cos(state["x"]) * params + state["y"][None], "y": state["y"] * params}


def total(params, state):
    return params * jnp.sum(state["x"] ** 2) + state["y"]


def make(schedule):
    """Five nodes on a vector, one that makes a dict of it, six on that, one that makes a scalar of it."""
    tape = jt.Tape().with_schedule(schedule)
    tape = tape.append(turn, {"a": jnp.linspace(0.5, 1.0, 5), "b": jnp.linspace(-0.1, 0.3, 5)})
    tape = tape.append(fork, jnp.array([0.9])).append(mix, jnp.linspace(0.8, 1.2, 6))
    return tape.append(total, jnp.array([1.1]))


def by_hand(tape, x):
    for node in tape.traverse():
        x = node(x)
    return x


def on_tape(tape, x):
    return tape(x)


def gradient(f, tape, x):
    tape_bar, x_bar = eqx.filter_grad(lambda both: f(*both))((tape, x))
    return [segment.params for segment in tape_bar.segments], x_bar


SCHEDULES = jt.StoreAll(), jt.Revolve(2), jt.Budget(bytes=2800)
each_schedule = pytest.mark.parametrize(
    "schedule", others_later(SCHEDULES, [jt.Revolve(2)], SCHEDULES), ids=str
)


@pytest.mark.costly
@each_schedule
def test_value_gradients_and_hessian_vector_products(schedule):
    tape = make(schedule)
    assert [len(segment) for segment in tape.segments] == [5, 1, 6, 1]
    assert_close(jax.jit(on_tape)(tape, X), by_hand(tape, X))
    assert_close(eqx.filter_jit(gradient)(on_tape, tape, X), gradient(by_hand, tape, X))
    desired = jax.hessian(lambda x: by_hand(tape, x))(X) @ X
    assert_close(jt.hvp(lambda x: tape(x), (X,), (X,))[-1], desired, rtol=1e-11)
    along = jt.hvp(lambda tape: tape(X), (tape,), (tape,))[-1]
    desired = jax.jvp(jax.grad(lambda tape: by_hand(tape, X)), (tape,), (tape,))[1]
    for found, want in zip(along.segments, desired.segments, strict=True):
        assert_close(found.params, want.params, rtol=1e-11)
    xs = jnp.stack([X, 2.0 * X])
    assert_close(jax.vmap(tape)(xs), jnp.stack([by_hand(tape, x) for x in xs]))


EDITS = {
    "none": lambda tape: tape,
    "erase among the first": lambda tape: tape.erase(1, 3),
    "erase among the dicts": lambda tape: tape.erase(7, 9),
    "all but one of the first": lambda tape: tape.erase(1, 5).mark(0),
    "marks within": lambda tape: tape.mark(3).mark(8),
    "a mark where the dict is made": lambda tape: tape.mark(5),
    "a mark before the scalar": lambda tape: tape.mark(12),
    "replace what makes the dict": lambda tape: tape.replace(5, 6, jnp.array([0.7])),
    "truncate before the scalar": lambda tape: tape.truncate(9).append(total, jnp.array([0.6])),
}


def _edited():
    """Every edit with few slots; in CI every third under the other schedules too."""
    for (i, name), (j, schedule) in itertools.product(enumerate(EDITS), enumerate(SCHEDULES)):
        rare = pytest.mark.slow if (i + j) % 3 else pytest.mark.costly
        marks = [rare] if schedule != jt.Revolve(2) else []
        yield pytest.param(schedule, EDITS[name], marks=marks, id=f"{name}-{schedule}")


@pytest.mark.parametrize(("schedule", "edit"), list(_edited()))
def test_recordings_and_edits(schedule, edit):
    tape = edit(make(schedule))
    desired = gradient(by_hand, tape, X)
    assert_close(gradient(on_tape, tape, X), desired)
    rec, state = tape.record(X), X
    for node in tape.traverse():
        assert_close(rec.state(node.position), state)
        state = node(state)
    assert_close(rec.value, state)
    x_bar, tape_bar = rec.pullback(1.0)
    assert_close(([segment.params for segment in tape_bar.segments], x_bar), desired)


@each_schedule
def test_edits_of_a_recording(schedule):
    rec = make(schedule).record(X)
    edits = (
        lambda r: r.erase(7, 9),
        lambda r: r.replace(5, 6, jnp.array([0.7])),
        lambda r: r.truncate(9).append(total, jnp.array([0.6])),
        lambda r: r.drop(6),
    )
    for edit in edits:
        edited = edit(rec)
        start = edited.state(0)
        assert_close(edited.value, by_hand(edited.tape, start))
        _, tape_bar = edited.pullback(1.0)
        desired, _ = gradient(by_hand, edited.tape, start)
        assert_close([segment.params for segment in tape_bar.segments], desired)


def test_a_partial_pullback_ends_in_the_structure_of_its_position():
    rec, seen = make(jt.Revolve(2)).record(X), {}
    stopped, _ = rec.pullback(1.0, stop=6, hook=seen.__setitem__)
    assert sorted(seen) == list(range(6, LENGTH + 1))
    desired = jax.grad(lambda state: by_hand(rec.tape[6:], state))(rec.state(6))
    assert_close(stopped, desired)
    assert seen[LENGTH].shape == () and seen[8].keys() == {"x", "y"}


@each_schedule
def test_a_plan_and_what_is_printed(schedule):
    tape = make(schedule)
    plan = jt.plan(tape, X)
    assert [part.nodes for part in plan.parts] == [5, 1, 6, 1]
    assert plan.taped == LENGTH
    planned = tape.with_schedule(plan.schedule).mark(8)
    assert_close(eqx.filter_jit(gradient)(on_tape, planned, X), gradient(by_hand, tape, X))
    assert [len(s) for s in tape.with_schedule(jt.plan(tape, X, slots=7).schedule).segments]
    assert repr(tape) == f"Tape(13 nodes in 4 segments, {schedule})"
    assert [line.split()[1] for line in tape.table().splitlines()[1:]] == (
        ["turn"] * 5 + ["fork"] + ["mix"] * 6 + ["total"]
    )


def test_where_it_keeps_states():
    tape = make(jt.Revolve(2))
    assert tape.record(X).kept == (0, 3, 5, 6, 9, 12, 13)
    assert all(np.isin([0, 5, 6, 12], sorted(tape.kept_positions())))


def test_several_nodes_must_keep_the_structure():
    """And the tape says which step does not."""
    tape = make(jt.Revolve(2)).truncate(5).append(fork, jnp.ones(2))
    with pytest.raises(TypeError, match=r"Step .*fork.* changes the structure of the state from"):
        tape(X)
    with pytest.raises(TypeError, match="changes the structure"):
        tape.record(X)
