"""A schedule between `Revolve` and `StoreAll`: the last nodes keep residuals."""

import dataclasses
from collections.abc import Callable
from typing import Any

from .schedule import AbstractSchedule, StoreAll
from .table import ScheduleTable


@dataclasses.dataclass(frozen=True, repr=False)
class StoreLast(AbstractSchedule):
    """Keep the residuals of the last `nodes` nodes, as `StoreAll(policy)` does; the others are under `before`.

    Once every state has a slot, more bytes save work only if they hold values from inside a step. `Budget`
    chooses this schedule for networks. An edited segment follows `before` throughout.

    Attributes:
        nodes: The number of the last nodes, all if the chain has no more.
        before: The schedule of the nodes before them.
        policy: The choice of the values that are kept, one of `jax.checkpoint_policies`; None keeps all.

    Raises:
        TypeError: If `nodes` is not an int, `policy` is not callable, or `before` is not a schedule with slots.
        ValueError: If `nodes` is below 1.

    Examples:
        >>> import jaxtape as jt
        >>> jt.StoreLast(nodes=4, before=jt.Revolve(slots=2)).parts(10)
        ((6, Revolve(slots=2)), (4, StoreAll()))
    """

    nodes: int = dataclasses.field(metadata={"why": "without any it is the schedule before"})
    before: AbstractSchedule
    policy: Callable | None = dataclasses.field(default=None, kw_only=True)
    checkpoint_dtype: Any = dataclasses.field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.before, AbstractSchedule) or self.before.budget is not None:
            raise TypeError(f"before is {self.before!r}: give a schedule with a number of slots.")
        StoreAll(self.policy)  # checks the policy

    def __repr__(self) -> str:
        policy = getattr(self.policy, "__name__", self.policy)
        return f"StoreLast(nodes={self.nodes}, before={self.before}, policy={policy})"

    def parts(self, length: int) -> tuple[tuple[int, AbstractSchedule], ...]:
        last = min(self.nodes, length)
        before = self.before.parts(length - last) if length > last else ()
        return *before, (last, StoreAll(self.policy))

    def most_slots(self, capacity: int, longest: int) -> int:
        return self.before.most_slots(capacity, longest)

    def host_slots(self, capacity: int) -> int:
        return self.before.host_slots(capacity)

    def table(self, length: int) -> ScheduleTable:
        """Lay out the table of `before`, as an edited segment follows it."""
        return self.before.table(length)
