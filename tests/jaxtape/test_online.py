"""What a loop of unknown length keeps, on the host: its tables are followed step by step, and counted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxtape as jt
from jaxtape.schedules import online
from jaxtape.schedules.online import online_table, two_sweeps
from jaxtape.schedules.table import equal_sizes, nested_blocks, repetition


def followed(table, n):
    """How often each of n steps is advanced, by the sweeps of `jaxtape/sweeps/open.py` in plain Python."""
    advanced, slots = np.zeros(n, int), [None] * table.slots

    def advance(start, stop):
        advanced[start:stop] += 1
        return stop

    rows = rows_before(table, n)
    for k in range(n):
        if k in rows:
            slots[rows[k]] = k
        advance(k, k + 1)
    order = sorted(i for i, position in enumerate(slots) if position is not None)
    order.sort(key=slots.__getitem__)
    order += [i for i in range(table.slots) if slots[i] is None]
    top = sum(position is not None for position in slots) - 1
    for k in reversed(range(n)):
        position = slots[order[top]]
        assert position <= k
        while position < k - 1 and table.slots - top > 1:
            position = advance(position, position + first_part(table, k + 1 - position, top))
            top += 1
            slots[order[top]] = position
        advance(position, k)
        top -= slots[order[top]] == k
    assert top == -1
    return advanced


def rows_before(table, n):
    """The slot in which each state that is kept before position n is put, by position."""
    turns = ((turn, table.slots - turn) for turn in range(table.slots - 1))
    parts = [(turn, part) for turn, last in turns for part in range(last + 1)]
    parts.append((table.slots - 1, 0))
    assert len(parts) >= table.dense_rows
    rows = {k: int(table.dense_slot(*np.array(parts[k]))) for k in range(min(n, table.dense_rows))}
    late = zip(table.position, table.slot, [*table.position, n][1:], strict=False)
    for start, slot, end in late:
        again = online.REFRESH if start >= online.REFRESHED else max(end - start, 1)
        rows |= dict.fromkeys(range(start, min(end, n), again), slot)
    return rows


def first_part(table, size, top):
    free = table.slots - top
    if size <= free + 1:
        return 1
    most, fewer = table.betas[free], table.betas[free - 1]
    r = (most < size).sum()
    assert r < len(most)  # the columns are enough
    return min(most[r - 1], size - fewer[r - 1])


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8])
def test_every_length_is_reached_in_as_many_steps_as_are_said(slots):
    table = online_table(150, slots)
    for n in range(151):
        advanced = followed(table, n)
        assert advanced.sum() == jt.loop_advances(n, slots) == table.count_advances(n)
        assert advanced.sum() <= n * max(repetition(n + 1, slots), 1)


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(1, 1500), st.integers(1, 60))
def test_lengths_drawn_at_random(data, length, slots):
    table = online_table(length, slots)
    n = data.draw(st.integers(0, length))
    assert followed(table, n).sum() == table.count_advances(n) == jt.loop_advances(n, slots)


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 7, 12, 30])
def test_few_steps_more_than_if_the_length_were_known(slots):
    """The value is one step of them; with one slot, or few steps, a step more is much."""
    table, lengths = online_table(2000, slots), range(1, 2001, 13)
    found = np.array([table.count_advances(n) for n in lengths])
    least = np.array([jt.advances(n, slots) + 1 for n in lengths])
    assert (found >= least).all()
    assert found.sum() <= 1.02 * least.sum()


@pytest.mark.parametrize("slots", range(1, 25))
def test_each_step_at_most_twice_while_the_slots_suffice(slots):
    """With the count in closed form: once where all states are kept, else all but `slots` steps again."""
    longest = max(n for n in range(1, 400) if two_sweeps(n) <= slots)
    table = online_table(longest, slots)
    assert table.dense
    for n in range(1, longest + 1):
        assert table.count_advances(n) == max(n, 2 * n - slots)
        assert followed(table, n).max() <= 2


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
@pytest.mark.parametrize("length", [50, 400, 2500])
def test_no_more_steps_than_blocks_within_blocks_with_as_many_slots(length, levels):
    """Which run each block again, to its last node, but for those that the first sweep ended in."""
    slots, _, load_position = nested_blocks(length, equal_sizes(length, levels))
    again = np.cumsum(np.arange(length) - load_position)
    table = online_table(length, slots)
    for n in range(2, length + 1, max(1, length // 100)):
        assert table.count_advances(n) <= n + again[n - 2]


def test_a_million_steps():
    for slots in (3, 1000):
        table = online_table(10**6, slots)
        assert table.count_advances(10**6) <= 1.03 * jt.advances(10**6, slots)


@pytest.fixture
def early(monkeypatch):
    """Tables whose last state moves along from position 256 on, not from a million."""
    for name, value in {"_GRAIN": 64, "REFRESH": 4, "REFRESHED": 256}.items():
        monkeypatch.setattr(online, name, value)
    return online_table.__wrapped__


@pytest.mark.parametrize("slots", [2, 3, 6])
def test_a_last_state_that_moves_along(slots, early):
    table, found, least = early(2000, slots), [], []
    assert table.refreshes
    for n in range(250, 2001, 37):
        assert followed(table, n).sum() == table.count_advances(n)
        found.append(table.count_advances(n))
        least.append(jt.advances(n, slots) + 1)
    assert sum(found) <= 1.03 * sum(least)


@pytest.mark.costly
@pytest.mark.parametrize("slots", [2, 8, 46])
def test_as_many_steps_as_a_loop_can_count(slots):
    """The rows grow with the logarithm, and the steps stay near the fewest."""
    table = online_table(2**31 - 1, slots)
    assert len(table.position) < 60_000
    for n in (10**4, 10**7, 10**9 + 1, 2**31 - 1):
        assert table.count_advances(n) <= 1.02 * jt.advances(n, slots)
    assert online_table(2**31 - 1, two_sweeps(2**31 - 1)).position.size == 0


def test_misuse():
    with pytest.raises(ValueError, match=r"n is 2,147,483,648, .* at most 2,147,483,647"):
        jt.loop_advances(2**31, 3)
    with pytest.raises(ValueError, match="does not take -1 steps: give n >= 0"):
        jt.loop_advances(-1, 3)
    with pytest.raises(ValueError, match=r"slots is 0: .*at least 1"):
        jt.loop_advances(3, 0)
    with pytest.raises(TypeError):
        jt.loop_advances(3, 3.0)
