"""JAX loops within a memory budget: `scan` and `while_loop`."""

import dataclasses
import operator
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax import lax

from .. import sweeps
from ..schedules.online import check_steps, online_table, two_sweeps
from ..schedules.schedule import AbstractSchedule, StoreAll
from ..schedules.table import check_count, check_slots
from ..sweeps.chain import trace
from ..sweeps.kernel_executor import has_kernel, kernels_here
from ..sweeps.leaves import as_array, avals
from ..sweeps.masked_executor import MaskedExecutor
from ..sweeps.residual_executor import executor_of
from ..sweeps.sums_of_ys import sums_of
from ..sweeps.while_executor import with_condition


def scan(
    f: Callable,
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    reverse: bool = False,
    unroll: int | bool = 1,
    schedule: AbstractSchedule | None = None,
    sum_ys: int = 1,
) -> tuple[Any, Any]:
    """Run `jax.lax.scan`, and reverse it by a checkpointing schedule.

    `carry[k+1], y[k] = f(carry[k], x[k])`, k = 0 … n-1. It has the values and gradients of `lax.scan`, with
    respect to `init`, `xs` and whatever `f` closes over. Integer and key leaves are carried along.

    Both modes and all second derivatives keep to the schedule. Of the latter, forward over reverse is the
    fastest; reverse over reverse runs as reverse over forward, in 3 to 4 times the memory of a gradient.
    Reverse mode over forward over reverse needs `StoreAll`. In forward mode any other schedule saves nothing,
    and the primal runs twice. Side effects of `f` (`jax.debug.print`, `io_callback`) are repeated whenever a
    node is run again: `jt.plan` (of a tape with the step `lambda x, carry: f(carry, x)[0]`) and `jt.advances`
    show how often.

    Args:
        f: A function `(carry, x) -> (carry, y)`; the carry keeps its structure, shapes and dtypes.
        init: The first carry, any pytree of arrays.
        xs: A pytree whose leaves have leading axis n; None if `f` does not use x.
        length: The number of nodes n, needed if `xs` has no leaves.
        reverse: Whether to run over `xs` from its end.
        unroll: The number of nodes that each iteration of the loop runs, as in `lax.scan`. Schedules other than
            `StoreAll` check it and ignore it.
        schedule: The schedule of states kept for the reverse sweep. None is `StoreAll()`: `lax.scan` itself or,
            with `jt.set_kernels` on, a kernel that keeps every state.
        sum_ys: The number of consecutive nodes whose y's are summed, each leaf in its own dtype; n must be a
            multiple. A kernel sums them in place: only the sums reach memory.

    Returns:
        The pair `(carry[n], ys)`, where `ys` stacks the y's, or their sums, on a new leading axis.

    Raises:
        TypeError: If `schedule` is not a schedule, `f` changes the carry's structure, shape or dtype, `length`
            or `unroll` is traced or not a number, or a y to sum is not numeric. It is a `ValueError` if the
            leading axes disagree with each other or with `length`, `length` or `unroll` is negative, or n is
            not a multiple of `sum_ys`.

    Examples:
        >>> import jax.numpy as jnp, jaxtape as jt
        >>> total, ys = jt.scan(lambda c, x: (c + x, c), 0.0, jnp.arange(4.0), schedule=jt.Revolve(2))
        >>> f"{total:.1f}", ys.shape
        ('6.0', (4,))
    """
    schedule = StoreAll() if schedule is None else schedule
    if not isinstance(schedule, AbstractSchedule):
        raise TypeError(f"schedule is {schedule!r}: give a schedule such as Revolve(slots=12).")
    xs = jax.tree.map(as_array, xs)
    length = _common_length(xs, length)
    schedule = schedule.applied_to(length)
    unroll = _checked_unroll(unroll)
    _check_sums(sum_ys, length)
    by_slots = not schedule.keeps_residuals
    if length and (by_slots or (schedule.policy is None and kernels_here() is not None)):
        executor = executor_of(schedule, length)
        chain, arrays, *trees = trace(f, init, xs, executor, reverse)
        summing = dataclasses.replace(chain, sum_ys=sum_ys)
        may_sum = schedule.budget is None and (sum_ys > 1 or not by_slots)
        in_kernel = may_sum and has_kernel(summing, avals(tuple(arrays)))
        if by_slots or in_kernel:
            out = sweeps.run(summing if in_kernel else chain, arrays)
            carry, ys = map(jax.tree.unflatten, trees, out)
            return carry, ys if in_kernel else _sums(ys, sum_ys)
    f = schedule.checkpointed(f, prevent_cse=unroll != 1 or length == 1) if length else f
    carry, ys = lax.scan(f, init, xs, length, reverse=reverse, unroll=unroll)
    return carry, _sums(ys, sum_ys)


def _check_sums(sum_ys: int, length: int) -> None:
    """Check that the nodes fall into groups of `sum_ys`.

    Raises:
        ValueError: If they do not.
    """
    check_count("sum_ys", sum_ys, "a sum has a node")
    if length % sum_ys:
        raise ValueError(f"sum_ys is {sum_ys}, and there are {length:,} nodes: give a divisor.")


