"""Evaluate solutions of backward equations: programs written by `pricing.fbsde.export`."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.export
import numpy as np

from pricing.ingestion.errors import InputError, UnreadableFile
from pricing.ingestion.files import parse_json, text_of

from .database import Unusable, check_private
from .documents import SolutionEntry, SolutionFigures
from .problems import HTTPProblem, refused
from .session_state import NAME, NAME_REMEDY

FIGURES = ("value", "delta", "gamma")
REACH = "reach"
_FORM = 'give {"t": 0.0, "states": [[100.0, ...], ...]}'


class ServedSolution(NamedTuple):
    """The programs of one solution.

    `figures` maps names to programs of (t, x). `dim` is the dimension of the state, and `dtype` its dtype.
    `reach` is the program of the range that paths reach, [2, dim], if it was exported.
    """

    name: str
    figures: Mapping[str, Callable]
    dim: int
    dtype: np.dtype
    reach: Callable | None = None

    @property
    def entry(self) -> SolutionEntry:
        """The entry of the solution in the list."""
        return SolutionEntry(name=self.name, dimension=self.dim, figures=list(self.figures))

    def evaluated(self, content: bytes, most: int) -> SolutionFigures:
        """Return the figures at the time and the states in a request's body, at most `most` states.

        Raises:
            HTTPProblem: If the body has another form, or a figure is not known there.
        """
        t, states = self._point(content, most)
        found: dict[str, Any] = {}
        for name, program in self.figures.items():
            rows = np.stack([np.asarray(program(t, x)) for x in states])
            if not np.all(np.isfinite(rows)):
                place = int(np.argwhere(~np.isfinite(rows))[0][0])
                remedy = "give a time between 0 and the maturity, and a state that the solution's paths reach"
                detail = f"{name} is not known at t = {float(t):g} in states[{place}]"
                raise HTTPProblem(422, "state-refused", detail, remedy)
            found[name] = rows.tolist()
        extrapolated = None
        if self.reach is not None:
            low, high = np.asarray(self.reach(t, states[0]))
            extrapolated = np.any((states < low) | (states > high), axis=1).tolist()
        return SolutionFigures(name=self.name, t=float(t), figures=found, extrapolated=extrapolated)

    def _point(self, content: bytes, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the time and the states in a body.

        Raises:
            refused: If it has another form; an `HTTPProblem`.
            HTTPProblem: If there are too many states.
        """
        file = "states.json"
        try:
            document = parse_json(text_of(content, file), file)
        except UnreadableFile as error:
            raise refused("state-refused", [error.error]) from None
        t = states = None
        if isinstance(document, dict) and set(document) == {"t", "states"}:
            t, states = document["t"], document["states"]
        if isinstance(states, list) and len(states) > most:
            detail = f"there are {len(states):,} states, and at most {most:,} are allowed"
            raise HTTPProblem(413, "too-large", detail, "split them, or raise --max-states")
        rows = states if isinstance(states, list) else []
        is_row = lambda x: isinstance(x, list) and len(x) == self.dim and all(map(_is_number, x))
        if not _is_number(t) or not rows or not all(map(is_row, rows)):
            message = (
                f"a request needs a time t and at least one state of {self.dim} finite numbers"
            )
            raise refused("state-refused", [InputError(file, None, None, "", "", message, _FORM)])
        with np.errstate(over="ignore"):
            time, points = np.asarray(t, self.dtype), np.asarray(rows, self.dtype)
        if not (np.isfinite(time) and np.all(np.isfinite(points))):
            message = f"a number is too large for the solution's {self.dtype}"
            raise refused("state-refused", [InputError(file, None, None, "", "", message, _FORM)])
        return time, points


def read_solutions(folder: Path | None) -> dict[str, ServedSolution]:
    """Return the solutions in a folder, by name, with their programs compiled.

    Raises:
        Unusable: If the folder cannot be read, is writable by others, or contains a file that is not such a
            program.
    """
    if folder is None:
        return {}
    try:
        check_private(folder, "another --solutions")
        files = sorted(folder.iterdir())
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unusable(f"{folder}: cannot be read: {reason}; give another --solutions") from None
    found: dict[str, ServedSolution] = {}
    digests: dict[str, str] = {}
    for file in files:
        name, figure = file.stem, file.suffix[1:]
        if figure not in (*FIGURES, REACH) or not NAME.fullmatch(name):
            forms = ", ".join(f"NAME.{one}" for one in (*FIGURES, REACH))
            raise Unusable(f"{file}: is none of {forms}; move it away ({NAME_REMEDY})")
        exported, program = _compiled(file)
        kind, _, digest = exported.fun_name.rpartition("_")
        if kind != figure:
            holds = f"holds the {kind}" if kind in (*FIGURES, REACH) else "names no figure"
            raise Unusable(f"{file}: {holds} of a solution; export its {figure} again")
        _, x = exported.in_avals
        known = found.get(name, ServedSolution(name, {}, x.shape[0], x.dtype))
        if digests.setdefault(name, digest) != digest:
            raise Unusable(
                f"{file}: is from another solution than the files beside it; export it again"
            )
        if figure == REACH:
            found[name] = known._replace(reach=program)
        else:
            found[name] = known._replace(figures={**known.figures, figure: program})
    for name, one in found.items():
        if not one.figures:
            raise Unusable(f"{folder / name}.{REACH}: has no figures beside it; export one, too")
    in_order = lambda figures: {name: figures[name] for name in FIGURES if name in figures}
    return {name: one._replace(figures=in_order(one.figures)) for name, one in found.items()}


def _compiled(file: Path) -> tuple[Any, Callable]:
    """Return an exported program of (t, x), and its compiled form.

    Raises:
        Unusable: If the file is not a program, or one that does not run here.
    """
    try:
        exported = jax.export.deserialize(bytearray(file.read_bytes()))
        t, x = exported.in_avals
        assert not t.shape and len(x.shape) == 1, "it is not a function of a time and a state"
        program = jax.jit(exported.call).lower(*exported.in_avals).compile()
    except Exception as error:  # bytes can be wrong in countless ways
        reason = " ".join(str(error).split())[:200]
        raise Unusable(
            f"{file}: is not a program that pricing.fbsde.export wrote for this machine and "
            f"precision: {reason}; "
            "export the solution again, or give --precision"
        ) from None
    return exported, program


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)
