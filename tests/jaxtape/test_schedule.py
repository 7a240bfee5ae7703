"""The tables of schedules against closed forms and against a list of kept states."""

import functools
import math
import time

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxtape as jt


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


@pytest.mark.parametrize(
    ("n", "slots", "seconds"), [(4096, 8, 0.1), (4096, 91, 0.1), (10**6, 100, 5), (10**6, 10**6, 5)]
)
def test_long_chains_compile_quickly(n, slots, seconds):
    start = time.perf_counter()
    table = jt.Revolve(slots).table(n)
    assert time.perf_counter() - start < seconds
    assert table.count_advances() == jt.advances(n, slots)


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