def _sums(ys: Any, count: int) -> Any:
    """Return the sums of the ys of `count` consecutive nodes."""
    return jax.tree.map(lambda y: sums_of(y, count), ys)


def while_loop(
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    init: Any,
    max_steps: int,
    *,
    slots: int | None = None,
) -> Any:
    """Run `jax.lax.while_loop` for at most `max_steps` steps, with a gradient.

    `state[k+1] = body(state[k])` while `cond(state[k])` holds and k < max_steps. Work is proportional to the
    number n of steps taken: each is taped once, and there are `loop_advances(n, slots)` forward steps in all.
    That is n up to n = slots, and less than 2 n up to about n = slots^2 / 2; beyond, it is within a few percent
    of `advances(n, slots)`, the minimum if n is known beforehand.

    It supports both modes, and second derivatives forward over reverse. In a batch (`jax.vmap`), the loop runs
    until the last member has stopped; stopped members keep their state. Side effects of `cond` and `body`
    (`jax.debug.print`) are repeated whenever they run.

    Args:
        cond: A function of the state to a boolean scalar. It is not differentiated.
        body: A function of the state to the next state, of the same structure, shapes and dtypes.
        init: The first state, any pytree of arrays.
        max_steps: The maximum number of steps, a Python int of at most 2^31 - 1. A large value costs no time
            and, with `slots` given, no memory.
        slots: The maximum number of kept states, at least 1. None takes the number with which no step need be
            advanced more than twice, about sqrt(2 max_steps).

    Returns:
        The last state.

    Raises:
        TypeError: If `cond` does not return a boolean scalar, or `body` changes the state's structure, shapes
            or dtypes. It is a `ValueError` if `max_steps` or `slots` is below 1, or `max_steps` above 2^31 - 1.

    Examples:
        >>> import jaxtape as jt
        >>> float(jt.while_loop(lambda x: x < 9.0, lambda x: 2.0 * x, 1.0, max_steps=8))
        16.0
    """
    check_count("max_steps", max_steps, "a loop may take a step")
    if slots is not None:
        check_slots(slots)
    check_steps("max_steps", max_steps)
    max_steps = int(max_steps)
    table = online_table(max_steps, two_sweeps(max_steps) if slots is None else int(slots))
    chain, arrays, tree, _ = trace(_node_of(body), init, (), MaskedExecutor(table))
    closed, shape = jax.make_jaxpr(cond, return_shape=True)(jax.tree.unflatten(tree, arrays.init))
    if [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(shape)] != [((), jnp.bool_)]:
        raise TypeError(f"cond returns {shape}: return one boolean scalar.")
    chain, arrays = with_condition(chain, arrays, closed)
    state, _ = sweeps.run(chain, arrays)
    return jax.tree.unflatten(tree, state)


def _node_of(body: Callable) -> Callable:
    """Return `(state, x) -> (body(state), None)`, cached for as long as `body` lives.

    JAX traces one function once for arguments of the same types.
    """
    try:
        reference, node = _nodes.get(body, (lambda: None, None))
        if reference() is not body:
            reference = weakref.ref(body)
            _nodes[body] = reference, node = reference, _node_from(reference)
        return node
    except TypeError:  # it is unhashable, or has no weak references
        return _node_from(lambda: body)


def _node_from(of: Callable) -> Callable:
    return lambda state, x: (of()(state), None)


_nodes = weakref.WeakKeyDictionary()


def _common_length(xs, length) -> int:
    leaves = jax.tree_util.tree_leaves_with_path(xs)
    lengths = {} if length is None else {"length": _static_length(length)}
    for path, leaf in leaves:
        name = f"xs{jax.tree_util.keystr(path)}"
        if not leaf.shape:
            raise ValueError(f"{name} is a scalar: stack one value per node on its leading axis.")
        lengths[name] = leaf.shape[0]
    if not lengths:
        raise ValueError("xs has no leaves and length is None: give one of them.")
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name}: {n}" for name, n in lengths.items())
        raise ValueError(f"The numbers of nodes disagree ({listed}): make them equal.")
    return next(iter(lengths.values()))


def _static_length(length) -> int:
    if isinstance(length, jax.core.Tracer):
        raise jax.errors.ConcretizationTypeError(
            length,
            "length is traced: the number of nodes is part of the program, so give an int, or take "
            "jt.while_loop, which stops when it likes.",
        )
    if int(length) < 0:
        raise ValueError(f"length is {length}: give 0 or more nodes.")
    return int(length)


def _checked_unroll(unroll) -> int | bool:
    if isinstance(unroll, bool):
        return unroll
    try:
        unroll = operator.index(unroll)
    except TypeError:
        raise TypeError(
            f"unroll is {unroll!r}: `unroll` must be a `bool` or a non-negative `int`."
        ) from None
    if unroll < 0:
        raise ValueError(f"unroll is {unroll}: `unroll` must be a `bool` or a non-negative `int`.")
    return unroll
