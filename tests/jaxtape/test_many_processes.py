"""A store that a hundred processes share, and that a process is killed beside.

Children are forked before JAX has started: this module makes no array when it is imported.
"""

import itertools
import multiprocessing
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxtape as jt
from jaxtape.programs import store

_barrier: Any = None


def meet(barrier) -> None:
    global _barrier
    _barrier = barrier


def squares(x):
    return {"squares": x * x}


def use_at_once(folder: str) -> list[float]:
    jt.set_program_store(folder)
    _barrier.wait(300)
    return jt.stored_jit(squares)(jnp.arange(3.0))["squares"].tolist()


def processes():
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["jax", "jaxtape", __name__])
    return found


@pytest.mark.slow
def test_a_hundred_processes_at_once(tmp_path):
    context, count = processes(), 100
    with context.Pool(count, meet, (context.Barrier(count),)) as pool:
        found = pool.map(use_at_once, [str(tmp_path)] * count, chunksize=1)
    assert found == [[0.0, 1.0, 4.0]] * count
    (file,) = tmp_path.iterdir()  # none on its way is left
    assert jt.load(file)(jnp.arange(3.0, dtype=jnp.float32)) is not None


def keep_for_ever(folder: str, content: bytes) -> None:
    kept = store.ProgramStore(Path(folder), 2**30)
    for i in itertools.count():
        kept.keep(f"{i % 7}", content)


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_writes(tmp_path):
    large = np.random.default_rng(0).normal(size=2**21)
    content = jt.export(lambda x: x + large, np.float64(0.0) + np.zeros(1))
    for seconds in (0.5, 0.55, 0.62, 0.7):
        child = processes().Process(target=keep_for_ever, args=(str(tmp_path), content))
        child.start()
        time.sleep(seconds)
        child.kill()
        child.join()
        for file in tmp_path.glob("*.jaxtape"):
            assert file.read_bytes() == content
    assert list(tmp_path.glob("*.jaxtape"))
    store.trim(tmp_path, 0)
    assert not list(tmp_path.iterdir())
