"""The tape: a chain of operations as a value."""

from collections.abc import Callable

import equinox as eqx

from .schedule import AbstractSchedule, StoreAll
from .segment import Segment


class Tape(eqx.Module):
    """A strict unary chain, `state[k+1] = step(params[k], state[k])`, as an immutable pytree.

    ```python
    tape = jt.Tape().append(step, params).with_schedule(jt.Revolve(slots=12))
    y = tape(x)
    tape_bar = jax.grad(lambda tape: loss(tape(x)))(tape)  # a tape of cotangents
    ```

    A node is one operation, a segment a run of nodes that share `step` and the structure of
    `params`. The leaves of a tape are the segments' params, stacked, and the arrays inside their
    steps, shared by the segment's nodes: these receive the sum of the nodes' cotangents.
    """

    segments: tuple[Segment, ...] = ()
    schedule: AbstractSchedule = eqx.field(static=True, default=StoreAll())

    def append(self, step: Callable, params) -> "Tape":
        """This tape with n more nodes.

        - **step**: `(params, state) -> state`, a function or a callable pytree such as an
          `eqx.Module`; it keeps the structure, shapes and dtypes of the state.
        - **params**: a pytree whose leaves have leading axis n, one entry a node.

        The last segment grows if its step is this one and its params have this structure.

        **Errors**: `TypeError` if `step` is not callable; `ValueError` if the leaves of `params`
        do not share a leading axis.
        """
        new, segments = Segment(step, params), self.segments
        if segments and segments[-1].agrees(new):
            segments, new = segments[:-1], segments[-1].grow(new)
        return Tape((*segments, new), self.schedule)

    def with_schedule(self, schedule: AbstractSchedule) -> "Tape":
        """This tape with another choice of what is kept for the reverse sweep of each segment."""
        if not isinstance(schedule, AbstractSchedule):
            raise TypeError(f"schedule is {schedule!r}: give one such as Revolve(slots=12).")
        return Tape(self.segments, schedule)

    def __len__(self) -> int:
        """The number of nodes."""
        return sum(map(len, self.segments))

    def __call__(self, x):
        """The state after the last node, from state `x` before the first.

        **Errors**: `TypeError` if a step changes the structure, shape or dtype of the state.
        """
        for segment in self.segments:
            x = segment(x, self.schedule)
        return x
