"""Edits of a tape against the same edits of a plain Python list: nodes, values, cotangents, compilations."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import jaxtape as jt
import jaxtape.tape.recording

from ..helpers_tape import all_schedules, assert_close

CAPACITY = 16
X = jnp.array([0.3, -0.8])


def turn(params, state):
    return jnp.sin(state) * params["a"] + params["b"]


def stacked(nodes):
    a, b = np.array(nodes).reshape(-1, 2).T
    return {"a": jnp.asarray(a), "b": jnp.asarray(b)}


def states_of_list(nodes, x):
    """The state at every position, in NumPy."""
    states = [np.asarray(x)]
    for a, b in nodes:
        states.append(np.sin(states[-1]) * a + b)
    return states


def bars_of_list(nodes, states):
    """The cotangents of the sum of the last state's squares: of every node's (a, b), and of x."""
    bar, bars = 2.0 * states[-1], []
    for (a, _), state in zip(reversed(nodes), reversed(states[:-1]), strict=True):
        bars.append((np.sum(bar * np.sin(state)), np.sum(bar)))
        bar = bar * np.cos(state) * a
    return np.array(bars[::-1]).reshape(-1, 2), bar


def loss(tape_and_x):
    tape, x = tape_and_x
    return jnp.sum(tape(x) ** 2)


traces = []


@eqx.filter_jit
def value_and_bars(tape, x):
    traces.append(tape.schedule)
    return eqx.filter_value_and_grad(loss)((tape, x))


def assert_equals_list(tape, nodes):
    """Value and every cotangent, compiled."""
    assert len(tape) == len(nodes)
    value, (tape_bar, x_bar) = value_and_bars(tape, X)
    states = states_of_list(nodes, X)
    assert_close(value, np.sum(states[-1] ** 2))
    assert_bars(tape, (tape_bar, x_bar), nodes, states)


def assert_recording_equals_list(rec, nodes, x):
    """The state at every position, and every cotangent."""
    assert len(rec.tape) == len(nodes)
    states = states_of_list(nodes, x)
    assert_close([rec.state(k) for k in range(len(states))], states)
    x_bar, tape_bar = rec.pullback(2.0 * rec.value)
    assert_bars(rec.tape, (tape_bar, x_bar), nodes, states)


def assert_bars(tape, found, nodes, states):
    """Those of a tape of one segment; places that no node has hold zeros."""
    (segment,), (tape_bar, x_bar) = tape.segments, found
    bars, desired_x_bar = bars_of_list(nodes, states)
    assert_close(x_bar, desired_x_bar)
    found = np.stack([tape_bar.segments[0].params[name] for name in ("a", "b")], axis=1)
    np.testing.assert_allclose(found[segment.places], bars, rtol=1e-12, atol=1e-13)
    assert not np.any(np.delete(found, segment.places, axis=0))


numbers = st.floats(-1.5, 1.5, allow_subnormal=False)
some_nodes = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=3)


schedules = (
    *(schedule for schedule in all_schedules if not isinstance(schedule, jt.Budget)),
    jt.Budget(bytes=1550),
)


class Edits(RuleBasedStateMachine):
    """A tape with room for 16 nodes, a recording of it and a list of pairs, edited side by side.

    A recording whose oldest nodes are dropped starts where they led; a tape starts where it is told.
    """

    @initialize(
        schedule=st.sampled_from(schedules),
        nodes=st.lists(st.tuples(numbers, numbers), min_size=CAPACITY, max_size=CAPACITY),
    )
    def start(self, schedule, nodes):
        self.nodes, self.marked = list(nodes), [False] * CAPACITY
        self.tape = jt.Tape().with_schedule(schedule).append(turn, stacked(nodes)).mark(1)
        self.marked[1], self.x = True, X
        self.rec = self.tape.record(X)

    def both(self, edit):
        self.tape, self.rec = edit(self.tape), edit(self.rec)

    def cut(self, i, j):
        del self.nodes[i:j], self.marked[i:j]

    @precondition(lambda self: len(self.nodes) <= CAPACITY - 3)
    @rule(nodes=some_nodes)
    def append(self, nodes):
        self.both(lambda it: it.append(turn, stacked(nodes)))
        self.nodes += nodes
        self.marked += [False] * len(nodes)

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def erase(self, data):
        i = data.draw(st.integers(0, len(self.nodes)))
        j = data.draw(st.integers(i, min(i + 4, len(self.nodes))))
        self.both(lambda it: it.erase(i, j))
        self.cut(i, j)

    @rule(n=st.integers(0, 3))
    def drop(self, n):
        n = min(n, len(self.nodes))
        self.both(lambda it: it.drop(n))
        self.x = states_of_list(self.nodes[:n], self.x)[-1]
        self.cut(0, n)

    @rule(back=st.integers(0, 3))
    def truncate(self, back):
        k = max(len(self.nodes) - back, 0)
        self.both(lambda it: it.truncate(k))
        self.cut(k, len(self.nodes))

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), new=some_nodes)
    def replace(self, data, new):
        new = new[: len(self.nodes)]
        i = data.draw(st.integers(0, len(self.nodes) - len(new)))
        self.both(lambda it: it.replace(i, i + len(new), stacked(new)))
        self.nodes[i : i + len(new)] = new

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def mark(self, data):
        if sum(self.marked) < 4:
            k = data.draw(st.integers(0, len(self.nodes) - 1))
            self.tape = self.tape.mark(k)
            self.rec = self.rec.tape.mark(k).record(self.x)
            self.marked[k] = True

    @invariant()
    def marks_follow_their_nodes(self):
        if hasattr(self, "tape"):
            assert list(self.tape.marks) == list(np.flatnonzero(self.marked))
            assert self.rec.tape.marks == self.tape.marks

    def teardown(self):
        if not hasattr(self, "tape"):
            return
        tape = self.tape
        if isinstance(tape.schedule, jt.Budget):  # its slots are a number before it is compiled
            tape = tape.with_schedule(jt.plan(tape, X).schedule)
        assert tape.segments[0].capacity == CAPACITY
        assert_equals_list(tape, self.nodes)
        assert_recording_equals_list(tape.record(X), self.nodes, X)
        assert_recording_equals_list(self.rec, self.nodes, self.x)


QUIET = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


def run_machine(examples):
    machine = type("Machine", (Edits,), {})
    case = machine.TestCase
    case.settings = settings(max_examples=examples, stateful_step_count=8, **QUIET)
    case().runTest()


@pytest.fixture
def short_pieces(monkeypatch):
    """A recording is pulled back in several pieces, however short."""
    monkeypatch.setattr(jaxtape.tape.recording, "_LEAST_CHUNK", 5)


@pytest.mark.costly
def test_edits_are_those_of_a_list(short_pieces):
    run_machine(30)


@pytest.mark.slow
def test_edits_are_those_of_a_list_in_two_thousand_lives(short_pieces):
    run_machine(2000)


def make(n, schedule=all_schedules[1], seed=0):
    draws = np.random.default_rng(seed).uniform(-1.0, 1.0, (n, 2))
    return jt.Tape().with_schedule(schedule).append(turn, stacked(draws)), draws.tolist()


@pytest.mark.parametrize(
    "schedule",
    [jt.Revolve(5), jt.StoreAll(), jt.Periodic(5), jt.Marked(), jt.MultiStage(device=2, host=3)],
    ids=str,
)
def test_two_hundred_edits_within_capacity_compile_once(schedule):
    rng = np.random.default_rng(1)
    tape, nodes = make(64, schedule)
    tape, nodes = tape.erase(10, 20).mark(3), nodes[:10] + nodes[20:]
    traces.clear()
    for _ in range(200):
        n = len(nodes)
        if rng.random() < 0.5 and n <= 62:
            new = rng.uniform(-1.0, 1.0, (int(rng.integers(1, 3)), 2)).tolist()
            tape, nodes = tape.append(turn, stacked(new)), nodes + new
        elif n:
            i = int(rng.integers(0, n))
            tape, nodes = tape.erase(i, i + 1), nodes[:i] + nodes[i + 1 :]
        value_and_bars(tape, X)
    assert len(traces) == 1
    assert_equals_list(tape, nodes)


def test_capacity_doubles_and_each_doubling_compiles_once():
    tape, nodes = make(4, jt.Revolve(3))
    tape, nodes = tape.erase(0, 1), nodes[1:]
    traces.clear()
    capacities = []
    for i in range(40):
        tape, nodes = tape.append(turn, stacked([(0.1, i / 40.0)])), [*nodes, (0.1, i / 40.0)]
        value_and_bars(tape, X)
        capacities.append(tape.segments[0].capacity)
    assert sorted(set(capacities)) == [4, 8, 16, 32, 64]
    assert len(traces) == 5
    assert_equals_list(tape, nodes)


def damp(params, state):
    return 0.5 * state + params


@pytest.mark.parametrize("schedule", all_schedules, ids=str)
def test_segments_of_different_steps(schedule):
    """Erased across their border, split and put together again, the nodes are those that are left."""
    a, b = np.linspace(0.5, 1.0, 6), np.linspace(-1.0, 1.0, 5)
    tape = jt.Tape().append(turn, {"a": jnp.asarray(a), "b": jnp.asarray(a)})
    tape = tape.append(damp, jnp.asarray(b)).with_schedule(schedule)
    rest, cut = tape.traverse(4, 8).cut()
    assert (len(rest), len(cut), len(rest.segments), len(cut.segments)) == (7, 4, 2, 2)

    def by_hand(x, first, second):
        for p in first:
            x = np.sin(x) * p + p
        for p in second:
            x = 0.5 * x + p
        return x

    assert_close(rest(X), by_hand(X, a[:4], b[2:]))
    assert_close(cut(X), by_hand(X, a[4:], b[:2]))
    head, tail = rest.split(5)
    assert head + tail == rest
    assert_close((head + tail)(X), rest(X))
    assert_close(tail(head(X)), rest(X))
    assert rest != tape
    assert tape.erase(0, 6)(X).shape == X.shape
    bars = eqx.filter_grad(loss)((rest, X))[0]
    plain = jt.Tape().append(turn, {"a": jnp.asarray(a[:4]), "b": jnp.asarray(a[:4])})
    plain = plain.append(damp, jnp.asarray(b[2:]))
    desired = eqx.filter_grad(loss)((plain, X))[0]
    for segment, bar, want in zip(rest.segments, bars.segments, desired.segments, strict=True):
        live = jax.tree.map(lambda leaf, s=segment: leaf[s.places], bar.params)
        assert_close(live, want.params)


def test_a_sum_of_tapes_keeps_the_schedules_and_marks_of_both():
    a = jt.Tape().append(damp, jnp.ones(4)).with_schedule(jt.Revolve(2)).mark(3)
    b = jt.Tape().append(damp, jnp.ones(6)).with_schedule(jt.Periodic(3)).mark(1)
    both, nothing = a + b, jt.Tape()
    assert [segment.schedule for segment in both.segments] == [jt.Revolve(2), jt.Periodic(3)]
    assert both.marks == (3, 5)
    assert both.append(turn, {"a": jnp.ones(2), "b": jnp.ones(2)}).segments[-1].schedule == (
        jt.Periodic(3)
    )
    for same in (nothing + b, b + nothing):
        assert same == b and same.schedule == b.schedule
    assert (a + b) + a == a + (b + a)
    plain = jt.Tape().append(damp, jnp.ones(10))
    assert_close(eqx.filter_grad(loss)((both, X))[1], eqx.filter_grad(loss)((plain, X))[1])


def test_of_two_budgets_the_smaller_holds_for_the_sum():
    x, small = jnp.ones(1000), jt.Budget(60_000)
    a = jt.Tape().append(turn, {"a": jnp.ones(30), "b": jnp.ones(30)}).with_schedule(small)
    b = jt.Tape().append(damp, jnp.ones(9)).with_schedule(jt.Budget(10**6))
    for both in (a + b, b + a):
        assert {segment.schedule for segment in both.segments} == {small, jt.Budget(10**6)}
        assert jt.plan(both, x).peak_bytes <= small.bytes


def test_both_modes_of_an_edited_tape():
    tape, _ = make(12, jt.Revolve(3))
    tape = tape.erase(2, 5).mark(4)
    plain = jt.Tape().append(
        turn, jax.tree.map(lambda p: p[tape.segments[0].places], tape.segments[0].params)
    )
    square = lambda tape: lambda x: jnp.sum(tape(x) ** 2)
    for derivative in (
        jax.grad,
        jax.jacfwd,
        jax.hessian,
        lambda f: lambda x: jax.vmap(jax.grad(f))(jnp.stack([x, 2.0 * x])),
        lambda f: lambda x: jax.grad(jax.checkpoint(f))(x),
    ):
        assert_close(jax.jit(derivative(square(tape)))(X), derivative(square(plain))(X), rtol=1e-11)


def test_a_tape_says_what_it_is():
    tape = make(40, jt.Revolve(3))[0].mark(7)
    assert repr(tape) == "Tape(40 nodes in 1 segments, Revolve(slots=3), marks 7)"
    lines = tape.table().splitlines()
    assert lines[0].split() == ["position", "operation", "live", "kept", "bytes"]
    assert lines[1].split() == ["0", "turn", "1", "slot", "16"]
    assert lines[8].split() == ["7", "turn", "2", "mark", "16"]
    assert "20 more" in lines[11]


def test_a_batch_of_tapes_shares_its_edits():
    tape = make(8, jt.Revolve(3))[0].drop(2)
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), tape)
    with pytest.raises(ValueError, match="must share their edits"):
        jax.vmap(lambda tape: tape(X))(both)
    axes = jax.tree.map(lambda _: None, tape)
    axes = eqx.tree_at(
        lambda t: t.segments[0].params, axes, {"a": 0, "b": 0}, is_leaf=lambda x: x is None
    )
    params = jax.tree.map(lambda leaf: jnp.stack([leaf, 2.0 * leaf]), tape.segments[0].params)
    batch = eqx.tree_at(lambda t: t.segments[0].params, tape, params)
    found = jax.vmap(lambda tape: tape(X), in_axes=(axes,))(batch)
    doubled = eqx.tree_at(
        lambda t: t.segments[0].params, tape, jax.tree.map(lambda p: p[1], params)
    )
    assert_close(found, jnp.stack([tape(X), doubled(X)]))


def test_marked_states_are_kept_and_the_pieces_between_them_scheduled():
    """Counted as they run: a piece of m nodes takes advances(m, 3) steps, the first sweep goes once."""
    counts = {"advanced": 0, "taped": 0}

    @jax.custom_vjp
    def probe(x):
        jax.debug.callback(lambda: counts.update(advanced=counts["advanced"] + 1))
        return x

    def forward(x):
        jax.debug.callback(lambda: counts.update(taped=counts["taped"] + 1))
        return x, None

    probe.defvjp(forward, lambda _, bar: (bar,))
    step = lambda params, state: probe(turn(params, state))
    n, marks = 60, (10, 25, 47)
    tape = jt.Tape().with_schedule(jt.Revolve(3)).append(step, stacked([(0.9, 0.1)] * n))
    tape = functools.reduce(jt.Tape.mark, marks, tape)
    jax.block_until_ready(eqx.filter_jit(eqx.filter_grad(loss))((tape, X)))
    jax.effects_barrier()
    pieces = np.diff([0, *marks, n])
    recomputed = sum(jt.advances(int(m), 3) for m in pieces[:-1])
    assert counts["taped"] == n
    assert (
        counts["advanced"]
        == int(np.sum(pieces[:-1])) + recomputed + jt.advances(int(pieces[-1]), 3) + 1
    )


def test_what_is_kept_with_marks_is_what_the_sweep_keeps():
    tape = make(16, jt.Revolve(3))[0].mark(12)
    assert tape.record(X).kept == (0, 12, 13, 14, 16)


def test_a_tape_that_is_not_known_here_says_so():
    tape = make(8, jt.Revolve(3))[0].drop(1)
    bar = eqx.filter_grad(loss)((tape, X))[0]
    assert "nodes unknown here" in repr(bar)
    with pytest.raises(TypeError, match="gradient of an edited tape"):
        len(bar)
    eqx.filter_jit(lambda tape: repr(tape))(tape)
    assert jt.Tape().append(turn, stacked([(1.0, 1.0)])).drop(1).table().count("\n") == 0
    with pytest.raises(IndexError, match="-2 nodes cannot be dropped"):
        tape.drop(-2)
