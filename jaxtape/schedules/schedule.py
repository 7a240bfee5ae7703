"""Schedules choose which states of a chain are kept, and which are recomputed."""

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .sizes import bytes_of
from .table import (
    ScheduleTable,
    block_table,
    check_count,
    equal_sizes,
    multi_stage_table,
    revolve_table,
)
from .weighted import weighted_table


def _count(why: str) -> Any:
    """Return a field that holds a count; `why` explains the need for at least one."""
    return dataclasses.field(metadata={"why": why})


@dataclasses.dataclass(frozen=True, repr=False)
class AbstractSchedule(abc.ABC):
    """The states that a chain keeps for its reverse sweep. A schedule is a hashable value, not an array.

    A step repeats its side effects (`jax.debug.print`, `io_callback`) whenever it is run again; `jt.plan` shows
    how often.

    Attributes:
        checkpoint_dtype: The dtype of real floating-point leaves in slots, such as `jnp.float32`; None leaves
            them as they are. The reverse sweep then starts from rounded states, so gradients carry that
            rounding; values do not.
        budget: The maximum bytes of a gradient's temporaries, if the schedule is chosen by bytes; else None.
        keeps_residuals: Whether `lax.scan` runs the chain and keeps the residuals: all that pullbacks read.
        policy: One of `jax.checkpoint_policies`, which chooses the residuals to keep; None keeps all.
    """

    checkpoint_dtype: Any = dataclasses.field(default=None, kw_only=True)
    budget: int | None = dataclasses.field(default=None, init=False, repr=False, compare=False)
    keeps_residuals: bool = dataclasses.field(default=False, init=False, repr=False, compare=False)
    policy: Any = dataclasses.field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if why := field.metadata.get("why"):
                check_count(field.name, getattr(self, field.name), why)
        if self.checkpoint_dtype is not None:
            if not jnp.issubdtype(self.checkpoint_dtype, jnp.floating):
                raise TypeError(
                    f"checkpoint_dtype is {self.checkpoint_dtype!r}: give a real floating-point dtype."
                )
            object.__setattr__(self, "checkpoint_dtype", jnp.dtype(self.checkpoint_dtype))

    def __repr__(self) -> str:
        shown = [f.name for f in dataclasses.fields(self) if f.repr and not f.kw_only]
        fields = [f"{name}={getattr(self, name)}" for name in shown]
        inexact = [f"checkpoint_dtype={self.checkpoint_dtype}"] if self.checkpoint_dtype else []
        return f"{type(self).__name__}({', '.join(fields + inexact)})"

    @abc.abstractmethod
    def table(self, length: int) -> ScheduleTable:
        """Lay out the slots of the kept states of `length` >= 1 nodes, and how to recompute the others."""

    def checkpointed(self, step: Callable, prevent_cse: bool = False) -> Callable:
        """Return a step whose pullback keeps the residuals chosen by the schedule, if it `keeps_residuals`.

        Args:
            step: The step.
            prevent_cse: The argument of `jax.checkpoint`; True outside a loop.
        """
        del prevent_cse
        return step

    def parts(self, length: int) -> "tuple[tuple[int, AbstractSchedule], ...]":
        """Return the parts of a chain of `length` nodes: the nodes of each, and a schedule of their own.

        All parts but the first keep residuals.
        """
        return ((length, self),)

    def applied_to(self, length: int) -> "AbstractSchedule":
        """Return the schedule of the one part of a chain of `length` nodes, or itself if there are several."""
        (_, first), *others = self.parts(length)
        return self if others else first

    @property
    def ends_in_residuals(self) -> bool:
        """Whether residuals are kept of the last node."""
        return self.parts(1)[-1][1].keeps_residuals

    def most_slots(self, capacity: int, longest: int) -> int:
        """Return enough slots for every chain of up to `capacity` nodes.

        At present, at most `longest` nodes lie between two marks.
        """
        del longest
        return self.table(capacity).slots + 1 if capacity else 0

    def host_slots(self, capacity: int) -> int:
        """Return the number of those slots that are in the host's memory."""
        del capacity
        return 0


