"""Draws that are the same on every machine and under every version of Python."""

import random
from datetime import date

SPOT = 4468.17
ASOF = date(2002, 7, 5)


class Dice(random.Random):
    """Draws from `random()` only: the one sequence that Python promises never to change."""

    def pick(self, options):
        return options[int(self.random() * len(options))]

    def level(self, low: float, high: float, step: int) -> int:
        """Return a multiple of `step` between two fractions of the spot."""
        return self.pick(range(-int(-low * SPOT // step) * step, int(high * SPOT) + 1, step))
