"""Fixtures of the tests of sweeps."""

import functools

import pytest

from jaxtape.sweeps import by_platform

from ..helpers_kernels import forget_sweeps, run_kernels


@pytest.fixture
def as_on_gpus(monkeypatch):
    """Sweep on this platform as on GPUs; a chain of the same program was perhaps compiled for a table."""
    monkeypatch.setattr(by_platform, "CPUS_ARE_OTHERS", True)
    forget_sweeps()
    yield
    forget_sweeps()


@pytest.fixture
def interpreted(monkeypatch):
    """Return a function that has chains run in the kernels of a kind; it returns the decisions."""
    forget_sweeps()
    yield functools.partial(run_kernels, monkeypatch)
    monkeypatch.undo()
    forget_sweeps()
