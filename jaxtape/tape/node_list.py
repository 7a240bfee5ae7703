"""The nodes of a tape, in segments: positions, edits and schedules."""

import abc
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import numpy as np

from ..schedules.schedule import AbstractSchedule, StoreAll
from .edits import Edits
from .segment import Segment

TapeT = TypeVar("TapeT", bound="AbstractTape")


class AbstractTape(eqx.Module):
    """A chain of nodes that is edited, and called to run it.

    Attributes:
        segments: Runs of nodes that share their step and the structure of their params.
        schedule: The schedule of segments appended later.
    """

    segments: tuple[Segment, ...] = ()
    schedule: AbstractSchedule = eqx.field(static=True, default=StoreAll())

    @abc.abstractmethod
    def __call__(self, x):
        """Return the state after the last node, from state `x` before the first."""

    def append(self: TapeT, step: Callable, params: Any) -> TapeT:
        """Return this tape with n more nodes.

        The last segment grows if its step is this one and its params have this structure. `TypeError` is raised
        if `step` is not callable with two arguments, and `ValueError` if the leaves of `params` do not share a
        leading axis.

        Args:
            step: A function `(params, state) -> state`, or a callable pytree such as an `eqx.Module`; it keeps
                the structure, shapes and dtypes of the state.
            params: A pytree whose leaves have leading axis n, one entry a node.
        """
        new, segments = Segment.of(step, params, self.schedule), self.segments
        if segments and segments[-1].agrees(new):
            segments, new = segments[:-1], segments[-1].grow(new)
        return self._of((*filter(len, segments), new))

    def drop(self: TapeT, n: int) -> TapeT:
        """Return this tape without its n oldest nodes.

        Raises:
            IndexError: If there are not n nodes.
        """
        if n < 0:
            raise IndexError(f"{n} nodes cannot be dropped: give 0 … {len(self)}.")
        return self.erase(0, n)

    def window(self: TapeT, n: int) -> TapeT:
        """Return the n newest nodes, or all of them if there are fewer.

        Raises:
            IndexError: If n is negative.
        """
        if n < 0:
            raise IndexError(f"A window of {n} nodes: give 0 or more.")
        return self.drop(max(len(self) - n, 0))

    def erase(self: TapeT, i: int, j: int) -> TapeT:
        """Return this tape without the nodes [i, j)."""
        i, j = self.interval(i, j)
        return self._kept([slice(0, i), slice(j, len(self))])

    def truncate(self: TapeT, k: int) -> TapeT:
        """Return the nodes before position k: the rest of a contract that is knocked out there."""
        return self.erase(k, len(self))

    def split(self: TapeT, k: int) -> tuple[TapeT, TapeT]:
        """Return the nodes before position k, and those from there on; both share the params."""
        k = self.position(k)
        return self[:k], self[k:]

    def mark(self: TapeT, k: int) -> TapeT:
        """Return this tape with the state at position k always kept, beside the schedule's slots.

        Raises:
            IndexError: If k is no position before a node.
        """
        k = self.position(k)
        if k == len(self):
            raise IndexError(
                f"Position {k} is the end of the tape, whose state is the value: mark one before."
            )
        number, start = self.segment_at(k)
        segments = list(self.segments)
        segments[number] = segments[number].edited(Edits.with_mark, k - start)
        return self._of(segments)

    @property
    def marks(self) -> tuple[int, ...]:
        """The marked positions."""
        starts = (start for start, _ in self.bounds())
        pairs = zip(starts, self.segments, strict=True)
        return tuple(start + k for start, segment in pairs for k in segment.marks)

    def replace(self: TapeT, i: int, j: int, params: Any) -> TapeT:
        """Return this tape with other params, stacked, for the nodes [i, j), all of one segment.

        Raises:
            ValueError: If they are of several segments, or `params` has another structure, shape or dtype than
                theirs.
        """
        i, j = self.interval(i, j)
        if i == j:
            return self
        number, start = self.segment_at(i)
        if j > start + len(self.segments[number]):
            raise ValueError(
                f"[{i}, {j}) crosses into another segment: replace one segment's nodes at a time."
            )
        segments = list(self.segments)
        segments[number] = segments[number].replaced(i - start, j - start, params)
        return self._of(segments)

    def with_schedule(
        self: TapeT, schedule: AbstractSchedule | Sequence[AbstractSchedule]
    ) -> TapeT:
        """Return this tape with another schedule of the reverse sweep of each segment.

        One schedule is for every segment, and for segments appended later; of several, such as a plan's, each
        segment takes its own.

        Raises:
            TypeError: If it is no schedule.
            ValueError: If there are not as many as segments.
        """
        if isinstance(schedule, Sequence):
            given, default = tuple(schedule), self.schedule
        else:
            given, default = (schedule,) * len(self.segments), schedule
        for one in (*given, default):
            if not isinstance(one, AbstractSchedule):
                raise TypeError(f"schedule is {one!r}: give one such as Revolve(slots=12).")
        if len(given) != len(self.segments):
            raise ValueError(
                f"{len(given)} schedules for {len(self.segments)} segments: give one for each, or plan again."
            )
        pairs = zip(self.segments, given, strict=True)
        segments = tuple(segment.scheduled(one) for segment, one in pairs)
        return dataclasses.replace(self, segments=segments, schedule=default)

    def kept_positions(self) -> set[int]:
        """Return the positions of states that the first sweep keeps: by schedule, mark or segment start."""
        positions = set(self.marks)
        for segment, (start, _) in zip(self.segments, self.bounds(), strict=True):
            if len(segment):
                positions |= {start, *(start + segment.kept_positions).tolist()}
        return positions

    def __add__(self: TapeT, other: TapeT) -> TapeT:
        """Return the nodes of both, one after the other; params are shared.

        Each segment keeps its own schedule and marks; of several budgets the smallest holds for the whole.
        Segments appended later take the schedule of the last tape that has nodes.
        """
        if not isinstance(other, AbstractTape):
            return NotImplemented
        last = other if len(other) else self
        both = tuple(filter(len, (*self.segments, *other.segments)))
        return dataclasses.replace(self, segments=both, schedule=last.schedule)

    def __getitem__(self: TapeT, part: slice) -> TapeT:
        """Return the nodes of a slice of step 1.

        Raises:
            TypeError: If `part` is no slice, or one of another step.
        """
        if not isinstance(part, slice) or part.step not in (None, 1):
            raise TypeError(
                f"A tape is sliced by tape[i:j], not by {part!r}; tape.traverse() lists its nodes."
            )
        i, j, _ = part.indices(len(self))
        return self._kept([slice(i, max(i, j))])

    def __len__(self) -> int:
        """Return the number of nodes."""
        return sum(map(len, self.segments))

    def bounds(self) -> list[tuple[int, int]]:
        """Return (start, stop) of each segment."""
        stops = np.cumsum([len(segment) for segment in self.segments]).tolist()
        return list(zip([0, *stops], stops, strict=False))

    def segment_at(self, k: int) -> tuple[int, int]:
        """Return (number, start) of the segment of node k."""
        return next((n, a) for n, (a, b) in enumerate(self.bounds()) if a <= k < b)

    def _kept(self: TapeT, parts: list[slice]) -> TapeT:
        """Keep the nodes of some slices in ascending order; a segment that loses all of them is removed."""
        segments = []
        for (start, _), segment in zip(self.bounds(), self.segments, strict=True):
            n = len(segment)
            own = [slice(*np.clip([part.start - start, part.stop - start], 0, n)) for part in parts]
            left = sum(part.stop - part.start for part in own)
            alone = len(self.segments) == 1 and segment.capacity > 1
            if left == n and (n or alone):
                segments.append(segment)
            elif left or alone:
                segments.append(segment.edited(Edits.kept, own))
        return self._of(segments)

    def position(self, k: int) -> int:
        """Return a position counted from the start.

        Raises:
            IndexError: If it is not on the tape.
        """
        n = len(self)
        if not -n <= k <= n:
            raise IndexError(f"Position {k} is not on a tape of {n} nodes: give one of {-n} … {n}.")
        return k + n if k < 0 else k

    def interval(self, i: int, j: int) -> tuple[int, int]:
        """Return two positions counted from the start.

        Raises:
            IndexError: If one is not on the tape, or the first is later than the second.
        """
        i, j = self.position(i), self.position(j)
        if i > j:
            raise IndexError(
                f"[{i}, {j}) runs backwards on a tape of {len(self)} nodes: give i <= j."
            )
        return i, j

    def _of(self: TapeT, segments: Iterable[Segment]) -> TapeT:
        return dataclasses.replace(self, segments=tuple(segments))
