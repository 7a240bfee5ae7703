"""Valuation of checks; contracts of one form, type of model and method share a program."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from jaxtape import stored_jit
from jaxtape.cli.check import Check

from ..methods import AbstractMethod
from ..sensitivities import greeks
from ..valuation import price
from .table_rows import Contract, contract_of


def find(checks: Sequence[Check]) -> list[Check]:
    """Return checks of contracts with the library's values, in order.

    Args:
        checks: Rows of tables that name a product and a model (`contract_of`).

    Returns:
        The checks, each with a value, its method and its standard error.
    """
    key = jax.random.key(0)
    found: dict[int, Check] = {}
    batches: dict[Hashable, list[tuple[Contract, list[int]]]] = defaultdict(list)
    for places in _rows(checks):
        try:
            contract = contract_of(checks[places[0]], key)
        except (TypeError, ValueError) as error:  # the other rows are still valued
            found |= {at: checks[at].not_found(str(error)) for at in places}
        else:
            batches[_program(contract)].append((contract, places))
    for batch in batches.values():
        figures = tuple(sorted({checks[at].figure for _, places in batch for at in places}))
        priced = _priced([contract for contract, _ in batch], figures, key)
        for row, ((*_, method), places) in enumerate(batch):
            for at in places:
                value, std_error = priced[checks[at].figure]
                # the grid-error estimate does not widen the tolerance
                error = float(std_error[row]) if method.is_random else 0.0
                found[at] = checks[at].found(float(value[row]), method.name, error)
    return [found[at] for at in range(len(checks))]


def _rows(checks: Sequence[Check]) -> list[list[int]]:
    """Return the indices of checks for figures of the same contract and method."""
    rows: dict[Hashable, list[int]] = defaultdict(list)
    for at, known in enumerate(checks):
        rows[known.source.name, tuple(sorted(known.cells.items())), known.method].append(at)
    return list(rows.values())


def _program(contract: Contract) -> Hashable:
    """Return the key of contracts that share a program: structures and shapes."""
    leaves, structure = jax.tree.flatten(contract)
    return structure, tuple(np.shape(leaf) for leaf in leaves)


def _priced(
    contracts: list[Contract], figures: tuple[str, ...], key: PRNGKeyArray
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the figures of contracts that share a program, with standard errors.

    Contracts are vectorized in the method's preferred number; copies of the last one are padding.
    """
    (*_, method), count = contracts[0], len(contracts)
    side = min(count, method.tiling(contracts[0][0]).trades)
    padded = [*contracts, *contracts[-1:] * (-count % side)]
    pairs = [pair for *pair, _ in padded]
    batch = jax.tree.map(lambda *leaves: _stacked(leaves, side), *pairs)
    priced = _figures(batch, method, key if method.is_random else None, figures)
    return jax.tree.map(lambda x: np.asarray(x).ravel()[:count], priced)


def _stacked(leaves: Sequence[Any], side: int) -> Array:
    rows = np.stack([np.asarray(leaf) for leaf in leaves])
    return jnp.asarray(rows.reshape(-1, side, *rows.shape[1:]))


@stored_jit
def _figures(
    batch: Any, method: AbstractMethod, key: PRNGKeyArray | None, figures: tuple[str, ...]
) -> dict[str, tuple[Array, Array]]:
    def of_one(product, model):
        if figures == ("value",):
            found = price(product, model, method, key=key, throw=False)
            return {"value": (found.value, found.std_error)}
        found = greeks(product, model, method, key=key, throw=False)
        return {name: (getattr(found, name), getattr(found.std_errors, name)) for name in figures}

    return jax.lax.map(lambda pair: jax.vmap(of_one)(*pair), batch)
