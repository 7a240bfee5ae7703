"""Checks of related times: their order, and the lengths of periods."""

from typing import Any

import numpy as np

from .fields import is_traced

_SLACK = 1e-4  # years: times closer than this are equal up to rounding


def check_order(first: str, start: Any, then: str, end: Any, remedy: str) -> None:
    """Check that times do not precede others; traced times are not checked.

    Args:
        first: The event of the earlier times, in words.
        start: The earlier times, in years.
        then: The event of the later times.
        end: The later times, which broadcast with the earlier ones.
        remedy: The times to give instead.

    Raises:
        ValueError: A time precedes the one that it should follow.
    """
    if is_traced((start, end)):
        return
    starts, ends = np.broadcast_arrays(np.asarray(start), np.asarray(end))
    wrong = ends < starts - _SLACK
    if wrong.any():
        after, before = ends[wrong][0], starts[wrong][0]
        raise ValueError(f"{then} at {after:g} years, before {first} at {before:g}: {remedy}")


def check_accruals(start: Any, end: Any, accrued: Any) -> None:
    """Check that accrual periods have a length close to their year fraction; traced ones are not checked.

    Args:
        start: The starts of the periods, in years.
        end: Their ends.
        accrued: Their year fractions.

    Raises:
        ValueError: The year fraction of a period does not match its length.
    """
    if is_traced((start, end, accrued)):
        return
    starts, ends, accruals = np.broadcast_arrays(*map(np.asarray, (start, end, accrued)))
    lengths = ends - starts
    wrong = (accruals > 0.0) & ((lengths <= 0.0) | (accruals > 1.5 * lengths + 0.02))
    if wrong.any():
        before, after, accrual = (x[wrong][0] for x in (starts, ends, accruals))
        raise ValueError(
            f"a period from {before:g} to {after:g} years accrues {accrual:g}: give its year fraction, and "
            "an end after the start"
        )
