"""The cases of a comparison with PyTorch, and their verdicts. Needs PyTorch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint
from typing import Any

import equinox as eqx
import numpy as np
import torch  # pyright: ignore[reportMissingImports]

from ...torch.case import TOLERANCES, Case
from ...torch.modules import module_case
from ..user_code import as_value_error, load_object


@dataclass(frozen=True)
class Asked:
    """A case with its name."""

    name: str
    case: Case


@dataclass
class Verdict:
    """One comparison: a case, a precision and a way of computing PyTorch's gradient.

    Attributes:
        case: The name of the case.
        precision: "double" or "single".
        way: "eager", "func" or "compile".
        tolerance: The largest difference allowed, relative to the largest entry of each gradient and node.
        agrees: Whether all are within.
        parts_at: The first node that is not within the tolerance, or None.
        weights: Descriptions of the weights of the two modules that differ by more than rounding.
        worst: The gradient that is furthest apart.
        gradients: One row for each gradient.
        nodes: One row for each node; the last node is the value.
    """

    case: str
    precision: str
    way: str
    tolerance: float
    agrees: bool
    parts_at: str | None
    weights: list[str]
    worst: dict[str, Any]
    gradients: list[dict[str, Any]]
    nodes: list[dict[str, Any]]


def named_cases(names: list[str], known: Mapping[str, EntryPoint]) -> list[Asked]:
    """Return cases by name, or at FILE.py:NAME or module:NAME.

    Raises:
        ValueError: There is none.
    """
    found = []
    for name in sorted(known) if names == ["all"] else names:
        if name not in known and ":" not in name:
            raise ValueError(
                f"{name}: no such case. There are: {', '.join(sorted(known))}; or give FILE.py:CASE"
            )
        case = known[name].load() if name in known else load_object(name)
        if not isinstance(case, Case) and callable(case):
            with as_value_error(f"{name}: fails", "give what returns a jaxtape.torch.Case"):
                case = case()
        if not isinstance(case, Case):
            kind = type(case).__name__
            raise ValueError(f"{name}: is a {kind}; give a jaxtape.torch.Case, or what returns one")
        found.append(Asked(name, case))
    return found


def own_case(ours: str, theirs: str, inputs: str) -> Asked:
    """Return the case of two functions or of two modules.

    Raises:
        ValueError: One cannot be read, or they do not fit.
    """
    name = " and ".join(place.rpartition(":")[2] for place in (ours, theirs))
    jax_fn: Any = load_object(ours)
    torch_fn, drawn = load_object(theirs), load_object(inputs)
    if callable(drawn):
        with as_value_error(f"{inputs}: fails", "give a function of no arguments"):
            drawn = drawn()
    if not isinstance(drawn, tuple):
        kind = type(drawn).__name__
        raise ValueError(
            f"{inputs}: is a {kind}; give a tuple with one pytree of arrays for each argument"
        )
    if isinstance(jax_fn, eqx.Module) and isinstance(torch_fn, torch.nn.Module):
        remedy = "give both the same parameters"
        with as_value_error("the modules cannot be compared", remedy):
            return Asked(name, module_case(jax_fn, torch_fn, drawn))
    for place, found in ((ours, jax_fn), (theirs, torch_fn)):
        if not callable(found):
            kind = type(found).__name__
            raise ValueError(f"{place}: is a {kind}; give a function or a module")
    case = Case(jax_fn, torch_fn, lambda rng: drawn)  # pyright: ignore[reportArgumentType]
    return Asked(name, case)


def verdict_of(
    asked: Asked, precision: str, way: str, *, tolerance: float | None, seed: int
) -> Verdict:
    """Return the verdict of a comparison.

    tolerance: Relative to the largest entry; None is the default of the precision. A case that cannot be
        compared raises ValueError.
    """
    most = TOLERANCES[precision] if tolerance is None else tolerance
    remedy = "both are to be functions of the same inputs with the same float outputs"
    with as_value_error(f"{asked.name}: cannot be compared", remedy):
        table = asked.case.table(precision, way=way, seed=seed)
    rows = [asdict(row) | {"relative": row.max_relative_difference} for row in table.rows]
    worst = max(rows, key=lambda row: np.nan_to_num(row["relative"], nan=np.inf))
    apart = [
        f"{weight} is {found.difference:.3g} apart at {list(found.at)}"
        for weight, found in table.weights.items()
        if found.is_apart
    ]
    parts_at = table.parts_at(most)
    agrees = bool(worst["relative"] <= most) and parts_at is None and not apart
    nodes = [asdict(row) for row in table.outputs]
    known = asked.name, precision, way, most, agrees, parts_at
    return Verdict(*known, apart, worst, rows, nodes)
