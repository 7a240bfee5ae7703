"""The type of the argument `progress` of `risk`, `calibrate` and `solve`."""

from collections.abc import Callable

Progress = Callable[[int, int, str], None]
"""A function that a computation calls with the units done (trades, steps, stages), their total, and a message.

The message ("loss 0.0123") may be empty; the number done never falls. `print` is one. None means silence.
"""
