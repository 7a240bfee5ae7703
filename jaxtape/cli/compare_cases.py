"""Load the cases of `jaxtape compare`, and compare one. It needs PyTorch."""

from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import EntryPoint
from typing import Any

import equinox as eqx
import numpy as np
import torch  # pyright: ignore[reportMissingImports]

from ..torch.case import TOLERANCES, Case
from ..torch.modules import module_case
from .user_code import as_value_error, load_object


def named_cases(names: list[str], known: Mapping[str, EntryPoint]) -> list[tuple[str, Case]]:
    """Return cases with their names: by name, or at FILE.py:NAME or module:NAME.

    Raises:
        ValueError: If there is none of that name.
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
        found.append((name, case))
    return found


def own_case(ours: str, theirs: str, inputs: str) -> tuple[str, Case]:
    """Return the case of two functions or of two modules, with its name.

    Raises:
        ValueError: If one cannot be read, or they do not match.
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
            return name, module_case(jax_fn, torch_fn, drawn)
    for place, found in ((ours, jax_fn), (theirs, torch_fn)):
        if not callable(found):
            kind = type(found).__name__
            raise ValueError(f"{place}: is a {kind}; give a function or a module")
    case = Case(jax_fn, torch_fn, lambda rng: drawn)  # pyright: ignore[reportArgumentType]
    return name, case


def comparison(
    name: str, case: Case, precision: str, way: str, *, tolerance: float | None, seed: int
) -> dict[str, Any]:
    """Return the comparison of a case in one precision, by one way of computing PyTorch's gradient.

    Args:
        name: The name of the case.
        case: The case.
        precision: "double" or "single".
        way: "eager", "func" or "compile".
        tolerance: The largest difference allowed, relative to the largest entry of each gradient and node; None
            for the default of the precision.
        seed: The seed of the inputs.

    Returns:
        `case`, `precision`, `way` and `tolerance`; `agrees`; `parts_at`, the first node beyond the tolerance;
        `weights`, descriptions of the weights that differ by more than rounding; `worst`, the gradient with the
        largest difference; a row for each of the `gradients` and `nodes`, the last of which is the value. A
        case that cannot be compared raises ValueError.
    """
    most = TOLERANCES[precision] if tolerance is None else tolerance
    remedy = "both must be functions of the same inputs with the same float outputs"
    with as_value_error(f"{name}: cannot be compared", remedy):
        table = case.table(precision, way=way, seed=seed)
    rows = [asdict(row) | {"relative": row.max_relative_difference} for row in table.rows]
    worst = max(rows, key=lambda row: np.nan_to_num(row["relative"], nan=np.inf))
    apart = [
        f"{weight} is {found.difference:.3g} apart at {list(found.at)}"
        for weight, found in table.weights.items()
        if found.is_apart
    ]
    parts_at = table.parts_at(most)
    return {
        "case": name,
        "precision": precision,
        "way": way,
        "tolerance": most,
        "agrees": bool(worst["relative"] <= most) and parts_at is None and not apart,
        "parts_at": parts_at,
        "weights": apart,
        "worst": worst,
        "gradients": rows,
        "nodes": [asdict(row) for row in table.outputs],
    }
