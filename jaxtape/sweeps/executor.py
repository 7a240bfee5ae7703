"""Which sweeps run and reverse a chain."""

import functools
from collections.abc import Callable
from typing import NamedTuple

from .chain import Chain
from .open import open_first_sweep, open_reverse_sweep, run_open
from .scheduled import first_sweep, reverse_sweep, run_live


class Sweeps(NamedTuple):
    """How a chain is run, run while keeping states, and reversed."""

    run: Callable
    first: Callable
    reverse: Callable

    @classmethod
    def of(cls, chain: Chain) -> "Sweeps":
        """By a table if the length is known, by blocks if a condition ends the chain."""
        if chain.is_edited:
            return cls(functools.partial(run_live, chain), first_sweep, reverse_sweep)
        if chain.condition is None:
            return cls(chain.scan, first_sweep, reverse_sweep)
        return cls(functools.partial(run_open, chain), open_first_sweep, open_reverse_sweep)
