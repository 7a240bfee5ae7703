"""The live nodes of a segment, as a permutation of the places in its params, so that edits move no params."""

import dataclasses
import functools
from typing import Any

import jax
import jax.core
import numpy as np

from ..schedules.layout import TableLayout, schedule_arrays
from ..schedules.schedule import AbstractSchedule
from ..schedules.table import ScheduleArrays


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("arrays", "marked"), meta_fields=("layout",)
)
@dataclasses.dataclass(frozen=True, eq=False)
class Edits:
    """The live places of a segment in execution order, then the free ones, with the table of the live ones.

    Every change returns a new value, made of small integer arrays.

    Attributes:
        arrays: The table, and the order of the places.
        marked: Whether the state before the node in a place is always kept.
        layout: The static part of the table.
    """

    arrays: ScheduleArrays
    marked: Any
    layout: TableLayout

    @classmethod
    def first(cls, count: int, capacity: int, schedule: AbstractSchedule) -> "Edits":
        """Make the first `count` places live, in order."""
        order = np.arange(capacity, dtype=np.int32)
        return cls._of(order, count, np.zeros(capacity, bool), schedule, 0)

    @classmethod
    def _of(cls, order, count: int, marked, schedule: AbstractSchedule, mark_slots: int) -> "Edits":
        """Lay out the rows of these nodes; double the slots for marks if they need more."""
        positions = tuple(int(k) for k in np.flatnonzero(marked[order[:count]]) if k)
        while mark_slots < len(positions):
            mark_slots = max(1, 2 * mark_slots)
        layout = TableLayout.of(schedule, len(order), count, positions, mark_slots)
        return cls(schedule_arrays(schedule, order, count, positions, layout), marked, layout)

    @property
    def is_known(self) -> bool:
        """Whether the nodes can be counted here."""
        return isinstance(
            self.arrays.length, np.integer | np.ndarray | jax.Array
        ) and not isinstance(self.arrays.length, jax.core.Tracer)

    @property
    def count(self) -> int:
        """The number of live nodes."""
        return int(_known(self.arrays.length))

    @property
    def live(self) -> np.ndarray:
        """The places of the live nodes."""
        return self._order[: self.count]

    @property
    def free(self) -> np.ndarray:
        """The places without a node."""
        return self._order[self.count :]

    @property
    def marks(self) -> tuple[int, ...]:
        """The positions of the marked nodes."""
        return tuple(map(int, np.flatnonzero(self._marked[self.live])))

    def kept(self, parts: list[slice], schedule: AbstractSchedule) -> "Edits":
        """Keep only the live nodes of some slices, which are ascending and disjoint."""
        order, live = self._order, self.live
        index = np.concatenate([np.arange(len(live))[part] for part in parts])
        dead = np.delete(live, index)
        marked = self._marked.copy()
        marked[dead] = False
        order = np.concatenate([live[index], dead, order[len(live) :]])
        return self._with(schedule, order, len(index), marked)

    def appended(self, count: int, schedule: AbstractSchedule) -> "Edits":
        """Append nodes: make the first free places live."""
        return self._with(schedule, count=self.count + count)

    def grown(self, more: int, schedule: AbstractSchedule) -> "Edits":
        """Add free places at the end."""
        order = self._order
        added = np.arange(len(order), len(order) + more, dtype=order.dtype)
        marked = np.pad(self._marked, (0, more))
        order = np.concatenate([order, added])
        return self._with(schedule, order, marked=marked)

    def with_mark(self, k: int, schedule: AbstractSchedule) -> "Edits":
        """Always keep the state before the k-th live node."""
        marked = self._marked.copy()
        marked[self.live[k]] = True
        return self._with(schedule, marked=marked)

    def scheduled(self, schedule: AbstractSchedule) -> "Edits":
        """Lay out the same nodes under another schedule."""
        return self._with(schedule)

    def _with(self, schedule: AbstractSchedule, order=None, count=None, marked=None) -> "Edits":
        order, marked = (
            (self._order if order is None else order),
            (self._marked if marked is None else marked),
        )
        count = self.count if count is None else count
        return Edits._of(order, count, marked, schedule, self.layout.mark_slots)

    @property
    def _order(self) -> np.ndarray:
        return np.asarray(_known(self.arrays.order))

    @property
    def _marked(self) -> np.ndarray:
        return np.asarray(_known(self.marked))


def _known(value):
    if value is None:
        raise TypeError(
            "This is the gradient of an edited tape, which has no nodes of its own: its params "
            "are at "
            "the tape's `segment.places`."
        )
    if isinstance(value, jax.core.Tracer):
        raise TypeError(
            f"The nodes of an edited tape are traced ({value}), so they cannot be counted or changed here: "
            "edit tapes outside of jax.jit and the like, and pass them in."
        )
    return value
