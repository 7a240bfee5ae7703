"""The type of the argument `progress` of `risk`, `calibrate` and `solve`."""

from collections.abc import Callable

Progress = Callable[[int, int, str], None]
"""A function called with the number of units done (trades, steps, stages), the total number, and a message.

The message ("loss 0.0123") may be empty; the number done never decreases. `print` is an example; None means
silence.
"""
