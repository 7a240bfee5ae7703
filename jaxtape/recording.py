"""A tape that has been run, and the states it kept: ask for others, pull back in parts, edit and go on."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from .tape import Tape

Hook = Callable[[int, Any], None]

_LEAST_PIECE = 32  # nodes: a program runs for each piece between kept states


class Diagnosis(NamedTuple):
    """The node at `position` is the first to make a `what` ("state" or "cotangent") that is not finite.

    For a cotangent, the first on the way back. `leaf`: where in the state.
    """

    position: int
    what: str
    leaf: str


class Recording:
    """What `tape.record(x)` returns: the tape, the first state, and the states at some positions.

    The positions are those that the schedule's first sweep keeps, the marks, and the end. Edits
    return another recording: only the nodes after the last kept state that is still right are run
    again. Of the states that are still right but at other positions, as many again stay. A
    recording lives outside of `jax.jit`; its runs are compiled.
    """

    def __init__(self, tape: "Tape", kept: dict[int, Any]):
        """Runs from the last kept state on; `kept` holds position 0."""
        wanted, start = tape.kept_positions(), max(kept)
        self.tape, self._kept = tape, dict(kept)
        state = kept[start]
        for stop in sorted({p for p in wanted if p > start} | {len(tape)} - {start}):
            state = self._kept[stop] = _replay(tape[start:stop], state)
            start = stop
        self._thin(wanted | {0, len(tape)})

    @property
    def value(self):
        """The state after the last node."""
        return self._kept[len(self.tape)]

    @property
    def kept(self) -> tuple[int, ...]:
        """The positions whose states are at hand."""
        return tuple(sorted(self._kept))

    def state(self, k: int):
        """The state at position k, from the nearest kept one at or before it."""
        k = self.tape.position(k)
        start = max(p for p in self._kept if p <= k)
        return self._kept[start] if start == k else _replay(self.tape[start:k], self._kept[start])

    def pullback(self, y_bar, stop: int = 0, hook: Hook | None = None) -> tuple[Any, "Tape"]:
        """Cotangents pulled back from the value to position `stop`.

        Returns (state_bar at `stop`, tape_bar): the latter as `eqx.filter_grad` gives it, zero for the nodes
        before `stop`. `hook(position, state_bar)` sees the cotangent of every state on the way, the
        value's first; it makes the sweep go node by node.
        """
        stop = self.tape.position(stop)
        state_bar, tape_bar = jax.tree.map(jnp.asarray, y_bar), _zero_bar(self.tape)
        pieces = self._pieces_back(stop)
        for i, j, state in pieces if hook is None else self._nodes_back(pieces):
            if hook is not None:
                hook(j, state_bar)
            part_bar, state_bar = _pull(self.tape[i:j], state, state_bar)
            tape_bar = _added(self.tape, tape_bar, part_bar, i, j)
        if hook is not None:
            hook(stop, state_bar)
        return state_bar, tape_bar

    def append(self, step: Callable, params) -> "Recording":
        """With more nodes, which are all that is run."""
        return Recording(self.tape.append(step, params), self._kept)

    def erase(self, i: int, j: int) -> "Recording":
        """Without the nodes [i, j): states up to position i stay."""
        tape, i = self.tape.erase(i, j), self.tape.position(i)
        return Recording(tape, self._until(i if len(tape) < len(self.tape) else len(tape)))

    def truncate(self, k: int) -> "Recording":
        """The nodes before position k."""
        return self.erase(k, len(self.tape))

    def drop(self, n: int) -> "Recording":
        """Without the n oldest nodes, from the state that they led to: no state after it changes."""
        tape = self.tape.drop(n)
        later = {p - n: state for p, state in self._kept.items() if p > n}
        return Recording(tape, {0: self.state(n), **later})

    def replace(self, i: int, j: int, params) -> "Recording":
        """With other params for the nodes [i, j): states up to position i stay."""
        return Recording(self.tape.replace(i, j, params), self._until(self.tape.position(i)))

    def diagnose(self, y_bar=None) -> Diagnosis | None:
        """The first node whose state is not finite; if there is none and `y_bar` is given, the first on the
        way back whose cotangent is not. None if all are finite."""
        state = self._kept[0]
        if leaves := _not_finite(state):
            raise ValueError(
                f"The first state is not finite in {leaves[0]}: no node has made that."
            )
        for k in range(len(self.tape)):
            state = _replay(self.tape[k : k + 1], state)
            if leaves := _not_finite(state):
                return Diagnosis(k, "state", leaves[0])
        found: list[Diagnosis] = []

        def look(position, state_bar):
            if not found and (leaves := _not_finite(state_bar)):
                found.append(Diagnosis(position, "cotangent", leaves[0]))

        if y_bar is not None:
            self.pullback(y_bar, hook=look)
        return found[0] if found else None

    def __repr__(self) -> str:
        return f"Recording({self.tape!r}, {len(self._kept)} states kept)"

    def _pieces_back(self, stop: int) -> Iterator[tuple[int, int, Any]]:
        """(start, end, state at start) of the pieces between kept states, the last first, down to `stop`."""
        end = len(self.tape)
        for start in sorted((p for p in self._kept if stop < p < end), reverse=True):
            if end - start >= _LEAST_PIECE:
                yield start, end, self._kept[start]
                end = start
        if stop < end:
            yield stop, end, self.state(stop)

    def _nodes_back(self, pieces) -> Iterator[tuple[int, int, Any]]:
        """The pieces cut into single nodes, the last first."""
        for start, end, state in pieces:
            states = [state]
            for k in range(start, end - 1):
                states.append(_replay(self.tape[k : k + 1], states[-1]))
            for k in reversed(range(start, end)):
                yield k, k + 1, states.pop()

    def _thin(self, wanted: set[int]) -> None:
        """Of the states that are right but not asked for, keep as many as are asked for, evenly spread."""
        extra = sorted(set(self._kept) - wanted)
        spread = np.linspace(0, len(extra) - 1, min(len(extra), len(wanted))).astype(int)
        chosen = {extra[i] for i in spread} | wanted
        self._kept = {p: state for p, state in self._kept.items() if p in chosen}

    def _until(self, k: int) -> dict[int, Any]:
        """The kept states at or before position k."""
        return {p: state for p, state in self._kept.items() if p <= k}


@eqx.filter_jit
def _replay(tape: "Tape", state):
    return tape(state)


@eqx.filter_jit
def _pull(tape: "Tape", state, state_bar):
    """(tape_bar, bar of the first state)."""
    varying, still = eqx.partition((tape, state), eqx.is_inexact_array)

    def run(varying):
        tape, state = eqx.combine(varying, still)
        return _inexact(tape(state))

    _, pullback = jax.vjp(run, varying)
    (bars,) = pullback(_inexact(state_bar))
    return bars


def _inexact(state):
    """The leaves of a state that have a cotangent; None in place of the others."""
    return eqx.filter(state, eqx.is_inexact_array)


def _zero_bar(tape: "Tape") -> "Tape":
    return jax.tree.map(jnp.zeros_like, eqx.filter(tape, eqx.is_inexact_array))


def _added(tape: "Tape", tape_bar: "Tape", part_bar: "Tape", i: int, j: int) -> "Tape":
    """The cotangents of a slice added to those of the tape: their segments are the same places."""
    numbers = [number for number, (a, b) in enumerate(tape.bounds()) if a < j and i < b]
    segments = list(tape_bar.segments)
    for number, part in zip(numbers, part_bar.segments, strict=True):
        whole = segments[number]
        for name in ("params", "shared"):
            total = jax.tree.map(jnp.add, getattr(whole, name), getattr(part, name))
            whole = eqx.tree_at(
                lambda s, name=name: getattr(s, name), whole, total, is_leaf=_is_none
            )
        segments[number] = whole
    return eqx.tree_at(lambda t: t.segments, tape_bar, tuple(segments), is_leaf=_is_none)


def _is_none(x) -> bool:
    return x is None


def _not_finite(state) -> list[str]:
    """The paths of the leaves that hold something that is not finite."""
    leaves = jax.tree_util.tree_leaves_with_path(_inexact(state))
    return [
        f"state{jax.tree_util.keystr(path)}"
        for path, leaf in leaves
        if not np.all(np.isfinite(leaf))
    ]
