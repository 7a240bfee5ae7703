"""A piece: some consecutive nodes of a segment, run by programs made for a power of two of nodes."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .edits import Edits
from .node_list import AbstractTape
from .schedules.schedule import AbstractSchedule, MultiStage, Revolve
from .segment import Segment


class Piece(eqx.Module):
    """The nodes [i, j) of a tape, all of one segment.

    Their params are gathered into a capacity of the next power of two of nodes. So a few programs serve
    every piece of a tape, and each holds the params, the cotangents and the states of its own nodes,
    however many the segment has places for.
    """

    segment: Segment
    places: np.ndarray
    edits: Edits

    @classmethod
    def of(cls, tape: AbstractTape, i: int, j: int) -> "Piece":
        """Take the nodes [i, j) of one segment, i < j."""
        number, start = tape.segment_at(i)
        segment, count = tape.segments[number], j - i
        least = min(segment.capacity, 2)  # a segment with one place is what may be a bridge
        capacity = 1 << (max(count, least) - 1).bit_length()
        schedule = _schedule(segment, capacity)
        places = np.pad(segment.places[i - start : j - start], (0, capacity - count), "edge")
        whole = Segment(segment.params, segment.shared, segment.static, schedule)
        return cls(whole, places, Edits.first(count, capacity, schedule))

    @property
    def nodes(self) -> Segment:
        """The nodes alone, as a segment."""
        params = jax.tree.map(lambda leaf: leaf[self.places], self.segment.params)
        return dataclasses.replace(self.segment, params=params, edits=self.edits)


@eqx.filter_jit
def run_piece(piece: Piece, state):
    """Return the state after the piece."""
    return piece.nodes(state)


@functools.partial(eqx.filter_jit, donate="all-except-first")
def pull_piece(given: tuple, bars: tuple) -> tuple[tuple, Any]:
    """Add the cotangents of a piece to the segment's in place; return them, and that of the state before it.

    `given` is (piece, the state before it, the cotangent of the state after it), `bars` the cotangents
    of the segment's params and of what its nodes share, which are no more afterwards.
    """
    piece, state, state_bar = given
    varying, still = eqx.partition((piece.nodes, state), eqx.is_inexact_array)

    def run(varying):
        nodes, state = eqx.combine(varying, still)
        return eqx.filter(nodes(state), eqx.is_inexact_array)

    _, pullback = jax.vjp(run, varying)
    ((nodes_bar, state_bar),) = pullback(eqx.filter(state_bar, eqx.is_inexact_array))
    params_bar, shared_bar = bars
    scatter = lambda bar, new: bar.at[piece.places].add(new)  # noqa: E731
    return (
        jax.tree.map(scatter, params_bar, nodes_bar.params),
        jax.tree.map(jnp.add, shared_bar, nodes_bar.shared),
    ), state_bar


def _schedule(segment: Segment, capacity: int) -> AbstractSchedule:
    """Return what takes fewest steps in the slots of the segment; a piece needs no more than it has nodes."""
    dtype = segment.schedule.checkpoint_dtype
    slots = max(min(segment.slots, capacity) - 1, 1)  # the state before the last node has its own
    device = max(segment.slots - segment.executor.table.host_slots - 1, 1)
    if slots <= device:
        return Revolve(slots, checkpoint_dtype=dtype)
    return MultiStage(device, slots - device, checkpoint_dtype=dtype)
