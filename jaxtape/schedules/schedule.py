"""What is kept and what is recomputed: schedules."""

import abc
import dataclasses
from typing import Any

import jax.numpy as jnp

from .table import (
    Table,
    block_table,
    check_count,
    check_slots,
    equal_sizes,
    multi_stage_table,
    revolve_table,
)


class AbstractSchedule(abc.ABC):
    """What a chain keeps for its reverse sweep. A schedule is a hashable value, not an array.

    What a step does besides its values (`jax.debug.print`, `io_callback`) it does again whenever it is
    run again, as often as `jt.plan` says.
    """

    checkpoint_dtype: Any = None
    budget: int | None = None
    keeps_residuals: bool = False

    @abc.abstractmethod
    def table(self, length: int) -> Table:
        """Lay out which states of `length` >= 1 nodes are kept where, and what is recomputed from which."""

    def most_slots(self, capacity: int, longest: int) -> int:
        """Slots enough for every chain of up to `capacity` nodes between marks; it has now `longest`."""
        del longest
        return self.table(capacity).slots + 1 if capacity else 0

    def host_slots(self, capacity: int) -> int:
        """How many of them lie in the host's memory."""
        del capacity
        return 0


@dataclasses.dataclass(frozen=True)
class AbstractSlots(AbstractSchedule):
    """A schedule that keeps states in slots, at the states' precision or a lower one.

    checkpoint_dtype: of real floating-point leaves in slots, such as `jnp.float32`. Inexact: the reverse
    sweep then starts from rounded states, so gradients carry that rounding; values do not.
    """

    checkpoint_dtype: Any = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self):
        if self.checkpoint_dtype is not None:
            if not jnp.issubdtype(self.checkpoint_dtype, jnp.floating):
                raise TypeError(
                    f"checkpoint_dtype is {self.checkpoint_dtype!r}: give a real floating-point dtype."
                )
            object.__setattr__(self, "checkpoint_dtype", jnp.dtype(self.checkpoint_dtype))

    def __repr__(self) -> str:
        shown = [f.name for f in dataclasses.fields(self) if f.repr and not f.kw_only]
        own = [f"{name}={getattr(self, name)}" for name in shown]
        inexact = [f"checkpoint_dtype={self.checkpoint_dtype}"] if self.checkpoint_dtype else []
        return f"{type(self).__name__}({', '.join(own + inexact)})"


@dataclasses.dataclass(frozen=True)
class StoreAll(AbstractSchedule):
    """Keep what every step's pullback reads: `lax.scan` itself. No step is run twice; memory grows with n."""

    keeps_residuals = True

    def table(self, length: int) -> Table:
        return revolve_table(length, length)


@dataclasses.dataclass(frozen=True, repr=False)
class Revolve(AbstractSlots):
    """Keep `slots` states, recompute the others: the fewest steps possible (binomial schedule).

    Reversing n nodes takes `advances(n, slots)` forward steps and n taped ones. Besides the slots,
    the state before the last node is kept, which the value has to pass in any case.

    Source: Griewank & Walther, *Algorithm 799: revolve*, ACM TOMS 26(1), 2000.
    **Errors**: `ValueError` if `slots < 1`.
    """

    slots: int

    def __post_init__(self):
        super().__post_init__()
        check_slots(self.slots)

    def most_slots(self, capacity: int, longest: int) -> int:
        """The slots, and one for the state before the last node."""
        del longest
        return min(self.slots, capacity) + 1

    def table(self, length: int) -> Table:
        return revolve_table(length, min(self.slots, length))


@dataclasses.dataclass(frozen=True, repr=False)
class Periodic(AbstractSlots):
    """Keep every `every`-th state; a block between two of them is recomputed once, its states all kept.

    At most 2 n forward steps and ceil(n / every) + every - 1 slots, fewest at every = sqrt(n).

    **Errors**: `TypeError` unless `every` is an int, `ValueError` unless it is at least 1.
    """

    every: int

    def __post_init__(self):
        super().__post_init__()
        check_count("every", self.every, "a block has a node")

    def table(self, length: int) -> Table:
        return block_table(length, (self.every, 1))


