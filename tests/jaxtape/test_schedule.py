"""The tables of schedules against closed forms and against a list of kept states."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxtape as jt
from jaxtape.schedules.layout import TableLayout, marked_table, schedule_arrays
from jaxtape.schedules.table import slots_within

SCHEDULES = (
    *(jt.Revolve(3), jt.Periodic(7), jt.Recursive(2), jt.Marked()),
    *(jt.StoreAll(), jt.MultiStage(2, 2)),
)


def replay(table):
    """Follow a table on integers in place of states; returns the forward steps it took."""
    n, kept, steps = len(table), {0: 0}, 0

    def follow(position, first, last):
        count = 0
        for row in range(first, last):
            target = int(table.store_position[row])
            assert target >= position
            count += target - position
            position = kept[int(table.store_slot[row])] = target
        return position, count

    position, steps = follow(0, *table.sweep_rows)
    steps += n - 1 - position
    kept[int(table.load_slot[-1])] = n - 1
    for k in reversed(range(n)):
        position = int(table.load_position[k])
        assert kept[int(table.load_slot[k])] == position
        position, count = follow(position, int(table.first_row[k]), int(table.last_row[k]))
        assert position <= k
        steps += count + k - position
    assert all(0 <= slot < table.slots for slot in kept)
    return steps


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(1, 400), st.integers(1, 60))
def test_a_table_takes_the_fewest_steps(n, slots):
    table = jt.Revolve(slots).table(n)
    assert replay(table) == table.count_advances() == jt.advances(n, slots)
    assert table.slots <= min(slots, n) + 1


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(1, 400), st.integers(1, 60))
def test_periodic_recomputes_each_block_once(n, every):
    table = jt.Periodic(every).table(n)
    assert replay(table) == table.count_advances() <= 2 * n
    assert table.slots <= math.ceil(n / every) + every - 1


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 2000), st.integers(1, 5))
def test_recursive_takes_a_sweep_a_level(n, levels):
    table = jt.Recursive(levels).table(n)
    assert replay(table) == table.count_advances() <= levels * n
    parts = max(2, math.ceil(n ** (1 / levels)))
    assert table.slots <= parts + (levels - 1) * (parts - 1)
    assert table.count_advances() >= jt.advances(n, table.slots)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 60), st.sets(st.integers(1, 59), max_size=4), st.sampled_from(SCHEDULES))
def test_marked_states_have_slots_of_their_own(n, marks, schedule):
    """A table with marks loads what it has kept, and so do its rows as data, in a layout with room to grow."""
    marks = tuple(sorted(mark for mark in marks if mark < n))
    table = marked_table(n, schedule, marks)
    assert replay(table) == table.count_advances()
    starts = [0, *marks]
    most = max(schedule.table(b - a).slots for a, b in zip(starts, [*marks, n], strict=True))
    assert table.slots == most + len(marks)
    layout = TableLayout.of(schedule, 64, n, marks, mark_slots=4)
    padded = marked_table(n, schedule, marks, layout.slots - 4)
    assert replay(padded) == replay(table) and padded.slots <= layout.slots
    order = np.arange(64, dtype=np.int32)
    rows = schedule_arrays(schedule, order, n, marks, layout)
    assert rows.length == n and rows.order is order
    assert rows.load_position.shape == rows.load_slot.shape == (64,)
    np.testing.assert_array_equal(rows.load_slot[:n], padded.load_slot)
    np.testing.assert_array_equal(rows.load_position[:n], padded.load_position)
    np.testing.assert_array_equal(rows.sweep_rows, padded.sweep_rows)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_a_layout_has_slots_for_every_shorter_chain(schedule):
    for capacity in (1, 2, 9, 40):
        most = schedule.most_slots(capacity, capacity)
        assert most >= max(schedule.table(n).slots for n in range(1, capacity + 1))
        assert most <= capacity + 1
    assert schedule.host_slots(40) == (2 if isinstance(schedule, jt.MultiStage) else 0)


def test_slots_of_a_layout_are_no_more_than_are_used():
    assert [jt.Revolve(4).most_slots(n, n) for n in (1, 4, 10, 99)] == [2, 5, 5, 5]
    assert [jt.MultiStage(2, 3).most_slots(n, n) for n in (1, 5, 10)] == [2, 6, 6]
    assert [jt.Marked().most_slots(100, n) for n in (1, 2, 5, 8, 9)] == [1, 2, 8, 8, 16]
    assert jt.Marked().most_slots(10, 9) == 10 and jt.Revolve(4).most_slots(0, 0) == 1


def least_work(costs, slots):
    """The least work forward that reverses nodes of these costs, by the recursion on intervals."""

    @functools.cache
    def of(i, j, s):
        if j - i == 1:
            return 0.0
        if s == 1:
            return sum(sum(costs[i:k]) for k in range(i + 1, j))
        return min(sum(costs[i:m]) + of(m, j, s - 1) + of(i, m, s) for m in range(i + 1, j))

    return of(0, len(costs), slots)


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 11, 12, 20])
def test_nodes_of_unequal_cost_take_the_least_work(slots):
    costs = np.random.default_rng(slots).lognormal(0.0, 1.5, 12).round(3).tolist()
    table = jt.Weighted(slots, costs).table(12)
    assert table.count_work(costs) == pytest.approx(least_work(costs, slots), rel=1e-12)
    assert table.slots <= jt.Revolve(slots).table(12).slots


def test_nodes_of_equal_cost_take_the_steps_of_revolve():
    for n, slots in ((1, 1), (2, 1), (40, 3), (190, 8), (700, 4)):
        table = jt.Weighted(slots, [2.0] * n).table(n)
        assert table.count_advances() == jt.advances(n, slots)


def test_slots_within_a_segment_go_where_they_save_most_work():
    """Twenty heavy nodes among eighty, of 200 times the cost of the others."""
    costs = ([1.0] * 6 + [200.0] * 2) * 10
    work = jt.Weighted(10, costs).table(80).count_work(costs)
    assert work < 0.75 * jt.Revolve(10).table(80).count_work(costs)


def test_the_gradient_under_costs_is_that_of_lax_scan():
    params, x = jnp.linspace(0.5, 1.2, 23), jnp.array([0.3, -0.8])
    tape = jt.Tape().append(lambda p, s: jnp.sin(s) * p, params)
    gradient = jax.grad(lambda tape: jnp.sum(tape(x)))
    weighted = gradient(tape.with_schedule(jt.Weighted(4, range(1, 24))))
    desired = gradient(tape).segments[0].params
    np.testing.assert_allclose(weighted.segments[0].params, desired, rtol=1e-13)


def test_costs_that_are_none():
    with pytest.raises(ValueError, match=r"costs has -1\.0: give a finite cost of 0 or more"):
        jt.Weighted(3, [1.0, -1.0])
    with pytest.raises(ValueError, match=r"costs has 2 entries, .* 3 nodes: give one entry a node"):
        jt.Weighted(3, [1.0, 2.0]).table(3)


def test_slots_within_a_budget():
    """Of nodes whose work takes 10 bytes and whose states take 30; one state is left apart."""
    fit = functools.partial(slots_within, work=lambda kept: 10, state=30)
    assert [fit(budget, 3) for budget in (70, 99, 100, 129, 130, 999)] == [1, 1, 2, 2, 3, 3]
    assert fit(40, 1) == 1 and fit(70, 2) == 1 and slots_within(10, 5, lambda kept: 10, 0) == 5
    with pytest.raises(ValueError, match="so give at least 70"):
        fit(69, 2)


def test_slots_within_a_budget_where_more_of_them_take_more_work():
    """The work of a node takes 10 bytes, and 50 beside 4 states of 30 bytes or more."""
    fit = lambda budget: slots_within(budget, 9, lambda kept: 50 if kept >= 4 else 10, 30, 4)
    assert [fit(budget) for budget in (70, 100, 169, 170, 200, 319, 350)] == [1, 2, 2, 3, 4, 7, 9]
    with pytest.raises(ValueError, match="so give at least 70"):
        fit(69)


def test_advances_is_the_optimum_of_the_recursion():
    """t(n, s) = min over m of m + t(n - m, s - 1) + t(m, s): Griewank & Walther 2000, (3)."""
    best = {(1, s): 0 for s in range(1, 8)}
    for n in range(2, 60):
        best[n, 1] = n * (n - 1) // 2
        for s in range(2, 8):
            best[n, s] = min(m + best[n - m, s - 1] + best[m, s] for m in range(1, n))
    assert all(jt.advances(n, s) == t for (n, s), t in best.items())


def test_closed_forms():
    assert [jt.beta(3, r) for r in range(-1, 4)] == [0, 1, 4, 10, 20]
    assert jt.beta(12, 2) == math.comb(14, 2) < 365 <= jt.beta(12, 3)
    assert jt.advances(365, 12) == 3 * 365 - jt.beta(13, 2) == 990
    assert jt.advances(0, 3) == jt.advances(1, 3) == 0
    assert jt.advances(10, 10) == jt.advances(10, 99) == 9


@pytest.mark.parametrize(("n", "slots"), [(4096, 8), (4096, 91), (10**6, 100), (10**6, 10**6)])
def test_long_chains(n, slots):
    assert jt.Revolve(slots).table(n).count_advances() == jt.advances(n, slots)


def test_schedules_show_their_settings():
    assert repr(jt.Revolve(3)) == "Revolve(slots=3)"
    inexact = jt.MultiStage(2, 3, checkpoint_dtype=jnp.float32)
    assert repr(inexact) == "MultiStage(device=2, host=3, checkpoint_dtype=float32)"


def test_schedules_are_values():
    assert jt.Revolve(3) == jt.Revolve(slots=3) != jt.Revolve(4)
    assert hash(jt.StoreAll()) == hash(jt.StoreAll())
    assert jt.StoreAll().keeps_residuals and not jt.Revolve(3).keeps_residuals
    assert jt.Revolve(3).table(9) is jt.Revolve(3).table(9)


def test_an_empty_chain_is_left_to_lax_scan():
    run = functools.partial(jt.scan, lambda c, x: (jnp.sin(c) * x, c), jnp.ones(2))
    jaxpr, other = (
        str(jax.make_jaxpr(functools.partial(run, schedule=schedule))(jnp.ones(0)))
        for schedule in (jt.Revolve(3), jt.StoreAll())
    )
    assert jaxpr == other


@pytest.mark.parametrize("schedule", [jt.Periodic, jt.Recursive])
def test_counts_are_checked(schedule):
    with pytest.raises(ValueError, match=r"is 0: .*at least 1"):
        schedule(0)
    with pytest.raises(TypeError, match=r"is True: .*Python int"):
        schedule(True)


@pytest.mark.parametrize("slots", [0, -1])
def test_too_few_slots(slots):
    with pytest.raises(ValueError, match=f"slots is {slots}.*at least 1"):
        jt.Revolve(slots)
    with pytest.raises(ValueError, match=f"slots is {slots}.*at least 1"):
        jt.advances(5, slots)


def test_slots_are_a_python_int():
    with pytest.raises(TypeError, match=r"slots is True.*Python int"):
        jt.Revolve(True)


def test_negative_chain():
    with pytest.raises(ValueError, match="chain of -1 steps"):
        jt.advances(-1, 2)
