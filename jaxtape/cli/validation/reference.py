"""The data of a validation: known figures, found figures and verdicts, without any finance."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_MOST_ERRORS = 4.0  # standard errors that an estimate may be beyond its tolerance
_LEAST_PRECISION = 1e-3  # of a value: an estimate whose standard error is larger shows too little


@dataclass(frozen=True)
class Table:
    """A table of known figures: their source, and the settings that all of its rows share.

    Attributes:
        name: The name, in words.
        source: The publication that states the figures, and the place in it.
        is_published: Whether they are printed, or cached, in the source; otherwise they were computed for this
            library by two methods that agree.
        because: The reason for the tolerance, if it is not half a unit of the last digit.
        left_out: The figures of the source that are left out, and the reason.
        settings: The other entries of the table, for the group that reads it.

    Examples:
        >>> Table("calls", "Black and Scholes (1973)").is_published
        True
    """

    name: str
    source: str
    is_published: bool = True
    because: str = ""
    left_out: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reference:
    """One figure that is known.

    Attributes:
        table: The table that holds it.
        name: The name of the instrument and setting, in words.
        figure: The name of the figure, such as "value" or "delta".
        value: The figure.
        tolerance: The largest error allowed in the figure that is found.
        cells: The words of the row by the names of their columns, from which the group finds the figure.
        method: The numerical method by which it is found; "" is the one that is taken by default.

    Examples:
        >>> table = Table("calls", "Black and Scholes (1973)")
        >>> Reference(table, "strike 100", "value", 10.4506, 5e-5).tolerance
        5e-05
    """

    table: Table
    name: str
    figure: str
    value: float
    tolerance: float
    cells: Mapping[str, str] = field(default_factory=dict)
    method: str = ""


@dataclass(frozen=True)
class Found:
    """The figure that the library finds for a reference.

    Attributes:
        value: The figure.
        method: The numerical method that found it, in words.
        std_error: The standard error; 0 for a deterministic method.
        error: The reason that nothing is found, in words; "" if something is.

    Examples:
        >>> Found(10.4506, "ClosedForm").std_error
        0.0
    """

    value: float
    method: str
    std_error: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Verdict:
    """A reference with the figure found for it.

    Attributes:
        group: The name of the group.
        reference: The known figure.
        found: The figure found.

    Examples:
        >>> call = Reference(Table("calls", "Black and Scholes (1973)"), "strike 100", "value", 10.4506, 5e-5)
        >>> Verdict("european", call, Found(10.450583, "ClosedForm")).holds
        True
        >>> Verdict("european", call, Found(10.4512, "ClosedForm")).fault
        'is 6e-04 away, and 5e-05 is allowed'
    """

    group: str
    reference: Reference
    found: Found

    @property
    def distance(self) -> float:
        """The absolute difference between the figure found and the known one."""
        return abs(self.found.value - self.reference.value)

    @property
    def allowed(self) -> float:
        """The largest distance allowed: the tolerance, and four standard errors of a random method."""
        return self.reference.tolerance + _MOST_ERRORS * self.found.std_error

    @property
    def fault(self) -> str:
        """A description of what is wrong, or ""."""
        if self.found.error:
            return f"is not found: {self.found.error}"
        known = self.reference
        if not (math.isfinite(known.value) and math.isfinite(known.tolerance)):
            said = f"a value of {known.value} with a tolerance of {known.tolerance}"
            return f"is known as {said}: give finite numbers"
        if not (math.isfinite(self.found.value) and math.isfinite(self.found.std_error)):
            return f"is {self.found.value}, which is not finite"
        most = max(_LEAST_PRECISION * abs(known.value), known.tolerance)
        if self.found.std_error > most:
            return f"has a standard error of {self.found.std_error:.0e}, and {most:.0e} is allowed"
        if self.distance > self.allowed:
            return f"is {self.distance:.0e} away, and {self.allowed:.0e} is allowed"
        return ""

    @property
    def holds(self) -> bool:
        """Whether the figure is within the allowed distance."""
        return not self.fault


@dataclass(frozen=True)
class Group:
    """References that are requested, and found, together: the object of an entry point of `jaxtape.validated`.

    Attributes:
        title: The title, in words.
        references: A function that returns the references. It computes nothing.
        find: A function that returns the figures found for references of the group, in their order.

    Examples:
        >>> table = Table("halves", "arithmetic")
        >>> known = [Reference(table, "one half", "value", 0.5, 1e-16)]
        >>> group = Group("Halves", lambda: known, lambda known: [Found(1.0 / 2.0, "division")])
        >>> [verdict.holds for verdict in verdicts_of("halves", group)]
        [True]
    """

    title: str
    references: Callable[[], Sequence[Reference]]
    find: Callable[[Sequence[Reference]], Sequence[Found]]


def verdicts_of(name: str, group: Group) -> list[Verdict]:
    """Return the verdicts on all references of a group.

    If the group raises an error, it is the fault of all its references, and the other groups still run.

    Args:
        name: The name of the group.
        group: The group.

    Returns:
        One verdict for each reference, in their order.

    Examples:
        >>> verdicts_of("nothing", Group("Nothing", lambda: [], lambda known: []))
        []
    """
    known = group.references()
    try:
        found = group.find(known)
    except Exception as error:  # whatever it is, the reader wants the other groups
        nothing = Found(math.nan, "", error=f"{type(error).__name__}: {error}")
        found = [nothing] * len(known)
    return [Verdict(name, *pair) for pair in zip(known, found, strict=True)]