@dataclasses.dataclass(frozen=True, repr=False)
class StoreAll(AbstractSchedule):
    """Keep the residuals of every step: `lax.scan` itself. No step is run twice; memory grows with n.

    Attributes:
        policy: One of `jax.checkpoint_policies`, which chooses the residuals to keep; None keeps all. The
            pullback recomputes the others from those and from the state. In a network, the products with the
            weights are most of the work and few of the bytes: see `dots_with_no_batch_dims_saveable`. An edited
            segment keeps states under every policy.

    Raises:
        TypeError: If `policy` is not callable.

    Examples:
        >>> import jax, jaxtape as jt
        >>> jt.StoreAll(policy=jax.checkpoint_policies.dots_saveable).keeps_residuals
        True
    """

    policy: Any = None
    checkpoint_dtype: Any = dataclasses.field(default=None, init=False, repr=False, compare=False)
    keeps_residuals: bool = dataclasses.field(default=True, init=False, repr=False, compare=False)

    def __post_init__(self):
        if self.policy is not None and not callable(self.policy):
            raise TypeError(
                f"policy is {self.policy!r}: give one of jax.checkpoint_policies, such as "
                "jax.checkpoint_policies.dots_with_no_batch_dims_saveable, or None."
            )

    def __repr__(self) -> str:
        if self.policy is None:
            return "StoreAll()"
        return f"StoreAll(policy={getattr(self.policy, '__name__', self.policy)})"

    def checkpointed(self, step: Callable, prevent_cse: bool = False) -> Callable:
        if self.policy is None:
            return step
        return jax.checkpoint(step, policy=self.policy, prevent_cse=prevent_cse)

    def table(self, length: int) -> ScheduleTable:
        """Give every state a slot, as an edited segment does under this schedule."""
        return revolve_table(length, length)


@dataclasses.dataclass(frozen=True, repr=False)
class Revolve(AbstractSchedule):
    """Keep `slots` states, recompute the others: the fewest steps possible (binomial schedule).

    Reversing n nodes takes `advances(n, slots)` forward steps and n taped ones. Besides the slots, the state
    before the last node is kept, which the value passes anyway.

    Source: Griewank & Walther, *Algorithm 799: revolve*, ACM TOMS 26(1), 2000.

    Attributes:
        slots: The number of states kept at a time.
        checkpoint_dtype: The dtype of real floating-point leaves in slots; None leaves them as they are.

    Raises:
        TypeError: If `slots` is not an int, or `checkpoint_dtype` is not a real floating-point dtype.
        ValueError: If `slots` is below 1.

    Examples:
        >>> import jaxtape as jt
        >>> jt.Revolve(slots=2).table(6).load_position.tolist()
        [0, 1, 0, 3, 3, 5]
    """

    slots: int = _count("the initial state needs one")

    def most_slots(self, capacity: int, longest: int) -> int:
        del longest
        return min(self.slots, capacity) + 1

    def table(self, length: int) -> ScheduleTable:
        return revolve_table(length, min(self.slots, length))


