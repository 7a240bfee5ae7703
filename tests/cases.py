"""Which cases of a test run when: what repeats others with other numbers is `slow`, and no part of CI."""

from collections.abc import Callable, Collection

import pytest


def cover(cases: Collection, parts: Callable, cost: Callable) -> list:
    """Of the cases those that show a part which no cheaper one has."""
    seen, found = set(), []
    for case in sorted(cases, key=cost):
        if not seen.issuperset(parts(case)):
            found.append(case)
            seen.update(parts(case))
    return found


def others_later(cases: Collection, fast: Collection, later: Collection = ()) -> list:
    """Cases as parameters: `make test` runs the fast, `make test-repeats` the later, `make test-all` all."""

    def marks(case):
        return [] if case in fast else pytest.mark.costly if case in later else pytest.mark.slow

    return [pytest.param(case, marks=marks(case)) for case in cases]
