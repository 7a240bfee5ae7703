"""The executor of unedited nodes: by a table on CPUs, in lockstep on GPUs and TPUs.

On GPUs, XLA runs a loop of known length without synchronizing with the host. For any other loop it copies the
condition to the host at every iteration, and waits for it; a table has three such loops per node. The sweeps of
a `LockstepPlan` have none, and copy no slots. They take the slots of the table, and its number of steps or
slightly more. On CPUs a table is faster.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from ..jax_settings.kernels import kernels_are_on
from ..schedules.lockstep import LockstepPlan, lockstep_plan
from ..schedules.schedule import AbstractSchedule
from ..schedules.table import revolve_table
from .by_platform import by_platform
from .chain import Active, Arrays, Chain
from .executor import TableExecutor
from .kernel_executor import KernelExecutor
from .lockstep_executor import LockstepExecutor
from .sums_of_ys import added_up, of_each_node


@dataclasses.dataclass(frozen=True)
class StaticExecutor(TableExecutor):
    """The executor of a chain whose nodes are not edited.

    As long as it has a budget, the table has a slot for every state. `kernels` says whether GPUs and TPUs run a
    chain of independent paths in kernels.
    """

    budget: int | None = None
    residuals: bool = False
    kernels: bool = False

    @classmethod
    def of(cls, schedule: AbstractSchedule, length: int) -> "StaticExecutor":
        """Return the executor of `length` >= 1 nodes under a schedule."""
        dtype, budget = schedule.checkpoint_dtype, schedule.budget
        table = schedule.table(length) if budget is None else revolve_table(length, length)
        residuals = getattr(schedule, "residuals", False)
        return cls(table, dtype, budget, residuals, kernels_are_on())

    @property
    def plan(self) -> LockstepPlan | None:
        """The plan to follow on GPUs and TPUs; None if they follow the table.

        They follow the table if every state has a slot, if three sweeps do not suffice, if nodes cost
        unequally, and if slots have lower precision, because a plan would round the state at every node.
        """
        if self.keeps_all or self.checkpoint_dtype is not None or self.table.is_weighted:
            return None
        return lockstep_plan(len(self.table), self.table.slots, self.table.host_slots)

    def run(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple]:
        by_scan = lambda arrays: added_up(chain, TableExecutor.run(self, chain, arrays))
        if not self.kernels:
            return by_scan(arrays)
        executor = KernelExecutor(self.table, otherwise=TableExecutor(self.table))
        return by_platform(by_scan, functools.partial(executor.run, chain), arrays)

    def first_sweep(self, chain: Chain, arrays: Arrays) -> tuple[tuple, tuple, Any]:
        by_table = lambda arrays: added_up(chain, TableExecutor.first_sweep(self, chain, arrays))
        return self._swept("first_sweep", (chain,), by_table, arrays)

    def reverse_sweep(self, chain: Chain, active: Active, arrays: Arrays, kept, bars) -> Arrays:
        def by_table(arrays: Arrays, kept, bars):
            bars = of_each_node(chain, bars)
            return TableExecutor.reverse_sweep(self, chain, active, arrays, kept, bars)

        return self._swept("reverse_sweep", (chain, active), by_table, arrays, kept, bars)

    def _swept(self, name: str, static: tuple, by_table: Callable, *args):
        """Call a sweep of the platform's executor: on CPUs `by_table(*args)`."""
        plan, executor = self.plan, TableExecutor(self.table, self.checkpoint_dtype)
        if plan is not None:
            executor = LockstepExecutor(self.table, plan=plan)
        elif not self.kernels:
            return by_table(*args)
        if self.kernels:
            executor = KernelExecutor(self.table, self.checkpoint_dtype, otherwise=executor)
        return by_platform(by_table, functools.partial(getattr(executor, name), *static), *args)

    def short(self, nodes: int, slots: int) -> "StaticExecutor":
        table = revolve_table(nodes, slots)
        table = dataclasses.replace(table, host_slots=min(self.table.host_slots, 1))
        return StaticExecutor(table, self.checkpoint_dtype)