@dataclasses.dataclass(frozen=True, repr=False)
class Weighted(AbstractSchedule):
    """`Revolve` for nodes of unequal cost: keep `slots` states, and minimize the work run again.

    Use it for a segment whose nodes share a step but take different times: a solver that iterates, a date with
    more trades. Between segments with different steps, `jt.plan` and `Budget` divide slots by the costs of the
    steps. Dynamic programming finds the cuts; beyond 512 nodes, it chooses them among 512 positions.

    Source: Beaumont, Eyraud-Dubois, Herrmann, Joly & Shilova, *Optimal checkpointing for heterogeneous chains*,
    INRIA RR-9302, 2019, without the option of keeping a node's own intermediate values.

    Attributes:
        slots: The number of states kept at a time.
        costs: The cost of each node of the segment, in any unit. The segment cannot be edited or marked.
        checkpoint_dtype: The dtype of real floating-point leaves in slots; None leaves them as they are.

    Raises:
        TypeError: If `slots` is not an int, or `checkpoint_dtype` is not a real floating-point dtype.
        ValueError: If `slots` is below 1, or a cost is negative or not finite; when the chain is run, if it has
            another number of nodes.

    Examples:
        >>> import jaxtape as jt
        >>> jt.Weighted(slots=2, costs=[1, 1, 1, 9, 9, 9]).table(6).load_position.tolist()
        [0, 1, 1, 0, 4, 5]
    """

    slots: int = _count("the initial state needs one")
    costs: Any = ()

    def __post_init__(self):
        super().__post_init__()
        costs = tuple(float(cost) for cost in self.costs)
        wrong = [cost for cost in costs if not 0.0 <= cost < math.inf]
        if wrong:
            raise ValueError(
                f"costs has {wrong[0]}: give a finite cost of 0 or more for each node."
            )
        object.__setattr__(self, "costs", costs)

    def most_slots(self, capacity: int, longest: int) -> int:
        del longest
        return min(self.slots, capacity) + 1

    def table(self, length: int) -> ScheduleTable:
        """Lay out the table; there is one node for each cost.

        Raises:
            ValueError: If `length` is not the number of costs.
        """
        if length != len(self.costs):
            raise ValueError(
                f"costs has {len(self.costs)} entries, and the chain, or a part between marks, {length} nodes: "
                "give one entry a node, or Revolve(slots)."
            )
        return weighted_table(length, min(self.slots, length), tuple(self.costs))


@dataclasses.dataclass(frozen=True, repr=False)
class Periodic(AbstractSchedule):
    """Keep every `every`-th state; recompute each block between two of them once, and keep all of its states.

    It takes at most 2 n forward steps and ceil(n / every) + every - 1 slots, fewest at every = sqrt(n).

    Attributes:
        every: The number of nodes in a block.
        checkpoint_dtype: The dtype of real floating-point leaves in slots; None leaves them as they are.

    Raises:
        TypeError: If `every` is not an int, or `checkpoint_dtype` is not a real floating-point dtype.
        ValueError: If `every` is below 1.

    Examples:
        >>> import jaxtape as jt
        >>> jt.Periodic(every=3).table(9).slots
        5
    """

    every: int = _count("a block has a node")

    def table(self, length: int) -> ScheduleTable:
        return block_table(length, (self.every, 1))


@dataclasses.dataclass(frozen=True, repr=False)
class Recursive(AbstractSchedule):
    """Nest blocks `levels` deep, each cut into about the `levels`-th root of n parts.

    It takes at most levels n forward steps and about levels n^(1 / levels) slots, as with `jax.checkpoint`
    around nested loops. `Revolve` with the same number of slots takes fewer steps.

    Attributes:
        levels: The depth of nesting.
        checkpoint_dtype: The dtype of real floating-point leaves in slots; None leaves them as they are.

    Raises:
        TypeError: If `levels` is not an int, or `checkpoint_dtype` is not a real floating-point dtype.
        ValueError: If `levels` is below 1.

    Examples:
        >>> import jaxtape as jt
        >>> jt.Recursive(levels=2).table(9).slots
        5
    """

    levels: int = _count("nodes are one")

    def table(self, length: int) -> ScheduleTable:
        return block_table(length, equal_sizes(length, self.levels))


@dataclasses.dataclass(frozen=True, repr=False)
class Marked(AbstractSchedule):
    """Keep the states at marks; run the nodes between two marks again once, and keep all of their states.

    It takes at most 2 n forward steps, and a slot for each mark and for each node between two of them. It suits
    a tape whose entry points are known in advance: `tape.mark(k)` at every reset date.

    Attributes:
        checkpoint_dtype: The dtype of real floating-point leaves in slots; None leaves them as they are.
    """

    def most_slots(self, capacity: int, longest: int) -> int:
        """Return slots for the longest run between marks, doubled whenever it outgrows them."""
        return min(1 << max(longest - 1, 0).bit_length(), capacity)

    def table(self, length: int) -> ScheduleTable:
        return block_table(length, (length, 1))


