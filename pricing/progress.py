"""How far a long computation is: what `risk`, `calibrate` and `solve` take as `progress`."""

from collections.abc import Callable

Progress = Callable[[int, int, str], None]
"""What a computation calls with the units done (trades, steps, stages), their total, and a message for people.

The message ("loss 0.0123") may be empty; `done` never falls. `print` is one. None means silence.
"""
