"""Fixtures of the tests of sweeps."""

import pytest

from jaxtape.sweeps import by_platform
from jaxtape.sweeps.chain import Chain


@pytest.fixture
def as_on_gpus(monkeypatch):
    """Sweep on this platform as on GPUs; a chain of the same program was perhaps compiled for a table."""
    monkeypatch.setattr(by_platform, "CPUS_ARE_OTHERS", True)
    _forget()
    yield
    _forget()


def _forget():
    Chain.first_sweep.clear_cache()
    Chain.reverse_sweep.clear_cache()
