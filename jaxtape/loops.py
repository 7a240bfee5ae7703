"""`scan`: `jax.lax.scan` at a memory budget."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .chain import trace
from .schedule import AbstractSchedule, StoreAll

try:
    from .rule import run
except ImportError:  # VJPHiPrimitive is experimental
    from .reverse_only import run


def scan(
    f: Callable,
    init,
    xs=None,
    length: int | None = None,
    *,
    reverse: bool = False,
    unroll: int | bool = 1,
    schedule: AbstractSchedule | None = None,
) -> tuple[Any, Any]:
    """`jax.lax.scan`, reversed as a schedule says.

    `carry[k+1], y[k] = f(carry[k], x[k])`, k = 0 … n-1. Returns `(carry[n], ys)`, where `ys` stacks
    y on a new leading axis. Values and gradients are those of `lax.scan`: with respect to `init`,
    `xs` and whatever `f` closes over. Integer and key leaves are carried along.

    - **f**: `(carry, x) -> (carry, y)`; the carry keeps its structure, shapes and dtypes.
    - **init**: the first carry, any pytree of arrays.
    - **xs**: a pytree whose leaves have leading axis n; None if `f` reads nothing of its own.
    - **length**: n, needed if `xs` has no leaves.
    - **reverse**: run over `xs` from its end.
    - **unroll**: as in `lax.scan`, for schedules that run it (`StoreAll`).
    - **schedule**: what is kept for the reverse sweep. None is `StoreAll()`: `lax.scan` itself.

    Both modes, and second derivatives forward over reverse or either over forward, keep to the
    schedule. Reverse over reverse needs `StoreAll`. In forward mode a schedule other than that
    saves nothing, and the primal runs twice.

    **Errors**: `ValueError` if the leading axes disagree with each other or with `length`;
    `TypeError` if `f` changes the carry's structure, shape or dtype.
    """
    schedule = StoreAll() if schedule is None else schedule
    if not isinstance(schedule, AbstractSchedule):
        raise TypeError(f"schedule is {schedule!r}: give a schedule such as Revolve(slots=12).")
    xs = jax.tree.map(jnp.asarray, xs)
    length = _common_length(xs, length)
    table = schedule.compile(length)
    if table is None:
        return lax.scan(f, init, xs, length, reverse=reverse, unroll=unroll)
    chain, arrays, carry_tree, y_tree = trace(f, init, xs, table, reverse)
    out: Any = run(chain, arrays)
    carry, ys = out
    return jax.tree.unflatten(carry_tree, carry), jax.tree.unflatten(y_tree, ys)


def _common_length(xs, length: int | None) -> int:
    """The number of nodes, on which `length` and every leaf of `xs` must agree."""
    leaves = jax.tree_util.tree_leaves_with_path(xs)
    lengths = {} if length is None else {"length": int(length)}
    for path, leaf in leaves:
        name = f"xs{jax.tree_util.keystr(path)}"
        if not leaf.shape:
            raise ValueError(f"{name} is a scalar: stack one value a node on its leading axis.")
        lengths[name] = leaf.shape[0]
    if not lengths:
        raise ValueError("xs has no leaves and length is None: give one of them.")
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name}: {n}" for name, n in lengths.items())
        raise ValueError(f"The numbers of nodes disagree ({said}): make them equal.")
    return next(iter(lengths.values()))
