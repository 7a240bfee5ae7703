"""Which cases of a test are of every run, and which are a `repeat` of what those show."""

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


def others_later(cases: Collection, fast: Collection) -> list:
    """The cases as parameters of a test: some at every run, the others as repeats."""
    return [pytest.param(case, marks=[] if case in fast else pytest.mark.repeat) for case in cases]
