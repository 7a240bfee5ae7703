"""Print a recording as a Wengert list: operations, values, adjoints, and the bytes that each node saves."""

from typing import Any

import equinox as eqx
import jax
import numpy as np

from .segment import operation_name

_ENDS = 10  # nodes of a list at either end of a long tape


def wengert_list(recording: Any, y_bar: Any = None) -> str:
    """Return the table of `Recording.table`."""
    tape, adjoints = recording.tape, {}

    def look(position, state_bar):
        adjoints[position] = _numbers(state_bar) if _shown(position, len(tape)) else ""

    if y_bar is not None:
        recording.pullback(y_bar, hook=look)
    rows = [("position", "state", "adjoint", "operation", "saves")]
    for node in tape.traverse():
        if _shown(node.position, len(tape)):
            state = recording.state(node.position)
            bar = adjoints.get(node.position, "")
            saved = f"{_saved_bytes(node, state):,} B"
            rows.append(
                (f"{node.position}", _numbers(state), bar, operation_name(node.step), saved)
            )
        elif node.position == _ENDS:
            rows.append(("…", f"{len(tape) - 2 * _ENDS:,} more", "", "", ""))
    last = _numbers(recording.value), adjoints.get(len(tape), "")
    rows.append((f"{len(tape)}", *last, "", ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{x:>{n}}" for x, n in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _shown(position: int, n: int) -> bool:
    return position < _ENDS or position >= n - _ENDS


def _numbers(state: Any) -> str:
    """Return a scalar's value, or an array's shape and largest absolute entry, as text."""

    def one(leaf):
        leaf = np.asarray(leaf)
        if not np.issubdtype(leaf.dtype, np.number):
            return str(leaf.dtype)
        return (
            f"{leaf:.6g}"
            if not leaf.ndim
            else f"{list(leaf.shape)} <= {abs(leaf).max(initial=0):.4g}"
        )

    return ", ".join(map(one, filter(eqx.is_array, jax.tree.leaves(state))))


def _saved_bytes(node: Any, state: Any) -> int:
    """Return the bytes that the pullback of a node reads, apart from its cotangent."""
    varying, held = eqx.partition((node.params, state), eqx.is_inexact_array)

    def pullback(varying):
        def run(varying):
            params, state = eqx.combine(varying, held)
            return eqx.filter(node.step(params, state), eqx.is_inexact_array)

        return jax.vjp(run, varying)[1]

    saved = jax.tree.leaves(jax.eval_shape(pullback, varying))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in saved)
