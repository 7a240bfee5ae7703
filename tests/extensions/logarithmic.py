"""A schedule in one file: as many slots as the length has binary digits.

`table` lays a length out: which states are kept where, and what is recomputed from which. The executor follows
it and does not change. A schedule is a hashable value (a frozen dataclass).
"""

import dataclasses

from jaxtape import AbstractSchedule
from jaxtape.schedules import ScheduleTable, revolve_table


@dataclasses.dataclass(frozen=True)
class Logarithmic(AbstractSchedule):
    """Keep about log2(n) states: memory and the steps taken again both grow as the logarithm of the length.

    Griewank (1992), "Achieving logarithmic growth of temporal and spatial complexity in reverse automatic
    differentiation".
    """

    def table(self, length: int) -> ScheduleTable:
        return revolve_table(length, length.bit_length())