@dataclasses.dataclass(frozen=True, repr=False)
class MultiStage(AbstractSchedule):
    """`Revolve(device + host)` with its least used slots in the host's pinned memory.

    It takes the fewest steps for this number of states, with the fewest transfers: a slot of the outermost
    level is written once and read a few times, one of the innermost level at every iteration. The first state
    is in the host's memory too. If host and device are the same (a CPU), it is `Revolve`. Otherwise JAX imposes
    two limits: a step must not have ordered side effects, and there is no gradient through a `lax.cond` whose
    predicate is batched by `jax.vmap`, because that selects between the kept states of both branches.

    Source: Stumm & Walther, *MultiStage approaches for optimal offline checkpointing*, SIAM J. Sci.
    Comput. 31(3), 2009.

    Attributes:
        device: The number of states kept on the device.
        host: The number of states kept in the host's memory.
        checkpoint_dtype: The dtype of real floating-point leaves in slots; None leaves them as they are.

    Raises:
        TypeError: If a count is not an int, or `checkpoint_dtype` is not a real floating-point dtype.
        ValueError: If a count is below 1.

    Examples:
        >>> import jaxtape as jt
        >>> jt.MultiStage(device=2, host=3).table(20).host_slots
        3
    """

    device: int = _count("the current state is on the device")
    host: int = _count("with none it would be Revolve(device)")

    def most_slots(self, capacity: int, longest: int) -> int:
        del longest
        return min(self.device + self.host, capacity) + 1

    def host_slots(self, capacity: int) -> int:
        return multi_stage_table(capacity, self.device, self.host).host_slots if capacity else 0

    def table(self, length: int) -> ScheduleTable:
        return multi_stage_table(length, self.device, self.host)


@dataclasses.dataclass(frozen=True, repr=False)
class Budget(AbstractSchedule):
    """`Revolve` with as many slots as fit in `bytes`: the fewest steps within a budget.

    If bytes are left after a slot for every state, they hold residuals that save at least 8 operations a byte,
    as in networks: the matrix products of the last nodes that fit (`StoreLast`), or of all nodes (`StoreAll`).

    The bytes are those of a gradient's temporaries: the kept states and the work of one node, as reported by
    the compiler. Segments of one tape share them. In `grad(vmap(f))` they cover the whole batch; in
    `vmap(grad(f))` each member counts separately, so give the bytes of one. `jt.plan` shows the result
    beforehand.

    Attributes:
        bytes: The maximum bytes of a gradient's temporaries on the device, an int or a size such as "8MiB".
        budget: The same as an int, under the name that every schedule has.
        residuals: Whether it may keep residuals; otherwise only states are kept.
        checkpoint_dtype: The dtype of real floating-point leaves in slots; None leaves them as they are, and
            anything else excludes `StoreAll`.

    Raises:
        TypeError: If `bytes` is neither int nor text, or `checkpoint_dtype` no real floating-point dtype.
        ValueError: If `bytes` is below 1, or text that is not a size; at the first gradient, if they do not
            hold two states and the work of a node.

    Examples:
        >>> import jaxtape as jt
        >>> jt.Budget("1MiB")
        Budget(bytes=1048576)
    """

    bytes: int | str = _count("a gradient needs memory")
    residuals: bool = dataclasses.field(default=True, kw_only=True)
    budget: int = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self):
        if isinstance(self.bytes, str):
            object.__setattr__(self, "bytes", bytes_of(self.bytes))
        super().__post_init__()
        object.__setattr__(self, "budget", int(self.bytes))

    def table(self, length: int) -> ScheduleTable:
        """Give every state a slot, until the bytes of a state are known."""
        return revolve_table(length, length)
