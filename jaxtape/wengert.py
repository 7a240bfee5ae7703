"""A tape printed as a Wengert list: one line an operation."""

import jax

from .node_list import AbstractTape
from .segment import operation_name

_ENDS = 10  # lines shown at either end of a long tape


def wengert_list(tape: AbstractTape) -> str:
    """Print position, operation, states kept when the first sweep is there, whether this is one, and bytes."""
    lines = [f"{'position':>8}  {'operation':<32}  {'live':>6}  {'kept':<6}  {'bytes':>10}"]
    marks, kept_at, position, live, n = set(tape.marks), tape.kept_positions(), 0, 0, len(tape)
    for segment in tape.segments:
        name = operation_name(segment.step)
        leaves = jax.tree.leaves(segment.params)
        size = sum(leaf.nbytes for leaf in leaves) // max(segment.capacity, 1)
        for _ in range(len(segment)):
            live += position in kept_at
            if position < _ENDS or position >= n - _ENDS:
                kept = "mark" if position in marks else "slot" if position in kept_at else ""
                lines.append(f"{position:>8}  {name:<32}  {live:>6}  {kept:<6}  {size:>10,}")
            elif position == _ENDS:
                lines.append(f"{'…':>8}  {n - 2 * _ENDS:,} more")
            position += 1
    return "\n".join(lines)
