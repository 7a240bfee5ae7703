"""Recordings: states on demand, partial pullbacks, edits that run only what they must, diagnoses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtape as jt
from jaxtape.tape.recording import Chunk, pull_chunk

from ..cases import others_later
from ..helpers_tape import all_schedules, assert_close

X = jnp.array([0.3, -0.8])
counts = {"runs": 0}


def tell(_):
    counts["runs"] += 1


def turn(params, state):
    """A step that counts how often it runs forward."""
    jax.debug.callback(tell, params["a"])
    return jnp.sin(state) * params["a"] + params["b"]


def damp(params, state):
    return 0.5 * state + params


def counted_damp(params, state):
    """A step of another kind that counts too."""
    jax.debug.callback(tell, params)
    return 0.5 * state + params


def stacked(n, seed):
    draws = np.random.default_rng(seed).uniform(-1.0, 1.0, (2, n))
    return {"a": jnp.asarray(draws[0]), "b": jnp.asarray(draws[1])}


def make(schedule, n=30):
    tape = jt.Tape().with_schedule(schedule).append(turn, stacked(n, 0))
    return tape.append(damp, jnp.linspace(-1.0, 1.0, 5))


def counted(f):
    """What `f` returns, and how many steps ran."""
    jax.effects_barrier()
    before = counts["runs"]
    out = f()
    jax.block_until_ready(jax.tree.leaves(getattr(out, "value", out)))
    jax.effects_barrier()
    return out, counts["runs"] - before


def loss(tape_and_x):
    tape, x = tape_and_x
    return jnp.sum(tape(x) ** 2)


each_schedule = pytest.mark.parametrize("schedule", all_schedules, ids=str)


@each_schedule
def test_every_state_and_every_cotangent(schedule):
    tape = make(schedule).erase(4, 6).mark(9)
    rec = tape.record(X)
    assert_close(rec.value, tape(X))
    state = X
    for node in tape.traverse():
        assert_close(rec.state(node.position), state)
        state = node(state)
    tape_bar, x_bar = eqx.filter_grad(loss)((tape, X))
    found_x_bar, found = rec.pullback(2.0 * rec.value)
    assert_close(found_x_bar, x_bar)
    for segment, desired in zip(found.segments, tape_bar.segments, strict=True):
        assert_close(segment.params, desired.params)


def test_it_keeps_what_the_schedule_and_the_marks_say():
    tape = make(jt.Revolve(4)).mark(7)
    kept = tape.record(X).kept
    assert {0, 7, 30, 35} <= set(kept)
    assert len(kept) <= 1 + 4 + 4 + 3
    assert make(jt.StoreAll()).record(X).kept == tuple(range(36))


def test_a_partial_pullback_stops_where_it_is_told():
    rec = make(jt.Revolve(4)).record(X)
    state_bar, tape_bar = rec.pullback(2.0 * rec.value, stop=12)
    tail = rec.tape[12:]
    desired_tape, desired = eqx.filter_grad(loss)((tail, rec.state(12)))
    assert_close(state_bar, desired)
    for name in ("a", "b"):
        bars = tape_bar.segments[0].params[name]
        assert not np.any(bars[:12])
        assert_close(bars[12:], desired_tape.segments[0].params[name][12:])


def test_a_hook_sees_every_cotangent_as_it_passes():
    rec, seen = make(jt.Revolve(4)).record(X), {}
    rec.pullback(2.0 * rec.value, stop=20, hook=seen.__setitem__)
    assert list(seen) == list(range(35, 19, -1))
    for k, bar in seen.items():
        assert_close(bar, rec.pullback(2.0 * rec.value, stop=k)[0])


def fewest(kept, n, edit, i, j, added=0):
    """The steps that an edit has to run, given the positions whose states are at hand."""
    to_i = i - max(p for p in kept if p <= i)
    if edit == "append":
        return added
    if edit in ("drop", "truncate"):
        return to_i
    return 0 if i == j else to_i + n - (j if edit == "erase" else i)


def do(edit, what, i, j, added):
    """An edit of a tape or of a recording of it, whose nodes [i, j) are of one segment."""
    if edit == "append":
        return what.append(counted_damp, jnp.linspace(-1.0, 1.0, added))
    if edit in ("drop", "truncate"):
        return getattr(what, edit)(i)
    if edit == "erase":
        return what.erase(i, j)
    return what.replace(i, j, stacked(j - i, 7))


run = eqx.filter_jit(lambda tape, x: tape(x))

kinds_of_schedule = [
    jt.StoreAll(),
    jt.Revolve(1),
    jt.Revolve(4),
    jt.Periodic(5),
    jt.Recursive(3),
    jt.Marked(),
    jt.MultiStage(device=2, host=2),
    jt.Budget(bytes=600),
]
# what an edit runs depends on the states that a schedule keeps: many, few, those marked, those that fit
few_kinds = others_later(
    kinds_of_schedule,
    [jt.Revolve(4)],
    [jt.Marked(), jt.StoreAll(), jt.Budget(bytes=600)],
)


@pytest.mark.parametrize("schedule", few_kinds, ids=str)
@pytest.mark.parametrize(
    "is_edited", [pytest.param(False, marks=pytest.mark.slow), True], ids=["as made", "edited"]
)
def test_every_edit_runs_the_fewest_steps_that_the_states_at_hand_allow(schedule, is_edited):
    tape = jt.Tape().with_schedule(schedule).append(turn, stacked(40, 0))
    tape = tape.append(counted_damp, jnp.linspace(-1.0, 1.0, 6))
    if is_edited:
        tape = tape.drop(2).erase(7, 11).mark(9).mark(20).append(counted_damp, jnp.ones(3))
    rec, n = tape.record(X), len(tape)
    assert n == (43 if is_edited else 46)
    kept = {0, n, *(max(p for p in rec.kept if p <= k) for k in (13, 31))}
    places = sorted({p for k in kept for p in (k - 1, k, k + 1) if 0 <= p <= n})
    for edit in ("append", "drop", "truncate", "erase", "replace"):
        for i in places if edit != "append" else [0]:
            last = len(rec.tape.segments[0]) if edit == "replace" else n
            for j in {min(i, last), min(i + 3, last)}:
                i = min(i, j)
                edited, ran = counted(lambda e=edit, i=i, j=j: do(e, rec, i, j, 2))
                assert ran == fewest(rec.kept, n, edit, i, j, added=2), (edit, i, j)
                assert_close(edited.value, run(edited.tape, edited.state(0)))


@pytest.mark.parametrize("schedule", few_kinds, ids=str)
def test_a_life_of_edits_runs_the_fewest_steps_each_time(schedule):
    rng = np.random.default_rng(3)
    tape = jt.Tape().with_schedule(schedule).append(turn, stacked(40, 0)).mark(12)
    rec = tape.append(counted_damp, jnp.ones(6)).record(X)
    for _ in range(40):
        n, kept = len(rec.tape), rec.kept
        edit = rng.choice(["append", "drop", "truncate", "erase", "replace"])
        top = len(rec.tape.segments[0]) if edit == "replace" else n
        i = int(rng.integers(0, top + 1))
        j = int(min(i + rng.integers(0, 3), top))
        i = {"drop": min(i, 2), "truncate": max(i, n - 2)}.get(edit, i)
        if edit == "replace" and rec.tape.segments[0].step is not turn:
            continue
        added = int(rng.integers(1, 4))
        rec, ran = counted(lambda e=edit, i=i, j=j, a=added, r=rec: do(e, r, i, j, a))
        assert ran == fewest(kept, n, edit, i, j, added), (edit, i, j)
        wanted = rec.tape.kept_positions() | {0, len(rec.tape)}
        assert len(rec.kept) <= 2 * len(wanted)
    for k in rec.kept:
        assert_close(rec.state(k), run(rec.tape[:k], rec.state(0)))


@pytest.mark.parametrize(
    ("edit", "same", "runs"),
    [
        # of 30 counted nodes; states kept at 0, 15, 24, 27 and before the 30th, and at 30
        (lambda r: r.erase(26, 28), lambda t: t.erase(26, 28), 28 - 24),
        (lambda r: r.erase(15, 16), lambda t: t.erase(15, 16), 29 - 15),
        (lambda r: r.truncate(27), lambda t: t.truncate(27), 0),
        (lambda r: r.truncate(20), lambda t: t.truncate(20), 5),
        (lambda r: r.replace(25, 27, stacked(2, 5)), lambda t: t.replace(25, 27, stacked(2, 5)), 6),
        (lambda r: r.append(damp, jnp.ones(3)), lambda t: t.append(damp, jnp.ones(3)), 0),
        (lambda r: r.erase(12, 12), lambda t: t, 0),
    ],
    ids=[
        "erase",
        "erase at a kept state",
        "truncate there",
        "truncate",
        "replace",
        "append",
        "nothing",
    ],
)
def test_an_edit_runs_only_the_nodes_after_the_last_state_that_is_still_right(edit, same, runs):
    tape = make(jt.Revolve(4))
    rec = tape.record(X)
    assert {0, 15, 24, 27, 30} <= set(rec.kept)
    edited, ran = counted(lambda: edit(rec))
    assert ran == runs
    assert_close(edited.value, same(tape)(X))
    assert edited.tape == same(tape)
    for k in edited.kept:
        assert_close(edited.state(k), edited.tape[:k](X))


def test_dropping_the_oldest_keeps_every_later_state():
    rec = make(jt.Revolve(4)).record(X)
    dropped, ran = counted(lambda: rec.drop(17))
    assert ran == 2  # from the state at 15 to the new first one
    assert_close(dropped.value, rec.value)
    assert set(dropped.kept) >= {p - 17 for p in rec.kept if p > 17}
    assert_close(dropped.state(3), rec.state(20))


def test_a_diagnosis_names_the_first_node_and_leaf():
    rec = make(jt.Revolve(4)).record(X)
    assert rec.diagnose(jnp.ones(2)) is None
    broken = rec.replace(17, 18, {"a": jnp.array([jnp.inf]), "b": jnp.zeros(1)})
    assert broken.diagnose() == (17, "state", "state")

    def root(params, state):
        return {"x": jnp.sqrt(state["x"]) * params, "y": state["y"]}

    start = {"x": jnp.array([0.0, 1.0]), "y": jnp.ones(2)}
    flat = jt.Tape().append(root, jnp.ones(3)).record(start)
    assert flat.diagnose() is None
    bad = flat.diagnose({"x": jnp.ones(2), "y": jnp.ones(2)})
    assert bad == (2, "cotangent", "state['x']")


def test_emptied_segments_are_gone():
    tape = jt.Tape().append(turn, stacked(8, 0)).with_schedule(jt.Revolve(3))
    other = tape.drop(8).append(damp, jnp.ones(3))
    head, tail = tape.split(0)
    for left in (other, head + tail):
        rec = left.record(X)
        _, tape_bar = rec.pullback(2.0 * rec.value)
        desired = eqx.filter_grad(loss)((left, X))[0]
        for found, want in zip(tape_bar.segments, desired.segments, strict=True):
            assert_close(found.params, want.params)


def test_what_is_appended_to_a_recording_under_a_budget_keeps_slots_too():
    tape = jt.Tape().append(turn, stacked(40, 0)).with_schedule(jt.Budget(6000))
    rec = tape.record(jnp.ones(40)).append(damp, jnp.ones(60))
    assert [segment.schedule.budget for segment in rec.tape.segments] == [None, None]
    assert len(rec.kept) < 60


def test_python_numbers_are_a_state_and_a_cotangent():
    tape = jt.Tape().append(damp, jnp.arange(3.0))
    bar, _ = tape.record(8.0).pullback(1.0)
    assert bar == 0.125


def test_rolling_keeps_a_bounded_number_of_states():
    rec = jt.Tape().with_schedule(jt.Revolve(3)).append(damp, jnp.ones(64)).record(X)
    for _ in range(100):
        rec = rec.append(damp, jnp.ones(1)).drop(1)
    assert len(rec.kept) <= 12
    assert np.diff(rec.kept).max() <= 22  # as many again, spread as evenly as they can be
    assert_close(rec.value, jt.Tape().append(damp, jnp.ones(164)).record(X).value)


def test_a_diagnosis_finds_what_no_kept_state_shows():
    tape = jt.Tape().with_schedule(jt.Revolve(1)).append(lambda p, s: p / s, jnp.ones(6))
    assert tape.record(jnp.array(0.0)).diagnose() == (0, "state", "state")
    with pytest.raises(ValueError, match="first state is not finite"):
        tape.record(jnp.array(jnp.nan)).diagnose()


@pytest.mark.parametrize(
    ("schedule", "most"), [(jt.StoreAll(), 36), (jt.Periodic(8), 36), (jt.Revolve(12), 18)], ids=str
)
def test_a_piece_is_pulled_back_in_room_for_its_own_nodes(schedule, most):
    """In states: of the 32 nodes or the schedule's slots, not of the thousand that the tape has room for."""
    n, x = 1024, jnp.ones(4096)
    scale = lambda params, state: jnp.sin(state) * params
    tape = jt.Tape().with_schedule(schedule).append(scale, jnp.ones(n)).drop(3).mark(110)
    given = Chunk.of(tape, 100, 132), x, x
    compiled = pull_chunk.lower(given, (jnp.ones(n), [])).compile().compiled
    assert compiled.memory_analysis().temp_size_in_bytes <= most * x.nbytes


def test_few_programs_serve_all_pieces():
    """Chunks of 32 nodes and more, and what is left over, of every length up to 31."""
    traces = []

    def scale(params, state):
        traces.append(params)
        return state * params

    rec = jt.Tape().append(scale, jnp.linspace(0.9, 1.1, 200)).record(jnp.float64(1.0))
    rec.pullback(1.0)
    before = len(traces)
    for stop in range(40):
        rec.pullback(1.0, stop=stop)
    assert len(traces) - before <= 6 * before
