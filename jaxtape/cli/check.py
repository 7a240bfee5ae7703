"""Figures compared with their references: the data of a validation, without any finance."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

_MAX_STD_ERRORS = 4.0  # by which an estimate may exceed its tolerance
_MAX_RELATIVE_STD_ERROR = 1e-3  # of an estimate precise enough to count


@dataclass(frozen=True)
class Source:
    """The source of a table of references, and the settings that all of its rows share.

    Attributes:
        name: The name of the table, in words.
        source: The publication that states the figures, and the place in it.
        is_published: Whether the source prints, or caches, the figures; otherwise they were computed for this
            library by two methods that agree.
        because: The reason for the tolerance, if it is not half a unit of the last digit.
        left_out: The figures of the source that are left out, and the reason.
        settings: The other entries of the table, read by the group.
    """

    name: str
    source: str
    is_published: bool = True
    because: str = ""
    left_out: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """A figure of the library and its reference; `found` or `not_found` fills in the figure.

    Attributes:
        name: The name of the instrument and setting, in words.
        figure: The name of the figure, such as "value" or "delta".
        reference: The known figure.
        tolerance: The largest error allowed in the value.
        source: The source of the reference.
        cells: The text of the row's cells by column name, from which the group computes the value.
        method: The numerical method to use, "" for the default; once there is a value, the method that gave it.
        value: The figure computed by the library.
        std_error: The standard error of the value; 0 for a deterministic method.
        error: The reason why there is no value; "" if there is one.

    Examples:
        >>> call = Check("strike 100", "value", 10.4506, 5e-5, Source("calls", "Black and Scholes (1973)"))
        >>> call.found(10.450583, "ClosedForm").holds
        True
        >>> call.found(10.4512, "ClosedForm").fault
        'is 6e-04 away, and 5e-05 is allowed'
    """

    name: str
    figure: str
    reference: float
    tolerance: float
    source: Source
    cells: Mapping[str, str] = field(default_factory=dict)
    method: str = ""
    value: float = math.nan
    std_error: float = 0.0
    error: str = ""

    def found(self, value: float, method: str, std_error: float = 0.0) -> "Check":
        """Return the check with the value that a method found, and its standard error."""
        return replace(self, value=value, method=method, std_error=std_error)

    def not_found(self, error: str) -> "Check":
        """Return the check without a value, with the reason."""
        return replace(self, method="", error=error)

    @property
    def distance(self) -> float:
        """The absolute difference between the value and the reference."""
        return abs(self.value - self.reference)

    @property
    def allowed(self) -> float:
        """The largest distance allowed: the tolerance, and four standard errors of a random method."""
        return self.tolerance + _MAX_STD_ERRORS * self.std_error

    @property
    def share(self) -> float:
        """The distance as a fraction of the allowed one; infinite if it is exceeded."""
        if self.distance <= self.allowed:
            return self.distance / self.allowed if self.allowed else 0.0
        return math.inf

    @property
    def fault(self) -> str:
        """A description of what is wrong, or ""."""
        if self.error:
            return f"is not found: {self.error}"
        if not (math.isfinite(self.reference) and math.isfinite(self.tolerance)):
            known = f"a value of {self.reference} with a tolerance of {self.tolerance}"
            return f"is known as {known}: give finite numbers"
        if not (math.isfinite(self.value) and math.isfinite(self.std_error)):
            return f"is {self.value}, which is not finite"
        limit = max(_MAX_RELATIVE_STD_ERROR * abs(self.reference), self.tolerance)
        if self.std_error > limit:
            return f"has a standard error of {self.std_error:.0e}, and {limit:.0e} is allowed"
        if self.distance > self.allowed:
            return f"is {self.distance:.0e} away, and {self.allowed:.0e} is allowed"
        return ""

    @property
    def holds(self) -> bool:
        """Whether the value is within the allowed distance."""
        return not self.fault


@dataclass(frozen=True)
class Group:
    """Checks made together: the object of an entry point of `jaxtape.validated`.

    Attributes:
        title: The title, in words.
        checks: A function that returns the checks, without values. It computes nothing.
        find: A function that returns the same checks with their values, in their order.

    Examples:
        >>> half = Check("one half", "value", 0.5, 1e-16, Source("halves", "arithmetic"))
        >>> divide = lambda checks: [check.found(1.0 / 2.0, "division") for check in checks]
        >>> [check.holds for check in Group("Halves", lambda: [half], divide).results()]
        [True]
    """

    title: str
    checks: Callable[[], Sequence[Check]]
    find: Callable[[Sequence[Check]], Sequence[Check]]

    def results(self) -> list[Check]:
        """Return the checks with their values.

        If `find` raises, every check fails with that error, and other groups still run.

        Raises:
            ValueError: If `find` returns something else than one check for each.
        """
        checks = self.checks()
        try:
            results = list(self.find(checks))
        except Exception as error:  # the other groups must still run
            return [check.not_found(f"{type(error).__name__}: {error}") for check in checks]
        if len(results) != len(checks) or not all(isinstance(x, Check) for x in results):
            raise ValueError(
                f"find returns {len(results)} results for {len(checks)} checks, or no checks"
            )
        return results