@dataclasses.dataclass(frozen=True, repr=False)
class Recursive(AbstractSlots):
    """Blocks within blocks, `levels` deep, each cut into about the `levels`-th root of n parts.

    At most levels n forward steps and about levels n^(1 / levels) slots, as with `jax.checkpoint` around
    nested loops. `Revolve` with as many slots takes fewer steps.

    **Errors**: `TypeError` unless `levels` is an int, `ValueError` unless it is at least 1.
    """

    levels: int

    def __post_init__(self):
        super().__post_init__()
        check_count("levels", self.levels, "nodes are one")

    def table(self, length: int) -> Table:
        return block_table(length, equal_sizes(length, self.levels))


@dataclasses.dataclass(frozen=True, repr=False)
class Marked(AbstractSlots):
    """Keep the marked positions; the nodes between two of them are run again once, their states all kept.

    At most 2 n forward steps, and as many slots as there are marks and nodes between two of them. For
    a tape whose author knows where it will be entered: `tape.mark(k)` at every reset date.
    """

    def most_slots(self, capacity: int, longest: int) -> int:
        """Room for the longest run between marks, doubled as it grows."""
        return min(1 << max(longest - 1, 0).bit_length(), capacity)

    def table(self, length: int) -> Table:
        return block_table(length, (length, 1))


@dataclasses.dataclass(frozen=True, repr=False)
class MultiStage(AbstractSlots):
    """`Revolve(device + host)` whose least touched slots lie in the host's pinned memory.

    The fewest steps for that many states, with the fewest transfers: a slot of the outermost level is
    written once and read a few times, one of the innermost at every turn. The first state lies in the
    host's memory too. Where host and device are one (a CPU), it is `Revolve`. Elsewhere JAX sets two
    limits: a step may have no ordered side effects, and no gradient goes through a `lax.cond` whose
    predicate is batched by `jax.vmap`, for that selects between the kept states of both branches.

    Source: Stumm & Walther, *MultiStage approaches for optimal offline checkpointing*, SIAM J. Sci.
    Comput. 31(3), 2009.
    **Errors**: `TypeError` unless both are ints, `ValueError` unless both are at least 1.
    """

    device: int
    host: int

    def __post_init__(self):
        super().__post_init__()
        check_count("device", self.device, "the state at work is on the device")
        check_count("host", self.host, "without a slot there it is Revolve(device)")

    def most_slots(self, capacity: int, longest: int) -> int:
        """The slots of both, and one for the state before the last node."""
        del longest
        return min(self.device + self.host, capacity) + 1

    def host_slots(self, capacity: int) -> int:
        """As many as a chain of that length has."""
        return multi_stage_table(capacity, self.device, self.host).host_slots if capacity else 0

    def table(self, length: int) -> Table:
        return multi_stage_table(length, self.device, self.host)


@dataclasses.dataclass(frozen=True, repr=False)
class Budget(AbstractSlots):
    """As many slots as fit in `bytes`, taken up as `Revolve` does: the fewest steps within a budget.

    The bytes are those of a gradient's temporaries: the states kept and the work of one node, which
    the compiler is asked for. Segments of one tape share them. In `grad(vmap(f))` a batch counts with
    all its members; in `vmap(grad(f))` each counts alone, so give the bytes of one. `jt.plan` says
    beforehand what comes of it.

    **Errors**: `TypeError` unless `bytes` is an int, `ValueError` unless it is at least 1; at the first
    gradient, `ValueError` if the bytes do not hold two states and the work of a node.
    """

    bytes: int
    budget: int = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self):
        super().__post_init__()
        check_count("bytes", self.bytes, "a gradient needs memory")
        object.__setattr__(self, "budget", int(self.bytes))

    def table(self, length: int) -> Table:
        """A slot for every state, until the bytes of one are known."""
        return revolve_table(length, length)
