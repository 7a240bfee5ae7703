"""Memory shared by threads."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pricing.portfolio.sweep.memory_gate import MemoryGate


def test_work_waits_until_there_is_room_for_it():
    gate, inside, most = MemoryGate(100), [], []

    def work(size: int):
        with gate.holding(size):
            inside.append(size)
            most.append(sum(inside))
            time.sleep(0.01)
            inside.remove(size)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, [40, 60, 30, 120, 50, 50, 90, 10]))
    assert len(most) == 8 and not inside
    assert max(found for found in most if found != 120) <= 100


def test_room_is_given_back_when_work_fails():
    gate = MemoryGate(100)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), gate.holding(80):
            raise ZeroDivisionError
    with gate.holding(100):
        pass
